"""How does an allocation that stands on another one hear what that one says, before the run does?"""

from __future__ import annotations

from collections.abc import Callable

from cantle.model.records import Event
from cantle.model.seams import Inbox


class OverheardInbox:
    """The inbox as the one below sees it: each of its events goes to `hear`, with the inbox to which it may be handed on."""

    def __init__(self, inbox: Inbox, hear: Callable[[Event, Inbox], None]) -> None:
        self._inbox = inbox
        self._hear = hear
        self.watch = inbox.watch
        self.unwatch = inbox.unwatch
        self.now = inbox.now

    def put(self, event: Event) -> None:
        """Hand over an event."""
        self._hear(event, self._inbox)
