"""Which of a run's numbers belong to one study, whose things need not follow each other?

A study that is handed in whole has one span of tasks. One that grows beside others has more: each time that another one got
tasks in between, a new one begins. Its own numbers count on from 0 through all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class Spans:
    """Stretches of numbers, ascending. `firsts` are where they begin, `own` which of the study's own numbers that is."""

    __slots__ = ("firsts", "known", "own", "stop")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.own: list[int] = []
        self.known = 0
        self.stop = 0
        """One after the last number."""

    def add(self, first: int, n: int) -> None:
        """The next `n` things are numbered from `first` on, which is beyond all that are known."""
        if not n:
            return
        if not self.firsts or first != self.stop:
            self.firsts.append(first)
            self.own.append(self.known)
        self.known += n
        self.stop = first + n

    def __len__(self) -> int:
        return self.known

    def __iter__(self) -> Iterator[int]:
        for i, first in enumerate(self.firsts):
            yield from range(first, first + self._length(i))

    def __reversed__(self) -> Iterator[int]:
        for i in range(len(self.firsts) - 1, -1, -1):
            yield from reversed(range(self.firsts[i], self.firsts[i] + self._length(i)))

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int) or not self.firsts:
            return False
        i = bisect_right(self.firsts, number) - 1
        return i >= 0 and number < self.firsts[i] + self._length(i)

    def own_number(self, number: int) -> int:
        """The study's own number of this one of the run's."""
        if len(self.firsts) == 1:
            return number - self.firsts[0]
        i = bisect_right(self.firsts, number) - 1
        return self.own[i] + number - self.firsts[i]

    def number(self, own: int) -> int:
        """The run's number of this one of the study's own; also of those to come, if nothing comes in between."""
        if not self.firsts:
            return own
        i = bisect_right(self.own, own) - 1
        return self.firsts[i] + own - self.own[i]

    def ranges(self) -> Iterator[range]:
        """The stretches."""
        for i, first in enumerate(self.firsts):
            yield range(first, first + self._length(i))

    def _length(self, i: int) -> int:
        return (self.own[i + 1] if i + 1 < len(self.own) else self.known) - self.own[i]
