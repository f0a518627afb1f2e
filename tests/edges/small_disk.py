"""Disks that are full or read-only: real ones where we may mount, otherwise system calls that answer like them."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cantle.store import journal

_write, _open = os.write, os.open


class Disk:
    """A disk of bounded size under `path`."""

    def __init__(self, path: Path, size: int, mounted: bool, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._size = size
        self._mounted = mounted
        self._read_only = False
        self._other = path / "somebody-elses-file"
        if not mounted:
            patch.setattr(journal.os, "write", self._bounded_write)
            patch.setattr(journal.os, "open", self._checked_open)

    def fill(self) -> None:
        """Somebody else takes all the space that is left."""
        with open(self._other, "wb", buffering=0) as file:
            if not self._mounted:
                file.truncate(self._size - self._used())
                return
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError as error:
                assert error.errno == errno.ENOSPC

    def make_room(self) -> None:
        """Whatever was in the way is gone, and the disk has grown."""
        self._other.unlink(missing_ok=True)
        self._size *= 4
        self._remount(f"size={self._size}")

    def make_read_only(self) -> None:
        self._read_only = True
        self._remount("ro")

    def make_writable(self) -> None:
        self._read_only = False
        self._remount("rw")

    def _remount(self, option: str) -> None:
        if self._mounted:
            subprocess.run(["mount", "-o", f"remount,{option}", str(self.path)], check=True)

    def _used(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def _bounded_write(self, fd: int, data: bytes) -> int:
        left = self._size - self._used()
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return _write(fd, data[:left])

    def _checked_open(self, path: Any, flags: int, *more: Any) -> int:
        if self._read_only and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return _open(path, flags, *more)


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Disk]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    mounted = not os.environ.get("CANTLE_TEST_NO_MOUNT") and subprocess.run(mount, capture_output=True).returncode == 0
    patch = pytest.MonkeyPatch()
    try:
        yield Disk(path, size, mounted, patch)
    finally:
        patch.undo()
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
