"""How good are the schedules? Simulated without overhead, as ratios to what no schedule can beat.

Rigid: 24 recorded and generated workflows of one-core tasks on 8 to 256 cores, through the core and the simulated world, to
max(critical path, area, head and tail). Moldable: 34 workflows, half of whose tasks choose their width, planned for pools of
32 and 128 nodes, to the optimum of the linear program; every schedule is checked. Online: the same through the core, with
durations that are not what was said (`online.py`). Held: what holding idle nodes costs (`holding.py`). `--quick` leaves out
the six largest of the rigid workflows, and takes one seed instead of four for each workflow online.

Keys: rigid_geomean, rigid_worst; moldable_p32, moldable_p128 (geometric means), plan_400_s (the slowest plan of those of
about 400 tasks, CPU seconds); online_p32, online_p128; hold_s2, hold_s10, hold_s60, and worst_s2, worst_s10, worst_s60.
"""

import sys
import time

import holding
import online
from measure import WORKLOADS, arguments, conclude, table
from moldable import POOLS, Job, geomean, published, workflows

from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.core.widths.choosing import Chosen, plan_widths
from cantle.core.widths.graph import Graph
from cantle.core.widths.schedules import in_order
from cantle.core.widths.tables import Table, amdahl, rigid
from cantle.model.records import StudyAdded, TasksAdded
from cantle.model.resources import Node
from cantle.model.study import Task
from cantle.readers.base import ReadOptions
from cantle.readers.wfformat import WfFormatReader
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld

CORES = (8, 16, 32, 64, 128, 256)
QUICK_TASKS = 1500
THRESHOLDS = 40
"""So many lengths of chains before (and behind) are tried for the bound."""
PLANNED_AT_ONCE = 300
"""Workflows of at least so many tasks count for the time of a plan; the largest has 401."""
FIXED = (1, 2, 4, 8, 16, 32)


# One-core tasks


def rigid_ratios(quick: bool) -> list[list[object]]:
    """A row for each workflow: its tasks, and the ratio on each number of cores."""
    rows = []
    for path in sorted((WORKLOADS / "wfinstances").glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        study = WfFormatReader().read(path, ReadOptions())
        if quick and len(study.tasks) > QUICK_TASKS:
            continue
        tasks = study.tasks
        rows.append(
            [
                name,
                len(tasks),
                *(makespan(study.steps, tasks, c) / b for c, b in zip(CORES, bounds(tasks), strict=True)),
            ]
        )
    return rows


def bounds(tasks: list[Task]) -> list[float]:
    """Seconds for each number of cores: what tasks have at least before and behind them, and their area in between."""
    graph = Graph([task.parents for task in tasks], [rigid(1, task.estimate_s) for task in tasks])
    times = [task.estimate_s for task in tasks]
    heads, tails = graph.heads(times), graph.tails(times)
    path = max(head + time + tail for head, time, tail in zip(heads, times, tails, strict=True))
    best = [path for _ in CORES]
    for ahead, behind in ((heads, tails), (tails, heads)):
        order = sorted(range(len(tasks)), key=lambda task: -behind[task])
        least = sorted(set(ahead))
        for before in least[:: max(1, len(least) // THRESHOLDS)]:
            area = 0.0
            for task in order:
                if ahead[task] >= before:
                    area += times[task]
                    for i, cores in enumerate(CORES):
                        best[i] = max(best[i], before + area / cores + behind[task])
    return best


def makespan(steps: list, tasks: list[Task], nodes: int) -> float:
    """Seconds until the tasks are over on so many nodes of one core, as the core decides."""
    state = State()
    pool = [Node(f"n{i}", 1) for i in range(nodes)]
    world = SimulatedWorld(state, [(0.0, pool)], lambda task, _: Fate(tasks[task].estimate_s))
    state.apply(StudyAdded(0.0, "bench", steps))
    state.apply(TasksAdded(0.0, 0, tasks))
    run(state, world, NoLog(), Decider(lines=False))
    assert state.succeeded
    return state.now


# Tasks that may be wide


def table_of(job: Job, slots: int) -> Table:
    """The task's times on the widths that it may have."""
    widths = job.widths(slots)
    return amdahl(job.work_s, job.serial, widths) if len(widths) > 1 else rigid(job.least, job.seconds(job.least))


def checked(graph: Graph, chosen: Chosen, slots: int) -> float:
    """The makespan of a plan that keeps all rules."""
    schedule = chosen.schedule
    changes = []
    for task, table_ in enumerate(graph.tables):
        level, start, finish = schedule.levels[task], schedule.starts[task], schedule.finishes[task]
        assert abs(finish - start - table_.times[level]) <= 1e-6 * finish
        assert all(schedule.finishes[parent] <= start for parent in graph.parents[task])
        changes += [(start, 1, table_.widths[level]), (finish, 0, -table_.widths[level])]
    used = 0
    for _, _, change in sorted(changes):
        used += change
        assert used <= slots
    return schedule.makespan_s


def best_fixed(graph: Graph, jobs: list[Job], slots: int) -> tuple[int, float]:
    """One width for all that can have it: the best such width, and when all is over."""
    found = []
    for width in FIXED:
        levels = [max(0, min(width, job.most, slots) - job.least) for job in jobs]
        schedule = in_order(graph, levels, graph.b_levels(graph.times(levels)), slots)
        assert schedule is not None
        found.append((schedule.makespan_s, width))
    makespan_s, width = min(found)
    return width, makespan_s


def best_partitioned(jobs: list[Job], slots: int) -> tuple[int, float]:
    """The pool cut once into equal partitions, a task in each: the best size of a partition, and when all is over."""
    found = []
    parents = [job.parents for job in jobs]
    for size in FIXED:
        tables = [rigid(1, job.seconds(max(job.least, min(size, job.most)))) for job in jobs]
        if any(job.least > size for job in jobs):
            continue
        graph = Graph(parents, tables)
        levels = [0] * len(jobs)
        schedule = in_order(graph, levels, graph.b_levels(graph.times(levels)), slots // size)
        assert schedule is not None
        found.append((schedule.makespan_s, size))
    makespan_s, size = min(found)
    return size, makespan_s


def moldable_ratios() -> tuple[list[list[object]], float]:
    """A row for each workflow and pool; and the CPU seconds of the slowest plan of a large one."""
    rows, slowest = [], 0.0
    bounds = published()
    for slots in POOLS:
        for name, jobs in workflows().items():
            least, best = bounds[name, slots]
            graph = Graph([job.parents for job in jobs], [table_of(job, slots) for job in jobs])
            start = time.process_time()
            chosen = plan_widths(graph, slots)
            took = time.process_time() - start
            if len(jobs) >= PLANNED_AT_ONCE:
                slowest = max(slowest, took)
            width, fixed = best_fixed(graph, jobs, slots)
            size, parted = best_partitioned(jobs, slots)
            told = [name, len(jobs), slots, checked(graph, chosen, slots) / least, best]
            rows.append([*told, fixed / least, width, parted / least, size, took * 1e3])
    return rows, slowest


def main() -> None:
    asked = arguments(__doc__)
    if not WORKLOADS.is_dir():
        sys.exit(f"there are no workloads in {WORKLOADS}; set CANTLE_WORKLOADS to the folder that holds wfinstances/")
    rigid_rows = rigid_ratios(asked.quick)
    table(["one-core tasks", "tasks", *(f"on {cores}" for cores in CORES)], rigid_rows)
    left_out = f" (without those of more than {QUICK_TASKS:,} tasks)" if asked.quick else ""
    ratios = [float(str(ratio)) for row in rigid_rows for ratio in row[2:]]
    print(f"\ngeometric mean {geomean(ratios):.4f}, worst {max(ratios):.3f}{left_out}\n")
    figures: dict[str, object] = {"rigid_geomean": geomean(ratios), "rigid_worst": max(ratios)}

    rows, slowest = moldable_ratios()
    head = ["moldable tasks", "tasks", "nodes", "plan", "best known", "fixed", "width", "parted", "size", "ms"]
    table(head, rows)
    print()
    for slots in POOLS:
        of_pool = [row for row in rows if row[2] == slots]
        means = [geomean(float(str(row[i])) for row in of_pool) for i in (3, 4, 5, 7)]
        told = "plan {:.4f}, best known {:.4f}, best fixed width {:.4f}, static partitions {:.4f}".format(*means)
        print(f"geometric means on {slots} nodes: {told}")
        figures[f"moldable_p{slots}"] = means[0]
    figures["plan_400_s"] = slowest

    found = online.ratios(asked.quick)
    print()
    table(["durations off", "nodes", "seed", "ratio"], found)
    print()
    for slots in POOLS:
        mean = geomean(float(str(row[3])) for row in found if row[1] == slots)
        sample = ", one seed for each workflow" if asked.quick else ""
        print(f"geometric mean on {slots} nodes with durations off by 30 %: {mean:.4f}{sample}")
        figures[f"online_p{slots}"] = mean

    rows, held = holding.measured()
    print()
    holding.show(rows)
    conclude(**figures, **held)


if __name__ == "__main__":
    main()
