"""How long would a task take on each number of nodes that it may have?

A table lists the widths worth choosing, ascending: times fall from one to the next, areas grow, and every step wider buys
less than the one before. What was measured or declared seldom looks like that, so `table` takes its hull. Times that nobody
knows are fitted to those that somebody does, by Amdahl's law: t(p) = a + b/p.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

SERIAL_SHARE = 0.1
"""How much of a task cannot be shared out, where its time is known on one width alone, or not at all."""

_LEAST_GAIN = 1e-9


class Table:
    """Widths (nodes), and for each the time (s) and the area (node-seconds)."""

    __slots__ = ("areas", "falling", "times", "widths")

    def __init__(self, widths: Sequence[int], times: Sequence[float]) -> None:
        """Takes them as they are: a hull already. `table` makes one of anything."""
        self.widths = tuple(widths)
        self.times = tuple(times)
        self.areas = [width * time for width, time in zip(widths, times, strict=True)]
        self.falling = [-time for time in times]
        """The times negated, so that they ascend, as `bisect` wants them."""

    def widest(self, efficiency: float) -> int:
        """The last level whose area is at most that of the first divided by `efficiency`."""
        if len(self.areas) == 1:
            return 0
        return max(0, bisect_right(self.areas, self.areas[0] / efficiency) - 1)


def rigid(width: int, seconds: float) -> Table:
    """The table of a task that has no choice."""
    return Table((width,), (seconds,))


def amdahl(work_s: float, serial: float, widths: Sequence[int]) -> Table:
    """Times by Amdahl's law: of `work_s` on one node the share `serial` cannot be shared out."""
    return Table(widths, [work_s * (serial + (1.0 - serial) / width) for width in widths])


def table(widths: Sequence[int], known: Mapping[int, float], most: int, otherwise_s: float = 1.0) -> Table:
    """The table of a task that may run on `widths` (ascending), at most on `most` nodes.

    `known` are seconds by width, those of other widths than listed too; 0 counts as unknown. With none at all the task is
    taken to last `otherwise_s` on its least width. If even the least width is above `most`, it alone is in the table.
    """
    points = {width: seconds for width, seconds in known.items() if seconds > 0}
    if not points:
        points = {widths[0]: otherwise_s}
    allowed = [width for width in widths if width <= most] or [widths[0]]
    if len(allowed) == 1 and allowed[0] in points:
        return rigid(allowed[0], points[allowed[0]])
    flat, shared = fit(points)
    return _hull(allowed, [points.get(width) or flat + shared / width for width in allowed])


def fit(points: Mapping[int, float]) -> tuple[float, float]:
    """The a and b, neither negative, of the a + b/p that is nearest to the points in relative error.

    One point alone leaves the shape open: then `SERIAL_SHARE` of the work counts as serial. No point is a ValueError.
    """
    if not points:
        raise ValueError("nothing to fit to")
    if len(points) == 1:
        [(width, seconds)] = points.items()
        work = seconds / (SERIAL_SHARE + (1.0 - SERIAL_SHARE) / width)
        return work * SERIAL_SHARE, work * (1.0 - SERIAL_SHARE)
    # least squares of (a + b x) / t - 1, with x = 1/p: rows (1/t, x/t), right-hand side 1
    uu = uv = vv = u1 = v1 = 0.0
    for width, seconds in sorted(points.items()):
        u = 1.0 / seconds
        v = u / width
        uu += u * u
        uv += u * v
        vv += v * v
        u1 += u
        v1 += v
    determinant = uu * vv - uv * uv
    if determinant > 1e-12 * uu * vv:
        flat = (u1 * vv - v1 * uv) / determinant
        shared = (uu * v1 - uv * u1) / determinant
        if flat >= 0 and shared >= 0:
            return flat, shared
        if flat < 0:
            return 0.0, v1 / vv
    return u1 / uu, 0.0


def _hull(widths: Sequence[int], times: Sequence[float]) -> Table:
    """Leaves out what is no faster, takes what is faster than ideal as ideal, and keeps the steps of falling worth."""
    kept: list[tuple[int, float]] = []
    for width, time in zip(widths, times, strict=True):
        if kept:
            narrower, longer = kept[-1]
            time = max(time, narrower * longer / width)
            if time >= longer * (1 - _LEAST_GAIN):
                continue
        while len(kept) > 1 and _worth(kept[-2], kept[-1]) < _worth(kept[-1], (width, time)):
            kept.pop()
        kept.append((width, time))
    return Table([width for width, _ in kept], [time for _, time in kept])


def _worth(narrow: tuple[int, float], wide: tuple[int, float]) -> float:
    """Seconds saved per node-second spent on going from the one to the other."""
    spent = wide[0] * wide[1] - narrow[0] * narrow[1]
    saved = narrow[1] - wide[1]
    return saved / spent if spent > 1e-12 * narrow[0] * narrow[1] else float("inf")
