"""`cantle runner`: serve a run from another machine. People start it by hand; ssh, srun and others start it by itself."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cantle.cli.command import Command, amount, at_least, named_amount

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.allocations.fleet.letter import Letter
    from cantle.allocations.local import LocalAllocation
    from cantle.model.resources import Node

_BEGINS_S = 5.0


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--connect",
        required=True,
        metavar="FILE",
        help="the file that the run told of when it began, or its directory; - reads it from stdin, and ends with that",
    )
    node = parser.add_argument_group("what this machine gives")
    node.add_argument("--name", default="", help="what the node is called (default: this machine's name)")
    node.add_argument(
        "--cores", type=at_least(1), metavar="N", help="so many cores (default: those this process may use)"
    )
    node.add_argument(
        "--granted",
        type=at_least(1),
        default=0,
        metavar="N",
        help="so many cores at most where nothing confines this process to those that a batch system granted",
    )
    node.add_argument("--gpus", type=at_least(0), metavar="N", help="so many GPUs (default: those found here)")
    node.add_argument("--memory", type=amount("memory_mib"), metavar="SIZE", help="memory to hand out, as in 16GB")
    node.add_argument(
        "--resource", action="append", default=[], type=named_amount, metavar="NAME=N", help="so many of a named thing"
    )
    node.add_argument("--kind", default="", metavar="KIND", help="what kind of node it is, for steps that ask for one")
    node.add_argument("--machine", default="", metavar="NAME", help="the machine it stands on, if several share one")
    node.add_argument("--until", type=float, default=0.0, metavar="EPOCH", help="when this machine is taken away")
    node.add_argument(
        "--own-env", action="store_true", help="tasks get the environment of this command, not that of the conductor"
    )
    parser.add_argument("--expected", type=int, metavar="N", help="for whoever starts runners by itself: its number")
    parser.add_argument(
        "--request",
        default="",
        metavar="N[:ID]",
        help="the request for nodes that it answers, and its provider's name for it",
    )


def _serve(asked: Namespace) -> int:
    from cantle.allocations.fleet import letter as letters
    from cantle.errors import RequestError

    lifeline = asked.connect == "-"
    if lifeline:
        line = sys.stdin.buffer.readline()
        if not line:
            raise RequestError("there was nothing on stdin: whoever started this runner has gone")
        if stat.S_ISREG(os.fstat(0).st_mode):
            raise RequestError("--connect -: stdin is a file, whose end tells nothing. Name it instead: --connect FILE")
        letter = letters.decode(line, "what came over stdin")
    else:
        path = Path(asked.connect)
        if path.is_dir():
            from cantle.store.layout import Layout

            layout = Layout(path)
            path = layout.fleet / letters.FILE
            if layout.exists():
                _await(path)
        letter = letters.read(path)
    here, node = _node(asked)  # as long as `here` is there, the cores that it took are ours
    try:
        return _join(asked, letter, node, tuple(here.notes), lifeline)
    finally:
        here.close()


def _await(path: Path) -> None:
    """A run that has just begun writes its letter in the next moment."""
    from time import monotonic, sleep

    until = monotonic() + _BEGINS_S
    while not path.exists() and monotonic() < until:
        sleep(0.05)


def _node(asked: Namespace) -> tuple[LocalAllocation, Node]:
    from cantle.allocations.local import LocalAllocation

    here = LocalAllocation(
        cores=asked.cores,
        gpus=asked.gpus,
        memory_mib=None if asked.memory is None else int(asked.memory),
        named=tuple(sorted(asked.resource)),
        granted=asked.granted,
    )
    from msgspec.structs import replace

    node = here.this_machine()
    if asked.request and node.cores < len(os.sched_getaffinity(0)):
        node = replace(node, core_ids=())  # the rest may be another job's, and nobody says which of them are ours
    name = asked.name or os.environ.get("SLURMD_NODENAME") or node.name  # srun and people call it by Slurm's name
    machine = asked.machine or node.machine
    return here, replace(node, name=name, machine=machine, kind=asked.kind, ends_at=asked.until)


def _join(asked: Namespace, letter: Letter, node: Node, notes: tuple[str, ...], lifeline: bool) -> int:
    from msgspec.structs import replace

    request, _, instance = asked.request.partition(":")

    from cantle.allocations.fleet.joining import Hello
    from cantle.allocations.fleet.speech import version
    from cantle.allocations.forking import fork_runner
    from cantle.runner.processes import become_subreaper

    become_subreaper()  # should the runner be killed, its tasks become our children and can be ended
    # Before anything large is loaded, and before there are threads.
    channel = fork_runner(life=lambda pair: _runners_life(pair, letter))
    from cantle.engines.remains import end_orphans

    end_orphans(letter.directory)  # this may be the second runner here, after one that was killed
    from cantle.allocations.fleet.member import Member, report_to_stderr

    try:
        sees: str | None = Path(letter.probe).read_text()
    except (OSError, UnicodeDecodeError):
        sees = None
    own = None
    if sees is None:
        from cantle.allocations.fleet.apart import OwnDirectory

        try:
            own = OwnDirectory(letter.directory)
            node = replace(node, apart=True)
        except OSError:  # the conductor tells what to do about it
            pass
    hello = Hello(
        run=letter.run,
        node=node,
        cantle=version(),
        python=sys.version.split()[0],
        time=0.0,
        sees=sees,
        address="",
        host=os.uname().nodename,
        pid=os.getpid(),
        expected=asked.expected is not None,
        source=-1 if asked.expected is None else asked.expected,
        notes=notes,
        request=int(request) if request.isdigit() else -1,
        instance=instance,
    )
    try:
        return Member(letter, hello, channel, asked.own_env, report_to_stderr, lifeline).live()
    finally:
        if own is not None:
            own.close()


def _runners_life(pair: int, letter: Letter) -> None:
    from cantle.allocations.fleet.handing import take_over

    take_over(pair, letter.identity)


RUNNER = Command(
    "runner",
    "",
    _arguments,
    _serve,
    """\
Joins a run that was begun with --listen, or with nodes of other machines, and serves it until it is over. The file holds a
key: whoever can read it can join. The machine should see the run's directory under the same path; if it does not, only steps
that say what to `stage` run there.

Exit status: 0 the run is over, 3 the conductor cannot be reached, 4 it refused this runner, 5 it was lost, 6 the runner
broke.""",
    """\
  cantle runner --connect out               the directory of a run, on a file system that both machines see
  cantle runner --connect out --cores 4 --kind fat""",
)
