"""A journal with holes names studies, tasks, nodes and requests of which nothing else is left (case O33)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wide_drawn import wide_plots
from wide_plots import WidePlot
from wide_told import tell_wide

from builders import CheckedState, Story, job, node, step_of
from cantle.core.mend import Mender
from cantle.errors import JournalError
from cantle.model.kinds import Kind
from cantle.model.records import (
    AnyRecord,
    CancelAsked,
    DrainNode,
    KindsDeclared,
    Launch,
    LimitsChanged,
    NodeLost,
    NodeReleased,
    NodesJoined,
    NoticeIdle,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    ResultsForgotten,
    RunResumed,
    StepsAdded,
    StudyAdded,
    StudyClosed,
    StudyOver,
    TasksAdded,
    WithdrawRequest,
)
from cantle.model.study import Limits, Task
from cantle.report.recorder import Recorder


def read_on(records: list[AnyRecord], gone: set[int]) -> CheckedState:
    """Read a journal without these records, as a resuming conductor does."""
    state, mender = CheckedState(), Mender()
    for index, record in enumerate(records):
        if index in gone:
            mender.gap()
            continue
        for each in mender.mended(state, record):
            state.apply(each)
    return state


def after_a_gap(*records: AnyRecord) -> CheckedState:
    """A run of one study with one task on one node, of which these records stand behind a gap."""
    story = Story(job("a"), on=[node()])
    known = len(story.records)
    return read_on([*story.records, NodeLost(9.0, 0), *records], {known})


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (TasksAdded(9.0, 1, [Task("b", 0)], 1), "study 1"),
        (StepsAdded(9.0, 1, [step_of(job("b"))]), "study 1"),
        (StudyClosed(9.0, 1), "study 1"),
        (StudyOver(9.0, 1), "study 1"),
        (LimitsChanged(9.0, Limits(), 1), "study 1"),
        (CancelAsked(9.0, None, "me", 1), "study 1"),
        (CancelAsked(9.0, [0, 1]), "task 1"),
        (ResultsForgotten(9.0, [1]), "task 1"),
        (Launch(9.0, 1, 1, ()), "task 1"),
        (TasksAdded(9.0, 2, [Task("b", 0)]), "task 1"),
        (TasksAdded(9.0, 1, [Task("b", 7)]), "step 7"),
        (TasksAdded(9.0, 1, [Task("b", 0, (5,))]), "task 5"),
    ],
)
def test_o33_of_a_study_a_step_or_a_task_nobody_can_do_without_what_it_is(record: AnyRecord, what: str) -> None:
    with pytest.raises(JournalError, match=f"the journal tells of {what}, but not what it is"):
        after_a_gap(record)


@pytest.mark.parametrize(
    "record",
    [
        NodeLost(9.0, 1),
        DrainNode(9.0, 1, "it fails", "fails"),
        DrainNode(9.0, 1, "it shall go", "retires"),
        ReleaseNode(9.0, 1, "empty"),
        NodeReleased(9.0, 1, "locked"),
        NoticeIdle(9.0, 1, "unused"),
        RequestAnswered(9.0, 3, 1),
        WithdrawRequest(9.0, 3, 1, "not needed"),
        TasksAdded(9.0, 0, [Task("a", 0)]),
    ],
)
def test_o33_what_is_told_of_a_node_or_of_a_request_that_nobody_knows_changes_nothing(record: AnyRecord) -> None:
    state = after_a_gap(record)
    assert record not in state.records
    assert list(state.room.nodes) == [0] and not state.drained and state.scaling is None
    assert [task.name for task in state.tasks] == ["a"]


def test_o33_where_the_request_itself_is_missing_its_nodes_are_there_all_the_same() -> None:
    kind = Kind("cpu", 2)
    records: list[AnyRecord] = [
        *Story(job("a")).records,
        KindsDeclared(1.0, [kind]),
        RequestNodes(2.0, "cpu", 2, "demand"),
        RequestAnswered(3.0, 0, 2),
        WithdrawRequest(4.0, 0, 1, "not needed"),
        NodesJoined(5.0, [kind.node("cpu-1", 0.0)], 0),
    ]
    state = read_on(records, {4})
    assert [node.name for node in state.nodes_alive()] == ["cpu-1"]
    assert state.scaling is not None and state.scaling.coming() == 0 and state.scaling.there("cpu") == 1


def test_o33_where_other_nodes_bear_the_numbers_of_those_that_are_missing_attempts_run_where_nobody_knows() -> None:
    story = Story(job("a", cores=4), job("b"), on=[node("small")])
    story.join(node("large", 4))
    assert story.launches() == ["a", "b"]
    missing = next(i for i, record in enumerate(story.records) if isinstance(record, NodesJoined))
    story.join(node("last", 1))
    records = [*story.records[:missing], *story.records[missing + 1 :]]
    launched = [record for record in records if isinstance(record, Launch)]
    late = [*(r for r in records if r not in launched), *launched]  # large is number 0 now, and last is number 1
    assert [place.node for record in launched for place in record.on] == [1, 0]
    mender, state = Mender(), CheckedState()
    mender.gap()
    for record in late:
        for each in mender.mended(state, record):
            state.apply(each)
    assert {state.tasks[task].name: launch.on for task, launch in state.running.items()}["a"] == ()
    assert set(state.running) == {0, 1}


@given(wide_plots(), st.data())
@settings(max_examples=60, deadline=None)
def test_o33_of_any_run_whatever_is_missing_it_is_read_or_said_what_cannot_be_understood(
    plot: WidePlot, data: st.DataObject
) -> None:
    records = tell_wide(plot).records
    first = data.draw(st.integers(1, len(records) - 1), "first")
    gone = set(range(first, first + data.draw(st.integers(1, 12), "how many")))
    try:
        state = read_on(records, gone)
    except JournalError as problem:
        added = [i for i, r in enumerate(records) if isinstance(r, StudyAdded | StepsAdded | TasksAdded | NodesJoined)]
        assert gone.intersection(added), problem
        return
    state.apply(RunResumed(state.now, "host", 2, True, len(state.partitions.all)))
    assert not state.running


def test_the_report_bears_that_a_node_is_lost_of_which_nobody_knows() -> None:
    state = CheckedState()
    recorder = Recorder(state)
    for record in [*Story(job("a"), on=[node()]).records, NodeLost(9.0, 1, "mishap")]:
        recorder.write(record)
        state.apply(record)
    assert [span.left for span in recorder.finish(10.0).nodes] == [10.0]
