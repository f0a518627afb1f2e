"""Who ran where and when, what stood idle and why, and what waited? A run's records, measured while they are applied."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cantle.core.idleness import Idle, IdleWatch, Reason, why_waits
from cantle.core.state import State
from cantle.model import records as r
from cantle.model.resources import Node, Place, list_to_mask, mask_to_list

_IN_LINE = float("inf")
"""When an attempt starts that stands in line, as long as nobody knows."""


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


class Recorder:
    """Measures. Give it each record before the state applies it; as the log of a simulation it is given them by itself."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._watch = IdleWatch(state)
        self._zero: float | None = None
        self._until = 0.0
        self._held = 0
        self._there = 0
        self._doubtful = False
        self._busy = 0.0
        self._capacity = 0.0
        self._open: dict[int, Attempt] = {}
        self._attempts: list[Attempt] = []
        self._nodes: list[NodeSpan] = []
        self._idle: list[Stretch] = []
        self._waits: dict[int, dict[Reason, float]] = {}
        self._holdings: list[Holding] = []
        self._entered: list[tuple[int, float]] = []

    def write(self, record: r.AnyRecord) -> None:
        """Take in what the record, which is about to be applied, ends and begins."""
        if self._zero is None:
            self._zero = self._until = record.time
        if record.time > self._until:
            if type(record) is not r.RunResumed:  # nobody was there in between
                self._pass(record.time)
            self._until = record.time
        kind = type(record)
        if kind is r.Launch:
            self._launched(record)  # type: ignore[arg-type] # just asked
        elif kind is r.TaskStarted:
            self._started(record)  # type: ignore[arg-type]
        elif kind is r.TaskEnded:
            self._ended(record)  # type: ignore[arg-type]
        elif kind is r.NodesJoined:
            moment = record.time - self._zero
            self._nodes += [NodeSpan(node, moment, -1.0) for node in record.nodes]  # type: ignore[union-attr]
            self._doubtful = True
        elif kind is r.NodeLost:
            self._lost(record)  # type: ignore[arg-type]
        elif kind is r.TasksAdded:
            self._entered.append((record.first, record.time - self._zero))  # type: ignore[union-attr]
        elif kind is r.GrowPartition:
            self._grown(record)  # type: ignore[arg-type]
        elif kind is r.ShrinkPartition:
            self._shrunk(record)  # type: ignore[arg-type]
        elif kind is r.RunResumed:
            self._resumed()

    def flush(self) -> None:
        """Nothing is written anywhere."""

    def finish(self, moment: float) -> Timeline:
        """All that was measured, up to this moment (in the records' time)."""
        zero = self._zero if self._zero is not None else moment
        if moment > self._until:
            self._pass(moment)
            self._until = moment
        end = self._until - zero
        for attempt in self._open.values():
            attempt.ended = end
            attempt.started = min(attempt.started, end)
        for span in self._nodes:
            if span.left < 0:
                span.left = end
        for held in self._holdings:
            if held.until < 0:
                # What a partition has left when it ends goes back by itself.
                ended = self._state.partitions.all[held.partition]
                held.until = max(held.since, ended.ended_at - zero) if ended.over else end
        return Timeline(
            self._state,
            end,
            self._attempts,
            self._nodes,
            self._idle,
            self._busy,
            self._capacity,
            self._waits,
            zero,
            self._holdings,
            self._entered,
            self._labels(),
        )

    def _labels(self) -> list[str]:
        state = self._state
        if len(state.studies) < 2:
            return [step.name for step in state.steps]
        names = [study.added.name for study in state.studies]
        return [f"{names[study]}: {step.name}" for step, study in zip(state.steps, state.study_of_step, strict=True)]

    def _pass(self, moment: float) -> None:
        """Nothing has changed from the last record up to this moment."""
        state = self._state
        if self._doubtful:
            self._count_anew()
        span = moment - self._until
        self._capacity += span * self._there
        self._busy += span * self._held
        free = self._there - self._held
        if free > 0:
            self._was_idle(moment, free, self._watch.why())
        for number, queue in enumerate(state.queues):
            if queue.heap and queue.head() is not None:
                waits = self._waits.setdefault(number, {})
                reason = why_waits(state, queue)
                waits[reason] = waits.get(reason, 0.0) + span * len(queue.heap)

    def _was_idle(self, moment: float, free: int, why: Idle) -> None:
        zero = self._zero or 0.0
        since, until = self._until - zero, moment - zero
        last = self._idle[-1] if self._idle else None
        if last is not None and last.reason == why.reason and last.until == since and self._alike(last, why.task):
            last.until = until
            last.core_s += free * (until - since)
        else:
            last = Stretch(since, until, free * (until - since), why.reason, {})
            self._idle.append(last)
        if why.task >= 0:
            last.tasks[why.task] = None

    def _alike(self, stretch: Stretch, task: int) -> bool:
        """Whether the stretch is about tasks of the same step."""
        if task < 0 or not stretch.tasks:
            return task < 0 and not stretch.tasks
        state = self._state
        return state.step_of(next(iter(stretch.tasks))).name == state.step_of(task).name

    def _grown(self, record: r.GrowPartition) -> None:
        moment = record.time - (self._zero or 0.0)
        self._holdings += [Holding(record.partition, slots.node, slots.cores, moment, -1.0) for slots in record.slots]

    def _shrunk(self, record: r.ShrinkPartition) -> None:
        """Of what the partition had of these nodes, what is left goes on as a holding of its own."""
        moment = record.time - (self._zero or 0.0)
        for slots in record.slots:
            gone = list_to_mask(slots.cores)
            for held in [held for held in self._holdings if held.until < 0 and held.partition == record.partition]:
                if held.node == slots.node and (left := list_to_mask(held.cores)) & gone:
                    held.until = moment
                    if left & ~gone:
                        rest = mask_to_list(left & ~gone)
                        self._holdings.append(Holding(held.partition, held.node, rest, moment, -1.0))

    def _count_anew(self) -> None:
        state = self._state
        self._doubtful = False
        self._there = sum(node.cores for node in state.nodes_alive())
        self._held = sum(
            cores_of(launch.on) for task, launch in state.running.items() if not state.stands_in_line(task)
        )

    # What records mean

    def _launched(self, record: r.Launch) -> None:
        moment = record.time - (self._zero or 0.0)
        cores = cores_of(record.on)
        attempt = Attempt(record.task, record.attempt, moment, moment, moment, record.on, cores, why=record.why)
        attempt.partition = record.partition
        self._open[record.task] = attempt
        self._attempts.append(attempt)
        self._watch.launched(record.task)
        ahead = None if record.behind is None else self._state.running.get(record.behind)
        if ahead is None or ahead.on != record.on:
            self._held += cores
        else:
            attempt.started = _IN_LINE

    def _started(self, record: r.TaskStarted) -> None:
        attempt = self._open.get(record.task)
        if attempt is not None and attempt.number == record.attempt:
            attempt.started = record.time - (self._zero or 0.0)

    def _ended(self, record: r.TaskEnded) -> None:
        attempt = self._open.get(record.task)
        if attempt is None or attempt.number != record.attempt:
            return
        zero = self._zero or 0.0
        if record.started:
            attempt.started = record.started - zero
        self._close(attempt, record.time - zero, record.outcome)
        attempt.cpu_s, attempt.peak_mib, attempt.exit_code = record.cpu_s, record.peak_mib, record.exit_code
        attempt.detail = record.detail.partition("\n")[0]
        line = self._state.lines.get(record.task)
        if line is None or (line.owner == record.task and not line.waiting):
            self._held -= attempt.cores
        elif line.owner == record.task:
            follower = self._open.get(line.waiting[0])
            if follower is not None:
                follower.started = attempt.ended

    def _lost(self, record: r.NodeLost) -> None:
        moment = record.time - (self._zero or 0.0)
        for task in self._state.running_on.get(record.node, ()):
            attempt = self._open.get(task)
            if attempt is not None:
                attempt.detail = record.reason
                self._close(attempt, moment, "interrupted" if self._state.stands_in_line(task) else "lost")
        if self._nodes[record.node].left < 0:
            self._nodes[record.node].left = moment
        for held in self._holdings:
            if held.until < 0 and held.node == record.node:
                held.until = moment
        self._doubtful = True

    def _resumed(self) -> None:
        last = self._state.now - (self._zero or 0.0)
        for attempt in list(self._open.values()):
            self._close(attempt, last, "interrupted")
        for span in self._nodes:
            if span.left < 0:
                span.left = last
        for held in self._holdings:
            if held.until < 0:
                held.until = last
        self._doubtful = True

    def _close(self, attempt: Attempt, moment: float, outcome: str) -> None:
        del self._open[attempt.task]
        attempt.ended = moment
        attempt.started = min(attempt.started, moment)
        attempt.outcome = outcome


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
