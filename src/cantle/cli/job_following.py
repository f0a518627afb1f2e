"""How is a run in a batch job told of on this terminal, from the queue to its end?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.ending_jobs import cancel_jobs, cancel_run
from cantle.cli.following import DETACHED, follow
from cantle.cli.machine import say
from cantle.errors import CantleError, MachineError
from cantle.runtime.orchestration.records import Jobs
from cantle.runtime.orchestration.watch import JobWatch

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from cantle.allocations.submission.wanted import Standing
    from cantle.report.loading import Run

LAST_LINES = 15
_PAUSE_S = 0.2


def follow_study(jobs: Jobs, asked: Namespace) -> int:
    """Tell of the study until it is over, through all of its jobs. The exit status as of `cantle run`, 130 when let go of.

    Raises MachineError with the last lines that the job printed when it is over and the run is not.
    """
    watch = JobWatch(jobs)
    return follow(jobs.layout.directory, asked, watch.what(), _Waiting(), lambda: cancel_run(watch))


class _Waiting:
    """Whether nobody is at work on the run just now, and if so, why."""

    def __init__(self) -> None:
        self._told = ""
        self._stop = ""

    def __call__(self, run: Run, note: Callable[[str], None]) -> bool:
        from cantle.allocations.submission.wanted import Stage
        from cantle.report.loading import OVER, Condition

        condition = run.condition
        if run.conductor is not None or run.jobs is None:
            return condition in OVER  # it closes its files, or has just begun to go on
        unheeded = condition in OVER and condition != Condition.CANCELED and run.jobs.shall_go_on(run.state.resumed)
        if condition in (Condition.DEAD, Condition.STOPPED) or unheeded:
            standing = run.jobs.standing()
            if standing.stage is not Stage.OVER or run.refresh() or self._goes_on(run, run.jobs, note):
                return True
            if condition == Condition.STOPPED and not unheeded:
                return False
            raise _death(run.jobs, standing)
        if condition not in (Condition.QUEUED, Condition.STARTING):
            return False
        if run.state.stopping and run.state.stopping != self._stop:
            self._stop = run.state.stopping
            note(f"it stopped: {self._stop}")
        text = in_the_queue(run.jobs, run.gone_from)
        if text != self._told:
            self._told = text
            note(text)
        return True

    def _goes_on(self, run: Run, watch: JobWatch, note: Callable[[str], None]) -> bool:
        """Submit the job that follows, where a job could not do so itself. Whether there is one now."""
        from cantle.runtime.orchestration import succession
        from cantle.runtime.orchestration.handing_in import hand_in

        jobs = watch.jobs
        last = jobs.last()
        if last is None:
            return False
        if jobs.stale(last.number):
            jobs.give_back(last.number)
            number, chain = last.number, jobs.job(last.number - 1).chain
        else:
            number, chain = last.number + 1, last.chain
        if number - chain >= jobs.asked().most_jobs or jobs.began(number - 1) is None:
            return False
        if reason := succession.why_not(jobs, watch.system, number, run.state):
            note(f"no further job is submitted: {reason}")
            return False
        try:
            return hand_in(jobs, watch.system, number, chain=chain)
        except CantleError as refused:
            note(f"no further job can be submitted: {refused}")
            return False


def in_the_queue(watch: JobWatch, gone_from: str = "") -> str:
    """Why nothing runs yet, as a sentence. `gone_from`: where the conductor of a job stood that still runs."""
    from cantle.allocations.submission.wanted import Stage
    from cantle.report.wording import time_of_day

    standing = watch.standing()
    if standing.stage is Stage.RUNNING:
        if gone_from:
            return f"{watch.what()} runs, but its conductor on host {gone_from} is gone: what is left waits for the job's end"
        return f"{watch.what()} runs; its conductor begins"
    text = f"{watch.what()} is {standing}" if standing.stage is Stage.PENDING else f"{watch.what()}: {standing}"
    if standing.starts_at:
        text += f", expected to start at {time_of_day(standing.starts_at)}"
    if standing.never:
        text += "; as it is asked for it does not start by itself"
    return text


def _death(watch: JobWatch, standing: Standing) -> CantleError:
    """What to say of a job that is over while its run is not."""
    from cantle.report.failures import typed

    jobs = watch.jobs
    last = jobs.last()
    number = last.number if last else 1
    how = f", {standing}," if standing.word or standing.reason else ""
    began = "before the run began" if jobs.began(number) is None else "before the run was"
    directory = typed(jobs.layout.directory)
    text = f"{watch.what()} is over{how} {began}"
    if unseen := _unseen(jobs, number):
        problem = MachineError(f"{text}. {unseen}")
    else:
        text += f". Go on in a new job: cantle orchestrate {directory}"
        problem = MachineError("\n    ".join([text, *last_lines(jobs.output(number))]))
    problem.exit_code = 3 if standing.canceled else 1
    return problem


def _unseen(jobs: Jobs, number: int) -> str:
    """What to do when a job was over before it could write a word where it was told to; "" when that is not so."""
    path = jobs.output(number)
    if jobs.began(number) is not None or path.exists():
        return ""
    return (
        f"It could not even write its output, {path}: most likely its nodes do not see that folder. "
        "Put the run where they see the same files as this machine, on a shared file system (-o)"
    )


def last_lines(path: Path) -> list[str]:
    """The last lines of a job's output, with a line that says so."""
    from cantle.report.wording import printable

    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    except OSError:
        return [f"It printed nothing: there is no {path}"]
    if not lines:
        return [f"It printed nothing into {path}"]
    return [f"The last lines of {path}:", *(f"| {printable(line)}" for line in lines)]


def follow_command(jobs: Jobs, asked: Namespace) -> int:
    """Show what the command prints until it is over, and end as it did; 130 when let go of.

    Raises MachineError when the job is over and the command did not say how it ended.
    """
    watch = JobWatch(jobs)
    shown = _Output(jobs.output(1))
    while True:
        try:
            return _watch_command(watch, shown, asked)
        except KeyboardInterrupt:
            if _lets_go(watch):
                return DETACHED


def _watch_command(watch: JobWatch, shown: _Output, asked: Namespace) -> int:
    from time import sleep

    from cantle.allocations.submission.wanted import Stage

    jobs = watch.jobs
    told = ""
    while True:
        ended = jobs.ended(1)
        standing = watch.standing()
        begun = jobs.began(1) is not None
        shown.forward()
        over = standing.stage is Stage.OVER
        if over and ended is None:
            ended = jobs.ended(1)  # written down in between
        if jobs.canceled and (over or ended is not None):
            say(f"cantle: {watch.what()} was canceled")
            return 3
        if ended is not None:
            return ended.status
        if over:
            shown.forward()
            raise _command_death(watch, standing, begun)
        if not begun and (text := in_the_queue(watch).replace("conductor", "command")) != told and not asked.quiet:
            told = text
            say(f"cantle: {text}")
        sleep(_PAUSE_S)


def _command_death(watch: JobWatch, standing: Standing, begun: bool) -> CantleError:
    how = f", {standing}," if standing.word or standing.reason else ""
    when = "before its command was" if begun else "before its command began"
    text = f"{watch.what()} is over{how} {when}"
    if unseen := _unseen(watch.jobs, 1):
        problem = MachineError(f"{text}. {unseen}")
    else:
        problem = MachineError("\n    ".join([text, *last_lines(watch.jobs.output(1))]))
    problem.exit_code = 3 if standing.canceled else 1
    return problem


class _Output:
    """A file of which what is new is printed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def forward(self) -> None:
        """Print what has come since."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                while block := file.read(1 << 16):
                    self._at += len(block)
                    sys.stdout.buffer.write(block)
        except FileNotFoundError:
            return
        sys.stdout.buffer.flush()


def _lets_go(watch: JobWatch) -> bool:
    """What Ctrl-C means here. Whether the job is not watched any more."""
    from cantle.report.failures import typed

    directory = typed(watch.jobs.layout.directory)
    told = f"{watch.what()} goes on. Look: cantle orchestrate --attach {directory}; end it: cantle cancel {directory}"
    if sys.stdin.isatty() and sys.stderr.isatty():
        try:
            say(f"\nThe command runs in {watch.what()}, not here.")
            answer = input("[c]ancel it, [d]etach and let it go on, or watch [o]n? [d] ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            answer = "d"
        if answer.startswith("c"):
            cancel_jobs(watch)
            say("cantle: the batch job is being ended")
            return False
        if answer.startswith(("o", "w")):
            return False
    say(f"cantle: {told}")
    return True
