"""How are slices and wants written, and do slices add up?

3 x 400        three copies of a slice with elements of 400 nodes
3 x 400 / 4    the same, each element taking 4 cores of its nodes
2 x 400 + 3 x 50, at most 4 or 8 x 50       what a job would like to hold: combinations, the preferred first
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from cantle.model.resources import Node, count
from cantle.model.study import Slice, Slicing

MOST_COPIES = 10_000
"""So many copies slices may have in all. Each of them takes cores of its own when it is active."""
_SLICE = re.compile(r"(\d+)\s*[xX*]\s*(\d+)(?:\s*/\s*(\d+))?")
_TERM = re.compile(r"(\d+)\s*[xX*]\s*(\d+)")
_BOUND = re.compile(r"(.*?)[,\s]\s*at\s+most\s+(\d+)\s*", re.DOTALL)


class Combination(msgspec.Struct, frozen=True):
    """So many elements of these widths, (width, count), the preferred first; `at_most` so many in all (None: no bound)."""

    widths: tuple[tuple[int, int], ...]
    at_most: int | None = None

    def __str__(self) -> str:
        text = " + ".join(f"{count} x {width}" for width, count in self.widths)
        return text if self.at_most is None else f"{text}, at most {self.at_most}"


def combination(*widths: tuple[int, int], at_most: int | None = None) -> Combination:
    """A combination; a width that is listed twice counts for the sum, at its first place."""
    counts: dict[int, int] = {}
    for width, n in widths:
        counts[width] = counts.get(width, 0) + n
    return Combination(tuple(counts.items()), at_most)


def slice_of(text: str) -> Slice:
    """`3 x 400` or `3 x 400 / 4`. Raises ValueError with what is wrong and what would be right."""
    match = _SLICE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text.strip()!r} is no slice; write COPIES x WIDTH, as in 3 x 400, or 3 x 400 / 4 for 4 cores a node"
        )
    copies, width, share = int(match[1]), int(match[2]), match[3]
    for what, n in (("copies", copies), ("nodes", width), ("cores", 1 if share is None else int(share))):
        if n < 1:
            raise ValueError(f"{text.strip()!r} is a slice of no {what}; each number counts from 1")
    return Slice(width, copies, int(share or 0))


def slices_of(text: str) -> tuple[Slice, ...]:
    """`3 x 400, 2 x 100`. Raises ValueError."""
    return tuple(slice_of(part) for part in text.split(",") if part.strip())


def choices_of(text: str) -> tuple[Combination, ...]:
    """`2 x 400 + 3 x 50, at most 4 or 8 x 50`. Raises ValueError with what is wrong and what would be right."""
    return tuple(_combination_of(part) for part in re.split(r"\bor\b", text))


def _combination_of(text: str) -> Combination:
    match = _BOUND.fullmatch(text)
    terms, at_most = (match[1], int(match[2])) if match is not None else (text, None)
    widths = []
    for term in terms.split("+"):
        found = _TERM.fullmatch(term.strip().removesuffix(",").rstrip())
        if found is None:
            raise ValueError(
                f"{term.strip()!r} is no number of elements; write COUNT x WIDTH, several joined by +, "
                "as in 2 x 400 + 3 x 50, at most 4"
            )
        if not int(found[2]):
            raise ValueError(f"{term.strip()!r} wants elements of no nodes; a width counts from 1")
        widths.append((int(found[2]), int(found[1])))
    return combination(*widths, at_most=at_most)


def named(each: Slice) -> str:
    """The slice as it is written: `3 x 400 / 4`."""
    text = f"{each.copies} x {each.width}"
    return f"{text} / {each.share}" if each.share else text


def faults_of(slicing: Slicing) -> list[tuple[str, str]]:
    """What cannot be with any nodes: (what, mend), with the arithmetic."""
    streams = slicing.streams
    found = []
    copies = sum(each.copies for each in slicing.slices)
    if copies > MOST_COPIES:
        found.append((f"the slices have {copies:,} copies in all", f"at most {MOST_COPIES:,} can be kept apart"))
    for each in slicing.slices:
        if not streams or streams % each.width == 0:
            continue
        more, rest = divmod(streams, each.width)
        if more:
            shares = f"{rest} nodes would have {more + 1} of them and {each.width - rest} nodes {more}"
        else:
            shares = f"{each.width - rest} of the nodes would have none"
        below = next(n for n in range(min(each.width, streams), 0, -1) if streams % n == 0)
        above = next((n for n in range(each.width, streams + 1) if streams % n == 0), 0)
        near = f"{below} and {above}" if above else f"{below}"
        found.append(
            (
                f"{named(each)}: {streams} streams cannot be dealt equally to {each.width} nodes: {shares}",
                f"widths near it that divide {streams}: {near}",
            )
        )
    return found


def fit(slicing: Slicing, nodes: Sequence[Node]) -> tuple[list[str], list[str]]:
    """What cannot be on these nodes, and what only has to be known: sentences with the arithmetic."""
    wrong: list[str] = []
    known: list[str] = []
    if not slicing.slices or not nodes:
        return wrong, known
    cores = max(node.cores for node in nodes)
    copies = sum(each.copies for each in slicing.slices)
    active = min(slicing.max_active or copies, copies)
    for each in slicing.slices:
        share = each.share or cores // active
        if not share:
            wrong.append(
                f"{named(each)}: with {active} copies active each has 1/{active} of a node's cores, and no node has more than "
                f"{count(cores, 'core')}: {cores} // {active} = 0; bound the copies with max_active: {cores}, or say shares"
            )
            continue
        if share > cores:
            wrong.append(f"{named(each)} takes {share} cores of each node, and no node has more than {cores}")
            continue
        able = sum(0 < (each.share or node.cores // active) <= node.cores for node in nodes)
        elements, spare = divmod(able, each.width)
        if not elements:
            wrong.append(
                f"{named(each)} needs {count(each.width, 'node')} with {count(share, 'core')}, and there are {able}"
            )
        elif spare:
            known.append(
                f"{named(each)}: {able} nodes are {count(elements, 'element')} of {each.width}, and "
                f"{count(spare, 'node')} to spare: {elements} * {each.width} = {elements * each.width}"
            )
    shares = sorted(
        (each.share or cores // active for each in slicing.slices for _ in range(each.copies)), reverse=True
    )
    most = sum(shares[:active])
    if most > cores and not wrong:
        terms = " + ".join(map(str, shares[: min(active, 8)])) + (" + ..." if active > 8 else "")
        known.append(
            f"{active} copies may be active at once, but the widest shares add up to {terms} = {most} cores of a node, and "
            f"the largest has {cores}: some copies wait for cores before they wait for the bound"
        )
    return wrong, known
