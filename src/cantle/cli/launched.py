"""What does each of several copies of one command do, when mpirun, srun or their like has started it everywhere?

The first conducts. On each further machine one copy serves as a runner, and the rest wait for it: so that all end together, and
no launcher takes an early end for a mishap. Only the first copy's exit status says how the run went; the others end with 0,
since another status makes launchers kill all copies.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cantle.allocations.launched.copies import Copy, copy_of
from cantle.cli.command import USAGE_ERROR, wrong
from cantle.cli.machine import say

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from cantle.allocations.launched.meetings import Meeting
    from cantle.allocations.launched.source import LaunchedSource
    from cantle.cli.command import Command

_PATIENCE_S = 300.0
"""So long the first copy may take to read the study and begin the run."""


class Launch(NamedTuple):
    """The launch whose first copy we are."""

    copy: Copy
    source: LaunchedSource


def play(command: Command, words: Sequence[str], asked: Namespace) -> int:
    """Our part of this command, whichever copy we are. The exit status."""
    copy = None if asked.this_machine else copy_of(os.environ)
    if copy is None:
        return command.run(asked)
    if any(getattr(asked, name, False) for name in ("dry", "no", "pilot", "remote")):
        return command.run(asked) if copy.rank == 0 else 0  # nothing that needs more than one
    if not getattr(asked, "foreground", True):
        if copy.rank:
            return 0
        raise wrong(f"a pilot that leaves for the background is ended with its {copy.launcher}: give --foreground")
    meeting = _meeting(copy, words, asked)
    if copy.rank:
        return _follow(copy, meeting, words, asked)
    from cantle.allocations.launched.beside import widen
    from cantle.allocations.launched.source import LaunchedSource

    widen(copy)
    source = LaunchedSource(copy, meeting, words)
    asked.launch = Launch(copy, source)
    try:
        return command.run(asked)
    finally:
        meeting.close(source.all_came())


def _meeting(copy: Copy, words: Sequence[str], asked: Namespace) -> Meeting:
    if copy.pmi_fd >= 0:
        from cantle.allocations.launched.pmi import PmiMeeting

        return PmiMeeting(copy.pmi_fd, words)
    from cantle.allocations.launched.meetings import FileMeeting

    out: Path | None = getattr(asked, "out", None)
    files = [getattr(asked, name, None) for name in ("study_file", "directory")]
    directories = [out.parent] if out else []
    directories += [Path(file).parent for file in files if file is not None]
    directories += [Path.cwd(), Path.home()]
    meeting = FileMeeting(copy, words, [directory.absolute() for directory in directories])
    if copy.rank == 0:
        meeting.sweep()
    return meeting


def _follow(copy: Copy, meeting: Meeting, words: Sequence[str], asked: Namespace) -> int:
    """The part of a copy that does not conduct."""
    from cantle.allocations.launched.beside import await_first, widen

    where = f"copy {copy.rank} of {copy.size} on {os.uname().nodename}"
    if copy.local_rank:
        if copy.pmi_fd >= 0:
            meeting.hear(_PATIENCE_S)  # the launcher lets nobody through before all are there
        await_first()
        return 0
    word = meeting.hear(_PATIENCE_S)
    if word is None:
        say(
            f"cantle: {where} ({copy.launcher}) heard nothing of the first copy within {_PATIENCE_S:.0f} s. "
            f"It looked for word in {meeting.places}: one of them must be a directory that all machines see"
        )
        return 0
    if word.command != tuple(words):
        say(
            f"cantle: {where} was called with other words than the first copy, so they cannot be one run: "
            f"{' '.join(words)!r} is not {' '.join(word.command)!r}. For a run of each copy's own: --this-machine"
        )
        return USAGE_ERROR
    if word.over:
        return 0
    widen(copy)
    return _serve(word.invitation, word.source, asked, where)


def _serve(invitation: str, source: int, asked: Namespace, where: str) -> int:
    from cantle.cli.inside import granted_here, options_for_others
    from cantle.cli.serving import RUNNER
    from cantle.errors import CantleError

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a runner says there is for whoever started it by himself
    words = ["--connect", invitation, "--expected", str(source), *options_for_others(asked)]
    if granted := granted_here(os.environ):
        words += ["--granted", str(granted)]
    try:
        RUNNER.run(RUNNER.parser().parse_args(words))
    except CantleError as problem:
        say(f"cantle: {where}: {problem}")
    return 0
