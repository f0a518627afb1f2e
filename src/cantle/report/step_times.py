"""When did each step's tasks run, how long, how wide, with how much memory, and what did they wait for?"""

from __future__ import annotations

import msgspec

from cantle.core.phases import Phase
from cantle.model.resources import Needs
from cantle.report.timeline import Timeline, ready_since


class StepTimes(msgspec.Struct):
    """A step's tasks, all that bear its name. Seconds since the start.

    `mean_s`, `core_s`, `cpu_s`, `first_s` and `last_s` are of attempts that were done; `peak_mib` is the most that any
    attempt used, 0 when nobody looked; `failures` counts attempts that ended in any other way. `widths` counts the attempts
    by the number of their nodes; `moldable`: there was a choice. `waited_s` is how long a task that was ready waited for
    its launch, on average, and `waited_most_s` at most; `waited_for` says what kept most of them waiting.
    """

    name: str
    tasks: int = 0
    done: int = 0
    needs: str = ""
    mean_s: float = 0.0
    core_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    failures: int = 0
    widths: dict[int, int] = {}
    waited_s: float = 0.0
    waited_most_s: float = 0.0
    waited_for: str = ""
    partitions: list[str] = []
    moldable: bool = False


_NOTEWORTHY_WAIT_S = 0.1
"""Shorter waits are the time that a launch takes."""


def step_times(timeline: Timeline) -> list[StepTimes]:
    """A row for each step's name, in the order of the study."""
    state = timeline.state
    rows: dict[str, StepTimes] = {}
    needs: dict[str, list[Needs]] = {}
    waits: dict[str, dict[str, float]] = {}
    for number, step in enumerate(state.steps):
        name = timeline.labels[number]
        row = rows.setdefault(name, StepTimes(name))
        row.tasks += sum(state.counts[number])
        row.done += state.counts[number][Phase.DONE]
        row.moldable = row.moldable or bool(step.widths)
        if step.partition and step.partition not in row.partitions:
            row.partitions.append(step.partition)
        if step.needs not in needs.setdefault(name, []):
            needs[name].append(step.needs)
        for reason, seconds in timeline.waits.get(state.shape_of_step[number], {}).items():
            found = waits.setdefault(name, {})
            found[reason.value] = found.get(reason.value, 0.0) + seconds
    launches: dict[str, int] = {}
    done: dict[str, int] = {}
    for attempt, ready in zip(timeline.attempts, ready_since(timeline), strict=True):
        row = rows[timeline.label(attempt.task)]
        waited = attempt.launched - ready
        launches[row.name] = launches.get(row.name, 0) + 1
        row.waited_s += waited
        row.waited_most_s = max(row.waited_most_s, waited)
        row.widths[len(attempt.on)] = row.widths.get(len(attempt.on), 0) + 1
        row.peak_mib = max(row.peak_mib, attempt.peak_mib)
        if attempt.outcome == "done":
            first = row.name not in done
            done[row.name] = done.get(row.name, 0) + 1
            row.mean_s += attempt.seconds
            row.core_s += attempt.seconds * attempt.cores
            row.cpu_s += attempt.cpu_s
            row.first_s = attempt.started if first else min(row.first_s, attempt.started)
            row.last_s = max(row.last_s, attempt.ended)
        elif attempt.outcome != "running":
            row.failures += 1
    for row in rows.values():
        kinds = sorted(needs[row.name], key=lambda need: need.area)
        row.needs = str(kinds[0]) if len(kinds) == 1 else f"{kinds[0]} to {kinds[-1]}"
        row.mean_s /= done.get(row.name, 1)
        row.waited_s /= launches.get(row.name, 1)
        row.widths = dict(sorted(row.widths.items()))
        if row.waited_most_s > _NOTEWORTHY_WAIT_S and (why := waits.get(row.name)):
            row.waited_for = max(why, key=lambda reason: why[reason])
    return [row for row in rows.values() if row.tasks]
