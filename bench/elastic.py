"""What does it save to know the workflow when nodes are added and removed? Simulated, against three scalers of others.

Recorded executions and the mixed workload (`mixed.py`) run on nodes that are asked for and given back; they come 30, 120 or
600 s after they were asked for. The same kind of node, the same bounds, packer and durations for everybody; those differ from
the estimates by 30 % (log-normally, the same for everybody). The others are written anew from what their documentation says
(`peer_scalers.py`), with its defaults. A node is paid for from the request on until it is given back.

Keys: node_seconds, makespan: geometric means over (workload, delay) of ours to the best peer's.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from measure import WORKLOADS, arguments, conclude, table
from mixed import phases
from peer_scalers import PEERS

from cantle.core.decide import Decider
from cantle.core.scaling.payoff import Payoff, Worth
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    AnyRecord,
    KindsDeclared,
    NodeLost,
    NodesJoined,
    RequestNodes,
    StudyAdded,
    TasksAdded,
    WithdrawRequest,
)
from cantle.model.resources import Needs
from cantle.model.study import Step, Task
from cantle.readers.base import ReadOptions
from cantle.readers.wfformat import WfFormatReader
from cantle.runtime.loop import run
from cantle.runtime.simulated import Fate, SimulatedWorld

DELAYS_S = (30.0, 120.0, 600.0)
OFF = 0.3
INSTANCES = [  # of each application one, where there are several the largest; of the generated ones none
    "1000genome-chameleon-22ch-250k-001",
    "atacseq-dirt02-001",
    "blast-chameleon-large-001",
    "bwa-chameleon-large-001",
    "cycles-chameleon-5l-2c-9p-001",
    "epigenomics-chameleon-ilmn-6seq-50k-001",
    "helloworld-forkjoin-10-chameleon",
    "montage-chameleon-dss-15d-001",
    "rnaseq-dirt02-001",
    "sarek-dirt02-001",
    "seismology-chameleon-1000p-001",
    "soykb-chameleon-50fastq-20ch-001",
    "srasearch-chameleon-50a-001",
    "viralrecon-dirt02-001",
]
QUICK = ["blast-chameleon-large-001", "epigenomics-chameleon-ilmn-6seq-50k-001", "viralrecon-dirt02-001"]


class Workload(msgspec.Struct):
    """Tasks, how long they really take, and the kind of node that they run on."""

    name: str
    steps: list[Step]
    tasks: list[Task]
    seconds: list[float]
    kind: Kind


class Told(msgspec.Struct):
    """How a run went. `held` counts from when nodes were there, `paid` from when they were asked for."""

    makespan: float
    paid: float
    held: float
    asked: int
    most: int


class Books:
    """A log that adds up what nodes cost."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []
        """By request: when, and how many that have neither come nor been withdrawn."""
        self.there: dict[int, tuple[float, float]] = {}
        """By node: since when it is paid for, since when it is there."""
        self.paid = self.held = 0.0
        self.nodes = self.most = self.requested = 0
        self.decided: list[AnyRecord] = []

    def write(self, record: AnyRecord) -> None:
        """Take the record in."""
        if type(record) is RequestNodes:
            self.asked.append((record.time, record.count))
            self.requested += record.count
        elif type(record) is WithdrawRequest:
            time, left = self.asked[record.request]
            self.paid += record.count * (record.time - time)
            self.asked[record.request] = (time, left - record.count)
        elif type(record) is NodesJoined:
            time, left = self.asked[record.request]
            self.asked[record.request] = (time, left - len(record.nodes))
            for _ in record.nodes:
                self.there[self.nodes] = (time, record.time)
                self.nodes += 1
            self.most = max(self.most, len(self.there))
        elif type(record) is NodeLost and record.node in self.there:
            self._gone(record.node, record.time)

    def flush(self) -> None:
        """Nothing to do."""

    def close(self, end: float) -> None:
        """The run is over, and all nodes go."""
        for node in list(self.there):
            self._gone(node, end)
        self.paid += sum(left * (end - time) for time, left in self.asked)

    def _gone(self, node: int, time: float) -> None:
        asked, joined = self.there.pop(node)
        self.paid += time - asked
        self.held += time - joined


def recorded(name: str, off: float) -> Workload:
    """A recorded execution on nodes of eight cores, at most sixteen of them."""
    study = WfFormatReader().read(WORKLOADS / "wfinstances" / f"{name}.json.gz", ReadOptions())
    kind = Kind("cpu", 8, most=16)
    return Workload(name, study.steps, study.tasks, perturbed(study.tasks, off), kind)


def mixed(name: str, scale: float, off: float) -> Workload:
    """The mixed workload on nodes of one core, eight of them; its durations multiplied."""
    steps: list[Step] = []
    step_of: dict[tuple[int, int], int] = {}
    tasks: list[Task] = []
    above: tuple[int, ...] = ()
    for number, phase in enumerate(phases()):
        here = []
        for nodes, seconds in phase:
            step = step_of.setdefault((number, nodes), len(steps))
            if step == len(steps):
                steps.append(Step(f"p{number}-{nodes}", Needs(nodes=nodes)))
            here.append(len(tasks))
            tasks.append(Task(f"t{len(tasks)}", step, above, seconds * scale))
        above = tuple(here)
    return Workload(name, steps, tasks, perturbed(tasks, off), Kind("cpu", 1, most=8))


def perturbed(tasks: list[Task], off: float) -> list[float]:
    """How long tasks really take, where estimates are off by that: the same for whoever runs them."""
    chance = random.Random(5)
    return [task.estimate_s * (chance.lognormvariate(0.0, off) if off else 1.0) for task in tasks]


def played(work: Workload, delay_s: float, scaler: Callable[[Kind], object]) -> tuple[Told, object]:
    """Run it; and the scaler, to ask it what it did."""
    kind = msgspec.structs.replace(work.kind, starts_in_s=delay_s)
    state = State()
    world = SimulatedWorld(state, [], lambda task, _: Fate(work.seconds[task]))
    state.apply(KindsDeclared(0.0, [kind]))
    state.apply(StudyAdded(0.0, work.name, work.steps))
    state.apply(TasksAdded(0.0, 0, work.tasks))
    decider = Decider(lines=False)
    decider.scaler = made = scaler(kind)
    books = Books()
    run(state, world, books, decider)
    assert state.succeeded
    end = max(state.ended_at)
    books.close(end)
    return Told(end, books.paid, books.held, books.requested, books.most), made


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def workloads(names: list[str], off: float) -> list[Workload]:
    """All of them."""
    return [
        *(recorded(name, off) for name in names),
        mixed("mixed", 1.0, off),
        mixed("mixed, minutes for seconds", 60.0, off),
    ]


def main() -> None:
    asked = arguments(__doc__)
    names = QUICK if asked.quick else INSTANCES
    import os
    worth = Worth(float(os.environ.get('W','8')), least_gain=float(os.environ.get('G','0.02')))
    names = sorted(p.name.removesuffix('.json.gz') for p in (WORKLOADS / 'wfinstances').glob('*.json.gz') if 'synthetic' not in p.name) if os.environ.get('ALL') else names
    for off in ((OFF,) if os.environ.get('ONE') else (OFF, 0.0)):
        rows = []
        ratios: dict[str, list[float]] = {"paid": [], "held": [], "makespan": [], "spaid": [], "sheld": [], "fast": []}
        for work in workloads(names, off):
            for delay in DELAYS_S:
                t0 = time.process_time()
                ours, made = played(work, delay, lambda kind: Payoff(worth))
                took = time.process_time() - t0
                t0 = time.process_time()
                peers = {name: played(work, delay, peer)[0] for name, peer in PEERS.items()}
                ptook = time.process_time() - t0
                least = min(told.makespan for told in peers.values())
                spaid = min(told.paid for told in peers.values())
                sheld = min(told.held for told in peers.values())
                best = min(peers.values(), key=lambda told: told.makespan * told.paid)
                fast = min(peers.values(), key=lambda told: told.makespan)
                ratios["makespan"].append(ours.makespan / least)
                ratios["spaid"].append(ours.paid / spaid)
                ratios["sheld"].append(ours.held / sheld)
                ratios["fast"].append(ours.paid / fast.paid)
                ratios["paid"].append(ours.paid / best.paid)
                ratios["held"].append(ours.held / fast.held)
                rows.append([work.name[:24], int(delay)] + [f"{t.makespan:.0f}/{t.paid:.0f}/{t.held:.0f}/{t.asked}" for t in (ours, *peers.values())] + [ours.makespan/least, ours.paid / spaid, ours.paid/fast.paid, made.looks, int(made.steps/max(1,made.looks)), took, ptook])
        table(["workload", "delay", "ours", *PEERS, "mk", "paid/least", "paid/fast", "looks", "steps", "s", "peers s"], rows)
        print(off, {k: round(geomean(v), 3) for k, v in ratios.items()})
    conclude()


if __name__ == "__main__":
    main()
