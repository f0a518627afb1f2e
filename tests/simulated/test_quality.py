"""How near does the packing come to what no schedule can beat?"""

from __future__ import annotations

from random import Random

import pytest

from builders import Job, study_records
from cantle.core.bounds import lower_bound
from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.model.resources import Needs, Node
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld

CORES = 16


def layered(seed: int, wide: bool) -> list[Job]:
    """A few hundred tasks in layers of varying width, with durations over two orders of magnitude."""
    chance = Random(seed)
    found: list[Job] = []
    above: list[str] = []
    for layer in range(chance.randint(4, 12)):
        here = []
        for i in range(chance.randint(5, 60)):
            parents = chance.sample(above, min(len(above), chance.randint(0, 3))) if above else []
            cores = chance.choice([1, 1, 1, 2, 4]) if wide else 1
            name = f"{layer}.{i}"
            found.append(
                Job(name, tuple(parents), needs=Needs(cores), estimate_s=round(chance.lognormvariate(2, 1), 3))
            )
            here.append(name)
        above = here
    return found


def makespan(jobs: list[Job], nodes: list[Node]) -> tuple[float, float]:
    """Simulated, and the bound."""
    state = State()
    for record in study_records(jobs):
        state.apply(record)
    world = SimulatedWorld(state, [(0.0, nodes)], lambda task, _: Fate(jobs[task].estimate_s))
    run(state, world, NoLog(), Decider())
    assert state.succeeded
    return state.now, lower_bound(state.tasks, sum(n.cores for n in nodes), state.steps)


def on_two_nodes(seed: int, wide: bool) -> float:
    """How many times the bound it took."""
    took, bound = makespan(layered(seed, wide), [Node("n0", CORES // 2), Node("n1", CORES // 2)])
    assert took >= bound * (1 - 1e-9)
    return took / bound


@pytest.mark.parametrize("seed", range(20))
def test_a_random_workflow_ends_within_15_percent_of_the_bound(seed: int) -> None:
    assert on_two_nodes(seed, wide=False) <= 1.15


def test_with_tasks_of_several_widths_random_workflows_end_within_2_percent_of_the_bound_on_average() -> None:
    """And none of them much later: a wide task that decides when the study ends does not wait for the last narrow one."""
    ratios = [on_two_nodes(seed, wide=True) for seed in range(20)]
    assert sum(ratios) / len(ratios) <= 1.02
    assert max(ratios) <= 1.04


@pytest.mark.parametrize(("known", "limit"), [(True, 1.005), (False, 1.04)])
@pytest.mark.parametrize("by_nodes", [True, False], ids=["8 nodes", "8 cores"])
def test_ensembles_of_narrow_and_wide_tasks_between_steps_on_all_slots_leave_next_to_nothing_idle(
    known: bool, limit: float, by_nodes: bool
) -> None:
    """Durations are known to the packer, or not before tasks like them are done."""
    chance = Random(5)
    jobs: list[Job] = []
    took: list[float] = []
    area = 0.0
    above: tuple[str, ...] = ()
    for phase in range(7):
        kinds = [(8, 2.0)]
        if phase % 2:
            kinds = [(1, round(chance.lognormvariate(-2.8, 1.0), 4)) for _ in range(200)] + [(4, 0.5)] * 20
            chance.shuffle(kinds)
        here = tuple(f"{phase}.{i}" for i in range(len(kinds)))
        for name, (slots, seconds) in zip(here, kinds, strict=True):
            needs = Needs(1, slots) if by_nodes else Needs(slots)
            jobs.append(Job(name, above, needs=needs, estimate_s=seconds if known else 0.0))
            took.append(seconds)
            area += slots * seconds
        above = here
    state = State()
    for record in study_records(jobs):
        state.apply(record)
    nodes = [Node(f"n{i}", 1) for i in range(8)] if by_nodes else [Node("n0", 8)]
    run(state, SimulatedWorld(state, [(0.0, nodes)], lambda task, _: Fate(took[task])), NoLog(), Decider())
    assert state.succeeded
    assert area / 8 * (1 - 1e-9) <= state.now <= area / 8 * limit
