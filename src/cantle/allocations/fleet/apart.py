"""How does a runner serve a run whose directory its machine does not see? It makes one of the same path, for itself.

So every path in every script means the same everywhere. The directory is removed at the end, but only one that was made here:
each runner that uses it leaves its mark there, and the last one takes it away.
"""

from __future__ import annotations

import os
from pathlib import Path
from shutil import rmtree

_MARK = ".cantle-apart-"


class OwnDirectory:
    """A run's directory on a machine that does not see the run's. Raises OSError when it cannot be made, or is somebody's."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._parents = [parent for parent in self._path.parents if not parent.exists()]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._path.mkdir(mode=0o700)
        except FileExistsError:
            if not any(self._path.glob(f"{_MARK}*")):
                raise
        self._mark = self._path / f"{_MARK}{os.getpid()}-{os.urandom(4).hex()}"
        self._mark.touch()

    def close(self) -> None:
        """Take it away, unless another runner of the run has it as well."""
        self._mark.unlink(missing_ok=True)
        for mark in self._path.glob(f"{_MARK}*"):
            if Path("/proc", mark.name.removeprefix(_MARK).partition("-")[0]).exists():
                return
        rmtree(self._path, ignore_errors=True)
        for parent in self._parents:
            try:
                parent.rmdir()
            except OSError:  # something else has come to lie there
                return
