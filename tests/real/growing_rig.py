"""Runs on nodes that come and go, begun as the command line begins them, with a policy of a few lines; and what they did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from cantle.allocations.base import Allocation
from cantle.allocations.providers.elastic import Housed
from cantle.core.decide import Decider
from cantle.core.plan import Plan
from cantle.engines.process import ProcessEngine
from cantle.model.records import AnyRecord, Decision, NodeLost, NodesJoined, ReleaseNode, RequestNodes, TaskEnded
from cantle.model.resources import Needs, Node
from cantle.readers.map import build
from cantle.readers.values import from_ranges
from cantle.runtime.conducting import Machine, Outcome, begin
from cantle.runtime.inbox import SelectInbox
from cantle.store.journal import read
from cantle.store.layout import Layout

Scaler = Callable[[Plan], Iterator[Decision]]


def fixed(kind: str, count: int) -> Scaler:
    """So many nodes of the kind from the start; each goes when it has nothing to do and nothing is ready."""
    asked = []

    def scale(plan: Plan) -> Iterator[Decision]:
        state = plan.state
        assert state.scaling is not None
        if not asked:
            asked.append(count)
            yield RequestNodes(state.now, kind, count, "a test wants them")
        if any(queue.heap for queue in state.queues):
            return
        for node in sorted(state.room.nodes):
            if state.room.alive >> node & 1 and not state.running_on.get(node) and node not in state.scaling.released:
                yield ReleaseNode(state.now, node, "a test has no use for it")

    return scale


def together(place: Path, count: int) -> str:
    """Begin of a shell command: it goes on when so many tasks of the run have begun, however late their nodes come.

    With more tasks than one node has cores, it takes a second node to get beyond this.
    """
    return (
        f"touch {place}/begun.$CANTLE_TASK; until [ $(ls {place} | grep -c ^begun) -ge {count} ]; do sleep 0.1; done; "
    )


def waits_for(file: Path) -> str:
    """Begin of a shell command: it goes on when there is this file."""
    return f"until [ -e {file} ]; do sleep 0.1; done; "


def run(
    out: Path, command: str, values: str, allocation: Allocation, scaler: Scaler | None, needs: Needs | None = None
) -> Outcome:
    """A run of the command for each value, to its end."""
    study = build(command, from_ranges([values]), name="grown", needs=needs)
    layout = Layout(out)
    conductor = begin(study, layout, "map", study.limits)

    def engine(inbox: SelectInbox, layout: Layout, hide_gpus: bool) -> ProcessEngine:
        if isinstance(allocation, Housed):
            allocation.house(layout.directory, layout.fleet)
        return ProcessEngine(inbox, str(layout.directory), home=".cantle/nodes", hide_gpus=hide_gpus, grace_s=0.5)

    decider = Decider()
    decider.scaler = scaler
    try:
        return conductor.conduct(Machine(allocation, engine), decider)
    finally:
        conductor.close()


class Happened:
    """What the journal of a run tells."""

    def __init__(self, out: Path) -> None:
        self.records: list[AnyRecord] = list(read(Layout(out).journal))

    def of(self, *kinds: type) -> list[AnyRecord]:
        return [record for record in self.records if isinstance(record, kinds)]

    @property
    def nodes(self) -> list[Node]:
        return [node for joined in self.of(NodesJoined) for node in joined.nodes]

    def done(self) -> Counter[int]:
        """How often each task was done."""
        return Counter(record.task for record in self.of(TaskEnded) if record.outcome == "done")

    def asked(self) -> Counter[str]:
        """How many nodes of each kind were asked for."""
        counts: Counter[str] = Counter()
        for record in self.of(RequestNodes):
            counts[record.kind] += record.count
        return counts

    def held(self) -> list[tuple[float, float]]:
        """From when until when each node was there; infinite for the end of the run."""
        joined = [record.time for record in self.of(NodesJoined) for _ in record.nodes]
        gone = {record.node: record.time for record in self.of(NodeLost)}
        return [(since, gone.get(node, float("inf"))) for node, since in enumerate(joined)]
