"""What does a run tell while it runs? Bars on a terminal, plain lines elsewhere, JSON for programs, or failures only.

A progress is an observer of the loop: it is called once a turn and most of the time has nothing to do. It tells of a task's
end only when the record of it is on disk: what people have seen is never run again.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, TextIO

from cantle.core.phases import FINAL, Phase
from cantle.core.state import State
from cantle.model.resources import count
from cantle.report.failures import FAILURES, printed, why
from cantle.report.pace import Pace
from cantle.report.summary import MOST_FAILURES, summary_lines, summary_object
from cantle.report.wording import COLOURS, WORDS, counted, duration, in_colour, printable, wants_colour

if TYPE_CHECKING:
    from cantle.report.growth import GrowthNews

DELIVERY_S = 0.05
SMALL = 200
"""Studies of up to so many tasks are told task by task."""
SUMMARY_S = 10.0
GROWTH_S = 0.5
"""News about nodes that come and go are gathered for so long."""
_LINES_OF_STDERR = 3


def choose_progress(
    state: State,
    *,
    json: bool = False,
    quiet: bool = False,
    stream: TextIO | None = None,
    durable: Callable[[], int] = lambda: sys.maxsize,
    written: Callable[[], int] = lambda: 0,
) -> Progress:
    """The progress that fits what was asked and where it goes (default: standard output).

    `written` and `durable` count the journal's records that were taken in, and those that are on disk.
    """
    stream = stream or sys.stdout
    if json:
        return JsonProgress(state, stream, durable, written)
    if quiet:
        return QuietProgress(state, stream, durable, written)
    if wants_live(stream):
        from cantle.report.live import LiveProgress

        return LiveProgress(state, stream, durable, written)
    return PlainProgress(state, stream, durable, written)


def wants_live(stream: TextIO) -> bool:
    """Whether lines there can be drawn anew."""
    import os

    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Progress:
    """Gathers what ended, and hands it on when it is durable. The subclasses say what is shown."""

    interval_s = DELIVERY_S

    def __init__(self, state: State, stream: TextIO, durable: Callable[[], int], written: Callable[[], int]) -> None:
        if state.news is None:
            state.news = []
        self.stream = stream
        self.began = monotonic()
        self.pace = Pace()
        self._durable = durable
        self._written = written
        self._undelivered: deque[tuple[int, list[int]]] = deque()
        self._next = 0.0
        self._begun = False
        self._gone = False
        self._growth: GrowthNews | None = None
        self._growth_due = 0.0

    def __call__(self, state: State) -> None:
        """Once a turn of the loop."""
        now = monotonic()
        if now < self._next:
            return
        if not self._begun:
            self._begun = True
            self._begin(state)
        self._gather(state)
        while self._undelivered and self._undelivered[0][0] <= self._durable():
            self._deliver(state, self._undelivered.popleft()[1])
        if state.scaling is not None and now >= self._growth_due:
            self._growth_due = now + GROWTH_S
            self._tell_growth(state)
        self.tick(state)
        self._flush()
        ended = monotonic()
        self._next = ended + max(self.interval_s, 25 * (ended - now))

    def note(self, text: str) -> None:
        """Tell something that is not about a task."""
        self.say(f"note: {printable(text)}")
        self._flush()

    def _tell_growth(self, state: State) -> None:
        """What is new about nodes that come and go."""
        for line in self._growth_news(state).lines(state):
            self.note(line)

    def _growth_news(self, state: State) -> GrowthNews:
        if self._growth is None:
            from cantle.report.growth import GrowthNews

            self._growth = GrowthNews(state)
        return self._growth

    def finish(self, state: State, exit_code: int, directory: Path) -> None:
        """The run is over and its journal closed: tell what is left to be told, and the summary."""
        if not self._begun:
            self._begun = True
            self._begin(state)
        self._gather(state)
        while self._undelivered:
            self._deliver(state, self._undelivered.popleft()[1])
        self.summarise(state, exit_code, directory)
        self._flush()

    def abandon(self) -> None:
        """The run broke off: leave the terminal in order; somebody else tells why."""
        self._flush()

    def begin(self, state: State) -> None:
        """The first words."""

    def ended(self, state: State, task: int) -> None:
        """A task reached a final phase, and that is on disk."""

    def tick(self, state: State) -> None:
        """Time has passed."""

    def summarise(self, state: State, exit_code: int, directory: Path) -> None:
        """The last words."""
        for line in summary_lines(state, exit_code, directory, self.seconds):
            self.say(line)

    @property
    def seconds(self) -> float:
        """Since this progress began."""
        return monotonic() - self.began

    def say(self, line: str) -> None:
        """Print a line. When nobody reads any more, the run goes on in silence."""
        if self._gone:
            return
        try:
            self.stream.write(line + "\n")
        except UnicodeEncodeError:
            encoding = self.stream.encoding or "ascii"
            self.stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
        except (OSError, ValueError):
            self._gone = True

    def _flush(self) -> None:
        if self._gone:
            return
        try:
            self.stream.flush()
        except (OSError, ValueError):
            self._gone = True

    def _begin(self, state: State) -> None:
        news = set(state.news or ())
        if state.totals[Phase.DONE]:
            for task, phase in enumerate(state.phases):
                if phase == Phase.DONE and task not in news:
                    self.pace.add(state, task)
        self.over = sum(state.totals[phase] for phase in FINAL) - len(news)
        self.done_before = state.totals[Phase.DONE] - sum(state.phases[task] == Phase.DONE for task in news)
        self.begin(state)

    def _gather(self, state: State) -> None:
        if state.news:
            self._undelivered.append((self._written(), state.news))
            state.news = []

    def _deliver(self, state: State, tasks: list[int]) -> None:
        for task in tasks:
            phase = state.phases[task]
            if phase not in FINAL:
                continue  # it got another chance meanwhile
            self.over += 1
            if phase == Phase.DONE:
                self.pace.add(state, task)
            self.ended(state, task)


class PlainProgress(Progress):
    """Lines: a task each in small studies, now and then a summary in large ones, failures always."""

    def __init__(self, state: State, stream: TextIO, durable: Callable[[], int], written: Callable[[], int]) -> None:
        super().__init__(state, stream, durable, written)
        self._colour = wants_colour(stream)
        self._summary_due = self.began + SUMMARY_S

    def begin(self, state: State) -> None:
        """What is going to run, and where."""
        for line in first_words(state, self.done_before):
            self.say(line)

    def ended(self, state: State, task: int) -> None:
        """A line about the task, unless there are too many of them and it is done."""
        phase = state.phases[task]
        small = len(state.tasks) <= SMALL
        if phase not in FAILURES and not small:
            return
        digits = len(f"{len(state.tasks):,}")
        word = f"{WORDS[phase]:<9}"
        if self._colour:
            word = in_colour(word, COLOURS.get(phase, ""))
        line = f"[{self.over:>{digits},}/{len(state.tasks):,}] {word} {printable(state.tasks[task].name)}"
        if phase == Phase.DONE:
            self.say(f"{line}  {duration(state.ended_at[task] - state.launched_at[task])}")
            return
        reason, detail = why(state, task)
        self.say(f"{line}: {reason}")
        for text in printed(detail)[-_LINES_OF_STDERR:]:
            self.say(f"    | {text}")

    def tick(self, state: State) -> None:
        """Now and then, how far it is."""
        now = monotonic()
        if now >= self._summary_due:
            self._summary_due = now + SUMMARY_S
            self.say(f"{duration(self.seconds)}: {how_far(state, self.pace)}")


class QuietProgress(Progress):
    """Failures only. That nodes are refused, or a scaling function fails, is told the first time, on standard error."""

    def __init__(self, state: State, stream: TextIO, durable: Callable[[], int], written: Callable[[], int]) -> None:
        super().__init__(state, stream, durable, written)
        self._at_fault: set[str] = set()

    def _tell_growth(self, state: State) -> None:
        for whose, line in self._growth_news(state).troubles(state):
            if whose not in self._at_fault:
                self._at_fault.add(whose)
                print(f"cantle: {line}", file=sys.stderr, flush=True)

    def summarise(self, state: State, exit_code: int, directory: Path) -> None:
        """Nothing when all is well."""
        if exit_code:
            super().summarise(state, exit_code, directory)

    def note(self, text: str) -> None:
        """Not told."""


class JsonProgress(Progress):
    """One JSON object a line: tasks that ended, then a summary."""

    def __init__(self, state: State, stream: TextIO, durable: Callable[[], int], written: Callable[[], int]) -> None:
        import msgspec

        super().__init__(state, stream, durable, written)
        self._encode = msgspec.json.Encoder().encode

    def note(self, text: str) -> None:
        """As an object with the key `note`."""
        self._put({"note": text})
        self._flush()

    def ended(self, state: State, task: int) -> None:
        """As an object with the key `task`."""
        self._put(task_object(state, task))

    def summarise(self, state: State, exit_code: int, directory: Path) -> None:
        """As an object with the key `run`."""
        self._put(summary_object(state, exit_code, directory, self.seconds))

    def _put(self, value: dict[str, object]) -> None:
        try:
            self.say(self._encode(value).decode())
        except UnicodeEncodeError:
            import json

            self.say(json.dumps(value))


def task_object(state: State, task: int) -> dict[str, object]:
    """What is known of a task, for programs. Times are seconds since the epoch; what is not known is left out."""
    row = state.tasks[task]
    phase = state.phases[task]
    found: dict[str, object] = {"task": row.name, "step": state.steps[row.step].name, "state": phase.name.lower()}
    if row.params:
        found["params"] = row.params
    if row.workspace:
        found["workspace"] = row.workspace
    if state.attempts[task]:
        found["attempt"] = state.attempts[task]
    if state.launched_at[task] and phase not in (Phase.SKIPPED, Phase.WAITING, Phase.READY):
        found["started"] = round(state.launched_at[task], 3)
        if phase in FINAL:
            found["ended"] = round(state.ended_at[task], 3)
            found["seconds"] = round(state.ended_at[task] - state.launched_at[task], 3)
        if state.pids[task]:
            found["pid"] = state.pids[task]
    ended = state.ended.get(task)
    if ended is not None and phase in FINAL and phase != Phase.DONE:
        found["outcome"] = ended.outcome
        if ended.exit_code:
            found["exit_code"] = ended.exit_code
        if ended.signal:
            found["signal"] = ended.signal
    if task in state.cause_of and phase in FINAL:
        found["reason"] = state.cause_of[task]
    return found


def first_words(state: State, done_before: int) -> list[str]:
    """What is going to run, and where. `done_before`: so many tasks need not, since they did when the run went on before."""
    if not state.studies:
        return []
    added = state.studies[0].added
    steps = len({step.name for step in state.steps})
    text = f"{added.name}: {count(len(state.tasks), 'task')} of {count(steps, 'step')}"
    nodes = state.nodes_alive()
    if len(nodes) == 1:
        text += f" on {nodes[0]}"
    elif nodes:
        text += f" on {len(nodes):,} nodes with {sum(node.cores for node in nodes):,} cores"
    lines = [text + (f", in {added.directory}" if added.directory else "")]
    if state.resumed and done_before:
        were = "was" if done_before == 1 else "were"
        lines.append(f"resumed: {done_before:,} of them {were} done before")
    return lines


def how_far(state: State, pace: Pace) -> str:
    """`812 done, 8 running, 180 ready; 8 of 8 cores in use; about 25 s left`."""
    used, cores = cores_in_use(state)
    left = pace.left_s(state, state.present(time()))
    end = "the end is not known" if left is None else f"about {duration(left)} left"
    return f"{counted(state.totals)}; {used:,} of {cores:,} cores in use; {end}"


def cores_in_use(state: State) -> tuple[int, int]:
    """Cores on which a task runs, of those that are there. What a partition owns and does not use is not in use."""
    room = state.room
    cores = free = 0
    for index, node in room.nodes.items():
        if room.alive >> index & 1:
            cores += node.cores
            free += room.free_cores[index].bit_count()
    for partition in state.partitions.living.values():
        own = partition.room
        free += sum(own.free_cores[index].bit_count() for index in partition.nodes())
    return cores - free, cores


__all__ = ["MOST_FAILURES", "JsonProgress", "PlainProgress", "Progress", "QuietProgress", "choose_progress"]
