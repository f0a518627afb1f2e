"""`cantle cancel`, `update`: what one may ask of the conductor of a run, from any shell that sees its directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import Command, at_least, wrong
from cantle.cli.naming import directory_argument, task_argument

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.model.records import AnyRecord
    from cantle.report.loading import Run

ANSWER_S = 5.0
_PAUSE_S = 0.05


def _cancel_arguments(parser: ArgumentParser) -> None:
    directory_argument(parser)
    task_argument(
        parser, "only these tasks: by name, pattern, step or beginning of the name; or further runs", nargs="*"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask whether you mean it")


def _cancel_asked(asked: Namespace) -> int:
    from cantle.errors import CantleError
    from cantle.report.loading import load_one
    from cantle.store.layout import Layout

    def _is_run(word: str) -> bool:
        try:
            return Layout(word).exists() or Layout(word).batch.exists()
        except OSError:  # too long for a path, and so a task's name
            return False

    more = [Path(word) for word in asked.task if _is_run(word)]
    names = [word for word in asked.task if not _is_run(word)]
    if more and names:
        raise wrong(f"name tasks of one run only: {more[0]} is a run, {names[0]!r} is not")
    code = 0
    for directory in (asked.directory, *more):
        try:
            if not names and Layout(directory).batch.exists():
                from cantle.cli.ending_jobs import cancel_in_queue

                if cancel_in_queue(directory, asked.yes):
                    continue
            if not names and Layout(directory).elastic.is_dir():
                from cantle.cli.elastic import cancel_what_is_left

                if cancel_what_is_left(Layout(directory), asked.yes):
                    continue
            _cancel(load_one(directory), names, asked.yes)
        except CantleError as problem:
            print(f"cantle: {problem}", file=sys.stderr)
            code = problem.exit_code
    return code


def _cancel(run: Run, names: list[str], yes: bool) -> None:
    from time import time

    from cantle.core.phases import FINAL
    from cantle.errors import RequestError
    from cantle.model.records import CancelAsked
    from cantle.model.resources import count
    from cantle.report.naming import find_tasks
    from cantle.store.requests import ask

    require_listener(run, "cancel")
    state = run.state
    if names:
        named = sorted({task for name in names for task in find_tasks(state, name)})
        concerned = [task for task in named if state.phases[task] not in FINAL]
        if not concerned:
            told = "it is" if len(named) == 1 else f"all {len(named):,} of them are"
            raise RequestError(f"there is nothing to cancel: {told} over already")
        what = state.tasks[concerned[0]].name if len(concerned) == 1 else count(len(concerned), "task")
    else:
        concerned = [task for task, phase in enumerate(state.phases) if phase not in FINAL]
        what = f"the run {run.name}, {count(len(concerned), 'task')} of which {_are(len(concerned))} not over"
    running = sum(task in state.running and not state.stands_in_line(task) for task in concerned)
    if running:
        what += f" ({running:,} running)"
    if not yes:
        if not sys.stdin.isatty():
            raise RequestError("nobody can be asked here whether you mean it; say so with -y")
        if input(f"Cancel {what}? [y/N] ").strip().lower() not in ("y", "yes"):
            raise RequestError("nothing was canceled")
    wish = CancelAsked(time(), concerned if names else None, me())
    ask(run.directory, wish)
    if answered(run, lambda record: isinstance(record, CancelAsked) and record.tasks == wish.tasks):
        print(f"canceled: {what}")
    else:
        not_answered(run)


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


CANCEL = Command(
    "cancel",
    "",
    _cancel_arguments,
    _cancel_asked,
    """\
Running tasks are ended (TERM, then KILL). Tasks that need them are canceled as well; others go on. What was canceled
gets a new chance when the run is resumed.

Exit status: 0 when the run took note, 1 otherwise.""",
    """\
  cantle cancel out                    end the whole run; asks first
  cantle cancel out -y                 ... does not ask
  cantle cancel out 'run-sim_*' post   these tasks, and those that need them
  cantle cancel -y runs/*              several runs""",
)


def _update_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("directories", metavar="DIR", nargs="+", type=Path, help="the directory of a run")
    parser.add_argument("--throttle", type=at_least(0), metavar="N", help="most tasks at once (0: no bound)")
    parser.add_argument(
        "--rlimit", type=at_least(0), metavar="N", help="most restarts of a task that timed out (0: no bound)"
    )
    parser.add_argument(
        "--sleep", type=at_least(0, float), metavar="S", help="accepted without effect: nothing is polled here"
    )


def _update_asked(asked: Namespace) -> int:
    from cantle.errors import CantleError
    from cantle.report.loading import load_one

    code = 0
    for directory in asked.directories:
        try:
            _update(load_one(directory), asked.throttle, asked.rlimit)
        except CantleError as problem:
            print(f"cantle: {problem}", file=sys.stderr)
            code = problem.exit_code
    return code


UPDATE = Command(
    "update",
    "",
    _update_arguments,
    _update_asked,
    """\
What runs goes on running. Without options it shows the limits in force.

Exit status: 0 when the run took note, 1 otherwise.""",
    """\
  cantle update out --throttle 4       at most 4 tasks at once from now on
  cantle update out --rlimit 0         restart tasks that time out as often as it takes
  cantle update out                    show the limits""",
)


def _update(run: Run, throttle: int | None, rlimit: int | None) -> None:
    from time import time

    from msgspec.structs import replace

    from cantle.errors import RequestError
    from cantle.model.records import LimitsChanged
    from cantle.store.requests import ask

    if not run.state.studies:
        raise RequestError(f"the study of the run in {run.directory} is not written down yet")
    limits = run.state.studies[0].limits
    if throttle is not None:
        limits = replace(limits, throttle=throttle)
    if rlimit is not None:
        limits = replace(limits, rlimit=rlimit)
    told = f"{run.name}: throttle {limits.throttle or 'unbounded'}, rlimit {limits.rlimit or 'unbounded'}"
    if limits == run.state.studies[0].limits:
        print(told)
        return
    require_listener(run, "update")
    ask(run.directory, LimitsChanged(time(), limits))
    if answered(run, lambda record: isinstance(record, LimitsChanged) and record.limits == limits):
        print(told)
    else:
        not_answered(run)


def require_listener(run: Run, verb: str) -> None:
    """Raise RequestError when nobody would hear a request."""
    from cantle.errors import RequestError
    from cantle.report.failures import typed
    from cantle.report.loading import OVER, Condition

    if run.condition in OVER:
        raise RequestError(f"there is nothing to {verb}: the run in {typed(run.directory)} is over")
    if run.condition == Condition.QUEUED and run.jobs is not None:
        raise RequestError(
            f"{run.jobs.what()}, {run.jobs.standing()}, has not begun, so that nobody hears it yet. "
            f"The whole run can be canceled: cantle cancel {typed(run.directory)}"
        )
    if run.condition == Condition.DEAD:
        raise RequestError(
            f"there is nothing to {verb}: the conductor of the run in {typed(run.directory)} is dead, "
            "and nothing of it runs until somebody resumes it"
        )


def answered(run: Run, is_answer: Callable[[AnyRecord], bool]) -> bool:
    """Whether the conductor wrote down soon that it heard the request."""
    from time import monotonic, sleep

    deadline = monotonic() + ANSWER_S
    while monotonic() < deadline:
        if any(map(is_answer, run.refresh())):
            return True
        if run.conductor is None:
            return False
        sleep(_PAUSE_S)
    return False


def not_answered(run: Run) -> None:
    """Say that the run was over before, or raise MachineError."""
    from cantle.errors import MachineError
    from cantle.report.loading import OVER

    if run.condition in OVER:
        print("the run ended before it heard the request")
        return
    if run.conductor is None:
        raise MachineError("the conductor died before it heard the request")
    raise MachineError(
        f"the conductor (pid {run.conductor.pid} on host {run.conductor.host}) has not answered within {ANSWER_S:g} s; "
        "the request lies in its directory, and it may hear it yet"
    )


def me() -> str:
    """Who asks, for the journal: user and host."""
    import os
    from getpass import getuser

    try:
        name = getuser()
    except (OSError, KeyError):
        name = str(os.getuid())
    return f"{name}@{os.uname().nodename}"
