"""Whether tasks from Python do what people of this ecosystem expect, on nodes of this machine."""

from __future__ import annotations

import asyncio
import concurrent.futures
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cantle
from cantle.errors import RequestError

pytestmark = pytest.mark.real


@cantle.task
def square(x: int) -> int:
    return x * x


@cantle.task(name="total")
def add_up(values: list[int]) -> int:
    return sum(values)


@cantle.task
def fail(word: str) -> int:
    raise ValueError(f"no {word}")


@cantle.task
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@cantle.task
def until_there(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.02)


@cantle.task
def many_bytes(size: int) -> bytes:
    return b"x" * size


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"walltime": [3]}, "walltime=[3] is no number of seconds"),
        ({"memory": {}}, "memory={} is no number of MiB"),
        ({"priority": "high"}, "priority='high' is no number"),
        ({"widths": 3}, "widths=3 is no list of whole numbers"),
        ({"widths": ["2"]}, "widths=['2'] is no list of whole numbers"),
        ({"resources": ["licence"]}, "resources=['licence'] does not say how many of what"),
        ({"kind": 4}, "kind=4 is no text"),
    ],
)
def test_an_option_of_the_wrong_sort_is_told_by_its_key(options: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError) as told:
        square.with_options(**options)  # type: ignore[arg-type]
    assert words in str(told.value) and str(told.value).startswith("square: ")


def test_none_takes_an_option_back() -> None:
    needy = square.with_options(cores=2, walltime=5, memory="1 GB", widths=[1, 2], estimate=3)
    plain = needy.with_options(cores=None, walltime=None, memory=None, widths=None, estimate=None)  # type: ignore[arg-type]
    assert (plain.step, plain.estimate_s) == (square.step, 0.0) and needy.step != square.step


def test_what_is_no_function_and_what_is_no_future_is_told_at_once(pilot: cantle.Pilot) -> None:
    with pytest.raises(TypeError, match="9 cannot be called: give the function"):
        pilot.submit(square(3))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="3 is not the future of a call"):
        square.submit(1, after=[3])  # type: ignore[list-item]
    future = square.submit(2)
    with pytest.raises(TypeError, match=r"give its \.values\(\)"):
        cantle.gather({"a": future})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"ask for future\.result\(\)"):
        cantle.gather(future)  # type: ignore[call-overload]
    for waiting in (cantle.gather, cantle.wait, cantle.as_completed):
        with pytest.raises(TypeError, match="which 7 is not"):
            waiting([future, 7])
    assert cantle.gather([future]) == [4]


def test_what_can_be_no_policy_is_told() -> None:
    kinds = {"cpu": {"cores": 1, "provider": "local"}}
    with pytest.raises(RequestError, match=r"scaling=3 is no policy and no list of policies"):
        cantle.open(kinds=kinds, scaling=3)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="is no policy and no list of policies"):
        cantle.open(kinds=kinds, scaling=["demand", 3])  # type: ignore[list-item]

    def scaler(plan: object) -> Iterator[object]:
        yield plan

    with pytest.raises(RequestError, match='as in "my_module:function"'):
        cantle.open(kinds=kinds, scaling=["demand", scaler])
    lock = threading.Lock()
    with pytest.raises(RequestError, match=r"scaling=lambda: it cannot be pickled: .*lock"):
        cantle.open(kinds=kinds, scaling=lambda run: {"cpu": int(lock.locked())})


class Model:
    factor = 3

    @cantle.task
    def times(self, x: int) -> int:
        return self.factor * x


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cantle.Pilot]:
    place = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        with cantle.open(nodes="2x2", directory=place / "run") as pilot:
            yield pilot
        assert not list((place / "state" / "cantle" / "private").iterdir())


def test_a_task_that_is_called_is_its_function() -> None:
    assert square(4) == 16


def test_results_come_in_the_order_of_their_futures(pilot: cantle.Pilot) -> None:
    assert cantle.gather([square.submit(x) for x in range(20)]) == [x * x for x in range(20)]


def test_futures_in_arguments_make_the_graph(pilot: cantle.Pilot) -> None:
    squares = square.map(range(4))
    assert add_up.submit(squares).result(60) == 14
    assert pilot.submit(lambda d: d["a"][0] + d["b"], {"a": (squares[2],), "b": squares[3]}).result(60) == 13


def test_lambdas_closures_builtins_and_methods_can_be_handed_in(pilot: cantle.Pilot) -> None:
    offset = 5
    assert pilot.submit(lambda x: x + offset, 1).result(60) == 6
    assert pilot.submit(len, [1, 2]).result(60) == 2
    assert pilot.submit(operator.add, 1, 2).result(60) == 3
    assert Model().times.submit(2).result(60) == 6
    assert pilot.submit(Model().times, 3).result(60) == 9


def test_an_error_comes_with_its_remote_traceback(pilot: cantle.Pilot) -> None:
    with pytest.raises(ValueError, match="no luck") as caught:
        fail.submit("luck").result(60)
    assert "in fail" in "".join(caught.value.__notes__)
    assert "test_python_api.py" in "".join(caught.value.__notes__)


def test_what_needs_a_failed_call_names_it(pilot: cantle.Pilot) -> None:
    failed = fail.submit("way")
    child = square.submit(failed)
    with pytest.raises(cantle.DependencyError, match=failed.name):
        child.result(60)
    with pytest.raises(ValueError, match="no way"):
        cantle.gather([failed, square.submit(1)])
    found = cantle.gather([failed, square.submit(3)], return_exceptions=True)
    assert isinstance(found[0], ValueError)
    assert found[1] == 9


def test_what_needs_a_failed_call_has_its_error_as_the_cause_through_whatever_lies_between(pilot: cantle.Pilot) -> None:
    failed = fail.submit("way")
    child = square.submit(failed)
    grandchild = add_up.submit([square.submit(2), square.submit(child)])
    late = square.submit(failed)
    for needing in (grandchild, child, late):
        with pytest.raises(cantle.DependencyError, match=f"{failed.name} did not succeed") as caught:
            needing.result(60)
        cause = caught.value.__cause__
        assert isinstance(cause, ValueError)
        assert "in fail" in "".join(cause.__notes__)
    slow = nap.with_options(walltime=0.2).submit(60)
    assert isinstance(getattr(square.submit(slow).exception(60), "__cause__", None), cantle.WalltimeError)


def test_after_waits_for_those_that_failed_as_well(pilot: cantle.Pilot) -> None:
    assert square.submit(2, after=[fail.submit("matter")]).result(60) == 4


def test_large_results_and_arguments_find_their_way(pilot: cantle.Pilot) -> None:
    large = many_bytes.submit(3 << 20)
    assert pilot.submit(len, large).result(60) == 3 << 20
    assert len(large.result(60)) == 3 << 20
    data = os.urandom(2 << 20)
    sizes = [pilot.submit(len, data) for _ in range(3)]
    assert cantle.gather(sizes) == [2 << 20] * 3


def test_a_call_that_runs_can_be_canceled(pilot: cantle.Pilot) -> None:
    long = nap.submit(60)
    child = square.submit(long)
    assert long.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        long.result(60)
    with pytest.raises((concurrent.futures.CancelledError, cantle.DependencyError)):
        child.result(60)


def test_a_call_that_takes_too_long_is_told_so(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.WalltimeError):
        nap.with_options(walltime=0.2).submit(60).result(60)
    long = nap.submit(60)
    with pytest.raises(TimeoutError):
        long.result(0.05)
    long.cancel()


def test_futures_are_told_as_they_are_over(pilot: cantle.Pilot, tmp_path: Path) -> None:
    slow, quick = until_there.submit(str(tmp_path / "go")), nap.submit(0)
    told_of = cantle.as_completed([slow, quick])
    assert next(told_of) is quick
    (tmp_path / "go").touch()
    assert list(told_of) == [slow]
    done, left = cantle.wait([slow, quick])
    assert done == {slow, quick}
    assert not left
    told: list[int] = []
    square.submit(3).add_done_callback(lambda future: told.append(future.result()))
    large = many_bytes.submit(1 << 20)
    large.add_done_callback(lambda future: told.append(len(future.result())))
    deadline = time.monotonic() + 60
    while len(told) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(told) == [9, 1 << 20]


def test_an_executor_serves_those_who_know_the_standard_library_alone(pilot: cantle.Pilot) -> None:
    with pilot.executor(cores=1) as executor:
        assert list(executor.map(pow, [2, 3], [3, 2])) == [8, 9]
        futures = {executor.submit(nap.function, 0.01): n for n in range(3)}
        assert {futures[future] for future in concurrent.futures.as_completed(futures)} == {0, 1, 2}
    with pytest.raises(RuntimeError):
        executor.submit(pow, 1, 1)


def test_futures_can_be_awaited(pilot: cantle.Pilot) -> None:
    async def main() -> list[int]:
        first = await square.submit(3)
        both = await asyncio.gather(square.submit(4), add_up.submit([1, 2]))
        sizes = [len(await many_bytes.submit(1 << 20))]
        seen = [await future async for future in cantle.as_completed(square.map([1, 2]))]
        return [first, *both, *sizes, *sorted(seen)]

    assert asyncio.run(main()) == [9, 16, 3, 1 << 20, 1, 4]


def test_nodes_and_a_notebooks_view_are_told(pilot: cantle.Pilot) -> None:
    square.submit(1).result(60)
    assert [(node.name, node.cores) for node in pilot.nodes()] == [("node1", 2), ("node2", 2)]
    assert "square" in pilot._repr_html_()
    two = square.map([1, 2])
    assert cantle.gather(two) == [1, 4]
    assert "2 of 2 done" in two._repr_html_()


def test_a_partition_takes_its_calls(pilot: cantle.Pilot) -> None:
    with pilot.partition(width=1) as part:
        assert part.nodes in (["node1"], ["node2"])
        assert part.submit(os.getenv, "CANTLE_PARTITION").result(60) == part.name
    with pytest.raises(cantle.CantleError, match="width=0"):
        pilot.partition(width=0)


def test_a_partition_with_dask_gives_a_client(pilot: cantle.Pilot) -> None:
    with pilot.partition(width=1, engine="dask") as part:
        assert part.client().submit(pow, 2, 5).result(60) == 32


def test_what_cannot_be_is_refused_with_its_name(pilot: cantle.Pilot) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        __import__("pickle").dumps(square.submit(1))
    with pytest.raises(cantle.CantleError, match="there is no option"):
        square.with_options(core=2)  # type: ignore[call-arg]


SCRIPT = """
import cantle, os, signal, sys, time
@cantle.task
def nap(s):
    open(sys.argv[1], "a").write("began\\n")
    time.sleep(s)
def touch(path): open(path, "w").close()
with cantle.open(cores=1, directory=sys.argv[2]) as pilot:
    pilot.submit(touch, sys.argv[1]).result()
    BODY
print("left")
"""


def played(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("BODY", body))
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    words = [sys.executable, str(script), str(tmp_path / "began"), str(tmp_path / "run")]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def gone(tmp_path: Path) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, check=False).returncode:
            return True
        time.sleep(0.1)
    return False


def test_leaving_the_block_waits_for_all_calls(tmp_path: Path) -> None:
    script = played(tmp_path, "pilot.submit(time.sleep, 0.3)")
    said = script.communicate(timeout=200)[0]
    assert said == "left\n"
    assert gone(tmp_path)
    status = [sys.executable, "-m", "cantle", "status", str(tmp_path / "run")]
    told = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    assert "touch" in told
    assert "sleep" in told


def test_an_error_in_the_block_cancels_what_runs(tmp_path: Path) -> None:
    script = played(tmp_path, "pilot.submit(time.sleep, 600); raise SystemExit('enough')")
    assert "enough" in script.communicate(timeout=200)[0]
    assert gone(tmp_path)


def test_ctrl_c_ends_the_script_and_its_calls(tmp_path: Path) -> None:
    script = played(tmp_path, "cantle.gather([pilot.submit(time.sleep, 600), nap.submit(600)])")
    began = tmp_path / "began"
    while not began.exists():
        time.sleep(0.05)
    script.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in script.communicate(timeout=200)[0]
    assert gone(tmp_path)


def test_nothing_stays_of_a_script_that_is_killed(tmp_path: Path) -> None:
    script = played(tmp_path, "pilot.submit(time.sleep, 600).result()")
    while not (tmp_path / "began").exists():
        time.sleep(0.05)
    script.kill()
    script.communicate(timeout=200)
    assert gone(tmp_path)


def test_a_pilot_whose_nodes_are_yet_to_come_takes_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    kinds = {"small": {"cores": 2, "max": 2, "provider": "local"}}
    with cantle.open(kinds=kinds, directory=tmp_path / "run") as pilot:
        assert pilot.nodes() == []
        assert pilot.submit(abs, -3).result(60) == 3
        assert {node.kind for node in pilot.nodes()} == {"small"}


def test_who_wishes_for_fewer_nodes_has_fewer_as_soon_as_they_have_idled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    kinds = {"small": {"cores": 1, "max": 3, "provider": "local"}}
    with cantle.open(kinds=kinds, scaling=["idle=1s", "cool-down=1h"], directory=tmp_path / "run") as pilot:

        def until(n: int) -> None:
            deadline = time.monotonic() + 60
            while len(pilot.nodes()) != n:
                assert time.monotonic() < deadline
                time.sleep(0.05)

        for count in (3, 1, 2):
            pilot.scale("small", count)
            until(count)
        pilot.scale("small")
        until(0)
        with pytest.raises(cantle.CantleError, match="of kind small, -1 is no whole number from 0 on"):
            pilot.scale("small", -1)


def again_and_again(place: str) -> bytes:
    """As large as what stays where it was made. But for the first time it waits until it may."""
    with open(place, "a") as file:
        file.write("x")
        again = file.tell() > 1
    while again and not os.path.exists(f"{place}.go"):
        time.sleep(0.02)
    return b"y" * (3 << 20)


def test_o11_who_asks_for_a_result_that_was_lost_waits_until_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    kinds = {"small": {"cores": 1, "max": 1, "provider": "local"}}
    large_argument = os.urandom(2 << 20)
    with cantle.open(kinds=kinds, directory=tmp_path / "run") as pilot:
        runner = pilot.submit(os.getppid).result(60)
        first = pilot.submit(
            lambda place, data: again_and_again(place) + data[:1], str(tmp_path / "runs"), large_argument
        )
        derived = pilot.submit(lambda data: data * 2, first)
        assert derived.exception(60) is None
        os.kill(runner, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while any(node.name == "small-1" for node in pilot.nodes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(TimeoutError):
            first.result(0.2)
        (tmp_path / "runs.go").touch()
        expected = b"y" * (3 << 20) + large_argument[:1]
        assert first.result(60) == expected
        assert derived.result(60) == expected * 2
        assert (tmp_path / "runs").read_text() == "xx"
        arguments = tmp_path / "run" / ".cantle" / "arguments"
        assert len(list(arguments.iterdir())) == 1, "they stay as long as the result may have to be made again"
        del first, derived
        deadline = time.monotonic() + 60
        while list(arguments.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not list(arguments.iterdir())


def test_a_call_handed_in_after_the_pilot_has_died_says_that_it_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cantle.errors import PilotGoneError

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with cantle.open(cores=1, directory=tmp_path / "run") as pilot:
        napping = nap.submit(60)
        status = subprocess.run(
            [sys.executable, "-m", "cantle", "status", str(tmp_path / "run")],
            capture_output=True,
            text=True,
            timeout=200,
        )
        os.kill(int(status.stdout.partition("conductor pid ")[2].split()[0]), signal.SIGKILL)
        with pytest.raises(PilotGoneError, match="went away"):
            napping.result(timeout=200)
        with pytest.raises(PilotGoneError, match="went away"):
            square.submit(2)
        assert pilot.closed
