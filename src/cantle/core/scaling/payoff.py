"""Would more nodes pay, or fewer? The default scaler: it plays what is left through with each number of nodes worth a try.

Of all numbers of nodes of each kind it wants that for which `worth` times the seconds until the end, and what the nodes cost,
are least together. From the play it knows when each node would be used: one that is not there is asked for so early that it
comes when it is needed, and one that idles is given back if it is not needed until another could come in its stead.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

import msgspec

from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.scaling.outlook import Group, Member, Outlook, Play
from cantle.core.scaling.remaining import Overview, Remaining
from cantle.core.scaling.seam import WAKES_AT
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import Decision, DrainNode, ReleaseNode, RequestNodes, ResumeNode, WithdrawRequest
from cantle.model.resources import count, indexes

if TYPE_CHECKING:
    from cantle.core.scaling.ledger import Ledger


class Worth(msgspec.Struct, frozen=True):
    """What pays. To be over one percent sooner is worth `worth` percent more cost. `starting_costs`: a node is paid for while it starts.

    A change must save `least_gain` of what is left to pay, so that what is nearly the same changes nothing.
    """

    worth: float = 2.0
    starting_costs: bool = True
    least_gain: float = 0.02


LOOK_SHARE = 0.05
"""How it goes is looked at anew at least when so large a share of what is left should have passed."""
SOONEST_S = 1.0
"""Two looks are so far apart at least, in which nothing new has come."""


class Payoff:
    """The scaler. It remembers nothing that the state does not know, but when to look again."""

    def __init__(self, worth: Worth | None = None) -> None:
        self.worth = worth or Worth()
        self._overview = Overview()
        self._seen: object = None
        self._looked_at = -inf
        self._next = inf
        self._since = 0.0
        self._spent = 0.0
        self._rate = 0.0
        self.looks = 0
        self.steps = 0
        """How many looks there were, and how many steps their plays took together."""

    def __call__(self, plan: Plan) -> Iterator[Decision]:
        """What to ask for, and what to give back."""
        state = plan.state
        ledger = state.scaling
        if ledger is None or not ledger.kinds:
            return
        key = self._key(state, ledger)
        due = self._next if key == self._seen else max(self._looked_at + SOONEST_S, state.now if self._is_new(key) else 0)
        if state.now >= due:
            self._account(state)
            look = Look(state, ledger, self._overview, self.worth, self._since, self._spent)
            found = look.best()
            self.looks += 1
            self.steps += look.steps
            yield from list(look.decisions(found))  # each changes what the next would be made from
            self._rate = sum(kind.cost * (ledger.there(kind.name) + ledger.coming(kind.name)) for kind in look.kinds)
            self._seen = self._key(state, ledger)
            self._looked_at = state.now
            self._next = max(look.next_at(found), state.now + SOONEST_S)
            due = self._next
        plan.memory[WAKES_AT] = min(plan.memory.get(WAKES_AT, inf), due)

    def _account(self, state: State) -> None:
        """What the nodes have cost since there was something to do."""
        if self._looked_at > -inf:
            self._spent += self._rate * (state.now - self._looked_at)
        if self._idle:
            self._since, self._spent = state.now, 0.0
        self._idle = not state.unfinished

    _idle = True

    def _is_new(self, key: tuple[object, ...]) -> bool:
        return self._seen is None or key[0] != self._seen[0]  # type: ignore[index]

    def _key(self, state: State, ledger: Ledger) -> tuple[object, ...]:
        """What has changed when this has: what there is to do, nodes, and which of them idle."""
        there = (len(state.tasks), tuple(ledger.kinds), sum(study.over for study in state.studies))
        idle = (state.room.untouched & state.room.alive & ~ledger.leaving()).bit_count()
        starved = bool(state.totals[Phase.READY])
        return there, state.feasibility_version, len(ledger.requests), idle, starved


class Choice(msgspec.Struct):
    """So many nodes of each kind, who they would be, and what would come of it."""

    wanted: dict[str, int]
    members: list[Member]
    outlook: Outlook
    price: float

    @property
    def order(self) -> tuple[int, float]:
        """The less the better."""
        return self.outlook.undone, self.price


class Look:
    """One look: the picture of the state, and the choices that were played."""

    def __init__(self, state: State, ledger: Ledger, overview: Overview, worth: Worth, since: float, spent: float) -> None:
        self.state = state
        self.since, self.spent = since, spent
        self.ledger = ledger
        self.worth = worth
        self.remaining: Remaining = overview.remaining(state)
        self.steps = 0
        self.kinds = list(ledger.kinds.values())
        shapes = self.remaining.shapes
        self.groups: list[Group] = []
        self.group_of: dict[str, int] = {}
        for kind in self.kinds:
            self.group_of[kind.name] = len(self.groups)
            self.groups.append(Group(kind, shapes, ledger.starts_in_s(kind.name), worth.starting_costs, real=True))
        self._strangers = self._other_nodes()
        self.order = [self._order(shape) for shape in range(len(shapes))]
        self.there = {kind.name: self._there(kind.name) for kind in self.kinds}
        self.coming = {kind.name: self._coming(kind.name) for kind in self.kinds}
        self._played: dict[tuple[int, ...], Choice] = {}
        self.now_wanted = {kind.name: len(self.there[kind.name]) + len(self.coming[kind.name]) for kind in self.kinds}

    def _other_nodes(self) -> list[Member]:
        """Nodes that are there and of no kind that can be had: they cost nothing and stay."""
        found: dict[tuple[object, ...], int] = {}
        members = []
        for index in indexes(self.state.room.alive):
            if index in self.ledger.kind_of or index in self.state.drained:
                continue
            node = self.state.room.nodes[index]
            key = (node.cores, node.gpus, node.memory_mib, node.named, node.kind)
            if key not in found:
                kind = Kind(node.kind, node.cores, node.gpus, node.memory_mib, node.named, adds=False, removes=False)
                found[key] = len(self.groups)
                self.groups.append(Group(kind, self.remaining.shapes, 0.0, False, real=False))
            members.append(Member(found[key], index, 0.0, node.ends_at or inf))
        return members

    def _order(self, shape: int) -> list[int]:
        able = [number for number, group in enumerate(self.groups) if group.weight[shape]]
        gpus = self.remaining.shapes[shape].gpus
        return sorted(able, key=lambda n: (bool(self.groups[n].kind.gpus) and not gpus, self.groups[n].rate, n))

    def _there(self, kind: str) -> list[Member]:
        """Nodes of the kind that are there, those first that had better stay: busy ones, the longer the better."""
        state = self.state
        busy: dict[int, float] = {}
        for attempt in self.remaining.running:
            for number in attempt.nodes:
                busy[number] = max(busy.get(number, 0.0), attempt.end)
        retiring = self.ledger.retiring
        numbers = [
            index
            for index in indexes(self.ledger.up.get(kind, 0) & state.room.alive)
            if index not in self.ledger.released and (index not in state.drained or index in retiring)
        ]
        numbers.sort(key=lambda index: (index in retiring, -busy.get(index, 0.0), index))
        group = self.group_of[kind]
        return [Member(group, index, 0.0, state.room.nodes[index].ends_at or inf) for index in numbers]

    def _coming(self, kind: str) -> list[Member]:
        found = []
        group = self.group_of[kind]
        now = self.state.now
        for request in self.ledger.open.values():
            if request.kind == kind:
                late = now - request.expected_at
                arrives = request.expected_at if late < 0 else now + max(1.0, late)
                ends = arrives + self.groups[group].lasts_s
                found += [Member(group, -1, arrives, ends, request=request.number) for _ in range(request.coming)]
        return sorted(found, key=lambda member: (member.arrives, member.request))

    # Search

    def best(self) -> Choice:
        """The best choice, or the one that stands when nothing is better by enough."""
        start = self._possible(self.now_wanted)
        standing = found = self._play(start)
        found = self._search(found)
        if found is not standing and not standing.outlook.undone:
            gain = standing.price - found.price
            if gain < self.worth.least_gain * standing.price:
                return standing
        return found

    def _search(self, found: Choice) -> Choice:
        for _ in range(2):
            before = found
            for kind in self.kinds:
                found = self._along(found, kind)
            if found is before or len(self.kinds) == 1:
                break
        return found

    def _possible(self, wanted: dict[str, int]) -> dict[str, int]:
        """At least so many that each task can run somewhere."""
        found = {kind.name: max(wanted[kind.name], self._bounds(kind)[0]) for kind in self.kinds}
        left = self.remaining
        live = {left.shape[bulk]: None for bulk in left.bulks.living if left.count[bulk]}
        for shape in live:
            width = left.shapes[shape].nodes
            held = any(
                found[group.name] >= width if number < len(self.kinds) else True
                for number, group in enumerate(self.groups)
                if group.weight[shape]
            )
            able = [number for number in self.order[shape] if number < len(self.kinds)]
            if not held and able:
                kind = self.kinds[able[0]]
                found[kind.name] = max(found[kind.name], min(width, self._bounds(kind)[1]))
        return found

    def _bounds(self, kind: Kind) -> tuple[int, int]:
        have = self.now_wanted[kind.name]
        most = have + int(min(self.ledger.headroom(kind), 1 << 20)) if self.ledger.can_add(kind) else have
        if kind.most:
            most = min(most, kind.most)
        left, group = self.remaining, self.group_of[kind.name]
        weights = self.groups[group].weight
        useful = 0.0
        for bulk in left.bulks.living:
            shape = left.shape[bulk]
            if weights[shape]:
                nodes = left.shapes[shape].nodes
                useful += left.left[bulk] * (nodes if nodes > 1 else weights[shape] / kind.cores)
        return min(kind.least, most), max(kind.least, min(most, int(useful) + 1))

    def _along(self, start: Choice, kind: Kind) -> Choice:
        """The best of the choices that differ from this one in the number of nodes of a kind."""
        low, high = self._bounds(kind)
        if low >= high and start.wanted[kind.name] == low:
            return start
        have = start.wanted[kind.name]
        tries = {low, high, max(low, min(high, have))}
        step = 1
        while step <= high - low:
            tries.update(n for n in (low + step, have - step, have + step) if low <= n <= high)
            step *= 2
        played: dict[int, Choice] = {}
        for n in sorted(tries):
            played[n] = self._play({**start.wanted, kind.name: n})
        while True:
            n = min(played, key=lambda each: (played[each].order, each))
            known = sorted(played)
            at = known.index(n)
            between = [(known[i] + known[i + 1]) // 2 for i in (at - 1, at) if 0 <= i < len(known) - 1]
            further = [each for each in between if each not in played]
            if not further:
                break
            for each in further:
                played[each] = self._play({**start.wanted, kind.name: each})
        best = played[n]
        return best if best.order < start.order else start

    def _play(self, wanted: dict[str, int]) -> Choice:
        key = tuple(wanted.values())
        known = self._played.get(key)
        if known is not None:
            return known
        members = [Member(m.group, m.number, m.arrives, m.ends) for m in self._strangers]
        now = self.state.now
        for kind in self.kinds:
            group = self.groups[self.group_of[kind.name]]
            n = wanted[kind.name]
            have = [*self.there[kind.name], *self.coming[kind.name]]
            for place, member in enumerate(have):
                if place < n or member.number >= 0:
                    one = Member(member.group, member.number, member.arrives, member.ends, request=member.request)
                    one.closed = place >= n
                    members.append(one)
            arrives = now + group.starts_s
            for _ in range(n - len(have)):
                members.append(Member(self.group_of[kind.name], -1, arrives, arrives + group.lasts_s, is_new=True))
        place_of = {member.number: place for place, member in enumerate(members) if member.number >= 0}
        play = Play(self.remaining, self.groups, members, self.order, place_of)
        outlook = play.run()
        self.steps += play.steps
        price = (self.spent + outlook.cost + 1e-9) * max(outlook.end - self.since, 1e-9) ** self.worth.worth
        choice = self._played[key] = Choice(wanted, members, outlook, price)
        return choice

    # What follows

    def next_at(self, found: Choice) -> float:
        """When it is time to look again although nothing has happened."""
        now = self.state.now
        times = [now + max(SOONEST_S, LOOK_SHARE * (found.outlook.end - now))]
        for member, first in zip(found.members, found.outlook.first_use, strict=True):
            if member.is_new and first < inf:
                times.append(first - self.groups[member.group].starts_s)
        return min(time for time in times if time > now)

    def decisions(self, found: Choice) -> Iterator[Decision]:
        """What is to be done now for the choice."""
        for kind in self.kinds:
            yield from self._ask(found, kind)
            yield from self._give_back(found, kind)

    def _ask(self, found: Choice, kind: Kind) -> Iterator[Decision]:
        now = self.state.now
        group = self.group_of[kind.name]
        starts_s = self.groups[group].starts_s
        soon = now + starts_s + max(SOONEST_S, 0.1 * starts_s)
        needed = sum(
            member.is_new and member.group == group and first <= soon
            for member, first in zip(found.members, found.outlook.first_use, strict=True)
        )
        needed = min(needed, int(min(self.ledger.headroom(kind), 1 << 20)))
        if needed:
            yield RequestNodes(now, kind.name, needed, self._why_more(found, kind, needed))

    def _give_back(self, found: Choice, kind: Kind) -> Iterator[Decision]:
        """Nodes that idle and are not needed for long enough; and requests that bring what is not needed."""
        state, ledger = self.state, self.ledger
        now = state.now
        number = self.group_of[kind.name]
        group = self.groups[number]
        unneeded: dict[int, int] = {}
        kept: dict[int, int] = {}
        for member, first in zip(found.members, found.outlook.first_use, strict=True):
            if member.group != number or member.is_new:
                continue
            if member.request >= 0:
                if first < inf:
                    kept[member.request] = kept.get(member.request, 0) + 1
                continue
            idle = not state.running_on.get(member.number)
            retiring = member.number in ledger.retiring
            gap = first - now
            goes = member.closed or gap > max(group.starts_s, group.again / group.rate if group.rate else 0.0) + SOONEST_S
            if not goes and retiring:
                yield ResumeNode(now, member.number, "it is needed again")
            elif goes and kind.removes:
                why = self._why_fewer(found, first)
                if idle and state.room.untouched >> member.number & 1 or idle and retiring:
                    yield ReleaseNode(now, member.number, why)
                elif not retiring and member.closed:
                    yield DrainNode(now, member.number, why, "retires")
        for request in list(ledger.open.values()):
            if request.kind == kind.name and (spare := request.coming - kept.get(request.number, 0)) > 0:
                unneeded[request.number] = spare
        for request_number, spare in unneeded.items():
            yield WithdrawRequest(now, request_number, spare, self._why_fewer(found, inf))

    def _why_more(self, found: Choice, kind: Kind, needed: int) -> str:
        fewer = {**found.wanted, kind.name: max(self.now_wanted[kind.name], self._bounds(kind)[0])}
        without = self._played.get(tuple(fewer.values()))
        end = in_words(found.outlook.end - self.state.now)
        if without is None or without.outlook.undone:
            return f"with {count(needed, 'more node')} of kind {kind.name} all can be over in {end}"
        before = in_words(without.outlook.end - self.state.now)
        return f"{count(needed, 'more node')} of kind {kind.name} end it in {end} instead of {before}"

    def _why_fewer(self, found: Choice, first: float) -> str:
        end = in_words(found.outlook.end - self.state.now)
        if first < inf:
            return f"it is not needed for {in_words(first - self.state.now)}, and another can be there by then"
        return f"what is left ends in {end} without it"


def in_words(seconds: float) -> str:
    """`14 min`, `90 s`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
