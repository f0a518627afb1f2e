"""How long does a program keep its connection that was dismissed and does not hang up?

What it is told last would be lost if we hung up first while it still speaks. So it has a while to read that; but what it holds
of the pilot (a descriptor or two, and what it has not read) is not its own for ever, nor are there ever many like it.
"""

from __future__ import annotations

from collections import deque
from time import monotonic

from cantle.runtime.pilot.sitting import Line

LINGERS_S = 30.0
MOST = 32


class Parting:
    """Lines whose programs were dismissed and have not hung up, those first that were dismissed first."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, Line]] = deque()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: Line) -> None:
        """It was dismissed just now."""
        if line.lingers:
            self._lines.append((monotonic(), line))
        self.step()

    def step(self) -> None:
        """Close what has lingered for too long. Once a turn."""
        lines, now = self._lines, monotonic()
        while lines and (not lines[0][1].lingers or len(lines) > MOST or now >= lines[0][0] + LINGERS_S):
            lines.popleft()[1].close()

    def close(self) -> None:
        """The pilot ends."""
        while self._lines:
            self._lines.popleft()[1].close()
