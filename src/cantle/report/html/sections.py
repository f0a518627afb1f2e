"""What does the page tell of one timeline? Its charts and its tables, a section each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cantle.core.idleness import Reason
from cantle.model.resources import count
from cantle.report.chain import critical_chain
from cantle.report.html.bars import GRID_COLUMNS, GRID_ROWS, MOST_BARS
from cantle.report.html.canvas import BAD, OTHER, OTHERS, PARTITION, REASONS
from cantle.report.html.charts import timeline_charts
from cantle.report.html.frame import Charts, section, swatch, table, text
from cantle.report.idling import idle_rows, idle_stretches
from cantle.report.partition_times import partition_times
from cantle.report.planned import hours
from cantle.report.step_times import StepTimes
from cantle.report.timeline import Timeline, ready_since
from cantle.report.wording import duration

MOST_ROWS = 12
MOST_PARTITIONS = 50
MOST_LINKS = 200
FEW_LINKS = 16
_REASONS_IN_WORDS = {
    Reason.PARENTS: "nothing is ready",
    Reason.LAST: "nothing is left to start",
    Reason.NODES: "wide work waits for nodes",
    Reason.ROOM: "no node has enough room",
    Reason.THROTTLE: "the throttle",
    Reason.PARTITION: "waits for a partition",
    Reason.HELD: "held by partitions",
    Reason.WIDER: "waits for a greater width",
    Reason.STARTING: "fits, not started yet",
    Reason.STOPPING: "being stopped",
}


def charts_section(
    title: str, timeline: Timeline, steps: Sequence[StepTimes], colours: Mapping[str, str], charts: Charts, until: float
) -> str:
    """Who ran where, how much was in use, why the rest was not."""
    blocks = sum(len(attempt.on) for attempt in timeline.attempts)
    place = charts.add(timeline_charts(timeline, colours, until))
    under = (
        "Each bar is an attempt on its cores; framed: the chain that led to the end. "
        "Drag to zoom (the tools beside the chart take it back), hover for more."
    )
    if blocks > MOST_BARS:
        under = (
            f"{len(timeline.attempts):,} attempts are more than the {MOST_BARS:,} bars that stay readable: each cell, one of "
            f"{GRID_ROWS} rows of cores by {GRID_COLUMNS} spans of time, has the colour of the step that filled most of it, "
            "the paler the emptier it was."
        )
    return section(title, _legend(timeline, steps, colours, charts.last), place, _reasons(timeline), under=under)


def _legend(timeline: Timeline, steps: Sequence[StepTimes], colours: Mapping[str, str], chart: str) -> str:
    chips = [
        f'<button type="button" aria-pressed="true" data-step="{text(step.name)}" title="hide or show">'
        f'<i style="background:{colours[step.name]}"></i>{text(step.name)}</button>'
        for step in steps
        if colours[step.name] != OTHER
    ]
    if OTHER in colours.values():
        chips.append(f'<span><i style="background:{OTHER}"></i>{OTHERS}</span>')
    if any(attempt.outcome not in ("done", "running") for attempt in timeline.attempts):
        chips.append(f'<span><i style="background:{BAD}"></i>attempts that were not done</span>')
    if timeline.holdings:
        chips.append(f'<span><i style="background:{PARTITION}55;border-color:{PARTITION}"></i>partitions</span>')
    return f'<div class="legend" data-chart="{chart}">{"".join(chips)}</div>\n'


def _reasons(timeline: Timeline) -> str:
    found = {stretch.reason for stretch in timeline.idle}
    chips = [
        f'<span><i style="background:{colour}"></i>{_REASONS_IN_WORDS.get(reason, reason.value)}</span>'
        for reason, colour in REASONS.items()
        if reason in found
    ]
    return f'<div class="legend">Idle because: {"".join(chips)}</div>\n' if chips else ""


def steps_section(steps: Sequence[StepTimes], colours: Mapping[str, str], real: bool) -> str:
    """A row for each step."""
    wide = any(set(step.widths) - {1} for step in steps)
    named = any(step.partitions for step in steps)
    head = ["step", "done", "each needs", "from", "to", "mean", "core time"]
    if real:
        head += ["CPU time", "peak memory", "not done"]
    head += ["waited", "at most", "mostly because"]
    head += ["widths used"] * wide + ["partition"] * named
    rows = []
    for step in steps:
        cells = [swatch(colours.get(step.name, OTHER), step.name), f"{step.done:,} of {step.tasks:,}", step.needs]
        times = (step.first_s, step.last_s, step.mean_s, step.core_s)
        cells += [duration(seconds) for seconds in times] if step.done else ["-"] * 4
        if real:
            cells.append(duration(step.cpu_s) if step.cpu_s else "-")
            cells.append(f"{step.peak_mib:,.0f} MiB" if step.peak_mib else "-")
            cells.append(f'<b class="bad">{step.failures:,}</b>' if step.failures else "0")
        cells += [duration(step.waited_s), duration(step.waited_most_s), step.waited_for or "-"]
        if wide:
            cells.append(", ".join(f"{n:,} on {count(width, 'node')}" for width, n in step.widths.items()) or "-")
        if named:
            cells.append(", ".join(step.partitions) or "-")
        rows.append(cells)
    numbers = [1, 3, 4, 5, 6, *((7, 8, 9, 10, 11) if real else (7, 8))]
    under = "Waited: from when a task was ready until it was launched, on average."
    if real:
        under += (
            " Not done: attempts that ended in any other way. CPU time and peak memory are measured by the runners."
        )
    return section("Steps", table(head, rows, numbers), under=under)


def partitions_section(timeline: Timeline) -> str:
    """The partitions, when there were any."""
    found = partition_times(timeline)
    rows = [
        (
            row.name,
            row.standing,
            f"{row.nodes:,}",
            f"{row.cores:,}",
            duration(row.asked_s),
            "-" if row.active_s is None else duration(row.active_s),
            duration(row.ended_s),
            f"{row.attempts:,}",
            f"{100 * row.in_use:.1f} %",
            row.why or "-",
        )
        for row in found[:MOST_PARTITIONS]
    ]
    under = f"The first {len(rows)} of {len(found):,}." if len(found) > len(rows) else ""
    head = ("partition", "state", "nodes", "cores", "asked for", "active", "ended", "attempts", "in use", "why")
    return section("Partitions", table(head, rows, (2, 3, 4, 5, 6, 7, 8)), under=under)


def idle_section(timeline: Timeline) -> str:
    """Where cores stood idle, and why."""
    rows = [
        (row.why, f"{100 * row.share:.1f} %", duration(row.core_s), f"{row.stretches:,}", _span(row))
        for row in idle_rows(timeline)[:MOST_ROWS]
    ]
    shown = idle_stretches(timeline, MOST_ROWS)
    stretches = [
        (duration(stretch.since_s), duration(stretch.until_s), f"{stretch.cores:,.1f}", stretch.why)
        for stretch in shown
    ]
    more = ""
    if len(timeline.idle) > 1:
        more = (
            f"<details><summary>The {len(shown)} costliest of {len(timeline.idle):,} stretches"
            f"</summary>{table(('from', 'to', 'idle cores', 'why'), stretches, (0, 1, 2))}</details>"
        )
    head = ("why cores stood idle", "of all core time", "core time", "times", "longest")
    return section("Idle cores", table(head, rows, (1, 2, 3, 4)), more)


def _span(row: object) -> str:
    since, until = getattr(row, "longest_since_s", 0.0), getattr(row, "longest_until_s", 0.0)
    return f"{duration(until - since)}, from {duration(since)}"


def chain_section(timeline: Timeline) -> str:
    """The chain that led to the end."""
    links = critical_chain(timeline)
    if not links:
        return ""
    attempts, state = timeline.attempts, timeline.state
    ran = sum(attempts[link.attempt].seconds for link in links)
    waited = sum(link.waited_s for link in links)
    rows = []
    for link in links if len(links) <= MOST_LINKS else links[-MOST_LINKS:]:
        attempt = attempts[link.attempt]
        rows.append(
            (
                state.tasks[attempt.task].name,
                duration(attempt.started),
                duration(attempt.seconds),
                duration(link.waited_s),
                link.waited_for or "-",
            )
        )
    under = (
        f"{count(len(links), 'attempt')}, each of which waited for the one before: {duration(ran)} of work and "
        f"{duration(waited)} between. To end sooner, shorten these."
    )
    if len(links) > MOST_LINKS:
        under += f" Shown are the last {MOST_LINKS}."
    links_table = table(("task", "started", "took", "gap before", "waited for"), rows, (1, 2, 3))
    if len(rows) > FEW_LINKS:
        links_table = f"<details><summary>The {len(rows)} attempts</summary>{links_table}</details>"
    return section("What led to the end", links_table, under=under)


def slowest_section(timeline: Timeline, steps: Sequence[StepTimes]) -> str:
    """The attempts that took longest, and those that waited longest."""
    means = {step.name: step.mean_s for step in steps}
    state = timeline.state
    order = sorted(timeline.attempts, key=lambda attempt: (-attempt.seconds, attempt.task))[:MOST_ROWS]
    rows = []
    for attempt in order:
        mean = means[timeline.label(attempt.task)]
        rows.append(
            (
                state.tasks[attempt.task].name,
                duration(attempt.seconds),
                f"{attempt.seconds / mean:.1f}" if mean > 0 else "-",
                attempt.outcome,
                f"{attempt.peak_mib:,.0f} MiB" if attempt.peak_mib else "-",
                _where(timeline, attempt.on[0].node) if attempt.on else "-",
            )
        )
    head = ("task", "took", "times its step's mean", "outcome", "peak memory", "first node")
    slow = section("Slowest tasks", table(head, rows, (1, 2, 4)))
    waits = sorted(
        (
            (attempt.launched - ready, attempt)
            for attempt, ready in zip(timeline.attempts, ready_since(timeline), strict=True)
        ),
        key=lambda found: (-found[0], found[1].task),
    )[:MOST_ROWS]
    waiting = [
        (state.tasks[attempt.task].name, duration(attempt.launched - waited), duration(waited), attempt.why or "-")
        for waited, attempt in waits
        if waited > 0.05
    ]
    return slow + section("Longest waits", table(("task", "ready at", "waited", "placed because"), waiting, (1, 2)))


def _where(timeline: Timeline, node: int) -> str:
    nodes = timeline.state.room.nodes
    return nodes[node].name if node < len(nodes) else "-"


def nodes_in_words(timeline: Timeline) -> str:
    """`4 nodes, 32 cores, 1.20 node-hours`."""
    names = len({span.node.name for span in timeline.nodes})
    return f"{count(names, 'node')}, {count(timeline.cores, 'core')}, {hours(timeline.node_hours)} node-hours"
