"""Does the core stay usable at the size of the largest machines? Simulated: 10,000 nodes and a million tasks of 20 shapes.

Nineteen shapes take one node and one to four of its four cores, with GPUs, memory and licences among them; the twentieth is a
gang of 400 nodes, once in five thousand tasks. A tenth of that (1,000 nodes, 100,000 tasks, the same gangs) is the measure.
Everything is counted: making the tasks, the loop, deciding, the simulated world. Each size runs in a process of its own.
Keys: growth (CPU time per task at the full size over that at a tenth), gigabytes (peak), us_per_task (at the full size).
With --quick a tenth of both sizes.
"""

import json
import resource
import subprocess
import sys
import time

from measure import arguments, conclude, table

GANG = 400
RARE = 5000
SHAPES = 20


def simulate(nodes: int, n: int, gang: int) -> dict[str, float]:
    """One simulated run; microseconds of CPU per task and peak GB."""
    from cantle.core.decide import Decider
    from cantle.core.state import State
    from cantle.model.records import StudyAdded, TasksAdded
    from cantle.model.resources import Needs, Node
    from cantle.model.study import Step, Task
    from cantle.runtime.loop import NoLog, run
    from cantle.runtime.simulated import Fate, SimulatedWorld

    start = time.process_time()
    steps = [
        Step(
            f"step{i}",
            Needs(
                cores=1 + i % 4,
                gpus=1 if i % 9 == 8 else 0,
                memory_mib=(0, 0, 1000, 2000)[i // 5],
                named=(("licence", 1),) if i % 7 == 6 else (),
            ),
        )
        for i in range(SHAPES - 1)
    ]
    steps.append(Step("gang", Needs(cores=4, nodes=gang)))
    tasks = [
        Task(f"task.{i}", SHAPES - 1 if i % RARE == RARE // 2 else i % (SHAPES - 1), (), 1.0 + i * 7919 % 1000 / 1000)
        for i in range(n)
    ]
    state = State()
    there = [Node(f"n{i}", 4, 1, 16_000, (("licence", 2),)) for i in range(nodes)]
    world = SimulatedWorld(state, [(0.0, there)], lambda task, _: Fate(tasks[task].estimate_s))
    state.apply(StudyAdded(0.0, "bench", steps))
    state.apply(TasksAdded(0.0, 0, tasks))
    run(state, world, NoLog(), Decider())
    took = time.process_time() - start
    assert state.succeeded
    return {
        "us": took / n * 1e6,
        "gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "end": state.now,
        "bound": sum(t.estimate_s * steps[t.step].needs.area for t in tasks) / (4 * nodes),
    }


def measured(*size: int) -> dict[str, float]:
    """In a fresh process."""
    command = [sys.executable, __file__, "--one", *map(str, size)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(simulate(*map(int, sys.argv[2:]))))
        return
    asked = arguments(__doc__)
    sizes = (
        [(100, 10_000, 40), (1_000, 100_000, 400)]
        if asked.quick
        else [(1_000, 100_000, GANG), (10_000, 1_000_000, GANG)]
    )
    found = {size: measured(*size) for size in sizes}
    table(
        ["nodes, tasks, width of gangs", "us per task", "peak GB", "end / area bound"],
        [[f"{a:,}, {b:,}, {c}", r["us"], r["gb"], r["end"] / r["bound"]] for (a, b, c), r in found.items()],
    )
    small, large = found.values()
    conclude(growth=large["us"] / small["us"], gigabytes=large["gb"], us_per_task=large["us"])


if __name__ == "__main__":
    main()
