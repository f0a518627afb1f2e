"""What does LSF say of the job that we are in, and how are runners brought up there?

By `blaunch`, LSF's own remote start; where nodes can only be had through IBM's job step manager, by `jsrun`, one resource set
with everything on each host.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence

from .job import Ask, Host, Invite, Job, Start, alike, numbers_of


class Lsf:
    """LSF, with or without the job step manager."""

    name = "LSF"
    noise: Sequence[str] = ()
    sayings: Sequence[tuple[str, str]] = (
        ("Failed in an LSF library call", "the daemons of LSF do not answer"),
        ("is not found in LSB", "LSF does not count this host among the job's"),
        ("could not be satisfied", "the job has not what jsrun asks for"),
        ("Insufficient resources", "another step holds these hosts"),
    )

    def job(self, environ: Mapping[str, str], ask: Ask) -> Job | None:  # noqa: ARG002 (all is in the environment)
        """The job, from the list of hosts with slots, or from the file with a line a slot."""
        number = environ.get("LSB_JOBID")
        if not number:
            return None
        words = environ.get("LSB_MCPU_HOSTS", "").split()
        cores = {name: int(slots) for name, slots in zip(words[::2], words[1::2], strict=False) if slots.isdigit()}
        path = environ.get("LSB_DJOB_HOSTFILE")
        if not cores and path:
            try:
                with open(path, encoding="utf-8") as file:
                    cores = numbers_of(file.read())
            except OSError as error:
                raise ValueError(f"LSB_DJOB_HOSTFILE ({path}) cannot be read: {error.strerror}") from None
        if not cores:
            cores = numbers_of("\n".join(environ.get("LSB_HOSTS", "").split()))
        if _by_jsrun(environ) and len(cores) > 1:
            cores.pop(next(iter(cores)))  # the first is where the script runs, and no step ever does
        return Job(self.name, number, tuple(Host(name, n) for name, n in cores.items()))

    def seconds_left(self, job: Job, environ: Mapping[str, str], ask: Ask, now: float) -> float | None:  # noqa: ARG002
        """By bjobs, which says `1:30 L`: hours and minutes to the limit (`E`: to an estimate, which is no end)."""
        told = ask(("bjobs", "-noheader", "-o", "time_left", job.number)).strip()
        match = re.fullmatch(r"(\d+):(\d+) L", told)
        return int(match[1]) * 3600.0 + int(match[2]) * 60.0 if match else None

    def starts(self, hosts: Sequence[Host], job: Job, invite: Invite, environ: Mapping[str, str]) -> list[Start]:  # noqa: ARG002
        """One jsrun for all hosts, or one blaunch for all hosts alike."""
        if _by_jsrun(environ):
            n = str(len(hosts))
            words = ("jsrun", "--nrs", n, "--rs_per_host", "1", "--tasks_per_rs", "1", "--cpu_per_rs", "ALL_CPUS")
            rest = ("--gpu_per_rs", "ALL_GPUS", "--bind", "none", "--exit_on_error", "0", *invite(()))
            return [Start(tuple(hosts), (*words, *rest))]
        return [
            Start(
                group,
                (
                    "blaunch",
                    "-n",
                    "-z",
                    " ".join(host.name for host in group),
                    *invite(("--cores", str(group[0].cores)) if group[0].cores else ()),
                ),
            )
            for group in alike(hosts)
        ]


def _by_jsrun(environ: Mapping[str, str]) -> bool:
    return shutil.which("jsrun", path=environ.get("PATH")) is not None
