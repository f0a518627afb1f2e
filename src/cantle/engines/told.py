"""What is told of an attempt: a runner's words as the journal stores them, and why one could not be sent there?"""

from __future__ import annotations

from msgspec.structs import replace

from cantle.model.records import TaskEnded
from cantle.runner.messages import Ended, Key, Started


def on_our_clock(message: Ended | Started, ahead_s: float) -> Ended | Started:
    """The same, with times as this machine's clock would have told them."""
    if isinstance(message, Started) or not message.started:
        return replace(message, time=message.time - ahead_s)
    return replace(message, time=message.time - ahead_s, started=message.started - ahead_s)


def as_event(ended: Ended) -> TaskEnded:
    """A runner's result as the event that the journal stores."""
    task, attempt = ended.key
    return TaskEnded(
        ended.time,
        task,
        attempt,
        ended.outcome,
        ended.exit_code,
        ended.signal,
        ended.cpu_s,
        ended.peak_mib,
        ended.detail,
        ended.output,
        ended.started,
        ended.pid,
        kept=ended.kept,
    )


def unstartable(now: float, key: Key, why: str, everywhere: bool = True) -> TaskEnded:
    """That an attempt cannot be started: `everywhere`, or only on the nodes that it was to have."""
    return TaskEnded(now, key[0], key[1], "unstartable", detail=why, everywhere=everywhere)


def no_text(error: UnicodeEncodeError) -> str:
    """Why a start cannot be sent."""
    return f"its command holds text that is no valid Unicode: {error.object[:80]!a}"
