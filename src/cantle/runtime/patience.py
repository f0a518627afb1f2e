"""How does a packer that never comes back not hang the run? An alarm interrupts it, and the error names it.

Only what is not ours is watched, and only while it computes: between two decisions the clock stands still.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cantle.core.packing import is_ours
from cantle.core.plan import Plan, Policy
from cantle.errors import PluginError
from cantle.model.records import Decision

PACKER_S = 10.0
"""So long a packer may think about one decision."""


def bounded(packer: Policy, name: str, seconds: float = PACKER_S, what: str = "packer") -> Policy:
    """The packer, or `what` it is, interrupted with PluginError when it takes longer than that for one decision.

    Only the main thread can be interrupted; elsewhere the packer is not watched. One of ours is given back as it is.
    """
    if is_ours(packer):
        return packer

    def watched(plan: Plan) -> Iterator[Decision]:
        with _alarm(f"{what} {name}", seconds):
            decisions = iter(packer(plan))
        while True:
            with _alarm(f"{what} {name}", seconds):
                decision = next(decisions, None)
            if decision is None:
                return
            yield decision

    watched.__module__ = getattr(packer, "__module__", "") or ""
    watched.__qualname__ = getattr(packer, "__qualname__", "") or type(packer).__qualname__
    return watched


@contextmanager
def _alarm(name: str, seconds: float) -> Iterator[None]:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise PluginError(f"{name}: it has computed for {seconds:g} s without a decision; a pass has to end, and soon")

    try:
        before = signal.signal(signal.SIGALRM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
