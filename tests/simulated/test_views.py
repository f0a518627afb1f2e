"""Does each study of a pilot have a journal that is that of a run by itself, whatever happens to the others?"""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import CheckedState
from cantle.core.decide import Decider
from cantle.core.phases import FINAL
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    AdmitPartition,
    AnyRecord,
    CancelAsked,
    ClosePartition,
    Event,
    GrowPartition,
    KindsDeclared,
    Launch,
    LimitsChanged,
    MoveResults,
    NodeDrainAsked,
    NodeLost,
    NodesJoined,
    NoticeIdle,
    OpenPartition,
    OrderTasks,
    PartitionAsked,
    PartitionEnded,
    PartitionStarted,
    RequestAnswered,
    RequestNodes,
    RequestPartition,
    ResultsForgotten,
    ResultsLost,
    ResultsMoved,
    Revived,
    RunResumed,
    RunStarted,
    StopAsked,
    StudyAdded,
    StudyChanged,
    TaskEnded,
    TasksAdded,
)
from cantle.model.resources import Needs, Node, Place, Slots
from cantle.model.study import Limits, PartitionWish, Step, Task
from cantle.runtime.loop import turn
from cantle.runtime.pilot.views import Views, moved
from cantle.runtime.simulated import Fate, SimulatedWorld

COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=4)


class Kept:
    """A log that keeps."""

    def __init__(self, *records: AnyRecord) -> None:
        self.records = list(records)

    def write(self, record: AnyRecord) -> None:
        self.records.append(record)

    def flush(self) -> None:
        pass


def study_of(n: int, wide: bool) -> tuple[list[Step], list[Task]]:
    """A little tree: each task but the first waits for one before it, one only for its being over."""
    steps = [Step("first", retries=1), Step("rest", Needs(cores=2 if wide else 1), restartable=True)]
    tasks = [
        Task(f"t{i}", min(i, 1), (i // 2,) if i % 3 == 1 else (), 0.0, (i // 2,) if i and i % 3 == 2 else ())
        for i in range(n)
    ]
    return steps, tasks


def coming(counts: list[int], limits: Limits) -> list[Event]:
    """The studies come one after the other, each in two pieces."""
    events: list[Event] = []
    first_task = first_step = 0
    for number, n in enumerate(counts):
        steps, tasks = study_of(n, bool(number % 2))
        time = 3.0 * number
        events.append(
            StudyAdded(
                time, f"s{number}", steps, limits=limits if number == 1 else Limits(), tasks=n, priority=number % 2
            )
        )
        placed = moved(tasks, first_task, first_step)
        for begin in range(0, n, 3):
            events.append(TasksAdded(time, first_task + begin, placed[begin : begin + 3], number))
        first_task += n
        first_step += len(steps)
    return events


@st.composite
def mishaps(draw: st.DrawFn, studies: int) -> list[Event]:
    """What somebody asks of a study that is there, and nodes that come and go."""
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 3))):
        time = draw(st.floats(0.5, 30))
        study = draw(st.integers(0, min(studies - 1, int(time / 3.0 - 0.1))))
        events.append(
            draw(
                st.sampled_from(
                    [
                        CancelAsked(time, None, "me", study),
                        LimitsChanged(time, Limits(throttle=1), study),
                        NodeLost(time, 0, "gone"),
                        NodesJoined(time, [Node("more", 2)]),
                        NodeDrainAsked(time, "c", "me"),
                    ]
                )
            )
        )
    return events


def views_of(records: list[AnyRecord]) -> dict[int, CheckedState]:
    """The state of each study's own journal; its invariants are checked after each record."""
    views = Views()
    states: dict[int, CheckedState] = {}
    for record in records:
        for study, view in views.split(record):
            states.setdefault(study, CheckedState()).apply(view)
    return states


def require_the_same(state: State, views: dict[int, CheckedState]) -> None:
    assert set(views) == set(range(len(state.studies)))
    for number, study in enumerate(state.studies):
        view, own = views[number], study.tasks
        assert view.phases == [state.phases[task] for task in own]
        assert view.attempts == [state.attempts[task] for task in own]
        assert [view.cause_of.get(i) for i in range(len(own))] == [state.cause_of.get(task) for task in own]
        assert [task.name for task in view.tasks] == [f"t{i}" for i in range(len(own))]
        assert view.studies[0].limits == study.limits
        assert [view.queue_of(i).shape.priority for i in range(len(own))] == [number % 2] * len(own)
        assert view.stopping == state.stopping
        assert len(view.room.nodes) == len(state.room.nodes)
        assert view.room.alive == state.room.alive


@given(COUNTS, st.data(), st.lists(st.sampled_from(["done", "failed", "timeout"]), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_each_studys_own_journal_tells_of_it_what_the_pilots_does(
    counts: list[int],
    data: st.DataObject,
    outcomes: list[str],
) -> None:
    begun = RunStarted(0.0, "pilot", "0", "here", 1)
    log = Kept(begun)
    state = CheckedState()
    state.apply(begun)
    fail_fast = data.draw(st.booleans())

    def fate(task: int, attempt: int) -> Fate:
        return Fate(1.0 + task % 3, outcomes[(task + attempt) % len(outcomes)] if attempt < 4 else "done")  # type: ignore[arg-type]

    world = SimulatedWorld(state, [(0.0, [Node("a", 2), Node("b", 2)])], fate, start_s=0.1)
    for event in (*coming(counts, Limits(fail_fast=fail_fast)), *data.draw(mishaps(len(counts)))):
        world.put(event)
    stop = data.draw(st.one_of(st.none(), st.floats(3.0 * len(counts), 40)))
    if stop is not None:
        world.put(StopAsked(stop, "the pilot was taken down"))
    decider = Decider()
    while not (len(state.studies) == len(counts) and state.finished):
        turn(state, world, log, decider, world.wait())
    require_the_same(state, views_of(log.records))

    resumed = RunResumed(state.now, "here", 2, retry=False)
    log.write(resumed)
    state.apply(resumed)
    late, tasks = study_of(3, False)
    placed = moved(tasks, len(state.tasks), len(state.steps))
    world = SimulatedWorld(state, [(state.now, [Node("c", 4)])], fate)
    world.put(StudyAdded(state.now, "late", late, tasks=3, priority=len(counts) % 2))
    world.put(TasksAdded(state.now, len(state.tasks), placed, len(counts)))
    decider = Decider()
    while not (len(state.studies) > len(counts) and state.finished):
        turn(state, world, log, decider, world.wait())
    assert all(phase in FINAL for phase in state.phases)
    views = views_of(log.records)
    require_the_same(state, views)
    assert [views[number].resumed for number in sorted(views)] == [1] * len(counts) + [0]


def test_what_stands_in_line_in_the_pilot_does_so_in_the_studys_own_journal() -> None:
    place = (Place(0, "0"),)
    records: list[AnyRecord] = [
        RunStarted(0.0, "pilot", "0", "here", 1),
        NodesJoined(0.0, [Node("a", 4)]),
        StudyAdded(1.0, "s0", [Step("x")], tasks=2),
        TasksAdded(1.0, 0, [Task("t0", 0), Task("t1", 0)], 0),
        StudyAdded(1.0, "s1", [Step("x")], tasks=2),
        TasksAdded(1.0, 2, [Task("t0", 1), Task("t1", 1)], 1),
        Launch(2.0, 2, 1, place),
        Launch(2.0, 3, 1, place, behind=2),
    ]
    view = views_of(records)[1]
    assert view.stands_in_line(1) and view.lines[1].owner == 0
    assert views_of(records)[0].running == {}


def test_a_partition_is_known_to_all_and_to_its_own_study_as_its_own() -> None:
    wish = PartitionWish("mine", 1, 2)
    records: list[AnyRecord] = [
        RunStarted(0.0, "pilot", "0", "here", 1),
        NodesJoined(0.0, [Node("a", 4)]),
        StudyAdded(1.0, "s0", [Step("x")], tasks=1),
        TasksAdded(1.0, 0, [Task("t0", 0)], 0),
        PartitionAsked(2.0, wish, 0),
        StudyAdded(3.0, "s1", [Step("x")], tasks=1),
        TasksAdded(3.0, 1, [Task("t0", 1)], 1),
        PartitionAsked(4.0, PartitionWish("all", 1), -1),
    ]
    views = views_of(records)
    known = {number: [(p.name, p.study) for p in view.partitions.all] for number, view in views.items()}
    assert known == {0: [("mine", 0), ("all", -1)], 1: [("mine", -2), ("all", -1)]}


BOTH: list[AnyRecord] = [
    RunStarted(0.0, "pilot", "0", "here", 1),
    NodesJoined(0.0, [Node("a", 4), Node("b", 4)]),
    StudyAdded(1.0, "s0", [Step("x")], tasks=2),
    TasksAdded(1.0, 0, [Task("t0", 0), Task("t1", 0)], 0),
    StudyAdded(1.0, "s1", [Step("x")], tasks=2),
    TasksAdded(1.0, 2, [Task("t0", 1), Task("t1", 1)], 1),
]
OF_TASKS = [
    CancelAsked(2.0, [3]),
    MoveResults(2.0, [3], 0, 1, "it goes"),
    OrderTasks(2.0, [3], "sooner"),
    ResultsForgotten(2.0, [3]),
    ResultsLost(2.0, [3], -1),
    ResultsMoved(2.0, [3], 0, 1),
    Revived(2.0, [3]),
]


@pytest.mark.parametrize("record", OF_TASKS, ids=lambda record: type(record).__name__)
def test_what_concerns_tasks_of_one_study_is_told_to_that_one_alone_by_its_own_numbers(record: AnyRecord) -> None:
    views = Views()
    for known in BOTH:
        list(views.split(known))
    assert list(views.split(record)) == [(1, replace(record, tasks=[1]))]
    late = [view for _, view in views.split(StudyAdded(3.0, "late", [Step("x")]))]
    assert type(record) not in map(type, late), "who comes later knows nothing of it"


def test_no_record_that_names_tasks_is_forgotten_by_the_views() -> None:
    by_list = {
        kind for kind in get_args(AnyRecord) if kind.__annotations__.get("tasks") in ("list[int]", "list[int] | None")
    }
    assert by_list == {*map(type, OF_TASKS), StudyChanged}


def test_a_study_that_comes_after_the_pilot_was_gone_on_with_knows_that_all_from_before_is_over() -> None:
    """Nodes and partitions are gone, nobody drains what has the same name, and nothing is on its way."""
    wish = PartitionWish("all", 1)
    records: list[AnyRecord] = [
        RunStarted(0.0, "pilot", "0", "here", 1),
        KindsDeclared(0.0, [Kind("cpu", 1)]),
        NodesJoined(1.0, [Node("a", 1, machine="m")]),
        PartitionAsked(1.0, wish),
        AdmitPartition(1.0, 0),
        RequestNodes(1.0, "cpu", 3, "missing"),
        NodeDrainAsked(2.0, "a", "me"),
        RunResumed(5.0, "here", 2, False, 1),
        NodesJoined(5.0, [Node("a", 1, machine="m")]),
        StudyAdded(6.0, "late", [Step("x")], tasks=1),
        TasksAdded(6.0, 0, [Task("t", 0)]),
        Launch(7.0, 0, 1, (Place(1, "0"),)),
        TaskEnded(8.0, 0, 1, "done"),
    ]
    view = views_of(records)[0]
    assert view.finished and view.succeeded and not view.partitions.living
    assert view.room.alive == 0b10 and not view.drained
    assert view.scaling is not None and view.scaling.coming() == 0
    assert view.resumed == 0, "the study itself was never interrupted"


def test_of_elements_that_are_over_a_study_that_comes_later_is_told_little_more_than_that_there_were_some() -> None:
    """A pilot makes and closes thousands of them: each study's own journal begins with all that is told."""
    over = 50
    records: list[AnyRecord] = [
        RunStarted(0.0, "pilot", "0", "here", 1),
        NodesJoined(0.0, [Node(f"n{i}", 1, machine="m") for i in range(2)]),
        StudyAdded(0.0, "first", [Step("x")], tasks=1),
        TasksAdded(0.0, 0, [Task("t", 0)]),
    ]
    slots = (Slots(0, "0"), Slots(1, "0"))
    for number in range(over + 1):
        records += [
            RequestPartition(1.0, PartitionWish(f"w2.0.0.{number % 5}", 2, 1), 0, (0, 0, number % 5)),
            AdmitPartition(1.0, number),
            GrowPartition(1.0, number, slots),
            OpenPartition(1.0, number),
            PartitionStarted(1.0, number),
        ]
        if number < over:
            records += [ClosePartition(2.0, number, "done"), PartitionEnded(2.0, number)]
    late = [StudyAdded(3.0, "late", [Step("x")], tasks=1), TasksAdded(3.0, 1, [Task("t", 1)], 1)]
    view = views_of([*records, *late])[1]
    assert len(view.partitions.all) == over + 1
    assert [(each.number, each.nodes()) for each in view.partitions.living.values()] == [(over, [0, 1])]
    assert len(view.records) <= 2 * over + 15
    first = views_of([*records, *late])[0]
    assert all(each.standing == Standing.DONE for each in first.partitions.all[:over]), "its own it knows as they were"


def test_of_a_request_for_nodes_a_study_that_comes_later_is_told_the_last_answer() -> None:
    records: list[AnyRecord] = [
        RunStarted(0.0, "pilot", "0", "here", 1),
        KindsDeclared(0.0, [Kind("cpu", 1)]),
        RequestNodes(1.0, "cpu", 4, "missing"),
        *(RequestAnswered(1.0 + i, 0, 4, 0, f"job 7 waits, place {9 - i}") for i in range(9)),
        RequestAnswered(20.0, 0, 3, 1, "one is too many"),
        NodesJoined(21.0, [Node("a", 1, kind="cpu", machine="m")], 0),
        NoticeIdle(22.0, 0, "unused"),
        StudyAdded(30.0, "late", [Step("x")], tasks=0),
    ]
    view = views_of(records)[0]
    assert view.scaling is not None
    request = view.scaling.requests[0]
    assert (request.coming, request.joined, request.refused, request.detail) == (2, 1, 1, "one is too many")
    assert len(view.records) == 6
