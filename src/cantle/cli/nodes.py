"""`cantle node`: the nodes of a run: how they stand or stood, which to use no more, which again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cantle.cli.command import Command, at_least
from cantle.cli.naming import directory_argument

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from cantle.core.state import State
    from cantle.model.records import AnyRecord
    from cantle.report.loading import Run


def _arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show the nodes of a run")
    directory_argument(listing)
    listing.add_argument(
        "--json", action="store_true", dest="as_json", help="one JSON object a line, lost nodes as well"
    )
    for action, help_ in (
        ("drain", "begin nothing more on these nodes; what runs there may end"),
        ("resume", "use these nodes again, whyever they were drained"),
        ("remove", "give these nodes back to whoever brought them, as soon as nothing runs there"),
    ):
        asking = actions.add_parser(action, help=help_)
        directory_argument(asking)
        asking.add_argument("names", metavar="NAME", nargs="+", help="the node's name")
    adding = actions.add_parser("add", help="have so many more nodes of a kind than there are")
    directory_argument(adding)
    adding.add_argument("kind", metavar="KIND", help="a kind that the run has declared")
    adding.add_argument("number", metavar="N", nargs="?", type=at_least(1), default=1, help="how many (default 1)")
    wanting = actions.add_parser(
        "want", help="have so many nodes of a kind, whatever the policy says, or leave it to that"
    )
    directory_argument(wanting)
    wanting.add_argument("kind", metavar="KIND", help="a kind that the run has declared")
    wanting.add_argument("number", metavar="N|any", type=_number, help="how many, or `any`: as the policy says")


def _number(text: str) -> int | None:
    return None if text == "any" else int(at_least(0)(text))


def _asked(asked: Namespace) -> int:
    from cantle.report.loading import load

    run = load(asked.directory)
    if asked.action == "list":
        return _list(run, asked.as_json)
    if asked.action in ("add", "want"):
        return _wish(run, asked.kind, asked.number, asked.action == "add")
    return _ask(run, asked.action, asked.names)


def _list(run: Run, as_json: bool) -> int:
    """A line for each node; as JSON, an object a line. Returns the exit status."""
    if run.conductor is None:
        return _list_bygone(run, as_json)
    from cantle.report.nodes import node_objects, node_table

    _print(node_objects(run.state) if as_json else node_table(run.state, run.now))
    return 0


def _list_bygone(run: Run, as_json: bool) -> int:
    """Those that it had: nobody is at work on it any more, or not yet again."""
    from cantle.report.bygone import bygone_objects, bygone_table, stays
    from cantle.report.table import headline
    from cantle.store.journal import read

    found = stays(read(run.layout.journal))
    if not as_json:
        print(f"{headline(run)}\nThese are the nodes that it had:" if found else headline(run))
    _print(bygone_objects(found) if as_json else bygone_table(found))
    return 0


def _print(lines: Iterable[str | dict[str, object]]) -> None:
    import msgspec

    for line in lines:
        print(line if isinstance(line, str) else msgspec.json.encode(line).decode())


def _ask(run: Run, action: str, names: list[str]) -> int:
    from time import time

    from cantle.cli.asking import answered, me, not_answered, require_listener
    from cantle.errors import RequestError
    from cantle.model.records import NodeDrainAsked, NodeResumeAsked
    from cantle.store.requests import ask

    require_listener(run, action)
    state = run.state
    there = {node.name for node in state.room.nodes.values()} | set(state.drained_names)
    for name in names:
        if name not in there:
            raise RequestError(f"no node of {run.name} is called {name!r}; `cantle node list` shows them")
        if action == "remove" and (why := _why_it_stays(state, name)):
            raise RequestError(f"{name} cannot be given back: {why}. To use it no more: cantle node drain")
    left = dict.fromkeys(names)
    kind: Any = NodeResumeAsked if action == "resume" else NodeDrainAsked
    for name in left:
        more = {"goes": True} if action == "remove" else {}
        ask(run.directory, kind(time(), name, me(), **more))

    def is_answer(record: AnyRecord) -> bool:
        if isinstance(record, NodeDrainAsked | NodeResumeAsked) and type(record) is kind:
            left.pop(record.node, None)
        return not left

    if not answered(run, is_answer):
        not_answered(run)
        return 0
    from cantle.report.nodes import node_line

    for index in sorted(state.room.nodes):
        node = run.state.room.nodes[index]
        if node.name in names and run.state.room.alive >> index & 1:
            print(node_line(run.state, index))
    return 0


def _why_it_stays(state: State, name: str) -> str:
    """Why no node of this name can be given back while the run goes on, "" when one can."""
    ledger = state.scaling
    there = [index for index in sorted(state.room.nodes) if state.room.nodes[index].name == name]
    alive = [index for index in there if state.room.alive >> index & 1]
    if not alive:
        return "it is not there"
    known = [ledger.kinds[ledger.kind_of[index]] for index in alive if index in ledger.kind_of] if ledger else []
    if not known:
        return "it is not of a kind that was declared, so nobody takes it back before the run ends"
    return "" if any(kind.removes for kind in known) else f"who brings nodes of kind {known[0].name} takes none back"


def _wish(run: Run, kind: str, number: int | None, more: bool) -> int:
    """Have so many nodes of the kind, or so many `more` than there are. Returns the exit status."""
    from time import time

    from cantle.cli.asking import answered, me, not_answered, require_listener
    from cantle.core.scaling.wishing import why_not
    from cantle.errors import RequestError
    from cantle.model.records import NodesWished
    from cantle.store.requests import ask

    require_listener(run, "add")
    ledger = run.state.scaling
    there = ledger.there(kind) + ledger.coming(kind) if ledger is not None and kind in ledger.kinds else 0
    count = there + (number or 0) if more else number
    if why := why_not(run.state, kind, count):
        raise RequestError(f"{run.name}: {why}")
    ask(run.directory, NodesWished(time(), kind, count, me()))
    if answered(run, lambda record: isinstance(record, NodesWished) and record.kind == kind and record.count == count):
        told = "as many nodes as the policy says" if count is None else f"{count:,} {'node' if count == 1 else 'nodes'}"
        print(f"{run.name} is to have {told} of kind {kind}; there or on their way are {there:,}")
    else:
        not_answered(run)
    return 0


NODE = Command(
    "node",
    "",
    _arguments,
    _asked,
    """\
A drained node begins nothing more; what runs there may end. Cantle drains nodes itself: before their allocation ends, and
when they fail what succeeds elsewhere; `list` says why, and of a run that is over it shows the nodes that it had. Where kinds
of node are declared, one that you `remove` is given back once it is empty, and what is needed and lives there alone has been
moved; one that you drain, when it has idled for as long as others may. `add` and `want` ask for more, until you say something
else. The nodes of a pilot are asked for in the pilot's directory.

Exit status: 0 when the run took note, 1 otherwise.""",
    """\
  cantle node list out
  cantle node drain out node7             before it is taken away: nothing it runs then counts as a failure
  cantle node resume out node7
  cantle node remove out cpu-3            this one shall go; whether another one comes is the policy's affair
  cantle node add out gpu 2               two more of that kind
  cantle node want out gpu any            as many as the policy says again""",
)
