"""What was seen of a study whose tasks choose their widths: which tasks moved, and how long they took on how many nodes?"""

from __future__ import annotations

from array import array

from cantle.model.study import Step, Task


class Observed:
    """The books that the state keeps of one such study, so that who chooses widths need not look at every task."""

    __slots__ = ("means", "moves")

    def __init__(self) -> None:
        self.moves = array("q")
        """Tasks that changed their phase, in that order. It only grows; whoever follows it remembers how far."""
        self.means: dict[tuple[str, int, bool], tuple[int, float]] = {}
        """By step, number of nodes and whether there was an estimate: of so many attempts the mean duration.

        Seconds, or the multiple of the task's estimate.
        """

    def took(self, step: Step, task: Task, width: int, seconds: float) -> None:
        """An attempt on so many nodes has succeeded after so long."""
        estimated = task.estimate_s > 0
        key = (step.name, width, estimated)
        n, mean = self.means.get(key, (0, 0.0))
        value = seconds / task.estimate_s if estimated else seconds
        self.means[key] = (n + 1, mean + (value - mean) / (n + 1))
