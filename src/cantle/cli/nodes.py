"""`cantle node`: the nodes of a run that goes on: how they stand, which to use no more, which again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cantle.cli.command import Command
from cantle.cli.naming import directory_argument

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

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
    ):
        asking = actions.add_parser(action, help=help_)
        directory_argument(asking)
        asking.add_argument("names", metavar="NAME", nargs="+", help="the node's name")


def _asked(asked: Namespace) -> int:
    from cantle.report.loading import load

    run = load(asked.directory)
    if asked.action == "list":
        return _list(run, asked.as_json)
    return _ask(run, asked.action, asked.names)


def _list(run: Run, as_json: bool) -> int:
    """A line for each node; as JSON, an object a line. Returns the exit status."""
    from cantle.report.nodes import node_objects, node_table

    if as_json:
        import msgspec

        for found in node_objects(run.state):
            print(msgspec.json.encode(found).decode())
        return 0
    for line in node_table(run.state, run.now):
        print(line)
    return 0


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
    left = dict.fromkeys(names)
    kind: Any = NodeDrainAsked if action == "drain" else NodeResumeAsked
    for name in left:
        ask(run.directory, kind(time(), name, me()))

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


NODE = Command(
    "node",
    "",
    _arguments,
    _asked,
    """\
A drained node begins nothing more; what runs there may end. Cantle drains nodes itself: before their allocation ends, and when
they fail what succeeds elsewhere; `list` says why. The nodes of a pilot are asked for in the pilot's directory.

Exit status: 0 when the run took note, 1 otherwise.""",
    """\
  cantle node list out
  cantle node drain out node7             before it is taken away: nothing it runs then counts as a failure
  cantle node resume out node7""",
)
