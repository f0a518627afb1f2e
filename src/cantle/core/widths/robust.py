"""Which plan holds when the times are not what they were expected to be?

A plan that is followed by its clock falls apart with the first surprise. So a plan is carried out as a policy: the widths
that it uses are the least that tasks start with, the chains below them their priorities, and dispatch does the rest. The
candidates are tried like that, on the expected times and on a few that differ from them at random.
"""

from __future__ import annotations

from math import exp

from cantle.core.chance import Chance
from cantle.core.widths.choosing import plan_widths
from cantle.core.widths.dispatch import Manner
from cantle.core.widths.graph import Graph
from cantle.core.widths.schedules import as_it_goes
from cantle.core.widths.sweep import Allotment, sweep

SPREAD = 0.26
"""Standard deviation of the logarithm of how far times are expected to be off: a third by more than 30 %."""
TIGHT = Manner(0.6, 0.2, 0.5)
"""Tasks are kept well within T: a long one that lasts longer than expected is what spoils most plans."""
_STAGES: tuple[tuple[int, int], ...] = ((2, 99), (3, 5), (4, 2))
"""So many trials at a time, for so many of the best candidates."""
_FEW = 600
_STAGES_OF_MANY: tuple[tuple[int, int], ...] = ((2, 99), (1, 2))


class Course:
    """How to go on: the least level, priority and tail (s) of each task, and the manner of dispatch."""

    __slots__ = ("levels", "manner", "priorities", "tails")

    def __init__(self, graph: Graph, levels: list[int], manner: Manner = TIGHT) -> None:
        self.levels = levels
        self.manner = manner
        times = graph.times(levels)
        self.tails = graph.tails(times)
        self.priorities = graph.b_levels(times)


def course(graph: Graph, slots: int, *, seed: int = 1) -> Course:
    """The course with the least product of makespans over the trials. The same seed makes the same trials.

    Costs some seventy simulations, each 5 to 15 µs a task; ten when there are many tasks. Raises ValueError as `plan_widths`
    does.
    """
    path = sweep(graph, slots)
    if len(graph) <= _FEW:
        stages = _STAGES
        allotments = [plan_widths(graph, slots, moves=0).levels, *(allotment.levels for allotment in path)]
    else:
        stages = _STAGES_OF_MANY
        allotments = _spread_out(path)
    if all(levels == allotments[0] for levels in allotments):
        return Course(graph, allotments[0])
    chance = Chance(seed)
    scored = [(1.0, number, Course(graph, levels)) for number, levels in enumerate(allotments)]
    factors: list[float] | None = None  # the first trial is what is expected
    for trials, most in stages:
        scored = sorted(scored, key=lambda entry: entry[:2])[:most]
        for _ in range(trials):
            scored = [(product * _tried(graph, slots, c, factors), number, c) for product, number, c in scored]
            factors = [exp(SPREAD * chance.normal()) for _ in graph.tables]
    return min(scored, key=lambda entry: entry[:2])[2]


def _tried(graph: Graph, slots: int, course: Course, factors: list[float] | None) -> float:
    c = course
    made = as_it_goes(graph, c.levels, c.priorities, c.tails, slots, c.manner, factors=factors)
    assert made is not None
    return made.makespan_s


def _spread_out(allotments: list[Allotment]) -> list[list[int]]:
    """The narrowest, one in the middle, the first whose longest path is no longer what matters, and a late one."""
    crossing = next((i for i, a in enumerate(allotments) if a.path_s <= a.area_s), len(allotments) - 1)
    last = len(allotments) - 1
    return [allotments[i].levels for i in sorted({0, crossing // 2, crossing, (crossing + last + 1) // 2})]
