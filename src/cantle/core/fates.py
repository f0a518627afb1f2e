"""What becomes of a task, and of those that wait for it?

A task moves from phase to phase as the table in `phases.py` allows. Who succeeds unblocks others; who is given up takes with it
those that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from cantle.core.phases import ACTIVE, FINAL, OVER, UNSTARTED, UNSUCCESSFUL, Cause, Phase, following
from cantle.model import records as r
from cantle.model.study import Task

if TYPE_CHECKING:
    from cantle.core.state import State

_CANCELED = frozenset({Phase.CANCELED})

LOSSES_UNTIL_BLAMED = 3
"""So many nodes may go down under a task before the task is taken for the cause."""


def move(state: State, task: int, cause: Cause) -> None:
    """The task goes on to its next phase. Raises CantleBug when the table has no such way."""
    before = state.phases[task]
    after = following(before, cause)
    state.phases[task] = after
    counts = state.counts[state.tasks[task].step]
    counts[before] -= 1
    counts[after] += 1
    state.totals[before] -= 1
    state.totals[after] += 1
    if state.observed and (seen := state.observed.get(state.study_of_step[state.tasks[task].step])) is not None:
        seen.moves.append(task)
    if after >= Phase.DONE:
        if state.news is not None:
            state.news.append(task)
        if state.keeping is not None:
            state.keeping.over(state, task)


def judge(state: State, task: int, ended: r.TaskEnded, excused: bool = False) -> None:
    """What the end of an attempt means for its task. `excused`: it was its node's fault."""
    outcome = ended.outcome
    asked = (state.being_stopped.pop(task, None), state.to_stop.pop(task, None))
    if outcome == "done":
        shape = state.shape_of_step[state.tasks[task].step]
        state.queues[shape].took(ended.time - state.launched_at[task], state.tasks[task].estimate_s)
        if state.queues[shape].line_length:
            state.short_shapes[shape] = None
        else:
            state.short_shapes.pop(shape, None)
        if ended.restarts:
            state.restarts[task] = ended.restarts
        _done(state, task)
        return
    state.ended[task] = ended
    if "canceled" in asked or outcome == "canceled":
        give_up(state, task, Cause.CANCEL, "canceled")
    elif outcome == "interrupted" or excused or state.blockers[task] > 0:  # who still waits has not begun
        send_back(state, task)
    elif outcome == "lost":
        losses = state.losses[task] = state.losses.get(task, 0) + 1
        if losses < LOSSES_UNTIL_BLAMED:
            send_back(state, task)
        else:
            _fail(state, task, Cause.FAIL, f"{losses} nodes were lost while it ran on them")
    elif outcome == "timeout" and state.steps[state.tasks[task].step].restartable:
        _restart(state, task)
    elif state.faults.get(task, 0) < state.steps[state.tasks[task].step].retries:
        state.faults[task] = state.faults.get(task, 0) + 1
        state.restart_next.discard(task)
        send_back(state, task)
    else:
        _fail(state, task, Cause.TIME_OUT if outcome == "timeout" else Cause.FAIL, ended.detail or outcome)


def _done(state: State, task: int) -> None:
    move(state, task, Cause.SUCCEED)
    children = state.children[task]
    if children:
        blockers = state.blockers
        for child in children:
            left = blockers[child] - 1
            if left < 0:
                continue  # it has begun: then this one was over, and has had another chance since
            blockers[child] = left
            if not left and state.phases[child] == Phase.WAITING:
                _ready(state, child)


def _ready(state: State, task: int) -> None:
    move(state, task, Cause.UNBLOCK)
    enqueue(state, task)


def send_back(state: State, task: int) -> None:
    """The task is to be launched again, as soon as there is room or, if it stood behind one it needs, as that is done."""
    row = state.tasks[task]
    deferred = state.blockers[task] > 0
    move(state, task, Cause.DEFER if deferred else Cause.SEND_BACK)
    failing = state.studies[state.study_of_step[row.step]].failing
    if failing and not state.stopping:
        give_up(state, task, Cause.SKIP, failing)
    elif not deferred:
        enqueue(state, task)
    elif doom := _doom_of(state, row):
        give_up(state, task, *doom)
    if state.keeping is not None:
        state.keeping.sent_back(state, task)


def enqueue(state: State, task: int) -> None:
    """The ready task waits for its turn among those of its shape."""
    row = state.tasks[task]
    queue = state.queues[state.shape_of_step[row.step]]
    rank = state.ranks[task]
    if queue.breadth:
        rank += queue.breadth * row.estimate_s
    if state.ordered:
        rank = state.ordered.get(task, rank)
    queue.push(task, rank)


def _restart(state: State, task: int) -> None:
    limit = state.study_of(task).limits.rlimit
    used = state.restarts.get(task, 0)
    if limit and used >= limit:
        _fail(state, task, Cause.TIME_OUT, f"timed out after {used} of {limit} restarts")
        return
    state.restarts[task] = used + 1
    state.restart_next.add(task)
    send_back(state, task)


def _fail(state: State, task: int, cause: Cause, why: str) -> None:
    study = state.study_of(task)
    give_up(state, task, cause, why)
    if study.limits.fail_fast and not study.failing:
        study.failing = why = f"{state.tasks[task].name} failed, and --fail-fast was given"
        for other in study.tasks:
            phase = state.phases[other]
            if phase in UNSTARTED:
                give_up(state, other, Cause.SKIP, why)
            elif phase in ACTIVE and other not in state.being_stopped:
                state.to_stop.setdefault(other, "interrupted" if state.blockers[other] > 0 else "canceled")


def give_up(state: State, task: int, cause: Cause, why: str) -> None:
    """The task ends without success; so do the tasks that need it."""
    stack = [(task, cause, why)]
    while stack:
        task, cause, why = stack.pop()
        if state.phases[task] in FINAL:
            continue
        move(state, task, cause)
        state.cause_of[task] = why
        state.ended_at[task] = state.now
        canceled = cause == Cause.CANCEL
        if cause not in (Cause.SKIP, Cause.CANCEL):
            why = f"{state.tasks[task].name} did not succeed"
        for child in reversed(state.children[task] or ()):
            if state.phases[child] != Phase.WAITING:
                continue
            if canceled:
                stack.append((child, Cause.CANCEL, why))
            elif task in state.tasks[child].parents:
                stack.append((child, Cause.SKIP, why))
            else:
                state.blockers[child] -= 1
                if not state.blockers[child]:
                    _ready(state, child)


def _doom_of(state: State, task: Task) -> tuple[Cause, str] | None:
    """Why the task can never become ready, as those stand that it waits for."""
    for waits_for, vain in ((task.parents, UNSUCCESSFUL), (task.after, _CANCELED)):
        for parent in waits_for:
            phase = state.phases[parent]
            if phase in vain:
                if phase in (Phase.CANCELED, Phase.SKIPPED):
                    return (Cause.CANCEL if phase == Phase.CANCELED else Cause.SKIP), state.cause_of[parent]
                return Cause.SKIP, f"{state.tasks[parent].name} did not succeed"
    return None


def revive(state: State, tasks: list[int]) -> None:
    """Give tasks that ended without success, or have not begun, a new chance; count anew what they wait for."""
    for task in tasks:
        if state.phases[task] not in ACTIVE and state.phases[task] != Phase.DONE:
            move(state, task, Cause.REVIVE)
            for known in (state.cause_of, state.faults, state.restarts, state.losses):
                known.pop(task, None)
            state.restart_next.discard(task)
    recount(state, range(len(state.tasks)))


def recount(state: State, tasks: Iterable[int]) -> None:
    """Count what each waiting task waits for, make ready those that wait for nothing, end those that wait in vain."""
    may_doom = any(state.totals[phase] for phase in UNSUCCESSFUL)
    doomed = []
    for number in tasks:
        phase = state.phases[number]
        deferrable = phase == Phase.LAUNCHED and state.running[number].if_done
        if phase not in UNSTARTED and not deferrable:
            continue
        task = state.tasks[number]
        blockers = 0
        if task.parents:
            blockers = sum(state.phases[parent] != Phase.DONE for parent in task.parents)
        if task.after:
            blockers += sum(state.phases[parent] not in OVER for parent in task.after)
        state.blockers[number] = blockers
        if deferrable:
            continue
        if phase == Phase.READY:
            if blockers:
                move(state, number, Cause.REVIVE)
        elif not blockers:
            _ready(state, number)
        if blockers and may_doom and (end := _doom_of(state, task)):
            doomed.append((number, *end))
    for number, cause, why in doomed:
        give_up(state, number, cause, why)
    if state.keeping is not None:
        state.keeping.counted_anew(state, tasks)


def wait_for_one_more(state: State, task: int) -> None:
    """Something that a task which has not begun waits for was done, and is not any more."""
    state.blockers[task] += 1
    if state.phases[task] == Phase.READY:
        move(state, task, Cause.REVIVE)


def _refuse(state: State, record: r.Refuse) -> None:
    if state.phases[record.task] not in FINAL:
        _fail(state, record.task, Cause.REFUSE, record.why)
        state.version += 1


RULES: dict[type, Callable[[State, Any], None]] = {r.Refuse: _refuse}
