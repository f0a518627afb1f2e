"""What was the run told about its machines, and does that hold for whoever goes on with it here?

What was said last counts, where nothing else is said now. On another host the names of hosts and the kinds of node mean the
same, and what was said of the machine itself does not. Who stood in a batch job is led back into it, as long as it runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.runtime.whereabouts import in_a_batch_job

if TYPE_CHECKING:
    from argparse import Namespace

    from cantle.model.records import RunResumed, RunStarted
    from cantle.store.layout import Layout


def as_before(layout: Layout, asked: Namespace) -> None:
    """Let what the run was told about its machines hold again, where nothing else is said now, and tell of it.

    Raises RequestError when the run was in a batch job that cannot be entered from here, and nothing is said now.
    """
    from cantle.cli.machine import say

    begins, asked_at = _begins(layout)
    if asked_at is not None:
        asked.study_file = asked_at  # beside it hosts.yml is looked for
    told: list[str] = []
    left: list[str] = []
    job = ""
    for begin in reversed(begins):
        before = _understood(begin)
        if before is None or job:
            continue
        if begin.host == os.uname().nodename:
            told += _this_machine_as_before(asked, before)
        elif not (_is_placed(asked) or in_a_batch_job()):
            told += _hosts_as_before(asked, before, begin.host, left)
        told += _wherever_it_is(asked, before)
        if begin.job and not _is_placed(asked) and not _is_one_machine(before) and not in_a_batch_job():
            job = begin.job
            told += _enter(job, asked, before, layout)
            left.clear()
    if told:
        say(f"cantle: the machine as the run had it: {' '.join(told)}")
    if left and not _is_placed(asked):
        say(
            f"cantle: {'; '.join(left)}: that does not hold here. All of this machine is used; to say otherwise: -j, "
            "--nodes or --cores"
        )


def _begins(layout: Layout) -> tuple[list[RunStarted | RunResumed], Path | None]:
    """How each of the run's conductors began, the first one first; and the study's file."""
    from cantle.model.records import RunResumed, RunStarted, StudyAdded
    from cantle.store.journal import read
    from cantle.store.lines import record_in

    records = iter(read(layout.journal))
    started, added = next(records, None), next(records, None)
    if not isinstance(started, RunStarted):
        return [], None
    begins: list[RunStarted | RunResumed] = [started]
    with layout.journal.open("rb") as journal:  # the lines are not read: there may be millions
        for line in journal:
            if line.startswith(b'{"is":"RunResumed"'):
                try:
                    record = record_in(line.removesuffix(b"\n"))
                except ValueError:  # damaged
                    continue
                if isinstance(record, RunResumed):
                    begins.append(record)
    return begins, _study_file(layout, Path(started.cwd, added.source)) if isinstance(added, StudyAdded) else None


def _study_file(layout: Layout, source: Path) -> Path:
    """Where the study came from; the run's own copy when that is there no more, as kinds may stand in it."""
    copy = layout.directory / source.name
    return copy if not source.is_file() and copy.is_file() else source


def _understood(begin: RunStarted | RunResumed) -> Namespace | None:
    """What was said about machines, files by where they were; None when it cannot be understood any more."""
    from cantle.cli.command import Parser
    from cantle.cli.machine import machine_options

    words = list(begin.argv)[2:]
    parser = Parser(add_help=False, exit_on_error=False)
    machine_options(parser)
    try:
        before = parser.parse_known_args(words[: words.index("--")] if "--" in words else words)[0]
    except (SystemExit, Exception):  # noqa: BLE001 - what cannot be understood is not repeated
        return None
    stood = Path(begin.cwd)
    if before.kinds is not None and os.path.isfile(stood / before.kinds):  # noqa: PTH113 - Path fails on a long text
        before.kinds = str(stood / before.kinds)
    if before.hosts is not None:
        before.hosts = stood / before.hosts
    before.places = [f"@{stood / word[1:]}" if word[:1] == "@" else word for word in before.places]
    return before


def _is_placed(asked: Namespace) -> bool:
    """Whether it is said where the run goes on."""
    alone = asked.this_machine or asked.nodes is not None or asked.cores is not None or asked.launch is not None
    return bool(alone or asked.places or asked.kinds is not None or asked.listen)


def _is_one_machine(before: Namespace) -> bool:
    """Whether the run took but the machine under it of the job in which it stood."""
    return bool(before.this_machine or before.nodes or (before.places and not _stars(before)))


def _stars(before: Namespace) -> list[str]:
    """Of `-j` what stands for all nodes of a job."""
    return [word for word in before.places if word == "*" or word.startswith("*:")]


def _this_machine_as_before(asked: Namespace, before: Namespace) -> list[str]:
    """What was said of the machine on which the run was."""
    told = []
    if not asked.places and asked.nodes is None and asked.cores is None:
        if before.places:
            asked.places = before.places
            told.append(f"-j {' '.join(before.places)}")
        for name in ("nodes", "cores"):
            told += _repeat(asked, before, name)
    if asked.environment is None:
        told += _repeat(asked, before, "environment")
    return told + _of_each(asked, before)


def _of_each(asked: Namespace, before: Namespace) -> list[str]:
    told = []
    for name in ("gpus", "memory"):
        if getattr(asked, name) is None:
            told += _repeat(asked, before, name)
    if not asked.resource and before.resource:
        asked.resource = before.resource
        told += [f"--resource {name}={n}" for name, n in before.resource]
    return told


def _hosts_as_before(asked: Namespace, before: Namespace, host: str, left: list[str]) -> list[str]:
    """The hosts that were named, which mean the same here; `left` is told what was said of the machine there."""
    names = [word for word in before.places if not word.isdigit() and word not in _stars(before)]
    there = [word for word in before.places if word.isdigit()]
    if there:
        left.append(f"on host {host} the run had -j {' '.join(there)} for that machine")
    said = [(name, getattr(before, name)) for name in ("nodes", "cores")]
    left += [f"on host {host} the run had --{name} {value}" for name, value in said if value is not None]
    if not names:
        return []
    asked.places = names
    told = [f"-j {' '.join(names)}"]
    if asked.environment is None:
        told += _repeat(asked, before, "environment")
    return told


def _wherever_it_is(asked: Namespace, before: Namespace) -> list[str]:
    """What has nothing to do with the machine on which it was said."""
    told = []
    if asked.kinds is None:
        told += _repeat(asked, before, "kinds")
    if asked.hosts is None and (asked.places or asked.kinds):
        told += _repeat(asked, before, "hosts")
    if not asked.scaling and before.scaling:
        asked.scaling = before.scaling
        told += [f"--scaling {word}" for word in before.scaling]
    if asked.on_idle is None and before.on_idle:
        asked.on_idle = before.on_idle
        told.append(f"--on-idle {before.on_idle!r}")
    return told


def _in_a_job(layout: Layout) -> str:
    """What to do for that; a pilot is not submitted."""
    from cantle.report.failures import typed

    submitted = "" if layout.shared else f"cantle orchestrate {typed(layout.directory)}, or "
    return f"within a job ({submitted}type the same there, or in a new one)"


def _enter(job: str, asked: Namespace, before: Namespace, layout: Layout) -> list[str]:
    """Stand in that job as a shell of `salloc` does, with what was said of its nodes. Raises RequestError."""
    from cantle.allocations.batch.reentering import environment_of
    from cantle.errors import RequestError

    system, _, number = job.partition(" ")
    environ = environment_of(job)
    if environ is None:
        is_over = (
            "which does not run any more, as far as is seen from here"
            if system == "Slurm" and number
            else "which cannot be entered from here"
        )
        raise RequestError(
            f"the run was in {f'job {number} of {system}' if number else f'a job of {system}'}, {is_over}. Say where it shall "
            f"go on: {_in_a_job(layout)}, on hosts by ssh (-j HOST:CORES ...), on nodes that are asked for (--kinds), or on "
            "this machine alone (--this-machine)"
        )
    os.environ.update(environ)
    told = [f"job {number} of {system}, which still runs"]
    if stars := _stars(before):
        asked.places = stars
        told.append(f"-j {' '.join(stars)}")
    elif asked.cores is None:
        told += _repeat(asked, before, "cores")
    return [*told, *_of_each(asked, before)]


def _repeat(asked: Namespace, before: Namespace, name: str) -> list[str]:
    value = getattr(before, name)
    if value is None:
        return []
    setattr(asked, name, value)
    return [f"--{name} {f'{value:g}MiB' if name == 'memory' else value}"]
