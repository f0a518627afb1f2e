"""How is the error of a call put into words: its traceback, and the few lines of it that go into the journal?"""

from __future__ import annotations

import os

from cantle.errors import RemoteError, said_by

_TAIL_LINES = 10
_TAIL_BYTES = 2048


def not_made(what: str, error: Exception) -> RemoteError:
    """What is told of a call that could not begin, since something cannot be made here that was pickled elsewhere."""
    text = f"{what} cannot be made on {os.uname().nodename}: {said_by(error)}"
    if isinstance(error, ImportError | AttributeError):
        text += (
            "; modules are imported there, by the program's sys.path, and what a module defines only later is not there"
        )
    return RemoteError(text)


def traceback_of(error: BaseException, ours: str) -> str:
    """The traceback from the called function on, without the frames of our file `ours`."""
    import traceback

    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == ours:
        frames = frames.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frames))
    except Exception as problem:  # noqa: BLE001 (an exception whose text cannot be made)
        return f"{type(error).__qualname__} ({type(problem).__name__} while it was put into words)\n"


def tail_of(error: BaseException, traceback: str) -> str:
    """What the error is, in one line, and the last lines of its traceback that do not say the same."""
    lines = traceback.rstrip().split("\n")
    head = _headline(error) or lines[-1]
    if lines[-1] == head:
        lines.pop()
    return "\n".join([head, *lines[-(_TAIL_LINES - 1) :]])[:_TAIL_BYTES]


def _headline(error: BaseException) -> str:
    """The line of a traceback that says what is wrong: the last one, but for a group's, and for what notes add."""
    import traceback

    try:
        said = traceback.format_exception_only(error)
    except Exception:  # noqa: BLE001 (an exception whose text cannot be made)
        return ""
    lines = "".join(said).split("\n")
    return next((line for line in lines if line[:1].strip()), "")
