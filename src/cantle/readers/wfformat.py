"""How does a recorded execution of somebody's workflow become a study?

WfFormat is the JSON form of the WfCommons collection: a task graph with the durations that its tasks once took. Run here,
each task sleeps (or computes) for the recorded time, multiplied by `ReadOptions.scale`; simulated, the times are its
estimates. This file joins the two halves, plan and work; `wfinstance` knows what the versions of the format look like.

A task asks for the cores that were recorded, one where none were. Memory is recorded as well, but a replay uses none, and
reserving it would keep a small machine from replaying what a large one ran: it is reserved only if
`WfFormatReader(reserve_memory=True)` says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path

import msgspec

from cantle.errors import Problem, RequestError, StudyError
from cantle.model.resources import Needs, Node, Place
from cantle.model.study import Command, Step, Study, Task

from .base import ReadOptions
from .findings import Findings
from .wfinstance import Recorded, plain_json, recorded_tasks

SHORTEST_S = 0.001
"""A task shorter than this ends at once: starting anything takes longer."""

_SETTINGS = "wfformat.json"
_PLAIN, _PACKED = "instance.json", "instance.json.gz"
_FIRST_BYTES = 1 << 16
# CPU time counts from the start of the process, so the interpreter's own start, about 10 ms, is part of the spin.
_SPIN = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass"


class _Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for when the file was read, kept with it."""

    source: str
    scale: float
    spin: bool
    attempts: int
    reserve_memory: bool
    format: int = 1


class WfFormatReader:
    """Reads WfFormat 1.3 to 1.6 (and the older ones that differ in names only), plain or compressed by gzip."""

    name = "wfformat"

    def __init__(self, reserve_memory: bool = False) -> None:
        self.reserve_memory = reserve_memory

    def recognises(self, path: Path) -> bool:
        """Whether the file is JSON by name and speaks of a schema version, or of a workflow's tasks, near its beginning."""
        if not path.name.endswith((".json", ".json.gz")):
            return False
        try:
            with open(path, "rb") as file:
                start = plain_json(file.read(_FIRST_BYTES), cut_short=True)
        except (OSError, ValueError):
            return False
        if b'"schemaVersion"' in start:
            return True
        return b'"workflow"' in start and any(key in start for key in (b'"tasks"', b'"jobs"', b'"specification"'))

    def read(self, path: Path, options: ReadOptions) -> Study:
        """The recorded execution as a study. Raises StudyError with every problem of the file, RequestError for the options."""
        if not (math.isfinite(options.scale) and options.scale >= 0):
            raise RequestError(
                f"durations cannot be multiplied by {options.scale}\n    Give --scale a number from 0 up."
            )
        try:
            data = path.read_bytes()
        except OSError as slip:
            raise StudyError([Problem(str(path), 0, "", f"cannot be read: {slip.strerror}")]) from slip
        settings = _Settings(
            source=str(path),
            scale=options.scale,
            spin=options.spin,
            attempts=options.attempts,
            reserve_memory=self.reserve_memory,
        )
        return _study(data, settings)

    def reopen(self, folder: Path) -> Study:
        """Make the same study again. Raises RequestError when what was kept is damaged."""
        try:
            settings = msgspec.json.decode((folder / _SETTINGS).read_bytes(), type=_Settings)
            packed = folder / _PACKED
            data = (packed if packed.exists() else folder / _PLAIN).read_bytes()
        except (OSError, msgspec.MsgspecError, RecursionError) as slip:
            raise RequestError(f"the workflow kept in {folder} cannot be read: {slip}") from slip
        if settings.format != 1:
            raise RequestError(
                f"the workflow kept in {folder} has format {settings.format}: a newer Cantle wrote it; use that one"
            )
        return _study(data, settings)


def _study(data: bytes, settings: _Settings) -> Study:
    import hashlib

    findings = Findings(settings.source)
    instance = recorded_tasks(data, findings)
    findings.raise_if_wrong()
    order = _parents_first(instance.tasks, findings)
    findings.raise_if_wrong()
    steps, tasks = _plan(instance.tasks, order, settings)
    replay = Replay([instance.tasks[n].runtime_s * settings.scale for n in order], settings.spin)
    keep = {_SETTINGS: msgspec.json.encode(settings), _PACKED if data[:2] == b"\x1f\x8b" else _PLAIN: data}
    # the file may move, or be packed, and still be the same study
    content = msgspec.json.encode(msgspec.structs.replace(settings, source="")) + plain_json(data)
    return Study(
        name=_safe(instance.name) or "workflow",
        steps=steps,
        tasks=tasks,
        work=lambda _directory: replay,
        keep=keep,
        digest=hashlib.sha256(content).hexdigest(),
        description=instance.description,
        source=settings.source,
        warnings=findings.warnings,
    )


def _parents_first(tasks: Sequence[Recorded], findings: Findings) -> list[int]:
    """The tasks' numbers, each after all of its parents, otherwise as in the file. Notes a cycle as a problem."""
    missing = [len(task.parents) for task in tasks]
    children: list[list[int]] = [[] for _ in tasks]
    for n, task in enumerate(tasks):
        for parent in task.parents:
            children[parent].append(n)
    free = [n for n, count in enumerate(missing) if not count]
    heapify(free)
    order: list[int] = []
    while free:
        n = heappop(free)
        order.append(n)
        for child in children[n]:
            missing[child] -= 1
            if not missing[child]:
                heappush(free, child)
    if len(order) < len(tasks):
        # everything left has a parent left, so going from parent to parent must come round
        seen: list[int] = []
        n = next(n for n, count in enumerate(missing) if count)
        while n not in seen:
            seen.append(n)
            n = next(parent for parent in tasks[n].parents if missing[parent])
        ring = [*seen[seen.index(n) :], n][::-1]
        names = " -> ".join(tasks[n].name for n in ring)
        findings.wrong(
            tasks[n].line(), tasks[n].key, f"these tasks wait for each other: {names}", "Take out one of these edges."
        )
    return order


def _plan(recorded: Sequence[Recorded], order: Sequence[int], settings: _Settings) -> tuple[list[Step], list[Task]]:
    """Steps, one for each kind of task and its needs, and tasks in the given order."""
    steps: list[Step] = []
    step_of: dict[tuple[str, int, int], int] = {}
    place = {n: at for at, n in enumerate(order)}
    taken: set[str] = set()
    tasks = []
    for n in order:
        task = recorded[n]
        memory_mib = math.ceil(task.memory_bytes / (1 << 20)) if settings.reserve_memory else 0
        kind = (_safe(task.kind) or "task", task.cores, memory_mib)
        step = step_of.get(kind)
        if step is None:
            step = step_of[kind] = len(steps)
            steps.append(Step(kind[0], Needs(cores=kind[1], memory_mib=kind[2]), retries=max(0, settings.attempts - 1)))
        name = base = _safe(task.name) or "task"
        again = 1
        while name in taken:
            again += 1
            name = f"{base}.{again}"
        taken.add(name)
        parents = tuple(sorted(place[parent] for parent in task.parents))
        # 0 would mean that nobody knows
        tasks.append(Task(name, step, parents, max(SHORTEST_S, task.runtime_s * settings.scale)))
    return steps, tasks


def _safe(name: str) -> str:
    """The name with all that a shell or a file name might mind replaced."""
    return re.sub(r"[^\w.+-]+", "_", name).strip("_")


class Replay:
    """The work half: each task takes its time, and does nothing with it."""

    def __init__(self, seconds: list[float], spin: bool) -> None:
        self._seconds = seconds
        self._spin = spin

    def prepare(self, directory: str) -> None:
        """Nothing to fetch."""

    def command(
        self, task: int, attempt: int, restart: bool, places: tuple[Place, ...], nodes: tuple[Node, ...]
    ) -> Command:
        """Sleep, or use that much CPU time on one core, or end at once when the time is under a millisecond."""
        del attempt, restart, places, nodes
        seconds = self._seconds[task]
        if seconds < SHORTEST_S:
            return Command(argv=("/bin/true",), packed=True)
        text = f"{seconds:.6f}".rstrip("0").rstrip(".")
        if not self._spin:
            return Command(argv=("/bin/sleep", text), packed=True)
        import sys

        return Command(argv=(sys.executable, "-I", "-S", "-c", _SPIN, text), packed=True)
