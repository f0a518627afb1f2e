"""What does a process need in which somebody else's functions run: to begin, to hear and tell, and to say where they are?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from traceback import extract_tb, walk_stack
from types import FrameType
from typing import Any, BinaryIO

import msgspec

from cantle.runner.processes import end_with_parent


def enter(parent: int, questions: int, answers: int) -> tuple[BinaryIO, BinaryIO] | None:
    """Where frames are heard and told. None when `parent`, who has begun this process, has gone."""
    end_with_parent()
    if os.getppid() != parent:
        return None
    import faulthandler

    faulthandler.enable(all_threads=False)  # where it was, if it breaks the interpreter
    for fd in (questions, answers):
        os.set_inheritable(fd, False)  # what the functions start must not hold them open
    return open(questions, "rb"), open(answers, "wb")


def heard(pipe: BinaryIO) -> bytes:
    """The next frame; nothing when there is none any more."""
    head = pipe.read(4)
    return pipe.read(int.from_bytes(head, "big")) if len(head) == 4 else b""


def tell(pipe: BinaryIO, message: msgspec.Struct) -> None:
    """Send a frame, after all that was printed. Raises OSError, ValueError when nobody hears it any more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    body = msgspec.msgpack.encode(message)
    pipe.write(len(body).to_bytes(4, "big") + body)
    pipe.flush()


def raised_at(problem: BaseException, function: Any) -> str:
    """The innermost line of the function's own file from which it came, to be put behind a sentence; "" if there is none."""
    own = _file_of(function)
    return _innermost(own, ((each.filename, each.lineno) for each in extract_tb(problem.__traceback__)))


def imported_at(problem: BaseException) -> str:
    """The line of a module that could not be imported, as `raised_at`; "" where the problem itself says which."""
    cause = problem.__cause__
    if cause is None or isinstance(cause, SyntaxError):
        return ""
    own = str(Path(__file__).parent.parent.parent)
    lines = [each for each in extract_tb(cause.__traceback__) if not each.filename.startswith(("<frozen", own))]
    lines = [each for each in lines if f"{os.sep}importlib{os.sep}" not in each.filename]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""


def is_at(frame: FrameType, function: Any) -> str:
    """The innermost line of the function's own file that a thread with this frame is at, as `raised_at`."""
    lines = [(each.f_code.co_filename, line) for each, line in walk_stack(frame)]
    return _innermost(_file_of(function), reversed(lines))


def _file_of(function: Any) -> str:
    return str(getattr(getattr(function, "__code__", None), "co_filename", ""))


def _innermost(own: str, lines: Iterable[tuple[str, int | None]]) -> str:
    if not own:
        return ""
    file = Path(own).absolute()
    found = [line for name, line in lines if Path(name).absolute() == file]
    return f" ({own}, line {found[-1]})" if found else ""
