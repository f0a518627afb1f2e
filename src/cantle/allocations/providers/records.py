"""What was asked of whom, on the disk: so that what a conductor leaves behind that is killed can be found and taken back.

In the run's `.cantle/elastic/` lies a file for each request, written before anybody is asked, with the names of what has come
of it as they become known. It goes when nothing of the request can be left. The journal tells what was decided; this, what
must be undone.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

import msgspec

from cantle.errors import MachineError

FOLDER = "elastic"
"""In a run's own folder."""


class Left(msgspec.Struct, omit_defaults=True):
    """A request of which something may be left. The words are those of `base.py`; `host` and `pid` are the conductor's.

    `answered`: `add` came back, so that what it has begun is known, or its own affair.
    """

    number: int
    token: str
    kind: str
    count: int
    undo: dict[str, str]
    host: str
    pid: int
    instances: list[str] = []
    answered: bool = False


class Records:
    """The records of one run's requests, in this folder. Raises MachineError when they cannot be written.

    The loop and whoever asks a provider tell of the same request, each in a thread of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[int, Left] = {}
        self._one_at_a_time = Lock()

    def asked(self, number: int, token: str, kind: str, count: int, undo: dict[str, str]) -> None:
        """This will be asked next."""
        with self._one_at_a_time:
            self._known[number] = Left(number, token, kind, count, undo, os.uname().nodename, os.getpid())
            self._write(number, "nothing was asked for")

    def handed_out(self, number: int, instance: str) -> None:
        """Something has come of it, which is called so."""
        with self._one_at_a_time:
            if number in self._known:
                self._known[number].instances.append(instance)
                self._write(number, f"{instance} is on no record")

    def answered(self, number: int) -> None:
        """Whoever was asked has come back: nothing comes of it any more that is on no record."""
        with self._one_at_a_time:
            if number in self._known:
                self._known[number].answered = True
                self._write(number, "what it says is known all the same")

    def nothing_left(self, number: int) -> None:
        """Nothing of the request is there any more."""
        with self._one_at_a_time:
            self._known.pop(number, None)
            try:
                self._path(number).unlink(missing_ok=True)
            except OSError:  # on a disk that cannot be written: to take it back once more does no harm
                pass

    def left(self) -> list[Left]:
        """All requests that stand on the disk, by number. Files that cannot be read are left alone."""
        found = []
        for path in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else ():
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Left))
            except (OSError, msgspec.MsgspecError, RecursionError):
                continue
        return sorted(found, key=lambda left: left.number)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.json"

    def _write(self, number: int, then: str) -> None:
        path = self._path(number)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = path.with_suffix(".new")
            beside.write_bytes(msgspec.json.encode(self._known[number]) + b"\n")
            beside.replace(path)
        except OSError as error:
            raise MachineError(f"cannot write {path}: {error.strerror or error}; {then}") from error
