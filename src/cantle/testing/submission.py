"""Does a batch system say all that is asked of it, and does it bear that nobody answers?

def test_my_batch_system_keeps_its_promises():
    check_batch_system(MyBatchSystem())
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from cantle.allocations.submission.base import BatchSystem
from cantle.allocations.submission.wanted import JobWanted, Stage
from cantle.errors import MachineError, RequestError

_JOB = JobWanted(
    name="name4711",
    script="/somewhere/script4711.sh",
    output="/somewhere/output4711",
    directory="/somewhere",
)
_ASKED: dict[str, tuple[Any, str]] = {
    "nodes": (4711, "4711"),
    "cores": (4713, "4713"),
    "gpus": (4715, "4715"),
    "memory_mib": (4717, "4717"),
    "queue": ("queue4711", "queue4711"),
    "account": ("account4711", "account4711"),
    "reservation": ("reservation4711", "reservation4711"),
    "qos": ("qos4711", "qos4711"),
    "constraint": ("constraint4711", "constraint4711"),
    "extra": (("--extra=4711", "more4711"), "more4711"),
}
"""What may be asked for, and what of it has to be found among the words."""


def check_batch_system(system: BatchSystem) -> None:
    """Check the words for jobs of every sort, and what comes of each call where no command of the batch system is there.

    What is asked for is said to the batch system or refused with a RequestError; nothing is left out in silence. The same
    question gets the same words. Nothing is submitted.
    """
    name = system.name
    assert name and system.submits_by, (
        f"{name!r}: it needs a name, and the command by which it is known that it is here"
    )
    plain = _words(system, _JOB)
    assert plain == _words(system, _JOB), f"{name}: the same job gets other words when it is asked again"
    assert plain[0] == system.submits_by, f"{name}: {plain[0]!r} submits, but `submits_by` says {system.submits_by!r}"
    for what, text in (
        ("script", _JOB.script),
        ("output", _JOB.output),
        ("nodes", str(_JOB.nodes)),
        ("name", _JOB.name),
    ):
        assert any(text in word for word in plain), f"{name}: the job's {what}, {text}, is not among the words: {plain}"
    for what, (value, text) in _ASKED.items():
        _said_or_refused(system, what, replace(_JOB, **{what: value}), text)
    after = system.words(_JOB, "job4711")
    assert any("job4711" in word for word in after), f"{name}: the job that is to be over before is not among the words"
    for minutes in (1, 90, 6000):
        timed = system.words(replace(_JOB, walltime_s=60.0 * minutes))
        assert timed != plain, f"{name}: {minutes} minutes of walltime change nothing in the words"
        assert timed != system.words(replace(_JOB, walltime_s=60.0 * (minutes + 1))), (
            f"{name}: {minutes} and {minutes + 1} minutes of walltime are said in the same words"
        )
    with _no_commands():
        standing = system.look("4711")
        assert standing.stage is Stage.UNKNOWN, (
            f"{name}: nobody can be asked about a job, and it is said to be {standing}"
        )
        assert system.offer("") is None, f"{name}: nobody can be asked about the nodes, and something is told of them"
        for call in (lambda: system.submit(_JOB), lambda: system.cancel("4711")):
            try:
                call()
            except MachineError:
                continue
            raise AssertionError(f"{name}: without its commands a call has to end in a MachineError, and it did not")


def _words(system: BatchSystem, job: JobWanted) -> list[str]:
    words = system.words(job)
    assert words and all(isinstance(word, str) for word in words), f"{system.name}: words are texts, not {words!r}"
    return words


def _said_or_refused(system: BatchSystem, what: str, job: JobWanted, text: str) -> None:
    try:
        words = _words(system, job)
    except RequestError:
        return
    assert any(text in word for word in words), (
        f"{system.name}: {what} is asked for, and neither said nor refused: {words}"
    )


@contextmanager
def _no_commands() -> Iterator[None]:
    """As if nothing were installed."""
    before = os.environ.get("PATH")
    with TemporaryDirectory() as empty:
        os.environ["PATH"] = empty
        try:
            yield
        finally:
            if before is None:
                del os.environ["PATH"]
            else:
                os.environ["PATH"] = before
