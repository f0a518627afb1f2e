"""Where does Dask write what nothing of ours needs? In a folder that goes with its process, however that ends.

Who is killed cannot remove its own. So each holds a lock on it as long as it lives, and who comes later on the same machine
removes those of the same user that nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp

_PREFIX = "cantle-scratch-"
_LOCK = "lock"
_YOUNG_S = 60.0
"""A folder may be that old before its lock is held."""


class Scratch:
    """A folder for as long as this is entered."""

    def __enter__(self) -> str:
        remove_abandoned()
        self._path = mkdtemp(prefix=_PREFIX)
        self._lock = os.open(f"{self._path}/{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self._path

    def __exit__(self, *_: object) -> None:
        rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned() -> None:
    """Remove the folders of this user that nobody holds any more."""
    for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
        try:
            status = folder.lstat()
            if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _YOUNG_S:
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(folder, ignore_errors=True)
        except OSError:  # it is held
            pass
        finally:
            os.close(lock)
