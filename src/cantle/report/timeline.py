"""What became of a run, or of a plan: who ran where and when, what stood idle and why, and what waited?

`recorder.py` measures it; here stands what is measured, and what follows from that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cantle.core.idleness import Reason
from cantle.core.state import State
from cantle.model.resources import Node, Place, list_to_mask


class Attempt(msgspec.Struct, gc=False):
    """One attempt. Seconds since the run began; `outcome` is "running" for one that is not over.

    `launched` is when its places became its own, or when it was put in line for them; `started` when its process ran.
    """

    task: int
    number: int
    launched: float
    started: float
    ended: float
    on: tuple[Place, ...]
    cores: int
    """On how many, over all of its nodes."""
    outcome: str = "running"
    why: str = ""
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    exit_code: int = 0
    detail: str = ""
    partition: int = -1
    """In which partition, by number; below 0: in none."""

    @property
    def seconds(self) -> float:
        """How long its process ran."""
        return self.ended - self.started


class NodeSpan(msgspec.Struct):
    """A node, by its number, and when it was there. `left` is the end of the run for one that stayed."""

    node: Node
    joined: float
    left: float


class Holding(msgspec.Struct):
    """Cores of a node that a partition owned, as an index list, from when until when."""

    partition: int
    node: int
    cores: str
    since: float
    until: float


class Stretch(msgspec.Struct):
    """A time without a break in which cores stood idle for one reason. `core_s`: how many, times how long."""

    since: float
    until: float
    core_s: float
    reason: Reason
    tasks: dict[int, None]
    """The tasks that would have had to end, or could not start."""

    @property
    def cores(self) -> float:
        """Idle cores, on average over the stretch."""
        return self.core_s / (self.until - self.since)


class Timeline(msgspec.Struct):
    """What became of a run, or of a plan. Seconds since it began."""

    state: State
    end: float
    attempts: list[Attempt]
    nodes: list[NodeSpan]
    idle: list[Stretch]
    busy_core_s: float
    there_core_s: float
    waits: dict[int, dict[Reason, float]]
    """For each queue's number, how long its ready tasks were kept waiting by what, in task-seconds."""
    zero: float
    """When it began, in seconds since the epoch; in a simulation 0."""
    holdings: list[Holding]
    entered: list[tuple[int, float]]
    """When tasks entered the run: from this number on, at this time."""
    labels: list[str]
    """What each step, by number, is called: its name, with its study's before it when there are several."""

    def label(self, task: int) -> str:
        """What the task's step is called."""
        return self.labels[self.state.tasks[task].step]

    @property
    def utilisation(self) -> float:
        """The share of the cores' time in which tasks held them."""
        return self.busy_core_s / self.there_core_s if self.there_core_s else 0.0

    @property
    def node_hours(self) -> float:
        """For how long nodes were held, added up."""
        return sum(span.left - span.joined for span in self.nodes) / 3600

    @property
    def cores(self) -> int:
        """The most cores that were there at the same time."""
        return most_cores(self.nodes)


def cores_of(on: Iterable[Place]) -> int:
    """How many cores these places have."""
    return sum(list_to_mask(place.cores).bit_count() for place in on)


def most_cores(nodes: Iterable[NodeSpan]) -> int:
    """The most cores that were there at the same time."""
    changes = sorted(
        change for span in nodes for change in ((span.joined, 1, span.node.cores), (span.left, 0, -span.node.cores))
    )
    most = there = 0
    for _, _, cores in changes:
        there += cores
        most = max(most, there)
    return most


def ready_since(timeline: Timeline) -> list[float]:
    """For each attempt, since when its task had been ready to be launched. Seconds since the run began.

    That is the end of the last task that it waited for or, when it is not the first attempt, of the one before; never before
    the task entered the run.
    """
    state, zero = timeline.state, timeline.zero
    before: dict[int, float] = {}
    found = []
    for attempt in timeline.attempts:
        task = state.tasks[attempt.task]
        since = max((state.ended_at[parent] - zero for parent in (*task.parents, *task.after)), default=0.0)
        entered = bisect_right(timeline.entered, (attempt.task, float("inf")))
        since = max(since, timeline.entered[entered - 1][1] if entered else 0.0, before.get(attempt.task, 0.0))
        before[attempt.task] = attempt.ended
        found.append(min(since, attempt.launched))
    return found


def bounds_of(timeline: Timeline, factors: Sequence[Mapping[int, float]] = ()) -> tuple[float, float]:
    """Seconds of the longest chain of what was done, and its core-seconds: no schedule of that can do with less of either.

    `factors` are, for each step, the times on its widths as multiples of each other; then each task counts as if it had had
    the width that is best for the one, and for the other.
    """
    state = timeline.state
    chain: dict[int, float] = {}
    area = 0.0
    for attempt in timeline.attempts:
        if attempt.outcome != "done":
            continue
        step = state.tasks[attempt.task].step
        own = factors[step] if step < len(factors) else {}
        width, cores = len(attempt.on), attempt.cores
        now = own.get(width, 1.0)
        chain[attempt.task] = attempt.seconds * min(own.values(), default=1.0) / now
        least = min((factor * wide / width for wide, factor in own.items()), default=1.0)
        area += attempt.seconds * cores * least / now
    below: dict[int, float] = {}
    longest = 0.0
    for number in range(len(state.tasks) - 1, -1, -1):
        task = state.tasks[number]
        total = below.get(number, 0.0) + chain.get(number, 0.0)
        longest = max(longest, total)
        for parent in (*task.parents, *task.after):
            if total > below.get(parent, 0.0):
                below[parent] = total
    return longest, area
