"""`cantle cancel` and `update`: asking something of the conductor from another shell."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rundirs import Conductor, cantle, demo, records_of, write_run

from cantle.cli import asking
from cantle.model.records import CancelAsked, LimitsChanged
from cantle.model.study import Limits, Step, Task
from cantle.report.loading import load
from cantle.store.journal import read
from cantle.store.layout import Layout

pytestmark = pytest.mark.real

HALF = 8
LISTEN = """
requests = Requests(layout.directory)
while True:
    wishes = requests.poll()
    for wish in wishes:
        journal.write(wish)
    if wishes:
        journal.flush()
    time.sleep(0.02)
"""


def wishes(directory: Path) -> list:
    return [record for record in read(Layout(directory).journal) if isinstance(record, CancelAsked | LimitsChanged)]


def left(directory: Path) -> list[str]:
    return [path.name for path in Layout(directory).requests.iterdir()]


def test_cancel_reaches_the_conductor_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, until=HALF)
    with Conductor(tmp_path, LISTEN):
        assert cantle("cancel", tmp_path, "-y") == 0
    (wish,) = wishes(tmp_path)
    assert wish.tasks is None
    assert "@" in wish.by
    assert capsys.readouterr().out == "canceled: the run demo, 4 tasks of which are not over (2 running)\n"


def test_cancel_of_some_tasks_names_them_by_pattern_step_or_beginning(tmp_path: Path) -> None:
    demo(tmp_path, until=HALF)
    with Conductor(tmp_path, LISTEN):
        assert cantle("cancel", tmp_path, "*_N.1", "-y", "rep") == 0
    (wish,) = wishes(tmp_path)
    assert wish.tasks == [0, 2, 3]


def test_several_runs_are_canceled_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        demo(tmp_path / name, until=HALF)
    with Conductor(tmp_path / "a", LISTEN), Conductor(tmp_path / "b", LISTEN):
        assert cantle("cancel", "-y", tmp_path / "a", tmp_path / "b") == 0
    assert len(wishes(tmp_path / "a")) == len(wishes(tmp_path / "b")) == 1


def test_tasks_of_several_runs_cannot_be_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        demo(tmp_path / name, until=HALF)
    assert cantle("cancel", "-y", tmp_path / "a", tmp_path / "b", "sim_N.1") == 1
    assert "name tasks of one run only" in capsys.readouterr().err


def test_cancel_asks_first_and_takes_no_for_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    demo(tmp_path, until=HALF)
    with Conductor(tmp_path, LISTEN):
        monkeypatch.setattr("sys.stdin", Terminal("n\n"))
        assert cantle("cancel", tmp_path) == 1
        told = capsys.readouterr()
        assert "Cancel the run demo, 4 tasks of which are not over (2 running)? [y/N]" in told.out
        assert "nothing was canceled" in told.err
        assert wishes(tmp_path) == []
        monkeypatch.setattr("sys.stdin", Terminal("y\n"))
        assert cantle("cancel", tmp_path) == 0
    assert len(wishes(tmp_path)) == 1


def test_cancel_does_not_take_silence_for_a_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    demo(tmp_path, until=HALF)
    with Conductor(tmp_path, LISTEN):
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        assert cantle("cancel", tmp_path) == 1
    assert "say so with -y" in capsys.readouterr().err
    assert wishes(tmp_path) == []


@pytest.mark.parametrize("command", [("cancel", "-y"), ("update", "--throttle", "3")])
def test_nothing_is_left_behind_for_a_conductor_that_is_dead(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(tmp_path, until=HALF)
    assert cantle(command[0], tmp_path, *command[1:]) == 1
    told = capsys.readouterr().err
    assert f"there is nothing to {command[0]}: the conductor of the run in {tmp_path} is dead" in told
    assert left(tmp_path) == []


@pytest.mark.parametrize("command", [("cancel", "-y"), ("update", "--throttle", "3")])
def test_a_run_that_is_over_takes_no_requests(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(tmp_path)
    assert cantle(command[0], tmp_path, *command[1:]) == 1
    assert "is over" in capsys.readouterr().err
    assert left(tmp_path) == []


def test_tasks_that_are_over_cannot_be_canceled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = records_of([Step("s")], [Task("a", 0), Task("b", 0, (0,))])
    ended = next(index for index, record in enumerate(told) if type(record).__name__ == "TaskEnded")
    write_run(tmp_path, told[: ended + 1])
    with Conductor(tmp_path, LISTEN):
        assert cantle("cancel", tmp_path, "a", "-y") == 1
    assert "there is nothing to cancel: it is over already" in capsys.readouterr().err


def test_a_conductor_that_does_not_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ANSWER_S", 0.2)
    demo(tmp_path, until=HALF)
    with Conductor(tmp_path) as conductor:
        assert cantle("cancel", tmp_path, "-y") == 1
        assert f"the conductor (pid {conductor.pid} on host " in capsys.readouterr().err
    assert len(left(tmp_path)) == 1


def test_update_changes_what_was_named_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, until=HALF, limits=Limits(throttle=8, rlimit=5, fail_fast=True))
    with Conductor(tmp_path, LISTEN):
        assert cantle("update", tmp_path, "--throttle", 3) == 0
        assert wishes(tmp_path)[-1].limits == Limits(throttle=3, rlimit=5, fail_fast=True)
        assert cantle("update", "--rlimit", 0, tmp_path) == 0
    assert wishes(tmp_path)[-1].limits == Limits(throttle=3, rlimit=0, fail_fast=True)
    assert capsys.readouterr().out == ("demo: throttle 3, rlimit 5\ndemo: throttle 3, rlimit unbounded\n")


def test_update_without_options_shows_the_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, until=HALF, limits=Limits(throttle=8))
    assert cantle("update", tmp_path, "--sleep", 5) == 0
    assert capsys.readouterr().out == "demo: throttle 8, rlimit 1\n"
    assert load(tmp_path).state.studies[0].limits.throttle == 8
    assert left(tmp_path) == []


@pytest.mark.parametrize("bad", [("--throttle", "-1"), ("--rlimit", "x")])
def test_limits_that_make_no_sense_are_refused(bad: tuple[str, str], tmp_path: Path) -> None:
    demo(tmp_path, until=HALF)
    assert cantle("update", tmp_path, *bad) == 64
