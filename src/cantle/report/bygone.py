"""Which nodes did a run have that is over: from when until when, why did they go, and what was done there?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cantle.model.records import AnyRecord, Launch, NodeLost, NodesJoined, RunResumed, StudyAdded, TaskEnded
from cantle.model.resources import Node
from cantle.report.wording import duration, printable, time_of_day


class Stay(msgspec.Struct):
    """One node. Times are seconds since the epoch; `left` is that of the last record if it stayed to the end.

    `done` counts the tasks whose last attempt succeeded there; one on several nodes counts on each. `before`: a node of a
    pilot's that had gone when the study came.
    """

    node: Node
    joined: float
    left: float = 0.0
    why: str = ""
    done: int = 0
    before: bool = False


def stays(records: Iterable[AnyRecord]) -> list[Stay]:
    """All nodes, in the order of their numbers."""
    found: list[Stay] = []
    where: dict[int, tuple[int, tuple[int, ...]]] = {}
    """The last attempt of each task, and on which nodes that is."""
    done: dict[int, tuple[int, ...]] = {}
    now = 0.0
    for record in records:
        if isinstance(record, NodesJoined):
            found += [Stay(node, record.time) for node in record.nodes]
        elif isinstance(record, NodeLost):
            for stay in found[record.node : record.node + 1]:  # none where records are missing
                _leaves(stay, record.time, record.reason)
        elif isinstance(record, StudyAdded):
            # A pilot tells a study that comes to it all that was, at one moment.
            for stay in found:
                stay.before |= stay.joined == stay.left == record.time
        elif isinstance(record, RunResumed):
            for stay in found:
                _leaves(stay, now, "")
        elif isinstance(record, Launch):
            where[record.task] = record.attempt, tuple([place.node for place in record.on])
            done.pop(record.task, None)  # its result was lost, and it is made again
        elif isinstance(record, TaskEnded) and record.outcome == "done":
            attempt, nodes = where.get(record.task, (0, ()))
            if attempt == record.attempt:
                done[record.task] = nodes
        now = record.time
    for stay in found:
        _leaves(stay, now, "")
    for nodes in done.values():
        for index in nodes:
            if index < len(found):
                found[index].done += 1
    return found


def _leaves(stay: Stay, when: float, why: str) -> None:
    if not stay.left:
        stay.left, stay.why = when, why


def bygone_table(found: list[Stay]) -> Iterator[str]:
    """A line each."""
    found = [stay for stay in found if not stay.before]
    if not found:
        yield "it never had a node"
        return
    rows = [("NAME", "KIND", "CORES", "DONE", "JOINED", "STAYED", "WHY IT WENT"), *map(_row, found)]
    if not any(stay.node.kind for stay in found):
        rows = [(row[0], *row[2:]) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _row(stay: Stay) -> tuple[str, ...]:
    return (
        printable(stay.node.name),
        stay.node.kind or "-",
        f"{stay.node.cores:,}",
        f"{stay.done:,}",
        time_of_day(stay.joined),
        duration(stay.left - stay.joined),
        printable(stay.why.removeprefix(f"{stay.node.name}: ")) or "-",
    )


def bygone_objects(found: list[Stay]) -> Iterator[dict[str, object]]:
    """All of them for programs; the keys are those of nodes that are there, as far as they mean something."""
    for index, stay in enumerate(found):
        if stay.before:
            continue
        yield {
            "node": index,
            "name": stay.node.name,
            "machine": stay.node.machine,
            "kind": stay.node.kind,
            "state": "gone",
            "why": stay.why,
            "cores": stay.node.cores,
            "gpus": stay.node.gpus,
            "memory_mib": stay.node.memory_mib,
            "done": stay.done,
            "joined_at": stay.joined,
            "left_at": stay.left,
        }
