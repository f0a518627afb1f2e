"""How does the command line say how the nodes are sliced? What `run`, `submit` and `plan` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cantle.cli.command import at_least

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.model.study import Slicing


def slicing_options(parser: ArgumentParser) -> None:
    """The options that cut the nodes into slices, whatever the study says."""
    slicing = parser.add_argument_group("how the nodes are sliced, for steps on several of them")
    slicing.add_argument(
        "--slices",
        default="",
        metavar="SLICES",
        help="copies x nodes [/ cores], as in '3 x 400, 2 x 100 / 2', or a YAML file",
    )
    slicing.add_argument(
        "--max-active", type=at_least(1), metavar="N", help="at most N copies of slices active at once"
    )
    slicing.add_argument(
        "--streams", type=at_least(1), metavar="S", help="streams of each step that says `streams: true`"
    )


def slicing_asked(asked: Namespace) -> Slicing | None:
    """What those options say, None when nothing. Raises RequestError or StudyError with what is wrong."""
    if not (asked.slices or asked.max_active or asked.streams):
        return None
    from cantle.readers.slicing import asked_for

    return asked_for(asked.slices, asked.streams or 0, asked.max_active or 0)
