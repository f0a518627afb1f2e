"""What does a job do with its time? From its first moment to its last, for a study."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import time

from cantle.allocations.submission.base import BatchSystem
from cantle.allocations.submission.wanted import Stage
from cantle.core.phases import Phase
from cantle.errors import CantleError
from cantle.runtime.resuming import replay
from cantle.store.lock import holder

from . import succession
from .records import Began, Ended, Jobs

NOTHING_DONE = 3


def live(
    jobs: Jobs, system: BatchSystem, number: int, conduct: Callable[[list[str]], int], note: Callable[[str], None]
) -> int:
    """Hand in the successor, conduct, take the successor back when all is done. The exit status.

    `conduct` goes on with the run, with these further words of `cantle resume`.
    """
    state = replay(jobs.layout)
    done = state.totals[Phase.DONE]
    before = jobs.began(number)  # in a job that the batch system runs again
    again = jobs.job(number).retry and before is None
    reason = "" if again else succession.why_not(jobs, system, number, state)
    jobs.begins(number, Began(time(), os.uname().nodename, os.getpid(), done))
    if reason:
        note(f"this job has nothing to do: {reason}")
        jobs.ends(number, Ended(time(), NOTHING_DONE, complete=True, idle=reason))
        _take_back(jobs, system, number, note)
        return 0 if state.succeeded else NOTHING_DONE
    if said := succession.hand_in_successor(jobs, system, number):
        note(said)
    words = [*jobs.asked().conductor]
    if not again:
        words.append("--keep-failed")
    if _its_conductor_is_gone(jobs, system, number, before):
        words.append("--take-over")
    try:
        status = conduct(words)
    except CantleError as problem:
        note(str(problem))
        status = problem.exit_code
    complete = succession.finished(replay(jobs.layout))
    if complete or jobs.canceled:
        _take_back(jobs, system, number, note)
    jobs.ends(number, Ended(time(), status, complete))
    return status


def _take_back(jobs: Jobs, system: BatchSystem, number: int, note: Callable[[str], None]) -> None:
    for problem in succession.take_back_successors(jobs, system, number):
        note(problem)


def _its_conductor_is_gone(jobs: Jobs, system: BatchSystem, number: int, before: Began | None) -> bool:
    """Whether the lock that looks held was that of a job which the batch system knows to be over.

    Where machines do not see each other's locks, a conductor that was killed looks alive for a minute.
    """
    there = holder(jobs.layout.lock)
    if there is None:
        return False
    who = (there.host, there.pid)
    if before is not None and (before.host, before.pid) == who:
        return True
    for earlier in range(1, number):
        began, job = jobs.began(earlier), jobs.job(earlier)
        if began is not None and (began.host, began.pid) == who:
            return bool(job.ident) and system.look(job.ident).stage is Stage.OVER
    return False
