"""How did it end? The last words of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.model.resources import count
from cantle.report.failures import FAILURES, failed_tasks, failure_lines, failure_of, typed
from cantle.report.wording import counted, duration
from cantle.runtime.conducting import TAKEN_AWAY

MOST_FAILURES = 10
BEGUN_BY = "CANTLE_BEGUN_BY"
"""The variable that says, of a run that was begun from another machine, this one's address there, a tab, and what begins
Cantle here, as words for a shell."""


def summary_lines(
    state: State, exit_code: int, directory: Path | str, seconds: float, most: int = MOST_FAILURES
) -> Iterator[str]:
    """The summary, line by line: how it ended, what failed and how to try it by hand, how to go on."""
    name = state.studies[0].added.name if state.studies else "run"
    if state.succeeded:
        what = f"all {count(len(state.tasks), 'task')}" if len(state.tasks) > 1 else count(len(state.tasks), "task")
        where = (
            f"in {typed(directory)}" if exit_code == 0 else f"but what they left is not in {typed(directory)} any more"
        )
        yield f"{name}: {what} done in {duration(seconds)}, {where}"
        return
    verb = "stopped" if state.stopping else "canceled" if exit_code == 3 else "failed"
    reason = f" ({state.stopping})" if state.stopping else ""
    yield f"{name}: {verb}{reason} after {duration(seconds)}: {counted(state.totals)}"
    yield from failures_told(state, directory, most)
    if state.stopping != TAKEN_AWAY:  # then there is nothing here to go on with, and what to do has been told
        yield f"Go on where it ended: {resuming(directory)}"


def resuming(directory: Path | str) -> str:
    """What to type where the user is: over here, or on the machine from which this run was begun."""
    words = f"resume {typed(directory)}"
    address, tab, begin = os.environ.get(BEGUN_BY, "").partition("\t")
    return f"ssh -t {quote(address)} {quote(f'{begin} again {words}')}" if tab else f"cantle {words}"


def failures_told(state: State, directory: Path | str, most: int) -> Iterator[str]:
    """The first failures in full, and how many more there are."""
    failed = sum(state.totals[phase] for phase in FAILURES)
    for task in failed_tasks(state, most):
        yield from failure_lines(failure_of(state, task, directory))
    if failed > most:
        yield f"... and {failed - most:,} more: cantle status {typed(directory)} --failed"


def summary_object(state: State, exit_code: int, directory: Path | str, seconds: float) -> dict[str, object]:
    """The summary for programs."""
    return {
        "run": str(Path(directory).absolute()),
        "study": state.studies[0].added.name if state.studies else "",
        "exit": exit_code,
        "seconds": round(seconds, 3),
        "stopped": state.stopping,
        "tasks": len(state.tasks),
        "counts": {phase.name.lower(): state.totals[phase] for phase in Phase if state.totals[phase]},
    }
