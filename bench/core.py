"""What does the core cost per task? Simulated runs of one-core tasks on 1,000 nodes of four cores: 1,000 to 1,000,000 tasks.

Everything is counted: making the tasks, the loop, deciding, the simulated world. Each size runs in a process of its own.
Keys: us_per_task_1k, us_per_task_100k, growth (their ratio), us_per_task_1m, gib_1m (peak; not with --quick: 300,000 tasks).
"""

import json
import resource
import subprocess
import sys
import time

from measure import arguments, conclude, table

NODES = 1000


def simulate(n: int) -> dict[str, float]:
    """One simulated run; microseconds per task and peak GiB."""
    from cantle.core.decide import Decider
    from cantle.core.state import State
    from cantle.model.records import StudyAdded, TasksAdded
    from cantle.model.resources import Node
    from cantle.model.study import Step, Task
    from cantle.runtime.loop import NoLog, run
    from cantle.runtime.simulated import Fate, SimulatedWorld

    start = time.process_time()
    tasks = [Task(f"task.{i}", 0, (), 1.0 + i * 7919 % 1000 / 1000) for i in range(n)]
    state = State()
    nodes = [Node(f"n{i}", cores=4) for i in range(NODES)]
    world = SimulatedWorld(state, [(0.0, nodes)], lambda task, _: Fate(tasks[task].estimate_s))
    state.apply(StudyAdded(0.0, "bench", [Step("task")]))
    state.apply(TasksAdded(0.0, 0, tasks))
    run(state, world, NoLog(), Decider())
    took = time.process_time() - start
    assert state.succeeded
    return {"us": took / n * 1e6, "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def measured(n: int, rounds: int) -> dict[str, float]:
    """The best of some runs in fresh processes."""
    runs = [
        json.loads(subprocess.run([sys.executable, __file__, "--one", str(n)], capture_output=True, check=True).stdout)
        for _ in range(rounds)
    ]
    return {"us": min(r["us"] for r in runs), "gib": max(r["gib"] for r in runs)}


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(simulate(int(sys.argv[2]))))
        return
    asked = arguments(__doc__)
    rounds = asked.rounds or 3
    largest = 300_000 if asked.quick else 1_000_000
    found = {n: measured(n, 1 if n > 100_000 else rounds) for n in (1_000, 10_000, 100_000, largest)}
    table(["tasks", "us per task", "peak GiB"], [[f"{n:,}", r["us"], r["gib"]] for n, r in found.items()])
    one, hundred = found[1_000]["us"], found[100_000]["us"]
    figures = {"us_per_task_1k": one, "us_per_task_100k": hundred, "growth": hundred / one}
    if not asked.quick:
        figures |= {"us_per_task_1m": found[largest]["us"], "gib_1m": found[largest]["gib"]}
    conclude(**figures)


if __name__ == "__main__":
    main()
