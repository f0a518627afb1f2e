"""Can a good schedule be made a little better? Small changes where it hurts, kept if they do no harm.

What decides the end of a schedule is one chain of tasks: each began when a parent ended, or when another task gave up its
nodes. A move widens a task of that chain, or lets one that waited for nodes come earlier, or narrows those in whose place it
waited. Everything by chance comes from a sequence of its own, so the same graph gets the same schedule.
"""

from __future__ import annotations

from cantle.core.chance import Chance
from cantle.core.widths.graph import Graph
from cantle.core.widths.schedules import Schedule, in_order


def moved(graph: Graph, slots: int, schedule: Schedule, tries: int, enough_s: float) -> Schedule:
    """The schedule after so many moves, or as soon as it ends by `enough_s`; never later than it was."""
    chance = Chance()
    best = schedule
    order = [-start for start in schedule.starts]
    for task in graph.pinned:
        order[task] = float("inf")
    tables = graph.tables
    chain = _chain(graph, best)
    for _ in range(tries):
        levels, ranks = best.levels, order
        task, waited = chain[chance.below(len(chain))]
        kind = chance.below(3) if waited else 0
        if kind == 0:
            last = len(tables[task].widths) - 1
            level = levels[task]
            if level == last:
                continue
            levels = levels.copy()
            levels[task] = min(last, (level + 1, level + 2, (3 * level + 2) // 2, 2 * level + 1)[chance.below(4)])
        elif kind == 1:
            start = best.starts[task]
            others = [
                other
                for other, level in enumerate(levels)
                if level and best.starts[other] < start <= best.finishes[other] and other not in graph.pinned
            ]
            if not others:
                continue
            levels = levels.copy()
            for _ in range(1 + chance.below(4)):
                other = others[chance.below(len(others))]
                levels[other] = max(0, levels[other] - 1 - chance.below(2))
        else:
            ranks = order.copy()
            ranks[task] = -best.starts[task] * chance.below(1000) / 1000
        found = in_order(graph, levels, ranks, slots, best.makespan_s)
        if found is None:
            continue
        best, order = found, ranks
        if best.makespan_s <= enough_s:
            break
        chain = _chain(graph, best)
    return best


def _chain(graph: Graph, schedule: Schedule) -> list[tuple[int, bool]]:
    """The tasks that decide the end, from the last on, and whether each waited for nodes."""
    starts, finishes = schedule.starts, schedule.finishes
    by_finish: dict[float, int] = {}
    for task, finish in enumerate(finishes):
        by_finish.setdefault(finish, task)
    task = max(range(len(finishes)), key=finishes.__getitem__)
    chain = []
    seen = set()
    while True:
        seen.add(task)
        start = starts[task]
        before = next((parent for parent in graph.parents[task] if finishes[parent] >= start), None)
        waited = before is None and start > 0
        chain.append((task, waited))
        if before is None:
            before = by_finish.get(start)
        if before is None or before in seen:  # from the beginning on; or tasks that take no time
            return chain
        task = before
