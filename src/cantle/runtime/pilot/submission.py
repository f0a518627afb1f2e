"""What does a study bring along when it is handed to a pilot?

It lies in the study's own directory from the moment of submission until the study is over: as long as it is there, the
study belongs to a pilot. It holds the submitter's environment, so nobody else may read it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from cantle.errors import MachineError, RequestError
from cantle.model.study import Limits, Slicing
from cantle.store.failures import in_words
from cantle.store.layout import SUBMISSION, Layout


class Submission(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A study for a pilot; its files are kept in its directory, as those of any run.

    `pilot` is the pilot's directory, `number` the study's number there (-1: not taken in yet). `reader` and `options` tell how
    it was read, `digest` and `tasks` what came of it. `env` is what its tasks inherit. `weight` is its part of the nodes
    beside other studies', `priority` is added to that of each of its steps, `slicing` as it
    was asked for. `sent` in seconds since the epoch.
    """

    pilot: str
    name: str
    reader: str
    digest: str
    tasks: int
    source: str = ""
    options: str = ""
    limits: Limits = Limits()
    priority: float = 0.0
    weight: float = 1.0
    env: dict[bytes, bytes] = {}
    sent: float = 0.0
    number: int = -1
    slicing: Slicing | None = None


def put(layout: Layout, submission: Submission) -> None:
    """Write it down, for its owner's eyes only. Raises MachineError."""
    path = layout.own / SUBMISSION
    beside = layout.own / f".{SUBMISSION}.new"
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            data = msgspec.msgpack.encode(submission)
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
        beside.replace(path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {in_words(error)}. Mend that, and submit again.") from error


def get(layout: Layout) -> Submission | None:
    """The submission in a study's directory; None when it belongs to no pilot. Raises RequestError on a damaged one."""
    path = layout.own / SUBMISSION
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Submission)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        reason = in_words(error) if isinstance(error, OSError) else str(error)
        raise RequestError(
            f"{path} cannot be read: {reason}. Submit the study again, into another directory."
        ) from error


def drop(layout: Layout) -> None:
    """The study belongs to no pilot any more. Raises OSError when the directory cannot be written."""
    (layout.own / SUBMISSION).unlink(missing_ok=True)


def belongs_to(layout: Layout, pilot: Path, number: int) -> bool:
    """Whether the directory still holds this study of this pilot: it may have been taken away, removed or reused."""
    try:
        found = get(layout)
    except RequestError:
        return False
    return found is not None and Path(found.pilot) == pilot and found.number == number
