"""What stands in line in the runner to follow another attempt begins if that one is done, when nothing of it is left."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from runner_rig import a_long_sleep, eventually, output, rig, runner_at_a_socket, running_with, shell, sleeping

from cantle.model.records import TaskEnded
from cantle.model.study import Command
from cantle.runner import reaping, reports
from cantle.runner.frames import Frames, encode, frame
from cantle.runner.messages import Ended, Setup, Start, Up
from cantle.testing import Rig

pytestmark = pytest.mark.real


UNTIL_GO = "until [ -e go ]; do sleep 0.02; done"


def chain(r: Rig, *scripts: str, first: int = 0) -> None:
    """The first runs; each other one follows the one before, all on the same core."""
    for task, script in enumerate(scripts, first):
        ahead = {"behind": task - 1, "if_done": 1} if task > first else {}
        r.launch(task, shell(script, f"out/{task}"), cores="0", **ahead)  # type: ignore[arg-type]


def outcomes(r: Rig, n: int) -> list[str]:
    return [r.ended(task).outcome for task in range(n)]


def sees(mark: str) -> str:
    """A script that tells in the file `seen` which processes have the mark, which is a command line, in theirs."""
    last = mark.split()[-1]
    return f"grep -la '[{last[0]}]{last[1:]}' /proc/[0-9]*/cmdline > seen 2> errors; true"


def order(r: Rig) -> list[int]:
    return [event.task for event in r.events if isinstance(event, TaskEnded)]


def test_a_chain_runs_one_after_another_and_each_end_is_told_before_the_next(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        chain(r, f"{UNTIL_GO}; echo 0 > said", *(f"grep -q {i - 1} said && echo {i} > said" for i in range(1, 12)))
        (tmp_path / "go").touch()
        assert outcomes(r, 12) == ["done"] * 12
        assert order(r) == list(range(12))
        begins = [r.started(task).time for task in range(12)]
        ends = [r.ended(task).time for task in range(12)]
        assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
    assert (tmp_path / "said").read_text() == "11\n"


@pytest.mark.parametrize("end", ["exit 3", "kill -KILL $$"])
def test_who_was_to_follow_a_failure_never_begins_and_says_why(tmp_path: Path, end: str) -> None:
    with rig(tmp_path) as r:
        chain(r, "sleep 0.1", end, "touch third", "touch fourth")
        assert outcomes(r, 4) == ["done", "failed", "interrupted", "interrupted"]
        assert order(r) == [0, 1, 2, 3]
        assert "the task that it was to follow did not succeed" in r.ended(2).detail
        assert not r.ended(3).started and not r.ended(3).pid
        r.launch(4, shell("true"), cores="0")
        assert r.ended(4).outcome == "done", "the place is free again"
    assert not (tmp_path / "third").exists() and not (tmp_path / "fourth").exists()


def test_what_stands_behind_them_on_no_condition_runs_all_the_same(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        chain(r, "sleep 0.1; exit 1", "touch follower")
        r.launch(2, shell("true"), cores="0", behind=0)
        assert outcomes(r, 3) == ["failed", "interrupted", "done"]
    assert not (tmp_path / "follower").exists()


def test_a_follower_that_comes_when_the_one_before_is_done_begins(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, shell("true"), cores="0")
        time.sleep(0.3)  # it is over, and the conductor has not listened yet
        r.launch(1, shell("touch follower"), cores="0", behind=0, if_done=1)
        assert outcomes(r, 2) == ["done", "done"]
        assert order(r) == [0, 1]
    assert (tmp_path / "follower").exists()


def test_a_follower_that_comes_when_the_one_before_has_failed_does_not_begin(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, shell("exit 1"), cores="0")
        time.sleep(0.3)
        r.launch(1, shell("touch follower"), cores="0", behind=0, if_done=1)
        r.launch(2, shell("touch follower"), cores="0", behind=1, if_done=1)
        assert outcomes(r, 3) == ["failed", "interrupted", "interrupted"]
        assert order(r) == [0, 1, 2]
    assert not (tmp_path / "follower").exists()


def test_another_attempt_of_the_one_before_is_not_meant(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, shell("exit 1"), cores="0")
        time.sleep(0.3)
        r.launch(0, shell("sleep 0.2"), cores="0", attempt=2)
        r.launch(1, shell("touch follower"), cores="0", behind=0, if_done=1)
        assert r.ended(1).outcome == "interrupted"
        assert r.ended(0, 2).outcome == "done"
    assert not (tmp_path / "follower").exists()


def test_a_follower_begins_only_when_nothing_of_the_one_before_is_left(tmp_path: Path) -> None:
    mark = a_long_sleep(311)
    with rig(tmp_path) as r:
        chain(r, f"(setsid {mark} &); {mark} & {UNTIL_GO}; exit 0", sees(mark))
        r.wait_for(lambda: len(sleeping(mark)) == 2, "not all began")
        (tmp_path / "go").touch()
        assert outcomes(r, 2) == ["done", "done"]
    assert (tmp_path / "seen").read_text() == ""
    assert not running_with(mark)


def test_stopping_one_in_line_ends_all_that_were_to_follow_it_and_nothing_before(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        chain(r, UNTIL_GO, "touch second", "touch third")
        r.stop(1)
        assert r.ended(1).outcome == "canceled"
        assert r.ended(2).outcome == "interrupted"
        assert not r.ends(0)
        (tmp_path / "go").touch()
        assert r.ended(0).outcome == "done"
    assert not (tmp_path / "second").exists() and not (tmp_path / "third").exists()


def test_stopping_the_one_that_runs_ends_all_that_were_to_follow_it(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        chain(r, "sleep 300", "touch second", "touch third")
        r.started(0)
        r.stop(0)
        assert outcomes(r, 3) == ["canceled", "interrupted", "interrupted"]
        assert order(r) == [0, 1, 2]


def test_a_walltime_that_is_passed_is_no_success(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, shell("trap 'exit 0' TERM; sleep 300 & wait"), cores="0", walltime_s=0.2)
        r.launch(1, shell("touch second"), cores="0", behind=0, if_done=1)
        assert outcomes(r, 2) == ["timeout", "interrupted"]


def test_who_was_to_follow_what_cannot_be_started_never_begins(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, shell("sleep 0.1"), cores="0")
        r.launch(1, Command(argv=("/nowhere/no-such-program",)), cores="0", behind=0, if_done=1)
        r.launch(2, shell("touch third"), cores="0", behind=1, if_done=1)
        assert outcomes(r, 3) == ["done", "unstartable", "interrupted"]
        assert order(r) == [0, 1, 2]
    assert not (tmp_path / "third").exists()


def test_a_follower_of_one_whose_place_has_been_passed_on_waits_until_that_one_is_over(tmp_path: Path) -> None:
    mark = a_long_sleep(312)
    with rig(tmp_path) as r:
        # What the first leaves behind takes a while to be found and ended, and the second has its place meanwhile.
        r.launch(0, shell(f"for i in 1 2 3 4 5 6; do (setsid {mark} &); done; {UNTIL_GO}; exit 0"), cores="0")
        r.launch(1, shell("true"), cores="0", behind=0)
        r.launch(2, shell(sees(mark)), cores="0", behind=0, if_done=1)
        r.wait_for(lambda: len(sleeping(mark)) == 6, "not all began")
        (tmp_path / "go").touch()
        assert outcomes(r, 3) == ["done"] * 3
    assert (tmp_path / "seen").read_text() == ""


def test_when_the_conductor_goes_nobody_in_line_begins(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        chain(r, "trap 'exit 0' TERM; touch first; while :; do sleep 0.02; done", "touch second")
        assert eventually((tmp_path / "first").exists)
    assert not (tmp_path / "second").exists()
    assert [event.outcome for event in r.events if isinstance(event, TaskEnded)] == ["interrupted", "interrupted"]


@pytest.mark.parametrize(("failing", "told"), [(-1, 8), (4, 5)], ids=["until the line is short", "until one fails"])
def test_ends_wait_to_be_concluded_together_as_long_as_nobody_is_the_worse_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, told: int
) -> None:
    monkeypatch.setattr(reaping, "_LOOK_TOGETHER_S", 1000.0)  # so that it is never over by itself
    monkeypatch.setattr(reports, "_HOLD_S", 2000.0)
    monkeypatch.setattr(reports, "_HOLD_END_S", 0.0)
    with runner_at_a_socket() as ours:
        scripts = [f"echo {task}; exit {int(task == failing)}" for task in range(10)]
        commands = [Command(argv=("/bin/sh", "-c", script), packed=True) for script in scripts]
        starts = [encode(Start((task, 1), command, "0")) for task, command in enumerate(commands)]
        ours.sendall(frame([encode(Setup(str(tmp_path), dict(os.environb), spool="spool")), *starts]))
        length = ours.recv(4, socket.MSG_WAITALL)
        first = length + ours.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    heard = Frames[Up](Up).feed(first)
    ends = [message for message in heard if isinstance(message, Ended)]
    assert len(heard) == len(ends) >= told, "perhaps the next ones were over before it could be said"
    assert [ended.key[0] for ended in ends] == list(range(len(ends)))
    assert all(ended.outcome == ("failed" if ended.key[0] == failing else "done") for ended in ends)
    for task, ended in enumerate(ends):
        assert output(tmp_path, ended.output) == (b"%d\n" % task, b"")
    assert sorted(ended.time for ended in ends) == [ended.time for ended in ends]
