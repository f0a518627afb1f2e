"""Has a descriptor something to read by then, whatever its number? `select` takes none above 1023."""

from __future__ import annotations

import select
from math import ceil


def can_be_read(fd: int, within_s: float | None) -> bool:
    """Whether it can be read, or has come to its end, within that time; None: wait for it however long."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if within_s is None else ceil(max(0.0, within_s) * 1000)))
