"""What does it save to know the workflow when nodes are added and removed? Simulated, against three scalers of others.

All 20 recorded executions and the mixed workload (`mixed.py`) run on nodes that are asked for and given back, and that come 30,
120 or 600 s after they were asked for: the recorded ones on up to 16 nodes of 8 cores, the mixed one on up to 8 of one core.
The same kinds, bounds, delays, packer and estimates for everybody; durations differ from the estimates by 30 % (log-normally,
the same for everybody). The others are written anew from their documentation, with its defaults (`peer_scalers.py`). A node is
paid for from the request until it is given back, or is not wanted any more. `--quick`: three executions; `--exact`: the
estimates are right; `--pool CORES,MOST`: other nodes for the recorded ones; `--worth W`: what time is worth to ours;
`--plots DIR`: pictures and the table for the documentation.

Keys: node_seconds, makespan: geometric means over (workload, delay) of ours to that one of the three that is best there: the
fastest, and of those within one percent of it the cheapest. least_node_seconds, least_makespan: each to the least of the three,
whoever has it. dask_, parsl_, hyperqueue_node_seconds and _makespan: to one of them in all cases. held_node_seconds: like
node_seconds, but a node is paid for from when it is there.
"""

from __future__ import annotations

import math
import random
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import msgspec
from measure import WORKLOADS, arguments, conclude, table
from mixed import phases
from peer_scalers import PEERS

from cantle.core.decide import Decider
from cantle.core.scaling.naming import scaler_of
from cantle.core.scaling.payoff import WORTH
from cantle.core.scaling.seam import Scaler
from cantle.core.scaling.settings import Scaling
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
CORES, MOST = 8, 16
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
        self.changes: list[tuple[float, int]] = []
        """When nodes came and went, and how many were there then."""

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
            self.changes.append((record.time, len(self.there)))
        elif type(record) is NodeLost and record.node in self.there:
            self._gone(record.node, record.time)
            self.changes.append((record.time, len(self.there)))

    def flush(self) -> None:
        """Nothing to do."""

    def close(self, end: float) -> None:
        """The run is over, and all nodes go."""
        for node in list(self.there):
            self._gone(node, end)
        self.changes.append((end, 0))
        self.paid += sum(left * (end - time) for time, left in self.asked)

    def _gone(self, node: int, time: float) -> None:
        asked, joined = self.there.pop(node)
        self.paid += time - asked
        self.held += time - joined


def recorded(name: str, off: float, cores: int = CORES, most: int = MOST) -> Workload:
    """A recorded execution on nodes of so many cores, at most so many of them."""
    study = WfFormatReader().read(WORKLOADS / "wfinstances" / f"{name}.json.gz", ReadOptions())
    kind = Kind("cpu", cores, most=most)
    return Workload(name, study.steps, study.tasks, perturbed(study.tasks, off), kind)


def mixed(off: float) -> Workload:
    """The mixed workload on nodes of one core, eight of them."""
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
            tasks.append(Task(f"t{len(tasks)}", step, above, seconds))
        above = tuple(here)
    return Workload("mixed", steps, tasks, perturbed(tasks, off), Kind("cpu", 1, most=8))


def perturbed(tasks: list[Task], off: float) -> list[float]:
    """How long tasks really take, where estimates are off by that: the same for whoever runs them."""
    chance = random.Random(5)
    return [task.estimate_s * (chance.lognormvariate(0.0, off) if off else 1.0) for task in tasks]


def played(work: Workload, delay_s: float, scaler: Callable[[Kind], Scaler], books: Books | None = None) -> Told:
    """Run it, and tell how it went."""
    kind = msgspec.structs.replace(work.kind, starts_in_s=delay_s)
    state = State()
    world = SimulatedWorld(state, [], lambda task, _: Fate(work.seconds[task]))
    state.apply(KindsDeclared(0.0, [kind]))
    state.apply(StudyAdded(0.0, work.name, work.steps))
    state.apply(TasksAdded(0.0, 0, work.tasks))
    decider = Decider(lines=False)
    decider.scaler = scaler(kind)
    books = books or Books()
    run(state, world, books, decider)
    assert state.succeeded
    end = max(state.ended_at)
    books.close(end)
    return Told(end, books.paid, books.held, books.requested, books.most)


def geomean(values: list[float]) -> float:
    """Their geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def workloads(names: list[str], off: float, cores: int = CORES, most: int = MOST) -> list[Workload]:
    """All of them, the recorded ones on nodes of so many cores, at most so many."""
    return [
        *(recorded(name, off, cores, most) for name in names),
        mixed(off),
    ]


def best_of(peers: dict[str, Told]) -> Told:
    """The fastest; of those within one percent of it the cheapest."""
    fastest = min(told.makespan for told in peers.values())
    return min((told for told in peers.values() if told.makespan <= 1.01 * fastest), key=lambda told: told.paid)


class Case(msgspec.Struct):
    """One workload with one delay: how it went with ours, and with each of the others."""

    work: Workload
    delay_s: float
    ours: Told
    peers: dict[str, Told]

    def row(self) -> list[object]:
        """For the table."""
        best = best_of(self.peers)
        told = [f"{t.makespan:,.0f} s, {t.paid:,.0f}" for t in (self.ours, *self.peers.values())]
        return [
            self.work.name,
            int(self.delay_s),
            *told,
            self.ours.makespan / best.makespan,
            self.ours.paid / best.paid,
        ]


HEAD = ["workload", "delay s", "ours", *PEERS, "makespan", "node-seconds"]


def figures_of(cases: list[Case]) -> dict[str, float]:
    """The keys."""
    best = [best_of(case.peers) for case in cases]
    ours = [case.ours for case in cases]
    least = [min(told.paid for told in case.peers.values()) for case in cases]
    soonest = [min(told.makespan for told in case.peers.values()) for case in cases]
    found = {
        "node_seconds": geomean([o.paid / b.paid for o, b in zip(ours, best, strict=True)]),
        "makespan": geomean([o.makespan / b.makespan for o, b in zip(ours, best, strict=True)]),
        "held_node_seconds": geomean([o.held / b.held for o, b in zip(ours, best, strict=True)]),
        "least_node_seconds": geomean([o.paid / b for o, b in zip(ours, least, strict=True)]),
        "least_makespan": geomean([o.makespan / b for o, b in zip(ours, soonest, strict=True)]),
    }
    for name in PEERS:
        found[f"{name.lower()}_node_seconds"] = geomean([case.ours.paid / case.peers[name].paid for case in cases])
        found[f"{name.lower()}_makespan"] = geomean([case.ours.makespan / case.peers[name].makespan for case in cases])
    return found


def names_of(quick: bool) -> list[str]:
    """The recorded executions; what is generated is left out."""
    found = sorted(path.name.removesuffix(".json.gz") for path in (WORKLOADS / "wfinstances").glob("*.json.gz"))
    return QUICK if quick else [name for name in found if not name.startswith("synthetic")]


def main() -> None:
    asked = arguments(__doc__, options)
    if not WORKLOADS.is_dir():
        sys.exit(f"there are no workloads in {WORKLOADS}; set CANTLE_WORKLOADS to the folder that holds wfinstances/")
    try:
        cores, most = map(int, asked.pool.split(","))
    except ValueError:
        sys.exit(
            f"--pool {asked.pool}: it is CORES,MOST, the cores of a node and how many there may be, as {CORES},{MOST}"
        )
    ours = ours_at(asked.worth)
    cases = []
    for work in workloads(names_of(asked.quick), 0.0 if asked.exact else OFF, cores, most):
        for delay in DELAYS_S:
            peers = {name: played(work, delay, peer) for name, peer in PEERS.items()}
            cases.append(Case(work, delay, played(work, delay, ours), peers))
    table(HEAD, [case.row() for case in cases])
    if asked.plots:
        from elastic_plots import draw

        draw(Path(asked.plots), cases, ours)
    conclude(**figures_of(cases))


def ours_at(worth: float) -> Callable[[Kind], Scaler]:
    """The default policy, within the bounds that hold for everybody, as the settings have them by default."""
    return lambda _kind: scaler_of(Scaling((f"payoff:{worth:g}",)))


def options(parser: ArgumentParser) -> None:
    """What only this bench can be asked."""
    parser.add_argument("--exact", action="store_true", help="the estimates are right")
    parser.add_argument(
        "--pool", default=f"{CORES},{MOST}", metavar="CORES,MOST", help="nodes for the recorded executions"
    )
    parser.add_argument("--worth", type=float, default=WORTH, help="what time is worth to ours, as in payoff:W")
    parser.add_argument("--plots", default="", help="draw pictures into this folder")


if __name__ == "__main__":
    main()
