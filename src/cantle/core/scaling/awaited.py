"""What is known of nodes that were asked for and are not there: when they should come, and who has said what of them?"""

from __future__ import annotations

from collections.abc import Callable

from cantle.core.lifetimes import in_words
from cantle.core.scaling.ledger import Request

SILENT_S = 5.0
"""Who has not answered for so long is told of; most answer sooner."""


def when_expected(request: Request, now: float, words: Callable[[float], str] = in_words) -> str:
    """`, expected in 48 s`, or how long ago they should have been there; "" where nobody knows. `words`: how durations read."""
    if request.expected_at <= request.asked_at:
        return ""
    left = request.expected_at - now
    if left > 0:
        return f", expected in {words(left)}"
    return f", expected {words(-left)} ago" if left < -1 else ", expected now"


def what_was_said(request: Request, now: float) -> str:
    """The words of who is to bring them, or that there are none yet; "" where it is too soon for any."""
    if request.detail or request.answered:
        return request.detail
    return "who brings them has not answered yet" if now - request.asked_at >= SILENT_S else ""
