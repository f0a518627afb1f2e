"""How is a job given to PBS (Professional or OpenPBS), and asked after?"""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from pwd import getpwuid
from time import mktime, strptime

from cantle.errors import MachineError, RequestError

from .base import call, lacks, submitted
from .wanted import JobWanted, Offer, Stage, Standing

_PENDING = {"Q", "H", "W", "T", "M"}
_OVER = {"F", "X", "C"}
_WORDS = {
    "B": "begun",
    "C": "completed",
    "E": "ending",
    "F": "finished",
    "H": "held",
    "M": "moved",
    "Q": "queued",
    "R": "running",
    "S": "suspended",
    "T": "in transit",
    "U": "suspended",
    "W": "waiting",
    "X": "finished",
}
_DELETED = "91"
"""The substate of a job that somebody deleted."""
_FORGOTTEN = "unknown job id"


class Pbs:
    """`qsub`, `qstat`, `qselect`, `qdel`."""

    name = "pbs"
    submits_by = "qsub"

    def submit(self, job: JobWanted, after: str = "") -> str:
        """Hand the job in."""
        ident = submitted(self.words(job, after)).strip()
        if not ident[:1].isdigit():
            raise MachineError(f"qsub took the job, but said no number: {ident!r}")
        return ident.splitlines()[-1]

    def words(self, job: JobWanted, after: str = "") -> list[str]:
        """The words of `qsub`. What the job prints is written where it shall lie as it goes, not copied at the end.

        Raises RequestError for what PBS has not.
        """
        lacks("PBS", job, "qos")
        if job.reservation and job.queue:
            raise RequestError("in PBS a reservation is a queue of its own: say one of --queue and --reservation")
        chunk = f"select={job.nodes}"
        for resource, amount in (("ncpus", job.cores), ("ngpus", job.gpus)):
            if amount:
                chunk += f":{resource}={amount}"
        if job.memory_mib:
            chunk += f":mem={job.memory_mib}mb"
        if job.constraint:
            chunk += f":{job.constraint}"
        words = ["qsub", "-N", _name(job.name), "-o", job.output, "-j", "oe", "-k", "doe", "-V", "-l", chunk]
        words += ["-l", "place=scatter" if job.cores else "place=scatter:excl"]
        if job.walltime_s:
            words += ["-l", f"walltime={job.walltime_min // 60}:{job.walltime_min % 60:02d}:00"]
        for option, value in (("-q", job.queue or job.reservation), ("-A", job.account)):
            if value:
                words += [option, value]
        if job.outlives_nodes:
            words += ["-W", "tolerate_node_failures=all"]
        if job.once:
            words += ["-r", "n"]
        if after:
            words += ["-W", f"depend=afterany:{after}"]
        return [*words, *job.extra, job.script]

    def look(self, ident: str) -> Standing:
        """How the job stands, also one that has ended where the server keeps a history."""
        answer = call(["qstat", "-x", "-f", ident])
        if answer.code:
            if _FORGOTTEN in answer.err.lower():
                return Standing(Stage.OVER)
            return Standing(Stage.UNKNOWN, reason=answer.words)
        found = _attributes(answer.out)
        letter = found.get("job_state", "")
        word: str = _WORDS.get(letter, letter)
        if letter in _PENDING:
            reason = found.get("comment", "").removeprefix("Not Running: ")
            starts = _moment(found.get("estimated.start_time", ""))
            return Standing(Stage.PENDING, word, reason, starts, never=letter == "H" and not found.get("depend"))
        if letter in _OVER:
            return Standing(Stage.OVER, word, found.get("comment", ""), canceled=found.get("substate") == _DELETED)
        return Standing(Stage.RUNNING, word)

    def cancel(self, ident: str) -> None:
        """End the job."""
        answer = call(["qdel", ident])
        if answer.code and not any(said in answer.err.lower() for said in (_FORGOTTEN, "has finished")):
            raise MachineError(f"the job {ident} of PBS cannot be canceled: {answer.words}")

    def named(self, name: str) -> list[str]:
        """The user's jobs of this name that are not over. Raises MachineError.

        Of a name that PBS has only in part, as it is too long, those are meant whose output goes into a file of that name.
        """
        answer = call(["qselect", "-u", getpwuid(os.getuid()).pw_name, "-N", _name(name)])
        if answer.code:
            raise MachineError(f"PBS does not tell which jobs are called {name}: {answer.words}")
        found = answer.out.split()
        return found if _name(name) == name else [ident for ident in found if self._writes_to(ident, name)]

    def _writes_to(self, ident: str, name: str) -> bool:
        answer = call(["qstat", "-f", ident])
        if answer.code and not any(said in answer.err.lower() for said in (_FORGOTTEN, "has finished")):
            raise MachineError(f"PBS does not tell where its job {ident} writes to: {answer.words}")
        return PurePath(_attributes(answer.out).get("Output_Path", "")).stem == name

    def offer(self, queue: str) -> Offer | None:  # noqa: ARG002 - which nodes serve a queue is a matter of each site
        """Nothing is known of the nodes of a queue."""
        return None


def _attributes(told: str) -> dict[str, str]:
    """What `qstat -f` tells of a job. Long values go on in the next line, behind a tab."""
    return dict(re.findall(r"^\s+([\w.]+) = (.*)$", told.replace("\n\t", ""), re.MULTILINE))


def _name(text: str) -> str:
    """A name as qsub takes it: a letter first, 15 characters at most."""
    tidy = re.sub(r"[^\w.+-]", "_", text, flags=re.ASCII)
    return (tidy if tidy[:1].isalpha() else f"c{tidy}")[:15]


def _moment(text: str) -> float:
    try:
        return mktime(strptime(text, "%a %b %d %H:%M:%S %Y"))
    except ValueError:
        return 0.0
