"""`cantle partition`: what one may ask about the partitions of a run that goes on, from any shell that sees its directory."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any

from cantle.cli.command import Command, amount, at_least
from cantle.cli.naming import directory_argument

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from cantle.core.partitions import Partition
    from cantle.report.loading import Run

_PAUSE_S = 0.01
_GRANT_S = 0.2
"""After so long what is free has been granted, and the answer says so."""


def _arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a partition of so many nodes")
    _named(create)
    create.add_argument("-n", "--nodes", type=at_least(1), default=1, metavar="N", help="on how many nodes (default 1)")
    create.add_argument(
        "--cores", type=at_least(1), default=0, metavar="N", help="a share of each node (default: whole nodes)"
    )
    create.add_argument("--gpus", type=at_least(0), default=0, metavar="N", help="GPUs of each node, with --cores")
    create.add_argument(
        "--memory", type=amount("memory_mib"), default=0, metavar="SIZE", help="memory of each node, with --cores"
    )
    create.add_argument("--kind", default="", help="nodes of this kind alone")
    create.add_argument(
        "--layout",
        choices=("any", "contiguous", "spread"),
        default="any",
        help="any: in the fewest runs of neighbours (default); contiguous: in one; spread: over most machines",
    )
    create.add_argument(
        "--near", action="append", default=[], metavar="MACHINE", help="prefer the nodes of this machine"
    )
    create.add_argument(
        "--engine",
        default="",
        metavar="NAME",
        help="what lives in it as long as it does: dask, ray, torchrun, or one that a study or a package brings",
    )
    create.add_argument("-w", "--wait", action="store_true", help="wait until tasks may run in it")
    listing = actions.add_parser("list", help="show the partitions of a run")
    directory_argument(listing)
    listing.add_argument("--json", action="store_true", dest="as_json", help="one JSON object a line")
    resize = actions.add_parser("resize", help="give a partition another number of nodes")
    _named(resize)
    resize.add_argument("nodes", type=at_least(1), metavar="N", help="on how many nodes")
    resize.add_argument("-w", "--wait", action="store_true", help="wait until it has as many")
    request = actions.add_parser("request", help="ask for elements of the run's slices")
    _named(request)
    request.add_argument("want", metavar="WANT", help="as in '2 x 400 + 3 x 50, at most 4 or 8 x 50'")
    _named(actions.add_parser("release", help="give back what was requested under this name"))
    _named(actions.add_parser("drain", help="begin nothing more in a partition, and close it when it is empty"))
    _named(actions.add_parser("cancel", help="end a partition now; its tasks return to their queue"))


def _named(parser: ArgumentParser) -> None:
    directory_argument(parser)
    parser.add_argument("name", metavar="NAME", type=_name, help="the partition's name")


def _name(text: str) -> str:
    text = text.removeprefix("\0")
    if not re.fullmatch(r"[\w][\w.@+-]*", text):
        raise ArgumentTypeError(f"{text!r} cannot be the name of a partition: letters, digits and . _ - + @ can")
    return text


def _asked(asked: Namespace) -> int:
    from cantle.report.loading import load

    run = load(asked.directory)
    if asked.action == "list":
        from cantle.cli.partition_table import print_table

        return print_table(run, asked.as_json)
    if asked.action in ("request", "release"):
        return _request(run, asked.name, asked.want if asked.action == "request" else "")
    return _ask(run, asked)


def _ask(run: Run, asked: Namespace) -> int:
    from time import time

    from cantle.cli.asking import answered, me, not_answered, require_listener
    from cantle.cli.partition_table import study_asked_for
    from cantle.errors import RequestError
    from cantle.model.records import PartitionAsked, PartitionCancelAsked, PartitionDrainAsked, PartitionResizeAsked
    from cantle.model.study import PartitionWish
    from cantle.store.requests import ask

    require_listener(run, asked.action)
    of, study = run.state.partitions, study_asked_for(run)
    name = asked.name
    meant = of.asked_for(study, name)
    if asked.action != "create" and meant is None:
        living = [partition.name for partition in of.by_name.values() if partition.is_seen_by(study)]
        if name in living:
            raise RequestError(
                f"several studies of {run.name} have a partition called {name!r}; name the study's directory"
            )
        raise RequestError(
            f"no partition of {run.name} is called {name!r}; there are {', '.join(sorted(living)) or 'none'}"
        )
    wish: Any
    if asked.action == "create":
        if (study, name) in of.by_name:
            raise RequestError(f"{run.name} has a partition called {name!r} already; choose another name")
        if (asked.gpus or asked.memory) and not asked.cores:
            raise RequestError("--gpus and --memory are of a share of a node; say its --cores as well")
        wanted = PartitionWish(
            name,
            int(asked.nodes),
            int(asked.cores),
            int(asked.gpus),
            int(asked.memory),
            asked.kind,
            asked.layout,
            tuple(asked.near),
            engine=asked.engine,
        )
        if asked.engine:
            _require_engine(run, study, asked.engine)
        wish = PartitionAsked(time(), wanted, study, me())
    elif asked.action == "resize" and meant is not None:
        _require_possible(run, meant, int(asked.nodes))
        wish = PartitionResizeAsked(time(), name, int(asked.nodes), me(), study)
    elif asked.action == "drain":
        wish = PartitionDrainAsked(time(), name, me(), study)
    else:
        wish = PartitionCancelAsked(time(), name, me(), study)
    ask(run.directory, wish)
    if not answered(run, lambda record: type(record) is type(wish) and _is_of(record, study, name)):
        not_answered(run)
        return 0
    return _tell_outcome(run, name, asked)


def _require_engine(run: Run, study: int, name: str) -> None:
    from cantle.runtime.hosting import hosted_by_name

    hosted_by_name(run.state, name, study)


def _require_possible(run: Run, partition: Partition, width: int) -> None:
    from cantle.core.unmakeable import may_come, why_never
    from cantle.errors import RequestError

    if partition.element is not None:
        raise RequestError(f"{partition.name} is an element of a slice, which has one width for ever")
    why = "" if may_come(run.state, partition.wish, width) else why_never(run.state, partition.wish, width)
    if why:
        raise RequestError(f"{partition.name} {why}")


def _request(run: Run, name: str, want: str) -> int:
    from time import time

    from cantle.cli.asking import answered, me, not_answered, require_listener
    from cantle.cli.partition_table import study_asked_for
    from cantle.errors import RequestError
    from cantle.model.records import ElementsAsked
    from cantle.model.slicing import choices_of
    from cantle.store.requests import ask

    require_listener(run, "request")
    slicings = [study.added.slicing for study in run.state.studies if study.added.slicing is not None]
    widths = {each.width for slicing in slicings[:1] for each in slicing.slices}
    if not widths:
        raise RequestError(f"the nodes of {run.name} are not sliced, so there are no elements to ask for")
    study = study_asked_for(run)
    if not want and (study, name) not in run.state.partitions.requests:
        raise RequestError(f"nobody asked for elements of {run.name} under the name {name!r}")
    if want:
        try:
            choices = choices_of(want)
        except ValueError as problem:
            raise RequestError(str(problem)) from None
        wanted = {width for choice in choices for width, _ in choice.widths}
        if not wanted & widths:
            there = ", ".join(map(str, sorted(widths)))
            raise RequestError(f"no slice has elements of {_either(wanted)} nodes; there are {there}")
    wish = ElementsAsked(time(), name, want, me(), study)
    ask(run.directory, wish)
    if not answered(run, lambda record: isinstance(record, ElementsAsked) and _is_of(record, study, name)):
        not_answered(run)
        return 0
    from time import sleep

    sleep(_GRANT_S)
    run.refresh()
    held = [p for p in run.state.partitions.living.values() if (p.study, p.holder) == (study, name) and not p.over]
    counts = {width: sum(p.width == width for p in held) for width in sorted({p.width for p in held}, reverse=True)}
    has = " + ".join(f"{n} x {width}" for width, n in counts.items()) or "nothing"
    print(
        f"{name} holds {has}{' now; more comes as it becomes free' if want else ', which is given back when it idles'}"
    )
    return 0


def _either(numbers: set[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))


def _is_of(record: Any, study: int, name: str) -> bool:
    return bool((record.study, record.wish.name if hasattr(record, "wish") else record.name) == (study, name))


def _tell_outcome(run: Run, name: str, asked: Namespace) -> int:
    from cantle.cli.partition_table import line_of
    from cantle.errors import RequestError

    partition = _newest(run, name)
    waits: Callable[[Partition], bool] | None = None
    if getattr(asked, "wait", False) and asked.action == "create":
        waits = _is_on_its_way
    elif getattr(asked, "wait", False):
        waits = _is_being_resized
    if waits is not None:
        from time import sleep

        while waits(partition) and run.conductor is not None:
            if asked.action == "resize" and (why := _can_never_be(run, partition)):
                raise RequestError(f"{name} {why}; it takes what it can get")
            sleep(_PAUSE_S)
            run.refresh()
            partition = _newest(run, name)
    else:
        run.refresh()
        partition = _newest(run, name)
    print(line_of(run, partition))
    from cantle.core.standings import Standing

    return 1 if partition.standing == Standing.FAILED else 0


def _can_never_be(run: Run, partition: Partition) -> str:
    """Why it can never have as many nodes as are wanted of it, "" when it can or when more are on their way."""
    from cantle.core.unmakeable import may_come, why_never

    wish, width = partition.wish, partition.width
    return "" if may_come(run.state, wish, width) else why_never(run.state, wish, width)


def _is_on_its_way(partition: Partition) -> bool:
    from cantle.core.standings import Standing

    return partition.standing < Standing.ACTIVE


def _is_being_resized(partition: Partition) -> bool:
    return not partition.over and len(partition.nodes()) != partition.width


def _newest(run: Run, name: str) -> Partition:
    """The one that was meant: of the study's own or, if there was none, of those that are there for all, the newest."""
    from cantle.cli.partition_table import seen, study_asked_for

    named = [partition for partition in seen(run) if partition.name == name]
    own = [partition for partition in named if partition.study == study_asked_for(run)]
    return (own or named)[-1]


PARTITION = Command(
    "partition",
    "",
    _arguments,
    _asked,
    """\
A partition is a share of the nodes that belongs to nobody else: tasks whose step names it (`partition: NAME`) run there, and
nothing else does. It is made, resized and ended while the run goes on, and ends with the run.

Exit status: 0 when the run took note, 1 otherwise, or when there can be no such partition.""",
    """\
  cantle partition create out wide --nodes 4 --wait     four whole nodes
  cantle partition create out side --nodes 8 --cores 2  two cores of each of eight nodes
  cantle partition create out calc --nodes 4 --engine dask   a Dask cluster of its own on four nodes
  cantle partition list out
  cantle partition resize out wide 6
  cantle partition request out mine '2 x 4 + 3 x 1, at most 4'   elements of slices, for tasks with `partition: mine`
  cantle partition release out mine                     give them back
  cantle partition drain out wide                       when its tasks have ended
  cantle partition cancel out side                      now; its tasks wait for another one""",
)
