"""What does the process do in which a scaling function of the user's runs?

It imports it and says what it is; then it hears snapshots and answers with wishes. It ends when the conductor does, even while
the function computes and lets nobody else.
"""

from __future__ import annotations

from inspect import isgeneratorfunction
from typing import Any, Literal

import msgspec

from cantle.core.scaling.snapshot import Snapshot, Wish, wishes_in
from cantle.errors import PluginError, RequestError, said_by
from cantle.plugins import find
from cantle.runtime.apart.child import place_of
from cantle.runtime.apart.inside import enter, heard, imported_at, raised_at, tell


class Found(msgspec.Struct, frozen=True, array_like=True):
    """What is called so. `place`: where it stands, to be put behind a sentence. `decides`: about each node, as a scaler does.

    Or the `problem` with it, and whose `fault` that is: of who asked for it, or of the module.
    """

    place: str = ""
    decides: bool = False
    problem: str = ""
    fault: Literal["request", "module"] = "module"


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What it wishes; or the `problem` with it, a sentence without its subject, and `where` in the function that was."""

    wishes: list[Wish] = []
    problem: str = ""
    where: str = ""


def live(parent: int, questions: int, answers: int, name: str) -> None:
    """Answer until nobody asks any more. The descriptors are this process's to close, `parent` is who started it."""
    pipes = enter(parent, questions, answers)
    if pipes is None:
        return
    hears, tells = pipes
    function: Any = None
    problem: Answer | None = None
    try:
        function = find("scaling_functions", name)
        found = Found(place_of(function), is_scaler(function))
    except RequestError as wrong:
        found = Found(problem=str(wrong), fault="request")
    except BaseException as broken:  # noqa: BLE001 - whatever a module raises when it is imported is told
        found = Found(problem=said_by(broken) + imported_at(broken))
    tell(tells, found)
    if found.problem:
        problem = Answer(problem=found.problem)
    while frame := heard(hears):
        tell(tells, problem or _answer(function, msgspec.msgpack.decode(frame, type=Snapshot)))


def _answer(function: Any, seen: Snapshot) -> Answer:
    try:
        return Answer(wishes_in(function(seen), {each: now.kind for each, now in seen.kinds.items()}))
    except PluginError as problem:
        return Answer(problem=said_by(problem))
    except BaseException as problem:  # noqa: BLE001 - whatever it raises is told, SystemExit as well
        return Answer(problem=f"it raised {said_by(problem)}", where=raised_at(problem, function))


def is_scaler(found: Any) -> bool:
    """A generator function, or an object that is called as one."""
    return isgeneratorfunction(found) or isgeneratorfunction(getattr(type(found), "__call__", None))  # noqa: B004
