"""How wide shall each of the ready tasks start, now?

Ask how soon everything that is ready or running could be over if nothing else ever came: call that time T. A task gets just
as many nodes as keep it from being the one that is late. Many short tasks make T long, and each runs narrow; one long task
among few goes wide. (For independent tasks this is the canonical allotment of Mounié and Trystram; here it is made anew
at every dispatch.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

from cantle.core.widths.tables import Table

_MOST_SET_ASIDE = 12
_ROUNDS = 7


class Manner:
    """How to dispatch. The defaults are for tasks whose planned width is known."""

    __slots__ = ("efficiency", "patience", "tightness")

    def __init__(self, tightness: float = 1.0, efficiency: float = 0.2, patience: float = 0.5) -> None:
        self.tightness = tightness
        """A task may take this many times T."""
        self.efficiency = efficiency
        """No task gets so wide that its area is more than the least divided by this."""
        self.patience = patience
        """A task whose width is not free takes what is free if it is at least this share, and otherwise waits."""


PLANNED = Manner()
BLIND = Manner(1.3, 0.2, 0.8)
"""For when nothing is known beyond the ready tasks."""

Key = tuple[float, float, int]
"""The urgency that the user gave, the priority, both negated, and the task's number: the least goes first."""

Waiting = tuple[Table, int, int, Key, float, int]
"""Table, base level, highest level, key, seconds that hang on it, weight."""


class Dispatch:
    """The ready and the running tasks of one pool of nodes, and what to start next.

    Tasks bear numbers. Whoever owns it tells what becomes ready, what begins and what is over, and acts on `starts`. Tasks of
    one group fit on the same nodes; a node's share of a task weighs `weight` of the `slots`, which are cores where tasks
    differ in that, and nodes where they do not. Costs per task by the logarithm of those that are ready, and by the slots.
    """

    __slots__ = (
        "_base_area",
        "_end_weight",
        "_ends",
        "_long",
        "_order",
        "_ready",
        "_running",
        "_shelves",
        "manner",
        "slots",
        "spare",
    )

    def __init__(self, slots: int, manner: Manner = PLANNED) -> None:
        self.slots = slots
        self.manner = manner
        self._ready: dict[int, Waiting] = {}
        self._shelves: dict[tuple[int, int], list[Key]] = {}
        """Heaps by (base width, group)."""
        self._order: list[tuple[int, int]] = []
        self._long: list[tuple[float, int]] = []
        """The ready tasks that can be widened, by falling time at their base width."""
        self.spare: dict[int, int] = {}
        """What the last call of `starts` left free in its own reckoning, by group."""
        self._base_area = 0.0
        self._running: dict[int, tuple[float, float]] = {}
        self._end_weight = 0.0
        self._ends = 0.0

    def __len__(self) -> int:
        return len(self._ready)

    def __contains__(self, task: int) -> bool:
        return task in self._ready

    # What has happened

    def ready(
        self,
        task: int,
        table: Table,
        base: int,
        priority: float,
        tail: float,
        *,
        group: int = 0,
        weight: int = 1,
        urgency: float = 0.0,
    ) -> None:
        """The task may start, not narrower than at level `base`; seconds `tail` hang on it."""
        key = (-urgency, -priority, task)
        ceiling = max(base, table.widest(self.manner.efficiency))
        self._ready[task] = (table, base, ceiling, key, tail, weight)
        shelf = (table.widths[base], group)
        heap = self._shelves.get(shelf)
        if heap is None:
            heap = self._shelves[shelf] = []
            insort(self._order, shelf)
        heappush(heap, key)
        self._base_area += weight * table.areas[base]
        if ceiling > base:
            insort(self._long, (table.falling[base], task))

    def gone(self, task: int) -> None:
        """The task is no longer ready. It stays on its shelf until it comes to the head."""
        table, base, ceiling, _, _, weight = self._ready.pop(task)
        self._base_area = self._base_area - weight * table.areas[base] if self._ready else 0.0
        if ceiling > base:
            del self._long[bisect_left(self._long, (table.falling[base], task))]

    def begun(self, task: int, width: int, end: float) -> None:
        """The task runs on so many slots, until then as far as anybody knows."""
        self._running[task] = (width, width * end)
        self._end_weight += width
        self._ends += width * end

    def over(self, task: int) -> None:
        """It does not run any more."""
        weight, weighted = self._running.pop(task)
        if self._running:
            self._end_weight -= weight
            self._ends -= weighted
        else:
            self._end_weight = self._ends = 0.0  # no rounding errors carried on

    # What to do

    def starts(self, now: float, free: dict[int, int]) -> list[tuple[int, int]]:
        """The tasks to start now, with their levels, given on how many free nodes a task of each group would fit.

        They count as no longer ready. What one group takes is taken from all, so that whatever is here can be done.
        """
        most = max(free.values(), default=0)
        if not self._ready or most <= 0:
            return []
        free = dict(free)
        horizon_s = self.horizon_s(now)
        bar = -horizon_s * self.manner.tightness
        if self.manner.tightness < 1 and self._all_fit(horizon_s, most):
            bar = -horizon_s
        patience = self.manner.patience
        ready = self._ready
        self.spare = free
        started: list[tuple[int, int]] = []
        groups: dict[int, int] = {}
        aside: list[tuple[tuple[int, int], Key]] = []
        while most > 0:
            shelf = self._head(free, most)
            if shelf is None:
                break
            group = shelf[1]
            key = heappop(self._shelves[shelf])
            task = key[2]
            table, base, ceiling, _, _, _ = ready[task]
            level = base
            if ceiling > base:
                room = free[group]
                level = bisect_left(table.falling, bar, base, ceiling)
                if (wanted := table.widths[level]) > room:
                    if room < patience * wanted:
                        aside.append((shelf, key))
                        if len(aside) == _MOST_SET_ASIDE:
                            break
                        continue
                    while table.widths[level] > room:
                        level -= 1
            most = self._take(free, table.widths[level])
            groups[task] = group
            started.append((task, level))
        for shelf, key in aside:
            heappush(self._shelves[shelf], key)
        if started and most > 0 and len(started) == len(ready):
            started = self._share_out(started, groups, free)
        for task, _ in started:
            self.gone(task)
        return started

    def _all_fit(self, horizon_s: float, room: int) -> bool:
        """Whether all that is ready could start at once on so many nodes, each wide enough to be over within T."""
        for table, base, ceiling, _, _, _ in self._ready.values():
            room -= table.widths[bisect_left(table.falling, -horizon_s, base, ceiling)]
            if room < 0:
                return False
        return True

    def advice(self, task: int, now: float, room: int) -> int:
        """On how many of so many free nodes the task should start now, 0 when it had better wait."""
        entry = self._ready.get(task)
        if entry is None:
            return 0
        table, base, ceiling, _, _, _ = entry
        level = bisect_left(table.falling, -self.horizon_s(now) * self.manner.tightness, base, ceiling)
        if (wanted := table.widths[level]) > room:
            if room < self.manner.patience * wanted:
                return 0
            while level > base and table.widths[level] > room:
                level -= 1
        return table.widths[level] if table.widths[level] <= room else 0

    @staticmethod
    def _take(free: dict[int, int], width: int) -> int:
        """So many nodes are taken; what is left of the group that has the most."""
        most = 0
        for group, room in free.items():
            room -= width
            free[group] = room
            if room > most:
                most = room
        return most

    def horizon_s(self, now: float) -> float:
        """T: the time within which all that is ready and running could be over, were there nothing else."""
        running = max(0.0, self._ends - self._end_weight * now)
        slots = self.slots
        tightness = self.manner.tightness
        load = running + self._base_area
        low = load / slots
        long = self._long
        if not long or -long[0][0] <= tightness * low:
            return low
        ready = self._ready

        def need(horizon: float) -> float:
            bar = -tightness * horizon
            area = load
            for falling, task in long:
                if falling >= bar:
                    break
                table, base, ceiling, _, _, weight = ready[task]
                areas = table.areas
                area += weight * (areas[bisect_left(table.falling, bar, base, ceiling)] - areas[base])
            return area / slots

        high = need(low)
        for _ in range(_ROUNDS):
            if high - low <= 1e-3 * high:
                break
            middle = (low + high) / 2
            needed = need(middle)
            if needed <= middle:
                high = middle
            else:
                low = max(middle, low)
                high = min(high, needed)
        return high

    def _head(self, free: dict[int, int], most: int) -> tuple[int, int] | None:
        """The shelf of the most urgent ready task that fits at its base width; it is at the shelf's head."""
        found: tuple[int, int] | None = None
        best: Key | None = None
        ready = self._ready
        for shelf in self._order:
            width, group = shelf
            if width > most:
                break
            if width > free.get(group, 0):
                continue
            heap = self._shelves[shelf]
            while heap and ((entry := ready.get(heap[0][2])) is None or entry[3] is not heap[0]):
                heappop(heap)
            if heap and (best is None or heap[0] < best):
                found, best = shelf, heap[0]
        return found

    def _share_out(
        self, started: list[tuple[int, int]], groups: dict[int, int], free: dict[int, int]
    ) -> list[tuple[int, int]]:
        """Nobody waits: what is left goes, step by step, to whom the most hangs on."""
        levels = dict(started)
        ready = self._ready
        heap: list[tuple[float, int]] = []
        for task, level in started:
            table, _, ceiling, _, tail, _ = ready[task]
            if level < ceiling:
                heap.append((-(table.times[level] + tail), task))
        heapify(heap)
        while heap:
            _, task = heappop(heap)
            table, _, ceiling, _, tail, _ = ready[task]
            level = levels[task] + 1
            more = table.widths[level] - table.widths[level - 1]
            if more > free[groups[task]]:
                continue
            self._take(free, more)
            levels[task] = level
            if level < ceiling:
                heappush(heap, (-(table.times[level] + tail), task))
        return [(task, levels[task]) for task, _ in started]
