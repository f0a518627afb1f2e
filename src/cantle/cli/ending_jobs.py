"""How is a run canceled that waits in a batch system's queue, or runs in a job of it?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cantle.runtime.orchestration.watch import JobWatch
    from cantle.store.layout import Layout


def cancel_in_queue(directory: Path, yes: bool) -> bool:
    """Cancel the batch jobs of a run on which no conductor is at work; False when one is, or no job is left: then it is asked.

    Raises RequestError when that is not meant after all, MachineError when the batch system cannot be asked.
    """
    from cantle.errors import RequestError
    from cantle.runtime.orchestration.records import Jobs
    from cantle.runtime.orchestration.watch import JobWatch
    from cantle.store.layout import Layout
    from cantle.store.lock import holder

    layout = Layout(directory)
    watch = JobWatch(Jobs(layout).require())
    if holder(layout.lock) is not None:
        return False
    if not alive(watch):
        if layout.exists():
            return False
        raise RequestError(f"there is nothing to cancel: {watch.what()} is over")
    what = f"{watch.what()}, {watch.standing()}"
    if not yes:
        if not sys.stdin.isatty():
            raise RequestError("nobody can be asked here whether you mean it; say so with -y")
        if input(f"Cancel {what}? [y/N] ").strip().lower() not in ("y", "yes"):
            raise RequestError("nothing was canceled")
    cancel_jobs(watch)
    print(f"canceled: {what}")
    return True


def require_no_job(layout: Layout) -> None:
    """Raise RequestError when a batch job has this directory, or will have it when it begins."""
    from cantle.errors import RequestError
    from cantle.runtime.orchestration.records import Jobs
    from cantle.runtime.orchestration.watch import JobWatch

    watch = JobWatch(Jobs(layout))
    if watch.jobs.exist() and alive(watch):
        raise RequestError(
            f"{layout.directory} belongs to {watch.what()}, {watch.standing()}; end it with `cantle cancel "
            f"{layout.directory}`, or choose another directory with -o"
        )


def alive(watch: JobWatch) -> bool:
    """Whether the last job of the run is not over."""
    from cantle.allocations.submission.wanted import Stage

    return watch.standing(at_once=True).stage is not Stage.OVER


def cancel_run(watch: JobWatch) -> None:
    """Cancel it wherever it stands: its conductor ends the tasks, and then the job; without a conductor the jobs are ended."""
    from time import time

    from cantle.cli.asking import me
    from cantle.cli.machine import say
    from cantle.model.records import CancelAsked
    from cantle.store.lock import holder
    from cantle.store.requests import ask

    layout = watch.jobs.layout
    if layout.exists() and holder(layout.lock) is not None:
        ask(layout.directory, CancelAsked(time(), None, me()))
        say("cantle: its running tasks are being ended")
        return
    cancel_jobs(watch)
    say("cantle: the batch job is being ended")


def cancel_jobs(watch: JobWatch) -> None:
    """End its jobs, and let none begin any more."""
    from cantle.runtime.orchestration.succession import cancel_all

    cancel_all(watch.jobs, watch.system)
