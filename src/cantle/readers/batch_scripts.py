"""What does Maestro call a step's script, and which lines stand at its top?

On this machine the lines for a batch system are comments and harmless; they stay so that the script is what Maestro would
have written, and can be handed to the batch system by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .launcher import flux_words
from .quantities import walltime_s
from .settings import Settings

_SUFFIXES = {"slurm": ".slurm.sh", "lsf": ".lsf.sh", "flux": ".flux.sh"}


def suffix(batch_type: str) -> str:
    """How script names of this batch system end."""
    return _SUFFIXES.get(batch_type, ".sh")


def head(batch: Mapping[str, Any], settings: Settings, job: str, description: str) -> str:
    """The lines before the blank line: the interpreter, and what the batch system reads."""
    lines = [f"#!{batch.get('shell', '/bin/bash')}"]
    kind = batch["type"]
    if kind == "slurm" and settings.scheduled:
        lines += _slurm(batch, settings, job, description)
    elif kind == "lsf" and settings.scheduled:
        lines += _lsf(batch, settings, job)
    elif kind == "flux":
        lines += _flux(batch, settings, job)
    return "\n".join(lines)


def _slurm(batch: Mapping[str, Any], settings: Settings, job: str, description: str) -> list[str]:
    nodes = settings.nodes or batch.get("nodes")
    procs = settings.procs or batch.get("procs")
    reservation = settings.reservation or batch.get("reservation")
    options = [
        ("nodes=", nodes),
        ("partition=", batch.get("queue")),
        ("account=", batch.get("bank")),
        ("time=", _verbatim(settings)),
        ("job-name=", f'"{job}"'),
        ("output=", f'"{job}.out"'),
        ("error=", f'"{job}.err"'),
        ("comment ", f'"{_one_line(description)}"'),
        ("reservation=", f'"{reservation}"' if reservation else ""),
        ("gres=gpu:", settings.gpus),
        ("ntasks=", procs if batch.get("procs") or not nodes else ""),
    ]
    lines = [f"#SBATCH --{option}{value}" for option, value in options if value]
    if settings.exclusive:
        lines.append("#SBATCH --exclusive")
    qos = settings.qos or batch.get("qos")
    return [*lines, f"#SBATCH --qos={qos}"] if qos else lines


def _lsf(batch: Mapping[str, Any], settings: Settings, job: str) -> list[str]:
    reservation = settings.reservation or batch.get("reservation")
    options = [
        ("nnodes", settings.nodes or batch.get("nodes") or 1),
        ("q", batch.get("queue")),
        ("G", batch.get("bank")),
        ("W", _hours_and_minutes(settings)),
        ("J", job),
        ("o", f"{job}.%J.out"),
        ("U", reservation),
        ("e", f"{job}.%J.err"),
    ]
    return [f"#BSUB -{option} {value}" for option, value in options if value]


def _flux(batch: Mapping[str, Any], settings: Settings, job: str) -> list[str]:
    seconds = walltime_s(settings.walltime) if settings.walltime else 0
    exact = float(seconds) if ":" in settings.walltime else int(seconds)
    options = [
        f"-N {settings.nodes}" if settings.nodes else "",
        f"-n {settings.procs}" if settings.procs and not settings.exclusive else "",
        f"-t {exact}s",
        f"-q {batch['queue']}" if batch.get("queue") else "",
        f"--bank={batch['bank']}" if batch.get("bank") else "",
        f'--job-name="{job}"',
        f"--output={job}.{{{{id}}}}.out",
        f"--error={job}.{{{{id}}}}.err",
        "--exclusive" if settings.exclusive else "",
        *flux_words(batch.get("allocation_args")),
    ]
    return [f"#flux: {option}" for option in options if option]


def _verbatim(settings: Settings) -> str:
    return settings.walltime if settings.walltime_s else ""


def _hours_and_minutes(settings: Settings) -> str:
    """LSF's HH:MM, seconds rounded up to a minute."""
    if settings.walltime.count(":") < 2:
        return settings.walltime
    minutes = -(-int(settings.walltime_s) // 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _one_line(text: str) -> str:
    return text.replace("\n", " ")
