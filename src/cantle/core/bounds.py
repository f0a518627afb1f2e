"""Before what time can a set of tasks not be over? The bound that every schedule is measured against."""

from __future__ import annotations

from collections.abc import Sequence

from cantle.core.ranks import b_levels
from cantle.model.study import Step, Task


def critical_path_s(tasks: Sequence[Task]) -> float:
    """Seconds of the longest chain. Tasks without an estimate count as in `b_levels`."""
    return max(b_levels(tasks, 0), default=0.0)


def area_core_s(tasks: Sequence[Task], steps: Sequence[Step] = ()) -> float:
    """Core-seconds of all tasks; without `steps` every task has one core."""
    if not steps:
        return sum(task.estimate_s for task in tasks)
    return sum(task.estimate_s * steps[task.step].needs.area for task in tasks)


def lower_bound(tasks: Sequence[Task], cores: int, steps: Sequence[Step] = ()) -> float:
    """Seconds: the longest chain, or the work spread evenly over the cores, whichever is more."""
    return max(critical_path_s(tasks), area_core_s(tasks, steps) / cores)
