"""How is a run that another process conducts told of on this terminal, as if it ran here?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.machine import say

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from cantle.report.loading import Run

_QUICK_S, _SLOW_S = 0.02, 0.2
_LEAVING_S = 10.0
DIED = 1
DETACHED = 130


def follow(
    directory: Path,
    asked: Namespace,
    where: str,
    waiting: Callable[[Run, Callable[[str], None]], bool] | None = None,
    cancel: Callable[[], None] | None = None,
    first: str = "",
) -> int:
    """Tell of the run until it is over, and end as it did: 0, 2 or 3; 1 when its conductor died, 130 when one lets go of it.

    `where` says in words who conducts it. Ctrl-C asks whether to cancel the run, to let go of it, or to watch on; where
    nobody can be asked it lets go. `waiting` is asked whether nobody is at work on it just now, and may tell why; `cancel`
    cancels the run (default: it asks the conductor). `first` is said before all else: whoever has read it may press Ctrl-C.
    """
    while True:
        try:
            if first:
                say(first)
                first = ""
            return _watch(directory, asked, where, waiting)
        except KeyboardInterrupt:
            if _lets_go(directory, where, cancel):
                return DETACHED


def _watch(
    directory: Path, asked: Namespace, where: str, waiting: Callable[[Run, Callable[[str], None]], bool] | None
) -> int:
    from time import monotonic, sleep

    from cantle.report.loading import OVER, Condition, Run
    from cantle.report.progress import choose_progress
    from cantle.store.layout import Layout

    run = Run(Layout(directory).require())
    run.state.news = []
    progress = choose_progress(run.state, json=asked.as_json, quiet=asked.quiet)
    pause = _QUICK_S
    begun = False
    try:
        while True:
            news = run.refresh()
            if run.state.news is None:
                run.state.news = []  # its journal was made anew, and what was told stays told
            if waiting is not None and waiting(run, progress.note):
                sleep(_SLOW_S)
                continue
            if not begun:
                begun = True
                _forget_what_was_before(run)
                if waiting is not None:
                    progress.began = monotonic() - run.seconds
            progress(run.state)
            if run.condition in OVER:
                break
            if run.condition == Condition.DEAD:
                progress.abandon()
                if run.layout.is_gone():
                    from cantle.runtime.conducting import taken_away

                    say(f"cantle: {taken_away(run.layout)}")
                    return DIED
                say(f"cantle: {where} died, and with it all that ran; begin it again, and the study goes on")
                return DIED
            pause = _QUICK_S if news else min(1.3 * pause, _SLOW_S)
            sleep(pause)
        _wait_for_its_files(run, sleep)
    except BaseException:
        progress.abandon()
        raise
    progress.finish(run.state, run.exit_code, directory)
    return run.exit_code


def _forget_what_was_before(run: Run) -> None:
    """What ended before the run was resumed was told then, or is told in one number."""
    if run.state.resumed:
        run.state.news = [task for task in run.state.news or () if run.state.ended_at[task] >= run.since]


def _wait_for_its_files(run: Run, sleep: Callable[[float], None]) -> None:
    """Its conductor is closing them; then somebody else may go on in the directory."""
    waited = 0.0
    while waited < _LEAVING_S:
        run.refresh()
        if run.conductor is None:
            return
        sleep(_QUICK_S)
        waited += _QUICK_S


def _lets_go(run: Path, where: str, cancel: Callable[[], None] | None) -> bool:
    """What Ctrl-C means here. Whether the run is not watched any more."""
    from cantle.report.failures import typed

    directory = typed(run)
    told = f"the study goes on in {where}. Look: cantle status {directory}; end it: cantle cancel {directory}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        say(f"cantle: {told}")
        return True
    try:
        say(f"\nThe study runs in {where}, not here.")
        answer = input("[c]ancel it, [d]etach and let it go on, or watch [o]n? [d] ").strip().lower()
    except (EOFError, KeyboardInterrupt):
        answer = "d"
    if answer.startswith("c"):
        (cancel or (lambda: _cancel(run)))()
        return False
    if answer.startswith(("o", "w")):
        return False
    say(f"cantle: {told}")
    return True


def _cancel(run: Path) -> None:
    from time import time

    from cantle.cli.asking import me
    from cantle.model.records import CancelAsked
    from cantle.store.requests import ask

    ask(run, CancelAsked(time(), None, me()))
    say("cantle: its running tasks are being ended")
