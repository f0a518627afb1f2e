"""When was there which partition, on which slots, and how well was it used?"""

from __future__ import annotations

import msgspec

from cantle.core.standings import Standing
from cantle.model.resources import list_to_mask
from cantle.report.timeline import Timeline


class PartitionTimes(msgspec.Struct):
    """A partition. Seconds since the start.

    `active_s` is when tasks could begin in it, None when they never could; `ended_s` is the end of the run if it lives.
    `nodes` and `cores` are all that it ever had; `in_use` is the share of its cores' time in which tasks held them.
    """

    number: int
    name: str
    standing: str
    nodes: int
    cores: int
    asked_s: float
    active_s: float | None
    ended_s: float
    attempts: int
    in_use: float
    why: str


def partition_times(timeline: Timeline) -> list[PartitionTimes]:
    """In the order in which they were asked for."""
    zero = timeline.zero
    used: dict[int, float] = {}
    attempts: dict[int, int] = {}
    for attempt in timeline.attempts:
        if attempt.partition >= 0:
            used[attempt.partition] = used.get(attempt.partition, 0.0) + attempt.seconds * attempt.cores
            attempts[attempt.partition] = attempts.get(attempt.partition, 0) + 1
    owned: dict[int, float] = {}
    cores: dict[int, dict[int, int]] = {}
    for held in timeline.holdings:
        mask = list_to_mask(held.cores)
        owned[held.partition] = owned.get(held.partition, 0.0) + mask.bit_count() * (held.until - held.since)
        of_node = cores.setdefault(held.partition, {})
        of_node[held.node] = of_node.get(held.node, 0) | mask
    rows = []
    for partition in timeline.state.partitions.all:
        number = partition.number
        had = cores.get(number, {})
        rows.append(
            PartitionTimes(
                number,
                partition.name,
                partition.standing.name,
                len(had),
                sum(mask.bit_count() for mask in had.values()),
                partition.asked_at - zero,
                partition.active_at - zero if partition.active_at else None,
                partition.ended_at - zero if partition.standing > Standing.ACTIVE else timeline.end,
                attempts.get(number, 0),
                used.get(number, 0.0) / owned[number] if owned.get(number) else 0.0,
                partition.why,
            )
        )
    return rows
