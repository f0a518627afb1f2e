"""What does something cost, where a clock would tell of the machine as well? So many lines of ours run for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(action: Callable[[], object]) -> int:
    """How many lines of the package run, those of loops each time."""
    n = 0

    def count(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal n
        if "/cantle/" not in frame.f_code.co_filename:
            return None
        n += event in ("line", "call")
        return count

    sys.settrace(count)
    try:
        action()
    finally:
        sys.settrace(None)
    return n
