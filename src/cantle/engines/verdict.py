"""What did an attempt come to whose parts ended each in its own way?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cantle.model.records import Outcome, TaskEnded
from cantle.model.streams import named
from cantle.runner.messages import Ended, Key

_TELLS = ("lost", "unstartable", "memory", "timeout", "failed", "canceled", "interrupted", "done")
"""Which outcome tells most of why an attempt ended, when its parts ended differently."""


class Result(NamedTuple):
    """How a part ended, on which node (a number that is the same for all of that node), in which lane."""

    ended: Ended
    node: int
    lane: int
    name: str = ""


def verdict(results: Sequence[Result], asked: tuple[Outcome, str] | None = None) -> TaskEnded:
    """How an attempt ended whose parts ended so; `asked` is why it was ended, if it was.

    Processor time is summed over all parts. The peak of memory is that of the node that had most, over its lanes.
    """
    results = sorted(results, key=lambda result: result.ended.key)
    worst = min(results, key=lambda result: (_TELLS.index(result.ended.outcome), result.ended.time))
    ended, outcome, detail = worst.ended, worst.ended.outcome, worst.ended.detail
    task, attempt, *part = ended.key
    if part and outcome != "done":
        where = f" on {worst.name}" if worst.name else ""
        detail = f"{named(part[0], part[1])}{where}: {detail}"
        if asked is not None:
            outcome, detail = asked
    outputs = [result.ended.output for result in results]
    started = [(result.ended.started, result.ended.pid) for result in results if result.ended.started]
    when, pid = min(started, default=(0.0, 0))
    return TaskEnded(
        max(result.ended.time for result in results),
        task,
        attempt,
        outcome,
        ended.exit_code,
        ended.signal,
        sum(result.ended.cpu_s for result in results),
        _peak_mib(results),
        detail,
        "\n".join(outputs) if any(outputs) else "",
        when,
        pid,
    )


def joined(leftovers: Sequence[Result]) -> list[TaskEnded]:
    """The ends of attempts whose parts are all among these."""
    found: dict[Key, list[Result]] = {}
    for result in leftovers:
        found.setdefault(result.ended.key[:2], []).append(result)
    return [verdict(parts) for parts in found.values() if len(parts) == parts[0].ended.key[3]]


def _peak_mib(results: Sequence[Result]) -> float:
    lanes: dict[tuple[int, int], float] = {}
    for result in results:
        place = (result.node, result.lane)
        lanes[place] = max(lanes.get(place, 0.0), result.ended.peak_mib)
    nodes: dict[int, float] = {}
    for (node, _), peak in lanes.items():
        nodes[node] = nodes.get(node, 0.0) + peak
    return max(nodes.values())
