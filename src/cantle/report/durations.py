"""How long will each task take, on each width that its step allows, and who says so?

In this order: the task itself in an earlier run, when one is named; its own estimate; what its step took on average in that
run; an assumption. A moldable step's times on other widths are those it took or states, and where neither is known those that
the choice of widths assumes as well (`core/widths/tables.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from cantle.core.phases import Phase
from cantle.core.widths.tables import fit
from cantle.model.study import Step, Study, Task
from cantle.report.timeline import Timeline

NOTHING_S = 1e-9
"""A duration of nothing; 0 would mean that it is not known."""


class Durations(msgspec.Struct):
    """Seconds of each task on its least width, and of each step on each width as a multiple of that.

    `said`, `happened`, `alike` and `assumed` count the tasks by who says how long they take: the study, an earlier run of
    the same task, an earlier run's other tasks of the step, nobody.
    """

    seconds: list[float]
    factors: list[dict[int, float]]
    said: int = 0
    happened: int = 0
    alike: int = 0
    assumed: int = 0

    def at(self, tasks: Sequence[Task], task: int, width: int) -> float:
        """Seconds that the task takes on so many nodes."""
        return self.seconds[task] * self.factors[tasks[task].step].get(width, 1.0)


class Experience(msgspec.Struct):
    """What an earlier run's tasks took, on the least width. Seconds."""

    by_task: dict[str, float]
    by_step: dict[str, float]
    by_width: dict[str, dict[int, float]]


def experience_of(timeline: Timeline) -> Experience:
    """What can be learned from the attempts that were done."""
    state = timeline.state
    by_task: dict[str, float] = {}
    sums: dict[str, list[float]] = {}
    widths: dict[str, dict[int, list[float]]] = {}
    done = [
        attempt
        for attempt in timeline.attempts
        # On how many nodes it ran is not told of one whose result was kept from before the study was edited.
        if attempt.outcome == "done" and (attempt.on or not state.step_of(attempt.task).widths)
    ]
    for attempt in done:
        step = state.step_of(attempt.task)
        if step.widths:
            times = widths.setdefault(step.name, {}).setdefault(len(attempt.on), [0.0, 0.0])
            times[0] += attempt.seconds
            times[1] += 1
    by_width = {
        name: {width: total / n for width, (total, n) in sorted(times.items())} for name, times in widths.items()
    }
    for attempt in done:
        if state.phases[attempt.task] != Phase.DONE:
            continue
        step = state.step_of(attempt.task)
        seconds = attempt.seconds
        if step.widths:
            seconds /= factors_of(step, by_width.get(step.name, {})).get(len(attempt.on), 1.0)
        by_task[state.tasks[attempt.task].name] = seconds
        total = sums.setdefault(step.name, [0.0, 0.0])
        total[0] += seconds
        total[1] += 1
    return Experience(by_task, {name: total / n for name, (total, n) in sums.items()}, by_width)


def durations_of(study: Study, default_s: float, experience: Experience | None = None) -> Durations:
    """The durations of a study's tasks. Those of which nobody knows anything take `default_s`, at most their walltime."""
    known = experience or Experience({}, {}, {})
    found = Durations([], [factors_of(step, known.by_width.get(step.name, {})) for step in study.steps])
    for task in study.tasks:
        step = study.steps[task.step]
        if task.name in known.by_task:
            seconds = known.by_task[task.name]
            found.happened += 1
        elif task.estimate_s > 0:
            seconds = task.estimate_s
            found.said += 1
        elif step.name in known.by_step:
            seconds = known.by_step[step.name]
            found.alike += 1
        elif step.times_s and step.times_s[0] > 0:
            seconds = step.times_s[0]
            found.said += 1
        else:
            seconds = min(default_s, step.walltime_s) if step.walltime_s else default_s
            found.assumed += 1
        found.seconds.append(max(NOTHING_S, seconds))
    return found


def informed(study: Study, experience: Experience) -> Study:
    """The study with what an earlier run tells where the study itself says nothing: estimates, and times on each width."""
    steps = []
    for step in study.steps:
        took = experience.by_width.get(step.name, {})
        if step.widths and took and not any(step.times_s):
            step = structs.replace(step, times_s=tuple(took.get(width, 0.0) for width in step.widths))
        steps.append(step)
    tasks = []
    for task in study.tasks:
        if not task.estimate_s:
            name = study.steps[task.step].name
            seconds = experience.by_task.get(task.name) or experience.by_step.get(name, 0.0)
            if seconds:
                task = structs.replace(task, estimate_s=seconds)
        tasks.append(task)
    return structs.replace(study, steps=steps, tasks=tasks)


def factors_of(step: Step, took: Mapping[int, float]) -> dict[int, float]:
    """For each width of the step, its time as a multiple of that on the least. Empty for a step with one width."""
    if not step.widths:
        return {}
    stated = dict(zip(step.widths, step.times_s, strict=False))
    known = {width: took.get(width, 0.0) or stated.get(width, 0.0) for width in step.widths}
    known = {width: seconds for width, seconds in known.items() if seconds > 0}
    flat, shared = fit(known or {step.widths[0]: 1.0})
    times = {width: known.get(width) or flat + shared / width for width in step.widths}
    least = times[step.widths[0]] or 1.0
    return {width: max(NOTHING_S, seconds / least) for width, seconds in times.items()}
