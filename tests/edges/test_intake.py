"""Files that come back with an attempt's end are written beside the loop, and all is told in the order in which it happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer

import pytest
from msgspec.structs import replace
from runner_rig import shell

from cantle.allocations.groups import parse_groups
from cantle.allocations.local import LocalAllocation
from cantle.engines import intake, staging
from cantle.engines.hearing import Hearing
from cantle.engines.process import ProcessEngine
from cantle.model.records import NodeLost, TaskEnded, TaskStarted
from cantle.model.resources import Node
from cantle.model.seams import Channel
from cantle.model.study import Command, Stage
from cantle.runner.spool import read_spool
from cantle.runner.staging import Files
from cantle.testing import Rig


class Apart(ProcessEngine):
    """Takes its nodes for ones that do not see the run's directory."""

    def add_node(self, index: int, node: Node, channel: Channel) -> None:
        super().add_node(index, replace(node, apart=True), channel)


class Disk:
    """Where files are written that come back: it takes none before it is `free`."""

    def __init__(self) -> None:
        self.free = Event()
        self.asked: list[list[str]] = []
        self.problem: OSError | None = None

    def take_in(self, directory: str, files: Files) -> None:
        self.asked.append([name for name, _, _ in files])
        assert self.free.wait(30)
        if self.problem is not None:
            raise self.problem
        staging.put(directory, files)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk()
    monkeypatch.setattr(intake.staging, "take_in", found.take_in)
    yield found
    found.free.set()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes whose runners were listened to, each time."""
    found: list[int] = []
    hear = Hearing.hear

    def noted(hearing: Hearing, index: int) -> None:
        found.append(index)
        hear(hearing, index)

    monkeypatch.setattr(Hearing, "hear", noted)
    return found


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(Apart, lambda: LocalAllocation(groups=parse_groups("2x1")), tmp_path / "run") as found:
        yield found


WAITS = "until [ -e go ]; do sleep 0.02; done"
MAKES = Command(argv=("/bin/sh", "-c", "echo made > it"), cwd="work", stage=Stage((), ("it",)))


def ends(rig: Rig) -> list[int]:
    return [event.task for event in rig.events if isinstance(event, TaskEnded)]


def test_while_files_are_written_other_nodes_are_heard_and_the_own_one_after_it(
    rig: Rig, disk: Disk, heard: list[int], tmp_path: Path
) -> None:
    rig.launch(0, MAKES, cores="0")
    rig.launch(1, shell(WAITS), cores="0", behind=0, if_done=1)
    rig.launch(2, shell("true"), cores="0", behind=1)
    rig.wait_for(lambda: disk.asked != [], "nothing is taken in")
    heard.clear()
    (tmp_path / "run" / "go").touch()
    for task in (3, 4, 5):
        rig.launch(task, shell("true"), node=1, cores="0")
        assert rig.ended(task).outcome == "done"
    assert ends(rig) == [3, 4, 5]
    assert 0 not in heard, "what cannot be told yet wakes nobody"
    disk.free.set()
    assert rig.ended(2).outcome == "done"
    assert ends(rig) == [3, 4, 5, 0, 1, 2]
    own = [event.task for event in rig.events if isinstance(event, TaskStarted | TaskEnded) and event.task < 3]
    assert own.index(1) > own.index(0) and disk.asked == [["work/it"]]
    assert (rig.ends(0)[0].outcome, rig.ends(0)[0].detail) == ("done", "")


def test_a_node_that_is_lost_meanwhile_is_told_of_after_what_had_ended_there(rig: Rig, disk: Disk) -> None:
    rig.launch(0, MAKES, cores="0")
    rig.wait_for(lambda: disk.asked != [], "nothing is taken in")
    os.kill(_runner(rig), signal.SIGKILL)
    for _ in range(5):
        rig.turn(0.1)
    assert not any(isinstance(event, NodeLost | TaskEnded) for event in rig.events)
    disk.free.set()
    rig.wait_for(lambda: any(isinstance(event, NodeLost) for event in rig.events), "it is not told")
    told = [event for event in rig.events if isinstance(event, NodeLost | TaskEnded)]
    assert [type(event) for event in told] == [TaskEnded, NodeLost] and rig.ends(0)[0].outcome == "done"


def _runner(rig: Rig) -> int:
    pid = rig.engine._links[0].channel.pid  # type: ignore[attr-defined]
    assert isinstance(pid, int)
    return pid


def test_what_is_not_written_yet_the_runner_keeps_if_its_conductor_goes(rig: Rig, disk: Disk, tmp_path: Path) -> None:
    rig.launch(0, MAKES, cores="0")
    rig.launch(1, shell("true"), cores="0", behind=0)
    rig.wait_for(lambda: disk.asked != [], "nothing is taken in")
    for _ in range(3):
        rig.turn(0.1)
    rig.engine.remove_node(0)
    assert [kept.key for kept in read_spool(str(tmp_path / "run" / "runners" / "0.spool"))] == [(0, 1), (1, 1)]
    disk.free.set()
    rig.turn(0.2)
    assert ends(rig) == [], "what comes of a node that was let go is not told any more"


def test_the_end_of_a_run_waits_for_what_is_being_written(
    tmp_path: Path, disk: Disk, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cantle.engines.process._CLOSING_S", 60.0)
    with Rig(Apart, lambda: LocalAllocation(cores=1), tmp_path / "run") as rig:
        rig.launch(0, MAKES, cores="0")
        rig.launch(1, shell(WAITS), cores="0", behind=0)
        rig.wait_for(lambda: disk.asked != [], "nothing is taken in")
        heard.clear()
        (tmp_path / "run" / "go").touch()
        slow = Timer(0.5, disk.free.set)
        slow.start()
    slow.join()
    assert rig.ends(0)[0].outcome == "done" and (tmp_path / "run" / "work" / "it").read_text() == "made\n"
    assert len(rig.ends(1)) == 1 and len(heard) < 10, heard


def test_where_files_cannot_be_written_the_attempt_has_failed_and_the_next_one_is_heard(rig: Rig, disk: Disk) -> None:
    disk.problem = OSError(28, "No space left on device")
    rig.launch(0, MAKES, cores="0")
    rig.launch(1, shell("true"), cores="0", behind=0)
    disk.free.set()
    end = rig.ended(0)
    assert (end.outcome, end.detail) == ("failed", "what it stages out: [Errno 28] No space left on device")
    assert rig.ended(1).outcome == "done"
