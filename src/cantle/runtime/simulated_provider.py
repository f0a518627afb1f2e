"""Who answers requests for nodes in a simulation, and when do its nodes come and go?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    Decision,
    Event,
    MoveResults,
    NodeLost,
    NodeReleased,
    NodesJoined,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    ResultsMoved,
    TimePassed,
)
from cantle.model.resources import Node


class SimulatedProvider:
    """Nodes of the kinds that were declared come when they were asked for, and go when they are given back.

    `starts_in(kind, request)`: after how many seconds the request's nodes are there; without it, as the kind says.
    `refuses(kind, request, count)`: how many of so many will not come; `lives(kind, request)`: after how many seconds its nodes
    are lost, 0 for not before they end. To give one back takes `takes_back_s`, and fails on nodes of the names in `keeps`.
    To move results takes `moves_in_s`.
    """

    def __init__(
        self,
        *,
        starts_in: Callable[[Kind, int], float] | None = None,
        refuses: Callable[[Kind, int, int], int] | None = None,
        lives: Callable[[Kind, int], float] | None = None,
        takes_back_s: float = 0.0,
        moves_in_s: float = 0.0,
        keeps: Iterable[str] = (),
    ) -> None:
        self.starts_in = starts_in or (lambda kind, _request: kind.starts_in_s)
        self.refuses = refuses or (lambda _kind, _request, _count: 0)
        self.lives = lives or (lambda _kind, _request: 0.0)
        self.takes_back_s = takes_back_s
        self.moves_in_s = moves_in_s
        self.keeps = frozenset(keeps)
        self._made = 0

    def answer(self, state: State, decision: Decision) -> list[Event]:
        """What comes of a decision about nodes; of one that a provider does not hear of nothing."""
        if type(decision) is RequestNodes:
            return self._asked(state, decision)
        if type(decision) is ReleaseNode:
            return self._given_back(state, decision)
        if type(decision) is MoveResults:
            at = decision.time + self.moves_in_s
            return [ResultsMoved(at, decision.tasks, decision.node, decision.to)]
        return []

    def arrived(self, state: State, event: NodesJoined) -> Event:
        """The event as it comes true: those that were withdrawn meanwhile do not come."""
        ledger = state.scaling
        if ledger is None or event.request < 0:
            return event
        wanted = ledger.requests[event.request].coming
        if not wanted:
            return TimePassed(event.time)
        return NodesJoined(event.time, event.nodes[:wanted], event.request)

    def losses(self, state: State, event: NodesJoined) -> list[float]:
        """When each of the nodes that join is lost by itself, 0 for never."""
        ledger = state.scaling
        if ledger is None or event.request < 0:
            return [0.0] * len(event.nodes)
        asked = ledger.requests[event.request]
        kind = ledger.kinds.get(asked.kind)  # others may have been declared meanwhile
        lives_s = self.lives(kind, event.request) if kind is not None else 0.0
        return [event.time + lives_s if lives_s else 0.0] * len(event.nodes)

    def _asked(self, state: State, decision: RequestNodes) -> list[Event]:
        ledger = state.scaling
        assert ledger is not None
        number = len(ledger.requests) - 1
        kind = ledger.kinds[decision.kind]
        refused = min(decision.count, self.refuses(kind, number, decision.count))
        coming = decision.count - refused
        at = decision.time + self.starts_in(kind, number)
        told = "the simulation refuses it" if refused else ""
        events: list[Event] = [
            RequestAnswered(decision.time, number, coming, refused, told, at if coming else 0.0),
        ]
        if coming:
            ends_at = at + kind.lasts_s if kind.lasts_s else 0.0
            events.append(NodesJoined(at, [self._node(kind, ends_at) for _ in range(coming)], number))
        return events

    def _node(self, kind: Kind, ends_at: float) -> Node:
        self._made += 1
        return kind.node(f"{kind.name}-{self._made}", ends_at)

    def _given_back(self, state: State, decision: ReleaseNode) -> list[Event]:
        at = decision.time + self.takes_back_s
        if state.room.nodes[decision.node].name in self.keeps:
            return [NodeReleased(at, decision.node, "the simulation keeps it")]
        return [NodeReleased(at, decision.node), NodeLost(at, decision.node, "given back")]
