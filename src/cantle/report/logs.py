"""What did a task print, and where does it lie?

A task with a workspace has files of its own there, `NAME.PID.out` and `.err`, as Maestro names them. Small tasks share a
few files, and the record of an attempt's end tells which bytes are its own; before its end nobody knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from time import sleep
from typing import BinaryIO, Literal, NamedTuple

from cantle.core.phases import ACTIVE
from cantle.errors import RequestError
from cantle.model.records import AnyRecord, TaskEnded, TaskStarted
from cantle.model.streams import output_stem
from cantle.report.failures import typed
from cantle.report.loading import Run
from cantle.store.journal import read

Stream = Literal["out", "err"]

_CHUNK = 1 << 16
_PAUSE_S = 0.1


class Attempt(NamedTuple):
    """What the journal tells of an attempt: its process, and when it has ended, where its packed output lies."""

    pid: int = 0
    ended: bool = False
    output: str = ""


_UNKNOWN = Attempt()


class Part(NamedTuple):
    """A stretch of a file; `length` -1: to its end."""

    file: Path
    offset: int = 0
    length: int = -1


def print_log(
    run: Run, task: int, number: int | None, stream: Stream, follow: bool, into: BinaryIO, of: int | None = None
) -> None:
    """Write what the attempt (None: the last) printed. Raises RequestError when there is nothing to be had yet.

    `of` names one of the processes of a task that has several (its `streams`); None: all, one after another.
    """
    state = run.state
    processes = _processes(run, task, number)
    if of is not None and of >= processes:
        have = f"has the streams 0 to {processes - 1}" if processes else "has no streams"
        raise RequestError(f"{state.tasks[task].name} {have}, so there is none with number {of}")
    if processes and of is None:
        if follow:
            raise RequestError(f"{state.tasks[task].name} has {processes} streams; follow one of them: --stream 0, say")
        _print_all(run, task, number, stream, into)
        return
    name = state.tasks[task].name
    number = number or state.attempts[task]
    if follow and not number:
        number = _wait_for_start(run, task)
    if not number:
        raise RequestError(f"{name} has not started yet. To learn why: cantle explain {typed(run.directory)} {name}")
    if number > state.attempts[task]:
        raise RequestError(f"{name} has had {state.attempts[task]} attempts, there is none with number {number}")
    attempt = attempt_of(read(run.layout.journal), task, number)
    done = 0
    while True:
        part = where(run, task, attempt, stream) if of is None else where_of(run, task, number, attempt, stream, of)
        if part is not None:
            done += _copy(part, done, into)
        if attempt.ended or state.attempts[task] != number or state.phases[task] not in ACTIVE:
            break
        if not follow:
            if part is None:
                raise RequestError(_not_yet(run, task, number))
            break
        if run.conductor is None:
            break
        sleep(_PAUSE_S)
        attempt = attempt_of(run.refresh(), task, number, attempt)
    if part is None:
        raise RequestError(_nothing(run, task, number, stream))


def attempt_of(records: Iterable[AnyRecord], task: int, number: int, known: Attempt = _UNKNOWN) -> Attempt:
    """What the records tell of an attempt, added to what is known."""
    for record in records:
        if isinstance(record, TaskStarted) and record.task == task and record.attempt == number:
            known = known._replace(pid=record.pid)
        elif isinstance(record, TaskEnded) and record.task == task and record.attempt == number:
            known = known._replace(pid=record.pid or known.pid, ended=True, output=record.output)
    return known


def where(run: Run, task: int, attempt: Attempt, stream: Stream) -> Part | None:
    """Where the attempt's output lies; None when that cannot be told (yet)."""
    if attempt.output:
        return _packed(run.directory, attempt.output, stream)
    workspace = run.state.tasks[task].workspace
    if not workspace:
        return None
    folder = Path(run.directory, workspace)
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError:
        return None
    if attempt.pid:
        names = [name for name in names if name.endswith(f".{attempt.pid}.{stream}")]
    else:
        begin = f"{run.state.tasks[task].name}."
        names = [name for name in names if name.startswith(begin) and name.endswith(f".{stream}")]
    files = [folder / name for name in names]
    return Part(max(files, key=lambda file: file.stat().st_mtime)) if files else None


def where_of(run: Run, task: int, number: int, attempt: Attempt, stream: Stream, of: int) -> Part | None:
    """The same for one process of an attempt that has several."""
    if attempt.output:
        return _packed(run.directory, attempt.output.split("\n")[of], stream)
    folder = Path(run.directory, run.state.tasks[task].workspace)
    end = f".{output_stem('', of, number)[1:]}.{stream}"
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(end)]
    except OSError:
        return None
    names = [name for name in names if number > 1 or ".attempt-" not in name]
    begin = f"{run.state.tasks[task].name}."
    names = [name for name in names if name.startswith(begin)] or names
    return Part(folder / min(names)) if names else None


def _processes(run: Run, task: int, number: int | None) -> int:
    """How many processes of the attempt have output of their own; 0 for one that is a single process."""
    streams = run.state.step_of(task).streams
    if streams or not run.state.tasks[task].workspace:
        return streams
    # Ranks that Cantle starts itself write as streams do. Nobody wrote down how many there were.
    number = number or run.state.attempts[task]
    stem = str(Path(run.directory, run.state.tasks[task].workspace, run.state.tasks[task].name))
    ranks = 0
    while number and Path(f"{output_stem(stem, ranks, number)}.out").exists():
        ranks += 1
    return ranks


def _print_all(run: Run, task: int, number: int | None, stream: Stream, into: BinaryIO) -> None:
    """What each process of the attempt printed, under a line that says which it is."""
    number = number or run.state.attempts[task]
    attempt = attempt_of(read(run.layout.journal), task, number)
    some = False
    for of in range(_processes(run, task, number)):
        part = where_of(run, task, number, attempt, stream, of)
        if part is not None:
            into.write(f"==> stream {of} <==\n".encode())
            _copy(part, 0, into)
            some = True
    if not some:
        ended = attempt.ended or number == 0
        raise RequestError(_nothing(run, task, number, stream) if ended else _not_yet(run, task, number))


def _packed(directory: Path, output: str, stream: Stream) -> Part | None:
    told = output.split("\t")
    index = 0 if stream == "out" else 1
    if index >= len(told):
        return None
    name, offset, length = told[index].rsplit(" ", 2)
    return Part(directory / name, int(offset), int(length))


def _copy(part: Part, done: int, into: BinaryIO) -> int:
    """Write what lies beyond the first `done` bytes of the part. How many bytes that were."""
    copied = 0
    try:
        with open(part.file, "rb") as file:
            file.seek(part.offset + done)
            while True:
                most = _CHUNK if part.length < 0 else min(_CHUNK, part.length - done - copied)
                data = file.read(most) if most > 0 else b""
                if not data:
                    break
                into.write(data)
                copied += len(data)
    except BrokenPipeError:  # whoever reads has enough
        raise
    except OSError as error:
        raise RequestError(f"cannot read {part.file}: {error.strerror}") from error
    into.flush()
    return copied


def _wait_for_start(run: Run, task: int) -> int:
    while not run.state.attempts[task] and run.conductor is not None and not run.state.finished:
        sleep(_PAUSE_S)
        run.refresh()
    return run.state.attempts[task]


def _not_yet(run: Run, task: int, number: int) -> str:
    name = run.state.tasks[task].name
    if run.state.tasks[task].workspace:
        return f"attempt {number} of {name} has no output file yet; try again in a moment, or with --follow"
    return (
        f"attempt {number} of {name} still runs, and its output lies in a file that it shares with other tasks: "
        f"which part is its own is known when it has ended. Wait for that with --follow"
    )


def _nothing(run: Run, task: int, number: int, stream: Stream) -> str:
    name = run.state.tasks[task].name
    place = typed(run.directory / (run.state.tasks[task].workspace or run.layout.nodes))
    why = run.state.ended.get(task)
    if why is not None and why.attempt == number and why.outcome == "unstartable":
        return f"attempt {number} of {name} printed nothing: it could not be started: {why.detail}"
    return f"attempt {number} of {name} left no std{stream} in {place}; was it removed?"
