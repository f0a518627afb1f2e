"""How is a job given to Flux, and asked after?"""

from __future__ import annotations

from cantle.errors import MachineError

from .base import call, lacks, submitted
from .wanted import JobWanted, Offer, Stage, Standing

_PENDING = {"NEW", "DEPEND", "PRIORITY", "SCHED"}


class Flux:
    """`flux batch`, `flux jobs`, `flux cancel`. A Flux instance of its own spans the nodes of the job."""

    name = "flux"
    submits_by = "flux"

    def submit(self, job: JobWanted, after: str = "") -> str:
        """Hand the job in."""
        out = submitted(self.words(job, after)).split()
        if not out:
            raise MachineError("flux batch took the job, but said no number")
        return out[-1]

    def words(self, job: JobWanted, after: str = "") -> list[str]:
        """The words of `flux batch`. A slot is a node, or the cores that are asked for of each."""
        lacks("Flux", job, "qos", "reservation", "memory_mib")
        words = [
            "flux",
            "batch",
            f"--job-name={job.name}",
            f"--cwd={job.directory}",
            f"--output={job.output}",
            f"--nodes={job.nodes}",
        ]
        if job.cores:
            words += [f"--nslots={job.nodes}", f"--cores-per-slot={job.cores}"]
        else:
            words.append("--exclusive")
        if job.gpus:
            words += [*([] if job.cores else [f"--nslots={job.nodes}"]), f"--gpus-per-slot={job.gpus}"]
        if job.walltime_s:
            words.append(f"--time-limit={job.walltime_min}m")
        for option, value in (("queue", job.queue), ("bank", job.account), ("requires", job.constraint)):
            if value:
                words.append(f"--{option}={value}")
        if after:
            words.append(f"--dependency=afterany:{after}")
        return [*words, *job.extra, job.script]

    def look(self, ident: str) -> Standing:
        """How the job stands."""
        answer = call(
            ["flux", "jobs", "--no-header", "--format={state}|{result}|{annotations.sched.t_estimate}", ident]
        )
        fields = answer.out.strip().split("|")
        if answer.code or len(fields) != 3:
            return Standing(Stage.UNKNOWN, reason=answer.words)
        state, result, starts = fields
        if state in _PENDING:
            waits_for = {"DEPEND": "for another job", "PRIORITY": "for its priority"}.get(state, "")
            return Standing(Stage.PENDING, state, waits_for, _moment(starts))
        if state == "INACTIVE":
            return Standing(Stage.OVER, result or state, canceled=result == "CANCELED")
        return Standing(Stage.RUNNING, state)

    def cancel(self, ident: str) -> None:
        """End the job."""
        answer = call(["flux", "cancel", ident])
        if answer.code and "inactive" not in answer.err.lower():
            raise MachineError(f"Flux's job {ident} cannot be canceled: {answer.words}")

    def named(self, name: str) -> list[str]:
        """The user's jobs of this name that are not over. Raises MachineError."""
        answer = call(["flux", "jobs", "--no-header", "--count=0", f"--name={name}", "--format={id}"])
        if answer.code:
            raise MachineError(f"Flux does not tell which jobs are called {name}: {answer.words}")
        return answer.out.split()

    def offer(self, queue: str) -> Offer | None:  # noqa: ARG002 - nodes of a queue are told by its properties, in each site's way
        """Nothing is known of the nodes of a queue."""
        return None


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
