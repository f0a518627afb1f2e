"""How is a job given to LSF, and asked after?"""

from __future__ import annotations

import re

from cantle.errors import MachineError

from .base import call, lacks, submitted
from .wanted import JobWanted, Offer, Stage, Standing

_PENDING = {"PEND", "PSUSP", "WAIT", "PROV"}
_OVER = {"DONE", "EXIT"}
_ENDED_BY_SOMEBODY = ("TERM_OWNER", "TERM_ADMIN", "TERM_FORCE_OWNER", "TERM_FORCE_ADMIN")
_NONE = ("is not found", "No unfinished job found")
"""What bjobs says where there is nothing to tell; its exit status is one or the other, as the site has it."""


class Lsf:
    """`bsub`, `bjobs`, `bkill`."""

    name = "lsf"
    submits_by = "bsub"

    def submit(self, job: JobWanted, after: str = "") -> str:
        """Hand the job in."""
        out = submitted(self.words(job, after))
        found = re.search(r"Job <(\d+)>", out)
        if found is None:
            raise MachineError(f"bsub took the job, but said no number: {out.strip()!r}")
        return found.group(1)

    def words(self, job: JobWanted, after: str = "") -> list[str]:
        """The words of `bsub`. Whole nodes are counted as nodes; with a number of cores there are slots on each."""
        lacks("LSF", job, "qos", "memory_mib")
        words = ["bsub", "-J", job.name, "-cwd", job.directory, "-o", job.output]
        if job.cores:
            words += ["-n", str(job.nodes * job.cores), "-R", f"span[ptile={job.cores}]"]
        else:
            words += ["-nnodes", str(job.nodes), "-x"]
        if job.walltime_s:
            words += ["-W", f"{job.walltime_min // 60}:{job.walltime_min % 60:02d}"]
        if job.gpus:
            words += ["-gpu", f"num={job.gpus}"]
        for option, value in (
            ("-q", job.queue),
            ("-G", job.account),
            ("-U", job.reservation),
            ("-R", job.constraint),
        ):
            if value:
                words += [option, value]
        if job.once:
            words.append("-rn")
        if after:
            words += ["-w", f"ended({after})"]
        return [*words, *job.extra, job.script]

    def look(self, ident: str) -> Standing:
        """How the job stands."""
        answer = call(["bjobs", "-a", "-noheader", "-o", "stat exit_reason pend_reason delimiter='|'", ident])
        if "is not found" in answer.err or "is not found" in answer.out:
            return Standing(Stage.OVER)
        if answer.code or "|" not in answer.out:
            return Standing(Stage.UNKNOWN, reason=answer.words)
        fields = f"{answer.out.strip()}||".split("|")  # some may be missing
        word, ended, waits = (field.strip().removeprefix("-") for field in fields[:3])
        if word in _PENDING:
            return Standing(Stage.PENDING, word, waits.rstrip(";"), never=word == "PSUSP")
        if word in _OVER:
            return Standing(Stage.OVER, word, ended, canceled=ended.startswith(_ENDED_BY_SOMEBODY))
        return Standing(Stage.RUNNING, word)

    def cancel(self, ident: str) -> None:
        """End the job."""
        answer = call(["bkill", ident])
        said = (answer.err + answer.out).lower()
        if answer.code and "already finished" not in said and "no matching job" not in said:
            raise MachineError(f"LSF's job {ident} cannot be canceled: {answer.words}")

    def named(self, name: str) -> list[str]:
        """The user's jobs of this name that are not over. Raises MachineError."""
        answer = call(["bjobs", "-noheader", "-o", "jobid", "-J", name])
        if any(said in answer.out + answer.err for said in _NONE):
            return []
        if answer.code:
            raise MachineError(f"LSF does not tell which jobs are called {name}: {answer.words}")
        return list(dict.fromkeys(answer.out.split()))

    def offer(self, queue: str) -> Offer | None:  # noqa: ARG002 - which hosts serve a queue is a matter of each site
        """Nothing is known of the nodes of a queue."""
        return None
