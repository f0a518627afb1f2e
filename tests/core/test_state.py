"""What each record means for the state."""

from __future__ import annotations

import pytest

from builders import Story, job, node, nodes, study_records
from cantle.core.fates import LOSSES_UNTIL_BLAMED
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.errors import CantleBug
from cantle.model.records import (
    Launch,
    NodeLost,
    Outcome,
    Refuse,
    Revived,
    RunStarted,
    Stop,
    StudyAdded,
    StudyChanged,
    TaskEnded,
    TasksAdded,
    TaskStarted,
    TimePassed,
)
from cantle.model.resources import Needs, Place
from cantle.model.study import Limits, Step, Task

# A task from its beginning to its end


def test_a_chain_runs_in_its_order_and_then_the_run_is_finished() -> None:
    story = Story(job("a"), job("b", "a"), job("c", "b"), on=[node(cores=4)])
    assert story.phases() == {"a": "ready", "b": "waiting", "c": "waiting"}
    assert not story.state.finished
    story.runs_through("a", "b", "c")
    assert story.state.finished and story.state.succeeded


def test_a_start_and_an_end_are_kept_with_their_times() -> None:
    story = Story(job("a"), on=[node()])
    story.decides()
    launched = story.state.launched_at[0]
    assert (launched, story.phase("a")) == (1.0, Phase.LAUNCHED)
    story.start("a", pid=77)
    assert (story.state.launched_at[0], story.state.pids[0], story.phase("a")) == (2.0, 77, Phase.RUNNING)
    story.end("a")
    assert story.state.ended_at[0] == 3.0


def test_a_task_takes_as_long_as_it_did_also_where_the_clock_was_set_back() -> None:
    story = Story(job("a"), job("b"), on=[node(cores=2)])
    story.happens(TimePassed(90_000.0))
    story.decides()
    story.happens(TaskStarted(10.0, 0, 1, 77))
    story.happens(TaskEnded(13.0, 0, 1, "done"))
    assert story.state.ended_at[0] - story.state.launched_at[0] == 3.0
    story.happens(TaskEnded(14.0, 1, 1, "done"))  # its start was not told
    assert story.state.ended_at[1] - story.state.launched_at[1] == 0.0
    assert story.state.now == 90_000.0


def test_a_task_may_end_before_its_start_is_heard_of() -> None:
    story = Story(job("a"), on=[node()])
    story.decides()
    story.end("a")
    story.start("a")
    assert story.phase("a") == Phase.DONE


def test_time_never_goes_back() -> None:
    state = State()
    state.apply(TimePassed(5.0))
    state.apply(TimePassed(3.0))
    assert state.now == 5.0


def test_all_parents_must_be_done() -> None:
    story = Story(job("a"), job("b"), job("c", "a b"), on=[node(cores=2)])
    story.runs_through("a")
    assert story.phase("c") == Phase.WAITING
    story.decides()
    story.end("b")
    assert story.phase("c") == Phase.READY


def test_a_parent_named_twice_counts_as_one() -> None:
    story = Story(job("a"), job("b", "a a", after="a"), on=[node()])
    story.runs_through("a", "b")
    assert story.state.succeeded


def test_tasks_must_be_numbered_on() -> None:
    state = State()
    state.apply(StudyAdded(0.0, "s", [Step("x")]))
    with pytest.raises(CantleBug, match="from number 3, but 0 are known"):
        state.apply(TasksAdded(0.0, 3, [Task("a", 0)]))


def test_tasks_that_come_in_pieces_wait_for_those_of_pieces_before() -> None:
    story = Story(job("a"), on=[node()])
    story.happens(TasksAdded(1.0, 1, [Task("b", 0, (0,)), Task("c", 0, (1,))]))
    story.number_of |= {"b": 1, "c": 2}
    story.runs_through("a", "b", "c")
    assert story.state.succeeded


def test_tasks_that_come_when_their_parents_have_ended_badly_end_at_once() -> None:
    story = Story(job("a"), job("b"), on=[node(cores=2)])
    story.decides()
    story.end("a", "failed")
    story.cancel("b")
    story.decides()
    story.end("b", "canceled")
    more = [Task("c", 0, (0,)), Task("d", 0, (2,)), Task("e", 0, (), 0.0, (1,)), Task("f", 0, (), 0.0, (0,))]
    story.happens(TasksAdded(9.0, 2, more))
    story.number_of |= {"c": 2, "d": 3, "e": 4, "f": 5}
    assert story.phases() | {"a": "", "b": ""} == {
        "a": "", "b": "", "c": "skipped", "d": "skipped", "e": "canceled", "f": "ready",
    }  # fmt: skip
    assert story.cause("d") == "a did not succeed"


def test_a_second_study_has_its_own_throttle_and_its_own_failures() -> None:
    story = Story(job("a"), job("b"), on=[node(cores=9)], limits=Limits(throttle=1, fail_fast=True))
    story.happens(StudyAdded(1.0, "other", [Step("y")]))
    story.happens(TasksAdded(1.0, 2, [Task("x", 1), Task("y", 1)], study=1))
    story.number_of |= {"x": 2, "y": 3}
    assert sorted(story.launches()) == ["a", "x", "y"]
    story.end("a", "failed")
    assert story.decides() == []
    assert story.phases() == {"a": "failed", "b": "skipped", "x": "launched", "y": "launched"}


# Late messages


@pytest.mark.parametrize("outcome", ["done", "failed", "lost", "canceled", "timeout"])
def test_a_late_end_of_an_old_attempt_changes_nothing_but_the_time(outcome: Outcome) -> None:
    story = Story(job("a", retries=1), on=nodes(2))
    story.decides()
    story.lose("n0")
    story.end("a", outcome, attempt=1)
    assert story.phase("a") == Phase.READY
    story.decides()
    version = story.state.version
    story.end("a", outcome, attempt=1)
    assert (story.phase("a"), story.attempt("a"), story.state.version) == (Phase.LAUNCHED, 2, version)
    assert story.state.now == story.records[-1].time


def test_a_late_start_of_an_old_attempt_changes_nothing() -> None:
    story = Story(job("a"), on=nodes(2))
    story.decides()
    story.lose("n0")
    story.decides()
    story.start("a", attempt=1, pid=5)
    assert (story.phase("a"), story.state.pids[0]) == (Phase.LAUNCHED, 0)


def test_an_end_that_is_told_twice_counts_once() -> None:
    story = Story(job("a", retries=3), on=[node()])
    story.decides()
    story.end("a", "failed")
    story.end("a", "failed")
    assert story.state.faults == {0: 1}


def test_a_stop_of_an_old_attempt_does_not_mark_the_new_one() -> None:
    story = Story(job("a"), on=nodes(2))
    story.decides()
    story.lose("n0")
    story.decides()
    story.happens(Stop(9.0, 0, 1, "canceled"))
    assert story.state.being_stopped == {}
    story.end("a", "lost")
    assert story.phase("a") == Phase.READY


# Retries


def test_a_task_has_as_many_further_attempts_as_retries() -> None:
    story = Story(job("a", retries=2), on=[node()])
    for _ in range(2):
        story.decides()
        story.end("a", "failed", detail="exit code 1")
        assert story.phase("a") == Phase.READY
    story.decides()
    story.end("a", "failed", detail="exit code 1")
    assert (story.phase("a"), story.attempt("a"), story.cause("a")) == (Phase.FAILED, 3, "exit code 1")


@pytest.mark.parametrize("outcome", ["failed", "memory", "unstartable", "timeout"])
def test_what_is_the_tasks_own_fault_uses_a_retry(outcome: Outcome) -> None:
    story = Story(job("a", retries=1), on=[node()])
    story.decides()
    story.end("a", outcome)
    assert (story.phase("a"), story.state.faults) == (Phase.READY, {0: 1})
    story.decides()
    story.end("a", outcome)
    assert story.phase("a") == (Phase.TIMEDOUT if outcome == "timeout" else Phase.FAILED)


@pytest.mark.parametrize("outcome", ["lost", "interrupted"])
def test_what_is_not_its_fault_uses_none(outcome: Outcome) -> None:
    story = Story(job("a"), on=[node()])
    story.decides()
    story.end("a", outcome)
    assert (story.phase("a"), story.state.faults) == (Phase.READY, {})


# Restarts


def test_a_timeout_leads_to_the_restart_command_up_to_the_limit() -> None:
    story = Story(job("a", restartable=True), on=[node()], limits=Limits(rlimit=2))
    restarts = []
    for _ in range(3):
        story.decides()
        restarts.append(story.launch_of("a").restart)
        story.end("a", "timeout")
    assert restarts == [False, True, True]
    assert (story.phase("a"), story.cause("a")) == (Phase.TIMEDOUT, "timed out after 2 of 2 restarts")


def test_a_limit_of_0_means_restarts_without_bound() -> None:
    story = Story(job("a", restartable=True), on=[node()], limits=Limits(rlimit=0))
    for _ in range(20):
        story.decides()
        story.end("a", "timeout")
    story.decides()
    assert story.launch_of("a").restart
    story.end("a")
    assert story.state.succeeded


def test_a_step_without_a_restart_command_times_out_for_good() -> None:
    story = Story(job("a"), on=[node()], limits=Limits(rlimit=5))
    story.decides()
    story.end("a", "timeout")
    assert story.phase("a") == Phase.TIMEDOUT


def test_a_restart_that_nobodys_fault_ended_is_a_restart_again() -> None:
    story = Story(job("a", restartable=True), on=nodes(3))
    story.decides()
    story.end("a", "timeout")
    story.decides()
    story.lose("n0")
    story.decides()
    assert story.launch_of("a").restart, "after a lost node"
    story.resume(on=nodes(1))
    story.decides()
    assert story.launch_of("a").restart, "after a resumed run"
    assert story.state.restarts == {0: 1}


def test_a_retry_after_a_restart_that_failed_begins_from_the_start() -> None:
    story = Story(job("a", restartable=True, retries=1), on=[node()])
    story.decides()
    story.end("a", "timeout")
    story.decides()
    story.end("a", "failed")
    story.decides()
    assert not story.launch_of("a").restart


# Failures and their descendants (case O31)


def test_o31_a_failure_skips_all_below_and_names_the_root_cause() -> None:
    story = Story(job("a"), job("b", "a"), job("c", "b"), job("alone"), on=[node()])
    story.decides()
    story.end("a", "failed", detail="exit code 1")
    assert story.phases() == {"a": "failed", "b": "skipped", "c": "skipped", "alone": "ready"}
    assert story.cause("a") == "exit code 1"
    assert story.cause("b") == story.cause("c") == "a did not succeed"
    story.runs_through("alone")
    assert story.state.finished and not story.state.succeeded


@pytest.mark.parametrize(("first", "second"), [("l", "r"), ("r", "l")])
def test_o31_a_diamond_is_skipped_when_one_side_fails_after_the_other_succeeded(first: str, second: str) -> None:
    story = Story(job("a"), job("l", "a"), job("r", "a"), job("end", "l r"), job("more", "end"), on=[node(cores=2)])
    story.runs_through("a")
    story.decides()
    story.end(first)
    story.end(second, "failed")
    assert (story.phase("end"), story.phase("more")) == (Phase.SKIPPED, Phase.SKIPPED)
    assert story.cause("more") == f"{second} did not succeed"
    assert story.state.finished


def test_o31_a_task_that_fails_once_and_then_passes_lets_all_below_run() -> None:
    story = Story(job("a", retries=1), job("b", "a"), job("c", "b"), on=[node()])
    story.decides()
    story.end("a", "failed")
    story.runs_through("a", "b", "c")
    assert story.state.succeeded


def test_the_first_failure_is_named_even_when_another_parent_fails_later() -> None:
    story = Story(job("a"), job("b"), job("c", "a b"), on=[node(cores=2)])
    story.decides()
    story.end("b", "failed")
    story.end("a", "failed")
    assert story.cause("c") == "b did not succeed"


def test_a_deep_cascade_does_not_exhaust_the_stack() -> None:
    story = Story(job("t0"), on=[node()])
    rows = [Task(f"t{i}", 0, (i - 1,)) for i in range(1, 2000)]
    story.state.__class__ = State  # the invariants of so many tasks after each record would take long
    story.happens(TasksAdded(1.0, 1, rows))
    story.decides()
    story.end("t0", "failed")
    assert story.state.totals[Phase.SKIPPED] == 1999


# Conditions


@pytest.mark.parametrize(("outcome", "phase"), [("done", "ready"), ("failed", "ready"), ("timeout", "ready")])
def test_after_waits_for_the_end_however_it_was(outcome: Outcome, phase: str) -> None:
    story = Story(job("a"), job("b", after="a"), on=[node()])
    story.decides()
    assert story.phases()["b"] == "waiting"
    story.end("a", outcome)
    assert story.phases()["b"] == phase


def test_a_skipped_task_counts_as_over() -> None:
    story = Story(job("a"), job("b", "a"), job("c", after="b"), on=[node()])
    story.decides()
    story.end("a", "failed")
    assert story.phases() == {"a": "failed", "b": "skipped", "c": "ready"}


def test_a_canceled_task_never_counts_as_over() -> None:
    story = Story(job("a"), job("b", after="a"), job("c", "b"), on=[node()])
    story.cancel("a", by="ann")
    assert story.phases() == {"a": "canceled", "b": "canceled", "c": "canceled"}
    assert story.cause("a") == "canceled by ann"


def test_one_may_need_one_task_and_wait_for_another() -> None:
    story = Story(job("a"), job("b"), job("c", "a", after="b"), on=[node(cores=2)])
    story.decides()
    story.end("b", "failed")
    assert story.phase("c") == Phase.WAITING
    story.end("a")
    assert story.phase("c") == Phase.READY


def test_who_waits_for_two_ends_of_one_cascade_is_ready_once() -> None:
    story = Story(job("a"), job("b", "a"), job("c", "a"), job("d", after="a b c"), on=[node()])
    story.decides()
    story.end("a", "failed")
    assert story.phase("d") == Phase.READY
    assert story.state.queue_of(3).ready() == [3]


# Fail-fast


def test_fail_fast_skips_what_has_not_begun_and_ends_what_runs() -> None:
    story = Story(*(job(n) for n in "abc"), job("d", after="a"), on=[node(cores=2)], limits=Limits(fail_fast=True))
    assert story.launches() == ["a", "b"]
    story.end("a", "failed")
    assert story.phases() == {"a": "failed", "b": "launched", "c": "skipped", "d": "skipped"}
    assert story.cause("c") == "a failed, and --fail-fast was given"
    [stop] = story.decides()
    assert type(stop) is Stop and (story.name(stop.task), stop.outcome) == ("b", "canceled")
    assert story.decides() == []
    story.end("b", "canceled")
    assert story.phase("b") == Phase.CANCELED and story.state.finished


def test_fail_fast_waits_for_the_last_retry() -> None:
    story = Story(job("a", retries=1), job("b"), on=[node()], limits=Limits(fail_fast=True))
    story.decides()
    story.end("a", "failed")
    assert story.phase("b") == Phase.READY


def test_fail_fast_takes_a_task_that_can_never_run_for_a_failure() -> None:
    story = Story(job("wide", cores=9), job("b"), limits=Limits(fail_fast=True))
    story.join(node(cores=2))
    story.decides()
    assert story.phases() == {"wide": "failed", "b": "skipped"}


def test_who_succeeds_while_fail_fast_ends_it_is_done() -> None:
    story = Story(job("a"), job("b"), job("c", "b"), on=[node(cores=2)], limits=Limits(fail_fast=True))
    story.decides()
    story.end("a", "failed")
    story.decides()
    story.end("b")
    assert story.phases() == {"a": "failed", "b": "done", "c": "skipped"}


def test_after_fail_fast_a_resumed_run_does_all_that_is_not_done() -> None:
    story = Story(job("a"), job("b"), job("c"), on=[node(cores=2)], limits=Limits(fail_fast=True))
    story.decides()
    story.end("a", "failed")
    story.decides()
    story.end("b")
    story.resume(on=[node(cores=2)])
    assert sorted(story.launches()) == ["a", "c"]
    story.end("a", "failed")
    assert story.state.studies[0].failing
    assert [type(d) for d in story.decides()] == [Stop]


# Canceling


def test_canceling_some_leaves_the_others() -> None:
    story = Story(job("a"), job("b"), job("c", "a"), job("d", "b"), on=[node(cores=2)])
    story.cancel("a")
    assert story.phases() == {"a": "canceled", "b": "ready", "c": "canceled", "d": "waiting"}
    story.runs_through("b", "d")
    assert story.state.finished


def test_canceling_a_running_task_ends_it_and_then_all_below() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    story.decides()
    story.cancel("a")
    assert story.phases() == {"a": "launched", "b": "waiting"}
    [stop] = story.decides()
    assert stop == Stop(stop.time, 0, 1, "canceled")
    story.end("a", "failed")
    assert story.phases() == {"a": "canceled", "b": "canceled"}, "however it reports its end"


def test_canceling_all_ends_all() -> None:
    story = Story(job("a"), job("b"), job("c"), on=[node(cores=2)])
    story.decides()
    story.end("a")
    story.decides()
    story.cancel()
    assert story.phases() == {"a": "done", "b": "launched", "c": "launched"}
    assert [type(d) for d in story.decides()] == [Stop, Stop]
    for name in "bc":
        story.end(name, "canceled")
    assert story.phases() == {"a": "done", "b": "canceled", "c": "canceled"}


def test_canceling_twice_ends_once() -> None:
    story = Story(job("a"), on=[node()])
    story.decides()
    story.cancel("a")
    story.decides()
    story.cancel("a")
    assert story.decides() == []


def test_canceling_what_is_over_changes_nothing() -> None:
    story = Story(job("a"), job("b"), on=[node(cores=2)])
    story.decides()
    story.end("a")
    story.end("b", "failed")
    story.cancel()
    assert story.phases() == {"a": "done", "b": "failed"}


@pytest.mark.parametrize("decided_between", [True, False])
@pytest.mark.parametrize("outcome", ["interrupted", "lost", "failed"])
def test_a_cancel_after_a_stop_is_not_forgotten(outcome: Outcome, decided_between: bool) -> None:
    story = Story(job("a", retries=5), on=[node()])
    story.decides()
    story.stop()
    story.decides()
    story.cancel("a")
    if decided_between:
        story.decides()
    story.end("a", outcome)
    assert story.phase("a") == Phase.CANCELED


def test_who_succeeds_before_the_cancel_reaches_it_is_done() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    story.decides()
    story.cancel("a")
    story.decides()
    story.end("a")
    assert story.phases() == {"a": "done", "b": "ready"}
    assert story.launches() == ["b"]


def test_a_canceled_task_whose_node_goes_stays_canceled() -> None:
    story = Story(job("a"), on=nodes(2))
    story.decides()
    story.cancel("a")
    story.lose("n0")
    assert story.phase("a") == Phase.CANCELED


# Stopping the run


def test_a_stopped_run_starts_nothing_more_and_ends_what_runs() -> None:
    story = Story(job("a"), job("b"), job("c", "a"), on=[node(cores=1)])
    story.decides()
    story.stop()
    [stop] = story.decides()
    assert type(stop) is Stop
    assert (stop.outcome, stop.why, stop.at_once) == ("interrupted", "Ctrl-C", False)
    story.end("a")
    assert story.decides() == [], "neither b, which was ready, nor c, which became so"
    assert story.phases() == {"a": "done", "b": "ready", "c": "ready"}
    assert story.state.finished and not story.state.succeeded


def test_what_a_stop_interrupts_is_ready_and_no_fault_is_counted() -> None:
    story = Story(job("a"), on=[node()])
    story.decides()
    story.stop()
    story.decides()
    story.end("a", "interrupted")
    assert (story.phase("a"), story.state.faults, story.state.finished) == (Phase.READY, {}, True)


def test_a_second_stop_ends_at_once_what_is_being_ended() -> None:
    story = Story(job("a"), job("b"), on=[node(cores=2)])
    story.decides()
    story.cancel("b")
    story.decides()
    story.stop()
    assert [(story.name(d.task), d.at_once) for d in story.decides() if type(d) is Stop] == [("a", False)]
    story.stop(at_once=True)
    again = [(story.name(d.task), d.outcome, d.at_once) for d in story.decides() if type(d) is Stop]
    assert again == [("a", "interrupted", True), ("b", "canceled", True)]
    assert story.decides() == []


def test_what_ends_between_the_second_stop_and_its_decision_leaves_no_trace() -> None:
    story = Story(job("a"), on=[node()])
    story.decides()
    story.stop()
    story.decides()
    story.stop(at_once=True)
    story.end("a", "interrupted")
    assert (story.state.to_stop, story.state.being_stopped) == ({}, {})


def test_a_stop_before_anything_runs_finishes_at_once() -> None:
    story = Story(job("a"), on=[node()])
    story.stop(reason="")
    assert story.decides() == []
    assert story.state.finished and story.state.stopping == "stopped"


# Nodes


def test_a_lost_node_costs_its_own_attempts_and_nothing_else() -> None:
    story = Story(job("a"), job("b"), job("c"), on=nodes(2))
    story.decides()
    where = story.launch_of("a").on[0].node
    story.lose(f"n{where}")
    assert sorted(story.phases().values()) == ["launched", "ready", "ready"]
    assert (story.attempt("a"), story.state.faults) == (1, {})


def test_a_lost_node_ends_the_whole_gang_and_frees_its_other_nodes() -> None:
    story = Story(job("gang", nodes=2, cores=2), job("a"), on=nodes(4, 2))
    story.decides()
    story.lose("n0")
    assert story.phase("gang") == Phase.READY
    assert story.launches() == ["gang"]


def test_o25_the_third_node_lost_under_a_task_is_blamed_on_it() -> None:
    story = Story(job("killer"), job("b", "killer"), job("good"), on=nodes(9, 1))
    for n in range(LOSSES_UNTIL_BLAMED):
        assert story.phase("killer") == Phase.READY
        story.decides()
        story.lose(f"n{story.launch_of('killer').on[0].node}")
        assert story.state.losses[0] == n + 1
    assert (story.phase("killer"), story.phase("b")) == (Phase.FAILED, Phase.SKIPPED)
    assert story.cause("killer") == "3 nodes were lost while it ran on them"
    story.end("good")
    assert story.state.finished
    assert story.state.room.alive.bit_count() == 6


def test_o25_a_task_blamed_for_its_nodes_gets_a_new_count_when_the_run_is_resumed() -> None:
    story = Story(job("killer"), on=nodes(3))
    for n in range(3):
        story.decides()
        story.lose(f"n{n}")
    assert story.phase("killer") == Phase.FAILED
    story.resume(on=nodes(1))
    assert (story.launches(), story.state.losses) == (["killer"], {})


def test_a_node_lost_twice_or_never_seen_changes_nothing() -> None:
    story = Story(job("a"), on=nodes(2))
    story.decides()
    story.lose("n1")
    story.lose("n1")
    story.happens(NodeLost(9.0, 77))
    assert story.phase("a") == Phase.LAUNCHED


def test_a_node_that_comes_again_is_a_new_one() -> None:
    story = Story(job("a"), on=[node()])
    story.decides()
    story.lose("n0")
    story.await_nodes(1)
    assert story.launches() == []
    story.join(node())
    assert story.launches() == ["a"]
    assert story.launch_of("a").on == (Place(1, "0"),)


# What can never run (cases O03, O24)


def test_o24_what_can_never_run_is_refused_at_once_with_what_it_needs_and_the_largest_node() -> None:
    story = Story(job("wide", cores=9), job("below", "wide"), job("a"), on=[node("small", 2), node("large", 4)])
    refused, launched = story.decides()
    assert type(refused) is Refuse and type(launched) is Launch
    assert refused.why == "needs 9 cores; the largest node, large (4 cores), has 4 of 9 cores"
    assert story.phases() == {"wide": "failed", "below": "skipped", "a": "launched"}
    story.end("a")
    assert story.state.finished


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (
            Needs(gpus=3),
            "needs 1 core, 3 GPUs; the largest node, b (8 cores, 1 GPU, 64 MiB of memory), has 1 of 3 GPUs",
        ),
        (Needs(memory_mib=100), "has 64 of 100 MiB of memory"),
        (Needs(named=(("licence", 1),)), "has 0 of 1 licence"),
        (Needs(kind="big"), "is of kind none"),
        (Needs(cores=3, nodes=2), "only 1 node of 2 could hold a share of it"),
        (Needs(nodes=3), "needs 1 core on each of 3 nodes; only 2 nodes of 2 could hold a share of it"),
    ],
)
def test_o24_the_refusal_names_what_is_lacking(needs: Needs, why: str) -> None:
    story = Story(job("x", needs=needs), on=[node("a", 2), node("b", 8, gpus=1, memory_mib=64)])
    story.decides()
    assert story.phase("x") == Phase.FAILED
    assert story.cause("x").endswith(why)


def test_o24_what_waits_for_its_parents_is_refused_as_early() -> None:
    story = Story(job("a"), job("wide", "a", cores=9), job("below", "wide"), on=[node()])
    story.decides()
    assert story.phases() == {"a": "launched", "wide": "failed", "below": "skipped"}


def test_o24_a_gang_is_refused_when_the_loss_of_a_node_makes_it_impossible_and_others_go_on() -> None:
    story = Story(job("long"), job("gang", nodes=3, cores=2), on=nodes(3, 2))
    story.state.apply(TimePassed(1.0))
    assert story.launches() == ["gang"]
    story.lose("n2")
    refused, _launched = story.decides()
    assert type(refused) is Refuse and "only 2 nodes of 2" in refused.why
    assert story.phases() == {"long": "launched", "gang": "failed"}


def test_o03_nothing_is_called_impossible_while_nodes_are_awaited() -> None:
    story = Story(job("wide", cores=4), job("a"))
    story.await_nodes(2)
    story.join(node("n0", 2))
    assert story.launches() == ["a"]
    assert story.phase("wide") == Phase.READY
    story.join(node("n1", 4))
    assert story.launches() == ["wide"]


def test_o03_once_no_more_are_awaited_it_is_said() -> None:
    story = Story(job("wide", cores=4))
    story.await_nodes(2)
    story.join(node("n0", 2))
    assert story.decides() == []
    story.await_nodes(0)
    [refused] = story.decides()
    assert type(refused) is Refuse and refused.why.startswith("needs 4 cores; the largest node, n0 (2 cores)")


def test_o03_a_node_of_the_right_kind_is_named_before_larger_ones_of_others() -> None:
    story = Story(job("x", cores=8, kind="gpu"), on=[node("huge", 64), node("gpu", 4, kind="gpu")])
    story.decides()
    assert story.cause("x") == "needs 8 cores of kind gpu; the largest node, gpu (4 cores), has 4 of 8 cores"


def test_when_the_last_node_goes_the_rest_is_refused() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    story.decides()
    story.lose("n0")
    [refused] = story.decides()
    assert type(refused) is Refuse
    assert refused.why.startswith("needs 1 core; there is no node left, and none is on its way; the only node that was")
    assert story.state.finished and story.phase("b") == Phase.SKIPPED


def test_a_stopped_run_refuses_nothing() -> None:
    story = Story(job("a"), job("b"), on=[node()])
    story.decides()
    story.stop()
    story.lose("n0")
    assert story.decides() == []
    assert story.phases() == {"a": "ready", "b": "ready"}


def test_a_refusal_of_what_is_over_changes_nothing() -> None:
    story = Story(job("a"), on=[node()])
    story.runs_through("a")
    story.happens(Refuse(9.0, 0, "why"))
    assert (story.phase("a"), story.cause("a")) == (Phase.DONE, "")


# Resuming


def test_a_resumed_run_sends_back_what_ran_and_keeps_what_is_done() -> None:
    story = Story(job("a"), job("b", "a"), job("c", "b"), on=[node()])
    story.runs_through("a")
    story.decides()
    story.start("b")
    story.resume()
    assert story.phases() == {"a": "done", "b": "ready", "c": "waiting"}
    assert story.state.nodes_alive() == []
    story.join(node())
    story.runs_through("b", "c")
    assert (story.attempt("a"), story.attempt("b")) == (1, 2)


@pytest.mark.parametrize("retry", [True, False])
def test_only_with_retry_a_resumed_run_gives_new_chances(retry: bool) -> None:
    story = Story(
        job("a"), job("b", "a"), job("c"), job("d", after="c"), job("t"), job("r", cores=9), on=[node(cores=2)]
    )
    story.cancel("c")
    story.decides()
    story.end("a", "failed")
    story.end("t", "timeout")
    before = story.phases()
    assert before == {
        "a": "failed", "b": "skipped", "c": "canceled", "d": "canceled", "t": "timedout", "r": "failed",
    }  # fmt: skip
    story.resume(retry, on=[node(cores=2)])
    if not retry:
        assert story.phases() == before and story.state.finished
        return
    assert story.phases() == {
        "a": "ready", "b": "waiting", "c": "ready", "d": "waiting", "t": "ready", "r": "ready",
    }  # fmt: skip
    assert not story.state.cause_of
    story.decides()
    assert story.phase("r") == Phase.FAILED, "refused anew"


def test_a_resumed_run_counts_retries_and_restarts_of_failed_tasks_anew() -> None:
    story = Story(job("a", retries=1, restartable=True), on=[node()])
    for outcome in ("timeout", "failed", "failed"):
        story.decides()
        story.end("a", outcome)
    assert story.phase("a") == Phase.FAILED
    story.resume(on=[node()])
    assert (story.state.faults, story.state.restarts) == ({}, {})
    story.decides()
    assert not story.launch_of("a").restart and story.attempt("a") == 4


def test_a_resumed_run_awaits_no_nodes_of_the_conductor_that_has_gone() -> None:
    story = Story(job("wide", cores=4), on=[node()])
    story.await_nodes(3)
    assert story.decides() == []
    story.resume(on=[node()])
    [refused] = story.decides()
    assert type(refused) is Refuse


def test_a_resumed_run_is_not_stopped_any_more() -> None:
    story = Story(job("a"), on=[node()])
    story.decides()
    story.stop(at_once=True)
    story.resume(on=[node()])
    assert (story.state.stopping, story.state.at_once) == ("", False)
    assert story.launches() == ["a"]


# A changed study


def test_what_changed_and_all_after_it_runs_again_and_nothing_else() -> None:
    story = Story(job("a"), job("b", "a"), job("c", after="b"), job("d"), on=[node()])
    story.runs_through("a", "b", "c", "d")
    story.resume(on=[node()])
    story.change("b")
    assert story.phases() == {"a": "done", "b": "ready", "c": "waiting", "d": "done"}
    story.runs_through("b", "c")
    assert (story.attempt("b"), story.attempt("d"), story.state.succeeded) == (2, 1, True)


def test_what_changed_but_stands_below_a_failure_stays_skipped() -> None:
    story = Story(job("a"), job("b"), job("c", "a b"), job("d", "c"), on=[node(cores=2)])
    story.decides()
    story.end("a", "failed")
    story.end("b")
    story.resume(retry=False, on=[node(cores=2)])
    story.change("b")
    assert story.phases() == {"a": "failed", "b": "ready", "c": "skipped", "d": "skipped"}
    assert story.cause("d") == "a did not succeed"
    story.runs_through("b")
    assert story.state.finished


def test_what_failed_and_changed_gets_a_new_chance_without_retry() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    story.decides()
    story.end("a", "failed")
    story.resume(retry=False, on=[node()])
    story.change("a")
    story.runs_through("a", "b")
    assert story.state.succeeded


def test_what_was_refused_and_changed_is_refused_anew() -> None:
    story = Story(job("a", cores=9), on=[node()])
    story.decides()
    story.resume(retry=False, on=[node()])
    story.decides()
    story.change("a")
    assert [type(d) for d in story.decides()] == [Refuse]


def test_a_task_described_anew_needs_what_it_says_now() -> None:
    story = Story(job("a"), job("b"), job("c", "a"), on=[node()])
    story.runs_through("a")
    story.resume(on=[node(cores=4)])
    steps = [Step("new", Needs(cores=3))]
    rows = {1: Task("b", 0), 2: Task("c", 0, (0, 1))}
    story.happens(StudyChanged(9.0, "d", [2], steps, rows))
    assert story.phases() == {"a": "done", "b": "ready", "c": "waiting"}
    assert story.launches() == ["b"]
    assert story.launch_of("b").on == (Place(3 - 2, "0-2"),)
    story.end("b")
    assert story.launches() == ["c"]


# Reviving


def test_reviving_a_failure_revives_what_was_skipped_for_its_sake_and_no_more() -> None:
    story = Story(job("a"), job("x"), job("b", "a"), job("c", "b"), job("d", "b x"), on=[node(cores=2)])
    story.decides()
    story.end("a", "failed")
    story.end("x", "failed")
    story.happens(Revived(9.0, [0]))
    assert story.phases() == {"a": "ready", "x": "failed", "b": "waiting", "c": "waiting", "d": "skipped"}
    assert story.cause("d") == "x did not succeed"


def test_reviving_what_is_done_or_under_way_changes_nothing() -> None:
    story = Story(job("a"), job("b"), on=[node(cores=2)])
    story.decides()
    story.end("a")
    story.happens(Revived(9.0, [0, 1]))
    assert story.phases() == {"a": "done", "b": "launched"}


# The rest


def test_the_throttle_can_be_changed_while_it_runs() -> None:
    story = Story(*(job(n) for n in "abc"), on=[node(cores=3)], limits=Limits(throttle=1))
    assert story.launches() == ["a"]
    story.limit(Limits(throttle=2))
    assert story.launches() == ["b"]
    story.limit(Limits(throttle=1))
    story.end("a")
    assert story.launches() == []
    story.end("b")
    assert story.launches() == ["c"]


def test_launching_what_runs_or_where_no_room_is_is_a_bug() -> None:
    story = Story(job("a"), job("b"), on=[node()])
    story.decides()
    with pytest.raises(CantleBug, match="LAUNCHED cannot launch"):
        story.happens(Launch(9.0, 0, 2, (Place(0, "0"),)))
    with pytest.raises(CantleBug, match="are not free"):
        State.apply(story.state, Launch(9.0, 1, 1, (Place(0, "0"),)))


def test_news_tell_of_those_that_reached_an_end() -> None:
    story = Story(job("a"), job("b", "a"), job("c"), on=[node()])
    story.state.news = []
    story.decides()
    story.end("a", "failed")
    assert story.state.news == [0, 1]


def test_a_run_without_tasks_is_finished_and_has_succeeded() -> None:
    state = State()
    for record in study_records([]):
        state.apply(record)
    assert isinstance(state.run, RunStarted)
    assert state.finished and state.succeeded


def test_the_end_of_an_attempt_is_kept_while_it_explains_something() -> None:
    story = Story(job("a", retries=1), on=[node()])
    story.decides()
    story.end("a", "failed", detail="exit code 3")
    kept = story.state.ended[0]
    assert type(kept) is TaskEnded and kept.detail == "exit code 3"
