"""Which bars does a Gantt chart show? One for each attempt and block of cores, or, of too many, a grid that sums them up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cantle.model.resources import count, list_to_mask
from cantle.report.timeline import Attempt, NodeSpan, Timeline, ready_since
from cantle.report.wording import duration, printable

MOST_BARS = 8000
"""Above, the chart is a grid."""
GRID_ROWS, GRID_COLUMNS = 100, 300
MOST_PARTITIONS = 2000
_LEVELS = 4
"""How many shades of fullness a cell may have: cells that look alike become one bar."""


class Lane(msgspec.Struct):
    """A node's rows in the chart, one for each of its cores, counted from the top."""

    name: str
    first: int
    cores: int
    joined: float
    left: float


class Bar(msgspec.Struct):
    """A rectangle: seconds from left to right, rows from top to bottom; and what is said of it."""

    left: float
    right: float
    top: float
    bottom: float
    step: str
    good: bool
    fill: float
    title: str
    what: str
    when: str
    where: str
    why: str = ""
    attempt: int = -1


class Bars(msgspec.Struct):
    """The bars of a timeline. `grid`: they sum up attempts that are too many to be shown each."""

    lanes: list[Lane]
    rows: int
    bars: list[Bar]
    grid: bool
    partitions: list[Bar]
    """What belonged to partitions, from when until when."""


def bars_of(timeline: Timeline, most: int = MOST_BARS) -> Bars:
    """At most about so many bars."""
    lanes, lane_of = _lanes(timeline.nodes)
    rows = sum(lane.cores for lane in lanes)
    spans = [
        _rows(((place.node, place.cores) for place in attempt.on), lanes, lane_of) for attempt in timeline.attempts
    ]
    partitions = _partitions(timeline, lanes, lane_of)[:MOST_PARTITIONS]
    if sum(map(len, spans)) > most:
        return Bars(lanes, rows, _grid(timeline, spans, rows), True, partitions)
    bars = []
    ready = ready_since(timeline)
    for number, (attempt, span) in enumerate(zip(timeline.attempts, spans, strict=True)):
        if not span:
            continue
        told = _told(timeline, attempt, attempt.launched - ready[number])
        good = attempt.outcome in ("done", "running")
        for top, bottom in span:
            bars.append(Bar(attempt.started, attempt.ended, top, bottom, *told[:1], good, 1.0, *told[1:], number))
    return Bars(lanes, rows, bars, False, partitions)


def _lanes(nodes: list[NodeSpan]) -> tuple[list[Lane], list[int]]:
    """The lanes, and for each node which is its own. A node that comes back has the lane that it had."""
    lanes: list[Lane] = []
    lane_of = []
    known: dict[str, int] = {}
    first = 0
    for span in nodes:
        at = known.get(span.node.name)
        if at is None or lanes[at].cores != span.node.cores or lanes[at].left > span.joined:
            at = known[span.node.name] = len(lanes)
            lanes.append(Lane(printable(span.node.name), first, span.node.cores, span.joined, span.left))
            first += span.node.cores
        lanes[at].left = span.left
        lane_of.append(at)
    return lanes, lane_of


def _rows(places: Iterable[tuple[int, str]], lanes: list[Lane], lane_of: list[int]) -> list[tuple[int, int]]:
    """The blocks of rows that these cores of nodes are, as (first, behind the last)."""
    blocks: list[tuple[int, int]] = []
    for node, cores in sorted(places):
        if node >= len(lane_of):
            continue
        first = lanes[lane_of[node]].first
        mask = list_to_mask(cores)
        while mask:
            low = (mask & -mask).bit_length() - 1
            run = mask >> low
            length = (~run & (run + 1)).bit_length() - 1
            mask &= ~(((1 << length) - 1) << low)
            if blocks and blocks[-1][1] == first + low:
                blocks[-1] = (blocks[-1][0], first + low + length)
            else:
                blocks.append((first + low, first + low + length))
    return blocks


def _partitions(timeline: Timeline, lanes: list[Lane], lane_of: list[int]) -> list[Bar]:
    """One bar for each block of cores that a partition had over the same time, the longest first."""
    blocks: dict[tuple[int, float, float], list[tuple[int, str]]] = {}
    for held in timeline.holdings:
        blocks.setdefault((held.partition, held.since, held.until), []).append((held.node, held.cores))
    bars = []
    for (number, since, until), places in blocks.items():
        partition = timeline.state.partitions.all[number]
        what = f"partition {number}, {partition.standing.name.lower()}"
        where = f"{count(sum(list_to_mask(cores).bit_count() for _, cores in places), 'core')} of {count(len(places), 'node')}"
        when = f"{duration(since)} to {duration(until)}: {duration(until - since)}"
        name = printable(partition.name)
        bars += [
            Bar(since, until, top, bottom, name, True, 1.0, name, what, when, where, printable(partition.why))
            for top, bottom in _rows(places, lanes, lane_of)
        ]
    return sorted(bars, key=lambda bar: (bar.left - bar.right, bar.left, bar.top))


def _told(timeline: Timeline, attempt: Attempt, waited: float) -> tuple[str, str, str, str, str, str]:
    """Step, title, and the lines of the text that comes up."""
    state = timeline.state
    task = state.tasks[attempt.task]
    step = timeline.label(attempt.task)
    name = printable(task.name if task.workspace or not task.params else f"{task.name} ({task.params})")
    what = f"attempt {attempt.number}: {attempt.outcome}"
    if attempt.outcome == "failed":
        what += f" with exit code {attempt.exit_code}"
    if attempt.cpu_s or attempt.peak_mib:
        what += f"; CPU {duration(attempt.cpu_s)}, at most {attempt.peak_mib:,.0f} MiB"
    when = f"{duration(attempt.started)} to {duration(attempt.ended)}: {duration(attempt.seconds)}"
    if waited > 0.05:
        when += f", ready {duration(waited)} before it was launched"
    nodes = state.room.nodes
    first = nodes[attempt.on[0].node].name if attempt.on else "unknown nodes"
    where = f"{printable(first)}, cores {attempt.on[0].cores}" if attempt.on else first
    if len(attempt.on) > 1:
        where = f"{printable(first)} and {count(len(attempt.on) - 1, 'more node')}, {count(attempt.cores, 'core')}"
    elif attempt.on and attempt.on[0].gpus:
        where += f", GPUs {attempt.on[0].gpus}"
    if attempt.partition >= 0:
        where += f", in {printable(state.partitions.all[attempt.partition].name)}"
    why = attempt.why if attempt.outcome in ("done", "running") else attempt.detail or attempt.why
    return step, name, what, when, where, printable(why)


def _grid(timeline: Timeline, spans: list[list[tuple[int, int]]], rows: int) -> list[Bar]:
    """Cells of time and rows, each in the colour of the step that filled most of it; alike neighbours joined."""
    height = max(1, -(-rows // GRID_ROWS))
    width = (timeline.end or 1.0) / GRID_COLUMNS
    cells: dict[tuple[int, int], dict[tuple[str, bool], list[float]]] = {}
    for attempt, span in zip(timeline.attempts, spans, strict=True):
        key = (timeline.label(attempt.task), attempt.outcome in ("done", "running"))
        first, last = int(attempt.started / width), min(GRID_COLUMNS - 1, int(attempt.ended / width))
        for top, bottom in span:
            for row in range(top // height, (bottom - 1) // height + 1):
                cores = min(bottom, (row + 1) * height) - max(top, row * height)
                for column in range(first, last + 1):
                    seconds = min(attempt.ended, (column + 1) * width) - max(attempt.started, column * width)
                    filled = cells.setdefault((row, column), {}).setdefault(key, [0.0, 0.0])
                    filled[0] += max(0.0, seconds) * cores
                    filled[1] += 1
    bars: list[Bar] = []
    for row, column in sorted(cells):
        found = cells[row, column]
        key = max(found, key=lambda key: (found[key][0], key))
        whole = width * (min(rows, (row + 1) * height) - row * height)
        fill = min(1.0, sum(seconds for seconds, _ in found.values()) / whole)
        shade = max(1, round(fill * _LEVELS)) / _LEVELS
        left = column * width
        last_bar = bars[-1] if bars else None
        if (
            last_bar is not None
            and last_bar.top == row * height
            and abs(last_bar.right - left) < width / 2
            and (last_bar.step, last_bar.good, last_bar.fill) == (*key, shade)
        ):
            last_bar.right = left + width
            last_bar.attempt += sum(int(n) for _, n in found.values())
        else:
            where = f"rows {row * height} to {min(rows, (row + 1) * height) - 1}" if height > 1 else ""
            title = printable(key[0]) + ("" if key[1] else ", not done")
            n = sum(int(n) for _, n in found.values())
            bars.append(
                Bar(left, left + width, row * height, min(rows, (row + 1) * height), *key, shade, title, "", "", where)
            )
            bars[-1].attempt = n
    for bar in bars:
        bar.what = f"about {count(bar.attempt, 'attempt')}, most of the time of this step; {bar.fill:.0%} filled"
        bar.when = f"{duration(bar.left)} to {duration(bar.right)}"
        bar.attempt = -1
    return bars
