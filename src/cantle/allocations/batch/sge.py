"""What do Grid Engine and its heirs say of the job that we are in, and how are runners brought up there?

By `qrsh -inherit`, which works in a parallel environment whose `control_slaves` is set: so the execution daemon of each host
owns its runner, accounts for it and ends it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from .job import Ask, Host, Invite, Job, Start


class Sge:
    """Grid Engine."""

    name = "SGE"
    noise: Sequence[str] = ()
    sayings: Sequence[tuple[str, str]] = (
        ("control_slaves", "the parallel environment must have `control_slaves TRUE` (qconf -mp)"),
        (
            "executing task of job",
            "the execution daemon of that host refused; is `control_slaves TRUE` set (qconf -sp)?",
        ),
        ("Invalid host", "Grid Engine does not know this host"),
        ("unable to contact", "a daemon of Grid Engine does not answer"),
    )

    def job(self, environ: Mapping[str, str], ask: Ask) -> Job | None:  # noqa: ARG002 (all is in a file)
        """The job, from the host file of its parallel environment; without one it has one host."""
        number = environ.get("JOB_ID")
        if not number or not ({"SGE_TASK_ID", "SGE_ROOT", "PE_HOSTFILE"} & environ.keys()):
            return None
        path = environ.get("PE_HOSTFILE")
        if not path:
            slots = environ.get("NSLOTS", "")
            return Job(self.name, number, (Host(os.uname().nodename, int(slots) if slots.isdigit() else 0),))
        cores: dict[str, int] = {}
        try:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    name, slots, *_ = [*line.split(), "", ""]
                    if slots.isdigit():  # one line for each queue of a host
                        cores[name] = cores.get(name, 0) + int(slots)
        except OSError as error:
            raise ValueError(f"PE_HOSTFILE ({path}) cannot be read: {error.strerror}") from None
        return Job(self.name, number, tuple(Host(name, n) for name, n in cores.items()))

    def seconds_left(self, job: Job, environ: Mapping[str, str], ask: Ask, now: float) -> float | None:
        """The hard limit of the run time less the age of the job's folder on this host."""
        match = re.search(r"\bh_rt=(\d+)", ask(("qstat", "-j", job.number)))
        try:
            begun = os.stat(environ.get("SGE_JOB_SPOOL_DIR", "")).st_ctime  # noqa: PTH116
        except OSError:
            return None
        return int(match[1]) - (now - begun) if match else None

    def starts(self, hosts: Sequence[Host], job: Job, invite: Invite, environ: Mapping[str, str]) -> list[Start]:  # noqa: ARG002
        """One qrsh a host."""
        return [
            Start(
                (host,),
                (
                    "qrsh",
                    "-inherit",
                    "-nostdin",
                    "-V",
                    host.name,
                    *invite(("--name", host.name, *(("--cores", str(host.cores)) if host.cores else ()))),
                ),
            )
            for host in hosts
        ]
