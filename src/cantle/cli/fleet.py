"""Which options concern runners on other machines, and when is there more than the machine under us?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cantle.cli.command import at_least

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from cantle.allocations.fleet.allocation import FleetAllocation
    from cantle.allocations.fleet.source import Source
    from cantle.allocations.local import LocalAllocation


def fleet_options(parser: ArgumentParser) -> None:
    """The options that say how other machines reach us."""
    group = parser.add_argument_group("other machines")
    group.add_argument(
        "--listen",
        action="store_true",
        help="let runners join at any time (cantle runner --connect FILE; the file is told), and wait for them",
    )
    group.add_argument(
        "--interface",
        default="",
        metavar="NAME",
        help="network interface, or address, to listen on (default: all; runners take the first that they can reach)",
    )
    group.add_argument(
        "--silence",
        type=at_least(1, float),
        metavar="S",
        help="a runner is lost when it gave no sign of life for so many seconds (default 20)",
    )


def with_others(
    asked: Namespace, here: LocalAllocation | None, sources: Sequence[Source], grows: bool = False
) -> FleetAllocation:
    """This machine, if it takes part, and whatever these sources bring; `grows`: more may be asked for.

    Raises RequestError, MachineError.
    """
    from importlib.util import find_spec

    from cantle.errors import MachineError

    for package in ("distributed", "cryptography"):
        if find_spec(package) is None:  # it is loaded later, in the server's thread: that takes half a second
            raise MachineError(
                f"other machines need the package {package}: pip install 'cantle[cluster]', on all of them"
            )
    from cantle.allocations.fleet.allocation import SILENCE_S, FleetAllocation

    return FleetAllocation(
        sources,
        here,
        open_ended=asked.listen,
        grows=grows,
        interface=asked.interface,
        silence_s=asked.silence or SILENCE_S,
    )
