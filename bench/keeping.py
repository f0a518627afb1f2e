"""What do kept results cost while nodes go? Simulated Python calls that leave what they return on 20 nodes of eight cores.

Half of the calls make results of 1 MiB; each of the other half takes two of these, and one task at the end takes all of
theirs. While they run, one node after the other goes, until half of them are left: `sent_away` by its user (what lives there
alone is moved before), `ends` with its allocation (it is rescued before), or `lost` without a word (it is made again). A move
goes on at 100 MiB/s, so it lasts through many passes. CPU is counted per record, with all that comes of it.
Keys: for each tale its cost with 100,000 calls over that with 10,000 (1 = flat), and us_per_record (100,000, the worst tale).
"""

import json
import subprocess
import sys
import time
from random import Random

from measure import arguments, conclude, table

NODES = 20
CORES = 8
STAY = 10
MIB = 1 << 20
CALL_S = 1.0
MIB_PER_S = 100.0
TALES = ("stay", "sent_away", "ends", "lost")


def simulate(n: int, tale: str) -> dict[str, float]:
    """One simulated run; microseconds per record, and what happened."""
    from cantle.core.decide import Decider
    from cantle.core.scaling.settings import Scaling
    from cantle.core.state import State
    from cantle.model.kinds import Kind
    from cantle.model.records import (
        AnyRecord,
        Event,
        KindsDeclared,
        Launch,
        MoveResults,
        NodeDrainAsked,
        NodeLost,
        ResultsForgotten,
        StudyAdded,
        TasksAdded,
    )
    from cantle.model.resources import Node
    from cantle.model.study import Step, Task
    from cantle.runtime.loop import run
    from cantle.runtime.simulated import Fate, SimulatedWorld
    from cantle.runtime.simulated_provider import SimulatedProvider

    half = n // 2
    chance = Random(1)
    makes = [Task(f"makes.{i}", 0, (), CALL_S) for i in range(half)]
    takes = [Task(f"takes.{i}", 0, (i, chance.randrange(half)), CALL_S) for i in range(half)]
    takes = [Task(task.name, 0, tuple(dict.fromkeys(task.parents)), CALL_S) for task in takes]
    tasks = [*makes, *takes, Task("all", 0, tuple(range(half, n)), CALL_S)]
    all_s = n / (NODES * CORES) * CALL_S
    apart_s = all_s / NODES
    goes_at = {index: apart_s * (index + 2) for index in range(NODES - STAY)}

    def node(index: int) -> Node:
        ends_at = 1.2 * goes_at[index] if tale == "ends" and index in goes_at else 0.0
        return Node(f"n{index}", CORES, kind="cpu", machine=f"m{index}", ends_at=ends_at)

    counted = {"records": 0, "launches": 0, "moves": 0, "moved": 0}

    class Counting:
        """Counts what would be written down."""

        def write(self, record: AnyRecord) -> None:
            counted["records"] += 1
            if isinstance(record, Launch):
                counted["launches"] += 1
            elif isinstance(record, MoveResults):
                counted["moves"] += 1
                counted["moved"] += len(record.tasks)

        def flush(self) -> None:
            """Nothing to do."""

    state = State()
    start = time.process_time()
    world = SimulatedWorld(
        state,
        [(0.0, [node(index) for index in range(NODES)])],
        lambda task, attempt: Fate(CALL_S * (0.9 + (task * 7919 + attempt) % 1000 / 5000), "done", MIB),
        provider=SimulatedProvider(moves_in_s=1.0 + half / NODES / MIB_PER_S),
    )
    events: list[Event] = [ResultsForgotten(0.5, list(range(len(tasks))))]
    if tale == "sent_away":
        events.append(KindsDeclared(0.0, [Kind("cpu", CORES, adds=False)]))
        events += [NodeDrainAsked(at, f"n{index}", "the bench", goes=True) for index, at in goes_at.items()]
    elif tale == "lost":
        events += [NodeLost(at, index, "its plug was pulled") for index, at in goes_at.items()]
    for event in events:
        world.put(event)
    state.apply(StudyAdded(0.0, "bench", [Step("call", retries=100)]))
    state.apply(TasksAdded(0.0, 0, tasks))
    decider = Decider()
    decider.scaling = Scaling(("demand",), idle_s=3600.0)
    run(state, world, Counting(), decider)
    took = time.process_time() - start
    assert state.succeeded, [state.cause_of[task] for task in list(state.cause_of)[:3]]
    return {"us": took / counted["records"] * 1e6, **counted, "gone": NODES - state.room.alive.bit_count()}


def measured(n: int, tale: str) -> dict[str, float]:
    """One run in a fresh process."""
    argv = [sys.executable, __file__, "--one", str(n), tale]
    return json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(simulate(int(sys.argv[2]), sys.argv[3])))
        return
    asked = arguments(__doc__)
    rounds = asked.rounds or (1 if asked.quick else 3)
    small, large = (5_000, 50_000) if asked.quick else (10_000, 100_000)
    rows = []
    growth, worst = {}, 0.0
    for tale in TALES:
        found = {n: min((measured(n, tale) for _ in range(rounds)), key=lambda r: r["us"]) for n in (small, large)}
        rows += [
            [f"{tale}, {n:,} calls", r["us"], *(int(r[k]) for k in ("records", "launches", "moved", "gone"))]
            for n, r in found.items()
        ]
        growth[tale] = found[large]["us"] / found[small]["us"]
        worst = max(worst, found[large]["us"])
    table(["", "us per record", "records", "launches", "moved", "nodes gone"], rows)
    conclude(**growth, us_per_record=worst)


if __name__ == "__main__":
    main()
