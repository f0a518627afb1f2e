"""Where does a conductor stand: in which directory and batch job? Written down for whoever goes on with the run."""

from __future__ import annotations

import os

JOBS = {
    "SLURM_JOB_ID": "Slurm",
    "SLURM_JOB_ID_HET_GROUP_0": "Slurm",
    "PBS_JOBID": "PBS",
    "LSB_JOBID": "LSF",
    "PE_HOSTFILE": "SGE",
    "FLUX_URI": "Flux",
}
"""One of these variables is set wherever we may be inside a batch job, and which system's job that is."""


def standing_in() -> str:
    """The directory in which this process stands; "" when that is gone."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def in_a_batch_job() -> bool:
    """Whether all of a batch job is around us: a run within a task of ours has what the task has."""
    return "CANTLE_RUN" not in os.environ and any(name in os.environ for name in JOBS)


def job_around() -> str:
    """The job around us, as in `Slurm 91`; "" outside of one. Where a system gives its jobs no number, its name alone."""
    if not in_a_batch_job():
        return ""
    name = next(name for name in JOBS if name in os.environ)
    number = os.environ[name]
    if name in ("PE_HOSTFILE", "FLUX_URI"):
        number = os.environ.get("JOB_ID" if name == "PE_HOSTFILE" else "FLUX_JOB_ID", "")
    return f"{JOBS[name]} {number}".strip()
