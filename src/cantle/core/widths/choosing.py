"""Which widths end the whole workflow soonest? Candidates are tried in simulation, and the best are then straightened.

The candidates are few: three allotments of the price sweep, each run in order of the longest chains and each as a base for
dispatch by canonical allotment. What wins is packed backward and forward again, as in project scheduling: each pass
takes the finish times of the last one as priorities, so that tasks move away from where nothing was gained by them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from cantle.core.widths.dispatch import BLIND, PLANNED, Manner
from cantle.core.widths.graph import Graph
from cantle.core.widths.moves import moved
from cantle.core.widths.schedules import NEVER, Schedule, as_it_goes, in_order
from cantle.core.widths.sweep import Allotment, sweep

_GOOD_ENOUGH = 1.0005
_MANNERS = (PLANNED, Manner(1.0, 0.2, 1.0))
_MORE_MANNERS = (Manner(0.7, 0.2, 0.5), BLIND, Manner(1.0, 0.5, 0.5))
_PASSES = 4
_MOST_MOVES = 400

POLISH = 40_000
"""Moves times tasks: enough for nearly all that moves can gain, in a tenth of a second."""


class Chosen:
    """What was chosen: a level for every task, its priority, the seconds that hang on it, and how it is dispatched.

    `schedule` is what would come of it if all took as long as expected. `bound_s`: no schedule is over before.
    """

    __slots__ = ("bound_s", "levels", "makespan_s", "manner", "priorities", "schedule", "tails")

    def __init__(self, graph: Graph, schedule: Schedule, manner: Manner | None, bound_s: float) -> None:
        self.schedule = schedule
        self.levels = schedule.levels
        self.makespan_s = schedule.makespan_s
        self.manner = manner
        """None: the schedule was packed in order, and its widths are to be kept."""
        self.bound_s = bound_s
        times = graph.times(schedule.levels)
        self.tails = graph.tails(times)
        self.priorities = graph.b_levels(times)


def plan_widths(graph: Graph, slots: int, *, straighten: bool = True, moves: int = POLISH) -> Chosen:
    """The best that is found for the graph on `slots` nodes.

    Costs up to forty simulations, each 3 to 15 µs a task; half of them without `straighten`. Then `moves`, divided by the
    tasks, small changes are tried at about 1 µs a task; they are worth it when the times are known well, and 0 is best when
    they are guessed. Raises ValueError when a table goes beyond the nodes that there are.
    """
    if any(table.widths[-1] > slots for table in graph.tables):
        raise ValueError(f"a task may be wider than the {slots} nodes there are")
    allotments = sweep(graph, slots)
    least_area = min(allotment.area_s for allotment in allotments)
    least_path = _least_path_s(graph)
    bound = max(least_path, least_area)
    contest = _Contest(bound * _GOOD_ENOUGH)
    for allotment in _of_interest(allotments):
        if contest.decided:
            break
        _try(contest, graph, slots, allotment)
    if not contest.decided:
        _try_more(contest, graph, slots)
    if not contest.decided:
        _try_one_width(contest, graph, slots)
    if straighten:
        for kind in ("in order", "as it goes", "one width"):
            if not contest.decided:
                _straighten(contest, graph, slots, contest.best[kind][0])
    schedule, manner = contest.winner()
    if moves and not contest.decided:
        tries = min(_MOST_MOVES, moves // len(graph))
        better = moved(graph, slots, schedule, tries, contest.enough_s)
        if better is not schedule:
            schedule, manner = better, None
    return Chosen(graph, schedule, manner, bound)


class _Contest:
    """The best schedule so far of each kind."""

    def __init__(self, enough_s: float) -> None:
        self.enough_s = enough_s
        self.best: dict[str, tuple[Schedule, Manner | None, Allotment | None]] = {}

    @property
    def decided(self) -> bool:
        return any(schedule.makespan_s <= self.enough_s for schedule, _, _ in self.best.values())

    def limit_s(self, kind: str) -> float:
        best = self.best.get(kind)
        return NEVER if best is None else best[0].makespan_s

    def enter(self, kind: str, schedule: Schedule | None, manner: Manner | None, of: Allotment | None) -> None:
        if schedule is not None and schedule.makespan_s < self.limit_s(kind):
            self.best[kind] = (schedule, manner, of)

    def winner(self) -> tuple[Schedule, Manner | None]:
        schedule, manner, _ = min(self.best.values(), key=lambda entry: entry[0].makespan_s)
        return schedule, manner


def _least_path_s(graph: Graph) -> float:
    """The longest path were every task as wide as it gets."""
    times = [table.times[-1] for table in graph.tables]
    return max([time + tail for time, tail in zip(times, graph.tails(times), strict=True)], default=0.0)


def _of_interest(allotments: list[Allotment]) -> Iterator[Allotment]:
    """The first in which the longest path is no longer what matters; the narrowest; the widest."""
    crossing = next((a for a in allotments if a.path_s <= a.area_s), allotments[-1])
    yield crossing
    if allotments[0] is not crossing:
        yield allotments[0]
    if allotments[-1] is not crossing and len(allotments) > 1:
        yield allotments[-1]


def _try(contest: _Contest, graph: Graph, slots: int, allotment: Allotment) -> None:
    levels, tails = allotment.levels, allotment.tails
    ranks = graph.b_levels(graph.times(levels))
    for spare in (None, tails):
        if contest.decided:
            return
        limit = contest.limit_s("in order")
        contest.enter("in order", in_order(graph, levels, ranks, slots, limit, tails=spare), None, allotment)
    for manner in _MANNERS:
        if contest.decided:
            return
        limit = contest.limit_s("as it goes")
        schedule = as_it_goes(graph, levels, ranks, tails, slots, manner, limit)
        contest.enter("as it goes", schedule, manner, allotment)


def _try_more(contest: _Contest, graph: Graph, slots: int) -> None:
    """Other manners on the best base; and without any base, as if nothing were known beyond what is ready."""
    allotment = contest.best["as it goes"][2]
    assert allotment is not None
    ranks = graph.b_levels(graph.times(allotment.levels))
    for manner in _MORE_MANNERS:
        limit = contest.limit_s("as it goes")
        schedule = as_it_goes(graph, allotment.levels, ranks, allotment.tails, slots, manner, limit)
        contest.enter("as it goes", schedule, manner, allotment)
    least = [0] * len(graph)
    areas = [table.areas[0] for table in graph.tables]
    for task in graph.pinned:
        areas[task] = NEVER
    blind = as_it_goes(graph, least, areas, [0.0] * len(graph), slots, BLIND, contest.limit_s("as it goes"))
    contest.enter("as it goes", blind, BLIND, None)


def _try_one_width(contest: _Contest, graph: Graph, slots: int) -> None:
    """The same width for all that can have it: what a user might have chosen, and now and then better than anything else."""
    width = 1
    widest = max(table.widths[-1] for table in graph.tables)
    while width < 2 * widest and not contest.decided:
        levels = [max(0, bisect_right(table.widths, width) - 1) for table in graph.tables]
        times = graph.times(levels)
        tails = graph.tails(times)
        for spare in (None, tails):
            schedule = in_order(graph, levels, graph.b_levels(times), slots, contest.limit_s("one width"), tails=spare)
            contest.enter("one width", schedule, None, None)
        width *= 2


def _straighten(contest: _Contest, graph: Graph, slots: int, schedule: Schedule) -> None:
    """Pack backward from the end, then forward in that order; every other time with spare nodes shared out."""
    forward = schedule
    for number in range(_PASSES):
        levels = forward.levels
        backward = in_order(graph, levels, forward.finishes, slots, backward=True)
        assert backward is not None
        order = list(backward.finishes)
        for task in graph.pinned:
            order[task] = NEVER
        spare = graph.tails(graph.times(levels)) if number % 2 else None
        found = in_order(graph, levels, order, slots, tails=spare)
        assert found is not None
        forward = found
        contest.enter("straightened", forward, None, None)
        if contest.decided:
            return
