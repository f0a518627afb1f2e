"""What is true now? The fold of all records; `apply` is the only thing that changes it.

Tasks are numbers; what is known of each stands in lists by that number, so that a million of them stay affordable. The
phases and what leads from one to the next stand in `phases.py`; here stand the rules: what each record means.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cantle.core.observed import Observed
from cantle.core.phases import ACTIVE, FINAL, OVER, UNSTARTED, UNSUCCESSFUL, Cause, Phase, following
from cantle.core.queues import ReadyQueue, Shape
from cantle.core.room import Room
from cantle.core.roster import Partitions
from cantle.core.studies import StudyState, study_added, tasks_added
from cantle.model import records as r
from cantle.model.resources import Node
from cantle.model.study import Step, Task

if TYPE_CHECKING:
    from cantle.core.keeping import Keeping
    from cantle.core.lifetimes import Lifetimes
    from cantle.core.scaling.ledger import Ledger
    from cantle.core.trouble import Trouble

_CANCELED = frozenset({Phase.CANCELED})

LOSSES_UNTIL_BLAMED = 3
"""So many nodes may go down under a task before the task is taken for the cause."""


class Line:
    """Places that pass from one attempt to the next without being given back: who owns them, and who stands in line."""

    __slots__ = ("owner", "waiting")

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.waiting: deque[int] = deque()


class State:
    """Everything that is known of a run.

    Read it freely; only `apply` may write. `version` counts the changes that may call for decisions.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.version = 0
        self.feasibility_version = 0
        self.run: r.RunStarted | None = None
        self.started_at = 0.0
        self.resumed = 0
        self.stopping = ""
        self.at_once = False
        self.awaited = 0
        self.room = Room()
        self.partitions = Partitions()
        self.several_machines = False
        self.joined_at: dict[int, float] = {}
        """When each node joined, by its number."""
        self.choosy = False
        """Whether not every task may start wherever there is room: plans ask for `room_for` each."""
        self.lifetimes: Lifetimes | None = None
        """There once a node has joined whose end is known."""
        self.drained: dict[int, str] = {}
        """Nodes on which nothing may begin, and why."""
        self.drained_names: dict[str, str] = {}
        """What nodes are called that somebody drained, and by whom: one that comes back is drained as well."""
        self.trouble: Trouble | None = None
        """There once an attempt has failed where there are several nodes, or one of them went away."""
        self.scaling: Ledger | None = None
        """There once kinds of node were declared, or nodes asked for."""
        self.keeping: Keeping | None = None
        """There once a result lives on a node alone."""
        self.shunned: dict[int, int] = {}
        """Of tasks that could not be started: on which nodes, as bits."""
        self.expired = False
        """The run is stopped since its nodes were about to go."""
        self.begun_at = 0.0
        """When this conductor began or went on with the run."""

        self.studies: list[StudyState] = []
        self.steps: list[Step] = []
        self.study_of_step: list[int] = []
        self.shape_of_step: list[int] = []
        self.queues: list[ReadyQueue] = []
        self._shapes: dict[Shape, int] = {}
        self._free_queues: list[int] = []
        self.observed: dict[int, Observed] = {}
        """Of the studies that have steps with widths, by number."""
        self.homes: dict[str, list[int]] = {"": []}
        """Queues by where their tasks run: "" for anywhere, a partition's name, or `ELEMENTS_OF` a study."""

        self.promised = 0
        self.growing = 0
        """How many studies may get more tasks at any time."""
        self.tasks: list[Task] = []
        self.phases: list[Phase] = []
        self.blockers: list[int] = []
        self.children: list[list[int] | None] = []
        self.ranks: list[float] = []
        self.attempts: list[int] = []
        self.queued = bytearray()
        self.pids = array("q")
        self.ran_on = array("i")
        """The first node of each task's last attempt, -1 for none."""
        self.launched_at = array("d")
        self.ended_at = array("d")
        self.counts: list[list[int]] = []
        self.totals = [0] * len(Phase)

        # What is known of few tasks only.
        self.running: dict[int, r.Launch] = {}
        self.running_on: dict[int, dict[int, None]] = {}
        self.lines: dict[int, Line] = {}
        self.short_shapes: dict[int, None] = {}
        self.ended: dict[int, r.TaskEnded] = {}
        self.cause_of: dict[int, str] = {}
        self.faults: dict[int, int] = {}
        self.restarts: dict[int, int] = {}
        self.restart_next: set[int] = set()
        self.losses: dict[int, int] = {}
        self.to_stop: dict[int, Literal["canceled", "interrupted"]] = {}
        self.hindered: dict[int, str] = {}
        """What keeps the ranks of running attempts from beginning, as their launchers tell it."""
        self.being_stopped: dict[int, Literal["canceled", "interrupted"]] = {}

        # An observer that wants to hear of tasks that reached a final phase puts a list here, and empties it.
        self.news: list[int] | None = None

    # Questions

    @property
    def finished(self) -> bool:
        """Nothing runs, and nothing more is to be started."""
        if self.running or len(self.tasks) < self.promised or (self.growing and not self.stopping):
            return False
        if self.partitions.living and not self.stopping:
            return False
        return bool(self.stopping) or not (self.totals[Phase.WAITING] or self.totals[Phase.READY])

    @property
    def unfinished(self) -> bool:
        """Tasks are left that are not over, or more of them are to come."""
        totals = self.totals
        left = totals[Phase.WAITING] + totals[Phase.READY] + totals[Phase.LAUNCHED] + totals[Phase.RUNNING]
        return bool(left) or len(self.tasks) < self.promised or bool(self.growing)

    @property
    def succeeded(self) -> bool:
        """Every task is done."""
        return self.totals[Phase.DONE] == len(self.tasks) >= self.promised and not self.growing

    def phase(self, task: int) -> Phase:
        """Where the task stands."""
        return self.phases[task]

    def step_of(self, task: int) -> Step:
        """The step that the task is an instance of."""
        return self.steps[self.tasks[task].step]

    def study_of(self, task: int) -> StudyState:
        """The study that the task belongs to."""
        return self.studies[self.study_of_step[self.tasks[task].step]]

    def queue_of(self, task: int) -> ReadyQueue:
        """Where the task queues when it is ready."""
        return self.queues[self.shape_of_step[self.tasks[task].step]]

    def is_sliced(self, shape: Shape) -> bool:
        """Whether tasks of this shape run in elements of slices alone."""
        slicing = self.studies[shape.study].added.slicing
        several = bool(shape.widths) or shape.needs.nodes > 1
        return several and not shape.partition and slicing is not None and bool(slicing.slices)

    # The one way to change

    def apply(self, record: r.AnyRecord) -> None:
        """Fold one record into the state. Late messages about old attempts change nothing but the time."""
        if record.time > self.now:
            self.now = record.time
        rule = self._RULES.get(type(record)) or _rarer_rule(type(record))
        rule(self, record)

    # Rules: the run

    def _run_started(self, record: r.RunStarted) -> None:
        self.run = record
        self.started_at = self.begun_at = record.time

    def _run_resumed(self, record: r.RunResumed) -> None:
        self.resumed += 1
        self.stopping = ""
        self.at_once = self.expired = False
        self.begun_at = record.time
        self.awaited = 0
        self.to_stop.clear()
        self.being_stopped.clear()
        for study in self.studies:
            study.failing = ""
        for task in list(self.running):
            self._leave(task)
            self._send_back(task)
        if record.partitions or self.partitions.all:
            from cantle.core.partitions import conductor_gone

            conductor_gone(self, record.partitions)
        for index in range(len(self.room.nodes)):
            self.room.lose(index)
        if self.choosy or self.drained or self.drained_names or self.trouble is not None or self.scaling is not None:
            from cantle.core.nodes import all_gone

            all_gone(self)
        if record.retry:
            self._revive([t for t, phase in enumerate(self.phases) if phase in UNSUCCESSFUL])
        if self.keeping is not None:
            self.keeping.all_gone(self)
        self.feasibility_version += 1
        self.version += 1

    def _stop_asked(self, record: r.StopAsked) -> None:
        self.stopping = record.reason or "stopped"
        self.at_once = self.at_once or record.at_once
        for task in self.running:
            if record.at_once or task not in self.being_stopped:
                self.to_stop.setdefault(task, self.being_stopped.get(task, "interrupted"))
        self.version += 1

    def _time_passed(self, _record: r.TimePassed) -> None:
        self.version += 1

    # Rules: nodes

    def _nodes_joined(self, record: r.NodesJoined) -> None:
        for node in record.nodes:
            index = self.room.add(node)
            self.joined_at[index] = record.time
            if node.ends_at or self.drained_names or self.trouble is not None:
                from cantle.core.nodes import joined

                joined(self, index, node)
            if self.keeping is not None:
                self.keeping.joined(self, index)
            self.several_machines = self.several_machines or node.machine != self.room.nodes[0].machine
        if record.request < 0:
            self.awaited = max(0, self.awaited - len(record.nodes))
        if self.scaling is not None:
            self.scaling.joined(self, len(self.room.nodes) - len(record.nodes), record.request)
        self.feasibility_version += 1
        self.version += 1

    def _nodes_awaited(self, record: r.NodesAwaited) -> None:
        self.awaited = record.count
        self.feasibility_version += 1
        self.version += 1

    def _node_lost(self, record: r.NodeLost) -> None:
        from cantle.core.nodes import cut_off, forgive, lost

        planned = lost(self, record.node)
        here = list(self.running_on.pop(record.node, ()))
        outcomes: list[r.Outcome] = ["interrupted" if planned or self.stands_in_line(task) else "lost" for task in here]
        for task, outcome in zip(here, outcomes, strict=True):
            launch = self.running[task]
            begun = not self.stands_in_line(task)
            self._leave(task)
            if planned:
                cut_off(self, task, launch, begun)
            self._judge(task, r.TaskEnded(record.time, task, launch.attempt, outcome, detail=record.reason))
        if self.partitions.living:
            from cantle.core.partitions import node_lost

            node_lost(self, record.node, record.reason)
        self.room.lose(record.node)
        if self.scaling is not None:
            self.scaling.lost(record.node)
        if self.keeping is not None:
            self.keeping.lost(self, record.node, record.reason)
        if self.shunned:
            forgive(self)
        self.feasibility_version += 1
        self.version += 1

    # Rules: attempts

    def _launch(self, record: r.Launch) -> None:
        task = record.task
        step = self.tasks[task].step
        queue = self.queues[self.shape_of_step[step]]
        ahead_of_time = record.if_done and self.phases[task] == Phase.WAITING
        self._move(task, Cause.LINE_UP if ahead_of_time else Cause.LAUNCH)
        if queue.heap and queue.heap[0][1] == task:
            queue.drop_head()
        self.attempts[task] = record.attempt
        self.launched_at[task] = record.time
        self.running[task] = record
        if record.on:
            self.ran_on[task] = record.on[0].node
        if record.partition >= 0:
            self.partitions.all[record.partition].enter(task, record.time)
        ahead = None if record.behind is None else self.running.get(record.behind)
        if ahead is None or ahead.on != record.on:
            needs = queue.shape.needs
            room = self.room if record.partition < 0 else self.partitions.all[record.partition].room
            for place in record.on:
                room.take(place, needs)
            queue.slots += 1
            self.studies[queue.shape.study].slots += needs.cores * len(record.on)
            if needs.nodes == 1 and not queue.shape.widths and not self.steps[step].streams:
                queue.short_lines[task] = None
        else:
            self._stand_in_line(task, ahead.task, queue)
        for place in record.on:
            found = self.running_on.get(place.node)
            if found is None:
                found = self.running_on[place.node] = {}
            found[task] = None
        self.studies[self.study_of_step[step]].in_progress += 1
        self.restart_next.discard(task)
        self.version += 1

    def _task_started(self, record: r.TaskStarted) -> None:
        launch = self.running.get(record.task)
        if launch is not None and launch.attempt == record.attempt and self.phases[record.task] == Phase.LAUNCHED:
            self._move(record.task, Cause.START)
            self.pids[record.task] = record.pid
            self.launched_at[record.task] = record.time
            self._dissolve_line(record.task)

    def _task_hindered(self, record: r.TaskHindered) -> None:
        launch = self.running.get(record.task)
        if launch is not None and launch.attempt == record.attempt:
            if record.why:
                self.hindered[record.task] = record.why
            else:
                self.hindered.pop(record.task, None)

    def _task_ended(self, record: r.TaskEnded) -> None:
        task = record.task
        launch = self.running.get(task)
        if launch is not None and launch.attempt == record.attempt:
            if record.started:
                self.launched_at[task] = record.started
                self.pids[task] = record.pid
            begun = self.lifetimes is not None and not self.stands_in_line(task)
            self._leave(task)
            excused = record.outcome != "done" and self._concerns_its_node(record, launch, begun)
            if self.trouble is not None and record.outcome == "done":
                self.trouble.went_well(launch)
            if launch.partition >= 0 and record.outcome == "done":
                self.partitions.failures.pop(self.partitions.all[launch.partition].key, None)
            if self.observed and record.outcome == "done":
                self._observe(task, len(launch.on))
            if (record.kept or self.keeping is not None) and record.outcome == "done":
                from cantle.core.keeping import made

                made(self, record, launch)
            self._judge(task, record, excused)
            self.version += 1

    def _concerns_its_node(self, ended: r.TaskEnded, launch: r.Launch, begun: bool) -> bool:
        """What the unsuccessful end of an attempt tells of its node. Whether the task is excused for that."""
        if ended.outcome in ("failed", "unstartable") and len(self.room.nodes) > 1:
            from cantle.core.trouble import ended_badly

            return ended_badly(self, launch, ended)
        if self.lifetimes is not None and ended.outcome == "interrupted":
            from cantle.core.nodes import cut_off

            cut_off(self, ended.task, launch, begun)
        return False

    def _stop(self, record: r.Stop) -> None:
        launch = self.running.get(record.task)
        if launch is not None and launch.attempt == record.attempt:
            self.to_stop.pop(record.task, None)
            self.being_stopped[record.task] = record.outcome

    def _refuse(self, record: r.Refuse) -> None:
        if self.phases[record.task] not in FINAL:
            self._fail(record.task, Cause.REFUSE, record.why)
            self.version += 1

    # What the rules are made of

    def _move(self, task: int, cause: Cause) -> None:
        before = self.phases[task]
        after = following(before, cause)
        self.phases[task] = after
        counts = self.counts[self.tasks[task].step]
        counts[before] -= 1
        counts[after] += 1
        self.totals[before] -= 1
        self.totals[after] += 1
        if self.observed and (seen := self.observed.get(self.study_of_step[self.tasks[task].step])) is not None:
            seen.moves.append(task)
        if after >= Phase.DONE:
            if self.news is not None:
                self.news.append(task)
            if self.keeping is not None:
                self.keeping.over(self, task)

    def _leave(self, task: int) -> None:
        """The attempt is over, whatever that means for the task: its places are free, or the next in line has them."""
        launch = self.running.pop(task)
        if self.hindered:
            self.hindered.pop(task, None)
        step = self.tasks[task].step
        queue = self.queues[self.shape_of_step[step]]
        line = self.lines.pop(task, None)
        if line is None:
            self._give_back(task, launch, queue)
        elif line.owner != task:
            line.waiting.remove(task)
        else:
            queue.short_lines.pop(task, None)
            if line.waiting:
                line.owner = line.waiting.popleft()
                if len(line.waiting) <= queue.line_length // 2:
                    queue.short_lines[line.owner] = None
            else:
                self._give_back(task, launch, queue)
        for place in launch.on:
            found = self.running_on.get(place.node)
            if found is not None:
                found.pop(task, None)
                if not found and self.scaling is not None:
                    self.scaling.worked_at[place.node] = self.now
        if launch.partition >= 0:
            self._leave_partition(task, launch.partition)
        self.studies[self.study_of_step[step]].in_progress -= 1
        self.ended_at[task] = self.now
        if launch.restart:
            self.restart_next.add(task)  # what ended by nobody's fault is tried again as it was

    def _observe(self, task: int, width: int) -> None:
        row = self.tasks[task]
        step = self.steps[row.step]
        seen = self.observed.get(self.study_of_step[row.step])
        if seen is not None and step.widths and width:  # unknown where a journal had a gap
            seen.took(step, row, width, self.ended_at[task] - self.launched_at[task])

    def _leave_partition(self, task: int, number: int) -> None:
        partition = self.partitions.all[number]
        partition.running.pop(task, None)
        if not partition.running:
            from cantle.core.partitions import let_go

            partition.idle_since = self.now
            let_go(self, partition)

    def _give_back(self, task: int, launch: r.Launch, queue: ReadyQueue) -> None:
        room = self.room if launch.partition < 0 else self.partitions.all[launch.partition].room
        for place in launch.on:
            room.give(place, queue.shape.needs)
        queue.slots -= 1
        self.studies[queue.shape.study].slots -= queue.shape.needs.cores * len(launch.on)
        queue.short_lines.pop(task, None)

    def _dissolve_line(self, owner: int) -> None:
        """It was told by itself that the owner has started: so it is not over in a moment, and nobody shall wait behind it."""
        self.queue_of(owner).short_lines.pop(owner, None)
        line = self.lines.get(owner)
        if line is not None and line.owner == owner and line.waiting:
            for task in line.waiting:
                if task not in self.being_stopped:
                    self.to_stop.setdefault(task, "interrupted")
            self.version += 1

    def stands_in_line(self, task: int) -> bool:
        """Whether the task is launched, but begins only when another one is over."""
        line = self.lines.get(task)
        return line is not None and line.owner != task

    def awaits_its_turn(self, task: int) -> bool:
        """Whether the task was launched to follow another one if that is done, and that one's attempt is still under way."""
        launch = self.running.get(task)
        if launch is None or not launch.if_done or launch.behind is None:
            return False
        ahead = self.running.get(launch.behind)
        return ahead is not None and ahead.attempt == launch.if_done

    def _stand_in_line(self, task: int, behind: int, queue: ReadyQueue) -> None:
        line = self.lines.get(behind)
        if line is None:
            line = self.lines[behind] = Line(behind)
        line.waiting.append(task)
        self.lines[task] = line
        if len(line.waiting) >= queue.line_length:
            queue.short_lines.pop(line.owner, None)

    def _judge(self, task: int, ended: r.TaskEnded, excused: bool = False) -> None:
        """What the end of an attempt means for its task. `excused`: it was its node's fault."""
        outcome = ended.outcome
        asked = (self.being_stopped.pop(task, None), self.to_stop.pop(task, None))
        if outcome == "done":
            shape = self.shape_of_step[self.tasks[task].step]
            self.queues[shape].took(ended.time - self.launched_at[task], self.tasks[task].estimate_s)
            if self.queues[shape].line_length:
                self.short_shapes[shape] = None
            else:
                self.short_shapes.pop(shape, None)
            self._done(task)
            return
        self.ended[task] = ended
        if "canceled" in asked or outcome == "canceled":
            self._end(task, Cause.CANCEL, "canceled")
        elif (
            outcome == "interrupted" or excused or self.blockers[task] > 0
        ):  # who still waits has not begun, and is not at fault
            self._send_back(task)
        elif outcome == "lost":
            losses = self.losses[task] = self.losses.get(task, 0) + 1
            if losses < LOSSES_UNTIL_BLAMED:
                self._send_back(task)
            else:
                self._fail(task, Cause.FAIL, f"{losses} nodes were lost while it ran on them")
        elif outcome == "timeout" and self.steps[self.tasks[task].step].restartable:
            self._restart(task)
        elif self.faults.get(task, 0) < self.steps[self.tasks[task].step].retries:
            self.faults[task] = self.faults.get(task, 0) + 1
            self.restart_next.discard(task)
            self._send_back(task)
        else:
            self._fail(task, Cause.TIME_OUT if outcome == "timeout" else Cause.FAIL, ended.detail or outcome)

    def _done(self, task: int) -> None:
        self._move(task, Cause.SUCCEED)
        children = self.children[task]
        if children:
            blockers = self.blockers
            for child in children:
                blockers[child] -= 1
                if not blockers[child] and self.phases[child] == Phase.WAITING:
                    self._ready(child)

    def _ready(self, task: int) -> None:
        self._move(task, Cause.UNBLOCK)
        self._queue(task)

    def _send_back(self, task: int) -> None:
        """The task is to be launched again, as soon as there is room or, if it stood behind one it needs, as that is done."""
        row = self.tasks[task]
        deferred = self.blockers[task] > 0
        self._move(task, Cause.DEFER if deferred else Cause.SEND_BACK)
        failing = self.studies[self.study_of_step[row.step]].failing
        if failing and not self.stopping:
            self._end(task, Cause.SKIP, failing)
        elif not deferred:
            self._queue(task)
        elif doom := self._doom_of(row):
            self._end(task, *doom)
        if self.keeping is not None:
            self.keeping.sent_back(self, task)

    def _queue(self, task: int) -> None:
        row = self.tasks[task]
        queue = self.queues[self.shape_of_step[row.step]]
        rank = self.ranks[task]
        if queue.breadth:
            rank += queue.breadth * row.estimate_s
        queue.push(task, rank)

    def _restart(self, task: int) -> None:
        limit = self.study_of(task).limits.rlimit
        used = self.restarts.get(task, 0)
        if limit and used >= limit:
            self._fail(task, Cause.TIME_OUT, f"timed out after {used} of {limit} restarts")
            return
        self.restarts[task] = used + 1
        self.restart_next.add(task)
        self._send_back(task)

    def _fail(self, task: int, cause: Cause, why: str) -> None:
        study = self.study_of(task)
        self._end(task, cause, why)
        if study.limits.fail_fast and not study.failing:
            study.failing = why = f"{self.tasks[task].name} failed, and --fail-fast was given"
            for other in study.tasks:
                phase = self.phases[other]
                if phase in UNSTARTED:
                    self._end(other, Cause.SKIP, why)
                elif phase in ACTIVE and other not in self.being_stopped:
                    self.to_stop.setdefault(other, "interrupted" if self.blockers[other] > 0 else "canceled")

    def _end(self, task: int, cause: Cause, why: str) -> None:
        """The task ends without success; so do the tasks that need it."""
        stack = [(task, cause, why)]
        while stack:
            task, cause, why = stack.pop()
            if self.phases[task] in FINAL:
                continue
            self._move(task, cause)
            self.cause_of[task] = why
            self.ended_at[task] = self.now
            canceled = cause == Cause.CANCEL
            if cause not in (Cause.SKIP, Cause.CANCEL):
                why = f"{self.tasks[task].name} did not succeed"
            for child in reversed(self.children[task] or ()):
                if self.phases[child] != Phase.WAITING:
                    continue
                if canceled:
                    stack.append((child, Cause.CANCEL, why))
                elif task in self.tasks[child].parents:
                    stack.append((child, Cause.SKIP, why))
                else:
                    self.blockers[child] -= 1
                    if not self.blockers[child]:
                        self._ready(child)

    def _revive(self, tasks: list[int]) -> None:
        """Give tasks that ended without success, or have not begun, a new chance; count anew what they wait for."""
        for task in tasks:
            if self.phases[task] not in ACTIVE and self.phases[task] != Phase.DONE:
                self._move(task, Cause.REVIVE)
                for known in (self.cause_of, self.faults, self.restarts, self.losses):
                    known.pop(task, None)
                self.restart_next.discard(task)
        self._recount(range(len(self.tasks)))

    def _recount(self, tasks: Iterable[int]) -> None:
        """Count what each waiting task waits for, make ready those that wait for nothing, end those that wait in vain."""
        may_doom = any(self.totals[phase] for phase in UNSUCCESSFUL)
        doomed = []
        for number in tasks:
            phase = self.phases[number]
            deferrable = phase == Phase.LAUNCHED and self.running[number].if_done
            if phase not in UNSTARTED and not deferrable:
                continue
            task = self.tasks[number]
            blockers = 0
            if task.parents:
                blockers = sum(self.phases[parent] != Phase.DONE for parent in task.parents)
            if task.after:
                blockers += sum(self.phases[parent] not in OVER for parent in task.after)
            self.blockers[number] = blockers
            if deferrable:
                continue
            if phase == Phase.READY:
                if blockers:
                    self._move(number, Cause.REVIVE)
            elif not blockers:
                self._ready(number)
            if blockers and may_doom and (end := self._doom_of(task)):
                doomed.append((number, *end))
        for number, cause, why in doomed:
            self._end(number, cause, why)
        if self.keeping is not None:
            self.keeping.counted_anew(self, tasks)

    def _doom_of(self, task: Task) -> tuple[Cause, str] | None:
        """Why the task can never become ready, as those stand that it waits for."""
        for waits_for, vain in ((task.parents, UNSUCCESSFUL), (task.after, _CANCELED)):
            for parent in waits_for:
                phase = self.phases[parent]
                if phase in vain:
                    if phase in (Phase.CANCELED, Phase.SKIPPED):
                        return (Cause.CANCEL if phase == Phase.CANCELED else Cause.SKIP), self.cause_of[parent]
                    return Cause.SKIP, f"{self.tasks[parent].name} did not succeed"
        return None

    def nodes_alive(self) -> list[Node]:
        """The nodes that are there now."""
        return [node for index, node in self.room.nodes.items() if self.room.alive >> index & 1]

    _RULES: ClassVar[dict[type, Callable[[State, Any], None]]] = {
        r.RunStarted: _run_started,
        r.RunResumed: _run_resumed,
        r.StudyAdded: study_added,
        r.TasksAdded: tasks_added,
        r.StopAsked: _stop_asked,
        r.TimePassed: _time_passed,
        r.NodesJoined: _nodes_joined,
        r.NodesAwaited: _nodes_awaited,
        r.NodeLost: _node_lost,
        r.Launch: _launch,
        r.TaskStarted: _task_started,
        r.TaskHindered: _task_hindered,
        r.TaskEnded: _task_ended,
        r.Stop: _stop,
        r.Refuse: _refuse,
    }


def _rarer_rule(kind: type[r.AnyRecord]) -> Callable[[State, Any], None]:
    """The rule of a record that few runs have; it is loaded with those of its like. KeyError for what is no record."""
    from cantle.core.nodes import RULES

    if kind not in RULES:
        from cantle.core.scaling.ledger import RULES
    if kind not in RULES:
        from cantle.core.revisions import RULES
    if kind not in RULES:
        from cantle.core.partitions import RULES
    if kind not in RULES:
        from cantle.core.keeping import RULES
    State._RULES.update(RULES)
    return RULES[kind]
