"""A run in simulation on nodes that come and go, and what is asked of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace
from tests.builders import NO_LIMITS, CheckedState, Job, study_records

from cantle.core.decide import Decider
from cantle.core.keeping import needed_alone_on
from cantle.core.phases import Phase
from cantle.core.scaling.seam import Scaler
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    AnyRecord,
    Event,
    KindsDeclared,
    Launch,
    NodeLost,
    NodesJoined,
    NoticeIdle,
    Refuse,
    ReleaseNode,
    RequestNodes,
    TaskEnded,
    WithdrawRequest,
)
from cantle.model.resources import Node
from cantle.model.study import Limits, PartitionWish, Slicing
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld
from cantle.runtime.simulated_provider import SimulatedProvider

POLICIES = (
    "payoff",
    "payoff:1",
    "demand",
    "fixed:2",
    "fixed:0",
    "no-progress:5s",
    "eta:20s",
    "no-nodes",
    "cheapest",
    "finish-by:60s",
)
"""Scaling policies that random runs draw from."""

QUICK = Scaling(("demand",), idle_s=1.0, notice_s=1.0, cool_down_s=0.0)
"""What gives back soonest, so that whatever is given back too soon shows."""

MOST_RECORDS = 3000
"""A run with more records than that has no end."""


class Elastic:
    """What happened in a run."""

    def __init__(self, state: CheckedState, decider: Decider) -> None:
        self.state = state
        self.decider = decider
        self.records = state.records

    def all_of(self, kind: type[Any]) -> list[Any]:
        """All records of that type, in order."""
        return [record for record in self.records if type(record) is kind]

    @property
    def adds(self) -> dict[str, int]:
        """How many nodes were asked for, by kind."""
        found: dict[str, int] = {}
        for record in self.all_of(RequestNodes):
            found[record.kind] = found.get(record.kind, 0) + record.count
        return found

    @property
    def removals(self) -> list[float]:
        """When nodes were given back, or not wanted any more before they came."""
        return [record.time for record in self.records if type(record) in (ReleaseNode, WithdrawRequest)]

    @property
    def done(self) -> int:
        """How many tasks are done."""
        return self.state.totals[Phase.DONE]

    @property
    def refusals(self) -> list[str]:
        """Why tasks were refused."""
        return [record.why for record in self.all_of(Refuse)]

    def launched_at(self, name: str) -> list[float]:
        """When the attempts of the task were launched."""
        return [record.time for record in self.all_of(Launch) if self.state.tasks[record.task].name == name]

    def there(self) -> list[tuple[float, int]]:
        """How many nodes were there, each time that changed."""
        n, found = 0, []
        for record in self.records:
            if type(record) is NodesJoined:
                n += len(record.nodes)
            elif type(record) is NodeLost:
                n -= 1
            else:
                continue
            found.append((record.time, n))
        return found

    def there_at(self, time: float) -> int:
        """How many nodes were there at that time."""
        return next((n for at, n in reversed(self.there()) if at <= time), 0)

    @property
    def peak(self) -> int:
        """The most nodes that were there at once."""
        return max((n for _, n in self.there()), default=0)


class WatchedState(CheckedState):
    """Nothing that runs or is needed goes with a node that is given back."""

    def apply(self, record: AnyRecord) -> None:
        """Look before."""
        if type(record) is ReleaseNode:
            assert not self.running_on.get(record.node), "a node with work was given back"
            assert not needed_alone_on(self, record.node)[0], "a node with what is needed was given back"
        super().apply(record)


class _World(SimulatedWorld):
    """What tasks make may live on the nodes where they ran."""

    kept = 0

    def put(self, event: Event) -> None:
        """Let it happen, with so many bytes made."""
        if self.kept and type(event) is TaskEnded and event.outcome == "done":
            event = replace(event, kept=self.kept)
        super().put(event)


def elastic(
    jobs: Sequence[Job],
    kinds: Iterable[Kind],
    seconds: Callable[[str], float] | float,
    *,
    there: Sequence[Node] = (),
    scaling: Scaling = QUICK,
    provider: SimulatedProvider | None = None,
    scaler: Scaler | None = None,
    events: Iterable[Event] = (),
    losses: Iterable[tuple[float, int]] = (),
    limits: Limits = NO_LIMITS,
    partitions: tuple[PartitionWish, ...] = (),
    slicing: Slicing | None = None,
    seed: int = 0,
    kept: int = 0,
) -> Elastic:
    """Run the jobs. `kept`: so many bytes of what each makes live on its node alone.

    `seconds`: how long each takes, by name; where a job has no estimate, nobody knows it.
    """
    state = WatchedState()
    for record in study_records(jobs, limits, partitions=partitions, slicing=slicing):
        state.apply(record)

    def fate(task: int, _attempt: int) -> Fate:
        return Fate(seconds(jobs[task].name) if callable(seconds) else seconds)

    groups = [(0.0, list(there))] if there else []
    world = _World(state, groups, fate, provider=provider, losses=losses, seed=seed)
    world.kept = kept
    world.put(KindsDeclared(0.0, list(kinds)))
    for event in events:
        world.put(event)
    decider = Decider()
    decider.scaling = scaling
    decider.scaler = scaler
    run(state, world, NoLog(), decider, [_require_an_end])
    return Elastic(state, decider)


def _require_an_end(state: State) -> None:
    assert len(state.records) < MOST_RECORDS, "this goes on for ever"  # type: ignore[attr-defined]


__all__ = ["QUICK", "Elastic", "NoticeIdle", "elastic"]
