"""What a program asks of its pilot and cannot have is an error where it asks, and says what there is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cantle

pytestmark = pytest.mark.real


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def pilot(state: Path) -> Iterator[cantle.Pilot]:
    with cantle.open(nodes="2x1", directory=state / "run") as pilot:
        yield pilot


def test_nodes_of_a_kind_that_is_not_there_or_too_many_of_one_are_refused(
    state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds = {"cpu": {"cores": 1, "max": 2, "provider": "local"}, "idle": {"cores": 1, "provider": "none"}}
    with cantle.open(kinds=kinds, directory=state / "run") as pilot:
        with pytest.raises(cantle.RequestError, match="no kind of node is called 'gpu'; there are cpu, idle"):
            pilot.scale("gpu", 1)
        with pytest.raises(cantle.RequestError, match="there may be 2 nodes of kind cpu at most, and 0 are there"):
            pilot.scale("cpu", 3)
        with pytest.raises(cantle.RequestError, match="nobody who brings nodes can add any of kind idle"):
            pilot.scale("idle", 1)
        with pytest.raises(cantle.RequestError, match="scale: kind=None is no text"):
            pilot.scale(None, 1)  # type: ignore[arg-type]
        pilot.scale("cpu", 2)
        until = time.monotonic() + 60
        while len(pilot.nodes()) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert "ignored" not in capfd.readouterr().err
    with pytest.raises(cantle.RequestError, match="was left"):
        pilot.scale("cpu", 2)


def test_where_no_kinds_are_declared_nobody_can_wish_for_nodes(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RequestError, match="no kinds of node are declared"):
        pilot.scale("cpu", 1)


def test_a_partition_cannot_be_wider_than_the_nodes_that_there_can_be(pilot: cantle.Pilot) -> None:
    with pilot.partition(width=1) as part:
        with pytest.raises(
            cantle.RequestError, match=f"{part.name} wants 5 nodes and all of each; there are 2 nodes that could"
        ):
            part.resize(5)
        assert part.width == 1
        part.resize(2)
        assert part.width == 2
    with pytest.raises(cantle.RequestError, match="is closed: ask for another one"):
        part.resize(1)
    with pytest.raises(cantle.RequestError, match="is closed: ask for another one"):
        part.submit(abs, -1)


def test_where_more_nodes_may_come_a_partition_may_be_as_wide(state: Path) -> None:
    kinds = {"cpu": {"cores": 1, "max": 2, "provider": "local"}}
    with (
        cantle.open(kinds=kinds, scaling=["cool-down=0s"], directory=state / "run") as pilot,
        pilot.partition(width=1) as part,
    ):
        part.resize(2)
        until = time.monotonic() + 60
        while len(part.nodes) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        with pytest.raises(cantle.RequestError, match="wants 3 nodes"):
            part.resize(3)


def test_a_partition_may_be_resized_and_closed_before_it_is_there(
    pilot: cantle.Pilot, capfd: pytest.CaptureFixture[str]
) -> None:
    part = pilot.partition(width=1)
    part.resize(2)
    assert part.wait(60).standing == "active"
    part.close()
    quick = pilot.partition(width=1)
    quick.close(now=True)
    until = time.monotonic() + 60
    while quick.standing != "canceled":
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "ignored" not in capfd.readouterr().err


@cantle.task
def take(value: object) -> object:
    return value


def test_a_call_in_a_partition_that_the_program_never_asked_for_says_how_to_ask(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RemoteError, match="nobody has declared or asked for") as told:
        take.with_options(partition="wide").submit(1).result(60)
    assert "pilot.partition(name='wide')" in str(told.value)
    assert "cantle: partitions" not in str(told.value)


def test_a_call_in_a_partition_that_is_over_is_refused_and_those_that_wait_in_it_fail(pilot: cantle.Pilot) -> None:
    with pilot.partition(width=1, name="mine") as part:
        part.submit(abs, -1).result(60)
    with pytest.raises(cantle.RequestError, match="the partition mine is closed: ask for another one"):
        take.with_options(partition="mine").submit(1)
    wide = pilot.partition(width=7, name="wide")
    early = wide.submit(abs, -1)
    later = wide.submit(take.function, early)
    with pytest.raises(cantle.RemoteError, match="its partition wide is over: wants 7 nodes"):
        early.result(60)
    with pytest.raises(cantle.RemoteError):
        later.result(60)
    with pytest.raises(cantle.RequestError, match="the partition wide is over, failed: wants 7 nodes"):
        wide.submit(abs, -1)


def test_what_runs_in_a_partition_that_is_taken_away_fails_and_the_program_goes_on(pilot: cantle.Pilot) -> None:
    part = pilot.partition(width=1, name="mine").wait(60)
    slow = [part.submit(time.sleep, 60) for _ in range(2)]
    done = subprocess.run(
        [sys.executable, "-m", "cantle", "partition", "cancel", str(pilot.directory), "mine"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for each in slow:
        with pytest.raises(cantle.RemoteError, match="its partition mine is over: canceled by"):
            each.result(60)
    assert pilot.submit(abs, -2).result(60) == 2


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("", ""),
        ("pilot.submit(time.sleep, 60)", "the program ends, and 1 call that is not over is canceled"),
        ("pilot.map(time.sleep, [60, 60]); pilot.cancel()", ""),
    ],
)
def test_a_program_that_ends_without_waiting_for_its_calls_is_told(left: str, said: str, state: Path) -> None:
    program = f"import time, cantle\npilot = cantle.open(cores=1)\npilot.submit(abs, -1).result()\n{left}\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, cwd=state, check=False
    )
    assert done.returncode == 0
    assert (said in done.stderr) if said else done.stderr == ""


SCALING = """\
import sys
import cantle

wanted = 2


def wish(run):
    if run.kinds["cpu"].up < 2:
        return {"cpu": wanted}
    raise KeyError("enough")


if __name__ == "__main__":
    kinds = {"cpu": {"cores": 1, "max": 3, "provider": "local"}}
    with cantle.open(kinds=kinds, scaling=[wish, "cool-down=0s"]) as pilot:
        while len(pilot.nodes()) < 2:
            pass
        pilot.submit(abs, -1).result()
        while "enough" not in open("said").read():
            pass
        print(len(pilot.nodes()))
"""


def test_a_scaling_function_may_be_one_of_the_programs_own_and_is_told_of_with_its_line(state: Path) -> None:
    (state / "grows.py").write_text(SCALING)
    with (state / "said").open("w") as said:
        done = subprocess.run(
            [sys.executable, "grows.py"],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            timeout=200,
            cwd=state,
            check=False,
        )
    told = (state / "said").read_text()
    assert done.returncode == 0, told
    line = SCALING.splitlines().index('    raise KeyError("enough")') + 1
    by = "cantle: wish could not say how many nodes it wants"
    assert f"{by}: it raised KeyError: 'enough' ({state}/grows.py, line {line})" in told


def test_calls_that_come_with_the_partition_in_which_they_run_find_it(pilot: cantle.Pilot) -> None:
    for n in range(20):
        part = pilot.partition(width=1)
        calls = [part.submit(abs, -n), part.submit(abs, -n - 1)]
        assert [call.result(60) for call in calls] == [n, n + 1]
        part.close()
