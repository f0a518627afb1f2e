"""How do the studies of a pilot stand?"""

from __future__ import annotations

from msgspec import structs

from cantle.core.phases import ACTIVE, FINAL, UNSTARTED, Phase
from cantle.core.state import State
from cantle.core.studies import StudyState
from cantle.runtime.pilot.messages import Job

_GOES_ON = ("running", "waiting", "entering", "stopping", "open")


def jobs_of(state: State) -> list[Job]:
    """All studies, in the order in which they came."""
    return [job_of(state, number) for number in range(len(state.studies))]


def left_jobs(state: State) -> list[Job]:
    """The same where the pilot's conductor was killed: what stands there as begun does not run any more."""
    return [
        structs.replace(job, state="interrupted", running=0) if job.state in _GOES_ON else job for job in jobs_of(state)
    ]


def job_name(name: str, number: int) -> str:
    """What a study is called within its pilot."""
    return f"{name.replace(' ', '_')}-{number + 1}"


def totals_of(state: State, study: StudyState) -> list[int]:
    """How many of the study's tasks stand in each phase. Costs by its steps."""
    totals = [0] * len(Phase)
    for step in study.step_numbers:
        for phase, n in enumerate(state.counts[step]):
            totals[phase] += n
    return totals


def is_over(state: State, study: StudyState) -> bool:
    """Whether all of its tasks are there, and over."""
    if study.over:
        return True
    totals = totals_of(state, study)
    return study.whole and sum(totals[phase] for phase in FINAL) == study.known


def job_of(state: State, number: int) -> Job:
    """How this study stands."""
    study = state.studies[number]
    totals = totals_of(state, study)
    return Job(
        job=job_name(study.added.name, number),
        state=_state(state, study, totals),
        directory=study.added.directory,
        done=totals[Phase.DONE],
        failed=totals[Phase.FAILED] + totals[Phase.TIMEDOUT],
        running=sum(totals[phase] for phase in ACTIVE),
        tasks=max(study.added.tasks, study.known),
        priority=study.added.priority,
        weight=study.added.weight,
        since=state.wall(study.added.time),
    )


def _state(state: State, study: StudyState, totals: list[int]) -> str:
    if study.known < study.added.tasks and not (study.over or study.grows):
        return "entering"
    if any(totals[phase] for phase in UNSTARTED | ACTIVE):
        if state.stopping:
            return "stopping" if any(totals[phase] for phase in ACTIVE) else "stopped"
        return "running" if study.in_progress else "waiting"
    if study.grows and not study.over:
        return "open"
    if totals[Phase.DONE] >= study.added.tasks and totals[Phase.DONE] == study.known:
        return "done"
    return "canceled" if totals[Phase.CANCELED] and not study.failing else "failed"
