"""What does the crew ask of the one who keeps all attempts of the node?"""

from __future__ import annotations

from typing import Protocol

from cantle.model.records import Outcome
from cantle.runner.family import Attempt, Place
from cantle.runner.messages import Ended, Key, Started
from cantle.runner.spawn import Spawner


class Keeping(Protocol):
    """The keeper, as the crew knows it."""

    def free(self, place: Place) -> None:
        """No call has this place any more: the next in line for it begins."""

    def let_go(self, key: Key, place: Place) -> None:
        """This call was not done: who was to follow it goes back."""

    def report(self, ended: Ended, urgent: bool) -> None:
        """Tell the conductor."""

    def tell(self, started: Started) -> None:
        """Tell the conductor, in time."""

    def number(self) -> int:
        """The number of the next result."""

    def made(self, key: Key) -> Ended | None:
        """The end of an attempt that was done, of which the conductor may not have heard yet."""

    def end(self, attempt: Attempt, outcome: Outcome, detail: str, grace_s: float) -> None:
        """TERM now, KILL after the grace."""

    def spawner(self, base: int) -> Spawner:
        """Who starts processes for this base. Raises NotStarted for an unknown one."""

    def never_began(self, key: Key, outcome: Outcome, detail: str) -> None:
        """Tell the conductor that the attempt is over without having begun."""
