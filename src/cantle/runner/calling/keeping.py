"""What does the crew ask of the one who keeps all attempts of the node?"""

from __future__ import annotations

from typing import Protocol

from cantle.model.records import Outcome
from cantle.runner.family import Attempt
from cantle.runner.places import Places
from cantle.runner.reports import Reports
from cantle.runner.spawn import Spawner


class Keeping(Protocol):
    """The keeper, as the crew knows it: where calls have their places, and what the conductor is told."""

    reports: Reports
    places: Places

    def end(self, attempt: Attempt, outcome: Outcome, detail: str, grace_s: float) -> None:
        """TERM now, KILL after the grace."""

    def spawner(self, base: int) -> Spawner:
        """Who starts processes for this base. Raises NotStarted for an unknown one."""
