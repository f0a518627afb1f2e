"""How does the command line say how the nodes are sliced? What `run`, `submit` and `plan` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cantle.cli.command import at_least

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cantle.core.state import State
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


def misfits(state: State) -> list[str]:
    """What of the slices cannot be on the nodes that are there, or only has to be known: sentences with the arithmetic."""
    from cantle.model.resources import indexes
    from cantle.model.slicing import fit

    nodes = [state.room.nodes[index] for index in indexes(state.room.alive)]
    found: list[str] = []
    for study in state.studies:
        if study.added.slicing is not None:
            wrong, known = fit(study.added.slicing, nodes)
            found += [f"slices: {sentence}" for sentence in (*wrong, *known)]
    return found
