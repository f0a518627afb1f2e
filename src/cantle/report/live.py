"""What does a run look like on a terminal while it runs? Bars, running tasks, cores in use, the estimated end, failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, TextIO

from cantle.core.phases import FINAL, Phase
from cantle.core.state import State
from cantle.report.failures import FAILURES, why
from cantle.report.pace import Pace
from cantle.report.progress import Progress, cores_in_use, first_words
from cantle.report.steps import BAR_WIDTH, StepRow, bar, step_lines, step_rows
from cantle.report.wording import COLOURS, counted, duration, in_colour, printable, wants_colour

if TYPE_CHECKING:
    from rich.live import Live

DRAW_S = 0.25
MOST_STEPS = 12
MOST_RUNNING = 8
MOST_RECENT_FAILURES = 4


class LiveProgress(Progress):
    """A view that is drawn anew up to four times a second. Very short runs end before it is drawn at all."""

    interval_s = DRAW_S

    def __init__(self, state: State, stream: TextIO, durable: Callable[[], int], written: Callable[[], int]) -> None:
        super().__init__(state, stream, durable, written)
        self._colour = wants_colour(stream)
        self._failures: list[str] = []
        self._screen: Screen | None = None
        self._next = self.began + DRAW_S

    def begin(self, state: State) -> None:
        """What is going to run, and where."""
        for line in first_words(state, self.done_before):
            self.say(line)

    def note(self, text: str) -> None:
        """Above the view."""
        if self._screen is None:
            super().note(text)
        else:
            self._screen.above(f"note: {printable(text)}")

    def ended(self, state: State, task: int) -> None:
        """Failures stay in sight for a while."""
        if state.phases[task] in FAILURES:
            self._failures.append(f"{printable(state.tasks[task].name)}: {why(state, task)[0]}")
            del self._failures[:-MOST_RECENT_FAILURES]

    def tick(self, state: State) -> None:
        """Draw."""
        if state.finished or self._gone:
            return
        self._flush()
        if self._screen is None:
            self._screen = Screen(self.stream)
        self._screen.draw(view(state, self.pace, self.seconds, self._failures, self._colour))

    def summarise(self, state: State, exit_code: int, directory: Path) -> None:
        """The view goes, the summary stays."""
        self._close()
        super().summarise(state, exit_code, directory)

    def abandon(self) -> None:
        """Leave the terminal as it was."""
        self._close()
        super().abandon()

    def _close(self) -> None:
        if self._screen is not None:
            self._screen.close()
            self._screen = None


class Screen:
    """A part of the terminal that is drawn over and over, and gone afterwards."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False, markup=False)
        self._live: Live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="ellipsis",
        )
        self._live.start()

    def draw(self, lines: list[str]) -> None:
        """Show these lines; each is cut at the terminal's edge."""
        from rich.text import Text

        self._live.update(Text.from_ansi("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

    def above(self, line: str) -> None:
        """Print a line that stays, above the view."""
        self._console.print(line)

    def close(self) -> None:
        """Take the view away."""
        self._live.stop()


def view(state: State, pace: Pace, seconds: float, failures: list[str], colour: bool) -> list[str]:
    """The view, line by line."""
    now = state.present(time())
    over = sum(state.totals[phase] for phase in FINAL)
    left = pace.left_s(state, now)
    end = "end unknown" if left is None else f"about {duration(left)} left"
    lines = [f"{bar(state.totals, BAR_WIDTH, colour)}  {over:,}/{len(state.tasks):,}  {duration(seconds)}  {end}"]
    if state.stopping:
        running = len(state.running)
        again = "; once more ends them at once" if running and not state.at_once and "SIGINT" in state.stopping else ""
        are = "task is" if running == 1 else "tasks are"
        lines.append(f"stopping ({state.stopping}): {running:,} running {are} being ended{again}")
    rows = step_rows(state)
    if len(rows) > 1:
        shown = _worth_showing(rows)
        lines += [f"  {line}" for line in step_lines(shown, colour)]
        if len(shown) < len(rows):
            lines.append(f"  … {len(rows) - len(shown):,} more steps")
    used, cores = cores_in_use(state)
    lines.append(f"{used:,} of {cores:,} cores in use; {counted(state.totals)}")
    lines += _running(state, now)
    if failures:
        lines += [in_colour(line, COLOURS[Phase.FAILED]) if colour else line for line in failures]
    return lines


def _worth_showing(rows: list[StepRow]) -> list[StepRow]:
    """Steps at work first, then those that failed, then those to come; in the order of the study."""
    if len(rows) <= MOST_STEPS:
        return rows

    def weight(index: int) -> int:
        row = rows[index]
        if row.totals[Phase.RUNNING] or row.totals[Phase.LAUNCHED]:
            return 0
        if row.over < row.tasks:
            return 2 if not row.totals[Phase.READY] else 1
        return 3

    chosen = sorted(range(len(rows)), key=lambda index: (weight(index), index))[:MOST_STEPS]
    return [rows[index] for index in sorted(chosen)]


def _running(state: State, now: float) -> list[str]:
    """The tasks that have been running longest: who starts first stands first in `running`."""
    lines: list[str] = []
    for task, launch in ((t, la) for t, la in state.running.items() if not state.stands_in_line(t)):
        if len(lines) == MOST_RUNNING:
            lines.append(f"  … {len(state.running) - MOST_RUNNING:,} more")
            break
        lines.append(f"  {printable(state.tasks[task].name)}  {duration(now - launch.time)}")
    return lines
