"""A provider, spoken with as a run would: what it answers, and an elastic allocation around it whose events are gathered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cantle.allocations.fleet.source import Invitation
from cantle.allocations.providers.base import Asked, Provider
from cantle.model.resources import Node


class Heard:
    """The answers of a provider, as they come."""

    def __init__(self) -> None:
        self.instances: list[str] = []
        self.details: list[tuple[str, float]] = []
        self.refusals: list[tuple[int, str]] = []
        self.ended: list[tuple[str, int, str]] = []
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        self.there: dict[str, list[str]] = {}

    def handed_out(self, request: int, instance: str) -> None:
        self.instances.append(instance)

    def waits(self, request: int, detail: str, expected_at: float = 0.0) -> None:
        self.details.append((detail, expected_at))

    def refused(self, request: int, n: int, why: str) -> None:
        self.refusals.append((n, why))

    def over(self, request: int, instance: str, n: int, why: str) -> None:
        self.ended.append((instance, n, why))

    def arrived(self, request: int, nodes: Sequence[Node]) -> None:
        self.nodes += nodes

    def joined(self, request: int) -> Mapping[str, Sequence[str]]:
        return self.there

    def note(self, text: str) -> None:
        self.notes.append(text)


def asked(folder: Path, count: int, number: int = 0) -> Asked:
    """A request, with an invitation."""
    invitation = Invitation(str(folder / "letter"), b"a letter\n", "python3")
    return Asked(number, count, f"cantle-cpu-{number}-abcd", str(folder), str(folder / "elastic"), invitation)


def tended(provider: Provider, true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Let the provider tend what it has until that is so."""
    stop = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < stop, "it did not come about"
        time.sleep(min(0.05, max(0.0, provider.tend())))
