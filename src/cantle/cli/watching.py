"""`cantle status`, `wait`, `explain`, `logs`: how a run is watched, from any shell that sees its directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cantle.cli.naming import DIRECTORY, complete_task

if TYPE_CHECKING:
    from cantle.report.loading import Run

NOT_TOLD = 1
TIMED_OUT = 124
_QUICK_S, _SLOW_S = 0.05, 0.5
_LEAVING_S = 10.0


@click.command(
    epilog="""\b
Examples:
  cantle status out
  cantle status out --live             until it is over, or Ctrl-C
  cantle status out --all              all tasks, however many they are
  cantle status out --failed           all failures, with what to type to try them by hand
  cantle status runs/* --json | jq .counts

\b
Exit status: 0 when it could be told, 1 otherwise. `cantle wait` tells how a run
ended.""",
)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=DIRECTORY)
@click.option(
    "--layout",
    type=click.Choice(["flat", "legacy", "narrow"]),
    default="flat",
    help="Layout of the table of tasks: one line each, the same without colours, or a block each (default flat).",
)
@click.option("--live", is_flag=True, help="Keep watching until the run is over.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each DIR, on one line.")
@click.option("--all", "all_tasks", is_flag=True, help="List all tasks; otherwise they are listed up to 100.")
@click.option("--failed", is_flag=True, help="List all failures; otherwise 20 of them.")
@click.option("--disable-theme", is_flag=True, help="No colours.")
@click.option("--disable-pager", is_flag=True, help="No pager, however long it gets.")
def status(
    directories: tuple[Path, ...],
    layout: str,
    live: bool,
    as_json: bool,
    all_tasks: bool,
    failed: bool,
    disable_theme: bool,
    disable_pager: bool,
) -> int:
    """Show how far the runs in the directories are, whether anybody is at work on them, and what failed."""
    from cantle.errors import CantleError
    from cantle.report.loading import load
    from cantle.report.table import page, status_object
    from cantle.report.wording import wants_colour

    out = sys.stdout
    colour = wants_colour(out) and not disable_theme
    code = 0
    lines: list[str] = []
    for directory in directories:
        try:
            run = load(directory)
        except CantleError as problem:
            print(f"cantle: {problem}", file=sys.stderr)
            code = NOT_TOLD
            continue
        if as_json:
            import msgspec

            click.echo(msgspec.json.encode(status_object(run, all_tasks)))
            continue
        if live:
            _watch(run, colour)
        if lines:
            lines.append("")
        lines += page(
            run,
            layout=layout,  # type: ignore[arg-type]
            all_tasks=all_tasks,
            all_failures=failed,
            colour=colour,
        )
    if lines:
        _show(lines, pager=out.isatty() and not disable_pager, colour=colour)
    return code


def _show(lines: list[str], pager: bool, colour: bool) -> None:
    text = "\n".join(lines) + "\n"
    if pager:
        from shutil import get_terminal_size

        columns, rows = get_terminal_size()
        if len(lines) >= rows or max(map(len, lines)) > 2 * columns:
            click.echo_via_pager(text, color=colour)
            return
    click.echo(text, nl=False, color=colour)


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
                click.echo(f"{duration(run.seconds)}: {how_far(run.state, pace)}")
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


@click.command(
    epilog="""\b
Examples:
  cantle wait out && cantle run next.yaml
  cantle wait out --timeout 3600

\b
Exit status: that of the run: 0 all tasks done, 2 some failed, 3 canceled or
stopped; 1 when its conductor died before the end; 124 when the time was up.""",
)
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="Wait so many seconds at most.")
def wait(directory: Path, timeout: float | None) -> int:
    """Wait until the run in DIR is over; end as it ended. Also from another machine on the same file system."""
    from time import monotonic, sleep

    from cantle.report.loading import OVER, Condition, load
    from cantle.report.table import headline

    run = load(directory)
    began = monotonic()
    over_since: float | None = None
    pause = _QUICK_S
    while True:
        condition = run.condition
        now = monotonic()
        if condition == Condition.DEAD:
            print(f"cantle: {headline(run)}", file=sys.stderr)
            return NOT_TOLD
        if condition in OVER:
            # Its conductor closes its files, or is just about to go on with it.
            over_since = over_since or now
            if run.conductor is None or now - over_since > _LEAVING_S:
                click.echo(headline(run))
                return run.exit_code
        else:
            over_since = None
        if timeout is not None and now - began >= timeout:
            print(f"cantle: {headline(run)}; waited for {timeout:g} s", file=sys.stderr)
            return TIMED_OUT
        left = pause if timeout is None else min(pause, timeout - (now - began))
        sleep(max(left, 0.001))
        pause = _QUICK_S if over_since else min(1.2 * pause, _SLOW_S)
        run.refresh()


@click.command(
    epilog="""\b
Examples:
  cantle explain out run-sim_SIZE.10
  cantle explain out report            the only task of that name, step, or beginning

\b
For a run that is over, or whose conductor has died, it tells how things stood
at the end.""",
)
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@click.argument("task", metavar="TASK", shell_complete=complete_task)
def explain(directory: Path, task: str) -> int:
    """Say why a task does not run, where it runs, or what became of it."""
    from cantle.core.explain import explain as sentences
    from cantle.report.failures import FAILURES, failure_of, typed
    from cantle.report.loading import Condition, load
    from cantle.report.naming import find_task
    from cantle.report.wording import printable, time_of_day

    run = load(directory)
    number = find_task(run.state, task)
    if run.condition == Condition.DEAD:
        click.echo(
            f"The conductor of this run is dead: nothing of it runs. So it stood at {time_of_day(run.state.now)}; "
            f"go on with `cantle resume {typed(run.directory)}`."
        )
    for sentence in sentences(run.state, number):
        click.echo(printable(sentence))
    if run.state.phases[number] in FAILURES:
        failure = failure_of(run.state, number, run.directory)
        click.echo(f"{'Run it again' if failure.again.startswith('cd ') else 'See'}: {failure.again}")
    return 0


@click.command(
    epilog="""\b
Examples:
  cantle logs out run-sim_SIZE.10             what it printed
  cantle logs out run-sim_SIZE.10 --err       ... on standard error
  cantle logs out run-sim_SIZE.10 --follow    ... and what it prints from now on
  cantle logs out run-sim_SIZE.10 --attempt 1 what its first attempt printed""",
)
@click.argument("directory", metavar="DIR", type=DIRECTORY)
@click.argument("task", metavar="TASK", shell_complete=complete_task)
@click.option("--err", is_flag=True, help="Standard error instead of standard output.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the attempt is over.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="An earlier attempt (default: the last).")
def logs(directory: Path, task: str, err: bool, follow: bool, attempt: int | None) -> int:
    """Print what a task printed."""
    from cantle.report.loading import load
    from cantle.report.logs import print_log
    from cantle.report.naming import find_task

    run = load(directory)
    number = find_task(run.state, task)
    print_log(run, number, attempt, "err" if err else "out", follow, sys.stdout.buffer)
    return 0
