"""How does what a provider says, in whatever thread, reach the loop? Through a list and a bell that wakes the loop.

It is judged before, where it is said: a provider that tells what cannot be gets a PluginError, and nothing of it is heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from cantle.errors import PluginError
from cantle.model.resources import Node
from cantle.model.seams import Inbox
from cantle.runner.bell import Bell

from . import checking
from .records import Records
from .requests import Request, Requests


class Ear:
    """Does in the loop's thread, one after another, what it is told from others. `notes`: where sentences for the user go."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._told: deque[Callable[[], None]] = deque()
        self._bell = Bell()
        self._inbox: Inbox | None = None

    def open(self, inbox: Inbox) -> None:
        """Begin to hear, whenever the inbox is waited for."""
        self._inbox = inbox
        inbox.watch(self._bell.fd, self._hear)

    def close(self) -> None:
        """Hear what was said last, and no more."""
        if self._inbox is not None:
            self._inbox.unwatch(self._bell.fd)
        self._bell.close()
        while self._told:  # what was said last are notes
            self._told.popleft()()

    def say(self, what: Callable[[], None]) -> None:
        """Do this in the loop's thread. From any thread; never waits."""
        self._told.append(what)
        self._bell.ring()

    def note(self, text: str) -> None:
        """A sentence for the user. From any thread; never waits."""
        self.say(partial(self._notes.append, text))

    def _hear(self) -> None:
        self._bell.hush()
        while self._told:
            self._told.popleft()()


class Heard:
    """What the provider of one kind may say (`base.Answers`). Raises PluginError for what cannot be."""

    def __init__(self, kind: str, ear: Ear, requests: Requests, records: Records | None) -> None:
        self._kind = kind
        self._ear = ear
        self._requests = requests
        self._records = records

    def handed_out(self, request: int, instance: str) -> None:
        """Something was begun for the request."""
        self._known(request).handed.append(checking.name(instance))
        if self._records is not None:
            self._records.handed_out(request, instance)

    def waits(self, request: int, detail: str, expected_at: float = 0.0) -> None:
        """Why its nodes are not there yet."""
        self._say(self._requests.waits, request, checking.text("detail", detail), checking.moment(expected_at))

    def refused(self, request: int, n: int, why: str) -> None:
        """So many will not come."""
        self._say(self._requests.refused, request, checking.number("n", n), checking.text("why", why))

    def over(self, request: int, instance: str, n: int, why: str) -> None:
        """The instance is gone."""
        what = checking.text("instance", instance), checking.number("n", n), checking.text("why", why)
        self._say(self._requests.over, request, *what)

    def arrived(self, request: int, nodes: Sequence[Node]) -> None:
        """These nodes of this machine are there."""
        self._say(self._requests.arrived, request, checking.nodes(nodes, self._kind, self._requests.held))

    def joined(self, request: int) -> Mapping[str, Sequence[str]]:
        """Who has joined so far."""
        return {instance: tuple(names) for instance, names in list(self._known(request).joined.items())}

    def note(self, text: str) -> None:
        """A sentence for the user."""
        self._ear.note(checking.text("note", text))

    def _known(self, request: int) -> Request:
        found = self._requests.numbered(request) if type(request) is int else None
        if found is None or found.kind != self._kind:
            raise PluginError(f"there is no request {request!r} for nodes of kind {self._kind}")
        return found

    def _say(self, what: Callable[..., None], request: int, *told: object) -> None:
        self._ear.say(partial(what, self._known(request), *told))
