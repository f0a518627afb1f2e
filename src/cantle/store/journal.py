"""How does what happened get written down, so that it is still known after any crash?

One writer appends records to the journal (`Journal`); anybody reads it (`read`) or follows it while it grows (`follow`).
`lines` says what a line looks like.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.errors import JournalError
from cantle.model.records import AnyRecord

from .failures import FULL, in_words, mend
from .layout import reserve_beside, run_directory
from .lines import HEADER, line_of
from .reading import Follower, JournalContents, end_of_last_line, follow, read

if TYPE_CHECKING:
    from .syncing import Syncer

__all__ = ["Follower", "Journal", "JournalContents", "follow", "read", "write_failure"]

RESERVE_BYTES = 1 << 16


class Journal:
    """The writing end of a run's journal. For one thread of the one process that holds the conductor's lock.

    A record passes three points, and each has its count: `written` (taken in, in memory), `flushed` (with the operating
    system: survives the death of this process), `synced` (on disk: survives that of the machine). They count the records
    of this object, not those that were in the file when it was reopened.

    When a flush fails, the records stay in memory and the file ends with a complete line. The next flush tries again, so a
    run that has to end for want of space may still put down how it ended; if not, what is in the file is what happened.
    """

    def __init__(self, path: Path, fd: int, end: int, sync_interval_s: float) -> None:
        """Use `open_new` or `reopen`."""
        self.path = path
        self.written = 0
        self.flushed = 0
        self._lines: list[bytes] = []
        self._fd = fd
        self._end = end
        self._sync_interval_s = sync_interval_s
        self._syncer: Syncer | None = None
        self._failed = False
        self._untidy = False
        self._reserve: Path | None = _make_reserve(path)

    @classmethod
    def open_new(cls, path: Path | str, sync_interval_s: float = 0.02) -> Journal:
        """Begin a journal. Raises JournalError when there is one already, or none can be made.

        Background syncs begin at least `sync_interval_s` apart: a disk does not do more for being asked more often.
        """
        path = Path(path).absolute()
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError as error:
            raise JournalError(
                f"there is a journal already: {path}. To go on with that run: cantle resume {run_directory(path)}"
            ) from error
        except OSError as error:
            raise JournalError(
                f"cannot begin a journal at {path}: {in_words(error)}. {mend(error)}, or choose another place."
            ) from error
        journal = cls(path, fd, 0, sync_interval_s)
        try:
            journal._append(HEADER)
        except JournalError:
            # Nothing stands in the way of a second try in the same place.
            journal.close()
            path.unlink(missing_ok=True)
            raise
        return journal

    @classmethod
    def reopen(cls, path: Path | str, sync_interval_s: float = 0.02) -> Journal:
        """Go on with a journal: an unfinished last line is cut off. Hold the conductor's lock before you call this.

        Raises JournalError when there is none, or it cannot be written, is of a newer format or something else altogether.
        """
        path = Path(path).absolute()
        next(iter(read(path)), None)
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise write_failure(path, error) from error
        try:
            end = end_of_last_line(fd)
            if end < os.fstat(fd).st_size:
                os.ftruncate(fd, end)
        except OSError as error:
            os.close(fd)
            raise write_failure(path, error) from error
        journal = cls(path, fd, end, sync_interval_s)
        if end == 0:
            try:
                journal._append(HEADER)
            except JournalError:
                journal.close()
                raise
        return journal

    @property
    def synced(self) -> int:
        """How many records are on the disk itself."""
        return self._syncer.synced if self._syncer else 0

    def write(self, record: AnyRecord) -> None:
        """Take a record in. It is nowhere but in memory before `flush`."""
        self._lines.append(line_of(record))
        self.written += 1

    def flush(self) -> None:
        """Hand all that was taken in to the operating system, in one write. Raises JournalError when it does not take it.

        The error also comes when the records were saved with the space kept in reserve: it is the last warning.
        """
        self._raise_sync_failure()
        if self._lines:
            self._append(b"".join(self._lines))

    def sync(self) -> None:
        """Let what was flushed reach the disk soon, and return at once; `synced` tells how far that is.

        The first call starts a thread; a process that means to fork does so before. Raises JournalError when an earlier
        sync failed.
        """
        self._raise_sync_failure()
        if self.flushed:
            self._the_syncer().request(self.flushed)

    def wait_synced(self) -> None:
        """Wait until all that was flushed is on disk. Raises JournalError when that fails. Starts no thread."""
        try:
            self._the_syncer().wait(self.flushed)
        except OSError as error:
            self._failed = True
            raise write_failure(self.path, error) from error

    def is_there(self) -> bool:
        """Whether what was written can be found where it was begun; also where that cannot be told. Two system calls."""
        try:
            there, mine = self.path.stat(), os.fstat(self._fd)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        """Flush, wait for the disk, end the thread, close. Raises JournalError when something could not be written.

        After a failure that was raised before, it tries once more and says nothing of a further one.
        """
        if self._fd < 0:
            return
        failed_before = self._failed
        try:
            self.flush()
            if self.flushed:
                self.wait_synced()
        except JournalError:
            if not failed_before:
                raise
        finally:
            if self._syncer is not None:
                self._syncer.finish()
            os.close(self._fd)
            self._fd = -1
            self._give_up_reserve()

    def abandon(self) -> None:
        """Close, and write nothing more: for a conductor whose lock was taken over. The file is another's now."""
        if self._fd < 0:
            return
        if self._syncer is not None:
            self._syncer.finish()
        os.close(self._fd)
        self._fd = -1
        self._lines.clear()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, data: bytes) -> None:
        try:
            self._write_all(data)
        except OSError as error:
            self._failed = True
            if error.errno in FULL and self._give_up_reserve():
                try:
                    self._write_all(data)
                except OSError:
                    pass
                else:
                    self._taken()
            raise write_failure(self.path, error) from error
        self._taken()

    def _taken(self) -> None:
        self._lines.clear()
        self.flushed = self.written

    def _write_all(self, data: bytes) -> None:
        """All of it, or none: what a failed write left behind is cut off again."""
        if self._untidy:
            os.ftruncate(self._fd, self._end)
            self._untidy = False
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:] if done else data)
        except OSError:
            # If even this fails (the disk is gone), it is done before the next write, or the next reader skips the rest.
            self._untidy = True
            try:
                os.ftruncate(self._fd, self._end)
                self._untidy = False
            except OSError:
                pass
            raise
        self._end += len(data)

    def _give_up_reserve(self) -> bool:
        if self._reserve is None:
            return False
        reserve, self._reserve = self._reserve, None
        try:
            reserve.unlink()
        except OSError:
            return False
        return True

    def _the_syncer(self) -> Syncer:
        if self._syncer is None:
            from .syncing import Syncer

            # The run's directory is new as well, so its entry in the folder above must reach the disk too.
            self._syncer = Syncer(self._fd, tuple(self.path.parents)[:3], self._sync_interval_s)
        return self._syncer

    def _raise_sync_failure(self) -> None:
        if self._syncer is not None and self._syncer.failure is not None:
            self._failed = True
            raise write_failure(self.path, self._syncer.failure) from self._syncer.failure


def write_failure(path: Path, error: OSError) -> JournalError:
    """What to raise when a file that the run cannot do without could not be written."""
    return JournalError(
        f"cannot write {path}: {in_words(error)}. {mend(error)}, then go on with: cantle resume {run_directory(path)}"
    )


def _make_reserve(journal: Path) -> Path | None:
    """Take some space now, to be given up for the last records when the disk is full. None where that cannot be had."""
    path = reserve_beside(journal)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        finally:
            os.close(fd)
    except OSError:
        try:
            path.unlink()
        except OSError:
            pass
        return None
    return path
