"""`cantle status`, `wait`, `explain`, `logs`: how a run is watched, from any shell that sees its directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import Command, at_least
from cantle.cli.naming import directory_argument, task_argument

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.core.state import State
    from cantle.report.loading import Run

NOT_TOLD = 1
TIMED_OUT = 124
_QUICK_S, _SLOW_S = 0.05, 0.5
_LEAVING_S = 10.0


def _status_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("directories", metavar="DIR", nargs="+", type=Path, help="the directory of a run")
    parser.add_argument("--live", action="store_true", help="keep watching until the run is over")
    parser.add_argument("--all", action="store_true", dest="all_tasks", help="list all tasks, also if more than 100")
    parser.add_argument("--failed", action="store_true", help="list all failures, also if more than 20")
    parser.add_argument(
        "--json", action="store_true", dest="as_json", help="print one JSON object for each DIR, on one line"
    )
    parser.add_argument(
        "--layout",
        choices=("flat", "legacy", "narrow"),
        default="flat",
        help="table of tasks: one line each (default), the same as older Maestros print it, or a block each",
    )
    parser.add_argument("--disable-theme", action="store_true", help="no colours")
    parser.add_argument("--disable-pager", action="store_true", help="no pager, however long it gets")


def _status(asked: Namespace) -> int:
    from cantle.errors import CantleError
    from cantle.report.loading import load_one
    from cantle.report.table import page, status_object
    from cantle.report.wording import wants_colour

    colour = wants_colour(sys.stdout) and not asked.disable_theme
    code = 0
    lines: list[str] = []
    for directory in asked.directories:
        try:
            run = load_one(directory)
        except CantleError as problem:
            print(f"cantle: {problem}", file=sys.stderr)
            code = NOT_TOLD
            continue
        if asked.as_json:
            import msgspec

            print(msgspec.json.encode(status_object(run, asked.all_tasks)).decode(), flush=True)
            continue
        if asked.live:
            _watch(run, colour)
        if lines:
            lines.append("")
        lines += page(run, layout=asked.layout, all_tasks=asked.all_tasks, all_failures=asked.failed, colour=colour)
    if lines:
        _show(lines, pager=sys.stdout.isatty() and not asked.disable_pager)
    return code


def _show(lines: list[str], pager: bool) -> None:
    """Print the lines, or hand them to the pager when they do not fit on the terminal."""
    text = "\n".join(lines) + "\n"
    if pager:
        from shutil import get_terminal_size

        if len(lines) >= get_terminal_size().lines and _paged(text):
            return
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _paged(text: str) -> bool:
    """Whether a pager showed the text."""
    import os
    import shlex
    import subprocess

    pager = shlex.split(os.environ.get("PAGER", "less"))
    try:
        # -R keeps colours, -S does not fold long lines, -F and -X leave a text that fits where it is.
        subprocess.run(pager, input=text, text=True, check=True, env={"LESS": "FRSX", **os.environ})
    except (OSError, subprocess.CalledProcessError, IndexError):
        return False
    return True


def _watch(run: Run, colour: bool) -> None:
    """Show the run until it is over, nobody is at work on it any more, or Ctrl-C."""
    from time import monotonic, sleep

    from cantle.core.phases import Phase
    from cantle.report.failures import FAILURES, why
    from cantle.report.live import DRAW_S, MOST_RECENT_FAILURES, Screen, view
    from cantle.report.loading import OVER, Condition
    from cantle.report.pace import pace_of
    from cantle.report.progress import SUMMARY_S, how_far, wants_live
    from cantle.report.table import headline
    from cantle.report.wording import duration, printable

    screen = Screen(sys.stdout) if wants_live(sys.stdout) else None
    state, pace = run.state, pace_of(run.state)
    state.news = []
    failures: list[str] = []
    told = monotonic()
    try:
        while run.condition not in OVER and run.condition != Condition.DEAD:
            if screen is not None:
                body = view(run.state, pace, run.seconds, failures, colour)
                screen.draw([headline(run, colour), *body, "Ctrl-C ends the watching, not the run"])
            elif monotonic() - told >= SUMMARY_S:
                told = monotonic()
                print(f"{duration(run.seconds)}: {how_far(run.state, pace)}", flush=True)
            sleep(2 * DRAW_S)
            run.refresh()
            if run.state is not state:
                state, pace = run.state, pace_of(run.state)
                state.news = []
            for task in state.news or ():
                if state.phases[task] == Phase.DONE:
                    pace.add(state, task)
                elif state.phases[task] in FAILURES:
                    failures.append(f"{printable(state.tasks[task].name)}: {why(state, task)[0]}")
            state.news = []
            del failures[:-MOST_RECENT_FAILURES]
    except KeyboardInterrupt:
        pass
    finally:
        if screen is not None:
            screen.close()


STATUS = Command(
    "status",
    "",
    _status_arguments,
    _status,
    """\
Tells whether anybody is at work on the run, how far each step is, what failed and why, with the command to try it by
hand, and Maestro's table of tasks.

Exit status: 0 when it could be told, 1 otherwise. `cantle wait` tells how a run ended.""",
    """\
  cantle status out
  cantle status out --live             until it is over, or Ctrl-C
  cantle status out --all              all tasks, however many they are
  cantle status out --failed           all failures, with what to type to try them by hand
  cantle status runs/* --json | jq .counts""",
)


def _wait_arguments(parser: ArgumentParser) -> None:
    directory_argument(parser)
    parser.add_argument("--timeout", type=at_least(0, float), metavar="S", help="wait so many seconds at most")


def _wait(asked: Namespace) -> int:
    return wait_for(asked.directory, asked.timeout)


def wait_for(directory: Path, timeout_s: float | None = None) -> int:
    """Wait until the run is over, and say how it ended. The exit status."""
    from time import monotonic, sleep

    from cantle.report.loading import OVER, Condition, load_one
    from cantle.report.table import headline

    run = load_one(directory)
    began = monotonic()
    deadline = began + (float("inf") if timeout_s is None else timeout_s)
    over_since: float | None = None
    pause = _QUICK_S
    while True:
        condition = run.condition
        now = monotonic()
        if condition == Condition.DEAD:
            from cantle.runtime.conducting import taken_away

            print(f"cantle: {taken_away(run.layout) if run.layout.is_gone() else headline(run)}", file=sys.stderr)
            return NOT_TOLD
        if condition in OVER:
            # Its conductor is closing its files, or has just taken the run up to go on with it.
            over_since = over_since or now
            if run.conductor is None or now - over_since > _LEAVING_S:
                print(headline(run))
                return run.exit_code
        else:
            over_since = None
        if now >= deadline:
            print(f"cantle: {headline(run)}; waited for {timeout_s:g} s", file=sys.stderr)
            return TIMED_OUT
        sleep(max(0.001, min(pause, deadline - now)))
        pause = _QUICK_S if over_since else min(1.2 * pause, _SLOW_S)
        run.refresh()


WAIT = Command(
    "wait",
    "",
    _wait_arguments,
    _wait,
    """\
Works from any shell, also on another machine that sees the same file system.

Exit status: that of the run: 0 all tasks done, 2 some failed, 3 canceled or stopped, 4 the time of its nodes was up;
1 when its conductor died before the end; 124 when the time was up.""",
    """\
  cantle wait out && cantle run next.yaml
  cantle wait out --timeout 3600""",
)


def _explain_arguments(parser: ArgumentParser) -> None:
    directory_argument(parser)
    task_argument(parser, "a task's name; a beginning or a pattern of it will do, if it fits no other")


def _explain(asked: Namespace) -> int:
    from cantle.core.explain import explain
    from cantle.report.failures import FAILURES, explained, failure_of
    from cantle.report.loading import Condition, load_one
    from cantle.report.naming import find_task
    from cantle.report.table import how_to_go_on
    from cantle.report.wording import time_of_day

    run = load_one(asked.directory)
    number = find_task(run.state, asked.task)
    if run.condition == Condition.DEAD:
        print(
            "The conductor of this run is dead: nothing of it runs. "
            f"So it stood at {time_of_day(run.state.wall(run.state.now))}; "
            f"{how_to_go_on(run)}."
        )
    if run.condition == Condition.QUEUED:
        from cantle.report.table import headline

        print(f"Nothing of this run begins before its batch job does: {headline(run)}.")
    for sentence in explain(*_widest(run, number), run.now):
        for line in explained(sentence):
            print(line)
    if run.state.phases[number] in FAILURES:
        failure = failure_of(run.state, number, run.directory)
        if not failure.again.startswith("cantle explain"):
            print(f"{'Run it again' if failure.again.startswith('cd ') else 'See'}: {failure.again}")
    return 0


def _widest(run: Run, number: int) -> tuple[State, int]:
    """The state in which it was decided about the task: of a study that shares its nodes, that of its pilot."""
    from cantle.report.loading import OVER, load

    if run.layout.shared and run.conductor is not None and run.condition not in OVER:
        from cantle.runtime.pilot.leaving import pilot_of

        found = pilot_of(run.layout)
        if found is not None:
            state = load(found[0]).state
            task = state.studies[found[1]].tasks.number(number)
            if state.tasks[task].name == run.state.tasks[number].name:
                return state, task
    return run.state, number


EXPLAIN = Command(
    "explain",
    "",
    _explain_arguments,
    _explain,
    """\
From the same data as the decisions of the run. Of a run that is over, or whose conductor has died, it tells how things
stood at the end.""",
    """\
  cantle explain out run-sim_SIZE.10
  cantle explain out report              the only task of that name, step, or beginning""",
)


def _logs_arguments(parser: ArgumentParser) -> None:
    directory_argument(parser)
    task_argument(parser, "a task's name; a beginning or a pattern of it will do, if it fits no other")
    parser.add_argument("--err", action="store_true", help="standard error instead of standard output")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the attempt is over")
    parser.add_argument("--attempt", type=at_least(1), metavar="N", help="an earlier attempt (default: the last)")
    parser.add_argument("--stream", type=at_least(0), metavar="S", help="one of the task's streams (default: all)")


def _logs(asked: Namespace) -> int:
    from cantle.report.loading import load_one
    from cantle.report.logs import print_log
    from cantle.report.naming import find_task

    run = load_one(asked.directory)
    number = find_task(run.state, asked.task)
    print_log(run, number, asked.attempt, "err" if asked.err else "out", asked.follow, sys.stdout.buffer, asked.stream)
    return 0


LOGS = Command(
    "logs",
    "",
    _logs_arguments,
    _logs,
    "The bytes as they are: files of its own, or its part of a file that small tasks share.",
    """\
  cantle logs out run-sim_SIZE.10               what it printed
  cantle logs out run-sim_SIZE.10 --err         ... on standard error
  cantle logs out run-sim_SIZE.10 --follow      ... and what it prints from now on
  cantle logs out run-sim_SIZE.10 --attempt 1   what its first attempt printed
  cantle logs out run-sim_SIZE.10 --stream 3    what the fourth of its streams printed""",
)
