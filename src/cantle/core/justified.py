"""In which order are tasks of one size over sooner than by rank?

A schedule is packed from its end backward, and forward again in the order that comes of it, as in project scheduling: what
need not be so early moves back, and what it kept waiting moves up. So families of tasks are completed one after another
where the work decides, and chains go first where they do. An order is taken only if by estimates it ends clearly sooner,
and if that does not cost more when durations are off than it gains when they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import exp, log

from cantle.core.chance import Chance

PASSES = 3
"""More passes find next to nothing."""
CLEARLY = 0.995
"""By estimates all has to be over in this part of the time by rank."""
TOGETHER = 0.01
"""So much it has to gain by estimates and in the trials together (in logarithms): small gains are easily lost."""
NEAR = 1.005
"""Within so much of the bound nothing is left to gain."""
SPREAD = 0.26
"""Standard deviation of the logarithm of how far durations are off in the trials: a third by more than 30 %."""
PAIRS = 16
"""So many pairs of trials; in the second of a pair all takes as much shorter as it took longer in the first."""
TRIED = 20_000
"""Fewer pairs, at least one, where so many trials would come to more tasks than that."""
BEARABLE = 0.1
"""In the trials it may lose this part of what it gains by estimates (in logarithms)."""


class Work:
    """Tasks by place, parents before their children: who waits for whom, and the seconds of each; `slots` run at once.

    The first `running` of them run already.
    """

    __slots__ = ("children", "parents", "running", "seconds", "slots")

    def __init__(
        self, parents: Sequence[Sequence[int]], seconds: Sequence[float], slots: int, running: int = 0
    ) -> None:
        self.parents = parents
        self.seconds = seconds
        self.slots = slots
        self.running = running
        self.children: list[list[int]] = [[] for _ in parents]
        for task, above in enumerate(parents):
            for parent in above:
                self.children[parent].append(task)

    def __len__(self) -> int:
        return len(self.seconds)

    def chain_s(self) -> float:
        """The longest chain."""
        tails = [0.0] * len(self)
        for task in range(len(self) - 1, -1, -1):
            tails[task] = self.seconds[task] + max([tails[child] for child in self.children[task]], default=0.0)
        return max(tails, default=0.0)

    def share_s(self) -> float:
        """All seconds, spread evenly over the slots."""
        return sum(self.seconds) / self.slots


class Order:
    """Tasks, the first to go first; when all is over then, and when it would be by rank: by estimates, in seconds."""

    __slots__ = ("by_rank_s", "makespan_s", "tasks")

    def __init__(self, tasks: list[int], makespan_s: float, by_rank_s: float) -> None:
        self.tasks = tasks
        self.makespan_s = makespan_s
        self.by_rank_s = by_rank_s


def better_order(work: Work, by_rank: Sequence[int], worth_s: float = 0.0) -> Order | None:
    """An order in which all is over sooner than `by_rank`; None when none is found, or less than `worth_s` is to be gained.

    Costs nothing where little is to be gained at best, one simulation where rank is good, otherwise some 60 µs a
    task in all, and twice as much when they are few.
    """
    chain_s, share_s = work.chain_s(), work.share_s()
    if min(chain_s, share_s) < worth_s:
        return None  # as long as something is ready, no slot idles; so rank loses no more than that
    least_s = max(chain_s, share_s)
    by_rank_s = max(ends_of(work, by_rank, work.seconds))
    if by_rank_s - least_s < worth_s or by_rank_s <= least_s * NEAR:
        return None
    trials = _Trials(work, by_rank)
    found = []
    for start in (by_rank, _depth_first(work)):
        makespan_s, tasks = _justified(work, start, least_s)
        gained = log(by_rank_s / makespan_s)
        if makespan_s <= CLEARLY * by_rank_s:
            lost = trials.lost(tasks)
            if lost <= min(BEARABLE * gained, gained - TOGETHER):
                found.append((lost - gained, makespan_s, tasks))
    if not found:
        return None
    _, makespan_s, tasks = min(found)
    return Order(tasks, makespan_s, by_rank_s)


def _justified(work: Work, start: Sequence[int], least_s: float) -> tuple[float, list[int]]:
    """The best order after some passes backward and forward, and when all is over then."""
    ends = ends_of(work, start, work.seconds)
    best = max(ends), list(start)
    for _ in range(PASSES):
        latest_first = sorted(range(len(work)), key=lambda task: (-ends[task], task))
        left_s = ends_of(work, latest_first, work.seconds, backward=True)
        unstarted = sorted(range(work.running, len(work)), key=lambda task: (-left_s[task], task))
        tasks = [*range(work.running), *unstarted]
        ends = ends_of(work, tasks, work.seconds)
        if max(ends) < best[0]:
            best = max(ends), tasks
        if best[0] <= least_s * NEAR:
            break
    return best


def _depth_first(work: Work) -> list[int]:
    """Each task right behind those it waits for, of these first the one whose end takes the longest to come to."""
    heads = [0.0] * len(work)
    for task, above in enumerate(work.parents):
        heads[task] = work.seconds[task] + max([heads[parent] for parent in above], default=0.0)

    def urgency(task: int) -> tuple[float, int]:
        return -heads[task], task

    found = list(range(work.running))
    entered = bytearray(len(work))
    listed = bytearray(len(work))
    listed[: work.running] = b"\1" * work.running
    last = [task for task, below in enumerate(work.children) if not below]
    stack = sorted(last, key=urgency, reverse=True)
    while stack:
        task = stack[-1]
        if not entered[task] and not listed[task]:
            entered[task] = 1
            stack += sorted([p for p in work.parents[task] if not listed[p]], key=urgency, reverse=True)
            continue
        stack.pop()
        if not listed[task]:
            listed[task] = 1
            found.append(task)
    return found


def ends_of(work: Work, order: Sequence[int], seconds: Sequence[float], *, backward: bool = False) -> list[float]:
    """When each task ends if a slot that is free takes what is ready, the first in the order first.

    `backward`: children before their parents; then it is how long before the end of all each task begins.
    """
    before, after = (work.children, work.parents) if backward else (work.parents, work.children)
    turns = [0] * len(order)
    for turn, task in enumerate(order):
        turns[task] = turn
    missing = [len(others) for others in before]
    ready = [turn for turn, task in enumerate(order) if not missing[task]]
    ends = [0.0] * len(order)
    running: list[tuple[float, int]] = []
    free = work.slots
    now = 0.0
    while True:
        while ready and free:
            task = order[heappop(ready)]
            free -= 1
            end = ends[task] = now + seconds[task]
            heappush(running, (end, task))
        if not running:
            return ends
        now = running[0][0]
        while running and running[0][0] <= now:
            task = heappop(running)[1]
            free += 1
            for other in after[task]:
                missing[other] -= 1
                if not missing[other]:
                    heappush(ready, turns[other])


class _Trials:
    """Durations that differ from what is expected, and how long it takes by rank with them."""

    def __init__(self, work: Work, by_rank: Sequence[int]) -> None:
        self.work = work
        self.by_rank = by_rank
        self._known: list[tuple[list[float], float]] = []

    def lost(self, tasks: Sequence[int]) -> float:
        """By how much longer than by rank it takes in this order: the mean logarithm."""
        found = [log(max(ends_of(self.work, tasks, seconds)) / by_rank_s) for seconds, by_rank_s in self._made()]
        return sum(found) / len(found)

    def _made(self) -> list[tuple[list[float], float]]:
        """They are made when the first order is tried."""
        work = self.work
        chance = Chance()
        for _ in range(max(1, min(PAIRS, TRIED // (2 * len(work)))) if not self._known else 0):
            factors = [exp(SPREAD * chance.normal()) for _ in work.seconds]
            for seconds in (
                [one * factor for one, factor in zip(work.seconds, factors, strict=True)],
                [one / factor for one, factor in zip(work.seconds, factors, strict=True)],
            ):
                self._known.append((seconds, max(ends_of(work, self.by_rank, seconds))))
        return self._known
