"""What runs again since its result is gone, and needed?

The task that made it, those before it whose results it takes and that are gone as well, and nobody else: who runs already may
have what he takes. It is nobody's fault, but it is not done for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cantle.core.fates import give_up, move, recount, wait_for_one_more
from cantle.core.phases import UNSTARTED, Cause, Phase

if TYPE_CHECKING:
    from cantle.core.keeping import Keeping
    from cantle.core.state import State

MOST_AGAIN = 5
"""So often a task runs again since its result was gone. When it is gone once more, the task fails."""
FEW = 64
"""What a task waits for is counted anew where there are no more of them; where there are, one that is gone is added."""


def waits_for(state: State, keeping: Keeping, task: int) -> bool:
    """Whether the task's result is gone, and somebody wants it who does not run already."""
    result = keeping.results[task]
    return not result.at and (result.wanted or any(_has_not_begun(state, user) for user in result.users))


def _has_not_begun(state: State, task: int) -> bool:
    return state.phases[task] in UNSTARTED or state.stands_in_line(task)


def run_again(state: State, keeping: Keeping, tasks: Iterable[int], why: str) -> None:
    """Let these tasks, whose results are gone, run again, with all before them that they need and that is gone."""
    again: dict[int, str] = {}
    stack = [(task, why) for task in tasks]
    while stack:
        task, because = stack.pop()
        if task in again or state.phases[task] != Phase.DONE:
            continue
        again[task] = because
        name = state.tasks[task].name
        stack.extend(
            (parent, f"{name} runs again and takes its result, which is gone")
            for parent in state.tasks[task].parents
            if not keeping.is_there(parent)
        )
    if not again:
        return
    concerned = dict.fromkeys(sorted(again))
    for task in sorted(again):
        move(state, task, Cause.REDO)
        for child in state.children[task] or ():
            if child not in again and len(state.tasks[child].parents) > FEW and state.phases[child] in UNSTARTED:
                wait_for_one_more(state, child)
            else:
                concerned[child] = None
    numbers = sorted(concerned)
    recount(state, [task for task in numbers if task not in state.running or state.awaits_its_turn(task)])
    for task in sorted(again):
        _bound(state, keeping, task, again[task])
    for task in numbers:
        if _would_begin_in_vain(state, task) and task not in state.being_stopped:
            state.to_stop.setdefault(task, "interrupted")
    state.version += 1


def _would_begin_in_vain(state: State, task: int) -> bool:
    """Whether it stands in line, and would have its turn without what it takes."""
    if not state.stands_in_line(task):
        return False
    missing = sum(state.phases[parent] != Phase.DONE for parent in state.tasks[task].parents)
    return missing > state.awaits_its_turn(task)


def _bound(state: State, keeping: Keeping, task: int, why: str) -> None:
    times = keeping.again[task][0] + 1 if task in keeping.again else 1
    keeping.again[task] = (times, why)
    failing = state.study_of(task).failing
    if times > MOST_AGAIN:
        give_up(state, task, Cause.REFUSE, f"its result was gone {times} times, the last time since {why}")
    elif failing and not state.stopping:
        give_up(state, task, Cause.SKIP, failing)
