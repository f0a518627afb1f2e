"""What a run's records amount to: who ran when, how much was held, and what no order could have beaten."""

from __future__ import annotations

import pytest

from cantle.core.idleness import IdleWatch, Reason
from cantle.core.state import State
from cantle.model.records import (
    AdmitPartition,
    AnyRecord,
    GrowPartition,
    Launch,
    NodeLost,
    NodesJoined,
    OpenPartition,
    PartitionAsked,
    PartitionStarted,
    RunResumed,
    RunStarted,
    StopAsked,
    StudyAdded,
    TaskEnded,
    TasksAdded,
    TaskStarted,
    TimePassed,
)
from cantle.model.resources import Needs, Node, Place, Slots
from cantle.model.study import PartitionWish, Slice, Slicing, Step, Task
from cantle.report.idling import idle_rows
from cantle.report.recorder import Recorder
from cantle.report.timeline import Timeline, bounds_of, most_cores, ready_since

HERE = (Place(0, "0"),)
AGAIN = (Place(1, "0"),)


def told(*records: AnyRecord, tasks: int = 2, until: float | None = None, step: Step = Step("s")) -> Timeline:  # noqa: B008
    """The timeline of these records, in a run that began at 100 with a node of one core and this many tasks."""
    state = State()
    recorder = Recorder(state)
    begin: list[AnyRecord] = [
        RunStarted(100.0, "run", "0", "host", 1),
        StudyAdded(100.0, "study", [step]),
        TasksAdded(100.0, 0, [Task(f"t{n}", 0) for n in range(tasks)]),
        NodesJoined(100.0, [Node("n", 1)]),
    ]
    for record in (*begin, *records):
        recorder.write(record)
        state.apply(record)
    return recorder.finish(until or state.now)


def times(timeline: Timeline) -> list[tuple[float, float, float, str]]:
    return [(a.launched, a.started, a.ended, a.outcome) for a in timeline.attempts]


def test_an_attempt_starts_when_it_is_told_to_have_started() -> None:
    timeline = told(Launch(101.0, 0, 1, HERE), TaskStarted(102.0, 0, 1), TaskEnded(105.0, 0, 1, "done"))
    assert times(timeline) == [(1.0, 2.0, 5.0, "done")]


def test_an_attempt_that_was_over_at_once_tells_its_start_with_its_end() -> None:
    timeline = told(Launch(101.0, 0, 1, HERE), TaskEnded(105.0, 0, 1, "done", started=103.0))
    assert times(timeline) == [(1.0, 3.0, 5.0, "done")]


def test_a_late_message_about_an_old_attempt_changes_nothing() -> None:
    timeline = told(
        Launch(101.0, 0, 1, HERE),
        TaskEnded(102.0, 0, 1, "interrupted"),
        Launch(103.0, 0, 2, HERE),
        TaskEnded(104.0, 0, 1, "done"),
        TaskEnded(105.0, 0, 2, "done"),
    )
    assert times(timeline) == [(1.0, 1.0, 2.0, "interrupted"), (3.0, 3.0, 5.0, "done")]


def test_what_stands_in_line_starts_when_the_one_before_ends_and_holds_no_cores_of_its_own() -> None:
    timeline = told(
        Launch(101.0, 0, 1, HERE),
        Launch(101.0, 1, 1, HERE, behind=0),
        TaskEnded(103.0, 0, 1, "done"),
        TaskEnded(107.0, 1, 1, "done"),
        TimePassed(110.0),
    )
    assert times(timeline) == [(1.0, 1.0, 3.0, "done"), (1.0, 3.0, 7.0, "done")]
    assert timeline.busy_core_s == 6.0
    assert timeline.there_core_s == 10.0


def test_what_stood_in_line_in_vain_ran_for_no_time() -> None:
    timeline = told(
        Launch(101.0, 0, 1, HERE),
        Launch(101.0, 1, 1, HERE, behind=0),
        TaskEnded(102.0, 1, 1, "interrupted"),
        TaskEnded(104.0, 0, 1, "done"),
    )
    assert times(timeline) == [(1.0, 1.0, 4.0, "done"), (1.0, 2.0, 2.0, "interrupted")]
    assert timeline.busy_core_s == 3.0


def test_of_a_lost_node_what_ran_was_lost_and_what_stood_in_line_interrupted() -> None:
    timeline = told(
        Launch(101.0, 0, 1, HERE), Launch(101.0, 1, 1, HERE, behind=0), NodeLost(104.0, 0, "gone"), TimePassed(109.0)
    )
    assert times(timeline) == [(1.0, 1.0, 4.0, "lost"), (1.0, 4.0, 4.0, "interrupted")]
    assert timeline.attempts[0].detail == "gone"
    assert (timeline.busy_core_s, timeline.there_core_s, timeline.node_hours) == (3.0, 4.0, 4 / 3600)


def test_the_time_without_a_conductor_does_not_count() -> None:
    timeline = told(
        Launch(101.0, 0, 1, HERE),
        TaskStarted(101.0, 0, 1),
        TimePassed(103.0),
        RunResumed(1000.0, "host", 2),
        NodesJoined(1001.0, [Node("n", 1)]),
        Launch(1001.0, 0, 2, AGAIN),
        TaskEnded(1003.0, 0, 2, "done"),
    )
    assert times(timeline) == [(1.0, 1.0, 3.0, "interrupted"), (901.0, 901.0, 903.0, "done")]
    assert [(span.joined, span.left) for span in timeline.nodes] == [(0.0, 3.0), (901.0, 903.0)]
    assert timeline.busy_core_s == 4.0
    assert timeline.there_core_s == 5.0
    assert timeline.node_hours == pytest.approx(5 / 3600)


def test_what_goes_on_is_told_up_to_now() -> None:
    timeline = told(Launch(101.0, 0, 1, HERE), TaskStarted(102.0, 0, 1), until=109.0)
    assert times(timeline) == [(1.0, 2.0, 9.0, "running")]
    assert timeline.end == 9.0


def test_idle_cores_of_a_run_that_is_being_stopped_are_told() -> None:
    timeline = told(StopAsked(102.0, "Ctrl-C"), TimePassed(105.0), tasks=1)
    assert [(row.reason, row.core_s) for row in idle_rows(timeline)] == [("stopping", 3.0), ("starting", 2.0)]
    assert [row.why for row in idle_rows(timeline)] == ["the run is being stopped", "t0 fits, and is not started yet"]


def partition_state(*records: AnyRecord) -> State:
    """One task, which is ready and wants the partition p, which owns the one node."""
    state = State()
    begin: list[AnyRecord] = [
        StudyAdded(0.0, "study", [Step("s", partition="p")]),
        TasksAdded(0.0, 0, [Task("t", 0)]),
        NodesJoined(0.0, [Node("n", 1)]),
        PartitionAsked(0.0, PartitionWish("p")),
        AdmitPartition(0.0, 0),
        GrowPartition(0.0, 0, (Slots(0, "0"),)),
        OpenPartition(0.0, 0),
    ]
    for record in (*begin, *records):
        state.apply(record)
    return state


def test_a_task_waits_for_its_partition_until_that_is_active() -> None:
    assert IdleWatch(partition_state()).why() == (Reason.PARTITION, 0)
    assert IdleWatch(partition_state(PartitionStarted(1.0, 0))).why() == (Reason.STARTING, 0)


def test_a_moldable_task_that_would_fit_waits_for_a_greater_width() -> None:
    state = State()
    state.apply(StudyAdded(0.0, "study", [Step("s", widths=(1, 2))]))
    state.apply(TasksAdded(0.0, 0, [Task("t", 0)]))
    state.apply(NodesJoined(0.0, [Node("n", 1)]))
    assert IdleWatch(state).why() == (Reason.WIDER, 0)


def test_a_wide_task_of_a_sliced_study_waits_for_an_element() -> None:
    for slicing, reason in ((None, Reason.STARTING), (Slicing((Slice(2),)), Reason.PARTITION)):
        state = State()
        state.apply(StudyAdded(0.0, "study", [Step("s", Needs(nodes=2))], slicing=slicing))
        state.apply(TasksAdded(0.0, 0, [Task("t", 0)]))
        state.apply(NodesJoined(0.0, [Node("n", 1), Node("m", 1)]))
        assert IdleWatch(state).why() == (reason, 0)


def test_ready_is_after_the_attempt_before_and_after_the_parents() -> None:
    timeline = told(
        Launch(101.0, 0, 1, HERE),
        TaskEnded(104.0, 0, 1, "failed"),
        Launch(106.0, 0, 2, HERE),
        TaskEnded(108.0, 0, 2, "done"),
        step=Step("s", retries=1),
    )
    assert ready_since(timeline) == [0.0, 4.0]


def test_the_bound_takes_each_task_at_its_best_width() -> None:
    step = Step("s", Needs(1), widths=(1, 2, 4), times_s=(8.0, 5.0, 4.0))
    timeline = told(Launch(101.0, 0, 1, (Place(0, "0"),)), TaskEnded(109.0, 0, 1, "done"), step=step)
    assert bounds_of(timeline) == (8.0, 8.0)
    # on four nodes it would take half as long, and at no width less than its eight core-seconds on one
    assert bounds_of(timeline, [{1: 1.0, 2: 0.625, 4: 0.5}]) == (4.0, 8.0)
    timeline.attempts[0].on = (Place(0, "0"), Place(1, "0"))
    timeline.attempts[0].cores = 2
    timeline.attempts[0].ended = 6.0
    assert bounds_of(timeline, [{1: 1.0, 2: 0.625, 4: 0.5}]) == (4.0, 8.0)


def test_most_cores_are_those_that_are_there_at_once() -> None:
    timeline = told(TimePassed(105.0))
    [span] = timeline.nodes
    timeline.nodes += [type(span)(Node("m", 4), 5.0, 9.0), type(span)(Node("k", 2), 1.0, 3.0)]
    assert most_cores(timeline.nodes) == 4
