"""On which machine does a run stand, and how is it watched from this terminal? What `run`, `map` and `resume` share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cantle.cli.command import amount, at_least

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.model.study import Limits, Study
    from cantle.runtime.conducting import Conductor, Machine
    from cantle.store.layout import Layout


def machine_options(parser: ArgumentParser) -> None:
    """The options that say what of this machine may be used, and how to tell of it."""
    group = parser.add_argument_group("this machine")
    group.add_argument(
        "--cores",
        type=at_least(1),
        metavar="N",
        help="use so many cores (default: those this process may use); more than exist: tasks are not bound to cores",
    )
    group.add_argument("--gpus", type=at_least(0), metavar="N", help="use so many GPUs (default: those found here)")
    group.add_argument(
        "--memory",
        type=amount("memory_mib"),
        metavar="SIZE",
        help="memory to hand out, as in 16GB (default: what there is)",
    )
    group.add_argument(
        "--packer", default="best-fit", metavar="NAME", help="packing policy: best-fit (default) or module:function"
    )
    group.add_argument(
        "--grace",
        type=at_least(0, float),
        default=5.0,
        metavar="S",
        help="seconds between TERM and KILL for a task that is ended (default 5)",
    )
    telling = parser.add_argument_group("what is told")
    telling.add_argument("-q", "--quiet", action="store_true", help="print failures only")
    telling.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help="print one JSON object a line: tasks that ended, then a summary",
    )


def limit_options(parser: ArgumentParser) -> None:
    """The options that bound a whole study."""
    group = parser.add_argument_group("limits")
    group.add_argument("-t", "--throttle", type=at_least(0), metavar="N", help="at most N tasks at once (0: no bound)")
    group.add_argument(
        "-r",
        "--rlimit",
        type=at_least(0),
        metavar="N",
        help="at most N restarts of a task that timed out (default 1; 0: no bound)",
    )
    group.add_argument(
        "--fail-fast", action="store_true", help="after the first failure start nothing more and end what runs"
    )


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


def this_machine(asked: Namespace) -> Machine:
    """This machine as an allocation, with the engine that turns tasks into processes.

    Call it before anything large is read: a runner is forked here.
    """
    from cantle.allocations.local import LocalAllocation

    memory = None if asked.memory is None else int(asked.memory)
    allocation = LocalAllocation(cores=asked.cores, gpus=asked.gpus, memory_mib=memory)
    allocation.prepare()

    from cantle.engines.process import ProcessEngine
    from cantle.runtime.conducting import Machine

    grace_s = asked.grace
    return Machine(
        allocation,
        lambda inbox, layout, hide_gpus: ProcessEngine(
            inbox,
            str(layout.directory),
            home=str(layout.nodes.relative_to(layout.directory)),
            hide_gpus=hide_gpus,
            grace_s=grace_s,
        ),
    )


def conduct(conductor: Conductor, machine: Machine, asked: Namespace) -> int:
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
        json=asked.as_json,
        quiet=asked.quiet,
        durable=lambda: journal.synced,
        written=lambda: journal.written,
    )
    for note in machine.allocation.notes:
        progress.note(note)
    try:
        try:
            outcome = conductor.conduct(machine, Decider(find("packers", asked.packer)), (progress, status), progress.note)
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
