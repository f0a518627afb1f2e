"""How far is each step? One row per step's name, with a bar."""

from __future__ import annotations

from typing import NamedTuple

from cantle.core.phases import FINAL, Phase
from cantle.core.state import State
from cantle.report.wording import COLOURS, WORDS, in_colour, printable

BAR_WIDTH = 30
MOST_NAME_WIDTH = 30

_PARTS = (
    ((Phase.DONE,), "━", "#", COLOURS[Phase.DONE]),
    ((Phase.FAILED, Phase.TIMEDOUT), "━", "!", COLOURS[Phase.FAILED]),
    ((Phase.CANCELED, Phase.SKIPPED), "━", "x", COLOURS[Phase.SKIPPED]),
    ((Phase.RUNNING, Phase.LAUNCHED), "╍", ">", COLOURS[Phase.RUNNING]),
    ((Phase.READY, Phase.WAITING), "─", ".", "2"),
)


class StepRow(NamedTuple):
    """A step's name and its tasks, counted by phase."""

    name: str
    totals: list[int]

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        return sum(self.totals)

    @property
    def over(self) -> int:
        """How many have ended, however that was."""
        return sum(self.totals[phase] for phase in FINAL)


def step_rows(state: State) -> list[StepRow]:
    """The rows in the order of the study. Costs by steps."""
    rows: dict[str, StepRow] = {}
    for step, counts in zip(state.steps, state.counts, strict=True):
        row = rows.get(step.name)
        if row is None:
            rows[step.name] = StepRow(step.name, list(counts))
        else:
            for phase, n in enumerate(counts):
                row.totals[phase] += n
    return [row for row in rows.values() if row.tasks]


def bar(totals: list[int], width: int, colour: bool) -> str:
    """A bar of so many characters: done, failed, not run for a failure's sake, running, still to come."""
    tasks = sum(totals) or 1
    text, seen, drawn = [], 0, 0
    for phases, fine, plain, code in _PARTS:
        n = sum(totals[phase] for phase in phases)
        seen += n
        end = seen * width // tasks
        if n and end == drawn and drawn < width and phases[0] in (Phase.FAILED, Phase.RUNNING):
            end += 1  # the few that matter must not vanish
        if end > drawn:
            text.append(in_colour(fine * (end - drawn), code) if colour else plain * (end - drawn))
            drawn = end
    return "".join(text)


def step_lines(rows: list[StepRow], colour: bool) -> list[str]:
    """The rows as lines of text: name, bar, how many are over, and what else is to be said."""
    if not rows:
        return []
    width = min(MOST_NAME_WIDTH, max(len(printable(row.name)) for row in rows))
    digits = max(len(f"{row.tasks:,}") for row in rows)
    return [_line(row, width, digits, colour) for row in rows]


def _line(row: StepRow, width: int, digits: int, colour: bool) -> str:
    name = printable(row.name)
    if len(name) > width:
        name = name[: width - 1] + "…"
    told = []
    for phase in (Phase.RUNNING, Phase.FAILED, Phase.TIMEDOUT, Phase.CANCELED, Phase.SKIPPED):
        n = row.totals[phase] + (row.totals[Phase.LAUNCHED] if phase == Phase.RUNNING else 0)
        if n:
            text = f"{n:,} {WORDS[phase]}"
            told.append(in_colour(text, COLOURS[phase]) if colour else text)
    counts = f"{row.over:>{digits},}/{row.tasks:<{digits},}"
    return f"{name:<{width}}  {bar(row.totals, BAR_WIDTH, colour)}  {counts}  {', '.join(told)}".rstrip()
