"""What becomes of a run's time when somebody sets the machine's clock?

Records bear the time of a clock that nobody sets (`cantle.runner.clock`). What comes from outside as a time of the machine's
clock is turned into that here, and nowhere else. How far the two are apart is written down, for those who show times to people.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cantle.core.state import State
from cantle.model.records import ClockSet, Event, NodesJoined, RequestAnswered
from cantle.runtime.inbox import SelectInbox

TOLD_S = 1.0
"""A change of so much is written down."""


def by_records_time(event: Event, ahead_s: float) -> Event:
    """The event, with the times in it that whoever put it had by the machine's clock, which is so much ahead."""
    if isinstance(event, NodesJoined):
        nodes = [replace(node, ends_at=node.ends_at - ahead_s) if node.ends_at else node for node in event.nodes]
        return replace(event, nodes=nodes)
    if isinstance(event, RequestAnswered) and event.expected_at:
        return replace(event, expected_at=event.expected_at - ahead_s)
    return event


class Timekeeping:
    """Looks now and then whether somebody has set the machine's clock; writes that down, and tells the user."""

    def __init__(self, inbox: SelectInbox, state: State, note: Callable[[str], None]) -> None:
        self._inbox = inbox
        self._note = note
        self._known_s = state.clock_set[-1][1] if state.clock_set else 0.0
        self.look()

    def look(self) -> None:
        """Costs as much as asking for the time twice."""
        ahead_s = self._inbox.clock_ahead_s()
        change_s = ahead_s - self._known_s
        if abs(change_s) < TOLD_S:
            return
        self._known_s = ahead_s
        self._inbox.put(ClockSet(self._inbox.now(), ahead_s))
        way = "forward" if change_s > 0 else "back"
        self._note(
            f"this machine's clock was set {way}, by {abs(change_s):,.0f} s; "
            "walltimes, the lives of nodes and all that waits go by one that was not"
        )
