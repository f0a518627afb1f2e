"""In which batch job are we, if in any? Each system is asked in turn; the innermost comes first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from .flux import Flux
from .job import Ask, Job, System
from .lsf import Lsf
from .pbs import Pbs
from .sge import Sge
from .slurm import Slurm
from .stale import cleaned

SYSTEMS: tuple[System, ...] = (Flux(), Slurm(), Pbs(), Sge(), Lsf())
"""Flux is often started inside a job of another system, never the other way round."""
_ANSWER_S = 5.0
"""So long a client of a batch system may take: a controller that is overrun must not keep a run from beginning."""


def job_of(environ: Mapping[str, str], ask: Ask | None = None) -> tuple[System, Job] | None:
    """The job of which this environment is a part, and its system. Raises ValueError when it cannot be understood."""
    asking = ask or asker(environ)
    for system in SYSTEMS:
        try:
            job = system.job(environ, asking)
        except ValueError as error:
            raise ValueError(f"this is a job of {system.name}, but {error}") from None
        if job is not None and job.hosts:
            return system, job
    return None


def asker(environ: Mapping[str, str]) -> Ask:
    """Runs clients in this environment, each for a bounded time."""
    env = {**cleaned(environ), "LC_ALL": "C"}

    def ask(words: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                words, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode(errors="replace") if done.returncode == 0 else ""

    return ask


def short(name: str) -> str:
    """A host's name without its domain."""
    return name.partition(".")[0]


def names_here(environ: Mapping[str, str]) -> set[str]:
    """By which names the machine under us may stand in a list of hosts."""
    own = {os.uname().nodename, environ.get("SLURMD_NODENAME", "")} - {""}
    return own | set(map(short, own))
