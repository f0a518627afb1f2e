"""What does a journal say, to one who reads all of it or follows it while it grows?

Reading survives what a crash or a bad file system leaves: a last line that was never finished, damaged lines, blocks of
zeros. Records outside the damage are read, and the damage is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cantle.errors import JournalError
from cantle.model.records import AnyRecord

from .failures import in_words
from .lines import Damage, check_header, could_become_header, record_in, whole_records_in

CHUNK = 1 << 20
_FOREIGN = 16
"""So many damaged lines and no good one: this is no journal."""


class JournalContents:
    """The records of a journal, read piece by piece each time one iterates over it.

    The attributes tell of the last iteration, once it is complete: `damaged` what had to be left out, `good_end` the offset
    after the last complete line, `torn_tail` how many bytes of an unfinished line follow there, `lines` the complete lines.
    Iterating raises JournalError when the file cannot be read, is of a newer format, or is no journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self.damaged: list[Damage] = []
        self.torn_tail = 0
        self.good_end = 0
        self.lines = 0

    def __iter__(self) -> Iterator[AnyRecord]:
        self._begin()
        good = False
        for line in self._complete_lines():
            offset, self.good_end = self.good_end, self.good_end + len(line) + 1
            self.lines += 1
            if self.lines == 1:
                reason = check_header(line, self.path)
                if not reason:
                    good = True
                    continue
            else:
                try:
                    record = record_in(line)
                except ValueError as error:
                    reason = str(error)
                else:
                    good = True
                    yield record
                    continue
            self.damaged.append(Damage(self.lines, offset, len(line) + 1, reason))
            for record in whole_records_in(line):
                good = True
                yield record
            if not good and len(self.damaged) >= _FOREIGN:
                break
        if not good and (self.damaged or not could_become_header(self._tail)):
            raise JournalError(f"{self.path} is not a Cantle journal, or nothing of it can be read any more.")

    def _complete_lines(self) -> Iterator[bytes]:
        """Each line without its newline; leaves the unfinished one's beginning in `_tail`, its length in `torn_tail`."""
        pieces: list[bytes] = []
        self._tail = b""
        try:
            with open(self.path, "rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    *lines, rest = chunk.split(b"\n")
                    if lines and pieces:
                        lines[0] = b"".join(pieces) + lines[0]
                        pieces = []
                    yield from lines
                    if rest:
                        pieces.append(rest)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        self.torn_tail = sum(map(len, pieces))
        self._tail = b"".join(pieces[:1])


def read(path: Path | str) -> JournalContents:
    """The contents of a journal. Nothing is read before one iterates."""
    return JournalContents(Path(path))


class Follower:
    """Reads on in a journal that another process writes.

    `damaged` tells what had to be left out. `restarts` counts how often the file turned out to be another one, or shorter
    than what was read: what was learned from it before is void then, and `poll` has begun again at its start.
    """

    def __init__(self, path: Path, after: JournalContents | None = None, patience_s: float = 2.0) -> None:
        self.path = path
        self.damaged: list[Damage] = []
        self.restarts = 0
        self._patience_s = patience_s
        self._offset = after.good_end if after else 0
        self._line = after.lines if after else 0
        self._file: tuple[int, int] | None = None
        self._doubt = (-1, 0.0)

    def poll(self) -> list[AnyRecord]:
        """The records that were completed since the last call; none while there is no such file. Does not wait.

        An unfinished last line is left for later. So is, for `patience_s`, a line that does not fit its checksum: over a
        network file system a reader may see the blocks of a file arrive out of order. Raises JournalError as `read` does.
        """
        records: list[AnyRecord] = []
        try:
            # Opened anew each time: that is when NFS asks the server whether the file has changed.
            fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return records
        except OSError as error:
            raise _unreadable(self.path, error) from error
        try:
            self._notice_another_file(os.fstat(fd))
            while lines := self._next_lines(fd):
                for line in lines:
                    if not self._take(line, records):
                        return records
        except OSError as error:
            raise _unreadable(self.path, error) from error
        finally:
            os.close(fd)
        return records

    def _notice_another_file(self, stat: os.stat_result) -> None:
        identity = (stat.st_dev, stat.st_ino)
        if self._file not in (None, identity) or stat.st_size < self._offset:
            self.restarts += 1
            self._offset = self._line = 0
            self.damaged.clear()
        self._file = identity

    def _next_lines(self, fd: int) -> list[bytes]:
        """The next complete lines; at least one if there is one, however long."""
        data = os.pread(fd, CHUNK, self._offset)
        pieces = [data]
        while data and b"\n" not in data:
            data = os.pread(fd, CHUNK, self._offset + sum(map(len, pieces)))
            pieces.append(data)
        return b"".join(pieces).split(b"\n")[:-1]

    def _take(self, line: bytes, records: list[AnyRecord]) -> bool:
        """Take the line at the offset and go past it. False when it shall be looked at again later."""
        reason = ""
        if self._line == 0:
            reason = check_header(line, self.path)
        else:
            try:
                records.append(record_in(line))
            except ValueError as error:
                reason = str(error)
        if reason:
            if self._may_still_change():
                return False
            self.damaged.append(Damage(self._line + 1, self._offset, len(line) + 1, reason))
            records += whole_records_in(line)
        self._line += 1
        self._offset += len(line) + 1
        return True

    def _may_still_change(self) -> bool:
        from time import monotonic

        offset, since = self._doubt
        if offset != self._offset:
            self._doubt = (self._offset, monotonic())
            return self._patience_s > 0
        return monotonic() - since < self._patience_s


def follow(path: Path | str, after: JournalContents | None = None, patience_s: float = 2.0) -> Follower:
    """Follow a journal from its start, or on from where a complete reading of it ended."""
    return Follower(Path(path), after, patience_s)


def end_of_last_line(fd: int) -> int:
    """The offset after the last complete line of an open file; 0 if it has none. Raises OSError."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - CHUNK)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _unreadable(path: Path, error: OSError) -> JournalError:
    return JournalError(f"cannot read the journal {path}: {in_words(error)}.")
