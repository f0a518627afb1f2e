"""In which states can a partition be, and what leads from one to the next? The one table.

    NEW ─admit→ PENDING ─open→ STARTING ─start→ ACTIVE ─┬─ finish → DONE
     └─ refuse    └────────────────┴───────────────┴────┴─ fail → FAILED, cancel → CANCELED

NEW: somebody asked for it. PENDING: there can be such a one, and it waits for its slots. STARTING: it has them, and its agent
is being started. ACTIVE: tasks may run in it. The other three are final.
"""

from __future__ import annotations

from enum import IntEnum

from cantle.errors import CantleBug


class Standing(IntEnum):
    """Where a partition stands."""

    NEW = 0
    PENDING = 1
    STARTING = 2
    ACTIVE = 3
    DONE = 4
    FAILED = 5
    CANCELED = 6


class Turn(IntEnum):
    """What makes a partition change its state."""

    ADMIT = 0
    OPEN = 1
    START = 2
    FINISH = 3
    FAIL = 4
    CANCEL = 5


_ENDS = {Turn.FAIL: Standing.FAILED, Turn.CANCEL: Standing.CANCELED}

TABLE: dict[Standing, dict[Turn, Standing]] = {
    Standing.NEW: {Turn.ADMIT: Standing.PENDING, **_ENDS},
    Standing.PENDING: {Turn.OPEN: Standing.STARTING, **_ENDS},
    Standing.STARTING: {Turn.START: Standing.ACTIVE, **_ENDS},
    Standing.ACTIVE: {Turn.FINISH: Standing.DONE, **_ENDS},
    Standing.DONE: {},
    Standing.FAILED: {},
    Standing.CANCELED: {},
}

OVER = frozenset({Standing.DONE, Standing.FAILED, Standing.CANCELED})


def following(standing: Standing, turn: Turn) -> Standing:
    """The state after, or CantleBug when the table has no such way."""
    after = TABLE[standing].get(turn)
    if after is None:
        raise CantleBug(f"a partition in state {standing.name} cannot {turn.name.lower()}")
    return after
