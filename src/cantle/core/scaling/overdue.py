"""How long do tasks of a shape take, when those that still run, and already for longer than the others took, are counted too?

What has ended so far tells of the short ones: where the first of many was over in no time and the next still run after a
minute, the mean of those that are over says that all will be done before a node could come, for ever.
"""

from __future__ import annotations

from cantle.core.forecast import expected_s
from cantle.core.state import State


class Overdue:
    """How long attempts of a state's tasks should take. Costs by what runs, once, and only where somebody gave no estimate."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._ages: dict[int, float] | None = None

    def expected_s(self, task: int) -> float:
        """As `forecast.expected_s`, but for a task of which nothing is known but what others of its shape took."""
        state = self.state
        number = state.shape_of_step[state.tasks[task].step]
        if state.tasks[task].estimate_s > 0 or not state.queues[number].done:
            return expected_s(state, task)
        return self.mean_s(number)

    def mean_s(self, number: int) -> float:
        """Of that queue, of which something has ended: all that was run so far, by what has ended."""
        queue = self.state.queues[number]
        if self._ages is None:
            self._ages = self._found()
        return queue.mean_s + self._ages.get(number, 0.0) / queue.done

    def _found(self) -> dict[int, float]:
        """By queue: for how long those have run that take longer than the mean."""
        state = self.state
        ages: dict[int, float] = {}
        for task in state.running:
            number = state.shape_of_step[state.tasks[task].step]
            queue = state.queues[number]
            age = state.now - state.launched_at[task]
            if queue.done and age > queue.mean_s and not state.stands_in_line(task):
                ages[number] = ages.get(number, 0.0) + age
        return ages
