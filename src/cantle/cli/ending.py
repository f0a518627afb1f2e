"""Until when may the nodes be used, and how long before that shall they be empty? The options, and who is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cantle.cli.command import amount

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from cantle.model.records import AnyRecord


def ending_options(parser: ArgumentParser) -> None:
    """The options of whoever holds nodes."""
    group = parser.add_argument_group("for how long")
    group.add_argument(
        "--ends-in",
        type=amount("duration_s"),
        metavar="TIME",
        help="this machine may be used for so long, as in 90min: nothing is started that cannot end before, and what is left "
        "waits for `cantle resume`",
    )
    group.add_argument(
        "--drain",
        type=amount("duration_s"),
        metavar="TIME",
        help="nodes whose end is known are empty so long before it (default: 60 s, or a tenth of their time if that is less)",
    )


def heed(record: Callable[[AnyRecord], None], asked: Namespace) -> None:
    """Write down what was asked about the nodes' end, before any of them joins."""
    if asked.drain is not None:
        from time import time

        from cantle.model.records import DrainTimeSet

        record(DrainTimeSet(time(), float(asked.drain)))
