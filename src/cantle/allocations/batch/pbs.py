"""What do PBS Pro, OpenPBS and Torque say of the job that we are in, and how are runners brought up there?

Through the task manager of the job, so that PBS accounts for the runners and ends them: `pbs_tmrsh` where there is one (PBS
Pro, OpenPBS), otherwise `pbsdsh` (Torque), otherwise the `mpiexec` that the site has. The first two carry no environment.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence

from .job import OVER, Ask, Host, Invite, Job, Start, clock_seconds, numbers_of
from .stale import carried


class Pbs:
    """The PBS family."""

    name = "PBS"
    noise: Sequence[str] = ()
    sayings: Sequence[tuple[str, str]] = (
        ("tm_init", "the task manager of the job does not answer; is this shell still inside the job?"),
        ("not in the job", "PBS does not count this node among the job's"),
        ("Job not found", OVER),
        ("Permission denied", "the node refuses a start that does not come from the job"),
    )

    def job(self, environ: Mapping[str, str], ask: Ask) -> Job | None:
        """The job: its hosts from the node file, what is granted on each from the server or else from the file."""
        number, path = environ.get("PBS_JOBID"), environ.get("PBS_NODEFILE")
        if not number or not path:
            return None
        try:
            with open(path, encoding="utf-8") as file:
                lines = numbers_of(file.read())
        except OSError as error:
            raise ValueError(f"PBS_NODEFILE ({path}) cannot be read: {error.strerror}") from None
        granted = _granted(_joined(ask(("qstat", "-f", number))))
        per_node = environ.get(
            "PBS_NUM_PPN", ""
        )  # Torque's node file has a line for each core; others a line a process
        return Job(
            self.name,
            number,
            tuple(
                Host(name, granted.get(name) or granted.get(name.partition(".")[0]) or (n if per_node else 0))
                for name, n in lines.items()
            ),
        )

    def seconds_left(self, job: Job, environ: Mapping[str, str], ask: Ask, now: float) -> float | None:  # noqa: ARG002
        """What was asked for less what the server says is used."""
        told = _joined(ask(("qstat", "-f", job.number)))
        asked, used = (
            re.search(rf"^\s*{name}\.walltime = (\S+)", told, re.MULTILINE)
            for name in ("Resource_List", "resources_used")
        )
        whole = clock_seconds(asked[1]) if asked else None
        if whole is None:
            return None
        return whole - ((clock_seconds(used[1]) or 0.0) if used else 0.0)

    def starts(self, hosts: Sequence[Host], job: Job, invite: Invite, environ: Mapping[str, str]) -> list[Start]:  # noqa: ARG002
        """One process of the task manager's a host; with mpiexec one for all."""
        path = environ.get("PATH")
        if shutil.which("pbs_tmrsh", path=path):
            return [
                Start((host,), ("pbs_tmrsh", host.name, *carried(environ), *_invited(host, invite))) for host in hosts
            ]
        if shutil.which("pbsdsh", path=path):
            return [
                Start((host,), ("pbsdsh", "-h", host.name, *carried(environ), *_invited(host, invite)))
                for host in hosts
            ]
        names = ",".join(host.name for host in hosts)
        return [
            Start(
                tuple(hosts),
                ("mpiexec", "-n", str(len(hosts)), "-ppn", "1", "-hosts", names, *carried(environ), *invite(())),
            )
        ]


def _invited(host: Host, invite: Invite) -> list[str]:
    return invite(("--name", host.name, *(("--cores", str(host.cores)) if host.cores else ())))


def _joined(told: str) -> str:
    """qstat's lines, those that it broke made whole."""
    return re.sub(r"\n\t", "", told)


def _granted(told: str) -> dict[str, int]:
    """Cores by host, of `exec_host = node1/0*4+node2/1*4` or, Torque, `node1/0-3+node2/0-1`."""
    match = re.search(r"^\s*exec_host = (\S+)", told, re.MULTILINE)
    found: dict[str, int] = {}
    for part in match[1].split("+") if match else ():
        name, _, rest = part.partition("/")
        _, star, times = rest.partition("*")
        cores = int(times) if star and times.isdigit() else sum(map(_span, rest.split(",")))
        found[name] = found.get(name, 0) + cores
    return found


def _span(text: str) -> int:
    first, dash, last = text.partition("-")
    return int(last) - int(first) + 1 if dash and first.isdigit() and last.isdigit() else 1
