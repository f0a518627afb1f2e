"""On which numbers of nodes may a step run, and how long does it take on each?

`widths: [1, 2, 4]`, or with expected durations `widths: {1: 8 min, 2: 5 min, 4: 3 min}`; where a duration is left open
(`4: ~`), nobody knows it. Whichever way it is written, it is kept as one text, `1: 8 min, 2: 5 min`, so that parameters may
stand in it. What a step says of its streams has to agree with that.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from cantle.model.resources import count

from .findings import Findings
from .quantities import duration_s
from .yaml_nodes import Item

if TYPE_CHECKING:
    from .settings import Setting, Settings


def as_text(item: Item) -> str | None:
    """The widths of this value as one text; None when it is nothing that could list any."""
    if isinstance(item.value, dict):
        entries = [(name, "" if child.value is None else child.text) for name, child in item.mapping.items()]
        if any(isinstance(child.value, dict | list) for child in item.mapping.values()):
            return None
        return ", ".join(f"{name}: {time}" if time else name for name, time in entries)
    if isinstance(item.value, list):
        if any(isinstance(child.value, dict | list) for child in item.value):
            return None
        return ", ".join(child.text for child in item.value)
    return item.text if isinstance(item.value, int | str) and not isinstance(item.value, bool) else None


def widths_of(text: str, line: int, key: str, findings: Findings) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The widths, ascending, and the seconds on each (0: not known; empty: none is). What is wrong is noted."""
    widths: list[int] = []
    times: list[float] = []
    for entry in text.split(","):
        number, colon, time = (part.strip() for part in entry.partition(":"))
        if not number.isdecimal():
            what = f"{number!r} is no number of nodes" if number else "lists no number of nodes"
            findings.wrong(line, key, what, "write them as in [1, 2, 4], or with times as in {1: 8 min, 2: 5 min}")
            return (), ()
        width = int(number)
        if width < 1:
            findings.wrong(line, key, "a step cannot run on 0 nodes", "widths count nodes, from 1")
        elif width in widths:
            findings.wrong(line, key, f"{width} is listed twice", "once is enough")
        elif widths and width < widths[-1]:
            findings.wrong(line, key, f"{width} stands after {widths[-1]}", "write them in ascending order")
        widths.append(width)
        times.append(_seconds(width, time, line, key, findings) if colon else 0.0)
    sound = all(a < b for a, b in zip([0, *widths], widths, strict=False))
    if not sound:
        return (), ()
    return tuple(widths), tuple(times) if any(times) else ()


def contradictions(settings: Settings, said: Mapping[str, Setting], findings: Findings) -> None:
    """Note what a step says of widths, streams, nodes and processes that cannot hold together."""

    def wrong(key: str, what: str, mend: str) -> None:
        findings.wrong(said[key].line, said[key].key, what, mend)

    widths, streams = settings.widths, settings.streams
    if widths and settings.nodes and _block(said["widths"]) == _block(said["nodes"]):
        wrong(
            "widths",
            "a step has either `nodes` or `widths`",
            f"remove `nodes: {settings.nodes}`, or list it in `widths`",
        )
    elif widths and settings.procs:
        base = settings.nodes or widths[0]
        if settings.procs % base and len(widths) > 1:
            what = f"{settings.procs} processes cannot be dealt equally to {count(base, 'node')}"
            wrong(
                "procs",
                what,
                f"with `widths` each node holds as many at every width; {base * ceil(settings.procs / base)}, say",
            )
    if settings.communicates and not streams:
        wrong("communicates", "this step has no streams that could communicate", "say how many: `streams: 8`")
    if not streams:
        return
    least, most = (widths[0], widths[-1]) if widths else (settings.nodes or 1,) * 2
    if most > streams:
        where = "widths" if widths else "nodes"
        what = f"{count(streams, 'stream')} on {most} nodes leave {count(most - streams, 'node')} with nothing to do"
        wrong(where, what, f"at most {count(streams, 'node')}, or more streams")
    cores_each = settings.cores_per_task or settings.cpus_per_rs or 1
    here, cores = ceil(streams / least), settings.needs.cores
    if settings.communicates and cores // cores_each < here:
        what = (
            f"streams that communicate all run at once: on {count(least, 'node')} {here} of the {streams} on each, with "
            f"{count(here * cores_each, 'core')}; but `procs: {settings.procs}` asks for {count(cores, 'core')} of a node"
        )
        wrong("procs", what, f"leave `procs` away, or say {here * (settings.nodes or least)}")


def _block(setting: Setting) -> str:
    """Where it was said: in the step's `run`, or in Cantle's own block."""
    return setting.key.partition(".")[0]


def _seconds(width: int, time: str, line: int, key: str, findings: Findings) -> float:
    try:
        seconds = duration_s(time)
    except ValueError:
        findings.wrong(line, f"{key}.{width}", f"must be '90 s', '5 min' or '1:30:00', not {time!r}")
        return 0.0
    if not seconds:
        findings.wrong(line, f"{key}.{width}", "a step takes longer than 0 s", "leave it open (~) where nobody knows")
    return seconds
