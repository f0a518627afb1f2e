"""Where do the cores idle, and for whose sake? The stretches of a timeline, summed up and put into words."""

from __future__ import annotations

import msgspec

from cantle.core.idleness import Reason
from cantle.model.resources import count
from cantle.report.timeline import Stretch, Timeline
from cantle.report.wording import printable


class IdleRow(msgspec.Struct):
    """All idle time for one reason. `share` is that of all core time, `stretches` how often; the longest one's bounds.

    Times in seconds since the start.
    """

    why: str
    reason: str
    core_s: float
    share: float
    stretches: int
    longest_since_s: float
    longest_until_s: float


class IdleStretch(msgspec.Struct):
    """One stretch of idle time: from when until when, how many cores on average, and why. Seconds since the start."""

    since_s: float
    until_s: float
    cores: float
    why: str


def idle_rows(timeline: Timeline) -> list[IdleRow]:
    """One row for each reason and step, the costliest first."""
    groups: dict[tuple[Reason, str], list[Stretch]] = {}
    for stretch in timeline.idle:
        groups.setdefault((stretch.reason, _step(timeline, stretch)), []).append(stretch)
    rows = []
    for (reason, _), stretches in groups.items():
        tasks: dict[int, None] = {}
        for stretch in stretches:
            tasks.update(stretch.tasks)
        longest = max(stretches, key=lambda stretch: stretch.until - stretch.since)
        core_s = sum(stretch.core_s for stretch in stretches)
        rows.append(
            IdleRow(
                in_words(timeline, reason, list(tasks)),
                reason.name.lower(),
                core_s,
                core_s / timeline.there_core_s,
                len(stretches),
                longest.since,
                longest.until,
            )
        )
    return sorted(rows, key=lambda row: (-row.core_s, row.longest_since_s))


def idle_stretches(timeline: Timeline, most: int) -> list[IdleStretch]:
    """The costliest stretches, at most so many, in their order."""
    costly = sorted(timeline.idle, key=lambda stretch: (-stretch.core_s, stretch.since))[:most]
    return [
        IdleStretch(
            stretch.since,
            stretch.until,
            stretch.cores,
            in_words(timeline, stretch.reason, list(stretch.tasks)),
        )
        for stretch in sorted(costly, key=lambda stretch: stretch.since)
    ]


def in_words(timeline: Timeline, reason: Reason, tasks: list[int]) -> str:
    """The reason as a part of a sentence, with the tasks' name or their step's."""
    state = timeline.state
    if not tasks:
        return {
            Reason.STOPPING: "the run is being stopped",
            Reason.LAST: "nothing is left to be started",
        }.get(reason, "nothing is ready and nothing runs")
    step = state.step_of(tasks[0])
    name = printable(state.tasks[tasks[0]].name if len(tasks) == 1 else timeline.label(tasks[0]))
    who = name if len(tasks) == 1 else f"{count(len(tasks), 'task')} of {name}"
    one = len(tasks) == 1
    needs = step.needs
    if reason == Reason.PARENTS:
        return f"all else waits for {who}"
    if reason == Reason.LAST:
        return f"only {who} still {'runs' if one else 'run'}"
    if reason == Reason.NODES:
        return f"{who} {'waits' if one else 'wait'} for {count(needs.nodes, 'node')} at once"
    if reason == Reason.ROOM:
        return f"{who} {'finds' if one else 'find'} no node with room for {needs}"
    if reason == Reason.PARTITION:
        where = f"the partition {printable(step.partition)}" if step.partition else "an element of a slice"
        return f"{who} {'waits' if one else 'wait'} for {where}"
    if reason == Reason.HELD:
        return f"{who} {'waits' if one else 'wait'}, and partitions hold the idle cores"
    if reason == Reason.THROTTLE:
        return f"the throttle holds {who} back"
    if reason == Reason.STARTING:
        return f"{who} {'fits' if one else 'fit'}, and {'is' if one else 'are'} not started yet"
    if reason == Reason.WIDER:
        return f"{who} {'waits' if one else 'wait'} for more nodes than the least that would do"
    return f"{who}: {reason.value}"


def _step(timeline: Timeline, stretch: Stretch) -> str:
    for task in stretch.tasks:
        return timeline.label(task)
    return ""
