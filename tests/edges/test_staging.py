"""Files that come to a node with an attempt, and go back with its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runner_rig import shell

from cantle.allocations.fleet.apart import OwnDirectory
from cantle.allocations.groups import parse_groups
from cantle.allocations.local import LocalAllocation
from cantle.core.packing import find_places
from cantle.core.room import Room
from cantle.engines import porter, staging
from cantle.engines.luggage import Luggage
from cantle.engines.process import ProcessEngine
from cantle.model.records import Launch, TaskEnded, TaskHindered
from cantle.model.resources import Needs, Node, Place
from cantle.model.study import Command, Stage
from cantle.runner.messages import Start
from cantle.runner.spawn import Output
from cantle.runner.staging import fetch, put
from cantle.runtime.inbox import SelectInbox
from cantle.testing import Rig

PRINTED = Output()


def start(out: tuple[str, ...], back: bool = True, **command: str) -> Start:
    from cantle.runner.messages import Staged

    return Start((0, 1), Command(cwd="work", **command), "0", stage=Staged((), out, back))


def test_a_file_from_outside_comes_into_its_folder_and_one_from_inside_keeps_its_place(tmp_path):
    run = tmp_path / "run"
    (run / "a").mkdir(parents=True)
    (run / "a" / "result").write_text("r")
    (tmp_path / "script").write_text("s")
    (tmp_path / "script").chmod(0o750)
    stage = Stage(((str(tmp_path / "script"), "b/"), (str(run / "a" / "res*"), "a/")), ("x",))
    apart = staging.staged(stage, str(run), apart=True)
    assert apart.files == (("b/script", 0o750, b"s"), ("a/result", (run / "a" / "result").stat().st_mode & 0o777, b"r"))
    assert (apart.out, apart.back) == (("x",), True)
    shared = staging.staged(stage, str(run), apart=False)
    assert [name for name, _, _ in shared.files] == ["b/script"]
    assert not shared.back


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("none", "No such file"),
        ("none*", "there is no .*none"),
        ("folder", "is a folder; name files, as in folder/"),
        ("large", "more than 16 MiB"),
        ("*/same", "two files would be b/same"),
    ],
)
def test_what_cannot_be_staged_is_told(tmp_path, source, told):
    for folder in ("folder", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same").touch()
    with (tmp_path / "large").open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises((OSError, ValueError), match=told):
        staging.staged(Stage(((str(tmp_path / source), "b/"),)), str(tmp_path / "run"), apart=True)


def test_files_arrive_whole_with_their_mode_and_in_folders_that_are_made(tmp_path):
    put(str(tmp_path), (("deep/er/tool", 0o755, b"#!"), ("plain", 0o644, b"text")))
    assert (tmp_path / "deep" / "er" / "tool").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "plain").read_bytes() == b"text"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "plain"]


def test_what_is_named_comes_back_with_what_was_printed(tmp_path):
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "one.txt").write_text("1")
    (work / "sub" / "two.txt").write_text("2")
    (work / "other").write_text("not asked for")
    (work / "a.out").write_text("printed")
    files, lack = fetch(
        str(tmp_path), start(("**/*.txt",)), Output(None, str(work / "a.out"), str(work / "a.err")), True
    )
    assert {name: content for name, _, content in files} == {
        "work/one.txt": b"1",
        "work/sub/two.txt": b"2",
        "work/a.out": b"printed",
    }
    assert lack == ""


def test_of_a_failed_attempt_only_what_it_printed_comes_back(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.err").write_text("why")
    (tmp_path / "work" / "x").write_text("half")
    files, lack = fetch(str(tmp_path), start(("x", "y")), Output(None, "", str(tmp_path / "work" / "a.err")), False)
    assert ([name for name, _, _ in files], lack) == (["work/a.err"], "")


def test_what_is_not_there_or_too_large_is_a_lack(tmp_path):
    (tmp_path / "work").mkdir()
    assert "it was to leave y*" in fetch(str(tmp_path), start(("y*",)), PRINTED, True)[1]
    assert "it was to leave y*" in fetch(str(tmp_path), start(("y*",), back=False), PRINTED, True)[1]
    with (tmp_path / "work" / "y").open("wb") as file:
        file.truncate((16 << 20) + 1)
    files, lack = fetch(str(tmp_path), start(("y*",)), PRINTED, True)
    assert files == ()
    assert "at most 16 MiB are brought back" in lack


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_nothing_that_comes_back_lies_outside_of_the_run(tmp_path, name):
    with pytest.raises(ValueError, match="lies outside"):
        staging.take_in(str(tmp_path), ((name, 0o644, b""),))


def ended(tmp_path: Path, command: Command, node: Node | None = None) -> TaskEnded:
    """How an attempt ends on a runner of this machine."""
    inbox = SelectInbox()
    engine = ProcessEngine(inbox, str(tmp_path / "run"))
    allocation = LocalAllocation(cores=1)
    node = node or Node("n", 1)
    try:
        engine.add_node(0, node, allocation.connect(node))
        engine.launch(Launch(0.0, 0, 1, (Place(0, "0"),)), command)
        engine.flush()
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for event in inbox.wait(0.1):
                if isinstance(event, TaskEnded):
                    return event
            engine.flush()
        raise AssertionError("it did not end")
    finally:
        engine.close()
        allocation.close()
        inbox.close()


def test_a_command_finds_what_was_staged_and_leaves_what_is_asked_for(tmp_path):
    (tmp_path / "in.txt").write_text("input")
    stage = Stage(((str(tmp_path / "in.txt"), "work/"),), ("copy",))
    command = Command(argv=("/bin/cp", "in.txt", "copy"), cwd="work", output_stem="work/a", stage=stage)
    for node in (Node("n", 1), Node("n", 1, apart=True)):
        assert ended(tmp_path, command, node).outcome == "done"
        assert (tmp_path / "run" / "work" / "copy").read_text() == "input"


class Slow:
    """A file to be staged that a reader gets no byte of before `arrives`, and a run of two nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.mkfifo(folder / "slow")
        stage = Stage(((str(folder / "slow"), "work/"),))
        self.command = Command(argv=("/bin/sh", "-c", "cat slow >> ../told"), cwd="work", stage=stage)
        self.fd = -1

    def rig(self) -> Rig:
        def nodes() -> LocalAllocation:
            return LocalAllocation(groups=parse_groups("2x1"))

        return Rig(ProcessEngine, nodes, self.folder / "run")

    def is_being_read(self) -> bool:
        """Whether somebody waits for its bytes."""
        try:
            self.fd = os.open(self.folder / "slow", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        return True

    def arrives(self) -> None:
        os.write(self.fd, b"late ")
        os.close(self.fd)

    @property
    def told(self) -> str:
        return (self.folder / "run" / "told").read_text()


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path)


def test_while_a_file_is_read_that_comes_slowly_others_begin_and_end(slow: Slow) -> None:
    with slow.rig() as r:
        r.launch(0, slow.command, cores="0")
        for task in range(1, 5):
            r.launch(task, shell("true"), node=1, cores="0")
            assert r.ended(task).outcome == "done"
        r.wait_for(slow.is_being_read, "nobody reads it")
        assert r.ends(0) == []
        slow.arrives()
        assert r.ended(0).outcome == "done"
    assert slow.told == "late "


@pytest.mark.parametrize("if_done", [0, 1])
def test_who_follows_an_attempt_does_not_overtake_it_while_its_files_are_read(slow: Slow, if_done: int) -> None:
    with slow.rig() as r:
        r.launch(0, slow.command, cores="0")
        r.launch(1, shell("echo second >> told"), cores="0", behind=0, if_done=if_done)
        r.launch(2, shell("echo third >> told"), cores="0", behind=1, if_done=if_done)
        r.wait_for(slow.is_being_read, "nobody reads it")
        r.turn(0.1)
        assert not (slow.folder / "run" / "told").exists()
        slow.arrives()
        assert [r.ended(task).outcome for task in range(3)] == ["done"] * 3
    assert slow.told == "late second\nthird\n"


def test_an_attempt_is_ended_while_its_files_are_read_and_who_would_have_followed_comes_back(slow: Slow) -> None:
    with slow.rig() as r:
        r.launch(0, slow.command, cores="0")
        r.launch(1, shell("echo second >> told"), cores="0", behind=0, if_done=1)
        r.launch(2, shell("echo third >> told"), cores="0", behind=0)
        r.wait_for(slow.is_being_read, "nobody reads it")
        r.stop(0, why="not wanted")
        assert (r.ended(0).outcome, r.ended(0).detail) == ("canceled", "not wanted")
        slow.arrives()
        assert [r.ended(task).outcome for task in (1, 2)] == ["interrupted", "done"]
        assert len(r.ends(0)) == 1
    assert slow.told == "third\n"


def test_nothing_begins_on_a_node_that_went_while_files_were_read_nor_when_the_run_is_closed(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cantle.engines.process._CLOSING_S", 60.0)
    with slow.rig() as r:
        r.launch(0, slow.command, cores="0")
        r.wait_for(slow.is_being_read, "nobody reads it")
        r.engine.remove_node(0)
        slow.arrives()
        r.launch(1, slow.command, node=1, cores="0")
        r.wait_for(slow.is_being_read, "nobody reads it")
        begun = time.monotonic()
    assert time.monotonic() - begun < 60, "it waits for what nobody wants any more"
    slow.arrives()
    assert r.ends(0) == r.ends(1) == []
    assert not (slow.folder / "run" / "told").exists()


def test_a_file_that_does_not_come_is_told_of_and_another_one_of_the_same_folder_is_read_meanwhile(
    slow: Slow, monkeypatch
) -> None:
    monkeypatch.setattr(porter, "TELLS_S", 0.2)
    monkeypatch.setattr(porter, "LOOK_S", 0.0)
    (slow.folder / "quick").write_text("quick ")
    stage = Stage(((str(slow.folder / "quick"), "work/"),))
    quick = Command(argv=("/bin/sh", "-c", "cat quick >> ../told"), cwd="work", stage=stage)
    with slow.rig() as r:
        r.launch(0, slow.command, cores="0")
        r.wait_for(slow.is_being_read, "nobody reads it")
        r.launch(1, quick, node=1, cores="0")
        assert r.ended(1).outcome == "done"

        def told() -> list[TaskHindered]:
            return [event for event in r.events if isinstance(event, TaskHindered)]

        r.wait_for(lambda: bool(told()), "nobody tells that it hangs")
        assert told()[0].task == 0
        assert f"{slow.folder}/slow has been read for" in told()[0].why
        slow.arrives()
        assert r.ended(0).outcome == "done"
        assert [told()[-1].task, told()[-1].why] == [0, ""], "it is taken back"
    assert slow.told == "quick late "


def test_what_came_for_an_attempt_whose_node_went_is_not_kept() -> None:
    inbox = SelectInbox()
    luggage = Luggage(inbox, lambda _node, _start: None, {})
    command = Command(argv=("/bin/true",), stage=Stage((), ("x",)))
    for number in range(2):
        luggage.send(number, Node("n", 1, apart=True), Start((number, 1), command, "0"), "/run", None)
    while len(luggage._homes) < 2:
        inbox.wait(1.0)
    luggage.node_gone(0)
    assert list(luggage._homes) == [(1, 1)]
    luggage.close()
    inbox.close()


def test_whatever_keeps_a_file_from_being_read_is_its_attempts_fault_alone(slow: Slow, monkeypatch) -> None:
    def broken(*_: object) -> Iterator[str]:
        yield "file"
        raise KeyError

    with slow.rig() as r:
        monkeypatch.setattr(staging, "reading", broken)
        r.launch(0, slow.command, cores="0")
        assert r.ended(0).detail == "what it stages in: KeyError"
        r.launch(1, shell("true"), cores="0")
        assert r.ended(1).outcome == "done"


def test_a_task_that_does_not_leave_what_it_was_to_has_failed(tmp_path):
    """O36: it is looked for where it was written, so no other machine's view of the files can be behind."""
    event = ended(tmp_path, Command(argv=("/bin/true",), cwd="work", stage=Stage((), ("result",))))
    assert event.outcome == "failed"
    assert "it was to leave result (`stage: out`)" in event.detail


def test_what_cannot_be_brought_there_makes_a_task_unstartable(tmp_path):
    event = ended(tmp_path, Command(argv=("/bin/true",), stage=Stage(((str(tmp_path / "none"), "work/"),))))
    assert event.outcome == "unstartable"
    assert "what it stages in: " in event.detail and "none" in event.detail


def test_what_cannot_be_kept_here_is_a_failure_that_says_so(tmp_path, monkeypatch):
    def full(directory: str, files: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging, "put", full)
    command = Command(argv=("/usr/bin/touch", "x"), cwd="work", stage=Stage((), ("x",)))
    event = ended(tmp_path, command, Node("n", 1, apart=True))
    assert event.outcome == "failed"
    assert "what it stages out: " in event.detail and "No space left" in event.detail


def test_a_node_apart_takes_only_what_is_staged():
    room = Room()
    room.add(Node("apart", 4, apart=True))
    assert find_places(room, Needs()) is None
    assert find_places(room, Needs(staged=True)) is not None
    room.add(Node("n", 4))
    places = find_places(room, Needs())
    assert places is not None and places[0].node == 1


def test_a_directory_of_its_own_is_made_and_taken_away_with_what_was_made_for_it(tmp_path):
    place = tmp_path / "deep" / "er" / "run"
    own = OwnDirectory(str(place))
    (place / "work").mkdir()
    other = OwnDirectory(str(place))
    other.close()
    assert place.is_dir()
    own.close()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_somebodys_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").touch()
    with pytest.raises(FileExistsError):
        OwnDirectory(str(tmp_path / "run"))
    assert (tmp_path / "run" / "precious").exists()


def test_of_local_files_those_count_that_no_other_machine_sees_and_all_must_be_there(tmp_path):
    outside = tmp_path / "scratch.bin"
    words = ("/bin/sh", "-c", f"printf 12345 > own.bin; printf 123 > {outside}")
    command = Command(argv=words, cwd="work", output_stem="work/a", stage=Stage(local=("own.bin", str(outside))))
    assert ended(tmp_path, command, Node("n", 1)).kept == 3
    assert ended(tmp_path, command, Node("n", 1, apart=True)).kept == 8
    event = ended(tmp_path, Command(argv=("/bin/true",), cwd="work", stage=Stage(local=("none.bin",))))
    assert event.outcome == "failed" and not event.kept
    assert "it was to leave none.bin (`local`), and there is no such file" in event.detail
