"""Who may write in this run's directory? One conductor at a time.

The lock is `fcntl.lockf` on a file: it works over NFS, is not inherited by forked children, and the kernel gives it back
when its holder dies, however that happens. Where machines do not see each other's locks (no lock daemon, mounted without
locks), the file's content and its holder's regular signs of life have to do.

One trap of this kind of lock: when a process closes *any* descriptor of the file, its lock is gone. So nothing here opens
the file of a lock that this process holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from pathlib import Path

import msgspec

from cantle.errors import LockedError, MachineError

from . import identity
from .failures import in_words, mend
from .identity import ALIVE_S, Holder
from .layout import run_directory

__all__ = ["ConductorLock", "Holder", "holder"]

_BUSY = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_FLOCK = "hhqqi0q"
_SETTLE_S = 0.5

_held: dict[tuple[int, int], ConductorLock] = {}


class ConductorLock:
    """The lock of one run's directory.

    `path` is the lock's file; it is made when missing, and never removed. `run` is the run's name, for people.
    """

    def __init__(self, path: Path | str, run: str = "") -> None:
        self.path = Path(path).absolute()
        self._run = run
        self._fd = -1
        self._file = (0, 0)
        self._me: Holder | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock, to its own knowledge."""
        return self._me is not None and self._me.pid == os.getpid()

    def acquire(self, take_over: bool = False) -> None:
        """Take the lock; do not wait for it. Raises LockedError, which says who has it and what would help.

        `take_over`: the user knows that a holder on another machine is gone, although its lock or its last sign of life
        says otherwise. It never takes the lock from a live process of this machine. Raises MachineError when the file
        cannot be written.
        """
        mine = _held_here(self.path)
        if mine is not None:
            raise LockedError(_busy(self.path, mine) + " It is this very process.")
        try:
            fd, me = self._lock(take_over)
        except OSError as error:
            raise MachineError(f"cannot lock {self.path}: {in_words(error)}. {mend(error)}, and try again.") from error
        stat = os.fstat(fd)
        self._fd, self._me, self._file = fd, me, (stat.st_dev, stat.st_ino)
        _held[self._file] = self

    def heartbeat(self) -> None:
        """Give a sign of life; call it every ten seconds or so. Costs a few system calls.

        Raises LockedError when somebody took the lock over, or removed it: then stop at once, and write nothing more in the
        directory.
        """
        if self._me is None:
            return
        try:
            there = self.path.stat()
            named = identity.get(self._fd)
        except FileNotFoundError:
            self._forget()
            raise LockedError(
                f"{self.path} was removed while the run went on: another conductor could begin beside it, so it was stopped."
            ) from None
        except OSError:
            return
        if (there.st_dev, there.st_ino) != self._file or (named is not None and not identity.same(named, self._me)):
            self._forget()
            raise LockedError(f"another conductor took over {run_directory(self.path)}; this one has to stop.")
        self._me = msgspec.structs.replace(self._me, heartbeat=time.time())
        try:
            identity.put(self._fd, self._me)
        except OSError:  # whether the directory can be written is the journal's affair
            return

    def release(self) -> None:
        """Give the lock back; without effect when it is not held."""
        if self._me is None:
            return
        try:
            os.ftruncate(self._fd, 0)
        except OSError:  # the kernel's lock goes all the same
            pass
        self._forget()

    def __enter__(self) -> ConductorLock:
        if not self.held:
            self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _forget(self) -> None:
        _held.pop(self._file, None)
        os.close(self._fd)
        self._fd, self._me = -1, None

    def _lock(self, take_over: bool) -> tuple[int, Holder]:
        """A descriptor of the locked file, and ourselves as it names us."""
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                me = self._try(fd, take_over)
                # Between opening and locking, another may have put a new file in its place.
                if me is not None and os.path.samestat(os.fstat(fd), self.path.stat()):
                    return fd, me
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _try(self, fd: int, take_over: bool) -> Holder | None:
        """Lock and sign this file. None: there is a new file, try that one. Raises LockedError or OSError."""
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except OSError as error:
            if error.errno in _BUSY:
                named = identity.get(fd)
                if not take_over or named is None or named.shares_our_kernel:
                    raise LockedError(_busy(self.path, named) + _advice(named, self.path)) from error
                # The file server keeps the lock of a machine that will not come back: leave it the old file.
                _put_new_file(self.path)
                return None
            if error.errno not in _NO_LOCKS:
                raise
            locked = False
        named = identity.get(fd)
        # With the kernel's lock in hand, one that would have needed the same kernel's lock is gone. Another may live where
        # its lock is out of our sight.
        gone = named is None or (locked and named.shares_our_kernel) or not named.alive
        if not gone and named is not None and (named.in_our_sight or not take_over):
            raise LockedError(_busy(self.path, named) + _advice(named, self.path))
        me = identity.myself(self._run)
        identity.put(fd, me)
        if not locked:
            # Nobody arbitrates: of two that come at once, the one whose name stays has it.
            time.sleep(_SETTLE_S)
            if (now := identity.get(fd)) is None or not identity.same(now, me):
                raise LockedError(_busy(self.path, now) + _advice(now, self.path))
        return me


def holder(path: Path | str) -> Holder | None:
    """The conductor that is at work on a lock's directory; None if there is none. Changes nothing.

    A holder whose file could not be read has host "?" and pid 0.
    """
    path = Path(path).absolute()
    if (mine := _held_here(path)) is not None:
        return mine
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        named = identity.get(fd)
        try:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        except OSError:
            return named if named is not None and named.alive else None
        if kind != fcntl.F_UNLCK:
            return named or Holder("?", max(0, pid), 0.0, 0.0)
        if named is not None and not named.shares_our_kernel and named.alive:
            return named
        return None
    finally:
        os.close(fd)


def _held_here(path: Path) -> Holder | None:
    """Who holds it, if it is this process. Opens nothing."""
    try:
        stat = path.stat()
    except OSError:
        return None
    lock = _held.get((stat.st_dev, stat.st_ino))
    return lock._me if lock is not None and lock.held else None


def _put_new_file(path: Path) -> None:
    new = path.with_name(f"{path.name}.{os.uname().nodename}.{os.getpid()}")
    os.close(os.open(new, os.O_RDWR | os.O_CREAT, 0o666))
    new.replace(path)


def _busy(path: Path, named: Holder | None) -> str:
    who = f" ({named})" if named else ""
    return f"another conductor{who} is at work on {run_directory(path)}."


def _advice(named: Holder | None, path: Path) -> str:
    if named is None or named.shares_our_kernel:
        return f" Wait until it is done, or end it: cantle cancel {run_directory(path)}"
    text = f" It gave its last sign of life {named.silent_s:.0f} s ago."
    if named.silent_s < ALIVE_S:
        text += f" If it has died, try again in {ALIVE_S - named.silent_s:.0f} s, or"
    else:
        text += " If you know that it has died,"
    return text + " use --take-over."
