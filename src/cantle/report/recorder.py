"""How is a timeline measured? From a run's records, each before the state applies it."""

from __future__ import annotations

from cantle.core.idleness import Idle, IdleWatch, Reason, why_waits
from cantle.core.state import State
from cantle.model import records as r
from cantle.model.resources import list_to_mask, mask_to_list
from cantle.report.timeline import Attempt, Holding, NodeSpan, Stretch, Timeline, cores_of

_IN_LINE = float("inf")
"""When an attempt starts that stands in line, as long as nobody knows."""


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
        if not self._state.room.alive >> record.node & 1:
            return  # it was given up before
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
