"""Where do results lie that are too large to travel, and who removes them?

In a folder of their run's in memory (`/dev/shm`), which the runners of a machine share, so that what one of them leaves behind
can still be read; and when that is full, in one of the machine's own in the run's directory. Each runner holds the folder by
a lock. Who leaves as the last one removes it. A folder that nobody holds was left by runners that were killed: it goes with
the end of its run where the conductor is, or else when somebody makes such a folder on this machine.
"""

# Paths stay text, as everywhere in the runner.
# ruff: noqa: PTH102, PTH103, PTH104, PTH108, PTH118, PTH207, PTH208

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
    """The folders of a run on this machine, `home` being the one for runners in the run's directory `run`."""

    def __init__(self, run: str, home: str) -> None:
        self.folder, self.spare = folders(run, home)
        self._lock = -1
        for folder in glob(glob_of_all()):
            if folder != self.folder:
                remove_unless_held(folder)
        try:
            self._lock = _hold(self.folder)
        except OSError:  # no such folder here, or no room for another
            self.folder = self.spare

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
        """Leave; the last one on this machine removes everything."""
        if self._lock < 0:
            shutil.rmtree(self.spare, ignore_errors=True)
        elif _is_alone(self._lock):
            shutil.rmtree(self.spare, ignore_errors=True)
            _remove_held(self.folder)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def folders(run: str, home: str) -> tuple[str, str]:
    """The folder in memory, and the one to spare, of a run on this machine."""
    mark = blake2b(os.path.abspath(run).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()  # noqa: PTH100
    return f"{MEMORY}/cantle-{os.getuid()}-{mark}", os.path.join(run, home, f"kept.{os.uname().nodename}")


def glob_of_all() -> str:
    """The pattern of the folders of all runs of this user."""
    return f"{MEMORY}/cantle-{os.getuid()}-*"


def remove(path: str) -> None:
    """Remove a file that may not be there."""
    try:
        os.unlink(path)
    except OSError:
        pass


def remove_unless_held(folder: str) -> None:
    """Remove a folder whose runners are all gone without having done so."""
    try:
        lock = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # being removed, or somebody else's
    try:
        if _is_alone(lock):
            _remove_held(folder)
    finally:
        os.close(lock)


def _hold(folder: str) -> int:
    """The folder's lock, shared with the other runners here; what was left by runners that are gone is removed."""
    while True:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        lock = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _is_alone(lock):
            for name in os.listdir(folder):
                if name != _LOCK:
                    remove(os.path.join(folder, name))
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            if os.fstat(lock).st_ino == os.stat(f"{folder}/{_LOCK}").st_ino:  # noqa: PTH116
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)  # the last one left just then, and took it along


def _is_alone(lock: int) -> bool:
    """Whether nobody else holds the folder; then we do, alone."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_held(folder: str) -> None:
    beside = f"{folder}.gone-{os.getpid()}"
    try:
        os.rename(folder, beside)  # whoever comes now makes a new one
    except OSError:
        return
    shutil.rmtree(beside, ignore_errors=True)
