"""What does a plan say, as a page of text or for programs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from cantle.core.phases import Phase
from cantle.model.resources import count
from cantle.report.durations import Durations
from cantle.report.failures import failed_tasks, why
from cantle.report.idling import idle_rows, idle_stretches
from cantle.report.partition_times import partition_times
from cantle.report.planning import Recommendation, Variant
from cantle.report.step_times import StepTimes, step_times
from cantle.report.wording import counted, duration, printable

MOST_REASONS = 4
MOST_STRETCHES = 100
MOST_FAILURES = 5
_WORTH_TELLING = 0.001


def page(
    name: str, variants: Sequence[Variant], durations: Durations, default_s: float, advice: Recommendation
) -> Iterator[str]:
    """The page, line by line."""
    tasks = len(durations.seconds)
    yield f"{printable(name)}: {count(tasks, 'task')}, planned for {count(len(variants), 'variant')}"
    for line in who_says(durations, default_s):
        yield f"  {line}"
    yield ""
    yield from _table(variants, advice)
    yield ""
    yield f"Recommended: {advice.why}."
    for variant in variants:
        yield ""
        yield from _details(variant)


def who_says(durations: Durations, default_s: float) -> list[str]:
    """Where the durations come from, a line for each source."""
    lines = []
    if durations.said:
        lines.append(f"{count(durations.said, 'task')} as the study estimates")
    if durations.happened:
        lines.append(f"{count(durations.happened, 'task')} as in the earlier run")
    if durations.alike:
        lines.append(f"{count(durations.alike, 'task')} as the earlier run's other tasks of the step, on average")
    if durations.assumed:
        lines.append(
            f"{count(durations.assumed, 'task')} without an estimate: taken for {duration(default_s)} each "
            "(--default-estimate; or --from RUN, what happened in an earlier run)"
        )
    return lines


def _table(variants: Sequence[Variant], advice: Recommendation) -> Iterator[str]:
    head = ("", "nodes", "cores", "ends after", "lower bound", "ratio", "node-hours", "in use")
    table = [head]
    for number, variant in enumerate(variants):
        found = variant.found
        table.append(
            (
                "*" if number == advice.variant else "",
                variant.name,
                f"{found.cores:,}",
                duration(found.end_s) if variant.whole else "time is up" if found.state.expired else "fails",
                duration(found.bound_s),
                "-" if found.ratio is None else f"{found.ratio:.2f}",
                hours(variant.node_hours),
                f"{100 * found.utilisation:.1f} %",
            )
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        yield "  ".join(
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()


def _details(variant: Variant) -> Iterator[str]:
    found = variant.found
    yield f"{variant.name}: {counted(found.state.totals)}"
    yield (
        f"  lower bound   the longest chain {duration(found.critical_path_s)}, "
        f"the work spread evenly over the cores {duration(found.area_core_s / found.cores)}"
    )
    if found.state.expired:
        yield f"  stopped       {found.state.stopping}"
    for step in step_times(found.timeline):
        if chosen := widths_in_words(step):
            yield f"  widths        {printable(step.name)}: {chosen}"
    for made in partition_times(found.timeline)[:MOST_REASONS]:
        yield (
            f"  partition     {printable(made.name)}: {count(made.nodes, 'node')}, {count(made.cores, 'core')}, "
            f"{duration(made.asked_s)} to {duration(made.ended_s)}, {100 * made.in_use:.1f} % in use"
        )
    if len(found.state.partitions.all) > MOST_REASONS:
        yield f"  partition     {len(found.state.partitions.all) - MOST_REASONS:,} more: --json tells all"
    rows = [row for row in idle_rows(found.timeline) if row.share >= _WORTH_TELLING]
    for row in rows[:MOST_REASONS]:
        longest = row.longest_until_s - row.longest_since_s
        times = "once" if row.stretches == 1 else f"{row.stretches:,} times, the longest"
        yield (
            f"  idle {100 * row.share:5.1f} %  {row.why} ({times} {duration(longest)} from {duration(row.longest_since_s)})"
        )
    if len(rows) > MOST_REASONS:
        rest = sum(row.share for row in rows[MOST_REASONS:])
        yield f"  idle {100 * rest:5.1f} %  {count(len(rows) - MOST_REASONS, 'more reason')}: --json tells all"
    for task in failed_tasks(found.state, MOST_FAILURES):
        yield f"  failed        {printable(found.state.tasks[task].name)}: {why(found.state, task)[0]}"


def widths_in_words(row: StepTimes) -> str:
    """`12 on 1 node, 3 on 4 nodes`; "" for a step that has no choice."""
    if not row.moldable:
        return ""
    return ", ".join(f"{n:,} on {count(width, 'node')}" for width, n in row.widths.items())


def hours(node_hours: float) -> str:
    """`0.0042`, `1.50`, `1,200`: three digits that count."""
    if node_hours >= 100:
        return f"{node_hours:,.0f}"
    return f"{node_hours:.2f}" if node_hours >= 1 else f"{node_hours:.3g}"


def variant_object(variant: Variant) -> dict[str, object]:
    """A variant for programs. Seconds, core-seconds, node-hours."""
    found = variant.found
    return {
        "nodes": variant.nodes,
        "packer": variant.packer,
        "node_count": len(variant.machines),
        "cores": found.cores,
        "end_s": found.end_s,
        "node_hours": variant.node_hours,
        "utilisation": found.utilisation,
        "bound_s": found.bound_s,
        "critical_path_s": found.critical_path_s,
        "area_core_s": found.area_core_s,
        "ratio": found.ratio,
        "succeeded": variant.whole,
        "stopped": found.state.stopping,
        "counts": {phase.name.lower(): found.state.totals[phase] for phase in Phase if found.state.totals[phase]},
        "steps": [msgspec.to_builtins(row, str_keys=True) for row in step_times(found.timeline)],
        "partitions": [msgspec.to_builtins(row) for row in partition_times(found.timeline)],
        "idle": [msgspec.to_builtins(row) for row in idle_rows(found.timeline)],
        "idle_stretches": [msgspec.to_builtins(row) for row in idle_stretches(found.timeline, MOST_STRETCHES)],
        "failed": [
            {"task": found.state.tasks[task].name, "reason": why(found.state, task)[0]}
            for task in failed_tasks(found.state, MOST_STRETCHES)
        ],
    }


def plan_object(
    name: str,
    variants: Sequence[Variant],
    durations: Durations,
    default_s: float,
    advice: Recommendation,
    finish_by_s: float | None,
) -> dict[str, object]:
    """The plan for programs."""
    return {
        "study": name,
        "tasks": len(durations.seconds),
        "durations": {
            "estimated": durations.said,
            "from_run": durations.happened,
            "from_run_by_step": durations.alike,
            "assumed": durations.assumed,
            "assumed_s": default_s if durations.assumed else None,
        },
        "finish_by_s": finish_by_s,
        "recommended": advice.variant,
        "why": advice.why,
        "variants": [variant_object(variant) for variant in variants],
    }
