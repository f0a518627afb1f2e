"""What does the choice of widths need to know of a workflow? Who waits for whom, and how long each would take how wide."""

from __future__ import annotations

from collections.abc import Sequence

from cantle.core.widths.tables import Table


class Graph:
    """Tasks by number; parents bear lower numbers than their children.

    `pinned` tasks run already: their table has one entry, what is left of them, and every plan begins with them.
    A *level* of a task is the index of a width in its table.
    """

    __slots__ = ("children", "parents", "pinned", "tables")

    def __init__(self, parents: Sequence[Sequence[int]], tables: Sequence[Table], pinned: frozenset[int] = frozenset()):
        self.parents = parents
        self.tables = tables
        self.pinned = pinned
        self.children: list[list[int]] = [[] for _ in parents]
        for task, above in enumerate(parents):
            for parent in above:
                self.children[parent].append(task)

    def __len__(self) -> int:
        return len(self.tables)

    def times(self, levels: Sequence[int]) -> list[float]:
        """Seconds of each task at these levels."""
        return [table.times[level] for table, level in zip(self.tables, levels, strict=True)]

    def area(self, levels: Sequence[int]) -> float:
        """Node-seconds of all tasks at these levels."""
        return sum(table.areas[level] for table, level in zip(self.tables, levels, strict=True))

    def heads(self, times: Sequence[float]) -> list[float]:
        """Seconds of the longest chain that ends before each task."""
        heads = [0.0] * len(times)
        for task, above in enumerate(self.parents):
            if above:
                heads[task] = max([heads[parent] + times[parent] for parent in above])
        return heads

    def tails(self, times: Sequence[float]) -> list[float]:
        """Seconds of the longest chain that begins after each task."""
        tails = [0.0] * len(times)
        for task in range(len(times) - 1, -1, -1):
            below = self.children[task]
            if below:
                tails[task] = max([tails[child] + times[child] for child in below])
        return tails

    def b_levels(self, times: Sequence[float]) -> list[float]:
        """Seconds of the longest chain that begins with each task; infinite for those that run already."""
        levels = [time + tail for time, tail in zip(times, self.tails(times), strict=True)]
        for task in self.pinned:
            levels[task] = float("inf")
        return levels
