"""With how many nodes of each kind are time and cost the best bargain?

What is left is played through with each number that is worth a try.
Along each kind in turn: as many as there are, fewer and more in steps that double, then between those that are best. So the
number of plays grows with the logarithm of what may be asked for.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec

from cantle.core.scaling.idle import partitions_wanted
from cantle.core.scaling.outlook import Group, Member, Outlook, Play
from cantle.core.scaling.remaining import Remaining
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.resources import indexes

if TYPE_CHECKING:
    from cantle.core.scaling.ledger import Ledger, Request

LEAST_GAIN = 0.02
"""What is better by less changes nothing: the estimates are not that good, and every change costs something."""
LATE_S = 1.0
"""What should have come is expected to come as much later as it is late, at least so much."""


class Choice(msgspec.Struct):
    """So many nodes of each kind, who they would be, and what would come of it. The lower its `price` the better."""

    wanted: dict[str, int]
    members: list[Member]
    outlook: Outlook
    price: float

    @property
    def order(self) -> tuple[int, float]:
        """The less the better: first of all everything must be able to run."""
        return self.outlook.undone, self.price


class Trials:
    """One moment, and what was tried for it.

    Time counts from `since`, and cost has been `spent` by now: a run is judged as a whole. `worth`: to be over one percent
    sooner is worth so many percent more cost.
    """

    def __init__(
        self, state: State, remaining: Remaining, worth: float, since: float = 0.0, spent: float = 0.0
    ) -> None:
        assert state.scaling is not None
        self.state = state
        self.ledger: Ledger = state.scaling
        self.remaining = remaining
        self.worth, self.since, self.spent = worth, since, spent
        self.steps = 0
        """How much all plays did together."""
        self.kinds = list(self.ledger.kinds.values())
        self.number_of: dict[str, int] = {}
        self.groups: list[Group] = []
        for number, kind in enumerate(self.kinds):
            self.number_of[kind.name] = number
            self.groups.append(Group(kind, remaining.shapes, self._starts_in_s(kind.name)))
        self._others = self._other_nodes()
        self._order = [self._order_for(shape) for shape in range(len(remaining.shapes))]
        self._have = {kind.name: self._there(kind.name) + self._coming(kind.name) for kind in self.kinds}
        self.floor = self._floor()
        self._played: dict[tuple[int, ...], Choice] = {}

    def have(self, kind: str) -> int:
        """How many nodes of the kind are there, those that retire included, or on their way."""
        return len(self._have[kind])

    # Which nodes there are

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
                kind = Kind(node.kind, node.cores, node.gpus, node.memory_mib, node.named, cost=0.0, adds=False)
                found[key] = len(self.groups)
                self.groups.append(Group(kind, self.remaining.shapes, 0.0))
            members.append(Member(found[key], index, 0.0, node.ends_at or inf))
        return members

    def _order_for(self, shape: int) -> list[int]:
        """The groups that can hold it, the cheapest first; those with GPUs only if it must be one."""
        able = [number for number, group in enumerate(self.groups) if group.weight[shape]]
        if not self.remaining.shapes[shape].gpus:
            plain = [number for number in able if not self.groups[number].kind.gpus]
            able = plain if any(self._can_be_had(number) for number in plain) else able
        return sorted(able, key=lambda n: (bool(self.groups[n].kind.gpus), self.groups[n].rate, n))

    def _can_be_had(self, number: int) -> bool:
        return number >= len(self.kinds) or self.ledger.can_add(self.kinds[number])

    def _there(self, kind: str) -> list[Member]:
        """Nodes of the kind that are there, those first that had better stay: busy ones, the longer the better."""
        state, retiring = self.state, self.ledger.retiring
        busy: dict[int, float] = {}
        for attempt in self.remaining.running:
            for index in attempt.nodes:
                busy[index] = max(busy.get(index, 0.0), attempt.end)
        found = self.ledger.usable(state, kind)
        for index in retiring:
            found |= self.ledger.up.get(kind, 0) & 1 << index
        numbers = sorted(indexes(found), key=lambda index: (index in retiring, -busy.get(index, 0.0), index))
        group = self.number_of[kind]
        return [Member(group, index, 0.0, state.room.nodes[index].ends_at or inf) for index in numbers]

    def _coming(self, kind: str) -> list[Member]:
        found = []
        group, now = self.number_of[kind], self.state.now
        for request in self.ledger.open.values():
            if request.kind == kind:
                arrives = _arrives(request, now)
                ends = arrives + self.groups[group].lasts_s
                found += [Member(group, -1, arrives, ends, request=request.number) for _ in range(request.coming)]
        return sorted(found, key=lambda member: (member.arrives, member.request))

    def _starts_in_s(self, kind: str) -> float:
        """How long one takes to come that is asked for now: not less than those that were asked for before, and wait still.

        Otherwise one that is late would be withdrawn for a new one, which waits behind all others.
        """
        now = self.state.now
        behind = (_arrives(each, now) - now for each in self.ledger.open.values() if each.kind == kind and each.coming)
        return max(self.ledger.starts_in_s(kind), max(behind, default=0.0))

    def _floor(self) -> dict[str, int]:
        """How many nodes of each kind partitions have or wait for: those are wanted whatever a play says."""
        floor = {kind.name: 0 for kind in self.kinds}
        for partition in self.state.partitions.living.values():
            for index in indexes(partition.room.alive):
                kind_of = self.ledger.kind_of.get(index)
                if kind_of is not None:
                    floor[kind_of] += 1
        for needs, width, number in partitions_wanted(self.state):
            able = [kind for kind in self.kinds if kind.could_hold(needs)]
            if able:
                kind = min(able, key=lambda each: (bool(each.gpus) and not needs.gpus, each.cost))
                floor[kind.name] += width * number
        return floor

    # Search

    def best(self) -> Choice:
        """The best choice; the one that stands when no other is better by enough."""
        standing = found = self.play(self._start())
        for _ in range(2):
            before = found
            for kind in self.kinds:
                found = self._along(found, kind)
            if found is before or len(self.kinds) == 1:
                break
        enough = standing.outlook.undone or found.price < (1 - LEAST_GAIN) * standing.price
        return found if enough else standing

    def _start(self) -> dict[str, int]:
        """What there is, and so much more that each task can run somewhere."""
        left = self.remaining
        found = {kind.name: max(self.have(kind.name), self.bounds(kind)[0]) for kind in self.kinds}
        for shape in {left.shape[bulk]: None for bulk in left.bulks.living if left.count[bulk]}:
            width = left.shapes[shape].nodes
            able = [self.kinds[number] for number in self._order[shape] if number < len(self.kinds)]
            held = len(able) < len(self._order[shape]) or any(found[kind.name] >= width for kind in able)
            if not held and able:
                found[able[0].name] = max(found[able[0].name], min(width, self.bounds(able[0])[1]))
        return found

    def bounds(self, kind: Kind) -> tuple[int, int]:
        """The fewest and the most nodes of the kind that are worth a try."""
        have = self.have(kind.name)
        most = have + self.ledger.headroom(kind)
        least = min(max(kind.least, self.floor[kind.name]), most)
        left = self.remaining
        weights = self.groups[self.number_of[kind.name]].weight
        useful = 1.0
        for bulk in left.bulks.living:
            shape = left.shape[bulk]
            if weights[shape]:
                nodes = left.shapes[shape].nodes
                useful += left.left[bulk] * (nodes if nodes > 1 else weights[shape] / kind.cores)
        return least, max(least, min(most, int(useful)))

    def _along(self, start: Choice, kind: Kind) -> Choice:
        """The best of the choices that differ from this one in the number of nodes of a kind."""
        low, high = self.bounds(kind)
        have = max(low, min(high, start.wanted[kind.name]))
        tries = {low, have, high}
        step = 1
        while step <= high - low:
            tries.update(n for n in (low + step, have - step, have + step) if low <= n <= high)
            step *= 2
        played = {n: self.play({**start.wanted, kind.name: n}) for n in sorted(tries)}
        while True:
            n = min(played, key=lambda each: (played[each].order, each))
            known = sorted(played)
            at = known.index(n)
            between = [(known[i] + known[i + 1]) // 2 for i in (at - 1, at) if 0 <= i < len(known) - 1]
            further = [each for each in between if each not in played]
            if not further:
                return played[n] if played[n].order <= start.order else start
            for each in further:
                played[each] = self.play({**start.wanted, kind.name: each})

    def play(self, wanted: dict[str, int]) -> Choice:
        """What would come of so many nodes of each kind."""
        key = tuple(wanted.values())
        if key in self._played:
            return self._played[key]
        now = self.state.now
        members = list(self._others)
        for kind in self.kinds:
            number, have = self.number_of[kind.name], self._have[kind.name]
            group = self.groups[number]
            for place, member in enumerate(have):
                if place < wanted[kind.name]:
                    members.append(member)
                elif member.number >= 0:
                    members.append(member.as_closed())
            arrives = now + group.starts_s
            new = Member(number, -1, arrives, arrives + group.lasts_s, is_new=True)
            members += [new] * (wanted[kind.name] - len(have))
        play = Play(self.remaining, self.groups, members, self._order)
        outlook = play.run()
        self.steps += play.steps
        took = max(outlook.end - self.since, 1e-9)
        choice = Choice(wanted, members, outlook, (self.spent + outlook.cost + 1e-9) * took**self.worth)
        self._played[key] = choice
        return choice


def _arrives(request: Request, now: float) -> float:
    """When the nodes come: as expected, and where that is over once more as late as they are already."""
    late = now - request.expected_at
    return request.expected_at if late < 0 else now + max(LATE_S, late)
