"""How soon are families of tasks over that go through the same steps, each at its own pace?"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CheckedState, Job, study_records
from cantle.core.bounds import lower_bound
from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import KindsDeclared, Launch, OrderTasks
from cantle.model.resources import Node
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld


def chromosomes(number: int = 22) -> list[Job]:
    """Like a population study: of each chromosome 25 parts of some 73 s, a merge of 40 s, 14 reports of up to 200 s."""
    chance = Random(3)
    found: list[Job] = []
    for c in range(number):
        size = chance.uniform(0.8, 1.1)
        parts = [Job(f"{c}.part{i}", estimate_s=size * chance.uniform(65, 80)) for i in range(25)]
        merge = Job(f"{c}.merge", tuple(part.name for part in parts), estimate_s=size * 40)
        found += [*parts, merge]
        found += [Job(f"{c}.report{i}", (merge.name,), estimate_s=size * (10, 200)[i % 2]) for i in range(14)]
    return found


def makespan_s(
    jobs: list[Job], cores: int, took: list[float] | None = None, state: State | None = None, orders: bool = True
) -> float:
    """Simulated on nodes of four cores; `took` is how long tasks take if not what was estimated."""
    state = state or State()
    for record in study_records(jobs):
        state.apply(record)
    seconds = took or [job.estimate_s for job in jobs]
    nodes = [Node(f"n{i}", 4) for i in range(cores // 4)]
    world = SimulatedWorld(state, [(0.0, nodes)], lambda task, _: Fate(seconds[task]))
    run(state, world, NoLog(), Decider(orders=orders))
    assert state.succeeded
    return state.now


def by_rank_s(jobs: list[Job], cores: int, took: list[float] | None = None) -> float:
    """The same if no order is ever sought."""
    return makespan_s(jobs, cores, took, orders=False)


def test_families_overlap_so_that_next_to_no_core_idles() -> None:
    """By rank all parts come before any merge, and cores idle while 22 merges run, and at the end: a sixth of the time."""
    jobs = chromosomes()
    state = State()
    took = makespan_s(jobs, 128, state=state)
    bound = lower_bound(state.tasks, 128)
    assert bound <= took <= 1.01 * bound
    assert by_rank_s(jobs, 128) >= 1.2 * bound


def test_families_overlap_also_where_no_estimate_is_quite_right() -> None:
    jobs = chromosomes()
    chance = Random(1)
    for _ in range(3):
        took = [job.estimate_s * chance.lognormvariate(0, 0.1) for job in jobs]
        assert makespan_s(jobs, 128, took) <= 0.93 * by_rank_s(jobs, 128, took)


def in_layers(seed: int) -> list[Job]:
    """Tasks in layers, a few of which wait for many of the layer above, and most for one."""
    chance = Random(seed)
    found: list[Job] = []
    above: list[str] = []
    for layer in range(chance.randint(3, 6)):
        here = []
        for i in range(chance.randint(5, 40)):
            parents = chance.sample(above, min(len(above), chance.choice([0, 1, 1, 1, 10]))) if above else []
            here.append(f"{layer}.{i}")
            found.append(Job(here[-1], tuple(parents), estimate_s=float(chance.randint(5, 60))))
        above = here
    return found


@given(st.integers(0, 10_000), st.sampled_from([8, 12, 16]))
@settings(max_examples=30, deadline=None)
def test_nothing_ends_later_than_by_rank_if_estimates_are_right_and_orders_keep_their_word(
    seed: int, cores: int
) -> None:
    jobs = in_layers(seed)
    state = CheckedState()
    took = makespan_s(jobs, cores, state=state)
    by_rank = by_rank_s(jobs, cores)
    orders = [record for record in state.records if isinstance(record, OrderTasks)]
    if orders:
        assert took < by_rank
        assert orders[0].why.startswith(f"all could be over in {took:.4g} s;")
        assert orders[0].why.endswith(f"in {by_rank:.4g} s")
    else:
        assert took == by_rank


def test_nodes_that_go_and_come_cost_what_ran_on_them_and_nothing_else() -> None:
    jobs = chromosomes(11)
    state = CheckedState()
    for record in study_records(jobs):
        state.apply(record)
    groups = [(0.0, [Node(f"n{i}", 4) for i in range(16)]), (300.0, [Node(f"m{i}", 4) for i in range(4)])]
    losses = [(100.0 + 5 * i, i) for i in range(6)]
    world = SimulatedWorld(state, groups, lambda task, _: Fate(jobs[task].estimate_s), losses=losses, jitter=0.2)
    run(state, world, NoLog(), Decider())
    assert state.succeeded
    assert any(isinstance(record, OrderTasks) for record in state.records)
    launched = sum(isinstance(record, Launch) for record in state.records)
    assert launched == len(jobs) + 6 * 4, "what ran on the nodes that went is launched again, and nothing else"


def test_families_overlap_on_nodes_that_were_asked_for() -> None:
    jobs = chromosomes()
    ends = []
    for orders in (False, True):
        state = State()
        for record in study_records(jobs):
            state.apply(record)
        state.apply(KindsDeclared(0.0, [Kind("cpu", 8, most=16, starts_in_s=30.0)]))
        world = SimulatedWorld(state, [], lambda task, _: Fate(jobs[task].estimate_s))
        run(state, world, NoLog(), Decider(orders=orders))
        assert state.succeeded
        ends.append(state.now)
    assert ends[1] <= 0.9 * ends[0]
    assert ends[1] <= 30 + 1.03 * lower_bound(state.tasks, 128)
