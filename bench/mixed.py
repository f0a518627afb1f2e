"""How much idles when wide steps and ensembles take turns? For real, on eight logical nodes of one core each.

Four steps on all eight nodes for 2 s; between them three ensembles of 200 one-node tasks of about 0.1 s (log-normal) and 20
tasks of 0.5 s on four nodes, in a mixed order; each phase waits for all of the one before. Tasks sleep, so that what is
measured is what the packing and the starting cost. The bound is what eight busy nodes need for each phase.
Keys: known, unknown (makespan / bound, the median: with estimates in the study and without; --quick: known alone), bound_s.
"""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

from measure import CANTLE, arguments, conclude, scratch, seconds, table

from cantle.model.records import Launch, TaskEnded
from cantle.store.journal import read

NODES = 8
Phase = list[tuple[int, float]]
"""Tasks, each with its number of nodes and its seconds."""


def phases() -> list[Phase]:
    """The workload; the same numbers for whoever runs it."""
    chance = random.Random(20261129)
    found: list[Phase] = []
    for k in range(4):
        found.append([(8, 2.0)])
        if k < 3:
            narrow = [(1, round(chance.lognormvariate(math.log(0.1) - 0.5, 1.0), 4)) for _ in range(200)]
            ensemble = narrow + [(4, 0.5)] * 20
            chance.shuffle(ensemble)
            found.append(ensemble)
    return found


def bound_s(work: list[Phase]) -> float:
    """No schedule is shorter: of each phase its longest task, or its area over all nodes."""
    return sum(max(max(s for _, s in phase), sum(n * s for n, s in phase) / NODES) for phase in work)


def study(path: Path, work: list[Phase], known: bool) -> str:
    """The workload as a study file."""
    steps = []
    above: list[str] = []
    for number, phase in enumerate(work):
        here = []
        for i, (nodes, duration) in enumerate(phase):
            name = f"p{number}-{i}"
            run = f"cmd: exec sleep {duration}, nodes: {nodes}, procs: {nodes}, depends: [{', '.join(above)}]"
            if known:
                run += f", estimate: {duration} s"
            steps.append(f"  - {{name: {name}, description: mixed, run: {{{run}}}}}")
            here.append(name)
        above = here
    head = "description: {name: mixed, description: mixed workload}\nbatch: {type: local, shell: /bin/sh}\nstudy:\n"
    path.write_text(head + "\n".join(steps) + "\n")
    return str(path)


def told(out: str, work: list[Phase]) -> tuple[float, float]:
    """By the journal: seconds from the first launch to the last end; and how long a node was without a task, on average."""
    launches = {}
    ends = {}
    for record in read(f"{out}/.cantle/journal.jsonl"):
        if isinstance(record, Launch):
            launches[record.task] = record
        elif isinstance(record, TaskEnded) and record.outcome == "done":
            ends[record.task] = record.time
    assert len(ends) == sum(map(len, work))
    makespan = max(ends.values()) - min(launch.time for launch in launches.values())
    held = sum((ends[task] - launch.time) * len(launch.on) for task, launch in launches.items())
    return makespan, makespan - held / NODES


def main() -> None:
    asked = arguments(__doc__)
    work = phases()
    bound = bound_s(work)
    rounds = asked.rounds or (1 if asked.quick else 3)
    rows = []
    figures: dict[str, float] = {}
    with scratch() as room:
        for name in ("known",) if asked.quick else ("known", "unknown"):
            file = study(Path(room) / f"{name}.yaml", work, name == "known")
            runs = []
            for number in range(rounds):
                out = f"{room}/{name}-{number}"
                seconds([*CANTLE, "run", file, "-q", "--nodes", f"{NODES}x1", "-o", out])
                runs.append(told(out, work))
            makespan, idle = (statistics.median(values) for values in zip(*runs, strict=True))
            figures[name] = makespan / bound
            rows.append(
                [
                    name,
                    bound,
                    makespan,
                    figures[name],
                    min(run[0] for run in runs) / bound,
                    idle,
                    makespan - idle - bound,
                ]
            )
    table(["durations", "bound s", "makespan s", "ratio", "least", "of it idle s", "starting and ending s"], rows)
    conclude(bound_s=bound, **figures)


if __name__ == "__main__":
    main()
