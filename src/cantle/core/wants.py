"""What does a job still want, given what it holds?

A want is level-triggered: a job's newest replaces the one before, and what the job holds counts against it. It lists
combinations of widths in order of preference; an element is granted at a time. What a job holds must remain a part of one
combination: whoever wanted `2 x 400 or 8 x 50` and has an element of 50 nodes gets more of those, and none of 400.
"""

from __future__ import annotations

import math

import msgspec

from cantle.core.slices import Ledger
from cantle.model.slicing import Combination


class Want(msgspec.Struct, frozen=True):
    """What a job would like to hold since `asked_at`. `weight` is its share beside other jobs."""

    job: int
    asked_at: float
    choices: tuple[Combination, ...]
    weight: float = 1.0


class Claim:
    """A job's want, and how it fares with it."""

    __slots__ = ("due", "evicted", "hungry", "since", "tried", "want", "watched")

    def __init__(self, want: Want) -> None:
        self.want = want
        self.since = want.asked_at
        """Since when it has waited: for anything at all, or since it got its last element."""
        self.due = want.asked_at
        """When its patience ends."""
        self.watched = -math.inf
        """The end for which it is watched."""
        self.hungry = False
        """It wanted more than there was when it was last looked at."""
        self.tried = -1
        """The ledger's version for which nothing was found that would help it."""
        self.evicted: tuple[int, ...] = ()
        """Warm elements that close for its sake."""

    def key(self, ledger: Ledger) -> tuple[float, float, int]:
        """By what jobs are compared: who holds least for his weight is served first."""
        return ledger.cores_of.get(self.want.job, 0) / self.want.weight, self.since, self.want.job

    def open(self, ledger: Ledger) -> list[int]:
        """The widths of which one more element is wanted, the preferred first; none when the want is met."""
        held = ledger.held.get(self.want.job, {})
        return open_widths(self.want.choices, held)


def open_widths(choices: tuple[Combination, ...], held: dict[int, int]) -> list[int]:
    """The widths of which one more element is wanted by whom holds these (width -> count), the preferred first."""
    most: dict[int, int] = {}
    for choice in choices:
        for width, n in choice.widths:
            most[width] = max(most.get(width, 0), n)
    found: dict[int, None] = {}
    for choice in choices:
        counts = dict(choice.widths)
        total = sum(held.get(width, 0) for width in counts)
        if not _is_part(held, counts, most) or (choice.at_most is not None and total > choice.at_most):
            continue
        lacking = [width for width, n in choice.widths if held.get(width, 0) < n]
        if total == choice.at_most or not lacking:
            return []
        found.update(dict.fromkeys(lacking))
    return list(found)


def _is_part(held: dict[int, int], counts: dict[int, int], most: dict[int, int]) -> bool:
    """Whether what is held leaves this combination possible.

    What no combination has room for is left from an earlier want, and speaks against none of them.
    """
    return all(
        width not in most or (width in counts and min(n, most[width]) <= counts[width])
        for width, n in held.items()
        if n
    )
