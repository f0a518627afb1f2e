"""`cantle resume`: go on where a run ended, however it ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.before import as_before
from cantle.cli.command import Command
from cantle.cli.machine import conduct, machine_options, say, this_machine

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.model.study import Study
    from cantle.store.layout import Layout


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", type=Path, help="the run's directory")
    parser.add_argument(
        "--study",
        type=Path,
        metavar="FILE",
        help="the study as it reads now: what is new or reads differently runs, and what follows from it; the rest is kept",
    )
    parser.add_argument(
        "--keep-failed", action="store_true", help="do not try failed, timed out or canceled tasks again"
    )
    parser.add_argument(
        "--take-over", action="store_true", help="the conductor on another machine is dead, although it looks alive"
    )
    machine_options(parser)


def _resume(asked: Namespace) -> int:
    from cantle.store.layout import Layout

    layout = Layout(asked.directory).require()
    if layout.shared:
        _refuse_a_pilot(layout)
    as_before(layout, asked)
    if layout.shared:
        _take_out(layout)  # not before: what cannot be gone on with here stays the pilot's
    machine = this_machine(asked)

    from cantle.runtime.resuming import resume

    changed = None
    if asked.study is not None:
        from cantle.cli.reading import read_like_before

        changed = read_like_before(layout, asked.study)
    conductor = resume(
        layout,
        reopen,
        changed=changed,
        retry=not asked.keep_failed,
        take_over=asked.take_over,
        note=lambda text: say(f"cantle: {text}"),
    )
    if conductor is None:
        machine.allocation.close()
        say(f"cantle: all tasks of the run in {layout.directory} are done; there is nothing to go on with")
        return 0
    return conduct(conductor, machine, asked)


def _refuse_a_pilot(layout: Layout) -> None:
    from cantle.errors import RequestError
    from cantle.runtime.pilot.address import is_pilot

    if is_pilot(layout):
        raise RequestError(
            f"{layout.directory} is the directory of a pilot: go on with all of its studies with "
            f"`cantle up {layout.directory}`, or with one of them by its own directory"
        )


def _take_out(layout: Layout) -> None:
    """A study of a pilot that is not up goes on by itself from now on."""
    from cantle.runtime.pilot.leaving import take_out

    take_out(layout, lambda text: say(f"cantle: {text}"))


def reopen(reader: str, folder: Path) -> Study:
    """The study of a run again, by its reader's name, from the folder in which the run keeps it.

    Raises RequestError when nobody can make it again.
    """
    from cantle.model.study import OF_A_PROGRAM
    from cantle.plugins import made

    if reader == OF_A_PROGRAM:
        from cantle.errors import RequestError

        raise RequestError(
            "this run is calls that a Python program made, and only that program can make them again: run it anew"
        )
    study: Study = made("readers", reader).reopen(folder)
    return study


RESUME = Command(
    "resume",
    "",
    _arguments,
    _resume,
    """\
Finished tasks are never run again. What was running when the run ended gets a new attempt, and so do tasks that failed
or were canceled. What the run was told about the machine (--nodes, --cores, --gpus, --memory, --resource) holds again on the
same host, hosts (-j) and kinds of node from everywhere, unless you say something else. A run that was in a job of Slurm goes
on in it while it runs; when it is over, say where: in a new job, -j, --kinds or --this-machine. A study that was edited
meanwhile does not count, unless you name it with --study.

Exit status: as of `cantle run`.""",
    """\
  cantle resume out                        after a crash, Ctrl-C, kill -9, a full disk or failed tasks
  cantle resume out --keep-failed          leave failed and canceled tasks as they are
  cantle resume out --study study.yaml     the study was edited: run again what changed, keep the rest""",
)
