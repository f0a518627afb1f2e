"""How are slices and wants written?

3 x 400        three copies of a slice with elements of 400 nodes
3 x 400 / 4    the same, each element taking 4 cores of its nodes
2 x 400 + 3 x 50, at most 4 or 8 x 50       what a job would like to hold: combinations, the preferred first
"""

from __future__ import annotations

import re

import msgspec

from cantle.model.study import Slice

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
    for width, count in widths:
        counts[width] = counts.get(width, 0) + count
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
