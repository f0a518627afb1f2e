"""Where do results lie that are too large to travel, and who removes them?

In a folder of the runner's own in memory (`/dev/shm`), or where there is none beside the run's packed output. The runner holds
its folder locked and removes it when it leaves. Of one that was killed, the folder goes with the next runner that makes one on
this machine, whatever its run; the conductor removes those of its own machine.
"""

# Paths stay text, as everywhere in the runner.
# ruff: noqa: PTH103, PTH108, PTH118, PTH207

from __future__ import annotations

import fcntl
import os
import shutil
from glob import glob
from hashlib import blake2b

from cantle.runner.messages import Key

MEMORY = "/dev/shm"
_LOCK = "owner"


class Store:
    """The folder of one runner. `spare` is used when it is full: in the run's directory, and larger."""

    def __init__(self, run: str, spare: str) -> None:
        self.spare = spare
        mark = blake2b(run.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
        stem = f"cantle-{os.getuid()}-"
        self._lock = -1
        if os.access(MEMORY, os.W_OK):
            remove_those_nobody_owns(f"{MEMORY}/{stem}")
            self.folder = f"{MEMORY}/{stem}{mark}-{os.getpid()}"
            try:
                self._lock = _make(self.folder)
            except OSError:  # no room even for a folder
                self.folder = spare
        else:
            self.folder = spare

    def path(self, name: str) -> str:
        """Where a file of this name lies."""
        return os.path.join(self.folder, name)

    def put(self, name: str, data: bytes) -> str:
        """Write a file; its path. Raises OSError."""
        for folder in (self.folder, self.spare):
            path = os.path.join(folder, name)
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                with open(path, "wb") as file:
                    file.write(data)
            except OSError:
                remove(path)
                if folder == self.spare:
                    raise
            else:
                break
        return path

    def forget(self, key: Key) -> None:
        """Remove the result of this attempt, if there is one."""
        for folder in (self.folder, self.spare):
            remove(os.path.join(folder, f"{key[0]}-{key[1]}"))

    def close(self) -> None:
        """Remove everything."""
        for folder in (self.folder, self.spare):
            shutil.rmtree(folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def remove(path: str) -> None:
    """Remove a file that may not be there."""
    try:
        os.unlink(path)
    except OSError:
        pass


def _make(folder: str) -> int:
    """Make the folder and hold it: locked before it has the name by which others look for such folders."""
    beside = f"{MEMORY}/.new-{os.path.basename(folder)}"  # noqa: PTH119
    shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(beside, 0o700)  # noqa: PTH102
    lock = os.open(f"{beside}/{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(beside, folder)  # noqa: PTH104
    return lock


def remove_those_nobody_owns(stem: str) -> None:
    """Remove the folders of runners that are gone without having done so."""
    for folder in glob(f"{stem}*"):
        try:
            lock = os.open(f"{folder}/{_LOCK}", os.O_RDWR)
        except OSError:
            continue  # being removed, or not ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its runner lives
            pass
        finally:
            os.close(lock)
