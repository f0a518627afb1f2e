"""What people try first with tasks from Python, as they know it from elsewhere, and what goes wrong with it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cantle

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cantle.Pilot]:
    place = tmp_path_factory.mktemp("newcomers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        with cantle.open(nodes="2x1", directory=place / "run") as pilot:
            yield pilot


class Odd(Exception):
    """Its class takes other arguments than those that it hands on."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"{where}: {code}")
        self.code = code


class Spoilt:
    """Can be pickled, but not be made again."""

    def __reduce__(self) -> Any:
        return spoil, ()


def spoil() -> None:
    raise OSError("it has gone off")


# Errors


def test_an_error_whose_class_takes_other_arguments_is_of_that_class_all_the_same(pilot: cantle.Pilot) -> None:
    def fail() -> None:
        raise Odd(7, "here")

    with pytest.raises(Odd, match="here: 7") as caught:
        pilot.submit(fail).result(60)
    assert caught.value.code == 7
    assert "in fail" in "".join(caught.value.__notes__)


def test_a_call_that_exits_does_not_end_the_program_that_asks_for_its_result(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RemoteError, match="SystemExit: 3") as caught:
        pilot.submit(sys.exit, 3).result(60)
    assert isinstance(caught.value.__cause__, SystemExit)
    with pytest.raises(cantle.RemoteError, match="exit code 4"):
        pilot.submit(os._exit, 4).result(60)
    with pytest.raises(cantle.RemoteError, match="SIGSEGV"):
        pilot.submit(lambda: os.kill(os.getpid(), signal.SIGSEGV)).result(60)
    assert pilot.submit(abs, -1).result(60) == 1


def test_a_result_that_cannot_be_made_again_here_says_so_wherever_it_is_asked_for(pilot: cantle.Pilot) -> None:
    future = pilot.submit(lambda: Spoilt())
    with pytest.raises(cantle.RemoteError, match=f"{future.name}: what it returned cannot be made again here: OSError"):
        future.result(60)
    assert isinstance(pilot.submit(lambda: Spoilt()).exception(60), cantle.RemoteError)
    large = pilot.submit(lambda: (Spoilt(), bytes(1 << 20)))
    with pytest.raises(cantle.RemoteError, match="it has gone off") as caught:
        large.result(60)
    assert isinstance(caught.value.__cause__, OSError)


def test_what_cannot_be_pickled_says_what_it_is(pilot: cantle.Pilot) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        pilot.submit(id, lock)
    with pytest.raises(TypeError, match="lock"):
        pilot.submit(lambda: lock)
    with pytest.raises(TypeError, match=r"it returned a _thread.lock, which cannot be pickled"):
        pilot.submit(threading.Lock).result(60)


def test_arguments_and_functions_that_cannot_be_made_on_the_node_are_told_apart_from_what_a_call_raises(
    pilot: cantle.Pilot, tmp_path: Path
) -> None:
    with pytest.raises(cantle.RemoteError, match=r"its arguments cannot be made on .*: OSError: it has gone off"):
        pilot.submit(id, Spoilt()).result(60)
    (tmp_path / "lately.py").write_text("def double(x):\n    return 2 * x\n")
    sys.path.append(str(tmp_path))  # after the pilot was opened, so that workers do not look there
    try:
        import lately  # type: ignore[import-not-found]

        with pytest.raises(
            cantle.RemoteError, match=r"its function cannot be made on .*No module named 'lately'.*sys.path"
        ):
            pilot.submit(lately.double, 2).result(60)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("lately", None)


def test_a_call_cannot_hand_in_calls_and_is_told_what_it_can_do(pilot: cantle.Pilot) -> None:
    def recurse() -> Any:
        import cantle

        return cantle.task(abs).submit(-1)

    with pytest.raises(cantle.CantleError, match="a call cannot hand in calls"):
        pilot.submit(recurse).result(60)


# What is large, and what is many


def test_large_arguments_reach_their_call_quickly_and_do_not_stay(pilot: cantle.Pilot) -> None:
    data = os.urandom(100 << 20)
    assert pilot.submit(len, data).result(60) == len(data)
    both = pilot.submit(lambda one, other: len(one) + len(other), data, pilot.submit(bytes, 5 << 20))
    assert both.result(60) == 105 << 20
    deadline = time.monotonic() + 60
    while list((pilot.directory / ".cantle" / "arguments").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_function_that_drags_too_much_along_is_refused_and_the_pilot_goes_on(
    pilot: cantle.Pilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cantle.api.pilot.MOST_FUNCTION", 1 << 20)
    data = bytes(2 << 20)
    with pytest.raises(cantle.CantleError, match="hand large values in as arguments"):
        pilot.submit(lambda: len(data))
    assert pilot.submit(abs, -1).result(60) == 1


def test_results_are_removed_when_nobody_holds_their_futures(pilot: cantle.Pilot) -> None:
    futures = pilot.map(bytes, [1 << 20] * 5)
    paths = []
    for future in futures:
        assert future.exception(60) is None
        future.ask()
        pilot._seat.flush()
        with future._condition:
            assert future._condition.wait_for(lambda future=future: future._fetched is not None, 30)  # type: ignore[misc]
        paths.append(future._fetched.path)  # type: ignore[union-attr]
    assert all(map(os.path.exists, paths))
    del futures, future
    gc.collect()
    deadline = time.monotonic() + 60
    while any(map(os.path.exists, paths)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ten_thousand_futures_can_be_gathered_and_awaited_and_taken_by_one_call(pilot: cantle.Pilot) -> None:
    assert sum(cantle.gather(pilot.map(abs, range(10_000)))) == 49_995_000
    assert pilot.submit(sum, pilot.map(abs, range(2000))).result(60) == 1_999_000

    async def main() -> int:
        return sum(await asyncio.gather(*pilot.map(abs, range(2000))))

    assert asyncio.run(main()) == 1_999_000
    assert sum(future.result() for future in cantle.as_completed(pilot.map(abs, range(2000)), timeout=200)) == 1_999_000


# Waiting and ending


def test_who_waits_too_long_is_told_and_the_calls_go_on(pilot: cantle.Pilot, tmp_path: Path) -> None:
    def until_there(path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.02)

    slow = pilot.submit(until_there, str(tmp_path / "go"))
    with pytest.raises(TimeoutError):
        list(cantle.as_completed([slow], timeout=0.05))
    done, left = cantle.wait([slow], timeout=0.05)
    assert (done, left) == (set(), {slow})

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async for _ in cantle.as_completed([slow], timeout=0.05):
                pass

    asyncio.run(main())
    (tmp_path / "go").touch()
    assert slow.result(60) is None


def test_what_waits_and_what_runs_can_be_canceled_and_the_place_is_free(pilot: cantle.Pilot) -> None:
    runs = [pilot.submit(time.sleep, 600) for _ in range(2)]
    waits = pilot.map(abs, range(100))
    deadline = time.monotonic() + 60
    while not all(future.running() for future in runs):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert all(future.cancel() for future in [*waits, *runs])
    assert pilot.submit(abs, -1).result(60) == 1
    with pytest.raises(concurrent.futures.CancelledError):
        cantle.gather(waits)


def test_futures_of_the_standard_library_may_be_among_those_one_waits_for(pilot: cantle.Pilot) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ours, theirs = pilot.submit(abs, -1), pool.submit(abs, -2)
        assert cantle.gather([ours, theirs]) == [1, 2]  # type: ignore[list-item]
        assert {future.result() for future in concurrent.futures.as_completed([ours, theirs])} == {1, 2}


def test_ctrl_c_at_the_end_of_the_block_ends_what_still_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import cantle, sys, time\n"
        "with cantle.open(cores=1, directory=sys.argv[1]) as pilot:\n"
        "    future = pilot.submit(time.sleep, 600)\n"
        "    while not future.running():\n"
        "        time.sleep(0.01)\n"
        "    print('begun', flush=True)\n"
    )
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    words = [sys.executable, str(script), str(tmp_path / "run")]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        time.sleep(0.2)
        program.send_signal(signal.SIGINT)
        _, problem = program.communicate(timeout=200)
    assert "KeyboardInterrupt" in problem
    assert list((tmp_path / "state" / "cantle" / "private").iterdir()) == []
    status = [sys.executable, "-m", "cantle", "status", str(tmp_path / "run")]
    assert "1 canceled" in subprocess.run(status, capture_output=True, text=True, check=False).stdout


# Where and how programs live


def test_coroutine_functions_are_run_to_their_end(pilot: cantle.Pilot) -> None:
    async def later(x: int) -> int:
        await asyncio.sleep(0.01)
        return x + 1

    assert pilot.submit(later, 1).result(60) == 2


def test_what_a_call_prints_is_in_its_log(pilot: cantle.Pilot) -> None:
    def talk() -> None:
        print("to the one")
        print("to the other", file=sys.stderr)

    future = pilot.submit(talk)
    assert future.exception(60) is None
    words = [sys.executable, "-m", "cantle", "logs", str(pilot.directory), future.name]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "to the one" in told


def test_two_pilots_may_be_open_and_each_has_its_own_calls(
    pilot: cantle.Pilot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    task = cantle.task(abs)
    theirs: list[int] = []

    def life() -> None:
        with cantle.open(cores=1, directory=tmp_path / "thread"):
            theirs.append(task.submit(-4).result(60))

    thread = threading.Thread(target=life)
    with cantle.open(cores=1, directory=tmp_path / "second") as second:
        thread.start()
        assert task.submit(-3).result(60) == 3
        assert second.tally()["abs"]["done"] == 1
        with pytest.raises(cantle.CantleError, match="of another pilot"):
            second.submit(abs, pilot.submit(abs, -1))
        thread.join(60)
    assert theirs == [4]
    assert task.submit(-5).result(60) == 5
    for after in (lambda: second.submit(abs, -1), second.nodes, second.partition, second.__enter__):
        with pytest.raises(cantle.CantleError, match="was left"):
            after()
    second.close()


def test_a_forked_process_has_no_part_in_its_parents_pilot_and_may_open_one(
    pilot: cantle.Pilot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                pilot.submit(abs, -1)
            except cantle.CantleError as error:
                assert "forked" in str(error)
                with cantle.open(cores=1, directory=tmp_path / "child") as own:
                    code = 0 if own.submit(abs, -6).result(60) == 6 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pilot.submit(abs, -7).result(60) == 7
