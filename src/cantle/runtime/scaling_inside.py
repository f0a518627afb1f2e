"""What does the process do in which a scaling function of the user's runs?

It hears snapshots and answers with wishes, over two pipes of its own; what the function prints goes where the conductor's
output goes. It ends when the conductor does, even while the function computes and lets nobody else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from traceback import extract_tb
from typing import Any, BinaryIO

import msgspec

from cantle.core.scaling.snapshot import Snapshot, Wish, wishes_in
from cantle.errors import PluginError, said_by
from cantle.plugins import find
from cantle.runner.processes import end_with_parent


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What it wishes; or the `problem` with it, a sentence without its subject, and `where` in the function that was."""

    wishes: list[Wish] = []
    problem: str = ""
    where: str = ""


def live(name: str, parent: int, questions: int, answers: int) -> None:
    """Answer until nobody asks any more. The descriptors are this process's to close, `parent` is who started it."""
    end_with_parent()
    if os.getppid() != parent:
        return
    import faulthandler

    faulthandler.enable(all_threads=False)  # where it was, if it breaks the interpreter
    for fd in (questions, answers):
        os.set_inheritable(fd, False)  # what the function starts must not hold them open
    with open(questions, "rb") as heard, open(answers, "wb") as told:
        function: Any = None
        while frame := _next(heard):
            seen = msgspec.msgpack.decode(frame, type=Snapshot)
            try:
                function = function or find("scaling_functions", name)
                answer = Answer(wishes_in(function(seen), {each: now.kind for each, now in seen.kinds.items()}))
            except PluginError as problem:
                answer = Answer(problem=said_by(problem))
            except BaseException as problem:  # noqa: BLE001 - whatever it raises is told, SystemExit as well
                answer = Answer(problem=f"it raised {said_by(problem)}", where=_where(problem, function))
            _flush()
            body = msgspec.msgpack.encode(answer)
            told.write(len(body).to_bytes(4, "big") + body)
            told.flush()


def _next(heard: BinaryIO) -> bytes:
    """The next question; nothing when there is none any more."""
    head = heard.read(4)
    return heard.read(int.from_bytes(head, "big")) if len(head) == 4 else b""


def _where(problem: BaseException, function: Any) -> str:
    """The innermost line of the function's own file, from which it came."""
    own = getattr(getattr(function, "__code__", None), "co_filename", "")
    if not own:
        return ""
    file = Path(own).absolute()
    lines = [each for each in extract_tb(problem.__traceback__) if Path(each.filename).absolute() == file]
    return f" ({own}, line {lines[-1].lineno})" if lines else ""


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
