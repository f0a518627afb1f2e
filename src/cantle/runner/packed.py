"""Where does the output of many small tasks go? Into few files: a pair per slot, in which each attempt owns a range.

A writer belongs to one attempt at a time, from its start until all of its processes are gone, so that ranges do not
overlap. Its files stay open: an attempt costs no open and no close.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH103

from __future__ import annotations

import os

from .wording import last_lines

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
_MOST_OPEN = 200
"""Pairs kept open. Above that they are opened for each attempt, so that a wide node stays below the usual `ulimit -n`."""


class Writer:
    """One pair of files. `start` says from where, `range` and `tail` what an attempt wrote."""

    __slots__ = ("_directory", "_err", "_err_at", "_names", "_out", "_out_at", "kept", "owner")

    def __init__(self, directory: str, stem: str, kept: bool, owner: Writers) -> None:
        self.owner = owner
        self._directory = directory
        self._names = (f"{stem}.out", f"{stem}.err")
        self.kept = kept
        self._out = self._err = -1
        self._out_at = self._err_at = 0

    def start(self) -> tuple[int, int]:
        """The descriptors for stdout and stderr of a new attempt. Raises OSError when the files cannot be opened."""
        if self._out < 0:
            self._open()
            self._out_at = os.lseek(self._out, 0, os.SEEK_END)
            self._err_at = os.lseek(self._err, 0, os.SEEK_END)
        return self._out, self._err

    def end(self, failed: bool) -> tuple[str, str]:
        """Where the attempt's bytes lie (as in `Ended.output`), and the last lines of stderr if it failed."""
        if self._out < 0:
            self._open()
        out_at, err_at = self._out_at, self._err_at
        out_end = self._out_at = os.lseek(self._out, 0, os.SEEK_END)
        err_end = self._err_at = os.lseek(self._err, 0, os.SEEK_END)
        # A task that opens /dev/stdout anew with ">" truncates the file: what is there then is its own.
        out_at = out_at if out_at <= out_end else 0
        err_at = err_at if err_at <= err_end else 0
        out, err = self._names
        tail = last_lines(self._err, err_at, err_end) if failed else ""
        if not self.kept:
            self.close()
        return f"{out} {out_at} {out_end - out_at}\t{err} {err_at} {err_end - err_at}", tail

    def upto(self, out_end: int, err_end: int) -> str:
        """Where what was written from the last end up to here lies (as in `Ended.output`), for one who writes on."""
        out_end = out_end if out_end >= 0 else self._out_at
        err_end = err_end if err_end >= 0 else self._err_at
        out_at, err_at = min(self._out_at, out_end), min(self._err_at, err_end)
        self._out_at, self._err_at = out_end, err_end
        out, err = self._names
        return f"{out} {out_at} {out_end - out_at}\t{err} {err_at} {err_end - err_at}"

    def close(self) -> None:
        """Close the files; the next `start` opens them again."""
        if self._out >= 0:
            os.close(self._out)
            os.close(self._err)
            self._out = self._err = -1

    def _open(self) -> None:
        out, err = (f"{self._directory}/{name}" for name in self._names)
        try:
            self._out = os.open(out, _FLAGS, 0o666)
        except FileNotFoundError:
            os.makedirs(out.rpartition("/")[0], exist_ok=True)
            self._out = os.open(out, _FLAGS, 0o666)
        try:
            self._err = os.open(err, _FLAGS, 0o666)
        except OSError:
            os.close(self._out)
            self._out = -1
            raise


class Allowance:
    """How many more pairs a runner may keep open, of all its writers together."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MOST_OPEN


class Writers:
    """All writers of a node for one directory. Free ones are used again, so there are as many as attempts at once."""

    __slots__ = ("_allowance", "_directory", "_free", "_made", "_prefix")

    def __init__(self, directory: str, prefix: str, allowance: Allowance | None = None) -> None:
        self._directory = directory
        self._prefix = prefix
        self._allowance = allowance or Allowance()
        self._free: list[Writer] = []
        self._made = 0

    def take(self) -> Writer:
        """A writer for one attempt."""
        if self._free:
            return self._free.pop()
        kept = self._allowance.left > 0
        self._allowance.left -= kept
        writer = Writer(self._directory, f"{self._prefix}.{self._made}", kept, self)
        self._made += 1
        return writer

    def give(self, writer: Writer) -> None:
        """The attempt is over and none of its processes is left."""
        self._free.append(writer)

    def close(self) -> None:
        """Close the files of all writers that are free."""
        for writer in self._free:
            writer.close()
            self._allowance.left += writer.kept
        self._free.clear()
