"""Which calls does a batch system answer? The seam, and how its client commands are run.

All that is said to a batch system is said by its own commands, as people type them, with every option on the command line: it
wins there over what stands in the environment (`SBATCH_PARTITION`) and in the script.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cantle.errors import MachineError, RequestError

from .wanted import JobWanted, Offer, Standing

PATIENCE_S = 60.0
"""A client that has not answered by then is asked no longer."""
_OF_A_JOB = ("SLURM_", "SBATCH_", "PBS_", "LSB_", "LS_", "FLUX_JOB_", "FLUX_TASK_", "FLUX_KVS_NAMESPACE", "CANTLE_")
_KEPT = (
    "SLURM_CONF",
    "SLURM_CLUSTERS",
    "SBATCH_",
    "PBS_DEFAULT",
    "PBS_SERVER",
    "PBS_CONF_FILE",
    "PBS_EXEC",
    "LS_COLORS",
)


class BatchSystem(Protocol):
    """Takes jobs. Every call runs a command of the batch system and waits for its answer, a tenth of a second as a rule."""

    name: str
    submits_by: str
    """The command whose presence tells that the batch system is here."""

    def submit(self, job: JobWanted, after: str = "") -> str:
        """Hand the job in and return what it is called there; with `after` it starts when that job is over, however it ended.

        Raises RequestError when the batch system refuses it, in its own words, and when it has no such thing as what is asked;
        MachineError when it cannot be asked.
        """

    def words(self, job: JobWanted, after: str = "") -> list[str]:
        """The command line that hands the job in. Raises RequestError when there is no word for what is asked."""

    def look(self, ident: str) -> Standing:
        """How the job stands; UNKNOWN when the batch system cannot be asked."""

    def cancel(self, ident: str) -> None:
        """End the job, wherever it stands; without effect when it is over. Raises MachineError with the system's own words."""

    def offer(self, queue: str) -> Offer | None:
        """What nodes the queue ("" is the default one) has; None when that cannot be known."""


class Answer(NamedTuple):
    """What a client said. `code` is 127 when it is not there, 124 when it did not answer."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What it said about what went wrong, on one line."""
        said = self.err.strip() or self.out.strip() or f"exit status {self.code}"
        return " / ".join(line.strip() for line in said.splitlines()[-3:])


def call(words: Sequence[str], directory: str | None = None) -> Answer:
    """Run a client command, in that directory if it leaves files where it runs."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            env=environment(),
            cwd=directory,
            check=False,
        )
    except FileNotFoundError:
        return Answer(127, "", f"there is no command {words[0]} here")
    except OSError as error:
        return Answer(127, "", f"{words[0]} cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Answer(124, "", f"{words[0]} has not answered within {PATIENCE_S:g} s")
    return Answer(done.returncode, done.stdout, done.stderr)


def submitted(words: Sequence[str]) -> str:
    """What the submit command printed. Raises RequestError with its words when it refused, MachineError when it cannot run."""
    answer = call(words)
    if answer.code in (124, 127):
        raise MachineError(f"no batch job can be submitted: {answer.words}")
    if answer.code:
        raise RequestError(f"{words[0]} refuses the job: {answer.words}")
    return answer.out


def environment() -> dict[str, str]:
    """Our environment without what belongs to a batch job in which we may run: the next job shall not take it for its own.

    What people set for the submit commands (`SBATCH_ACCOUNT`) stays.
    """
    return {
        name: value for name, value in os.environ.items() if name.startswith(_KEPT) or not name.startswith(_OF_A_JOB)
    }


def lacks(system: str, job: JobWanted, *names: str) -> None:
    """Raise RequestError when the job asks for one of these, which this batch system has no word for."""
    asked = [name for name in names if getattr(job, name)]
    if asked:
        raise RequestError(
            f"{system} has no {' and no '.join(asked)}: leave it out, or say it in the system's own words with --args"
        )
