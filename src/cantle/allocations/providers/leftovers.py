"""What did an earlier conductor leave behind that was killed, and how is it taken back?

For whoever goes on with the run, or cancels it, before anything is asked for anew. Nobody else may be at work on the run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cantle.allocations.submission.choosing import ALL
from cantle.errors import CantleError, MachineError, said_by

from .batch import FindsByName
from .custom import Commands
from .records import Left, Records


def take_back(folder: Path, note: Callable[[str], None], find: Callable[[str], Any]) -> int:
    """Take back what stands on record in this folder; how many requests that were. `find` gives the function of a name.

    What could not be taken back is told, and stays on record.
    """
    records = Records(folder)
    done = 0
    for left in records.left():
        try:
            what = _undo(left, find)
        except Exception as problem:  # noqa: BLE001 - a function of the user's may raise anything
            note(
                f"request {left.number}, {left.count} of kind {left.kind}, may have left something: {said_by(problem)}"
            )
            continue
        records.nothing_left(left.number)
        done += 1
        if what:
            note(f"request {left.number}, {left.count} of kind {left.kind}: {what}, left by an earlier conductor")
    return done


def _undo(left: Left, find: Callable[[str], Any]) -> str:
    """Take one request back; in words what was done."""
    by = left.undo.get("by", "")
    if by == "batch":
        return _cancel_jobs(left)
    end: Callable[[str], object]
    if by == "command":
        end = Commands("", left.undo["remove"]).remove
    elif by == "function":
        end = find(left.undo["remove"])
    else:
        names = ", ".join(left.instances) or "nothing that is known by name"
        raise MachineError(f"nobody has said how to end its machines; begun was {names}")
    problems = []
    for name in left.instances:
        try:
            end(name)
        except CantleError as problem:
            problems.append(f"{name}: {problem}")
    if problems:
        raise MachineError("; ".join(problems))
    done = [f"{', '.join(left.instances)} removed"] if left.instances else []
    if not left.answered:
        done.append(_sweep(left, end))
    return "; ".join(filter(None, done))


def _sweep(left: Left, end: Callable[[str], object]) -> str:
    """Take back what a command has begun of which nobody heard: the names of its machines begin with the token, if with any."""
    if left.undo.get("by") != "command":
        return "" if left.instances else "something that is on no record, if `add` had begun it when it was cut off"
    try:
        end(left.token)
    except CantleError as problem:
        return (
            f"something whose name begins with {left.token}, if `add` had begun it when it was cut off: `remove {left.token}` "
            f"failed ({problem}), so look yourself"
        )
    return f"what has a name that begins with {left.token} removed"


def _cancel_jobs(left: Left) -> str:
    """By their numbers; those that were handed in without anybody hearing of it, by the name of the request."""
    system = next((make for make in ALL if make.name == left.undo.get("system")), None)
    if system is None:
        raise MachineError(f"there is no batch system {left.undo.get('system')!r}")
    there = system()
    named, untold = list(left.instances), None
    if isinstance(there, FindsByName):
        try:
            named = there.named(left.token)
        except MachineError as problem:  # those that are known can be canceled all the same
            untold = problem
    idents = list(dict.fromkeys([*left.instances, *named]))
    for ident in idents:
        there.cancel(ident)
    if untold is not None:
        raise untold
    return f"{'jobs' if len(idents) > 1 else 'job'} {', '.join(idents)} canceled" if named else ""
