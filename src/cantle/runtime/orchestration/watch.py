"""How do a run's batch jobs stand, without asking the batch system too often?

The run's own files tell most: that a job has begun, how it ended, that a conductor lives. The batch system is asked why a job
waits, and whether one that says nothing is still there.
"""

from __future__ import annotations

from time import monotonic

from cantle.allocations.submission.base import BatchSystem
from cantle.allocations.submission.wanted import Stage, Standing
from cantle.plugins import find

from .records import Jobs, Submitted

FIRST_S, LAST_S = 1.0, 20.0
"""The batch system is asked after so many seconds, then less and less often: its servers are shared by many."""
_GROWTH = 1.3


class JobWatch:
    """Looks at the last of a run's jobs."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self._system: BatchSystem | None = None
        self._standing = Standing(Stage.UNKNOWN)
        self._ident = ""
        self._asked_at = float("-inf")
        self._pause = FIRST_S

    @property
    def system(self) -> BatchSystem:
        """The batch system that has the jobs."""
        if self._system is None:
            self._system = find("batch_systems", self.jobs.asked().system)()
        return self._system

    def standing(self, at_once: bool = False) -> Standing:
        """How the last job stands, by the batch system's word or by its own that its work is over.

        What the batch system said some seconds ago counts, unless `at_once`.
        """
        job = self.jobs.last()
        if job is None:
            return Standing(Stage.OVER)
        if not job.ident:
            return Standing(Stage.OVER if self.jobs.stale(job.number) else Stage.PENDING, reason="being submitted")
        if self.jobs.ended(job.number) is not None:
            return Standing(Stage.OVER, canceled=self.jobs.canceled)
        now = monotonic()
        if job.ident != self._ident:
            self._ident, self._pause, at_once = job.ident, FIRST_S, True
        if self.jobs.canceled:
            self._pause = FIRST_S
        if at_once or now - self._asked_at >= self._pause:
            self._asked_at = now
            self._pause = min(LAST_S, self._pause * _GROWTH)
            self._standing = self.system.look(job.ident)
        return self._standing

    def what(self) -> str:
        """`batch job 17 (slurm)`."""
        return in_words(self.jobs.last(), self.jobs.asked().system)


def in_words(job: Submitted | None, system: str) -> str:
    """What people call a job."""
    return f"batch job {job.ident} ({system})" if job is not None and job.ident else f"a batch job ({system})"
