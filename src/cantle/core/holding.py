"""Which idle nodes shall be kept, and which given back?

A node that idles costs its seconds; a node that was given back costs `start_cost_s` seconds when it is wanted again. A
forecast that names the node which will be used next is wrong as soon as another one is taken instead; so it is only asked
*how many* of the idle ones will be used within a little more than the start cost. Those who idle longest are surplus, and
whoever dispatches takes the one first that became idle last (`Holding.in_order`), so that each level of the demand is a
question of its own.

A surplus node stays for a floor, since forecasts fail by a moment here and there. The floor is learned from how long the
nodes idled that were called surplus. No node stays longer than the cap, whatever the forecast says.

A node is given back at most once in an idle period, and is taken again only when the demand steps up and no held node is
left. A gap costs three start costs at most.

All times are seconds. A node is whatever can be compared for equality: a node's number, a partition's, an element's.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

Held = TypeVar("Held", bound=Hashable)

HORIZON = 1.1
"""So many start costs far the forecast looks."""
CAP = 2.0
"""After so many start costs of idling the forecast has been wrong for too long."""
LOOK_AGAIN = 0.25
"""After so many start costs the forecast is asked again, since it may not have come true."""
PAYS_FROM_S = 1.0
"""Cheaper starts than this are not worth a forecast: give back at once."""
REMEMBERED = 1000
"""From so many idle periods, the last ones, the floor is learned."""


def gang_start_cost_s(width: int, start_s: float, drain_s: float) -> float:
    """What it costs to have a gang's nodes together again: each must be started and, before that, be drained."""
    return width * (start_s + drain_s)


class Cost(msgspec.Struct):
    """What the holding has cost so far."""

    start_cost_s: float
    held_s: float = 0.0
    """Node seconds of waiting, of the idle periods that are over."""
    given_back: int = 0
    taken_again: int = 0

    @property
    def total_s(self) -> float:
        """Waiting and starting again, node seconds."""
        return self.held_s + self.taken_again * self.start_cost_s


class Verdict(msgspec.Struct, Generic[Held], frozen=True):
    """What to give back now, and when to ask again if nothing happens before (None: need not)."""

    give_back: list[Held]
    wake_up_at: float | None = None


class _Idle:
    __slots__ = ("called_surplus", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.called_surplus = False


class Holding(Generic[Held]):
    """The idle nodes that are held, those that were given back, and what was learned from both.

    Tell it of each node that becomes `idle` and that becomes `busy`; a node that is being started or is kept for a gang is
    busy. After each pass that leaves nothing ready which could run, and at the time it named, ask it to `decide`.
    """

    def __init__(self, start_cost_s: float) -> None:
        """Raises ValueError unless the cost is a number of at least 0."""
        if not start_cost_s >= 0:
            raise ValueError(
                f"what it costs to start a node again must be a number of at least 0, not {start_cost_s!r}"
            )
        self.start_cost_s = start_cost_s
        self.cost = Cost(start_cost_s)
        self.floor = Floor(start_cost_s)
        self._held: dict[Held, _Idle] = {}
        self._away: dict[Held, _Idle] = {}
        self._in_doubt: dict[Held, _Idle] = {}

    def idle(self, node: Held, now: float) -> None:
        """The node has nothing to do any more. Nothing changes when it is known to be idle."""
        if node not in self._held:
            self.lost(node, now)
            self._held[node] = _Idle(now)

    def busy(self, node: Held, now: float) -> None:
        """The node has work, or is about to have: it was held, or is taken again, or is there for the first time."""
        idle = self._held.pop(node, None)
        if idle is not None:
            self.cost.held_s += now - idle.since
        else:
            idle = self._away.pop(node, None)
            if idle is None:
                return
            self.cost.taken_again += 1
        if self._in_doubt.pop(node, None) is not None:
            self.floor.learn(now - idle.since)

    def lost(self, node: Held, now: float) -> None:
        """The node is gone, or somebody else has it: it is neither held nor to be taken again."""
        idle = self._held.pop(node, None)
        if idle is not None:
            self.cost.held_s += now - idle.since
        self._away.pop(node, None)
        self._in_doubt.pop(node, None)

    @property
    def held(self) -> list[Held]:
        """The idle nodes that are held, the longest idle first."""
        return list(self._held)

    def in_order(self) -> Iterable[Held]:
        """Whom to give work first: held ones, idle last first; then those that were given back, likewise."""
        yield from reversed(self._held)
        yield from reversed(self._away)

    def decide(
        self, now: float, forecast: Callable[[float], int], *, work_left: bool = True, waited_for: int = 0
    ) -> Verdict[Held]:
        """Which held nodes to give back now; they count as given back from now on.

        `forecast(until)` says how many of the idle nodes will be used until that time; it is only called when that matters.
        `work_left`: something may still become ready here. `waited_for`: so many nodes somebody else wants now; for him
        surplus goes at once, and nobody keeps a node longer than a start cost.
        """
        if not self._held:
            return Verdict([])
        if not work_left:
            return Verdict(self._give_back(list(self._held), now))
        self._learn_of_long_absence(now)
        cost = self.start_cost_s
        if cost < PAYS_FROM_S:
            return Verdict(self._give_back(list(self._held), now))
        surplus = len(self._held) - forecast(now + HORIZON * cost)
        floor = self.floor.seconds
        cap = CAP * cost
        going: list[Held] = []
        wake_up_at = now + LOOK_AGAIN * cost
        for rank, (node, idle) in enumerate(self._held.items()):
            age = now - idle.since
            wanted = len(going) < waited_for
            bound = cost if wanted else cap
            if rank < surplus:
                if not idle.called_surplus:
                    idle.called_surplus = True
                    self._in_doubt[node] = idle
                bound = 0.0 if wanted else min(floor, bound)
            # what is due when we wake up must be due then in spite of rounding
            if age >= bound or idle.since + bound <= now:
                going.append(node)
            else:
                wake_up_at = min(wake_up_at, idle.since + bound)
        self._give_back(going, now)
        return Verdict(going, wake_up_at if self._held else None)

    def _give_back(self, nodes: list[Held], now: float) -> list[Held]:
        for node in nodes:
            idle = self._held.pop(node)
            self._away[node] = idle
            self.cost.held_s += now - idle.since
        self.cost.given_back += len(nodes)
        return nodes

    def _learn_of_long_absence(self, now: float) -> None:
        """A node that was called surplus and idles longer than a start cost was surplus."""
        for node, idle in list(self._in_doubt.items()):
            if now - idle.since > self.start_cost_s:
                del self._in_doubt[node]
                self.floor.learn(now - idle.since)


class Floor:
    """How long a surplus node stays: the time that would have cost the least in the idle periods so far."""

    def __init__(self, start_cost_s: float) -> None:
        self._cost = start_cost_s
        self._at_first = start_cost_s * min(0.05, 0.002 * start_cost_s)
        self._latest: deque[float] = deque(maxlen=REMEMBERED)
        self._sorted = [self._at_first]
        self._never = 1
        self._seconds: float | None = None

    def learn(self, idled_s: float) -> None:
        """A node that was called surplus was used again after so long; longer than a start cost is as good as never."""
        self._seconds = None
        if len(self._latest) == REMEMBERED:
            oldest = self._latest[0]
            if oldest > self._cost:
                self._never -= 1
            else:
                self._sorted.remove(oldest)
        self._latest.append(idled_s)
        if idled_s > self._cost:
            self._never += 1
        else:
            insort(self._sorted, idled_s)

    @property
    def seconds(self) -> float:
        """The floor now."""
        if self._seconds is None:
            best = self._at_first
            least = float("inf")
            waited = 0.0
            longer = len(self._sorted) + self._never
            for length in self._sorted:
                waited += length
                longer -= 1
                cost = waited + longer * (length + self._cost)
                if cost < least:
                    best, least = length, cost
            self._seconds = best
        return self._seconds
