"""How is a job given to Slurm, and asked after?"""

from __future__ import annotations

import re
from tempfile import TemporaryDirectory
from time import mktime, strptime

from cantle.errors import MachineError, RequestError

from .base import call, submitted
from .wanted import JobWanted, Offer, Stage, Standing

_PENDING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_OVER = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
_NEVER = {
    "BadConstraints",
    "DependencyNeverSatisfied",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeldAdmin",
    "JobHeldUser",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSNotAllowed",
}
_FORGOTTEN = "Invalid job id"


class Slurm:
    """`sbatch`, `squeue`, `scancel`, `sinfo`."""

    name = "slurm"
    submits_by = "sbatch"

    def submit(self, job: JobWanted, after: str = "") -> str:
        """Hand the job in."""
        out = submitted(self.words(job, after))
        # With --parsable: the number, and on a federation `;` and the cluster's name.
        ident = out.strip().splitlines()[-1].partition(";")[0].strip() if out.strip() else ""
        if not ident.isdigit():
            raise MachineError(f"sbatch took the job, but said no number: {out.strip()!r}")
        return ident

    def words(self, job: JobWanted, after: str = "") -> list[str]:
        """The words of `sbatch`."""
        words = [
            "sbatch",
            "--parsable",
            f"--job-name={job.name}",
            f"--chdir={job.directory}",
            f"--output={_escaped(job.output)}",
            "--open-mode=append",
            "--export=ALL",
            f"--nodes={job.nodes}",
        ]
        if job.cores:
            words += ["--ntasks-per-node=1", f"--cpus-per-task={job.cores}"]
        else:
            words.append("--exclusive")
        if job.walltime_s:
            words.append(f"--time={job.walltime_min}")
        if job.gpus:
            words.append(f"--gres=gpu:{job.gpus}")
        if job.memory_mib:
            words.append(f"--mem={job.memory_mib}M")
        for option, value in (
            ("partition", job.queue),
            ("account", job.account),
            ("reservation", job.reservation),
            ("qos", job.qos),
            ("constraint", job.constraint),
        ):
            if value:
                words.append(f"--{option}={value}")
        if job.outlives_nodes:
            words.append("--no-kill")
        if job.once:
            words.append("--no-requeue")
        if after:
            words.append(f"--dependency=afterany:{after}")
        return [*words, *job.extra, job.script]

    def look(self, ident: str) -> Standing:
        """How the job stands. Slurm forgets a job some minutes after its end; then its accounting is asked."""
        answer = call(["squeue", "--noheader", "--states=all", f"--jobs={ident}", "--format=%T|%S|%r"])
        if answer.code and _FORGOTTEN not in answer.err:
            return Standing(Stage.UNKNOWN, reason=answer.words)
        line = answer.out.strip().splitlines()
        if not line:
            return self._remembered(ident)
        word, starts, reason = f"{line[0]}||".split("|", 2)
        return _standing(word, reason.strip("| ").replace("None", ""), _moment(starts))

    def cancel(self, ident: str) -> None:
        """End the job; its processes get TERM and, some time later, KILL."""
        answer = call(["scancel", ident])
        if answer.code and _FORGOTTEN not in answer.err:
            raise MachineError(f"Slurm's job {ident} cannot be canceled: {answer.words}")

    def named(self, name: str) -> list[str]:
        """The user's jobs of this name that are not over. Raises MachineError."""
        answer = call(["squeue", "--noheader", "--me", f"--name={name}", "--format=%i"])
        if answer.code:
            raise MachineError(f"Slurm does not tell which jobs are called {name}: {answer.words}")
        return answer.out.split()

    def shrink(self, ident: str, node: str) -> None:
        """Let a running job go on without this node. Raises MachineError with Slurm's words."""
        answer = call(["squeue", "--noheader", f"--jobs={ident}", "--format=%N"])
        hosts = call(["scontrol", "show", "hostnames", answer.out.strip()]) if answer.out.strip() else answer
        left = [host for host in hosts.out.split() if host != node]
        if hosts.code or len(left) == len(hosts.out.split()) or not left:
            raise MachineError(f"Slurm's job {ident} has no node {node} to give back: {hosts.words}")
        with TemporaryDirectory(prefix="cantle-") as place:  # scontrol leaves scripts where it runs
            answer = call(["scontrol", "update", f"JobId={ident}", f"NodeList={','.join(left)}"], place)
        if answer.code:
            raise MachineError(f"Slurm does not let job {ident} go on without {node}: {answer.words}")

    def offer(self, queue: str) -> Offer | None:
        """The least of the nodes of the partition."""
        answer = call(
            ["sinfo", "--noheader", "--exact", *([f"--partition={queue}"] if queue else []), "--format=%P|%D|%c|%G|%l"]
        )
        rows = [line.split("|") for line in answer.out.splitlines() if line.count("|") == 4]
        mine = [row for row in rows if queue or row[0].endswith("*")] or rows[:0]
        try:
            shapes = [(int(row[1]), int(row[2]), _gpus(row[3]), _limit_s(row[4])) for row in mine]
        except ValueError:
            return None
        if not shapes:
            return None
        return Offer(
            nodes=sum(n for n, *_ in shapes),
            cores=min(cores for _, cores, *_ in shapes),
            gpus=max(gpus for *_, gpus, _ in shapes),
            limit_s=shapes[0][3],
        )

    def _remembered(self, ident: str) -> Standing:
        answer = call(["sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={ident}", "--format=State"])
        word = answer.out.strip().splitlines()[0].split(" ")[0] if not answer.code and answer.out.strip() else ""
        return _standing(word) if word in _OVER else Standing(Stage.OVER)


def _standing(word: str, reason: str = "", starts_at: float = 0.0) -> Standing:
    if word in _PENDING:
        return Standing(Stage.PENDING, word, reason, starts_at, never=reason in _NEVER)
    stage = Stage.OVER if word in _OVER else Stage.RUNNING
    return Standing(stage, word, reason if stage is Stage.OVER else "", canceled=word == "CANCELLED")


def _escaped(path: str) -> str:
    """A file name in which sbatch replaces nothing."""
    if "\\" in path:
        raise RequestError(f"{path}: Slurm cannot write to a path with a backslash; choose another directory with -o")
    return path.replace("%", "%%")


def _moment(text: str) -> float:
    try:
        return mktime(strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:  # N/A
        return 0.0


def _gpus(text: str) -> int:
    """`gpu:a100:4(S:0-1),gpu:2` has six."""
    return sum(int(n) for n in re.findall(r"(?:^|,)gpu(?::[^,:()]*[^,:()\d][^,:()]*)?:(\d+)", text))


def _limit_s(text: str) -> float:
    """Seconds of `1-00:00:00`, `30:00`; 0 for `infinite`."""
    if not text[:1].isdigit():
        return 0.0
    days, _, rest = text.rpartition("-")
    fields = [int(field) for field in rest.split(":")]
    return int(days or 0) * 86400.0 + sum(value * 60.0**power for power, value in enumerate(reversed(fields)))
