"""Random runs in which everything that the core knows of meets: several studies, some of which grow, on nodes that are asked
for and given back, end, are drained, shared and apart, are carved, and hold results that others take.

A person watches over these runs, as over those of `carved_plots.py`: what waits for somebody's word gets it when nothing
else would happen.
"""

from __future__ import annotations

import msgspec
from plots import FORERUNNERS, PATIENCE

from builders import Job, step_of
from cantle.core.scaling.settings import Scaling
from cantle.model.kinds import Kind
from cantle.model.records import (
    AnyRecord,
    Event,
    RunStarted,
    StepsAdded,
    StudyAdded,
    StudyClosed,
    TasksAdded,
)
from cantle.model.resources import Node
from cantle.model.study import Limits, PartitionWish, Slicing, Step, Task
from cantle.runtime.simulated import Fate

HOLDER = "mine"
"""By this name somebody asks for elements."""
TROUBLE = 30
"""So many requests the provider treats as it likes."""
KINDS = {
    "cpu": Kind("cpu", 3, memory_mib=8),
    "gpu": Kind("gpu", 4, 1, 8),
    "big": Kind("big", 4, 2, 16, (("licence", 2),)),
}


class Part(msgspec.Struct, frozen=True):
    """One study: it enters at its time, and grows by a further stretch of jobs after each of the `gaps`."""

    at: float
    stretches: list[list[Job]]
    gaps: list[float]
    limits: Limits = Limits()
    weight: float = 1.0
    priority: float = 0.0
    partitions: tuple[PartitionWish, ...] = ()
    slicing: Slicing | None = None


class WidePlot(msgspec.Struct, frozen=True):
    """All that decides how a run goes."""

    parts: list[Part]
    nodes: list[tuple[float, list[Node]]]
    fates: list[Fate]
    kinds: list[Kind] = []
    scaling: Scaling = Scaling()
    mishaps: list[Event] = []
    start_s: float = 0.0
    agent_s: float = 0.0
    moves_in_s: float = 0.0
    takes_back_s: float = 0.0
    whims: tuple[int, ...] = (0,)
    keeps: tuple[str, ...] = ()
    quick: bool = False
    lines: bool = True
    forgets: list[int] = []
    """At which turns the decider is made anew."""

    def fate(self, task: int, attempt: int) -> Fate:
        """What becomes of this attempt: one of the drawn fates."""
        if self.quick and task < FORERUNNERS:
            return Fate(0.001)
        fate = self.fates[(task * 7 + attempt * 3) % len(self.fates)]
        return fate if attempt < PATIENCE else Fate(min(fate.duration_s, 1.0), kept=fate.kept)

    def whim(self, number: int) -> int:
        """What the provider feels like."""
        return self.whims[number % len(self.whims)] if number < TROUBLE else 0


def opening(plot: WidePlot) -> tuple[list[AnyRecord], list[Event]]:
    """How the run begins, and what studies bring later."""
    stretches = []
    for study, part in enumerate(plot.parts):
        at = part.at
        for i, jobs in enumerate(part.stretches):
            at += part.gaps[i - 1] if i else 0.0
            stretches.append((at, study, i, jobs))
    stretches.sort(key=lambda found: found[:3])
    first: list[AnyRecord] = [RunStarted(0.0, "run", "0", "host", 1)]
    later: list[Event] = []
    numbers: dict[str, int] = {}
    studies: dict[int, int] = {}
    steps = 0
    for at, key, i, jobs in stretches:
        part = plot.parts[key]
        known: dict[Step, int] = {}
        tasks = []
        for each in jobs:
            index = steps + known.setdefault(step_of(each), len(known))
            numbers[each.name] = len(numbers)
            parents = tuple(numbers[name] for name in each.parents)
            tasks.append(Task(each.name, index, parents, each.estimate_s, tuple(numbers[name] for name in each.after)))
        steps += len(known)
        grows = len(part.stretches) > 1
        records: list[Event] = []
        if not i:
            studies[key] = len(studies)
            promised = 0 if grows else len(jobs)
            added = StudyAdded(
                at,
                f"s{key}",
                list(known),
                limits=part.limits,
                tasks=promised,
                slicing=part.slicing,
                priority=part.priority,
                partitions=part.partitions,
                weight=part.weight,
                grows=grows,
            )
            records.append(added)
        else:
            records.append(StepsAdded(at, studies[key], list(known)))
        records.append(TasksAdded(at, len(numbers) - len(jobs), tasks, studies[key]))
        if grows and i == len(part.stretches) - 1:
            records.append(StudyClosed(at, studies[key]))
        if at or (first[1:] and later):
            later += records
        else:
            first += records
    return first, later
