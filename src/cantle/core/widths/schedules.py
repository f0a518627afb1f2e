"""When would everything be over? Whole schedules on a pool of alike nodes, from planned widths or chosen as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from cantle.core.widths.dispatch import Dispatch, Manner
from cantle.core.widths.graph import Graph

NEVER = float("inf")


class Schedule:
    """For each task its level, start and finish in seconds; and when all is over."""

    __slots__ = ("finishes", "levels", "makespan_s", "starts")

    def __init__(self, levels: list[int], starts: list[float], finishes: list[float]) -> None:
        self.levels = levels
        self.starts = starts
        self.finishes = finishes
        self.makespan_s = max(finishes, default=0.0)


def in_order(
    graph: Graph,
    levels: Sequence[int],
    priorities: Sequence[float],
    slots: int,
    limit_s: float = NEVER,
    *,
    backward: bool = False,
    tails: Sequence[float] | None = None,
) -> Schedule | None:
    """Start whatever is ready and fits, the highest priority first. None when it would take longer than `limit_s`.

    With `tails`, nodes that nobody waits for go to the tasks just started, first to those on which the most hangs.
    `backward`: children come before their parents.
    """
    parents, children = (graph.children, graph.parents) if backward else (graph.parents, graph.children)
    tables = graph.tables
    levels = list(levels)
    widths = [table.widths[level] for table, level in zip(tables, levels, strict=True)]
    times = graph.times(levels)
    n = len(times)
    starts = [0.0] * n
    finishes = [0.0] * n
    missing = [len(above) for above in parents]
    heaps: dict[int, list[tuple[float, int]]] = {width: [] for width in sorted(set(widths))}
    shelves = list(heaps.items())
    waiting = 0
    for task in range(n):
        if not missing[task]:
            heaps[widths[task]].append((-priorities[task], task))
            waiting += 1
    for heap in heaps.values():
        heapify(heap)
    running: list[tuple[float, int]] = []
    free = slots
    now = 0.0
    while True:
        begun: list[int] = []
        while waiting and free:
            best: list[tuple[float, int]] | None = None
            for width, heap in shelves:
                if width > free:
                    break
                if heap and (best is None or heap[0] < best[0]):
                    best = heap
            if best is None:
                break
            task = heappop(best)[1]
            waiting -= 1
            free -= widths[task]
            begun.append(task)
        if tails is not None and free and begun and not waiting:
            free = _widen(graph, levels, begun, tails, free)
            for task in begun:
                widths[task] = tables[task].widths[levels[task]]
                times[task] = tables[task].times[levels[task]]
        for task in begun:
            starts[task] = now
            end = finishes[task] = now + times[task]
            if end > limit_s:
                return None
            heappush(running, (end, task))
        if not running:
            return Schedule(levels, starts, finishes)
        now = running[0][0]
        while running and running[0][0] <= now:
            task = heappop(running)[1]
            free += widths[task]
            for child in children[task]:
                missing[child] -= 1
                if not missing[child]:
                    heappush(heaps[widths[child]], (-priorities[child], child))
                    waiting += 1


def _widen(graph: Graph, levels: list[int], begun: Sequence[int], tails: Sequence[float], free: int) -> int:
    """Share out the free nodes, step by step, to the one on which the most hangs; how many stay free."""
    tables = graph.tables
    heap = [
        (-(tables[task].times[levels[task]] + tails[task]), task)
        for task in begun
        if levels[task] + 1 < len(tables[task].widths)
    ]
    heapify(heap)
    while heap and free:
        task = heappop(heap)[1]
        table = tables[task]
        level = levels[task] + 1
        more = table.widths[level] - table.widths[level - 1]
        if more > free:
            continue
        free -= more
        levels[task] = level
        if level + 1 < len(table.widths):
            heappush(heap, (-(table.times[level] + tails[task]), task))
    return free


def as_it_goes(
    graph: Graph,
    base: Sequence[int],
    priorities: Sequence[float],
    tails: Sequence[float],
    slots: int,
    manner: Manner,
    limit_s: float = NEVER,
    factors: Sequence[float] | None = None,
) -> Schedule | None:
    """Let `Dispatch` choose the widths, none below `base`. None when it would take longer than `limit_s`.

    `factors`: by how much each task takes longer than its table says, which `Dispatch` does not know.
    """
    tables = graph.tables
    n = len(tables)
    levels = list(base)
    starts = [0.0] * n
    finishes = [0.0] * n
    missing = [len(above) for above in graph.parents]
    dispatch = Dispatch(slots, manner)
    for task in range(n):
        if not missing[task]:
            dispatch.ready(task, tables[task], base[task], priorities[task], tails[task])
    running: list[tuple[float, int]] = []
    free = slots
    now = 0.0
    while True:
        for task, level in dispatch.starts(now, {0: free}):
            table = tables[task]
            levels[task] = level
            free -= table.widths[level]
            starts[task] = now
            end = finishes[task] = now + table.times[level] * (1.0 if factors is None else factors[task])
            if end > limit_s:
                return None
            dispatch.begun(task, table.widths[level], now + table.times[level])
            heappush(running, (end, task))
        if not running:
            return Schedule(levels, starts, finishes)
        now = running[0][0]
        while running and running[0][0] <= now:
            task = heappop(running)[1]
            free += tables[task].widths[levels[task]]
            dispatch.over(task)
            for child in graph.children[task]:
                missing[child] -= 1
                if not missing[child]:
                    dispatch.ready(child, tables[child], base[child], priorities[child], tails[child])
