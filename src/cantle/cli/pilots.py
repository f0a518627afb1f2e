"""`cantle up`, `jobs`, `down`: an allocation that is held for several studies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import USAGE_ERROR, Command
from cantle.cli.daemon import Herald, go_on_without_terminal
from cantle.cli.elastic import heed_scaling, take_back_leftovers
from cantle.cli.ending import heed
from cantle.cli.machine import machine_options, say, this_machine
from cantle.runtime.whereabouts import in_a_batch_job

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.core.studies import StudyState
    from cantle.model.study import Study
    from cantle.report.statusfile import StatusFile
    from cantle.runtime.pilot.messages import Job, Told
    from cantle.store.layout import Layout
    from cantle.store.lock import Holder

_PAUSE_S = 0.05


def _name_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        default="default",
        help="the pilot's name, or its directory (default: default)",
    )


def _up_arguments(parser: ArgumentParser) -> None:
    _name_argument(parser)
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="the pilot's own directory (default: one in the user's state directory)"
    )
    parser.add_argument(
        "--for-one-program",
        action="store_true",
        help="end when the program that comes to it (`cantle.open` in Python) has left, or none came within a minute",
    )
    parser.add_argument("--foreground", action="store_true", help="stay here, until Ctrl-C or `cantle down`")
    machine_options(parser)


def _up(asked: Namespace) -> int:
    from cantle.errors import RequestError
    from cantle.runtime.pilot.address import directory_of, is_pilot, name_at
    from cantle.store.layout import Layout
    from cantle.store.lock import holder

    layout = Layout(name_at(asked.name, asked.dir) if asked.dir else directory_of(asked.name))
    if (busy := holder(layout.lock)) is not None:
        raise RequestError(_up_already(asked.name, str(busy)))
    if layout.exists() and not is_pilot(layout):
        raise RequestError(f"{layout.directory} is the directory of a run; choose another one with --dir")
    layout.create()
    if asked.foreground:
        return _hold(layout, asked, Herald())
    log = layout.directory / "pilot.log"
    try:
        go_on_without_terminal(log, lambda herald: _hold(layout, asked, herald))
    except RequestError as problem:
        if not asked.for_one_program:
            raise
        say(f"cantle: {problem}")
        return USAGE_ERROR  # by which the program knows whose fault it is
    if asked.as_json:
        import msgspec

        there = holder(layout.lock)
        told = {"pilot": asked.name, "directory": str(layout.directory), "pid": there.pid if there else 0}
        print(msgspec.json.encode(told).decode(), flush=True)
    elif not asked.quiet:
        print(f"the pilot {asked.name} is up ({holder(layout.lock)}); its directory is {layout.directory}")
        print(f"Give it studies: cantle submit STUDY{_option(asked.name)}; end it: cantle down{_word(asked.name)}")
        if in_a_batch_job():
            stays = f"cantle up{_word(asked.name)} --foreground"
            print(f"It is in a batch job, which is over when its script is; a script that ends with `{stays}` stays")
    return 0


def _up_already(name: str, who: str) -> str:
    return (
        f"the pilot {name} is up already ({who}). Give it studies with `cantle submit --pilot {name}`, "
        f"or end it with `cantle down {name}`"
    )


def _option(name: str) -> str:
    return "" if name == "default" else f" --pilot {name}"


def _word(name: str) -> str:
    return "" if name == "default" else f" {name}"


def _hold(layout: Layout, asked: Namespace, herald: Herald) -> int:
    """Be the pilot's conductor until it ends."""
    from cantle.errors import CantleError, LockedError, UserError

    try:
        if layout.exists():
            from cantle.cli.before import as_before

            as_before(layout, asked)
        machine = this_machine(asked, tell=herald.note)

        from cantle.allocations.forking import allow_many_files
        from cantle.core.decide import Decider
        from cantle.plugins import find
        from cantle.runtime.patience import bounded
        from cantle.runtime.pilot.conductor import Surroundings, begin

        decider = Decider(bounded(find("packers", asked.packer), asked.packer), asked.packer)
        heed_scaling(decider, asked)
        try:
            pilot = begin(layout, asked.name)
        except BaseException as problem:
            machine.allocation.close()
            if isinstance(problem, LockedError):  # somebody was quicker
                raise LockedError(_up_already(asked.name, "begun this very moment")) from problem
            raise
        pilot.for_one_program = asked.for_one_program
        _spare_the_collector()
        allow_many_files()  # each study has two open
        try:
            take_back_leftovers(layout, _note)
            if not asked.for_one_program:  # otherwise the program does so
                _sweep()
            heed(pilot.record, asked)
            pilot.conduct(machine, decider, Surroundings(_reopen, _keep_status, herald.ready, _note))
        finally:
            pilot.close()
    except CantleError as problem:
        herald.failed(str(problem), isinstance(problem, UserError))
        _note(str(problem))
        return problem.exit_code
    why = pilot.state.stopping
    herald.failed(why)  # where it never was ready
    _note(f"the pilot {asked.name} has ended{': ' if why else ''}{why}")
    if asked.for_one_program and not why:
        from cantle.runtime.pilot import private

        private.has_ended(layout)
    return 0


def _sweep() -> None:
    """What pilots have left that are dead, beside whatever else goes on."""
    from threading import Thread

    from cantle.runtime.pilot import private

    Thread(target=private.sweep, args=(_note,), name="cantle-sweep", daemon=True).start()


def _spare_the_collector() -> None:
    """What has been loaded by now stays: no collection need look at it again."""
    import gc

    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def _reopen(reader: str, folder: Path) -> Study:
    from cantle.plugins import made

    study: Study = made("readers", reader).reopen(folder)
    return study


def _keep_status(path: Path, study: StudyState) -> StatusFile:
    from cantle.report.statusfile import StatusFile

    return StatusFile(path, study=study)


def _note(text: str) -> None:
    from time import strftime

    say(f"{strftime('%Y-%m-%d %H:%M:%S')} {text}")


UP = Command(
    "up",
    "",
    _up_arguments,
    _up,
    """\
A pilot holds this machine, and runs the studies that it is given side by side, until it is taken down. When it was killed,
the same command goes on with all of its studies; finished tasks are never run again.

Exit status: 0 when it is up, 1 otherwise.""",
    """\
  cantle up                            hold all of this machine
  cantle up night --nodes 8x4          another one, of eight nodes with four cores each
  cantle submit study.yaml; cantle jobs; cantle down""",
)


def _jobs_arguments(parser: ArgumentParser) -> None:
    _name_argument(parser)
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")


def _jobs(asked: Namespace) -> int:
    from cantle.errors import RequestError
    from cantle.runtime.pilot.address import directory_of, is_pilot
    from cantle.store.layout import Layout
    from cantle.store.lock import holder

    layout = Layout(directory_of(asked.name))
    if not layout.exists() or not is_pilot(layout):
        raise RequestError(f"there is no pilot {asked.name}; begin one with: cantle up{_word(asked.name)}")
    there = holder(layout.lock)
    told = _told(asked.name, layout, there)
    if asked.as_json:
        import msgspec

        condition = "down" if there is None else "draining" if told.draining else "up"
        print(msgspec.json.encode({"pilot": asked.name, "state": condition, "jobs": told.jobs}).decode(), flush=True)
        return 0
    print(_headline(asked.name, there, told.draining, told.jobs))
    for line in _table(told.jobs):
        print(line)
    return 0


def _told(name: str, layout: Layout, there: Holder | None) -> Told:
    """What the pilot tells; its journal, if it is not up, or cannot be asked as it is on another host."""
    from cantle.errors import CantleError, RequestError
    from cantle.runtime.pilot.jobs import jobs_of, left_jobs
    from cantle.runtime.pilot.messages import Jobs, Told
    from cantle.runtime.pilot.rebuilding import rebuild
    from cantle.runtime.pilot.visiting import ask, is_elsewhere

    if there is None:
        return Told(left_jobs(rebuild(layout.journal).state))
    try:
        told = ask(layout.directory, name, Jobs())
    except CantleError:
        if not is_elsewhere(there):
            raise
        return Told(jobs_of(rebuild(layout.journal).state))
    if not isinstance(told, Told):
        raise RequestError(f"the pilot {name} gave an answer that makes no sense here")
    return told


def _headline(name: str, there: Holder | None, draining: bool, jobs: list[Job]) -> str:
    unfinished = sum(job.state not in ("done", "failed", "canceled") for job in jobs)
    studies = f"{len(jobs):,} {'study' if len(jobs) == 1 else 'studies'}, {unfinished:,} not over"
    if there is None:
        end = f"; go on with it: cantle up{_word(name)}" if unfinished else ""
        return f"the pilot {name} is not up: {studies}{end}"
    condition = "is up, and ends when all studies are over" if draining else "is up"
    return f"the pilot {name} {condition} ({there}): {studies}"


def _table(jobs: list[Job]) -> list[str]:
    """The studies, in aligned columns."""
    from time import time

    from cantle.report.wording import duration, printable

    if not jobs:
        return []
    rows = [("job", "state", "done/total", "failed", "running", "priority", "age", "directory")]
    rows += [
        (
            printable(job.job),
            job.state,
            f"{job.done:,}/{job.tasks:,}",
            f"{job.failed:,}",
            f"{job.running:,}",
            f"{job.priority:g}",
            duration(max(0.0, time() - job.since)),
            printable(job.directory),
        )
        for job in jobs
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    to_the_right = range(2, 7)
    return [
        "  ".join(row[i].rjust(n) if i in to_the_right else row[i].ljust(n) for i, n in enumerate(widths)).rstrip()
        for row in rows
    ]


JOBS = Command(
    "jobs",
    "",
    _jobs_arguments,
    _jobs,
    "Also of a pilot that is not up: then how they stood when it ended.",
    """\
  cantle jobs
  cantle jobs night
  cantle jobs --json | jq '.jobs[] | select(.state == "running")'""",
)


def _down_arguments(parser: ArgumentParser) -> None:
    _name_argument(parser)
    parser.add_argument(
        "--now", action="store_true", help="do not wait for the studies: end what runs, so that they go on another day"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def _down(asked: Namespace) -> int:
    from time import sleep

    from cantle.runtime.pilot.address import directory_of
    from cantle.runtime.pilot.messages import Down, Going
    from cantle.runtime.pilot.visiting import ask
    from cantle.store.layout import Layout
    from cantle.store.lock import holder

    layout = Layout(directory_of(asked.name))
    there = holder(layout.lock)
    answer = ask(layout.directory, asked.name, Down(asked.now))
    if isinstance(answer, Going) and answer.unfinished and not (asked.now or asked.quiet):
        left = "one study is" if answer.unfinished == 1 else f"{answer.unfinished:,} studies are"
        say(f"cantle: {left} not over; the pilot ends with the last one (Ctrl-C: do not wait for that)")
    while (now := holder(layout.lock)) is not None and there is not None and now.pid == there.pid:
        sleep(_PAUSE_S)
    if not asked.quiet:
        print(f"the pilot {asked.name} is down")
    return 0


DOWN = Command(
    "down",
    "",
    _down_arguments,
    _down,
    """\
It takes in no more studies, and ends when all that it has are over. With --now it ends at once; `cantle up` goes on with
its studies, or `cantle resume DIR` with one of them by itself.

Exit status: 0 when it is down, 1 otherwise.""",
    """\
  cantle down
  cantle down night --now""",
)
