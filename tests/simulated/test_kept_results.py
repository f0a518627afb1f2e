"""Runs whose results live on nodes, while these come, go and are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CheckedState, Job, job, study_records
from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    Event,
    KindsDeclared,
    Launch,
    MoveResults,
    NodeLost,
    NodeReleased,
    ReleaseNode,
    ResultsForgotten,
    ResultsLost,
    ResultsMoved,
)
from cantle.model.resources import Node
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld
from cantle.runtime.simulated_provider import SimulatedProvider

MIB = 1 << 20


def simulate(
    jobs: list[Job],
    nodes: list[Node],
    fate: Callable[[int, int], Fate],
    events: Iterable[Event] = (),
    scaling: Scaling | None = None,
    **provider: float,
) -> CheckedState:
    """The run to its end; its invariants are checked after each record."""
    state = CheckedState()
    for record in study_records(jobs):
        state.apply(record)
    world = SimulatedWorld(state, [(0.0, nodes)], fate, provider=SimulatedProvider(**provider))  # type: ignore[arg-type]
    for event in events:
        world.put(event)
    decider = Decider()
    decider.scaling = scaling
    run(state, world, NoLog(), decider)
    return state


def launches(state: CheckedState, task: int) -> int:
    return sum(isinstance(record, Launch) and record.task == task for record in state.records)


# O11


@pytest.mark.parametrize("moves_in_s", [0.0, 3.0])
def test_o11_a_node_with_the_only_copy_is_kept_or_its_result_is_moved_and_the_producer_ran_once(moves_in_s) -> None:
    """O11: it writes 5 MB on node A, the consumer becomes ready later, and nodes idle for a second are given back."""
    kind = Kind("cpu", 1, least=1, most=3, starts_in_s=1.0)
    jobs = [job("makes"), job("long"), job("takes", "makes long"), job("other")]
    seconds = {0: 1.0, 1: 60.0, 2: 1.0, 3: 70.0}
    nodes = [Node(f"n{i}", 1, kind="cpu", machine=f"m{i}") for i in range(3)]
    state = simulate(
        jobs,
        nodes,
        lambda task, _attempt: Fate(seconds[task], "done", 0 if task else 5 * MIB),
        [KindsDeclared(0.0, [kind]), ResultsForgotten(0.5, [0])],
        Scaling(idle_s=1.0, cool_down_s=1.0),
        moves_in_s=moves_in_s,
    )
    assert state.succeeded
    assert launches(state, 0) == 1
    moved = [record for record in state.records if isinstance(record, ResultsMoved)]
    for release in (record for record in state.records if isinstance(record, ReleaseNode)):
        if release.node == state.ran_on[0] and release.time < state.launched_at[2]:
            assert moved and moved[0].time <= release.time, "it was moved first"


# Whatever happens


@st.composite
def tales(draw: st.DrawFn) -> tuple[list[Job], list[Node], dict[int, int], list[Event]]:
    """A graph, some nodes, what each task keeps, and what happens."""
    n = draw(st.integers(2, 8))
    jobs = []
    for number in range(n):
        parents = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        local = draw(st.sampled_from([(), (), ("/scratch/x",)]))
        words = " ".join(f"t{parent}" for parent in parents)
        jobs.append(job(f"t{number}", words, local=local, retries=1))
    count = draw(st.integers(2, 5))
    nodes = [Node(f"n{i}", 2, machine=f"m{draw(st.integers(0, 2))}", apart=False) for i in range(count)]
    kept = {number: draw(st.sampled_from([0, 10, MIB])) for number in range(n)}
    whens = st.integers(0, 60).map(lambda tenths: tenths / 2)
    tasks = st.integers(0, n - 1)
    indexes = st.integers(0, count - 1)
    lost = draw(st.lists(indexes, max_size=count - 1, unique=True))
    events: list[Event] = [NodeLost(draw(whens), index, "pulled the plug") for index in lost]
    events += draw(
        st.lists(
            st.one_of(
                st.builds(lambda at, t: ResultsForgotten(at, [t]), whens, tasks),
                st.builds(lambda at, t, i: ResultsLost(at, [t], i, "removed"), whens, tasks, indexes),
                st.builds(lambda at, t, i, j: ResultsMoved(at, [t], i, j), whens, tasks, indexes, indexes),
                st.builds(lambda at, i: NodeReleased(at, i, "it is locked"), whens, indexes),
            ),
            max_size=6,
        )
    )
    return jobs, nodes, kept, events


@given(tales(), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_whatever_is_lost_the_run_ends_all_is_done_and_what_is_needed_is_somewhere_at_each_record(tale, seed) -> None:
    jobs, nodes, kept, events = tale

    def fate(task: int, attempt: int) -> Fate:
        outcome = "failed" if (task + attempt + seed) % 7 == 0 and attempt == 1 else "done"
        return Fate(1.0 + (task * 7 + attempt * 3 + seed) % 5, outcome, kept[task])  # type: ignore[arg-type]

    state = simulate(jobs, nodes, fate, events)
    assert state.succeeded, state.cause_of
    replayed = State()
    for record in state.records:
        replayed.apply(record)
    assert (replayed.phases, replayed.blockers) == (state.phases, state.blockers)
    if state.keeping is not None:
        assert replayed.keeping is not None and replayed.keeping.results == state.keeping.results
    lost = any(isinstance(record, NodeLost | ResultsLost) for record in state.records)
    if not lost:
        assert all(launches(state, task) <= 2 for task in range(len(jobs)))


@given(tales(), st.floats(0.0, 5.0))
@settings(max_examples=80, deadline=None)
def test_what_is_given_back_never_takes_a_needed_result_along(tale, moves_in_s) -> None:
    jobs, nodes, kept, _ = tale
    kind = Kind("cpu", 2, least=1, most=len(nodes))
    nodes = [Node(node.name, 2, kind="cpu", machine=node.machine) for node in nodes]
    state = simulate(
        jobs,
        nodes,
        lambda task, _attempt: Fate(1.0 + 9.0 * (task % 3), "done", kept[task]),
        [KindsDeclared(0.0, [kind])],
        Scaling(idle_s=0.5, cool_down_s=0.5),
        moves_in_s=moves_in_s,
    )
    assert state.succeeded
    assert all(launches(state, task) == 1 for task in range(len(jobs)))
    assert state.totals[Phase.DONE] == len(jobs)
    assert not any(isinstance(r, MoveResults) and r.node == r.to for r in state.records)
