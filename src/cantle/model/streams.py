"""How do the streams of a step share its nodes? The one place where that is worked out.

Stream s of S runs on place s*w//S of w: neighbours stay together, and no node has more than one stream above another. On
a node as many run side by side as have their cores there; the others wait for one of them to end. What a node's cores
leave over goes to the streams that run at once, so that none of them idles.
"""

from __future__ import annotations

import re

import msgspec

from .resources import Place, count, indexes, list_to_mask, mask_to_list
from .study import Step


class Streams(msgspec.Struct, frozen=True):
    """What a step says of its streams: how many, the cores that each needs, and whether all must run at once."""

    count: int
    cores_each: int = 1
    together: bool = False

    def at_once(self, cores: int) -> int:
        """How many of them have room at the same time on a node of which the step has so many cores; one always has."""
        return max(1, cores // max(1, self.cores_each))


class Share(msgspec.Struct, frozen=True, gc=False):
    """One stream on its place.

    `at` is the place's position in the launch, `lane` tells the streams of a node apart that run at the same time: those of
    one lane run one after another. `local` of `beside` is its number among all streams of its node.
    """

    stream: int
    at: int
    node: int
    lane: int
    cores: str
    gpus: str
    local: int
    beside: int


def streams_of(step: Step) -> Streams | None:
    """What the step says of streams; None when its command runs once."""
    return Streams(step.streams, step.cores_per_rank, step.communicates) if step.streams else None


def output_stem(stem: str, stream: int, attempt: int) -> str:
    """The name, without `.out` and `.err`, of the files in which a stream's output lies."""
    return f"{stem}.{stream}" if attempt == 1 else f"{stem}.attempt-{attempt}.{stream}"


def named(stream: int, streams: int) -> str:
    """How people are told which stream it was."""
    return f"stream {stream} of {streams}"


def named_in(text: str) -> int | None:
    """The stream that is named where this text begins; None when none is."""
    match = re.match(r"stream (\d+) of \d+\b", text)
    return int(match[1]) if match is not None else None


def shares(streams: Streams, on: tuple[Place, ...]) -> list[Share]:
    """Where each stream runs, and on which of the place's cores and GPUs.

    Streams that communicate see all GPUs of their place, as they do elsewhere: their local number picks one. Others see
    those of their lane alone; where there are more lanes than GPUs, lanes share one.
    """
    found = []
    width = len(on)
    for at, place in enumerate(on):
        here = range(_first_on(at, streams.count, width), _first_on(at + 1, streams.count, width))
        if not here:
            continue
        cores, gpus = indexes(list_to_mask(place.cores)), indexes(list_to_mask(place.gpus))
        lanes = min(len(here), streams.at_once(len(cores))) if cores else len(here)
        of_lane = [
            (_dealt(cores, lane, lanes), place.gpus if streams.together else _dealt(gpus, lane, lanes, 1))
            for lane in range(lanes)
        ]
        for local, stream in enumerate(here):
            lane = local % lanes
            found.append(Share(stream, at, place.node, lane, *of_lane[lane], local, len(here)))
    return found


def crowding(streams: Streams, cores: int, width: int) -> str:
    """Why streams that communicate cannot all run at once on so many nodes with so many cores each, "" when they can."""
    most = -(-streams.count // width)
    if not streams.together or most <= streams.at_once(cores):
        return ""
    return (
        f"{count(streams.count, 'stream')} that communicate all run at the same time: on {count(width, 'node')} that is "
        f"{most} on one, which needs {count(most * streams.cores_each, 'core')} there ({streams.cores_each} each), but the "
        f"step asks for {count(cores, 'core')} of each node"
    )


def _first_on(at: int, streams: int, width: int) -> int:
    """The first stream on a place, or on one that follows it: the least s with s*width//streams >= at."""
    return -(-at * streams // width)


def _dealt(all_of_them: list[int], lane: int, lanes: int, least: int = 0) -> str:
    """A lane's part, as an index list: equal shares that differ by one at most, and `least` of them if need be shared."""
    first = lane * len(all_of_them) // lanes
    end = max((lane + 1) * len(all_of_them) // lanes, first + least)
    return mask_to_list(sum(1 << index for index in all_of_them[first:end]))
