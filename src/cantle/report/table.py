"""How does a run stand, as a page of text?

First a headline that says whether anybody is at work; then the steps with their bars; what failed and why; and Maestro's table
of tasks, when they are few or all are asked for.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.report.failures import FAILURES, failed_tasks, failure_lines, failure_of, typed
from cantle.report.loading import OVER, Condition, Run
from cantle.report.pace import pace_of
from cantle.report.progress import cores_in_use, how_far, task_object
from cantle.report.statusfile import COLUMNS, cells
from cantle.report.steps import step_lines, step_rows
from cantle.report.wording import COLOURS, WORDS, counted, duration, in_colour, printable, time_of_day

Layout = Literal["flat", "legacy", "narrow"]
LAYOUTS = get_args(Layout)

FEW = 100
"""So many tasks are listed without being asked for."""
MOST_FAILURES = 20

_STATE = COLUMNS.index("State")
_PARAMS = COLUMNS.index("Params")
_HEADLINE_COLOURS = {
    Condition.DONE: "1;32",
    Condition.FAILED: "1;31",
    Condition.DEAD: "1;31",
    Condition.CANCELED: "1;33",
    Condition.STOPPED: "1;33",
}


def page(
    run: Run,
    *,
    layout: Layout = "flat",
    all_tasks: bool = False,
    all_failures: bool = False,
    colour: bool = False,
) -> Iterator[str]:
    """The page, line by line."""
    state = run.state
    yield headline(run, colour)
    yield from notes(run)
    if not state.studies:
        return
    if run.condition in (Condition.RUNNING, Condition.STOPPING):
        yield how_far(state, pace_of(state))
    else:
        yield counted(state.totals)
    if state.scaling is not None and run.condition not in OVER:
        from cantle.report.growth import growth_lines

        yield from growth_lines(state, run.now, ended=run.conductor is None)
    rows = step_rows(state)
    if rows:
        yield ""
        yield from step_lines(rows, colour)
    yield from _failures(run, None if all_failures else MOST_FAILURES, colour)
    if all_tasks or len(state.tasks) <= FEW:
        if state.tasks:
            yield ""
            yield from task_table(state, run.now, layout, colour, typed(run.directory))
    else:
        yield ""
        yield f"{len(state.tasks):,} tasks: list them with --all, or look into {typed(run.layout.status)}"


def headline(run: Run, colour: bool = False) -> str:
    """One line: the study's name, how it stands, and who is at work on it or what to do when nobody is."""
    condition = run.condition
    text = condition.value
    if condition == Condition.QUEUED and run.jobs is not None:
        text += f": {run.jobs.what()} {run.jobs.standing()}"
    elif condition == Condition.STARTING and run.jobs is not None and (host := run.gone_from):
        text = f"its conductor on host {host} is gone, while {run.jobs.what()} runs on; "
        text += "the next job goes on after it" if run.jobs.is_followed else how_to_go_on(run)
    elif condition in (Condition.RUNNING, Condition.STARTING, Condition.STOPPING):
        who = run.conductor
        since = f", since {time_of_day(who.since)}" if who and who.since else ""
        text += f" (conductor pid {who.pid} on host {who.host}{since})" if who else ""
        if condition == Condition.STOPPING:
            text += f": {run.state.stopping}"
    elif condition == Condition.DEAD:
        text = "its conductor is dead"
        text += (
            f": {how_to_go_on(run)}"
            if run.state.studies
            else "; it ended before the study was written down, begin the run anew"
        )
    else:
        text += f" after {duration(run.seconds)}, at {time_of_day(run.state.wall(run.state.now))}"
        if condition == Condition.STOPPED:
            text += f" ({run.state.stopping})"
        if condition != Condition.DONE:
            text += f"; {how_to_go_on(run)}"
    name = printable(run.name)
    if colour:
        return f"{in_colour(name, '1')}: {in_colour(text, _HEADLINE_COLOURS.get(condition, '1;36'))}"
    return f"{name}: {text}"


def how_to_go_on(run: Run) -> str:
    """What people are told who want what has not been done."""
    if run.of_a_program:
        return "only its program can go on with it: run that again"
    return f"go on with `cantle resume {typed(run.directory)}`"


def notes(run: Run) -> Iterator[str]:
    """What is not as it should be with the journal, and that another conductor took the run up again."""
    for stretch in run.damage:
        yield f"note: the journal is damaged in {stretch}; what it held is lost, and is done again where needed"
    if run.conductor is not None and run.condition in OVER:
        yield f"note: its conductor (pid {run.conductor.pid} on host {run.conductor.host}) has not left yet"
    elif (resumed := run.state.resumed - (run.jobs is not None)) > 0:  # in a batch job it begins by being resumed
        times = "once" if resumed == 1 else f"{resumed} times"
        yield f"note: it was resumed {times}"
    hindered = run.state.hindered
    for task in list(hindered)[:MOST_FAILURES]:
        yield f"note: {printable(run.state.tasks[task].name)} has not begun: {printable(hindered[task])}"


def _failures(run: Run, most: int | None, colour: bool) -> Iterator[str]:
    state = run.state
    total = sum(state.totals[phase] for phase in FAILURES)
    failed = failed_tasks(state, most)
    if not failed:
        return
    yield ""
    for task in failed:
        first, *rest = failure_lines(failure_of(state, task, run.directory))
        label = WORDS[state.phases[task]]
        yield f"{in_colour(label, COLOURS[Phase.FAILED]) if colour else label}: {first}"
        yield from rest
    if total > len(failed):
        yield f"... and {total - len(failed):,} more: list them with --failed"


def task_table(state: State, now: float, layout: Layout, colour: bool, title: str) -> Iterator[str]:
    """Maestro's table of tasks, in one of its three layouts. The State column says SKIPPED where that is what happened."""
    rows = (_row(state, task, now) for task in range(len(state.tasks)))
    if layout == "narrow":
        yield f"STUDY: {title}"
        for row in rows:
            yield from _block(row, colour)
        return
    columns = COLUMNS[:_PARAMS]
    table = [row[:_PARAMS] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in table)) for i, name in enumerate(columns)]
    rule = "  ".join("-" * w for w in widths)
    legacy = layout == "legacy"
    if legacy:
        yield "=" * len(rule)
        yield title
        yield "=" * len(rule)
    yield in_colour(_joined(columns, widths), "1") if colour and not legacy else _joined(columns, widths)
    yield rule
    for row in table:
        line = _joined(row, widths)
        yield _with_state(line, row, widths) if colour and not legacy else line
    if legacy:
        yield "=" * len(rule)


def _row(state: State, task: int, now: float) -> list[str]:
    row = [printable(cell) for cell in cells(state, task, now)]
    if state.phases[task] == Phase.SKIPPED:
        row[_STATE] = "SKIPPED"
    return row


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _with_state(line: str, row: Sequence[str], widths: Sequence[int]) -> str:
    """The line with its state in colour."""
    start = sum(widths[:_STATE]) + 2 * _STATE
    end = start + len(row[_STATE])
    return line[:start] + in_colour(row[_STATE], _STATE_COLOURS.get(row[_STATE], "")) + line[end:]


_STATE_COLOURS = {
    "RUNNING": COLOURS[Phase.RUNNING],
    "FINISHED": COLOURS[Phase.DONE],
    "FAILED": COLOURS[Phase.FAILED],
    "TIMEDOUT": COLOURS[Phase.TIMEDOUT],
    "CANCELLED": COLOURS[Phase.CANCELED],
    "SKIPPED": COLOURS[Phase.SKIPPED],
}


def _block(row: Sequence[str], colour: bool) -> Iterator[str]:
    """A task as a block that fits a narrow terminal."""
    cell = dict(zip(COLUMNS, row, strict=True))
    yield ""
    yield f"STEP: {in_colour(cell['Step Name'], '1') if colour else cell['Step Name']}"
    yield f"WORKSPACE: {cell['Workspace']}"
    state = in_colour(cell["State"], _STATE_COLOURS.get(cell["State"], "")) if colour else cell["State"]
    padding = " " * (19 - len(cell["State"]))
    yield f"  State         {state}{padding}  Submit Time      {cell['Submit Time']}"
    for left, right in (("Job ID", "Start Time"), ("Run Time", "End Time"), ("Elapsed Time", "Number Restarts")):
        yield f"  {left:<12}  {cell[left]:<19}  {right:<15}  {cell[right]}"
    if cell["Params"]:
        yield from textwrap.wrap(cell["Params"].replace(";", "; "), 76, initial_indent="  ", subsequent_indent="  ")


def status_object(run: Run, all_tasks: bool = False) -> dict[str, object]:
    """The page for programs. Without `all_tasks`, tasks are listed when they are few; failed ones always."""
    state = run.state
    condition = run.condition
    used, cores = cores_in_use(state)
    found: dict[str, object] = {
        "run": str(run.directory),
        "study": run.name,
        "state": condition.value,
        "conductor": None
        if run.conductor is None
        else {"host": run.conductor.host, "pid": run.conductor.pid, "since": run.conductor.since},
        "exit": run.exit_code if condition in OVER else None,
        "began": run.since,
        "seconds": round(run.seconds, 3),
        "resumed": state.resumed,
        "tasks": len(state.tasks),
        "counts": _by_name(state.totals),
        "cores": cores,
        "cores_in_use": used,
        "seconds_left": None,
        "steps": [{"name": row.name, "tasks": row.tasks, "counts": _by_name(row.totals)} for row in step_rows(state)],
        "damage": run.damage,
    }
    if state.scaling is not None:
        from cantle.report.growth import growth_object

        found["scaling"] = growth_object(state)
    if run.jobs is not None:
        found["job"] = {"ident": run.jobs.ident, "stands": str(run.jobs.standing())}
    if condition in (Condition.RUNNING, Condition.STOPPING):
        found["seconds_left"] = pace_of(state).left_s(state, run.now)
    found["failed"] = [
        task_object(state, task) | {"again": failure_of(state, task, run.directory).again}
        for task in failed_tasks(state)
    ]
    if all_tasks or len(state.tasks) <= FEW:
        found["list"] = [task_object(state, task) for task in range(len(state.tasks))]
    return found


def _by_name(totals: list[int]) -> dict[str, int]:
    return {phase.name.lower(): totals[phase] for phase in Phase if totals[phase]}
