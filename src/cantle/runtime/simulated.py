"""What would happen? A world in which time jumps from one event to the next.

Everything by chance comes from one seeded generator, so the same seed tells the same story.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING

import msgspec

from cantle.core.state import State
from cantle.errors import CantleBug
from cantle.model.records import (
    ClosePartition,
    Decision,
    Event,
    GiveUpNode,
    Launch,
    MoveResults,
    NodeLost,
    NodesAwaited,
    NodesJoined,
    OpenPartition,
    Outcome,
    PartitionEnded,
    PartitionStarted,
    Refuse,
    ReleaseNode,
    RequestNodes,
    RetireWorkers,
    Stop,
    TaskEnded,
    TaskStarted,
    TimePassed,
    WorkersRetired,
)
from cantle.model.resources import Node, Place

if TYPE_CHECKING:
    from cantle.runtime.simulated_provider import SimulatedProvider

ABOUT_NODES = (RequestNodes, MoveResults, ReleaseNode)
SOONEST_S = 1e-6
"""Nobody is woken at the very moment at which he asks for it."""


class Fate(msgspec.Struct, frozen=True, gc=False):
    """What becomes of an attempt: how long it takes, how it ends, and how many bytes it leaves on its node if it is done."""

    duration_s: float
    outcome: Outcome = "done"
    kept: int = 0


class _Line:
    """Who runs on some places, as (task, attempt), and which launches wait there, each with its fate."""

    __slots__ = ("runs", "waiting")

    def __init__(self, runs: tuple[int, int]) -> None:
        self.runs = runs
        self.waiting: deque[tuple[Launch, Fate]] = deque()

    def leave(self, task: int, attempt: int) -> bool:
        """The attempt waits no longer. Whether it did."""
        before = len(self.waiting)
        self.waiting = deque(entry for entry in self.waiting if (entry[0].task, entry[0].attempt) != (task, attempt))
        return len(self.waiting) < before


class SimulatedWorld:
    """Nodes that do not exist run tasks for as long as `fate` says.

    `nodes` come up in groups at their times, none before the state's own, and go when they end; `losses` are (time, node
    number). `start_s`
    passes between a launch and its process's start, `jitter` spreads durations log-normally (0.3: a third of them are off
    by more than 30 %), `failures` is the chance of an attempt to fail.
    A partition's agent starts within `agent_s`. Nodes that are asked for come from `provider`; without one, as their kinds say.
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
        provider: SimulatedProvider | None = None,
    ) -> None:
        self.state = state
        self.fate = fate
        self.chance = Random(seed)
        self.start_s = start_s
        self.jitter = jitter
        self.failures = failures
        self.grace_s = grace_s
        self.agent_s = agent_s
        self.provider = provider
        self.tell_starts_after_s = float("inf")
        """As real runners do, tell of an attempt that it has started when it has run for so long."""
        self._heap: list[tuple[float, int, Event]] = []
        self._lines: dict[tuple[Place, ...], _Line] = {}
        self._let_go_already: set[tuple[int, int]] = set()
        self._serial = 0
        self._wake_at = 0.0
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
                f"the simulation ran dry at {self.state.now:.1f} s with {self.state.totals} tasks by phase: nothing runs, "
                f"nothing is to come, and yet not all is over. {self._why_the_first_waits()}"
            )
        time, _, event = heappop(heap)
        events = [event]
        if self._lines:
            self._move_up(event)
        while heap and heap[0][0] == time:
            event = heappop(heap)[2]
            events.append(event)
            if self._lines:
                self._move_up(event)
        if any(type(event) is NodesJoined or type(event) is NodeLost for event in events):
            events = self._nodes_come_and_go(events)
        return events

    def _nodes_come_and_go(self, events: list[Event]) -> list[Event]:
        """What joins bears the next numbers, and its end is known from then on; what is gone is not lost once more."""
        true: list[Event] = []
        number = len(self.state.room.nodes)
        for event in events:
            if type(event) is NodesJoined:
                joins = event if self.provider is None else self.provider.arrived(self.state, event)
                true.append(joins)
                if type(joins) is NodesJoined:
                    self._foresee_ends(joins, number)
                    number += len(joins.nodes)
            elif type(event) is NodeLost and not self.state.room.alive >> event.node & 1 and event.node < number:
                true.append(TimePassed(event.time))
            else:
                true.append(event)
        return true

    def _foresee_ends(self, joins: NodesJoined, number: int) -> None:
        losses = [0.0] * len(joins.nodes) if self.provider is None else self.provider.losses(self.state, joins)
        for index, (each, lost_at) in enumerate(zip(joins.nodes, losses, strict=True), number):
            if each.ends_at:
                self.put(NodeLost(each.ends_at, index, "its allocation has ended"))
            if lost_at:
                self.put(NodeLost(lost_at, index, "lost in the simulation"))

    def carry_out(self, decision: Decision) -> None:
        """Let come what comes of it."""
        if type(decision) is Launch:
            self._launch(decision)
        elif type(decision) is Stop:
            self._stop(decision)
        elif type(decision) is Refuse:
            self.put(TimePassed(decision.time))
        elif type(decision) is OpenPartition:
            self.put(PartitionStarted(decision.time + self.agent_s, decision.partition))
        elif type(decision) is ClosePartition:
            self.put(PartitionEnded(decision.time, decision.partition))
        elif type(decision) in ABOUT_NODES:
            if self.provider is None:
                from cantle.runtime.simulated_provider import SimulatedProvider

                self.provider = SimulatedProvider()
            for event in self.provider.answer(self.state, decision):
                self.put(event)
        elif type(decision) is GiveUpNode:
            self.put(NodeLost(decision.time, decision.node, decision.why))
        elif type(decision) is RetireWorkers:
            self.put(WorkersRetired(decision.time, decision.partition, decision.leaving))

    def _why_the_first_waits(self) -> str:
        from cantle.core.explain import explain
        from cantle.core.phases import Phase

        ready = [task for task, phase in enumerate(self.state.phases) if phase == Phase.READY]
        return " ".join(explain(self.state, ready[0])) if ready else ""

    def wake_at(self, time: float) -> None:
        """Let time pass as an event then."""
        time = max(time, self.state.now + SOONEST_S)
        if not self._wake_at or time < self._wake_at or self._wake_at <= self.state.now:
            self._wake_at = time
            self.put(TimePassed(time))

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
        fate = Fate(duration, outcome, fate.kept)
        if launch.behind is not None and self.state.stands_in_line(task):
            self._stand_in_line(launch, fate)
        else:
            self._begin(launch, fate, launch.time + self.start_s, told=bool(self.start_s))

    def _begin(self, launch: Launch, fate: Fate, begin: float, told: bool, started: float = 0.0) -> None:
        """The attempt's process runs from `begin` on. That it has started is `told` by itself, or comes with its end."""
        task, attempt, duration = launch.task, launch.attempt, fate.duration_s
        if told:
            self.put(TaskStarted(begin, task, attempt))
        if duration > self.tell_starts_after_s:
            self.put(TaskStarted(begin + self.tell_starts_after_s, task, attempt))
        exit_code = 1 if fate.outcome == "failed" else 0
        kept = fate.kept if fate.outcome == "done" else 0
        self.put(TaskEnded(begin + duration, task, attempt, fate.outcome, exit_code, started=started, kept=kept))

    def _stand_in_line(self, launch: Launch, fate: Fate) -> None:
        line = self._lines.get(launch.on)
        if line is None:
            owner = self.state.lines[launch.task].owner
            line = self._lines[launch.on] = _Line((owner, self.state.attempts[owner]))
        line.waiting.append((launch, fate))

    def _stop(self, stop: Stop) -> None:
        key = stop.task, stop.attempt
        line = self._line_of(*key)
        if key in self._let_go_already:
            return  # its end is on its way
        outcome: Outcome = stop.outcome
        if line is not None and line.leave(*key):
            self.put(TaskEnded(stop.time, *key, outcome))
            self._let_go(line, *key, stop.time)
        else:
            self.put(TaskEnded(stop.time + (0.0 if stop.at_once else self.grace_s), *key, outcome))

    def _line_of(self, task: int, attempt: int) -> _Line | None:
        launch = self.state.running.get(task)
        return self._lines.get(launch.on) if launch is not None and launch.attempt == attempt else None

    def _let_go(self, line: _Line, task: int, attempt: int, time: float) -> None:
        """The attempt was not done: who was to follow it ends without having begun, and who was to follow those."""
        for launch, _ in list(line.waiting):
            if (launch.behind, launch.if_done) == (task, attempt) and line.leave(launch.task, launch.attempt):
                self._let_go_already.add((launch.task, launch.attempt))
                self.put(TaskEnded(time, launch.task, launch.attempt, "interrupted"))
                self._let_go(line, launch.task, launch.attempt, time)

    def _move_up(self, event: Event) -> None:
        """What an event that is about to be told means for those in line: the next begins, or all go with their node."""
        if type(event) is NodeLost:
            for on in [on for on in self._lines if any(place.node == event.node for place in on)]:
                del self._lines[on]
        if type(event) is not TaskEnded:
            return
        line = self._line_of(event.task, event.attempt)
        if line is None or line.runs != (event.task, event.attempt):
            return
        if event.outcome != "done":
            self._let_go(line, event.task, event.attempt, event.time)
        if line.waiting:
            following, fate = line.waiting.popleft()
            line.runs = (following.task, following.attempt)
            self._begin(following, fate, event.time, told=False, started=event.time)
        else:
            del self._lines[self.state.running[event.task].on]
