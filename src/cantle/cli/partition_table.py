"""Which partitions are there, of those that somebody who asks in this directory may know of?"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from cantle.core.partitions import Partition
from cantle.core.roster import ALL
from cantle.report.loading import Condition, Run
from cantle.store.layout import DOOR

_OPEN = ("NEW", "PENDING", "STARTING", "ACTIVE")
_MOST_NODES = 4


def study_asked_for(run: Run) -> int:
    """For which study is asked in this directory: for the only one of a run, for none in particular of a pilot's."""
    return ALL if _is_pilot(run) else 0


def seen(run: Run) -> list[Partition]:
    """The partitions of the study, and those that are there for all; in a pilot's directory all of them."""
    study = study_asked_for(run)
    return [partition for partition in run.state.partitions.all if partition.is_seen_by(study)]


def print_table(run: Run, as_json: bool) -> int:
    """All of them, a line each; as JSON, an object a line. Returns the exit status."""
    partitions = seen(run)
    if as_json:
        for partition in partitions:
            print(msgspec.json.encode(_facts(run, partition)).decode())
        return 0
    if run.condition == Condition.DEAD:
        print(f"the conductor of {run.name} is dead: this is how they stood; none of them is left", file=sys.stderr)
    if not partitions:
        print(f"{run.name} has no partitions")
        return 0
    of_all = _is_pilot(run)
    rows = [("NAME", *(("STUDY",) if of_all else ()), "STATE", "NODES", "CORES", "RUNNING", "WHERE", "WHY")]
    for partition in partitions:
        facts = _facts(run, partition)
        more = len(facts["nodes"]) - _MOST_NODES
        where = ", ".join(facts["nodes"][:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
        rows.append(
            (
                facts["name"],
                *((facts["study"] or "-",) if of_all else ()),
                facts["state"] + (", draining" if facts["draining"] else ""),
                f"{len(facts['nodes'])}/{facts['width']}" if facts["state"] in _OPEN else str(facts["width"]),
                str(facts["cores"]) if facts["nodes"] else "-",
                str(len(facts["running"])),
                where or "-",
                facts["why"].partition("\n")[0] or "-",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


def line_of(run: Run, partition: Partition) -> str:
    """One of them in a sentence."""
    facts = _facts(run, partition)
    where = f" on {', '.join(facts['nodes'])}" if facts["nodes"] else ""
    why = f": {facts['why']}" if facts["why"] else ""
    return f"{facts['name']}: {facts['state']}{', draining' if facts['draining'] else ''}{where}{why}"


def _facts(run: Run, partition: Partition) -> dict[str, Any]:
    room, state = partition.room, run.state
    nodes = partition.nodes()
    return {
        "name": partition.name,
        "study": _whose(run, partition),
        "state": partition.standing.name,
        "draining": partition.draining and not partition.over,
        "width": partition.width,
        "nodes": [state.room.nodes[index].name for index in nodes],
        "cores": sum(room.capacity[index][0].bit_count() for index in nodes),
        "running": [state.tasks[task].name for task in partition.running],
        "asked_at": partition.asked_at,
        "active_at": partition.active_at,
        "ended_at": partition.ended_at,
        "by": partition.by,
        "holder": partition.holder,
        "why": partition.why,
    }


def _whose(run: Run, partition: Partition) -> str:
    """The study that it belongs to, as its pilot calls it; "" when it is there for all."""
    if partition.study < 0:
        return ""
    name = run.state.studies[partition.study].added.name
    if not _is_pilot(run):
        return name
    from cantle.runtime.pilot.jobs import job_name

    return job_name(name, partition.study)


def _is_pilot(run: Run) -> bool:
    return (run.layout.own / DOOR).exists()
