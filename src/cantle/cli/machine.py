"""On which machine does a run stand, and how is it watched from this terminal? What `run`, `map` and `resume` share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from cantle.model.study import Limits, Study
    from cantle.runtime.conducting import Conductor, Machine
    from cantle.store.layout import Layout

F = TypeVar("F", bound=Callable[..., Any])


def machine_options(command: F) -> F:
    """The options that say what of this machine may be used, and how to tell of it."""
    for option in reversed(
        (
            click.option(
                "--cores",
                type=click.IntRange(min=1),
                help="Use so many cores (default: those this process may use). "
                "More than exist: logical cores, tasks are not bound.",
            ),
            click.option("--gpus", type=click.IntRange(min=0), help="Use so many GPUs (default: those found here)."),
            click.option(
                "--memory", metavar="SIZE", help="Memory to hand out, as in 16 GB (default: what this process may use)."
            ),
            click.option(
                "--packer", default="best-fit", metavar="NAME", help="Packing policy: best-fit or module:function."
            ),
            click.option(
                "--grace",
                type=click.FloatRange(min=0),
                default=5.0,
                metavar="S",
                help="Seconds between TERM and KILL for a task that is ended (default 5).",
            ),
            click.option("-q", "--quiet", is_flag=True, help="Print failures only."),
            click.option(
                "--json",
                "as_json",
                is_flag=True,
                help="Print one JSON object a line: tasks that ended, then a summary.",
            ),
        )
    ):
        command = option(command)
    return command


def limit_options(command: F) -> F:
    """The options that bound a whole study."""
    for option in reversed(
        (
            click.option(
                "-t",
                "--throttle",
                type=click.IntRange(min=0),
                default=None,
                metavar="N",
                help="At most N tasks at once (0: no bound).",
            ),
            click.option(
                "-r",
                "--rlimit",
                type=click.IntRange(min=0),
                default=None,
                metavar="N",
                help="At most N restarts of a task that timed out (default 1; 0: no bound).",
            ),
            click.option(
                "--fail-fast", is_flag=True, help="After the first failure start nothing more and end what runs."
            ),
        )
    ):
        command = option(command)
    return command


def limits_of(study: Study, throttle: int | None, rlimit: int | None, fail_fast: bool) -> Limits:
    """The study's own limits, overruled by what the command line says."""
    from msgspec.structs import replace

    said: dict[str, Any] = {}
    if throttle is not None:
        said["throttle"] = throttle
    if rlimit is not None:
        said["rlimit"] = rlimit
    if fail_fast:
        said["fail_fast"] = True
    return replace(study.limits, **said)


def this_machine(cores: int | None, gpus: int | None, memory: str | None, grace: float) -> Machine:
    """This machine as an allocation, with the engine that turns tasks into processes."""
    from cantle.allocations.local import LocalAllocation
    from cantle.engines.process import ProcessEngine
    from cantle.runtime.conducting import Machine

    mib = None
    if memory is not None:
        from cantle.readers.quantities import memory_mib

        try:
            mib = memory_mib(memory)
        except ValueError as problem:
            raise click.BadParameter(str(problem), param_hint="--memory") from problem
    allocation = LocalAllocation(cores=cores, gpus=gpus, memory_mib=mib)
    allocation.prepare()
    return Machine(
        allocation,
        lambda inbox, layout, hide_gpus: ProcessEngine(
            inbox,
            str(layout.directory),
            home=str(layout.nodes.relative_to(layout.directory)),
            hide_gpus=hide_gpus,
            grace_s=grace,
        ),
    )


def conduct(conductor: Conductor, machine: Machine, *, packer: str, quiet: bool, as_json: bool) -> int:
    """Run it to its end, telling of it on the terminal. The exit status."""
    from cantle.core.decide import Decider
    from cantle.plugins import find
    from cantle.report.progress import choose_progress
    from cantle.report.statusfile import StatusFile

    journal = conductor.journal
    layout = conductor.layout
    status = StatusFile(layout.status)
    progress = choose_progress(
        conductor.state,
        json=as_json,
        quiet=quiet,
        durable=lambda: journal.synced,
        written=lambda: journal.written,
    )
    for note in machine.allocation.notes:
        progress.note(note)
    try:
        try:
            outcome = conductor.conduct(machine, Decider(find("packers", packer)), (progress, status))
        finally:
            conductor.close()
        status.write(outcome.state)
    except BaseException:
        progress.abandon()
        raise
    progress.finish(outcome.state, outcome.exit_code, layout.directory)
    return outcome.exit_code


def stamp() -> str:
    """What Maestro appends to the names of study directories."""
    from time import strftime

    return strftime("%Y%m%d-%H%M%S")


def say(text: str) -> None:
    """Tell the user, where it mixes with nothing that a program reads."""
    print(text, file=sys.stderr, flush=True)


def fresh_directory(wanted: Path | None, parent: Path, name: str, replace: bool) -> Layout:
    """The layout of a new run: where the user wants it, otherwise `parent/name_stamp`. Raises RequestError when taken."""
    from cantle.errors import RequestError
    from cantle.store.layout import Layout
    from cantle.store.lock import holder

    directory = wanted or parent / f"{name.replace(' ', '_')}_{stamp()}"
    number = 1
    while wanted is None and directory.exists():
        number += 1
        directory = parent / f"{name.replace(' ', '_')}_{stamp()}-{number}"
    layout = Layout(directory)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return layout
    if layout.exists() and (busy := holder(layout.lock)) is not None:
        raise RequestError(f"{directory} belongs to a run that is going on ({busy}); choose another directory with -o")
    was_a_run = layout.exists() or (directory / "meta" / "study").is_dir()
    if replace and was_a_run:
        from shutil import rmtree

        rmtree(directory)
        return layout
    if layout.exists():
        raise RequestError(
            f"{directory} holds an earlier run. Go on with it: cantle resume {directory}; "
            "or replace it: the same command with -y; or choose another directory with -o"
        )
    raise RequestError(
        f"{directory} exists and is not empty, and it is no run's directory, so it is not replaced. "
        "Choose another one with -o"
    )
