"""When does a job follow another one, and when does the chain end?

The successor is handed in as the first thing that a job does, to start when the job is over, however it ends: so it is there
also when the job is killed at its walltime or loses its first node. When the work is done the job takes its successor back. A
successor that starts all the same looks first whether anything is left for it.
"""

from __future__ import annotations

from cantle.allocations.submission.base import BatchSystem
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.errors import CantleError

from .handing_in import hand_in
from .records import Jobs

TIME_IS_UP = 4
"""Exit status of a run that ended because its nodes were about to be taken away."""
MOST_IN_VAIN = 2
"""So many jobs in a row may end without a single task done; then further ones would not help."""


def why_not(jobs: Jobs, system: BatchSystem, number: int, state: State) -> str:
    """Why the job of this number has nothing to do, as a sentence; "" when it has."""
    if jobs.canceled:
        return "the run was canceled"
    if finished(state):
        return "all of the study is over"
    first = jobs.job(number).chain
    if number > first:
        before, ended = jobs.job(number - 1), jobs.ended(number - 1)
        if ended is not None and ended.idle:
            return ended.idle
        in_order = ended is not None and (ended.complete or ended.status == TIME_IS_UP)
        if not in_order and before.ident and system.look(before.ident).canceled:
            return f"somebody canceled job {before.ident}, and with it those that were to follow"
        starts = [began.done for n in range(first, number) if (began := jobs.began(n)) is not None]
        if len(starts) >= MOST_IN_VAIN and starts[-MOST_IN_VAIN] == state.totals[Phase.DONE]:
            return f"in the last {MOST_IN_VAIN} jobs not a single task was done: give the jobs more time, or look why"
    return ""


def finished(state: State) -> bool:
    """Whether nothing is left that a further job could do: all is over, and nobody stopped it before."""
    return bool(state.studies) and state.finished and not state.stopping


def hand_in_successor(jobs: Jobs, system: BatchSystem, number: int) -> str:
    """Submit the job that follows this one, if there may be a further one. A sentence about it, "" when there is none."""
    job, asked = jobs.job(number), jobs.asked()
    if number - job.chain + 1 >= asked.most_jobs or jobs.canceled:
        return ""
    try:
        hand_in(jobs, system, number + 1, after=job.ident, chain=job.chain)
    except CantleError as refused:
        return (
            f"the job that would follow cannot be submitted from here: {refused}. "
            "Whoever follows the run submits it when this one is over: cantle orchestrate --attach"
        )
    return f"job {jobs.job(number + 1).ident} follows when this one ends before the work"


def take_back_successors(jobs: Jobs, system: BatchSystem, number: int) -> list[str]:
    """Cancel the jobs after this one that have not begun. What the batch system said where that failed."""
    failed = []
    for later in jobs.numbers():
        job = jobs.job(later)
        if later > number and job.ident and jobs.ended(later) is None:
            try:
                system.cancel(job.ident)
            except CantleError as problem:
                failed.append(str(problem))
    return failed


def cancel_all(jobs: Jobs, system: BatchSystem) -> list[str]:
    """Cancel all jobs that are not over, and let none begin any more. The names of those canceled. Raises MachineError."""
    jobs.canceled = True
    canceled = []
    for number in reversed(jobs.numbers()):  # the last first, so that none starts because the one before it went
        job = jobs.job(number)
        if job.ident and jobs.ended(number) is None:
            system.cancel(job.ident)
            canceled.append(job.ident)
    return canceled
