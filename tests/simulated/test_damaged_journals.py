"""A journal with holes in its middle (case O33): reading never fails, and no result that is left in it is lost."""

from __future__ import annotations

import msgspec
import pytest
from carved_plots import carved_plots, resume_carved, tell_carved
from hypothesis import given, settings
from hypothesis import strategies as st
from plots import LARGE, Plot, Witness, go_on, plots, quick_plots, resume, tell, world_of

from builders import FIRST, CheckedState, QuickStory, Story, chain, job, node, nodes, snapshot
from cantle.core.mend import MISSING, Mender, fill_gaps
from cantle.core.partitions import RULES as PARTITION_RULES
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.errors import JournalError
from cantle.model.records import (
    AnyRecord,
    Launch,
    NodesJoined,
    PartitionStarted,
    Refuse,
    RunResumed,
    StudyChanged,
    TaskEnded,
    TasksAdded,
    TaskStarted,
)
from cantle.model.resources import Node
from cantle.model.study import Limits, PartitionWish
from cantle.runtime.simulated import Fate


def read(records: list[AnyRecord]) -> CheckedState:
    """Read a journal as a resuming conductor does when it knows of damage."""
    state = CheckedState()
    for record in records:
        for missing in fill_gaps(state, record):
            state.apply(missing)
        state.apply(record)
    return state


def ends_of(state: State) -> dict[str, str]:
    return {state.tasks[t].name: phase.name.lower() for t, phase in enumerate(state.phases)}


def without(story: Story, *gone: tuple[type, str]) -> list[AnyRecord]:
    """The story's records without those of these types about these tasks."""
    numbers = {(kind, story.number_of[name]) for kind, name in gone}
    return [r for r in story.records if (type(r), getattr(r, "task", None)) not in numbers]


# Each proof by itself


def test_nothing_is_made_up_where_nothing_is_missing() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    story.runs_through("a", "b")
    state = State()
    for record in story.records:
        assert fill_gaps(state, record) == []
        state.apply(record)


def test_o33_who_is_launched_had_parents_that_were_done_and_so_on_upwards() -> None:
    story = Story(job("a"), job("b", "a"), job("c", "b"), on=[node()])
    story.runs_through("a", "b")
    story.launches()
    every = [(kind, name) for kind in (Launch, TaskStarted, TaskEnded) for name in "ab"]
    state = read(without(story, *every))
    assert ends_of(state) == {"a": "done", "b": "done", "c": "launched"}
    assert state.running[2] == story.launch_of("c")
    assert state.attempts == [1, 1, 1]


def test_o33_a_lost_end_is_proved_by_a_child_on_the_same_core() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    story.runs_through("a")
    story.launches()
    assert ends_of(read(without(story, (TaskEnded, "a")))) == {"a": "done", "b": "launched"}


def test_o33_a_lost_end_that_nothing_proves_to_have_been_good_means_that_the_task_runs_again() -> None:
    story = Story(job("a"), job("b"), on=[node()])
    story.runs_through("a")
    story.launches()
    state = read(without(story, (TaskEnded, "a")))
    assert ends_of(state) == {"a": "ready", "b": "launched"}
    assert state.ended[0].detail == MISSING
    assert not state.faults


def test_o33_who_began_after_one_that_then_proves_to_have_been_good_waits_for_nothing_when_it_is_sent_back() -> None:
    story = Story(job("a"), job("b", after="a"), job("c", "a"), on=[node(cores=2)])
    story.runs_through("a")
    story.launches()
    story.end("b", "lost")
    state = read(without(story, (Launch, "a"), (TaskStarted, "a"), (TaskEnded, "a")))
    assert ends_of(state) == {"a": "done", "b": "ready", "c": "launched"}
    assert state.blockers == [0, 0, 0]


def test_o33_an_end_proves_the_launch() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    story.runs_through("a", "b")
    state = read(without(story, (Launch, "a"), (TaskStarted, "a"), (Launch, "b")))
    assert ends_of(state) == {"a": "done", "b": "done"}


def test_o33_a_start_proves_the_launch_on_places_that_nobody_knows() -> None:
    story = Story(job("a"), job("b"), on=nodes(2))
    story.launches()
    story.start("a", pid=5)
    state = read(without(story, (Launch, "a")))
    assert (ends_of(state)["a"], state.pids[0], state.running[0].on) == ("running", 5, ())


def test_o33_a_later_attempt_proves_that_the_one_before_had_ended() -> None:
    story = Story(job("a", retries=2), on=[node()])
    story.launches()
    story.end("a", "failed")
    story.launches()
    state = read(without(story, (TaskEnded, "a")))
    assert (ends_of(state), state.attempts, state.running[0].attempt) == ({"a": "launched"}, [2], 2)


def test_o33_an_end_of_a_later_attempt_counts_while_an_older_one_seems_to_run() -> None:
    story = Story(job("a", retries=2), on=[node()])
    story.launches()
    story.end("a", "failed")
    story.launches()
    story.end("a")
    records = [r for r in story.records if not (isinstance(r, TaskEnded) and r.attempt == 1)]
    records = [r for r in records if not (isinstance(r, Launch) and r.attempt == 2)]
    assert ends_of(read(records)) == {"a": "done"}


def test_o33_what_only_had_to_be_over_is_taken_for_failed_and_so_runs_again() -> None:
    story = Story(job("a"), job("needs a", "a"), job("b", after="a"), on=[node()])
    story.launches()
    story.end("a")
    story.runs_through("needs a")
    story.launches()
    gone = [(kind, name) for kind in (Launch, TaskStarted, TaskEnded) for name in ("a", "needs a")]
    state = read(without(story, *gone))
    assert ends_of(state) == {"a": "failed", "needs a": "skipped", "b": "launched"}
    assert state.cause_of[0] == MISSING


def test_o33_when_it_turns_out_later_that_it_was_done_it_is_done_after_all() -> None:
    story = Story(job("a"), job("c", "a"), job("d", "c"), job("b", after="a", priority=1), on=[node()])
    story.launches()
    story.end("a")
    story.runs_through("b", "c", "d")
    state = read(without(story, (Launch, "a"), (TaskEnded, "a"), (Launch, "c"), (TaskStarted, "c"), (TaskEnded, "c")))
    assert ends_of(state) == dict.fromkeys("acdb", "done")
    assert not state.cause_of


def test_o33_what_is_taken_for_failed_without_proof_does_not_set_off_fail_fast() -> None:
    limits = Limits(fail_fast=True)
    story = Story(job("a"), job("b", after="a"), job("c"), on=[node()], limits=limits)
    story.launches()
    story.end("a")
    story.launches()
    state = read(without(story, (Launch, "a"), (TaskEnded, "a")))
    assert ends_of(state) == {"a": "failed", "b": "launched", "c": "ready"}
    assert state.studies[0].limits == limits and not state.studies[0].failing


def test_o33_a_task_that_seemed_canceled_was_not_if_its_end_is_told() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    story.runs_through("a")
    story.launches()
    story.cancel()
    story.decides()
    story.end("b")
    state = read(without(story, (Launch, "a"), (TaskStarted, "a"), (TaskEnded, "a"), (Launch, "b")))
    assert ends_of(state) == {"a": "done", "b": "done"}


def test_o33_an_attempt_taken_for_interrupted_counts_when_its_end_is_told_after_all() -> None:
    memory = {"memory_mib": 4}
    jobs = [job("x", **memory), job("y", **memory), job("w"), job("v", priority=-1), job("z", priority=-2, **memory)]
    story = Story(*jobs, on=[Node("n0", 3, memory_mib=8)])
    assert story.launches() == ["x", "y", "w"]
    story.end("y")
    assert story.launches() == ["v"]
    story.end("w")
    assert story.launches() == ["z"]
    before = without(story, (TaskEnded, "y"), (Launch, "v"))
    assert ends_of(read(before)) == {"x": "ready", "y": "launched", "w": "done", "v": "ready", "z": "launched"}, (
        "one of x and y must have made room for z, and which of them nothing tells"
    )
    story.end("x")
    state = read([*before, story.records[-1]])
    assert ends_of(state)["x"] == "done"


def test_o33_what_ran_on_before_a_cancel_was_not_canceled_if_somebody_was_launched_after_it() -> None:
    story = Story(job("a"), job("b", after="a"), on=[node()])
    story.launches()
    story.cancel("a")
    story.decides()
    story.end("a")
    assert story.launches() == ["b"]
    assert ends_of(read(without(story, (TaskEnded, "a")))) == {"a": "failed", "b": "launched"}


def test_o33_nor_was_anything_above_it() -> None:
    story = Story(job("a"), job("b", "a"), job("c", after="b"), on=[node()])
    story.runs_through("a")
    story.launches()
    story.cancel("a")
    story.end("b", "failed")
    assert story.launches() == ["c"]
    gone = [(kind, name) for kind in (Launch, TaskStarted, TaskEnded) for name in "ab"]
    assert ends_of(read(without(story, *gone))) == {"a": "ready", "b": "failed", "c": "launched"}


def quick(*names: str, retries: int = 0) -> QuickStory:
    """A chain of which the first runs and the others stand in line behind it."""
    story = QuickStory(*chain(*names, retries=retries))
    assert story.launches() == list(names)
    return story


def rest(state: State) -> dict[str, str]:
    return {name: phase for name, phase in ends_of(state).items() if name not in FIRST.split()}


def test_o33_who_is_launched_ahead_of_time_proves_nothing_of_the_one_that_it_waits_for() -> None:
    story = quick("a", "b", "c")
    state = read(without(story, (Launch, "b")))
    assert rest(state) == {"a": "ready", "b": "waiting", "c": "launched"}, "c has its place, whoever else had it before"
    story.end("a")
    story.end("b", "failed")
    state = read(without(story, (Launch, "b")))
    assert rest(state) == {"a": "done", "b": "failed", "c": "launched"}


def test_o33_who_has_begun_proves_that_the_one_that_it_waited_for_was_done() -> None:
    story = quick("a", "b", "c")
    story.end("a")
    story.end("b")
    assert rest(read(without(story, (TaskEnded, "a")))) == {"a": "done", "b": "done", "c": "launched"}
    assert rest(read(without(story, (Launch, "a"), (TaskEnded, "a")))) == {"a": "done", "b": "done", "c": "launched"}
    story.start("c")
    state = read(without(story, (TaskEnded, "a"), (TaskEnded, "b")))
    assert rest(state) == {"a": "done", "b": "done", "c": "running"}


def test_o33_who_stands_in_line_proves_that_what_had_to_be_over_far_above_it_was_done() -> None:
    """Had `a` failed, nobody would have stood in line behind those that need it."""
    jobs = chain("a", "b", "c")
    story = QuickStory(*jobs, job("d", "c", after="a"))
    assert story.launches() == ["a", "b", "c"]
    story.end("a")
    assert story.launches() == ["d"]
    state = read(without(story, (TaskEnded, "a")))
    assert rest(state) == {"a": "done", "b": "launched", "c": "launched", "d": "launched"}


def test_o33_who_came_back_from_its_line_proves_nothing_even_if_its_launch_is_missing() -> None:
    story = quick("a", "b", "c")
    story.ends("failed", "a")
    story.ends("interrupted", "b", "c")
    state = read(without(story, (TaskEnded, "a"), (Launch, "b")))
    assert rest(state) == {"a": "ready", "b": "waiting", "c": "waiting"}


def test_o33_one_launched_ahead_of_time_was_not_in_vain_whatever_seemed_to_have_failed_before() -> None:
    story = quick("a", "b", "c", retries=1)
    story.ends("failed", "a")
    story.ends("interrupted", "b", "c")
    story.launches()
    story.ends("failed", "a")
    story.ends("interrupted", "b", "c")
    story.resume(on=[node()])
    story.launches()
    resumed = next(i for i, r in enumerate(story.records) if isinstance(r, RunResumed))
    quiet = [msgspec.structs.replace(r, retry=False) if isinstance(r, RunResumed) else r for r in story.records]
    state = read(
        quiet[: resumed + 2] + [r for r in quiet[resumed + 2 :] if getattr(r, "task", -1) != story.number_of["a"]]
    )
    assert rest(state) == {"a": "ready", "b": "launched", "c": "launched"}


def test_o33_who_is_refused_did_not_run_then() -> None:
    story = Story(job("a", cores=2, retries=1), on=[node("n0", 2), node("n1", 1)])
    story.launches()
    story.end("a", "failed")
    story.lose("n0")
    [refused] = story.decides()
    assert type(refused) is Refuse
    assert ends_of(read(without(story, (TaskEnded, "a")))) == {"a": "failed"}
    state = read([r for r in story.records if not isinstance(r, TaskEnded) and type(r).__name__ != "NodeLost"])
    assert ends_of(state) == {"a": "failed"}


@pytest.mark.parametrize("missing", [NodesJoined, TasksAdded])
def test_o33_without_the_record_of_a_node_or_a_task_the_journal_cannot_be_understood(missing: type) -> None:
    story = Story(job("a"), on=[node()])
    story.launches()
    with pytest.raises(JournalError, match="but not what it is: that part of it is damaged"):
        read([r for r in story.records if type(r) is not missing])


# Any holes


def recorded(plot: Plot, data: st.DataObject) -> Witness:
    """A run with perhaps a resumption and a change of the study in it."""
    state = tell(plot)
    if data.draw(st.booleans(), "resumed"):
        change = data.draw(st.lists(st.integers(0, len(plot.jobs) - 1), max_size=2), "changed")
        retry = data.draw(st.booleans(), "retry")
        state.apply(RunResumed(state.now, "host", 2, retry))
        if change:
            state.apply(StudyChanged(state.now, "other", change))
        world = world_of(plot, state, nodes_at=state.now)
        go_on(state, world)
    return state


def last_good_ends(records: list[AnyRecord]) -> dict[int, int]:
    """For each task that is done at the end of the records: which of them made it so."""
    state = State()
    good: dict[int, int] = {}
    for index, record in enumerate(records):
        task = record.task if isinstance(record, TaskEnded) else -1
        before = state.phases[task] if task >= 0 else None
        state.apply(record)
        if task >= 0 and state.phases[task] == Phase.DONE != before:
            good[task] = index
    return {task: index for task, index in good.items() if state.phases[task] == Phase.DONE}


@given(plots() | quick_plots(), st.data())
@settings(max_examples=250, deadline=None)
def test_o33_whatever_is_missing_reading_goes_on_and_results_that_are_left_are_not_computed_again(
    plot: Plot, data: st.DataObject
) -> None:
    truth = recorded(plot, data)
    records = truth.records
    about_attempts = [i for i, r in enumerate(records) if isinstance(r, Launch | TaskStarted | TaskEnded)]
    if data.draw(st.booleans(), "a block") and about_attempts:
        first = data.draw(st.sampled_from(about_attempts))
        length = data.draw(st.integers(1, 40))
        gone = {i for i in about_attempts if first <= i < first + length}
    else:
        gone = data.draw(st.sets(st.sampled_from(about_attempts)), "gone") if about_attempts else set()
    state = read([r for i, r in enumerate(records) if i not in gone])

    survived = {task for task, index in last_good_ends(records).items() if index not in gone}
    done = {task for task, phase in enumerate(state.phases) if phase == Phase.DONE}
    assert survived <= done

    ever_done = {r.task for r in records if isinstance(r, TaskEnded) and r.outcome == "done"}
    assert done <= ever_done, "nothing is called done that never was"

    begun = len(state.records)
    better = msgspec.structs.replace(plot, nodes=[(0.0, LARGE)], fates=[Fate(1.0)])
    for _ in range(3):
        resume(better, state)
    assert all(phase == Phase.DONE for phase in state.phases), ends_of(state)
    assert not {r.task for r in state.records[begun:] if isinstance(r, Launch)} & done


def read_on(records: list[AnyRecord], gone: set[int]) -> CheckedState:
    """Read a journal without these records, as a resuming conductor does."""
    state, mender = CheckedState(), Mender()
    damaged = False
    for index, record in enumerate(records):
        if index in gone:
            damaged = True
            mender.gap()
        elif damaged:
            for each in mender.mended(state, record):
                state.apply(each)
        else:
            state.apply(record)
    return state


@given(carved_plots(survivable=True), st.data())
@settings(max_examples=150, deadline=None)
def test_o33_a_journal_that_tells_of_partitions_is_read_whatever_of_it_is_missing(
    plot: Plot, data: st.DataObject
) -> None:
    state = tell_carved(plot)
    resumed = data.draw(st.booleans(), "resumed")
    if resumed:
        resume_carved(plot, state)
    records = state.records
    may_go = [i for i, r in enumerate(records) if type(r) in PARTITION_RULES or isinstance(r, Launch | TaskEnded)]
    first = data.draw(st.sampled_from(may_go or [len(records)]))
    length = data.draw(st.integers(1, 12))
    gone = {i for i in may_go if first <= i < first + length}
    read = read_on(records, gone)
    survived = {task for task, index in last_good_ends(records).items() if index not in gone}
    assert survived <= {task for task, phase in enumerate(read.phases) if phase == Phase.DONE}
    begun = len(read.records)
    better = msgspec.structs.replace(plot, nodes=[(0.0, LARGE)], fates=[Fate(1.0)], mishaps=[])
    for _ in range(3):
        resume_carved(better, read)
    assert all(phase == Phase.DONE for phase in read.phases), ends_of(read)
    assert not {r.task for r in read.records[begun:] if isinstance(r, Launch)} & survived


def test_o33_after_a_gap_partitions_are_known_again_from_the_next_resumption_on() -> None:
    wish = PartitionWish("p", 1)
    story = Story(job("a", partition="p"), job("b", partition="p"), on=[node()], partitions=(wish,))
    gap = len(story.records)
    story.decides()
    story.happens(PartitionStarted(story._next(), 0))
    story.decides()
    known = len(story.state.partitions.all)
    story.happens(RunResumed(story._next(), "host", 2, True, known))
    story.join(node("n1"))
    story.decides()
    story.happens(PartitionStarted(story._next(), 1))
    story.launches()
    state = read_on(story.records, {gap})
    assert [p.name for p in state.partitions.all] == ["(0)", "p"]
    assert state.running[0] == story.launch_of("a")


@given(plots() | quick_plots(), st.data())
@settings(max_examples=100, deadline=None)
def test_in_a_whole_journal_nothing_is_filled_and_asking_changes_nothing(plot: Plot, data: st.DataObject) -> None:
    state = State()
    for record in recorded(plot, data).records:
        before = snapshot(state)
        assert fill_gaps(state, record) == []
        assert snapshot(state) == before
        state.apply(record)
