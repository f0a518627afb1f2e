"""On which machine does a run stand, and how is it watched from this terminal? What `run`, `map` and `resume` share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cantle.cli.command import amount, at_least, named_amount, wrong
from cantle.cli.elastic import (
    elastic_options,
    heed_scaling,
    kinds_asked,
    scaling_asked,
    take_back_leftovers,
    takes_part,
)
from cantle.cli.ending import ending_options, heed
from cantle.cli.fleet import fleet_options, with_others
from cantle.cli.places import RestartsOrHost, environment_of, place_options, settle
from cantle.cli.unused import may_be_unused, of_the_machine
from cantle.errors import printable
from cantle.runtime.whereabouts import in_a_batch_job

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    from cantle.allocations.fleet.allocation import FleetAllocation
    from cantle.allocations.fleet.source import Source
    from cantle.allocations.groups import Group
    from cantle.allocations.providers.elastic import ElasticAllocation
    from cantle.cli.inside import Around
    from cantle.core.decide import Decider
    from cantle.core.plan import Policy
    from cantle.core.state import State
    from cantle.model.study import Limits, Study
    from cantle.report.progress import Progress
    from cantle.report.statusfile import StatusFile
    from cantle.runtime.conducting import Conductor, Machine, Outcome
    from cantle.runtime.inbox import SelectInbox
    from cantle.store.layout import Layout


_PACKER = "best-fit"
_GRACE_S = 5.0


def machine_options(parser: ArgumentParser) -> None:
    """The options that say what of which machine may be used, and how to tell of it."""
    place_options(parser)
    parser.set_defaults(launch=None)
    group = parser.add_argument_group("this machine")
    group.add_argument(
        "--cores",
        type=at_least(0),
        metavar="N",
        help="use so many cores (default: those this process may use); more than exist: tasks are not bound to cores; "
        "0, where others serve: none of this machine",
    )
    group.add_argument(
        "--nodes",
        metavar="NxCORES[:GPUS]",
        help="deal this machine out to nodes, as in 8x4 or 2x8,4x2@small; more cores than exist: tasks are not bound",
    )
    group.add_argument("--gpus", type=at_least(0), metavar="N", help="use so many GPUs (default: those found here)")
    group.add_argument(
        "--memory",
        type=amount("memory_mib"),
        metavar="SIZE",
        help="memory to hand out, as in 16GB (default: what there is); with --nodes each node's",
    )
    group.add_argument(
        "--resource",
        action="append",
        default=[],
        type=named_amount,
        metavar="NAME=N",
        help="so many of a thing that steps ask for under `resources`, licences say; may be repeated",
    )
    group.add_argument(
        "--packer",
        metavar="NAME",
        help="packing policy: best-fit (default), first-fit, spread, module:function or FILE.py:function",
    )
    group.add_argument(
        "--grace",
        type=at_least(0, float),
        metavar="S",
        help="seconds between TERM and KILL for a task that is ended (default 5)",
    )
    fleet_options(parser)
    elastic_options(parser)
    ending_options(parser)
    telling_options(parser, "print one JSON object a line: tasks that ended, then a summary")


def telling_options(parser: ArgumentParser, as_json: str) -> None:
    """The options that say how much is told; `as_json` is what --json prints."""
    telling = parser.add_argument_group("what is told")
    telling.add_argument("-q", "--quiet", action="store_true", help="print failures only")
    telling.add_argument("--json", action="store_true", dest="as_json", help=as_json)


def limit_options(parser: ArgumentParser, remote: bool = False) -> None:
    """The options that bound a whole study. With `remote`, -r may name a host as well."""
    group = parser.add_argument_group("limits")
    group.add_argument("-t", "--throttle", type=at_least(0), metavar="N", help="at most N tasks at once (0: no bound)")
    restarts = "at most N restarts of a task that timed out (default 1; 0: no bound)"
    if remote:
        group.add_argument(
            "-r", action=RestartsOrHost, dest="rlimit", metavar="N|HOST", help="a number is --rlimit, a name --remote"
        )
        group.add_argument("--rlimit", type=at_least(0), metavar="N", help=restarts)
    else:
        group.add_argument("-r", "--rlimit", type=at_least(0), metavar="N", help=restarts)
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


def say(text: str) -> None:
    """Tell the user, where it mixes with nothing that a program reads."""
    print(printable(text), file=sys.stderr, flush=True)


def this_machine(
    asked: Namespace, errand: Callable[[], None] | None = None, tell: Callable[[str], None] = say
) -> Machine:
    """This machine as an allocation, with the engine that turns tasks into processes.

    Call it before anything large is read: a runner is forked here, which does the errand first. `tell` is told of options
    that have no effect.
    """
    from cantle.allocations.local import LocalAllocation

    inside = _surroundings(asked)
    kinds = kinds_asked(asked)
    serves, named = settle(asked, inside is not None)
    if kinds and not takes_part(asked):
        serves = False
    others: list[Source] = [*named]
    env = environment_of(asked.environment)
    asked.packer = asked.packer or _PACKER
    grace_s = _GRACE_S if asked.grace is None else asked.grace
    memory = None if asked.memory is None else int(asked.memory)
    cores, ends_at = asked.cores, None
    if inside is not None:
        serves = serves if inside.here is None else inside.here
        others += inside.sources
        cores, memory = inside.on_this_machine(asked, memory)
        env, ends_at = env or inside.environ, inside.ends_at
    if asked.cores == 0:
        if not (asked.listen or others or kinds):
            raise wrong("--cores 0: then nothing would serve. Name hosts (-j), or let runners join (--listen)")
        serves, cores = False, None
    here = LocalAllocation(
        cores=cores,
        gpus=asked.gpus,
        memory_mib=memory,
        named=tuple(sorted(asked.resource)),
        groups=_groups(asked),
        ends_in_s=asked.ends_in or 0.0,
        ends_at=ends_at,
        name=inside.name if inside is not None else "",
        grows=bool(kinds),
        granted=inside.at_most if inside is not None else 0,
    )
    fleet: FleetAllocation | ElasticAllocation | None = None
    if kinds:
        from cantle.cli.elastic import elastic

        fleet = elastic(asked, kinds, here if serves else None, others, here)
    elif asked.listen or others:
        fleet = with_others(asked, here if serves else None, others)
    if may_be_unused(asked):
        spread = fleet is not None and fleet.is_spread
        for text in of_the_machine(asked, kinds, serves=serves, spread=spread, in_a_job=inside is not None):
            tell(f"cantle: without effect: {text}")
    allocation: LocalAllocation | FleetAllocation | ElasticAllocation = fleet or here
    allocation.notes += inside.notes if inside is not None else ()
    allocation.prepare(errand)

    from cantle.engines.process import ProcessEngine
    from cantle.plugins import find
    from cantle.runtime.conducting import Machine

    find("packers", asked.packer)  # a wrong name is told before anything is begun
    scaling_asked(asked)

    def engine(inbox: SelectInbox, layout: Layout, hide_gpus: bool) -> ProcessEngine:
        if fleet is not None:
            fleet.house(layout.directory, layout.fleet)
        return ProcessEngine(
            inbox,
            str(layout.directory),
            home=str(layout.nodes.relative_to(layout.directory)),
            env=env,
            hide_gpus=hide_gpus,
            grace_s=grace_s,
        )

    return Machine(allocation, engine, fleet is not None and fleet.is_spread, asked.on_idle or "")


def _surroundings(asked: Namespace) -> Around | None:
    """The batch job or the launch that we are part of."""
    if asked.launch is None and not in_a_batch_job():
        return None
    from cantle.cli.inside import around

    return around(asked)


def _groups(asked: Namespace) -> Sequence[Group]:
    if not asked.nodes:
        return ()
    if asked.cores is not None:
        raise wrong("--nodes and --cores exclude each other: --cores N is --nodes 1xN")
    from cantle.allocations.groups import parse_groups

    return parse_groups(asked.nodes)


def conduct(conductor: Conductor, machine: Machine, asked: Namespace) -> int:
    """Run it to its end, telling of it on the terminal. The exit status."""
    import gc

    from cantle.core.decide import Decider
    from cantle.core.packing import is_ours
    from cantle.plugins import find

    # What has been loaded by now stays: no collection need look at it again.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    heed(conductor.record, asked)
    shown = _Shown(conductor, machine, asked)
    try:
        try:
            take_back_leftovers(conductor.layout, shown.note)
            packer = find("packers", asked.packer)
            decider = Decider(packer) if is_ours(packer) else _watched(packer, asked.packer)
            heed_scaling(decider, asked)
            outcome = conductor.conduct(machine, decider, (shown,), shown.note)
        finally:
            conductor.close()
        shown.finish(outcome)
    except BaseException:
        shown.abandon()
        raise
    return outcome.exit_code


def _watched(packer: Policy, name: str) -> Decider:
    from cantle.core.decide import Decider
    from cantle.runtime.patience import bounded

    return Decider(bounded(packer, name), name)


class _Shown:
    """The progress and the status file. They are loaded after the first turn of the loop, while the first tasks start."""

    def __init__(self, conductor: Conductor, machine: Machine, asked: Namespace) -> None:
        self._conductor = conductor
        self._machine = machine
        self._asked = asked
        self._made: tuple[Progress, StatusFile] | None = None
        conductor.state.news = []

    def __call__(self, state: State) -> None:
        """Once a turn of the loop."""
        progress, status = self._made or self._make()
        if self._machine.allocation.notes:
            self._tell_notes(progress)
        progress(state)
        status(state)

    def note(self, text: str) -> None:
        """Tell something that is not about a task."""
        (self._made or self._make())[0].note(text)

    def finish(self, outcome: Outcome) -> None:
        """The run is over: the last words, and the last status file, where it is this run's."""
        progress, status = self._made or self._make()
        if not outcome.lost:
            status.write(outcome.state)
        progress.finish(outcome.state, outcome.exit_code, self._conductor.layout.directory)

    def abandon(self) -> None:
        """The run broke off: what is known goes into the status file, and somebody else tells why."""
        if self._made:
            progress, status = self._made
            status.write(self._conductor.state)
            progress.abandon()

    def _make(self) -> tuple[Progress, StatusFile]:
        from cantle.report.progress import choose_progress
        from cantle.report.statusfile import StatusFile

        journal = self._conductor.journal
        progress = choose_progress(
            self._conductor.state,
            json=self._asked.as_json,
            quiet=self._asked.quiet,
            durable=lambda: journal.synced,
            written=lambda: journal.written,
        )
        self._made = (progress, StatusFile(self._conductor.layout.status))
        if any(study.added.slicing is not None for study in self._conductor.state.studies):
            from cantle.cli.slicing import misfits

            for sentence in misfits(self._conductor.state):
                progress.note(sentence)
        self._tell_notes(progress)
        return self._made

    def _tell_notes(self, progress: Progress) -> None:
        notes = self._machine.allocation.notes
        told, notes[:] = list(notes), ()
        for note in told:
            progress.note(note)


def stamp() -> str:
    """What Maestro appends to the names of study directories."""
    from time import strftime

    return strftime("%Y%m%d-%H%M%S")


def fresh_directory(wanted: Path | None, parent: Path, name: str, replace: bool) -> Layout:
    """The layout of a new run: where the user wants it, otherwise `parent/name_stamp`. Raises RequestError when taken."""
    from cantle.errors import RequestError
    from cantle.store.layout import Layout
    from cantle.store.lock import holder

    where = str(wanted or parent)
    if where.encode(errors="replace").decode() != where:
        raise RequestError(f"{where!r} is not UTF-8, as the name of a run's directory must be; choose another with -o")
    directory = (wanted.resolve() if wanted else None) or parent / f"{name.replace(' ', '_')}_{stamp()}"
    number = 1
    while wanted is None and not _is_made(directory):
        number += 1
        directory = parent / f"{name.replace(' ', '_')}_{stamp()}-{number}"
    layout = Layout(directory)
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return layout
    if layout.exists() and (busy := holder(layout.lock)) is not None:
        raise RequestError(f"{directory} belongs to a run that is going on ({busy}); choose another directory with -o")
    if layout.batch.exists():
        from cantle.cli.ending_jobs import require_no_job

        require_no_job(layout)
    was_a_run = layout.own.is_dir() or (directory / "meta" / "study").is_dir()
    if replace and was_a_run:
        _remove(layout)
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


def _is_made(directory: Path) -> bool:
    """Make the directory; False when somebody has made one of that name, perhaps this very moment."""
    from cantle.errors import MachineError

    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        raise MachineError(f"cannot make {directory}: {error.strerror}. Choose another place with -o") from error
    return True


def _remove(layout: Layout) -> None:
    """Remove an earlier run whose conductor has gone, once its runners have gone as well: they still write there."""
    from shutil import rmtree

    from cantle.engines.remains import await_runners, end_strays
    from cantle.errors import MachineError

    await_runners(str(layout.nodes))
    end_strays(str(layout.directory))
    take_back_leftovers(layout, say)
    try:
        rmtree(layout.directory)
    except OSError as error:
        raise MachineError(f"cannot remove {error.filename or layout.directory}: {error.strerror}") from error
