"""How long is a task of this study expected to take, on each number of nodes? From what was declared and what was seen.

A step says how its times fall with the width, a task how long it takes on the least one, and attempts that succeeded tell
what is true. Where there is a declaration, seen durations take over as they become many.
"""

from __future__ import annotations

from cantle.core.observed import Observed
from cantle.core.widths.tables import Table, rigid, table
from cantle.model.study import Step, Task

_DECLARED_WEIGHS = 8
"""What was declared counts as so many attempts."""


class Expected:
    """The tables of one study's tasks, as far as they are asked for. Made anew when more is known."""

    def __init__(self, seen: Observed, usual_s: float) -> None:
        self.usual_s = usual_s
        """For tasks of which nothing is known, on their least width."""
        self._of_step: dict[str, dict[bool, dict[int, tuple[int, float]]]] = {}
        for (name, width, estimated), found in seen.means.items():
            self._of_step.setdefault(name, {}).setdefault(estimated, {})[width] = found
        self._tables: dict[tuple[int, float, int], Table] = {}

    def table(self, number: int, step: Step, task: Task, most: int) -> Table:
        """Of a task of the step with this number, on at most so many nodes."""
        key = (number, task.estimate_s, most)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = self._made(step, task, most)
        return found

    def knows(self, step: Step, task: Task) -> bool:
        """Whether anybody said or saw how long such a task takes."""
        return task.estimate_s > 0 or any(step.times_s) or step.name in self._of_step

    def _made(self, step: Step, task: Task, most: int) -> Table:
        if not step.widths:
            return rigid(step.needs.nodes, task.estimate_s or self.usual_s)
        estimate = task.estimate_s
        points = {width: seconds for width, seconds in zip(step.widths, step.times_s, strict=False) if seconds > 0}
        if estimate:
            least = step.widths[0]
            scale = estimate / points[least] if least in points else 1.0
            points = {width: seconds * scale for width, seconds in points.items()}
            points[least] = estimate
        unit = estimate or 1.0
        for width, (n, mean) in sorted(self._of_step.get(step.name, {}).get(estimate > 0, {}).items()):
            said = points.get(width)
            points[width] = (
                mean * unit if said is None else (_DECLARED_WEIGHS * said + n * mean * unit) / (_DECLARED_WEIGHS + n)
            )
        return table(step.widths, points, most, self.usual_s)
