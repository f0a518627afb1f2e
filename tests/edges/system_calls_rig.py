"""What does a piece of work ask of the operating system? Its calls are counted, so that nobody has to take the time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

_INTERFACE = ("posix", "fcntl", "io", "_io")


def system_calls(work: Callable[[], object]) -> Counter[str]:
    """How often it calls each function of `os` and `fcntl`, and each of files as Python opens them. Of this thread alone."""
    found: Counter[str] = Counter()

    def note(_frame: FrameType, event: str, called: object) -> None:
        if event == "c_call":
            of = getattr(called, "__self__", None)
            module = getattr(called, "__module__", None) or type(of).__module__
            if module in _INTERFACE:
                found[called.__name__] += 1  # type: ignore[attr-defined]

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found
