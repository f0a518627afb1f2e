"""Files are read by a few threads, and what hangs stops only what wants it or lies beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from threading import Event

import pytest

from cantle.engines import readers
from cantle.engines.porter import Porter
from cantle.engines.readers import MOST, MOST_OF_ONE, Errand, Readers
from cantle.model.records import TaskHindered
from cantle.runner.messages import Staged
from cantle.runtime.inbox import SelectInbox

PATIENCE_S = 60.0


class Files:
    """Files that are there at once, but for those that hang until `let`."""

    def __init__(self) -> None:
        self.hung: dict[str, Event] = {}
        self.opened: SimpleQueue[str] = SimpleQueue()
        self.over: SimpleQueue[Errand] = SimpleQueue()
        self.readers = Readers(self.over.put)

    def hang(self, *paths: str) -> None:
        self.hung |= {path: Event() for path in paths}

    def let(self, *paths: str) -> None:
        for path in paths:
            self.hung[path].set()

    def reading(self, *paths: str) -> Generator[str, None, Staged]:
        found = []
        for path in paths:
            yield path
            self.opened.put(path)
            if path in self.hung:
                assert self.hung[path].wait(PATIENCE_S)
            found.append((path, 0o600, b""))
        return Staged(tuple(found), (), False, ())

    def read(self, *paths: str) -> Errand:
        errand = Errand(self.reading(*paths))
        self.readers.read(errand)
        return errand

    def is_opened(self, *paths: str) -> None:
        """In whatever order, these are, and no other one within a moment."""
        assert sorted(self.opened.get(timeout=PATIENCE_S) for _ in paths) == sorted(paths)
        with pytest.raises(Empty):
            self.opened.get(timeout=0.05)

    def comes(self) -> list[str]:
        """What the next errand that is over has read."""
        found = self.over.get(timeout=PATIENCE_S).found
        assert found is not None
        return [name for name, _, _ in found.files]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Generator[Files, None, None]:
    monkeypatch.setattr(
        readers, "mounts", lambda: dict.fromkeys(["/", "/nfs", "/home", *(f"/m{i}" for i in range(20))], "nfs")
    )
    found = Files()
    yield found
    found.let(*found.hung)
    found.readers.close()


def test_a_file_that_hangs_stops_only_who_wants_it(files: Files) -> None:
    files.hang("/nfs/bad")
    wanting = [files.read("/nfs/good.0", "/nfs/bad") for _ in range(10)]
    assert files.opened.get(timeout=PATIENCE_S) == "/nfs/good.0"
    files.read("/nfs/good.1", "/home/good.2")
    assert files.comes() == ["/nfs/good.1", "/home/good.2"]
    files.let("/nfs/bad")
    assert [files.comes() for _ in wanting] == [["/nfs/good.0", "/nfs/bad"]] * 10


def test_a_file_system_that_hangs_costs_a_few_threads_and_stops_only_what_lies_there(files: Files) -> None:
    bad = [f"/nfs/{i}" for i in range(3 * MOST_OF_ONE)]
    files.hang(*bad)
    for path in bad:
        files.read(path)
    files.is_opened(*bad[:MOST_OF_ONE])
    waiting = files.read("/nfs/other")
    files.read("/home/good")
    assert files.comes() == ["/home/good"]
    assert files.readers.waits_for(waiting) == ("/nfs/other", "4 others of /nfs are being read")
    files.let(*bad)
    assert sorted(files.comes() for _ in range(len(bad) + 1)) == sorted([path] for path in [*bad, "/nfs/other"])


def test_there_are_never_more_threads_than_a_bound(files: Files) -> None:
    bad = [f"/m{i}/{j}" for i in range(10) for j in range(MOST_OF_ONE)]
    files.hang(*bad)
    for path in bad:
        files.read(path)
    files.is_opened(*bad[:MOST])
    waiting = files.read("/home/good")
    assert files.readers.waits_for(waiting) == ("/home/good", f"{MOST} others are being read")
    files.let(bad[0])
    assert files.comes() == [bad[0]]
    files.let(*bad)
    assert ["/home/good"] in [files.comes() for _ in bad]


def test_who_is_not_wanted_any_more_reads_nothing(files: Files) -> None:
    files.hang("/nfs/bad")
    first, second, third = (files.read("/nfs/bad", f"/home/{i}") for i in range(3))
    files.is_opened("/nfs/bad")
    first.dropped = second.dropped = True
    files.let("/nfs/bad")
    assert files.over.get(timeout=PATIENCE_S) is third
    assert (first.found, second.found) == (None, None)


def test_what_hangs_is_known_by_name_and_how_long(files: Files) -> None:
    files.hang("/nfs/bad")
    files.read("/nfs/bad")
    files.is_opened("/nfs/bad")
    ((path, for_s),) = files.readers.hanging(0.0)
    assert path == "/nfs/bad"
    assert 0.0 < for_s < PATIENCE_S
    assert files.readers.hanging(PATIENCE_S) == []
    files.let("/nfs/bad")
    files.comes()


class Told:
    """A porter whose files hang, and what it tells."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.inbox = SelectInbox()
        self.porter = Porter(self.inbox)
        self.brought: list[int] = []

    def fetch(self, task: int, *paths: str, behind: int | None = None) -> None:
        reading = self.files.reading(*paths) if paths else None
        self.porter.fetch((task, 1), 0, reading, lambda _found, _why: self.brought.append(task), behind)

    def until(self, is_so: Callable[[], bool]) -> list[TaskHindered]:
        events = []
        stop = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < stop
            events += self.inbox.wait(0.02)
            self.porter.tick()
        events += self.inbox.wait(0.0)
        return [event for event in events if isinstance(event, TaskHindered)]


@pytest.fixture
def told(files: Files, monkeypatch: pytest.MonkeyPatch) -> Generator[Told, None, None]:
    monkeypatch.setattr("cantle.engines.porter.TELLS_S", 0.1)
    monkeypatch.setattr("cantle.engines.porter.LOOK_S", 0.0)
    found = Told(files)
    yield found
    found.porter.close()
    found.inbox.close()


def test_who_waits_for_what_hangs_is_told_of_it_and_may_be_dropped(told: Told) -> None:
    told.files.hang("/nfs/bad")
    for task in range(3):
        told.fetch(task, "/nfs/bad")
    told.fetch(3, "/nfs/good")
    told.fetch(4, behind=1)
    news: list[TaskHindered] = []
    told.until(lambda: told.brought == [3])
    while {event.task for event in news} != {0, 1, 2}:
        count = len(news)
        news += told.until(lambda: bool(told.inbox._events))
        assert len(news) > count
    first = {event.task: event.why for event in reversed(news)}
    assert first[0].startswith("what it stages in does not come: /nfs/bad has been read for ")
    assert "others wait for it as well" in first[1]
    assert told.porter.drop((1, 1))
    told.until(lambda: told.brought == [3, 4])
    told.files.let("/nfs/bad")
    back = told.until(lambda: told.brought == [3, 4, 0, 2])
    assert [(event.task, event.why) for event in back if not event.why] == [(0, ""), (2, "")]


def test_who_follows_one_that_is_dropped_goes_behind_whom_that_one_followed(told: Told) -> None:
    told.files.hang("/nfs/bad")
    told.fetch(0, "/nfs/bad")
    told.fetch(1, behind=0)
    told.fetch(2, behind=1)
    told.fetch(3, behind=2)
    assert told.porter.drop((1, 1))
    assert told.porter.drop((2, 1))
    told.fetch(4, "/nfs/good")
    told.until(lambda: told.brought == [4])
    told.files.let("/nfs/bad")
    told.until(lambda: told.brought == [4, 0, 3])
