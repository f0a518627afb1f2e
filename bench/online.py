"""How near do moldable workflows come to the bound when no duration is what it was said to be? Through the core, simulated.

Durations are the declared ones times a log-normal factor for each task (deviation 0.26 of the logarithm: a third are off by
more than 30 %), on as many nodes of one core as the pool has. The bound is the linear program's for the true durations.
"""

import json
from multiprocessing import Pool

from moldable import BOUNDS, POOLS, SEEDS, Job, disturbances, workflows

from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.model.records import StudyAdded, TasksAdded
from cantle.model.resources import Needs, Node
from cantle.model.study import Step, Task
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld

ALMOST_0 = 1e-9
"""An estimate of 0 would mean that nobody knows."""


def makespan(jobs: list[Job], factors: list[float], slots: int) -> float:
    """Seconds until all is over, as the core decides."""
    steps, tasks = [], []
    for number, job in enumerate(jobs):
        widths = tuple(job.widths(slots))
        needs = Needs(nodes=widths[0])
        times = tuple(job.seconds(width) for width in widths)
        steps.append(
            Step(f"step{number}", needs, widths=widths, times_s=times) if len(widths) > 1 else Step("rigid", needs)
        )
        tasks.append(Task(f"task{number}", number, tuple(sorted(set(job.parents))), max(ALMOST_0, times[0])))
    state = State()

    def fate(task: int, _attempt: int) -> Fate:
        return Fate(jobs[task].seconds(len(state.running[task].on)) * factors[task])

    world = SimulatedWorld(state, [(0.0, [Node(f"n{i}", 1) for i in range(slots)])], fate)
    state.apply(StudyAdded(0.0, "bench", steps))
    state.apply(TasksAdded(0.0, 0, tasks))
    run(state, world, NoLog(), Decider(lines=False))
    assert state.succeeded
    return state.now


def ratio(name: str, jobs: list[Job], slots: int, seed: int, bound_s: float) -> list[object]:
    """A row of the table."""
    return [name, slots, seed, makespan(jobs, disturbances(name, len(jobs), seed), slots) / bound_s]


def ratios(quick: bool) -> list[list[object]]:
    """A row for each workflow, pool and seed; quick: the seeds in turn, one for each workflow."""
    bounds = json.loads(BOUNDS.read_text())
    asked = [
        (name, jobs, slots, seed, bounds[f"{name} {slots} {seed}"])
        for slots in POOLS
        for number, (name, jobs) in enumerate(workflows().items())
        for seed in (SEEDS[number % len(SEEDS) :][:1] if quick else SEEDS)
    ]
    with Pool() as pool:
        return pool.starmap(ratio, asked, chunksize=1)
