"""Which plan holds when the times are not what they were expected to be?

A plan that is followed by its clock falls apart with the first surprise. So a plan is carried out as a policy: the widths
that it uses are the least that tasks start with, the chains below them their priorities, and dispatch does the rest. The
candidates are tried like that, on the expected times and on a few that differ from them at random.
"""

from __future__ import annotations

from math import exp

from cantle.core.widths.choosing import plan_widths
from cantle.core.widths.dispatch import PLANNED, Manner
from cantle.core.widths.graph import Graph
from cantle.core.widths.moves import Chance
from cantle.core.widths.schedules import NEVER, as_it_goes
from cantle.core.widths.sweep import Allotment, sweep

SPREAD = 0.26
"""Standard deviation of the logarithm of how far times are expected to be off: a third by more than 30 %."""
_TRIALS = 3
_LOOSE = Manner(1.3, 0.2, 0.8)
AS_GIVEN = Manner(1e9, 0.2, 0.5)
"""Tasks start at their planned width, and only what nobody waits for is shared out."""


class Course:
    """How to go on: the least level, priority and tail (s) of each task, and the manner of dispatch."""

    __slots__ = ("levels", "manner", "priorities", "tails")

    def __init__(self, graph: Graph, levels: list[int], manner: Manner) -> None:
        self.levels = levels
        self.manner = manner
        times = graph.times(levels)
        self.tails = graph.tails(times)
        self.priorities = graph.b_levels(times)


def course(graph: Graph, slots: int, *, seed: int = 1) -> Course:
    """The course with the least product of makespans over all trials. The same seed makes the same trials.

    Costs some fifty simulations, each 5 to 20 µs a task. Raises ValueError as `plan_widths` does.
    """
    chance = Chance(seed)
    trials: list[list[float] | None] = [None]
    trials += [[exp(SPREAD * _normal(chance)) for _ in graph.tables] for _ in range(_TRIALS)]
    planned = plan_widths(graph, slots, moves=0).levels
    candidates = [Course(graph, planned, manner) for manner in (PLANNED, AS_GIVEN)]
    for levels in _spread_out(sweep(graph, slots)):
        candidates += [Course(graph, levels, manner) for manner in (PLANNED, _LOOSE)]
    best, least = candidates[0], NEVER
    for candidate in candidates:
        product = 1.0
        for number, factors in enumerate(trials):
            limit = least / product if number == _TRIALS and product else NEVER
            c = candidate
            made = as_it_goes(graph, c.levels, c.priorities, c.tails, slots, c.manner, limit, factors)
            product *= NEVER if made is None else made.makespan_s
        if product < least:
            best, least = candidate, product
    return best


def _spread_out(allotments: list[Allotment]) -> list[list[int]]:
    """The narrowest, one in the middle, the first whose longest path is no longer what matters, and a late one."""
    crossing = next((i for i, a in enumerate(allotments) if a.path_s <= a.area_s), len(allotments) - 1)
    last = len(allotments) - 1
    return [allotments[i].levels for i in sorted({0, crossing // 2, crossing, (crossing + last + 1) // 2})]


def _normal(chance: Chance) -> float:
    """Nearly normal, with deviation 1: the sum of twelve even ones."""
    return sum(chance.below(1 << 20) for _ in range(12)) / (1 << 20) - 6.0
