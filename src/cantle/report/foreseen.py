"""What does a simulation say, as a page of text or for programs?"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cantle.core.phases import Phase
from cantle.model.resources import Node, count
from cantle.report.failures import FAILURES, failed_tasks, why
from cantle.report.forecast import Forecast
from cantle.report.step_times import step_times
from cantle.report.wording import counted, duration, printable

MOST_FAILURES = 10


def page(forecast: Forecast, nodes: list[Node], default_s: float) -> Iterator[str]:
    """The page, line by line."""
    state = forecast.state
    name = printable(state.studies[0].added.name)
    where = str(nodes[0]) if len(nodes) == 1 else f"{len(nodes):,} nodes with {count(forecast.cores, 'core')}"
    yield f"{name}: {count(len(state.tasks), 'task')}, simulated on {where}"
    ratio = "" if forecast.ratio is None else f", {forecast.ratio:.2f} times the lower bound"
    yield f"  ends after    {duration(forecast.end_s)}{ratio}"
    yield (
        f"  lower bound   {duration(forecast.bound_s)}: the longest chain takes "
        f"{duration(forecast.critical_path_s)}, the work spread evenly over the cores "
        f"{duration(forecast.area_core_s / forecast.cores)}"
    )
    yield f"  cores in use  {100 * forecast.utilisation:.1f} %"
    yield f"  tasks         {counted(state.totals)}"
    if state.expired:
        yield f"  stopped       {state.stopping}"
    if forecast.guessed:
        yield (
            f"  note          {count(forecast.guessed, 'task')} without an estimate: taken for "
            f"{duration(default_s)} each (--default-estimate)"
        )
    yield ""
    yield from _table(forecast)
    failed = failed_tasks(state, MOST_FAILURES)
    if failed:
        yield ""
    for task in failed:
        yield f"failed: {printable(state.tasks[task].name)}: {why(state, task)[0]}"
    total = sum(state.totals[phase] for phase in FAILURES)
    if total > len(failed):
        yield f"... and {total - len(failed):,} more"


def _table(forecast: Forecast) -> Iterator[str]:
    head = ("step", "tasks", "done", "each", "mean", "core time", "from", "to")
    table = [head] + [
        (
            printable(row.name),
            f"{row.tasks:,}",
            f"{row.done:,}",
            row.needs,
            *(
                (duration(row.mean_s), duration(row.core_s), duration(row.first_s), duration(row.last_s))
                if row.done
                else ("-", "-", "-", "-")
            ),
        )
        for row in step_times(forecast.timeline)
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        yield "  ".join(
            cell.ljust(width) if index in (0, 3) else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()


def forecast_object(forecast: Forecast, nodes: list[Node]) -> dict[str, object]:
    """The page for programs. Seconds and core-seconds."""
    state = forecast.state
    return {
        "study": state.studies[0].added.name,
        "nodes": len(nodes),
        "cores": forecast.cores,
        "tasks": len(state.tasks),
        "end_s": forecast.end_s,
        "bound_s": forecast.bound_s,
        "critical_path_s": forecast.critical_path_s,
        "area_core_s": forecast.area_core_s,
        "ratio": forecast.ratio,
        "utilisation": forecast.utilisation,
        "stopped": state.stopping,
        "without_estimate": forecast.guessed,
        "counts": {phase.name.lower(): state.totals[phase] for phase in Phase if state.totals[phase]},
        "steps": [msgspec.to_builtins(row, str_keys=True) for row in step_times(forecast.timeline)],
        "failed": [{"task": state.tasks[task].name, "reason": why(state, task)[0]} for task in failed_tasks(state)],
    }
