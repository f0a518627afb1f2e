"""What can be said about how a run grows and shrinks?"""

from __future__ import annotations

import msgspec


class Scaling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run grows and shrinks. All times are seconds.

    `policies`, `payoff` where none is named, say who is asked how many nodes of which kind there should be, each as
    `NAME` or `NAME:ARGUMENT`; see `naming.py` for those that are built in. Several together: there are as many nodes as the
    one who wants most asks for.

    What every policy is held to, besides the bounds of each kind (`least`, `most`, `stays_s`, `block`):
    `idle_s`: a node that has had no work for so long, and is not wanted, is given back; `notice_s`: after so long it is told
    that it is unused. `stays_s`: no node goes sooner after it has come, where its kind does not say more. `cool_down_s`: a kind
    that was asked for, or given back, is not given back or asked for sooner than that, where that would undo it.
    `retry_s`: after a request that was refused the kind is not asked for so long, and twice as long after each further one.
    `survivors_s`: nodes of a gang that lost one are kept for its next attempt so long.
    """

    policies: tuple[str, ...] = ()
    idle_s: float = 30.0
    notice_s: float = 30.0
    stays_s: float = 0.0
    cool_down_s: float = 30.0
    retry_s: float = 10.0
    survivors_s: float = 600.0


HANDED = "cantle.runtime.handed:"
"""Before the name of a function that a program has handed in, so that it is known for a policy."""


def called(policy: str) -> str:
    """What people call a policy: a function that a program has handed in goes by its own name."""
    return policy.removeprefix(HANDED)
