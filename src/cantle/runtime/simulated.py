"""What would happen? A world in which time jumps from one event to the next.

Everything by chance comes from one seeded generator, so the same seed tells the same story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random

import msgspec

from cantle.core.state import State
from cantle.errors import CantleBug
from cantle.model.records import (
    ClosePartition,
    Decision,
    Event,
    Launch,
    NodeLost,
    NodesAwaited,
    NodesJoined,
    OpenPartition,
    Outcome,
    PartitionEnded,
    PartitionStarted,
    Refuse,
    Stop,
    TaskEnded,
    TaskStarted,
    TimePassed,
)
from cantle.model.resources import Node, Place


class Fate(msgspec.Struct, frozen=True, gc=False):
    """What becomes of an attempt: how long it takes, and how it ends."""

    duration_s: float
    outcome: Outcome = "done"


class SimulatedWorld:
    """Nodes that do not exist run tasks for as long as `fate` says.

    `nodes` come up in groups at their times, none before the state's own; `losses` are (time, node number). `start_s`
    passes between a launch and its process's start, `jitter` spreads durations log-normally (0.3: a third of them are off
    by more than 30 %), `failures` is the chance of an attempt to fail.
    A partition's agent starts within `agent_s`.
    """

    def __init__(
        self,
        state: State,
        nodes: Iterable[tuple[float, list[Node]]],
        fate: Callable[[int, int], Fate],
        *,
        seed: int = 0,
        start_s: float = 0.0,
        jitter: float = 0.0,
        failures: float = 0.0,
        losses: Iterable[tuple[float, int]] = (),
        grace_s: float = 1.0,
        agent_s: float = 0.0,
    ) -> None:
        self.state = state
        self.fate = fate
        self.chance = Random(seed)
        self.start_s = start_s
        self.jitter = jitter
        self.failures = failures
        self.grace_s = grace_s
        self.agent_s = agent_s
        self.tell_starts_after_s = float("inf")
        """As real runners do, tell of an attempt that it has started when it has run for so long."""
        self._heap: list[tuple[float, int, Event]] = []
        self._ends: dict[tuple[Place, ...], float] = {}
        self._serial = 0
        coming = sorted(nodes, key=lambda group: group[0])
        awaited = sum(len(group) for _, group in coming)
        self.put(NodesAwaited(state.now, awaited))
        for time, group in coming:
            self.put(NodesJoined(time, group))
        for time, node in losses:
            self.put(NodeLost(time, node, "lost in the simulation"))

    def put(self, event: Event) -> None:
        """Let the event happen at its time."""
        heappush(self._heap, (event.time, self._serial, event))
        self._serial += 1

    def wait(self) -> list[Event]:
        """All that happens at the next moment at which anything does."""
        heap = self._heap
        if not heap:
            raise CantleBug(
                f"the simulation ran dry at {self.state.now:.1f} s with {self.state.totals} tasks by phase: "
                "nothing runs, nothing is to come, and yet not all is over"
            )
        time, _, event = heappop(heap)
        events = [event]
        while heap and heap[0][0] == time:
            events.append(heappop(heap)[2])
        return events

    def carry_out(self, decision: Decision) -> None:
        """Let come what comes of it."""
        if type(decision) is Launch:
            self._launch(decision)
        elif type(decision) is Stop:
            outcome: Outcome = decision.outcome
            grace_s = 0.0 if decision.at_once else self.grace_s
            self.put(TaskEnded(decision.time + grace_s, decision.task, decision.attempt, outcome))
        elif type(decision) is Refuse:
            self.put(TimePassed(decision.time))
        elif type(decision) is OpenPartition:
            self.put(PartitionStarted(decision.time + self.agent_s, decision.partition))
        elif type(decision) is ClosePartition:
            self.put(PartitionEnded(decision.time, decision.partition))

    def settle(self) -> None:
        """Nothing to do: nothing here is real."""

    def _launch(self, launch: Launch) -> None:
        task, attempt = launch.task, launch.attempt
        fate = self.fate(task, attempt)
        duration, outcome = fate.duration_s, fate.outcome
        if self.jitter:
            duration *= self.chance.lognormvariate(0.0, self.jitter)
        if self.failures and self.chance.random() < self.failures:
            duration *= self.chance.random()
            outcome = "failed"
        limit = self.state.step_of(task).walltime_s
        if limit and duration > limit:
            duration, outcome = limit, "timeout"
        begin = launch.time + self.start_s
        started = 0.0
        if launch.behind is not None:
            started = begin = max(begin, self._ends.get(launch.on, 0.0))
        elif self.start_s:
            self.put(TaskStarted(begin, task, attempt))
        end = begin + duration
        if len(launch.on) == 1:
            self._ends[launch.on] = end
            if duration > self.tell_starts_after_s:
                self.put(TaskStarted(begin + self.tell_starts_after_s, task, attempt))
        self.put(TaskEnded(end, task, attempt, outcome, 1 if outcome == "failed" else 0, started=started))
