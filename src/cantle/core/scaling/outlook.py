"""When would it all end with these nodes, and what would it cost? A list schedule of what is left, on nodes that come and go.

Most urgent first, each task on the fullest node that holds it, as the packer does. A node costs from its first task to its
last, and while it starts; where it idles in between, whatever is cheaper: it is kept, or given back and asked for again in
time. One that would never be used costs nothing, as it is never asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

from cantle.core.scaling.remaining import Remaining
from cantle.model.kinds import Kind
from cantle.model.resources import Needs

MOST_TASKS = 2000
"""Of more tasks than so many, and than"""
WAVES = 4
"""so many for each core, some that follow each other are played as one."""


class Group:
    """Nodes that are alike. `weight` says for each shape how many cores of one a task takes at least, 0 if it cannot run there.

    `rate` is the cost of a node a second, also while it starts; `starts_s` how long that takes. `again` is what it costs to
    give one back and to ask for it anew, infinite if that cannot be. `lasts_s`: how long a new one stays.
    """

    def __init__(self, kind: Kind, shapes: Sequence[Needs], starts_s: float) -> None:
        self.kind = kind
        self.name = kind.name
        self.cores = kind.cores
        self.rate = kind.cost
        self.starts_s = starts_s
        self.start_cost = starts_s * self.rate
        self.again = self.start_cost if kind.adds and kind.removes else inf
        self.lasts_s = kind.lasts_s or inf
        self.weight = [_weight(kind, needs) for needs in shapes]


class Member:
    """A node as the schedule sees it: there, on its way, or yet to be asked for (`number` below 0: no node of the state's).

    It is there from `arrives` to `ends`. One that is `closed` takes nothing new. `request` brings it, below 0 for none.
    """

    __slots__ = ("arrives", "closed", "ends", "group", "is_new", "number", "request")

    def __init__(
        self, group: int, number: int, arrives: float, ends: float, is_new: bool = False, request: int = -1
    ) -> None:
        self.group = group
        self.number = number
        self.arrives = arrives
        self.ends = ends
        self.is_new = is_new
        self.request = request
        self.closed = False

    def as_closed(self) -> Member:
        """The same, but that it takes nothing new."""
        found = Member(self.group, self.number, self.arrives, self.ends, self.is_new, self.request)
        found.closed = True
        return found


class Outlook:
    """How it would go: when all is over, what the nodes cost until then, and when each is used for the first time from now.

    `undone`: so many tasks could never run on these nodes.
    """

    __slots__ = ("cost", "end", "first_use", "undone")

    def __init__(self, members: int) -> None:
        self.end = 0.0
        self.cost = 0.0
        self.undone = 0
        self.first_use = [inf] * members


def _weight(kind: Kind, needs: Needs) -> int:
    if not kind.could_hold(needs):
        return 0
    if needs.whole_nodes:
        return kind.cores
    fits = kind.cores // max(1, needs.cores)
    if needs.gpus:
        fits = min(fits, kind.gpus // needs.gpus)
    if needs.memory_mib and kind.memory_mib:
        fits = min(fits, kind.memory_mib // needs.memory_mib)
    mine = dict(kind.named)
    for name, n in needs.named:
        fits = min(fits, mine[name] // n)
    return max(needs.cores, -(-kind.cores // fits)) if fits else kind.cores


def _throttles(remaining: Remaining) -> dict[int, int]:
    """Of studies with a throttle: how many more of their tasks may begin."""
    studies = remaining.state.studies
    return {
        number: studies[number].limits.throttle - studies[number].in_progress
        for number in dict.fromkeys(remaining.studies)
        if studies[number].limits.throttle
    }


class Play:
    """One schedule. `steps` counts what it did, so that its cost can be bounded without a clock."""

    def __init__(
        self,
        remaining: Remaining,
        groups: Sequence[Group],
        members: Sequence[Member],
        order: Sequence[Sequence[int]],
    ) -> None:
        self.remaining = remaining
        self.groups = groups
        self.members = members
        self.order = order
        """For each shape the groups that can hold it, those first that nothing else wants."""
        self.place_of = {member.number: place for place, member in enumerate(members) if member.number >= 0}
        self.now = remaining.state.now
        self.steps = 0
        self.outlook = Outlook(len(members))
        self.free = [0] * len(members)
        self.by_free = [[0] * (group.cores + 1) for group in groups]
        self.levels = [0] * len(groups)
        self.idle_from = [member.arrives for member in members]
        self.busy_from = [0.0] * len(members)
        self.ends = [member.ends for member in members]
        self.mortal = any(ends < inf for ends in self.ends)
        self.seconds = remaining.seconds
        self.available = list(remaining.ready)
        self.waiting = list(remaining.count)
        self.left = list(remaining.left)
        self._coarsen(sum(groups[member.group].cores for member in members))
        self.blockers = list(remaining.blockers)
        self.ready: list[list[tuple[float, int]]] = [[] for _ in remaining.shapes]
        self.may_begin = _throttles(remaining)
        self.heap: list[tuple[float, int, int, int, int]] = []
        """What happens: time, bulk (below 0: a node comes), place, cores, how many tasks."""

    def run(self) -> Outlook:
        """Play it to the end."""
        remaining, heap = self.remaining, self.heap
        self._set_up()
        for bulk in remaining.bulks.living:
            if not self.blockers[bulk]:
                self.available[bulk] = self.waiting[bulk]
            if self.available[bulk]:
                heappush(self.ready[remaining.shape[bulk]], (-remaining.rank[bulk], bulk))
        heapify(heap)
        now = self.now
        self._begin(now)
        while heap:
            now = heap[0][0]
            while heap and heap[0][0] <= now:
                _, bulk, place, cores, tasks = heappop(heap)
                self.steps += 1
                if bulk < 0:
                    self._put(place, self.groups[self.members[place].group].cores)
                    continue
                if place >= 0:
                    self._give_back(place, cores, now)
                if tasks:
                    if self.may_begin:
                        self._let_more_begin(bulk, tasks)
                    self._over(bulk, tasks)
            self._begin(now)
        outlook = self.outlook
        outlook.end = max(now, self.now)
        outlook.undone = sum(count for count, waiting in zip(remaining.count, self.waiting, strict=True) if waiting)
        return outlook

    def _coarsen(self, cores: int) -> None:
        """Where there are many tasks for each core, some that follow each other on it are taken for one."""
        grain = sum(self.waiting) // max(MOST_TASKS, WAVES * cores)
        if grain <= 1:
            return
        self.seconds = list(self.remaining.seconds)
        for bulk in self.remaining.bulks.living:
            tasks = self.waiting[bulk]
            if tasks > 1:
                fewer = -(-tasks // grain)
                self.seconds[bulk] *= tasks / fewer
                self.waiting[bulk] = fewer
                self.left[bulk] += fewer - tasks
                self.available[bulk] = -(-self.available[bulk] * fewer // tasks)

    def _set_up(self) -> None:
        used = [0] * len(self.members)
        for attempt in self.remaining.running:
            first = True
            for number in attempt.nodes:
                place = self.place_of.get(number, -1)
                cores = 0
                if place >= 0:
                    group = self.groups[self.members[place].group]
                    cores = min(group.weight[attempt.shape] or group.cores, group.cores - used[place])
                    used[place] += cores
                self.heap.append((attempt.end, attempt.bulk, place, cores, int(first)))
                first = False
        for place, member in enumerate(self.members):
            group = self.groups[member.group]
            if used[place]:
                self.outlook.first_use[place] = self.now
                self.busy_from[place] = self.now
            if member.arrives > self.now:
                self.heap.append((member.arrives, -1, place, 0, 0))
            else:
                self._put(place, group.cores - used[place])

    def _put(self, place: int, cores: int) -> None:
        """The node is there, with so many free cores."""
        self.free[place] = cores
        member = self.members[place]
        if not member.closed:
            self.by_free[member.group][cores] |= 1 << place
            self.levels[member.group] |= 1 << cores

    def _move(self, place: int, group: int, before: int, after: int) -> None:
        by_free = self.by_free[group]
        bit = 1 << place
        by_free[before] ^= bit
        if not by_free[before]:
            self.levels[group] ^= 1 << before
        by_free[after] |= bit
        self.levels[group] |= 1 << after

    def _give_back(self, place: int, cores: int, now: float) -> None:
        if not cores:
            return
        member = self.members[place]
        before = self.free[place]
        after = self.free[place] = before + cores
        if not member.closed:
            self._move(place, member.group, before, after)
        group = self.groups[member.group]
        if after == group.cores:
            self.outlook.cost += group.rate * (now - self.busy_from[place])
            self.idle_from[place] = now

    def _let_more_begin(self, bulk: int, tasks: int) -> None:
        study = self.remaining.studies[self.remaining.shape[bulk]]
        if study in self.may_begin:
            self.may_begin[study] += tasks

    def _over(self, bulk: int, tasks: int) -> None:
        left = self.left[bulk] = self.left[bulk] - tasks
        if left:
            return
        remaining = self.remaining
        for child in remaining.children[bulk]:
            self.blockers[child] -= 1
            if not self.blockers[child] and self.waiting[child] > self.available[child]:
                if not self.available[child]:
                    heappush(self.ready[remaining.shape[child]], (-remaining.rank[child], child))
                self.available[child] = self.waiting[child]

    def _begin(self, now: float) -> None:
        """Start what fits, most urgent first; what does not is passed over."""
        ready, remaining = self.ready, self.remaining
        open_ = [shape for shape, heap in enumerate(ready) if heap]
        while open_:
            shape = open_[0]
            if len(open_) > 1:
                shape = min(open_, key=lambda each: ready[each][0])
            heap = ready[shape]
            bulk = heap[0][1]
            available = self.available[bulk]
            may_begin = min(available, self.may_begin.get(remaining.studies[shape], available))
            begun = self._place(bulk, shape, may_begin, now) if may_begin else 0
            self.available[bulk] = available - begun
            self.waiting[bulk] -= begun
            if self.may_begin:
                self._let_more_begin(bulk, -begun)
            if begun < available:
                open_.remove(shape)
            else:
                heappop(heap)
                if not heap:
                    open_.remove(shape)

    def _place(self, bulk: int, shape: int, wanted: int, now: float) -> int:
        """Begin so many of the bulk's tasks as there is room for."""
        needs = self.remaining.shapes[shape]
        seconds = self.seconds[bulk]
        begun = 0
        for number in self.order[shape]:
            weight = self.groups[number].weight[shape]
            if needs.nodes > 1:
                while begun < wanted and self._place_wide(bulk, number, weight, needs.nodes, now, now + seconds):
                    begun += 1
                continue
            by_free = self.by_free[number]
            while begun < wanted:
                high = self.levels[number] >> weight
                if not high:
                    break
                level = weight + (high & -high).bit_length() - 1
                nodes = by_free[level]
                place = (nodes & -nodes).bit_length() - 1
                if self.mortal:
                    found = self._one_that_lasts(number, weight, now, now + seconds)
                    if found < 0:
                        break
                    place, level = found, self.free[found]
                many = level // weight
                many = min(many, wanted - begun)
                self._take(place, number, level, many * weight, now)
                heappush(self.heap, (now + seconds, bulk, place, many * weight, many))
                begun += many
                self.steps += 1
            if begun == wanted:
                break
        return begun

    def _place_wide(self, bulk: int, number: int, weight: int, width: int, now: float, end: float) -> bool:
        """Begin one task on several nodes, all or nothing."""
        found: list[int] = []
        for nodes in self.by_free[number][weight:]:
            while nodes and len(found) < width:
                low = nodes & -nodes
                nodes ^= low
                if self.ends[low.bit_length() - 1] >= end:
                    found.append(low.bit_length() - 1)
        if len(found) < width:
            return False
        for i, place in enumerate(found):
            self._take(place, number, self.free[place], weight, now)
            heappush(self.heap, (end, bulk, place, weight, 0 if i else 1))
        self.steps += width
        return True

    def _one_that_lasts(self, number: int, weight: int, now: float, end: float) -> int:
        """The fullest node that has the room and is there until then, -1 for none. A new one that is empty can be renewed."""
        group = self.groups[number]
        for level, nodes in enumerate(self.by_free[number][weight:], weight):
            while nodes:
                low = nodes & -nodes
                nodes ^= low
                place = low.bit_length() - 1
                member = self.members[place]
                self.steps += 1
                if self.ends[place] >= end:
                    return place
                if member.is_new and level == group.cores and now + group.lasts_s >= end:
                    self.outlook.cost += group.start_cost
                    self.ends[place] = now + group.lasts_s
                    return place
        return -1

    def _take(self, place: int, number: int, level: int, cores: int, now: float) -> None:
        group = self.groups[number]
        if level == group.cores:
            outlook = self.outlook
            gap = now - self.idle_from[place]
            if outlook.first_use[place] == inf:
                outlook.first_use[place] = now
                member = self.members[place]
                if member.is_new:
                    gap = 0.0
                    outlook.cost += group.start_cost
                elif member.arrives > self.now and group.start_cost:
                    outlook.cost += group.rate * (member.arrives - self.now)
            if gap:
                outlook.cost += min(gap * group.rate, group.again) if gap > group.starts_s else gap * group.rate
            self.busy_from[place] = now
        self.free[place] = level - cores
        self._move(place, number, level, level - cores)
