"""Which scaling functions has a program handed to the pilot that it has begun? Each attribute of this module is one.

They lie in a folder, pickled, and are only unpickled where they are called: in the process of the function's own.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from cantle.errors import MachineError

FOLDER = "CANTLE_HANDED"
"""The variable that tells the folder to the pilot."""


class Head(msgspec.Struct, frozen=True):
    """Where the function stands, and the `sys.path` of its program."""

    file: str
    line: int
    path: list[str]


class Handed:
    """A function in a file."""

    def __init__(self, file: Path) -> None:
        head, _, self._body = file.read_bytes().partition(b"\n")
        self._head = msgspec.json.decode(head, type=Head)
        self._function: Any = None
        self.__code__ = SimpleNamespace(co_filename=self._head.file, co_firstlineno=self._head.line)

    def __call__(self, run: Any) -> Any:
        """Call it; the first time it is made here."""
        if self._function is None:
            sys.path += [path for path in self._head.path if path not in sys.path]
            self._function = pickle.loads(self._body)
        return self._function(run)


def put(folder: Path, name: str, head: Head, body: bytes) -> None:
    """Write one down. Raises MachineError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / name).write_bytes(msgspec.json.encode(head) + b"\n" + body)
    except OSError as error:
        raise MachineError(f"cannot write {folder / name}: {error.strerror or error}") from error


def __getattr__(name: str) -> Any:
    folder = os.environ.get(FOLDER)
    file = Path(folder or ".") / name
    if not folder or name.startswith("_") or not file.is_file():
        raise AttributeError(f"no program has handed in a scaling function {name!r}")
    return Handed(file)
