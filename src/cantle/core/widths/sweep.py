"""Which widths are worth their area? A path of allotments from the narrowest on, found by lowering a price.

At each price, tasks on long paths are widened as far as a step wider saves at least so many seconds per node-second that it
costs. So few long tasks near the top of a graph go wide before many short ones do; and unlike rules that widen the one
best task at a time, a sweep takes few passes over the graph.
"""

from __future__ import annotations

from cantle.core.widths.graph import Graph

_FALL = 0.995
"""An allotment is kept when the longest path has fallen below this share of that of the last one kept."""
_NEAR = 0.9
"""Tasks on paths longer than this share of the longest are looked at."""
_CHEAPER = 0.3
_ROUNDS_AT_ONE_PRICE = 2


class Allotment:
    """A level for every task; seconds of the longest chain below each; the longest path; the area divided by the slots."""

    __slots__ = ("area_s", "levels", "path_s", "tails")

    def __init__(self, levels: list[int], tails: list[float], path_s: float, area_s: float) -> None:
        self.levels = levels
        self.tails = tails
        self.path_s = path_s
        self.area_s = area_s


def sweep(graph: Graph, slots: int) -> list[Allotment]:
    """Allotments from the narrowest to the widest that might serve; at least one."""
    n = len(graph)
    tables = graph.tables
    levels = [0] * n
    last = [len(table.widths) - 1 for table in tables]
    times = graph.times(levels)
    area = graph.area(levels)
    widenable = [task for task in range(n) if last[task]]
    found: list[Allotment] = []
    price = float("inf")
    rounds = 0
    while True:
        heads, tails = graph.heads(times), graph.tails(times)
        paths = [head + time + tail for head, time, tail in zip(heads, times, tails, strict=True)]
        longest = max(paths, default=0.0)
        newest = Allotment(levels.copy(), tails, longest, area / slots)
        if not found or longest <= found[-1].path_s * _FALL:
            found.append(newest)
        critical = longest * (1 - 1e-9)
        widenable = [task for task in widenable if levels[task] < last[task]]
        if longest < area / (4 * slots) or not any(paths[task] >= critical for task in widenable):
            break
        enough = _NEAR * longest
        changed = False
        refused = 0.0
        for task in widenable:
            excess = paths[task] - enough
            if excess <= 0:
                continue
            table = tables[task]
            level = levels[task]
            before = time = table.times[level]
            while level < last[task] and before - time < excess:
                spent = table.areas[level + 1] - table.areas[level]
                saved = time - table.times[level + 1]
                if saved < price * spent:
                    refused = max(refused, saved / spent)
                    break
                level += 1
                time = table.times[level]
            if level != levels[task]:
                changed = True
                area += table.areas[level] - table.areas[levels[task]]
                levels[task] = level
                times[task] = time
        rounds += 1
        if not changed or rounds == _ROUNDS_AT_ONE_PRICE:
            rounds = 0
            if not changed and not refused:
                break
            price = min(_CHEAPER * price, _CHEAPER * refused) if refused else _CHEAPER * price
    if newest.levels != found[-1].levels:
        found.append(newest)
    return found
