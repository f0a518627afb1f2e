"""How much was in use at each time, by which steps, and what was there? Sums over equal spans of time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from cantle.report.timeline import Timeline

SPANS = 300


class Usage(msgspec.Struct):
    """Cores in use by each step, and cores that were there, averaged over spans of `width` seconds."""

    width: float
    by_step: dict[str, list[float]]
    there: list[float]


def usage_of(timeline: Timeline, steps: Sequence[str], other: str) -> Usage:
    """In use by each of `steps`, by all others together, and there."""
    width = (timeline.end or 1.0) / SPANS
    sums = {name: Sums(width) for name in (*steps, other)}
    for attempt in timeline.attempts:
        name = timeline.label(attempt.task)
        sums[name if name in sums else other].add(attempt.started, attempt.ended, attempt.cores)
    there = Sums(width)
    for span in timeline.nodes:
        there.add(span.joined, span.left, span.node.cores)
    by_step = {name: found.averages() for name, found in sums.items()}
    return Usage(width, {name: found for name, found in by_step.items() if any(found)}, there.averages())


class Sums:
    """Amounts that hold over intervals, added up over `SPANS` equal spans. Each costs the same, however long it is."""

    def __init__(self, width: float) -> None:
        self._width = width
        self._whole = [0.0] * (SPANS + 1)
        self._parts = [0.0] * SPANS

    def add(self, since: float, until: float, amount: float) -> None:
        """So much, from when until when, in seconds."""
        width = self._width
        first = min(SPANS - 1, max(0, int(since / width)))
        last = min(SPANS - 1, max(0, int(until / width)))
        if first == last:
            self._parts[first] += (until - since) * amount
            return
        self._parts[first] += ((first + 1) * width - since) * amount
        self._parts[last] += (until - last * width) * amount
        self._whole[first + 1] += amount
        self._whole[last] -= amount

    def averages(self) -> list[float]:
        """The average amount in each span."""
        whole = accumulate(self._whole)
        return [max(0.0, full + part / self._width) for full, part in zip(whole, self._parts, strict=False)]
