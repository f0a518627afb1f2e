"""When will it be over? From what ran so far, and from estimates where a study gives them.

The answer is the larger of two bounds, both in seconds from now: the work that is left over the cores that are there, and the
longest chain of tasks that is left. Where nothing is known of a step's durations, neither is the answer.
"""

from __future__ import annotations

from cantle.core.phases import Phase
from cantle.core.state import State

_LEFT = (Phase.WAITING, Phase.READY)


class Pace:
    """How long tasks of each step take, learned while they end."""

    def __init__(self) -> None:
        self._known = 0
        self._names: list[int] = []
        """For each of the state's steps, which row of the sums below is its name's."""
        self._row_of_name: dict[str, int] = {}
        self._seconds: list[float] = []
        self._ended: list[int] = []
        self._estimates: list[float] = []
        self._estimated: list[int] = []
        self._expected = 0.0
        self._took = 0.0
        self._usual = 1.0

    def add(self, state: State, task: int) -> None:
        """The task is done."""
        self._learn_steps(state)
        row = self._names[state.tasks[task].step]
        took = max(0.0, state.ended_at[task] - state.launched_at[task])
        self._seconds[row] += took
        self._ended[row] += 1
        self._took += took
        self._expected += state.tasks[task].estimate_s or self._usual

    def left_s(self, state: State, now: float) -> float | None:
        """Seconds until the end; None when nobody can tell. Costs by steps and running tasks."""
        self._learn_steps(state)
        room = state.room
        cores = sum(node.cores for index, node in room.nodes.items() if room.alive >> index & 1)
        if not cores:
            return None
        area = 0.0
        for step, counts, row in zip(state.steps, state.counts, self._names, strict=True):
            left = sum(counts[phase] for phase in _LEFT)
            if left:
                each = self._each(row)
                if each is None:
                    return None
                area += left * each * step.needs.area
        scale = self._took / self._expected if self._expected else 1.0
        longest = 0.0
        for task, launch in state.running.items():
            step_number = state.tasks[task].step
            each = state.tasks[task].estimate_s or self._each(self._names[step_number])
            if each is None:
                return None
            ran = max(0.0, now - launch.time)
            area += max(0.0, each - ran) * state.steps[step_number].needs.area
            # What is below a task in its chain remains, however long the task itself goes on.
            rank = state.ranks[task] * scale
            longest = max(longest, rank - min(ran, each))
        return max(area / cores, longest, state.longest_ready_s() * scale)

    def _each(self, row: int) -> float | None:
        if self._ended[row]:
            return self._seconds[row] / self._ended[row]
        if self._estimated[row]:
            return self._estimates[row] / self._estimated[row]
        return None

    def _learn_steps(self, state: State) -> None:
        """Take in the steps and tasks that are new since the last time."""
        if self._known == len(state.tasks) and len(self._names) == len(state.steps):
            return
        for step in state.steps[len(self._names) :]:
            row = self._row_of_name.setdefault(step.name, len(self._seconds))
            if row == len(self._seconds):
                self._seconds.append(0.0)
                self._ended.append(0)
                self._estimates.append(0.0)
                self._estimated.append(0)
            self._names.append(row)
        for number in range(self._known, len(state.tasks)):
            task = state.tasks[number]
            if task.estimate_s > 0:
                row = self._names[task.step]
                self._estimates[row] += task.estimate_s
                self._estimated[row] += 1
        self._known = len(state.tasks)
        estimated = sum(self._estimated)
        self._usual = sum(self._estimates) / estimated if estimated else 1.0


def pace_of(state: State) -> Pace:
    """The pace of a run that is looked at for the first time."""
    pace = Pace()
    for task, phase in enumerate(state.phases):
        if phase == Phase.DONE:
            pace.add(state, task)
    return pace
