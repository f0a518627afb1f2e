"""How do nodes come from a batch system while a run goes on? In one job for each block, whose runners join by themselves.

A job's script starts a runner on each of its nodes, and ends when they do; they end when the run does, when they are told to,
and when they hear no conductor any more. So a job that begins after its conductor was killed ends by itself. One that waits in
the queue would stay there: it bears the name of its request, by which whoever comes next cancels it.

A node is given back alone when its job has no other, or where the batch system lets a job shrink. Otherwise the job, and
what it costs, goes on until all of its nodes are given back; that is told once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, time
from typing import Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from cantle.allocations.submission.base import BatchSystem
from cantle.allocations.submission.wanted import JobWanted, Stage, Standing
from cantle.errors import CantleError, MachineError
from cantle.model.kinds import Kind
from cantle.model.resources import Node, count

from .base import Answers, Asked, end_all
from .job_script import text_of

FIRST_S, LAST_S = 1.0, 20.0
"""A job that waits is asked after so soon, and then less and less often: the servers of a batch system are shared by many."""
_GROWTH = 1.3
_TAIL = 3
"""So many of the last lines that a job has printed are told when it brought nobody."""
_LEAVES_S = 10.0
"""A job whose nodes are all given back has so long to end by itself."""


@runtime_checkable
class Shrinks(Protocol):
    """A batch system whose running jobs can give single nodes back."""

    def shrink(self, ident: str, node: str) -> None:
        """Let the job go on without this node. Raises MachineError with the system's words."""


@runtime_checkable
class FindsByName(Protocol):
    """A batch system that tells the jobs of a name."""

    def named(self, name: str) -> list[str]:
        """What it calls the user's jobs of this name that are not over. Raises MachineError when it cannot be asked."""


class JobOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job needs beside its nodes; as in `JobWanted`. `whole_nodes`: nobody shares them.

    `setup`: commands that are done on each of its nodes before the runner begins there, whose environment tasks have then.
    """

    queue: str = ""
    account: str = ""
    reservation: str = ""
    qos: str = ""
    constraint: str = ""
    extra: tuple[str, ...] = ()
    whole_nodes: bool = False
    setup: tuple[str, ...] = ()


class _Job:
    """One job. `ident` is what the batch system calls it."""

    def __init__(self, ident: str, request: int, nodes: int, output: Path) -> None:
        self.ident = ident
        self.request = request
        self.nodes = nodes
        self.output = output
        self.given_back = 0
        self.look_at = monotonic() + FIRST_S
        self.pause = FIRST_S
        self.ends_by = math.inf
        """When it is canceled, since it should be over by then."""


class BatchProvider:
    """Nodes of one kind from this batch system."""

    invites = True

    def __init__(self, kind: Kind, system: BatchSystem, options: JobOptions | None = None) -> None:
        self.kind = replace(kind, adds=True, removes=True)
        self.undo = {"by": "batch", "system": system.name}
        self._system = system
        self._options = options or JobOptions()
        self._jobs: dict[str, _Job] = {}
        """Those that are not known to be over."""
        self._told_that_blocks_stay = False
        self._answers: Answers | None = None

    def add(self, asked: Asked, answers: Answers) -> None:
        """Hand in a job for each block."""
        self._answers = answers
        left = asked.count
        while left:
            nodes = min(left, max(1, self.kind.block))
            try:
                self._hand_in(asked, answers, nodes)
            except CantleError as problem:
                if left == asked.count:
                    raise
                answers.refused(asked.number, left, str(problem))
                return
            left -= nodes

    def withdraw(self, request: int, n: int) -> int:
        """Cancel jobs that wait in the queue, the last ones first, as long as no more nodes than these go with them."""
        taken = 0
        for job in reversed([job for job in self._jobs.values() if job.request == request]):
            if job.nodes <= n - taken and self._system.look(job.ident).stage is Stage.PENDING:
                self._cancel(job)
                taken += job.nodes
        return taken

    def remove(self, node: Node, instance: str) -> None:
        """The last node's runner ends its job with it; others are given back alone, where that can be."""
        job = self._jobs.get(instance)
        if job is None:  # it is over, and its node has gone with it
            return
        job.given_back += 1
        if job.given_back >= job.nodes:
            job.ends_by = monotonic() + _LEAVES_S
            job.look_at = monotonic() + FIRST_S
            return
        why = f"{self._system.name} jobs cannot give single nodes back"
        if isinstance(self._system, Shrinks):
            try:
                self._system.shrink(job.ident, node.name)
                return
            except MachineError as problem:
                why = str(problem)
        if not self._told_that_blocks_stay and self._answers is not None:
            self._told_that_blocks_stay = True
            self._answers.note(
                f"{node.name} is not used any more, but job {job.ident} holds it until all of its {job.nodes} nodes are given "
                f"back: {why}"
            )

    def tend(self) -> float:
        """Ask after the jobs whose nodes have not all come, and after those that should be over."""
        now = monotonic()
        for job in list(self._jobs.values()):
            if job.look_at <= now:
                self._look(job, now)
        due = [job.look_at for job in self._jobs.values()]
        return max(0.0, min(due) - monotonic()) if due else math.inf

    def close(self) -> None:
        """Cancel all that is not over. Raises MachineError when the batch system does not take that."""
        end_all(self._jobs.values(), self._cancel)

    def _hand_in(self, asked: Asked, answers: Answers, nodes: int) -> None:
        assert asked.invitation is not None
        kind, options = self.kind, self._options
        folder = Path(asked.folder)
        script, output = folder / f"{asked.token}.sh", folder / f"{asked.token}.out"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            script.write_text(text_of(asked, kind, self._system.name, nodes, options.setup))
            script.chmod(0o700)
        except OSError as error:
            raise MachineError(f"cannot write {script}: {error.strerror}") from error
        wanted = JobWanted(
            name=asked.token,
            script=str(script),
            output=str(output),
            directory=asked.directory,
            nodes=nodes,
            walltime_s=kind.lasts_s,
            cores=0 if options.whole_nodes else kind.cores,
            gpus=kind.gpus,
            memory_mib=kind.memory_mib,
            queue=options.queue,
            account=options.account,
            reservation=options.reservation,
            qos=options.qos,
            constraint=options.constraint,
            outlives_nodes=nodes > 1,
            extra=options.extra,
            once=True,
        )
        ident = self._system.submit(wanted)
        job = self._jobs[ident] = _Job(ident, asked.number, nodes, output)
        try:
            answers.handed_out(asked.number, ident)
        except CantleError:  # it cannot be put on record, so its nodes are refused
            self._cancel(job)
            raise
        answers.waits(asked.number, f"job {ident} is handed in", time() + kind.starts_in_s if kind.starts_in_s else 0.0)

    def _look(self, job: _Job, now: float) -> None:
        assert self._answers is not None
        there = len(self._answers.joined(job.request).get(job.ident, ()))
        if there >= job.nodes and job.ends_by == math.inf:
            job.look_at = math.inf  # the fleet notices when its nodes go
            return
        standing = self._system.look(job.ident)
        job.pause = min(LAST_S, job.pause * _GROWTH)
        job.look_at = now + (FIRST_S if job.ends_by < math.inf else job.pause)
        if standing.stage is Stage.OVER:
            del self._jobs[job.ident]
            self._answers.over(job.request, job.ident, job.nodes, _ended(job, standing))
        elif now > job.ends_by:
            self._cancel(job)
        elif standing.never:
            self._cancel(job)
            self._answers.over(job.request, job.ident, job.nodes, f"job {job.ident} would never start: {standing}")
        elif there < job.nodes and standing.stage is not Stage.UNKNOWN:
            self._answers.waits(job.request, f"job {job.ident}: {standing}", self._expected_at(standing))

    def _expected_at(self, standing: Standing) -> float:
        return standing.starts_at if standing.starts_at > time() else 0.0

    def _cancel(self, job: _Job) -> None:
        self._system.cancel(job.ident)
        self._jobs.pop(job.ident, None)


def _ended(job: _Job, standing: Standing) -> str:
    """Why a job that is over has not brought all of its nodes."""
    try:
        said: Sequence[str] = job.output.read_text(errors="replace").split("\n")
    except OSError:
        said = ()
    lines = [line.strip() for line in said if line.strip() and not line.startswith("@cantle")][-_TAIL:]
    told = f"job {job.ident} of {count(job.nodes, 'node')} ended ({standing}) before all of them had joined"
    if lines:
        return f"{told}; it said: {' / '.join(lines)}"
    unseen = f", and there is no {job.output}: its nodes must see this directory" if not job.output.exists() else ""
    return f"{told}; it said nothing{unseen}"
