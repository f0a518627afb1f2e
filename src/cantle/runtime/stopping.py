"""Which signals end a run in order, and what do they mean when they come again?"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from cantle.model.records import StopAsked
from cantle.runtime.inbox import SelectInbox

SAME_SIGNAL_S = 0.3


@contextmanager
def signals_stop_the_run(inbox: SelectInbox) -> Iterator[None]:
    """Ctrl-C, TERM and a lost terminal stop the run in order; a second Ctrl-C at once, a third without asking anybody.

    Signals that follow each other at once are one: a closing terminal sends several.
    """
    caught: list[float] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        now = monotonic()
        if caught and (number != signal.SIGINT or now - caught[-1] < SAME_SIGNAL_S):
            return
        caught.append(now)
        if len(caught) > 2:
            raise KeyboardInterrupt
        inbox.put(StopAsked(inbox.now(), f"signal {signal.Signals(number).name}", at_once=len(caught) > 1))

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
