"""How wide shall each of the ready tasks start, now?

Ask how soon everything that is ready or running could be over if nothing else ever came: call that time T. A task gets just
as many nodes as keep it from being the one that is late. Many short tasks make T long, and each runs narrow; one long task
among few goes wide. (For independent tasks this is the canonical allotment of Mounié and Trystram; here it is made anew
at every dispatch.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush

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

Key = tuple[float, int]


class Dispatch:
    """The ready and the running tasks of one pool of nodes, and what to start next.

    Tasks bear numbers. Whoever owns it tells what becomes ready, what begins and what is over, and acts on `starts`.
    Costs per task by the logarithm of those that are ready, and by the slots.
    """

    __slots__ = (
        "_base_area",
        "_end_weight",
        "_ends",
        "_heaps",
        "_long",
        "_order",
        "_ready",
        "_running",
        "manner",
        "slots",
    )

    def __init__(self, slots: int, manner: Manner = PLANNED) -> None:
        self.slots = slots
        self.manner = manner
        self._ready: dict[int, tuple[Table, int, int, Key, float]] = {}
        self._heaps: dict[int, list[Key]] = {}
        self._order: list[int] = []
        self._long: list[Key] = []
        """The ready tasks that can be widened, by falling time at their base width."""
        self._base_area = 0.0
        self._running: dict[int, tuple[float, float]] = {}
        self._end_weight = 0.0
        self._ends = 0.0

    def __len__(self) -> int:
        return len(self._ready)

    def __contains__(self, task: int) -> bool:
        return task in self._ready

    # What has happened

    def ready(self, task: int, table: Table, base: int, priority: float, tail: float) -> None:
        """The task may start, not narrower than at level `base`; seconds `tail` hang on it."""
        key = (-priority, task)
        ceiling = max(base, table.widest(self.manner.efficiency))
        self._ready[task] = (table, base, ceiling, key, tail)
        width = table.widths[base]
        heap = self._heaps.get(width)
        if heap is None:
            heap = self._heaps[width] = []
            insort(self._order, width)
        heappush(heap, key)
        self._base_area += table.areas[base]
        if ceiling > base:
            insort(self._long, (table.falling[base], task))

    def gone(self, task: int) -> None:
        """The task is no longer ready. It stays in its heap until it comes to the head."""
        table, base, ceiling, _, _ = self._ready.pop(task)
        self._base_area -= table.areas[base]
        if ceiling > base:
            entry = (table.falling[base], task)
            del self._long[bisect_left(self._long, entry)]

    def begun(self, task: int, width: int, end: float) -> None:
        """The task runs on so many nodes, until then as far as anybody knows."""
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

    def starts(self, now: float, free: int) -> list[tuple[int, int]]:
        """The tasks to start now on so many free nodes, with their levels. They count as no longer ready."""
        if not self._ready or free <= 0:
            return []
        horizon_s = self.horizon_s(now) * self.manner.tightness
        patience = self.manner.patience
        ready = self._ready
        started: list[tuple[int, int]] = []
        aside: list[tuple[int, Key]] = []
        while free:
            found = self._head(free)
            if found is None:
                break
            width, key = found
            heappop(self._heaps[width])
            task = key[1]
            table, base, ceiling, _, _ = ready[task]
            level = base
            if ceiling > base:
                level = bisect_left(table.falling, -horizon_s, base, ceiling)
                if (wanted := table.widths[level]) > free:
                    if free < patience * wanted:
                        aside.append((width, key))
                        if len(aside) == _MOST_SET_ASIDE:
                            break
                        continue
                    while table.widths[level] > free:
                        level -= 1
                width = table.widths[level]
            free -= width
            started.append((task, level))
        for width, key in aside:
            heappush(self._heaps[width], key)
        if started and free and len(started) == len(ready):
            started = self._share_out(started, free)
        for task, _ in started:
            self.gone(task)
        return started

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
                table, base, ceiling, _, _ = ready[task]
                areas = table.areas
                area += areas[bisect_left(table.falling, bar, base, ceiling)] - areas[base]
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

    def _head(self, free: int) -> tuple[int, Key] | None:
        """The most urgent ready task that fits at its base width, and that width."""
        best: tuple[int, Key] | None = None
        ready = self._ready
        for width in self._order:
            if width > free:
                break
            heap = self._heaps[width]
            while heap and ((entry := ready.get(heap[0][1])) is None or entry[3] != heap[0]):
                heappop(heap)
            if heap and (best is None or heap[0] < best[1]):
                best = (width, heap[0])
        return best

    def _share_out(self, started: list[tuple[int, int]], free: int) -> list[tuple[int, int]]:
        """Nobody waits: what is left goes, step by step, to whom the most hangs on."""
        levels = dict(started)
        ready = self._ready
        heap: list[Key] = []
        for task, level in started:
            table, _, ceiling, _, tail = ready[task]
            if level < ceiling:
                heap.append((-(table.times[level] + tail), task))
        heap.sort()
        while heap and free:
            _, task = heappop(heap)
            table, _, ceiling, _, tail = ready[task]
            level = levels[task] + 1
            more = table.widths[level] - table.widths[level - 1]
            if more > free:
                continue
            free -= more
            levels[task] = level
            if level < ceiling:
                heappush(heap, (-(table.times[level] + tail), task))
        return [(task, levels[task]) for task, _ in started]
