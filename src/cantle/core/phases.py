"""In which phases can a task be, and what leads from one to the next? The one table.

       ┌──────────── defer ─────────────┐
       ├─────────── line up ──────────→ │
       │             ┌──────────────── send back ───────────────┐
    WAITING ─unblock→ READY ─launch→ LAUNCHED ─start→ RUNNING ──┤
       │                │                └────────┬─────┘       └→ READY (retry, restart, lost node, stop)
       └────────┬───────┘                         └─ succeed, fail, time out, cancel → DONE, FAILED, TIMEDOUT, CANCELED
                └─ skip, cancel, refuse → SKIPPED, CANCELED, FAILED

To line up is to be launched ahead of time, behind the one task that is still waited for; to be deferred, to be back from there.
SKIPPED is what becomes of tasks whose parents failed. A final phase other than DONE can be left by `revive` alone, when a
run is resumed; DONE by `redo` alone, when the user changed the study and asked for it. Both lead to WAITING, where what the
task waits for is counted anew; for that, `revive` takes a task there from READY, too.
"""

from __future__ import annotations

from enum import IntEnum

from cantle.errors import CantleBug


class Phase(IntEnum):
    """Where a task stands."""

    WAITING = 0
    READY = 1
    LAUNCHED = 2
    RUNNING = 3
    DONE = 4
    FAILED = 5
    TIMEDOUT = 6
    CANCELED = 7
    SKIPPED = 8


class Cause(IntEnum):
    """What makes a task change its phase."""

    UNBLOCK = 0
    LAUNCH = 1
    START = 2
    SUCCEED = 3
    FAIL = 4
    TIME_OUT = 5
    CANCEL = 6
    SEND_BACK = 7
    SKIP = 8
    REFUSE = 9
    REVIVE = 10
    REDO = 11
    LINE_UP = 12
    DEFER = 13


TABLE: dict[Phase, dict[Cause, Phase]] = {
    Phase.WAITING: {
        Cause.UNBLOCK: Phase.READY,
        Cause.LINE_UP: Phase.LAUNCHED,
        Cause.SKIP: Phase.SKIPPED,
        Cause.CANCEL: Phase.CANCELED,
        Cause.REFUSE: Phase.FAILED,
        Cause.REVIVE: Phase.WAITING,
    },
    Phase.READY: {
        Cause.LAUNCH: Phase.LAUNCHED,
        Cause.SKIP: Phase.SKIPPED,
        Cause.CANCEL: Phase.CANCELED,
        Cause.REFUSE: Phase.FAILED,
        Cause.REVIVE: Phase.WAITING,
    },
    Phase.LAUNCHED: {
        Cause.START: Phase.RUNNING,
        Cause.DEFER: Phase.WAITING,
        Cause.SUCCEED: Phase.DONE,
        Cause.FAIL: Phase.FAILED,
        Cause.TIME_OUT: Phase.TIMEDOUT,
        Cause.CANCEL: Phase.CANCELED,
        Cause.SEND_BACK: Phase.READY,
    },
    Phase.RUNNING: {
        Cause.SUCCEED: Phase.DONE,
        Cause.FAIL: Phase.FAILED,
        Cause.TIME_OUT: Phase.TIMEDOUT,
        Cause.CANCEL: Phase.CANCELED,
        Cause.SEND_BACK: Phase.READY,
    },
    Phase.DONE: {Cause.REDO: Phase.WAITING},
    Phase.FAILED: {Cause.REVIVE: Phase.WAITING},
    Phase.TIMEDOUT: {Cause.REVIVE: Phase.WAITING},
    Phase.CANCELED: {Cause.REVIVE: Phase.WAITING},
    Phase.SKIPPED: {Cause.REVIVE: Phase.WAITING},
}

ACTIVE = frozenset({Phase.LAUNCHED, Phase.RUNNING})
UNSTARTED = frozenset({Phase.WAITING, Phase.READY})
FINAL = frozenset({Phase.DONE, Phase.FAILED, Phase.TIMEDOUT, Phase.CANCELED, Phase.SKIPPED})
UNSUCCESSFUL = FINAL - {Phase.DONE}
OVER = FINAL - {Phase.CANCELED}
"""What counts as over for a task that only waits for others to be over: a canceled parent never does."""


def following(phase: Phase, cause: Cause) -> Phase:
    """The phase after, or CantleBug when the table has no such way."""
    after = TABLE[phase].get(cause)
    if after is None:
        raise CantleBug(f"a task in phase {phase.name} cannot {cause.name.lower().replace('_', ' ')}")
    return after
