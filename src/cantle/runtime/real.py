"""How do decisions become processes, and what happens become events? The world in which time is the clock's.

One inbox, filled by engines and allocations; one thread. Nothing here waits but `wait`.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cantle.allocations.base import Allocation, Growing
from cantle.core.state import State
from cantle.engines.base import Engine, KeepingEngine, SpreadingEngine
from cantle.errors import CantleError, said_by
from cantle.model.records import (
    ClosePartition,
    Decision,
    DrainNode,
    Event,
    GiveUpNode,
    GrowPartition,
    Launch,
    MoveResults,
    NodeLost,
    NodeReleased,
    NodesJoined,
    NoticeIdle,
    OpenPartition,
    PartitionTold,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    ResumeNode,
    RetireWorkers,
    ShrinkPartition,
    Stop,
    TaskEnded,
    TaskHindered,
    TimePassed,
    WithdrawRequest,
)
from cantle.model.study import Commands, LaunchingCommands
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.timekeeping import by_records_time

if TYPE_CHECKING:
    from cantle.runtime.haulage import Haulage
    from cantle.runtime.hosting import Hosting
    from cantle.runtime.idle_hook import IdleHook

_NO_MORE = "the nodes of this run neither come nor go"
TICK_S = 0.2
"""So often at least the loop turns, for progress and requests, when nothing happens."""


class RealWorld:
    """Joins an allocation, an engine and the work half of the study."""

    def __init__(
        self, state: State, inbox: SelectInbox, allocation: Allocation, engine: Engine, work: Commands
    ) -> None:
        self.state = state
        self.inbox = inbox
        self.allocation = allocation
        self.engine = engine
        self.work = work
        self._hosting: Hosting | None = None
        self.on_idle = ""
        """A command that is told of unused nodes."""
        self._hook: IdleHook | None = None
        self._wake_at = math.inf
        self._wanted: list[tuple[int, RequestNodes | WithdrawRequest | ReleaseNode]] = []
        """What this turn wants of the allocation, once it is written down; with the number of the request or node."""
        self._nodes = list(state.room.nodes.values())
        """All nodes that ever joined; the state may not have heard of the last ones yet."""
        self._gone: set[int] = set()
        self.lost: deque[str] = deque(maxlen=1000)
        """Which nodes could not be had, went away or are drained, and why, for whoever tells the user and empties it."""
        self._moves: list[MoveResults] = []
        self._haulage: Haulage | None = None
        if isinstance(engine, KeepingEngine):
            engine.make_transport = self._hauled_by
        if isinstance(work, LaunchingCommands) and isinstance(engine, SpreadingEngine):
            engine.launch_lost_a_node = work.launch_lost_a_node
        allocation.open(inbox)

    def wait(self) -> list[Event]:
        """What has happened; nothing, if nothing has for a moment."""
        return self._heard(self.inbox.wait(TICK_S if self._wake_at == math.inf else self._until_wake()))

    def _heard(self, events: list[Event]) -> list[Event]:
        """What has happened, once the user is told of it, and the engine of nodes that came and went."""
        of_nodes = False
        for event in events:
            kind = type(event)
            if kind is TaskEnded:
                continue
            if kind is NodesJoined or kind is NodeLost or kind is RequestAnswered:
                of_nodes = True
            elif kind is TaskHindered:
                self._tell_hindrance(event)
            elif kind is PartitionTold:
                self.lost.append(self._its_hosting().in_words(event))  # type: ignore[arg-type] # just asked
        return self._with_nodes(events) if of_nodes else events

    def _tell_hindrance(self, event: Event) -> None:
        if isinstance(event, TaskHindered) and event.why:
            self.lost.append(f"{self.state.tasks[event.task].name} has not begun: {event.why}")

    def wake_at(self, time: float) -> None:
        """Let time pass as an event then."""
        self._wake_at = time

    def _until_wake(self) -> float:
        """How long to wait; when it is time, that is an event."""
        now = self.inbox.now()
        if now >= self._wake_at:
            self._wake_at = math.inf
            self.inbox.put(TimePassed(now))
        return min(TICK_S, max(0.0, self._wake_at - now))

    def _with_nodes(self, events: list[Event]) -> list[Event]:
        """The events, once the engine knows the nodes that came and went."""
        ahead_s = self.inbox.clock_ahead_s()
        told = [by_records_time(event, ahead_s) for event in events] if ahead_s else list(events)
        for event in events:
            if isinstance(event, NodesJoined):
                told += self._connect(event)
            elif isinstance(event, NodeLost) and event.node not in self._gone:
                self._gone.add(event.node)
                self.engine.remove_node(event.node)
                if event.node not in self.state.drained:
                    self.lost.append(f"a node is lost: {event.reason}")
                self.allocation.lost(self._nodes[event.node])
        # What the allocation says to that belongs to the same moment: nobody shall conclude that no node is to come.
        return told + self._heard(self.inbox.wait(0))

    def carry_out(self, decision: Decision) -> None:
        """Begin to do it; the engine's answer comes as an event."""
        if type(decision) is Launch:
            nodes = self.state.room.nodes
            try:
                command = self.work.command(
                    decision.task,
                    decision.attempt,
                    decision.restart,
                    decision.on,
                    tuple([nodes[place.node] for place in decision.on]),
                )
            except Exception as problem:  # noqa: BLE001 - a reader's bug must fail its task, not the run
                self._cannot_start(decision, f"its command could not be made: {said_by(problem)}")
                return
            if decision.partition >= 0:
                name = self.state.partitions.all[decision.partition].name
                env = dict(self.state.partitions.all[decision.partition].env)
                command = replace(command, env={**command.env, **env, "CANTLE_PARTITION": name})
            step = self.state.step_of(decision.task)
            if step.streams and not self.engine.runs_streams:
                self._cannot_start(
                    decision, f"{type(self.engine).__name__} runs no streams, and this task has {step.streams}"
                )
            elif step.streams:
                from cantle.model.streams import streams_of

                self.engine.launch(decision, command, step.walltime_s, step.needs.memory_mib, streams_of(step))
            else:
                self.engine.launch(decision, command, step.walltime_s, step.needs.memory_mib)
        elif type(decision) is Stop:
            self.engine.stop(decision)
        elif type(decision) is OpenPartition:
            partition = self.state.partitions.all[decision.partition]
            if partition.wish.engine:
                self._its_hosting().open(partition)
            else:
                self.engine.open_partition(decision.partition, partition.name, partition.nodes())
        elif type(decision) is GrowPartition:
            self.engine.resize_partition(decision.partition, [slots.node for slots in decision.slots], ())
            if self._hosting is not None:
                self._hosting.grown(decision)
        elif type(decision) is ShrinkPartition:
            left = self.state.partitions.all[decision.partition].nodes()
            gone = [slots.node for slots in decision.slots if slots.node not in left]
            self.engine.resize_partition(decision.partition, (), gone)
        elif type(decision) is RetireWorkers:
            self._its_hosting().retire(decision)
        elif type(decision) is ClosePartition:
            self.engine.close_partition(decision.partition)
        elif type(decision) is RequestNodes:
            assert self.state.scaling is not None
            self._wanted.append((len(self.state.scaling.requests) - 1, decision))
        elif type(decision) is WithdrawRequest:
            self._wanted.append((decision.request, decision))
        elif type(decision) is MoveResults:
            self._moves.append(decision)
        elif type(decision) is ReleaseNode:
            self._wanted.append((decision.node, decision))
        elif type(decision) is DrainNode:
            self.lost.append(f"node {self.state.room.nodes[decision.node].name} is drained: {decision.why}")
        elif type(decision) is ResumeNode:
            self.lost.append(f"node {self.state.room.nodes[decision.node].name} is used again: {decision.why}")
        elif type(decision) is GiveUpNode:
            self.lost.append(f"node {self.state.room.nodes[decision.node].name} is given up: {decision.why}")
            self.inbox.put(NodeLost(self.inbox.now(), decision.node, decision.why))
        elif type(decision) is NoticeIdle:
            node = self.state.room.nodes[decision.node]
            self.lost.append(f"node {node.name} is unused: {decision.why}")
            if self.on_idle:
                self._idle_hook().tell(node.name, node.kind, decision.why)

    def _its_hosting(self) -> Hosting:
        if self._hosting is None:
            from cantle.runtime.hosting import Hosting

            self._hosting = Hosting(self.state, self.inbox, self.engine)
        return self._hosting

    def _idle_hook(self) -> IdleHook:
        if self._hook is None:
            from cantle.runtime.idle_hook import IdleHook

            self._hook = IdleHook(self.on_idle, self.lost.append)
        return self._hook

    def _cannot_start(self, launch: Launch, why: str) -> None:
        self.inbox.put(
            TaskEnded(self.inbox.now(), launch.task, launch.attempt, "unstartable", detail=why, everywhere=True)
        )

    def settle(self) -> None:
        """The records of this turn are in the operating system's hands: let the messages go."""
        self.engine.written()
        self.engine.flush()
        if self._wanted:
            wanted, self._wanted = self._wanted, []
            for number, decision in wanted:
                self._grow_or_shrink(number, decision)

        if self._moves:
            moves, self._moves = self._moves, []
            for move in moves:
                self._hauled_by().move(move)
        if self.state.keeping is not None and self.state.keeping.unneeded:
            self._hauled_by().drop_unneeded()

    def _hauled_by(self) -> Haulage:
        if self._haulage is None:
            from cantle.runtime.haulage import Haulage

            self._haulage = Haulage(self.state, self.inbox, self.allocation, self._nodes, self.engine)
        return self._haulage

    def _grow_or_shrink(self, number: int, decision: RequestNodes | WithdrawRequest | ReleaseNode) -> None:
        growing = self.allocation if isinstance(self.allocation, Growing) else None
        if isinstance(decision, RequestNodes):
            if growing is not None:
                growing.request(number, decision.kind, decision.count)
            else:
                self.inbox.put(RequestAnswered(self.inbox.now(), number, 0, decision.count, _NO_MORE))
        elif isinstance(decision, WithdrawRequest):
            if growing is not None:
                growing.withdraw(number, decision.count)
        elif growing is not None:
            growing.release(number, self._nodes[number])
        else:
            self.inbox.put(NodeReleased(self.inbox.now(), number, _NO_MORE))

    def close(self) -> None:
        """End everything that was started, and give the nodes back."""
        self.engine.close()
        self.allocation.close()
        if self._hook is not None:
            self._hook.close()

    def _connect(self, joined: NodesJoined) -> list[Event]:
        lost: list[Event] = []
        for node in joined.nodes:
            index = len(self._nodes)
            self._nodes.append(node)
            try:
                channel = self.allocation.connect(node)
            except CantleError as problem:
                lost.append(NodeLost(self.inbox.now(), index, str(problem)))
                self.lost.append(f"a node is lost: {node.name}: {problem}")
                self.allocation.lost(node)
                continue
            self.engine.add_node(index, node, channel)
        return lost
