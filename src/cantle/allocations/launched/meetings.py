"""How do the copies that do not conduct find the one that does? By a small file in a directory that all of them see.

Its name comes from the launch's key; it says where the invitation lies, which is no secret, while the invitation is. The first
copy writes it into each of some directories, since nobody knows which of them are shared. A file counts only if it is ours: in
a directory that others may write, somebody might invite our runners to a run of his.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from cantle.errors import MachineError

from .copies import Copy

_STALE_S = 3600.0
"""What a conductor that was killed has left behind, is removed by the next after so long."""


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the first copy tells the others. `command`: what it was called with; `over`: there is nothing to join (any more).

    `invitation` is the path of the invitation, `source` which of the conductor's sources a runner comes from.
    """

    command: tuple[str, ...]
    invitation: str = ""
    source: int = 0
    over: bool = False


class Meeting(Protocol):
    """Where the copies meet. `places` says it in messages."""

    @property
    def places(self) -> str:
        """In words."""

    def tell(self, word: Word) -> None:
        """The first copy's part; may wait until all have come. Raises MachineError when nobody can be told."""

    def hear(self, patience_s: float) -> Word | None:
        """Another copy's part: wait for the word, so long at most."""

    def close(self, all_came: bool) -> None:
        """The run is over. `all_came`: no copy is still looking for the word."""


class FileMeeting:
    """A meeting by files. `directories` are the same for all copies, and some of them are shared."""

    def __init__(self, copy: Copy, command: Sequence[str], directories: Sequence[Path]) -> None:
        self._command = tuple(command)
        what = copy.key or f"{os.getuid()} {copy.launcher} {copy.size}"
        name = f".cantle-meeting-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
        self._paths = [directory / name for directory in dict.fromkeys(directories)]
        self._anonymous = not copy.key
        self._begun = time.time()
        self._told: list[Path] = []

    @property
    def places(self) -> str:
        """The directories, for messages."""
        return ", ".join(str(path.parent) for path in self._paths)

    def tell(self, word: Word) -> None:
        """Write it everywhere; what somebody reads is whole. Raises MachineError when it can be written nowhere."""
        self._told = [path for path in self._paths if _put(path, msgspec.json.encode(word))]
        if not self._told:
            raise MachineError(
                f"no other copy of this command can be told where to go: none of {self.places} can be written. "
                "Start it in a directory that all nodes see, or give --this-machine"
            )

    def hear(self, patience_s: float) -> Word | None:
        """Look again and again, ever more slowly."""
        stop = time.monotonic() + patience_s
        pause = 0.02
        while True:
            for path in self._paths:
                word = self._read(path)
                if word is not None:
                    return word
            if time.monotonic() > stop:
                return None
            time.sleep(pause)
            pause = min(pause * 1.2, 1.0)

    def close(self, all_came: bool) -> None:
        """Leave word for those that are still to come, nothing otherwise."""
        if not all_came:
            try:
                self.tell(Word(self._command, over=True))
            except MachineError:  # then they give up by themselves
                pass
            return
        for path in self._told:
            path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what earlier conductors left in these directories."""
        for directory in {path.parent for path in self._paths}:
            for path in directory.glob(".cantle-meeting-*"):
                try:
                    if path.stat().st_uid == os.getuid() and self._begun - path.stat().st_mtime > _STALE_S:
                        path.unlink()
                except OSError:
                    pass

    def _read(self, path: Path) -> Word | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
            old = self._begun - found.st_mtime > (60.0 if self._anonymous else _STALE_S)
            if not ours or old:
                return None
            try:
                return msgspec.json.decode(file.read(65536), type=Word)
            except (OSError, msgspec.DecodeError, RecursionError):
                return None


def _put(path: Path, content: bytes) -> bool:
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)
        beside.replace(path)
    except OSError:
        return False
    return True
