"""How do a run's batch jobs stand, without asking the batch system too often?

The run's own files tell most: that a job has begun, how it ended, that a conductor lives. The batch system is asked why a job
waits, and whether one that says nothing is still there.
"""

from __future__ import annotations

from time import monotonic

from cantle.allocations.submission.base import BatchSystem
from cantle.allocations.submission.wanted import Stage, Standing
from cantle.plugins import made

from .records import Jobs, Submitted

FIRST_S, LAST_S = 1.0, 20.0
"""The batch system is asked after so many seconds, then less and less often: its servers are shared by many."""
_GROWTH = 1.3


class JobWatch:
    """Looks at the one of a run's jobs that counts: the first that is not over, otherwise the last."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self._system: BatchSystem | None = None
        self._standings: dict[str, Standing] = {}
        self._asked_at = float("-inf")
        self._pause = FIRST_S

    @property
    def system(self) -> BatchSystem:
        """The batch system that has the jobs."""
        if self._system is None:
            self._system = made("batch_systems", self.jobs.asked().system)
        return self._system

    def standing(self, at_once: bool = False) -> Standing:
        """How that job stands, by the batch system's word or by its own that its work is over.

        What the batch system said some seconds ago counts, unless `at_once`.
        """
        return self._now(at_once)[1]

    def shall_go_on(self, resumed: int) -> bool:
        """Whether the last job is to go on with a run that was over, and has not yet. `resumed`: how often that was resumed."""
        last = self.jobs.last()
        return last is not None and last.retry and last.resumed == resumed

    @property
    def ident(self) -> str:
        """What the batch system calls that job, "" when it has none of the run's."""
        job = self._now()[0]
        return job.ident if job is not None else ""

    @property
    def has_begun(self) -> bool:
        """Whether that job runs or ran, by its own word."""
        job = self._now()[0]
        return job is not None and self.jobs.began(job.number) is not None

    def gone_from(self, since: float) -> str:
        """On which host that job's conductor stood, where none is at work; "" when it has yet to begin.

        `since`: when the run was last begun or resumed, in seconds since the epoch. A job outlives its conductor for as long as
        the batch system has not noticed that the machine is dead.
        """
        job = self._now()[0]
        began = self.jobs.began(job.number) if job is not None else None
        return began.host if began is not None and since >= began.time else ""

    @property
    def is_followed(self) -> bool:
        """Whether a further job waits for the end of that one."""
        job, last = self._now()[0], self.jobs.last()
        return job is not None and last is not None and last.number > job.number

    def what(self) -> str:
        """`batch job 17 (slurm)`."""
        return in_words(self._now()[0], self.jobs.asked().system)

    def _now(self, at_once: bool = False) -> tuple[Submitted | None, Standing]:
        job, standing = None, Standing(Stage.OVER)
        if self.jobs.canceled:
            self._pause = FIRST_S
        for number in self.jobs.numbers():
            job = self.jobs.job(number)
            standing = self._standing(job, at_once)
            if standing.stage is not Stage.OVER:
                break
        return job, standing

    def _standing(self, job: Submitted, at_once: bool) -> Standing:
        if not job.ident:
            return Standing(Stage.OVER if self.jobs.stale(job.number) else Stage.PENDING, reason="being submitted")
        if self.jobs.ended(job.number) is not None:
            return Standing(Stage.OVER, canceled=self.jobs.canceled)
        known = self._standings.get(job.ident)
        if known is not None and known.stage is Stage.OVER:
            return known
        now = monotonic()
        if known is None:
            self._pause = FIRST_S
        if known is None or at_once or now - self._asked_at >= self._pause:
            self._asked_at = now
            self._pause = min(LAST_S, self._pause * _GROWTH)
            known = self._standings[job.ident] = self.system.look(job.ident)
        return known


def in_words(job: Submitted | None, system: str) -> str:
    """What people call a job."""
    return f"batch job {job.ident} ({system})" if job is not None and job.ident else f"a batch job ({system})"
