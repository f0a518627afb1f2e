"""What does a WfFormat file say, whichever version it is?

Up to 1.4 a task is one object: edges go by name, the duration is `runtime` (1.4: `runtimeInSeconds`), memory is counted in
kB (1.4: bytes), and before 1.3 the list was called `jobs`. From 1.5 on the graph (`specification`) and what happened
(`execution`) are two lists joined by id, names may repeat, and edges go by id. Ids may hold blanks. Everywhere durations
may be 0, cores are mostly absent, and an edge may be told at one of its ends only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import msgspec

from cantle.errors import shown

from .findings import Findings, did_you_mean

_KNOWN = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
_MOST = 1e15
"""No duration, no count and no amount of memory is larger."""
_NUMBERED = re.compile(r"[_.-]*(?:ID)?[_.-]*\d+$")


class Recorded(msgspec.Struct):
    """One task of the file. `parents` are numbers of tasks of the file; `line` looks up where it stands (0: unknown)."""

    name: str
    kind: str
    key: str
    line: Callable[[], int]
    parents: set[int]
    runtime_s: float = 0.0
    cores: int = 1
    memory_bytes: float = 0.0


class Instance(msgspec.Struct):
    """A recorded execution."""

    name: str
    description: str
    tasks: list[Recorded]


# What the decoder checks is the outline; values are `object`, so that one wrong value does not hide the next.


class _Task(msgspec.Struct, rename="camel"):
    name: object = None
    id: object = None
    category: object = None
    command: object = None
    parents: object = None
    children: object = None
    runtime: object = None
    runtime_in_seconds: object = None
    cores: object = None
    core_count: object = None
    memory: object = None
    memory_in_bytes: object = None


class _Half(msgspec.Struct):
    tasks: list[_Task]


class _Workflow(msgspec.Struct):
    tasks: list[_Task] | None = None
    jobs: list[_Task] | None = None
    specification: _Half | None = None
    execution: _Half | None = None


class _File(msgspec.Struct, rename="camel"):
    workflow: _Workflow
    name: object = ""
    description: object = ""
    schema_version: object = None


def plain_json(data: bytes, cut_short: bool = False) -> bytes:
    """The text of a file that may be compressed. Raises ValueError when it is damaged, or ends early unless `cut_short`."""
    if data[:2] != b"\x1f\x8b":
        return data
    import zlib

    text = b""
    try:
        while data:
            unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
            text += unpack.decompress(data) + unpack.flush()
            if not unpack.eof and not cut_short:
                raise ValueError("the compressed file ends too early")
            data = unpack.unused_data
            if data[:2] != b"\x1f\x8b":
                break
    except zlib.error as slip:
        raise ValueError(f"the compressed file is damaged: {slip}") from slip
    return text


def recorded_tasks(data: bytes, findings: Findings) -> Instance:
    """All that the file says. What is wrong goes into the findings; then the tasks are not to be used."""
    nothing = Instance("", "", [])
    try:
        text = plain_json(data)
        file = msgspec.json.decode(text, type=_File)
    except RecursionError:
        findings.wrong(0, "", "lists or mappings are nested too deeply", "is this a WfFormat file?")
        return nothing
    except msgspec.ValidationError as slip:
        what, _, path = str(slip).partition(" - at `$")
        mend = "A WfFormat file has workflow.specification.tasks (from 1.5 on) or workflow.tasks."
        findings.wrong(0, path.rstrip("`").lstrip("."), what[:1].lower() + what[1:], mend)
        return nothing
    except ValueError as slip:
        at = re.search(r"\(byte (\d+)\)", str(slip))
        line = text.count(b"\n", 0, int(at[1])) + 1 if at else 0
        findings.wrong(line, "", str(slip))
        return nothing
    version = file.schema_version
    if version is None:
        findings.warnings.append(f"{findings.file}: no schemaVersion: taken for what it looks like")
    elif str(version) not in _KNOWN:
        findings.warnings.append(f"{findings.file}: schemaVersion {version} is not known here: read as {_KNOWN[-1]}")
    workflow = file.workflow
    tasks: list[Recorded] = []
    if workflow.specification is not None:
        tasks = _Reading(
            text, "workflow.specification.tasks", workflow.specification.tasks, findings, split=True
        ).tasks()
        _join(tasks, workflow.specification.tasks, workflow.execution, findings)
    elif (flat := workflow.tasks if workflow.tasks is not None else workflow.jobs) is not None:
        where = "workflow.tasks" if workflow.tasks is not None else "workflow.jobs"
        tasks = _Reading(text, where, flat, findings, split=False).tasks()
        for task, each in zip(tasks, flat, strict=True):
            _measure(task, each, findings)
            task.kind = _kind(each, each.command)
    else:
        mend = "A WfFormat file has workflow.specification.tasks (from 1.5 on) or workflow.tasks."
        findings.wrong(0, "workflow", "it has no tasks", mend)
    return Instance(_text(file.name), _text(file.description), tasks)


class _Reading:
    """One list of tasks, and where in the text each of them stands."""

    def __init__(self, text: bytes, where: str, raw: list[_Task], findings: Findings, split: bool) -> None:
        self._text = text
        self._where = where
        self._raw = raw
        self._findings = findings
        self._split = split

    def tasks(self) -> list[Recorded]:
        """The tasks with their edges."""
        tasks = [self._task(n, raw) for n, raw in enumerate(self._raw)]
        numbers = self._numbers(tasks)
        for n, (task, raw) in enumerate(zip(tasks, self._raw, strict=True)):
            for field, others in (("parents", raw.parents), ("children", raw.children)):
                if others is not None and not isinstance(others, list):
                    self._findings.wrong(task.line(), f"{task.key}.{field}", "it must be a list of tasks")
                    continue
                for place, other in enumerate(others or ()):
                    number = numbers.get(other) if isinstance(other, str) else None
                    if number is None:
                        mend = did_you_mean(other, numbers) if isinstance(other, str) and len(numbers) < 1000 else ""
                        key = f"{task.key}.{field}[{place}]"
                        self._findings.wrong(task.line(), key, f"there is no task {other!r}", mend)
                    elif field == "parents":
                        task.parents.add(number)
                    else:
                        tasks[number].parents.add(n)
        return tasks

    def _task(self, n: int, raw: _Task) -> Recorded:
        names = [
            name
            for name in ((raw.id, raw.name) if self._split else (raw.name, raw.id))
            if isinstance(name, str) and name
        ]
        key = f"{self._where}[{n}]"
        if not names:
            noun = "id" if self._split else "name"
            self._findings.wrong(0, f"{key}.{noun}", f"it must be a text, not {raw.id if self._split else raw.name!r}")
        first = names[0] if names else ""
        return Recorded(first, "", key, lambda: self._line(first), set())

    def _numbers(self, tasks: list[Recorded]) -> dict[str, int]:
        """What edges may call the tasks: id or name, as the version prefers, or else the other where it is unique."""
        first: dict[str, int] = {}
        second: dict[str, int] = {}
        doubtful: set[str] = set()
        for n, (task, raw) in enumerate(zip(tasks, self._raw, strict=True)):
            if task.name in first and self._split:
                other = tasks[first[task.name]].key
                self._findings.wrong(task.line(), f"{task.key}.id", f"{task.name!r} is the id of {other} as well")
            elif task.name in first:
                doubtful.add(task.name)
            first.setdefault(task.name, n)
            other_name = raw.name if self._split else raw.id
            if isinstance(other_name, str):
                if other_name in second:
                    doubtful.add(other_name)
                second.setdefault(other_name, n)
        for n, raw in enumerate(self._raw):
            # a name that repeats is still a name for people, with its id behind it
            if tasks[n].name in doubtful and not self._split and isinstance(raw.id, str):
                tasks[n].name = f"{raw.name}_{raw.id}"
        if self._split:
            return {**{name: n for name, n in second.items() if name not in doubtful}, **first}
        return {name: n for name, n in {**second, **first}.items() if name not in doubtful}

    def _line(self, name: str) -> int:
        """The line on which the task of this name or id says so."""
        noun = b"id" if self._split else b"name"
        found = re.search(b'"' + noun + rb'"\s*:\s*' + re.escape(msgspec.json.encode(name)), self._text)
        return self._text.count(b"\n", 0, found.start()) + 1 if found else 0


def _join(tasks: list[Recorded], raw: list[_Task], execution: _Half | None, findings: Findings) -> None:
    """Give the graph's tasks what the execution recorded of them."""
    records = execution.tasks if execution is not None else []
    numbers = {each.id: n for n, each in enumerate(raw) if isinstance(each.id, str)}
    seen: dict[int, _Task] = {}
    strangers = []
    for place, record in enumerate(records):
        n = numbers.get(record.id) if isinstance(record.id, str) else None
        key = f"workflow.execution.tasks[{place}]"
        if n is None:
            strangers.append(str(record.id))
        elif n in seen:
            findings.wrong(tasks[n].line(), f"{key}.id", f"{record.id!r} is recorded twice")
        else:
            seen[n] = record
            graph_key, tasks[n].key = tasks[n].key, key
            _measure(tasks[n], record, findings)
            tasks[n].key = graph_key
    for n, each in enumerate(raw):
        tasks[n].kind = _kind(each, seen[n].command if n in seen else each.command)
    if execution is None:
        findings.warnings.append(f"{findings.file}: no execution is recorded: every task ends at once")
    elif absent := [tasks[n].name for n in range(len(tasks)) if n not in seen]:
        findings.warnings.append(f"{findings.file}: nothing is recorded of {_some(absent)}: taken as 0 s")
    if strangers:
        findings.warnings.append(f"{findings.file}: recorded, but not in the graph, so left out: {_some(strangers)}")


def _measure(task: Recorded, raw: _Task, findings: Findings) -> None:
    """Take over duration, cores and memory."""

    def number(kilo: float, *fields: str) -> float:
        for field in fields:
            value = getattr(raw, field)
            if value is None:
                continue
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST:
                return value * kilo
            name = re.sub(r"_(\w)", lambda letter: letter[1].upper(), field)
            findings.wrong(task.line(), f"{task.key}.{name}", f"it must be a number from 0 up, not {shown(value, 40)}")
        return 0.0

    task.runtime_s = number(1, "runtime_in_seconds", "runtime")
    task.cores = max(1, math.ceil(number(1, "core_count", "cores")))
    task.memory_bytes = number(1, "memory_in_bytes") or number(1000, "memory")


def _kind(raw: _Task, command: object) -> str:
    """What kind of task it is: its category, its program where the name begins with that, or the name without its number."""
    if isinstance(raw.category, str) and raw.category:
        return raw.category
    name = _text(raw.name) or _text(raw.id)
    program = _text(command.get("program")) if isinstance(command, dict) else ""
    if program and name.startswith(program):
        return program
    return _NUMBERED.sub("", name) or name


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3:,} more"
