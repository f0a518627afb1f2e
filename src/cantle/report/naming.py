"""Which tasks does a name on the command line mean?"""

from __future__ import annotations

from fnmatch import fnmatchcase

from cantle.core.state import State
from cantle.errors import RequestError

_MOST = 5


def find_task(state: State, name: str) -> int:
    """The one task that is meant: by its whole name, or by a beginning or pattern that fits no other.

    Raises RequestError, with the names that come near.
    """
    found = find_tasks(state, name)
    if len(found) > 1:
        raise RequestError(f"{name!r} could be any of {len(found):,} tasks: {_listed(state, found)}; say which one")
    return found[0]


def find_tasks(state: State, name: str) -> list[int]:
    """The tasks that are meant: the one of that name; those that a pattern (`run_*`) fits; those of that step; those whose
    names begin so.

    Raises RequestError when there is none.
    """
    tasks = state.tasks
    found = [number for number, task in enumerate(tasks) if task.name == name]
    if not found and any(sign in name for sign in "*?["):
        found = [number for number, task in enumerate(tasks) if fnmatchcase(task.name, name)]
    if not found:
        steps = {number for number, step in enumerate(state.steps) if step.name == name}
        if steps:
            found = [number for number, task in enumerate(tasks) if task.step in steps]
    if not found:
        found = [number for number, task in enumerate(tasks) if task.name.startswith(name)]
    if not found:
        raise RequestError(f"no task is called {name!r}{_nearest(state, name)}")
    return found


def _nearest(state: State, name: str) -> str:
    from difflib import get_close_matches

    # Comparing with many thousands of names takes seconds; their steps' names are a good hint as well.
    many = len(state.tasks) > 5000
    names = {step.name for step in state.steps} if many else {task.name for task in state.tasks}
    near = get_close_matches(name, names, n=_MOST, cutoff=0.5)
    if near:
        return f"; did you mean {' or '.join(near[:2])}?"
    return f"; there are {_listed(state, list(range(len(state.tasks))))}" if state.tasks else "; the run has no tasks"


def _listed(state: State, numbers: list[int]) -> str:
    names = ", ".join(state.tasks[number].name for number in numbers[:_MOST])
    return f"{names} and {len(numbers) - _MOST:,} more" if len(numbers) > _MOST else names
