"""Runs over several generations of nodes, each with an end of its own: nothing is lost, charged or started in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carved_plots import carved_plots, resume_carved, tell_carved
from hypothesis import given, settings
from hypothesis import strategies as st
from plots import Plot, mortal, plots, quick_plots, resume, survivable_plots, survivable_quick_plots, tell

from builders import CheckedState, Job, job, node, snapshot, study_records
from cantle.core.decide import Decider
from cantle.core.lifetimes import needs_s
from cantle.core.mend import Mender
from cantle.core.phases import FINAL, Phase
from cantle.core.state import State
from cantle.model.records import AnyRecord, DrainNode, EndRun, Launch, NodesAwaited, RunResumed, Stop
from cantle.model.resources import Node
from cantle.model.study import Limits
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld

Generations = list[tuple[float, list[Node]]]


class Timed(CheckedState):
    """Checks at each launch that it may end before its nodes leave, as far as anybody could know."""

    def apply(self, record: AnyRecord) -> None:
        """Look, then apply."""
        if isinstance(record, Launch) and self.lifetimes is not None:
            until = record.time + needs_s(self, record.task)
            for place in record.on:
                assert until <= self.lifetimes.leaves.get(place.node, until) + 1e-6
                assert place.node not in self.drained
        super().apply(record)


def simulate(jobs: list[Job], generations: Generations, fate: Callable[[int, int], Fate], **knobs: Any) -> CheckedState:
    state = Timed()
    for record in study_records(jobs, Limits()):
        state.apply(record)
    run(state, SimulatedWorld(state, generations, fate, **knobs), NoLog(), Decider())
    return state


def generations(n: int, lives_s: float, every_s: float, cores: int = 1) -> Generations:
    """One node after the other."""
    return [(i * every_s, [node(f"n{i}", cores, ends_at=i * every_s + lives_s)]) for i in range(n)]


def attempts(state: CheckedState) -> int:
    return sum(state.attempts)


def test_o22_tasks_go_on_over_generations_of_nodes_and_no_attempt_is_charged() -> None:
    jobs = [job(f"t{i}", estimate_s=3.0) for i in range(20)]
    state = simulate(jobs, generations(12, 8.0, 9.0), lambda _task, _attempt: Fate(3.0))
    assert state.succeeded
    assert not state.losses and not state.faults
    assert attempts(state) == 20, "none was begun that could not end"
    assert state.ended_at[19] > 80.0, "each node did two"


def test_o22_what_nobody_knows_the_length_of_is_cut_off_a_few_times_and_charged_with_nothing() -> None:
    jobs = [job(f"t{i}") for i in range(20)]
    state = simulate(jobs, generations(14, 8.0, 9.0), lambda _task, _attempt: Fate(3.0))
    assert state.succeeded
    assert not state.losses and not state.faults
    assert attempts(state) <= 22, "how long they take is known from the first on"


def test_o23_no_long_task_starts_late_on_a_node_and_short_ones_fill_its_time() -> None:
    jobs = [job(f"long{i}", walltime_s=8.0, estimate_s=8.0) for i in range(2)]
    jobs += [job(f"short{i}", walltime_s=2.0, estimate_s=2.0) for i in range(4)]
    state = simulate(
        jobs,
        [(0.0, [node("n0", 2, ends_at=10.0)]), (12.0, [node("n1", 2, ends_at=22.0)])],
        lambda task, _attempt: Fate(8.0 if task < 2 else 2.0),
    )
    launches = [(record.time, record.task) for record in state.records if isinstance(record, Launch)]
    assert state.succeeded
    assert all(time <= 2.0 or 12.0 <= time <= 14.0 for time, task in launches if task < 2)
    assert attempts(state) == 6


def test_a_task_longer_than_any_node_lives_is_tried_once_when_nobody_knew_and_then_the_run_ends() -> None:
    state = simulate([job("endless")], generations(5, 100.0, 110.0), lambda _task, _attempt: Fate(1000.0))
    assert attempts(state) == 1
    assert state.phases == [Phase.READY]
    assert isinstance(state.records[-1], EndRun)
    assert not state.losses


def test_nodes_that_end_while_others_stay_only_take_along_what_is_left_there() -> None:
    jobs = [job(f"t{i}") for i in range(4)]
    lasting = [node("n0"), node("n1", ends_at=50.0)]
    state = simulate(jobs, [(0.0, lasting)], lambda _task, _attempt: Fate(30.0))
    assert state.succeeded
    drains = [record for record in state.records if isinstance(record, DrainNode)]
    assert [(record.node, record.time) for record in drains] == [(1, 45.0)]
    stops = [record for record in state.records if isinstance(record, Stop)]
    assert not stops, "after the first two it was known that they take 30 s"


plans = st.fixed_dictionaries(
    {
        "tasks": st.lists(
            st.tuples(
                st.sampled_from([0.0, 2.0, 5.0, 12.0, 40.0]),  # estimate
                st.sampled_from([0.0, 0.0, 6.0, 15.0]),  # walltime
                st.sampled_from([0.5, 1.0, 3.0]),  # how wrong it is
                st.integers(1, 2),  # nodes
                st.booleans(),  # stands on the one before
            ),
            min_size=1,
            max_size=12,
        ),
        "nodes": st.lists(
            st.tuples(
                st.sampled_from([0.0, 3.0, 11.0, 30.0]), st.sampled_from([0.0, 8.0, 20.0, 60.0]), st.integers(1, 3)
            ),
            min_size=2,
            max_size=5,
        ),
    }
)


@given(plans, st.integers(0, 3))
@settings(max_examples=250, deadline=None)
def test_whatever_the_nodes_lives_no_attempt_is_foreseen_to_outlast_its_node_and_every_run_ends(
    plan: dict[str, Any], seed: int
) -> None:
    jobs = [
        job(
            f"t{i}",
            f"t{i - 1}" if i and chained else "",
            estimate_s=estimate,
            walltime_s=walltime,
            nodes=wide,
            retries=1,
        )
        for i, (estimate, walltime, _, wide, chained) in enumerate(plan["tasks"])
    ]
    coming = [
        (at, [node(f"n{i}", cores, ends_at=at + lives if lives else 0.0)])
        for i, (at, lives, cores) in enumerate(plan["nodes"])
    ]

    def fate(task: int, _attempt: int) -> Fate:
        estimate, _, wrong, _, _ = plan["tasks"][task]
        return Fate((estimate or 4.0) * wrong)

    state = simulate(jobs, coming, fate, seed=seed)
    assert state.finished and not state.running
    assert not state.losses, "the end of a node is nobody's fault"
    if state.expired:
        assert Phase.READY in state.phases or Phase.WAITING in state.phases
        assert Phase.SKIPPED not in state.phases or Phase.TIMEDOUT in state.phases or Phase.FAILED in state.phases
    lasting = [node(f"m{i}", 3) for i in range(3)]
    state.apply(RunResumed(state.now + 1.0, "host", 2))
    world = SimulatedWorld(state, [(state.now, lasting)], lambda _task, _attempt: Fate(1.0))
    run(state, world, NoLog(), Decider())
    assert state.succeeded, "on nodes that stay all that was left is done"


def test_awaited_nodes_that_never_come_do_not_keep_the_run_from_ending() -> None:
    state = Timed()
    for record in study_records([job("task", walltime_s=60.0)], Limits()):
        state.apply(record)
    world = SimulatedWorld(state, [(0.0, [node(ends_at=30.0)])], lambda _task, _attempt: Fate(1.0))
    world.put(NodesAwaited(0.0, 1))
    world.put(NodesAwaited(20.0, 0))
    run(state, world, NoLog(), Decider())
    assert state.expired and state.now == 20.0


@given(mortal(plots() | quick_plots()) | mortal(carved_plots()))
@settings(max_examples=150, deadline=None)
def test_whatever_goes_wrong_beside_every_run_on_nodes_that_end_has_an_end(plot: Plot) -> None:
    state = tell_carved(plot) if plot.partitions or plot.slicing else tell(plot)
    assert state.finished and not state.running
    assert state.stopping or all(phase in FINAL for phase in state.phases)
    assert state.expired or state.stopping or not any(phase == Phase.READY for phase in state.phases)


@given(mortal(survivable_plots() | survivable_quick_plots()))
@settings(max_examples=60, deadline=None)
def test_what_the_end_of_nodes_left_is_done_on_others(plot: Plot) -> None:
    state = tell(plot)
    for _ in range(60):
        if state.succeeded:
            break
        resume(plot, state)
    assert state.succeeded, state.totals


@given(mortal(carved_plots(survivable=True)))
@settings(max_examples=60, deadline=None)
def test_what_the_end_of_carved_nodes_left_is_done_on_others(plot: Plot) -> None:
    state = tell_carved(plot)
    for _ in range(60):
        if state.succeeded:
            break
        resume_carved(plot, state)
    # A partition that names no cores may be made of nodes that are too small for some of its tasks, when no others are left.
    too_small = [why for why in state.cause_of.values() if "node of its partition" in why]
    assert state.succeeded or too_small, state.totals


@given(mortal(plots() | quick_plots()))
@settings(max_examples=60, deadline=None)
def test_a_journal_of_nodes_that_end_leads_to_the_same_state_again(plot: Plot) -> None:
    told = tell(plot)
    again = State()
    for record in told.records:
        again.apply(record)
    same = snapshot(told)
    assert {key: same[key] for key in snapshot(again)} == snapshot(again)


@given(mortal(plots() | quick_plots()), st.data())
@settings(max_examples=100, deadline=None)
def test_o33_a_damaged_journal_of_nodes_that_end_is_read_and_gone_on_with(plot: Plot, data: st.DataObject) -> None:
    records = tell(plot).records
    opening = len(plot.opening())
    nodes = {i for i, record in enumerate(records) if type(record).__name__ == "NodesJoined"}
    start = data.draw(st.integers(opening, len(records)), "gap from")
    stop = data.draw(st.integers(start, len(records)), "to")
    state, mender = CheckedState(), Mender()
    for i, record in enumerate(records):
        if start <= i < stop and i not in nodes:
            if i == start:
                mender.gap()
            continue
        for each in mender.mended(state, record):
            state.apply(each)
    resume(plot, state)
    assert state.finished
