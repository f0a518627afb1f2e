"""What does `status.csv` say? Maestro's file, as people's scripts and `maestro status` read it.

Columns, states' names and the formats of times are those of Maestro 1.2.1. Where it would write a line that nobody can
read back (a comma in a parameter's value), the cell is quoted as the csv module does. The run time of a running task is the
time so far, where Maestro writes `--:--:--`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, time

from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.core.studies import StudyState
from cantle.report.wording import clock

COLUMNS = (
    "Step Name",
    "Job ID",
    "Workspace",
    "State",
    "Run Time",
    "Elapsed Time",
    "Start Time",
    "Submit Time",
    "End Time",
    "Number Restarts",
    "Params",
)
HEADER = ",".join(COLUMNS)

STATES = {
    Phase.WAITING: "INITIALIZED",
    Phase.READY: "PENDING",
    Phase.LAUNCHED: "RUNNING",
    Phase.RUNNING: "RUNNING",
    Phase.DONE: "FINISHED",
    Phase.FAILED: "FAILED",
    Phase.TIMEDOUT: "TIMEDOUT",
    Phase.CANCELED: "CANCELLED",
    Phase.SKIPPED: "FAILED",
}
"""PENDING is Maestro's word for what waits for room on the machine and for nothing else. It has none for tasks that were
skipped: descendants of a failed step are FAILED there."""

INTERVAL_S = 2.0
SHARE = 0.01
"""No more of the loop's time than this goes into the file, however many tasks there are."""

ROWS_AT_ONCE = 500
"""More rows are never made in one turn of the loop, so that no task waits for the file."""

NO_TIME = "--"
NO_DURATION = "--:--:--"


class StatusFile:
    """Keeps `status.csv` up to date: call it once a turn, and `write` at the end.

    A large file is put together over many turns, so its rows may be seconds apart; readers only ever see a complete file.
    A disk that does not take it does not stop the run: `trouble` holds the reason, "" when all is well. With `study` it tells
    of the tasks of that study alone.
    """

    def __init__(
        self, path: Path | str, clock: Callable[[], float] = monotonic, study: StudyState | None = None
    ) -> None:
        self.path = Path(path)
        self._study = study
        self.trouble = ""
        self._beside = self.path.with_name(f".{self.path.name}.new")
        self._clock = clock
        self._next = 0.0
        self._begun = 0.0
        self._chunks: Iterator[str] | None = None
        self._fd = -1

    def __call__(self, state: State) -> None:
        """Write a piece of the file if it is time to."""
        if self._clock() >= self._next:
            self._step(state)

    def write(self, state: State) -> None:
        """Write the whole file now."""
        self._abandon()
        while self._piece(state):
            pass

    def _step(self, state: State) -> None:
        started = self._clock()
        if self._chunks is None:
            self._begun = started
        more = self._piece(state)
        ended = self._clock()
        self._next = ended + (ended - started) / SHARE
        if not more:
            self._next = max(self._next, self._begun + INTERVAL_S)

    def _piece(self, state: State) -> bool:
        """Write the next rows; put the file into its place after the last. Whether more are to come."""
        try:
            if self._chunks is None:
                self._chunks = _chunks(state, self._study)
                self._fd = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            chunk = next(self._chunks, None)
            if chunk is not None:
                data = chunk.encode(errors="replace")
                while data:
                    data = data[os.write(self._fd, data) :]
                return True
            fd, self._fd = self._fd, -1
            os.close(fd)
            self._beside.replace(self.path)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"{self.path} is out of date: {error.strerror}"
        self._abandon()
        return False

    def _abandon(self) -> None:
        self._chunks = None
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.close(fd)
                self._beside.unlink()
            except OSError:  # what is left behind is no status file yet
                pass


def _chunks(state: State, study: StudyState | None) -> Iterator[str]:
    """The file in pieces. As in Maestro's, no newline follows the last row."""
    yield HEADER
    told = 0
    while told < (end := len(study.tasks) if study is not None else len(state.tasks)):
        now = state.present(time())
        last = min(told + ROWS_AT_ONCE, end)
        rows = range(told, last) if study is None else map(study.tasks.number, range(told, last))
        yield "".join(["\n" + ",".join(map(_cell, cells(state, task, now))) for task in rows])
        told = last


def cells(state: State, task: int, now: float) -> tuple[str, ...]:
    """The cells of a task's row at a time, in the order of `COLUMNS`, unquoted."""
    row = state.tasks[task]
    phase = state.phases[task]
    workspace = row.workspace
    parts = workspace.rsplit("/", 2)
    workspace = "/".join(parts[-2:]) if row.params else parts[-1]
    pid, started, ended = state.pids[task], state.launched_at[task], state.ended_at[task]
    wall = state.wall
    run_time = elapsed = NO_DURATION
    start_time = submit_time = end_time = NO_TIME
    if phase == Phase.RUNNING or phase == Phase.LAUNCHED:
        submitted = state.running[task].time
        submit_time = clock(int(wall(submitted) + 0.5))
        elapsed = span(now - submitted)
        if phase == Phase.RUNNING:
            start_time = clock(int(wall(started) + 0.5))
            run_time = span(now - started)
    elif phase >= Phase.DONE:
        if ended:
            end_time = clock(int(wall(ended) + 0.5))
        if started and phase != Phase.SKIPPED:
            start_time = submit_time = clock(int(wall(started) + 0.5))
            run_time = elapsed = span(int(ended + 0.5) - int(started + 0.5))
    return (
        row.name,
        str(pid) if pid else NO_TIME,
        workspace,
        STATES[phase],
        run_time,
        elapsed,
        start_time,
        submit_time,
        end_time,
        str(state.restarts.get(task, 0)),
        row.params,
    )


def span(seconds: float) -> str:
    """`0d:00h:03m:25s`."""
    whole = max(0, int(seconds))
    return f"{whole // 86400}d:{whole % 86400 // 3600:02d}h:{whole % 3600 // 60:02d}m:{whole % 60:02d}s"


def _cell(text: str) -> str:
    """The text as a cell: as it is if every reader takes it for what it is, quoted otherwise."""
    if "," in text or "\n" in text or "\r" in text or text[:1] == '"':
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    return text
