"""What does Slurm say of the job that we are in, and how does srun bring up runners there?

One srun serves all nodes that were granted the same. Its step overlaps with all others and takes no memory, so that steps
that tasks start are not kept waiting; and it outlives the loss of a node and the end of a runner, as long as the job does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from .hostlists import counts, expand
from .job import OVER, Ask, Host, Invite, Job, Start, alike, clock_seconds

_MOST_COMPONENTS = 1024
"""Slurm lets a job have 128."""
_BATCH_STEPS = range(0xFFFFFFF0, 0x100000000)
"""Numbers of steps that are no srun of a user's: the batch script, an interactive shell, what stands outside."""


class Slurm:
    """Slurm, 20.11 and later."""

    name = "Slurm"
    noise: Sequence[str] = ("lacks support for cpu binding",)
    sayings: Sequence[tuple[str, str]] = (
        (
            "step creation temporarily disabled",
            "another step holds what the runners need; give that one less, or --overlap",
        ),
        ("Unable to confirm allocation", f"{OVER}, or its controller does not answer"),
        ("Invalid job id", OVER),
        ("Requested nodes are busy", "another step holds these nodes"),
        ("are mutually exclusive", "variables of the outer job contradict srun's arguments"),
        ("More processors requested than permitted", "the job was granted fewer CPUs than srun asks for"),
        ("Requested node configuration is not available", "the job has not what srun asks for, or no longer"),
        ("Node failure", "Slurm took a node away"),
        ("Communication connection failure", "a node's slurmd does not answer"),
    )

    def job(self, environ: Mapping[str, str], ask: Ask) -> Job | None:  # noqa: ARG002 (all is in the environment)
        """The job, or the part of it that the step has in which we are."""
        number = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOB_ID_HET_GROUP_0")
        if not number:
            return None
        if in_a_step(environ) and environ.get("SLURM_STEP_NODELIST"):
            granted = expand(environ["SLURM_STEP_NODELIST"])
            of_job = {host.name: host for host in _components(environ)}
            of_job.update(_under_us(environ, of_job))
            return Job(self.name, number, tuple(of_job.get(name, Host(name)) for name in granted))
        return Job(self.name, number, tuple(_components(environ)))

    def seconds_left(self, job: Job, environ: Mapping[str, str], ask: Ask, now: float) -> float | None:
        """By the variable that newer versions set, otherwise by squeue."""
        end = environ.get("SLURM_JOB_END_TIME", "")
        if end.isdigit() and int(end):
            return int(end) - now
        left = ask(("squeue", "--noheader", f"--jobs={job.number}", "--format=%L")).strip()
        return clock_seconds(left.split("\n")[0])

    def starts(self, hosts: Sequence[Host], job: Job, invite: Invite, environ: Mapping[str, str]) -> list[Start]:
        """One srun for all hosts alike."""
        het = _number(environ.get("SLURM_HET_SIZE", "1")) > 1
        return [Start(group, tuple(_srun(group, job, het, invite))) for group in alike(hosts)]


def in_a_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started us, rather than the job's script or a shell in the job."""
    step = environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))
    return step.isdigit() and int(step) not in _BATCH_STEPS


def _under_us(environ: Mapping[str, str], of_job: Mapping[str, Host]) -> dict[str, Host]:
    """The node that a process of a step is on, with what the step has there: often less than the job."""
    host = of_job.get(environ.get("SLURMD_NODENAME", ""))
    cores = _number(environ.get("SLURM_CPUS_ON_NODE", ""))
    return {host.name: replace(host, cores=cores)} if host is not None and 0 < cores < host.cores else {}


def _srun(group: tuple[Host, ...], job: Job, het: bool, invite: Invite) -> list[str]:
    n = len(group)
    options = [*(("--memory", f"{group[0].memory_mib}MiB") if group[0].memory_mib else ())]
    options += ("--granted", str(group[0].cores)) if group[0].cores else ()
    which = ("--jobid", job.number, f"--het-group={group[0].group}") if het else ("--jobid", job.number)
    return [
        "srun",
        *which,
        f"--nodes={n}",
        f"--ntasks={n}",
        "--ntasks-per-node=1",
        "--nodelist=" + ",".join(host.name for host in group),
        "--overlap",
        "--mem=0",
        "--cpu-bind=none",
        "--mpi=none",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--input=none",
        "--export=ALL",
        *invite(options),
    ]


def _components(environ: Mapping[str, str]) -> list[Host]:
    """All hosts; of a heterogeneous job those of each component in turn."""
    size = _number(environ.get("SLURM_HET_SIZE", "1"))
    if size < 2:
        return _hosts(environ, "", 0)
    return [
        host for group in range(min(size, _MOST_COMPONENTS)) for host in _hosts(environ, f"_HET_GROUP_{group}", group)
    ]


def _hosts(environ: Mapping[str, str], end: str, group: int) -> list[Host]:
    names = expand(environ.get(f"SLURM_JOB_NODELIST{end}") or environ.get(f"SLURM_NODELIST{end}", ""))
    cores = counts(environ.get(f"SLURM_JOB_CPUS_PER_NODE{end}", ""))
    if len(cores) != len(names):
        cores = [0] * len(names)
    per_node = _number(environ.get(f"SLURM_MEM_PER_NODE{end}", ""))
    per_core = _number(environ.get(f"SLURM_MEM_PER_CPU{end}", ""))
    return [Host(name, n, per_node or per_core * n, group) for name, n in zip(names, cores, strict=True)]


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
