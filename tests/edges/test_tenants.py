"""Does what goes wrong with one study of a pilot stay with that study?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cantle.core.state import State
from cantle.core.studies import StudyState
from cantle.errors import RequestError
from cantle.model.records import (
    CancelAsked,
    LimitsChanged,
    PartitionAsked,
    PartitionDrainAsked,
    RunStarted,
    StopAsked,
    StudyAdded,
    TasksAdded,
)
from cantle.model.resources import Node, Place
from cantle.model.study import Command, Limits, PartitionWish, Step, Study, Task
from cantle.runtime.pilot import submission
from cantle.runtime.pilot.entering import Entry
from cantle.runtime.pilot.submission import Submission
from cantle.runtime.pilot.tenants import Tenant
from cantle.runtime.unheeded import unheeded
from cantle.store.journal import Journal
from cantle.store.layout import SUBMISSION, Layout
from cantle.store.lock import ConductorLock
from cantle.store.requests import ask

SENT = Submission(pilot="/pilots/p", name="s", reader="any", digest="d", tasks=1, number=1)


class Work:
    """Commands of a study that never runs."""

    def __init__(self, trouble: Callable[[], None] = lambda: None) -> None:
        self._trouble = trouble

    def prepare(self, directory: str) -> None:
        self._trouble()

    def command(
        self, task: int, attempt: int, restart: bool, places: tuple[Place, ...], nodes: tuple[Node, ...]
    ) -> Command:
        return Command()


def study(digest: str = "d", work: Work | None = None) -> Study:
    return Study("s", [Step("x")], [Task("a", 0)], lambda _: work or Work(), digest=digest)


def ends_the_process() -> None:
    sys.exit(3)


def fails() -> None:
    raise RequestError("the data is not there")


def breaks() -> None:
    raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda: study(work=Work(ends_the_process)), "the study could not be read: SystemExit: 3"),
        (lambda: study(work=Work(fails)), "the data is not there"),
        (lambda: study(work=Work(breaks)), "the study could not be read: ZeroDivisionError: oh"),
        (lambda: study("other"), "is not what was submitted: was it edited by hand?"),
    ],
    ids=["ends the process", "cannot be prepared", "breaks", "was edited"],
)
def test_a_study_that_cannot_be_read_says_why_and_ends_nothing_else(
    tmp_path: Path, given: Callable[[], Study], told: str
) -> None:
    layout = Layout(tmp_path)
    entry = Entry(layout, ConductorLock(layout.lock), SENT).read(lambda _reader, _folder: given())
    assert told in entry.problem
    assert entry.study is None and entry.work is None


def state_of_two() -> State:
    state = State()
    for record in (
        RunStarted(0.0, "pilot", "0", "here", 1),
        StudyAdded(0.0, "first", [Step("x")]),
        TasksAdded(0.0, 0, [Task("a", 0), Task("b", 0)], 0),
        StudyAdded(0.0, "second", [Step("x")], tasks=2),
        TasksAdded(0.0, 2, [Task("a", 1), Task("b", 1)], 1),
    ):
        state.apply(record)
    return state


class NoStatus:
    """Keeps no file."""

    def __call__(self, state: State) -> None:
        pass

    def write(self, state: State) -> None:
        pass


def tenant_in(tmp_path: Path, study: StudyState) -> Tenant:
    layout = Layout(tmp_path / "second").create()
    lock = ConductorLock(layout.lock)
    lock.acquire()
    submission.put(layout, SENT)
    return Tenant(1, study, layout, lock, Journal.open_new(layout.journal), NoStatus())


def test_what_is_asked_in_a_studys_directory_concerns_that_study_alone(tmp_path: Path) -> None:
    state = state_of_two()
    tenant = tenant_in(tmp_path, state.studies[1])
    noted: list[str] = []
    for wish in (
        CancelAsked(0.0, [1], "me"),
        CancelAsked(0.0, None, "me"),
        LimitsChanged(0.0, Limits(throttle=3)),
        PartitionAsked(0.0, PartitionWish("mine", 1)),
        StopAsked(0.0, "me"),
        CancelAsked(0.0, [2], "me"),
        PartitionDrainAsked(0.0, "nobody's"),
        LimitsChanged(0.0, Limits(), 1),
    ):
        ask(tenant.layout.directory, wish)
    heard = list(tenant.wishes(state, noted.append, 1.0))
    tenant.let_go()
    stripped = [(type(wish).__name__, getattr(wish, "tasks", None), getattr(wish, "study", None)) for wish in heard]
    assert stripped == [
        ("CancelAsked", [3], None),
        ("CancelAsked", None, 1),
        ("LimitsChanged", None, 1),
        ("PartitionAsked", None, 1),
    ]
    assert noted == [
        f"second-2: {unheeded(StopAsked(0.0, 'me'), state, of_one_study=True)}",
        "second-2: a request by me to cancel task 2 is ignored: there is no such task",
        'second-2: a request to drain the partition "nobody\'s" is ignored: there is none of that name',
        "second-2: a request to change the limits is ignored: there is no study 2",
    ]


def test_a_study_that_is_over_belongs_to_no_pilot_any_more(tmp_path: Path) -> None:
    state = state_of_two()
    tenant = tenant_in(tmp_path, state.studies[1])
    assert tenant.finish(state) == ""
    assert not (tenant.layout.own / SUBMISSION).exists()
    assert not tenant.lock.held


def test_in_a_directory_that_another_conductor_took_over_nothing_is_written_any_more(tmp_path: Path) -> None:
    state = state_of_two()
    tenant = tenant_in(tmp_path, state.studies[1])
    before = tenant.layout.journal.read_bytes()
    tenant.journal.write(TasksAdded(1.0, 0, [Task("never", 0)]))
    tenant.abandon()
    assert tenant.finish(state) == ""
    assert tenant.layout.journal.read_bytes() == before
    assert (tenant.layout.own / SUBMISSION).exists()
    tenant.lock.release()
