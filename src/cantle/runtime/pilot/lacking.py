"""What are programs told of nodes that were asked for and do not come? Whoever waits for a result shall know what for."""

from __future__ import annotations

from time import time

from cantle.core.scaling.ledger import Ledger, Request
from cantle.core.scaling.settings import called
from cantle.core.state import State
from cantle.model.resources import count
from cantle.runtime.pilot.sitting_messages import Note

WAITS_S = 10.0
"""Nodes that are on their way for so long, and longer than was said of them, are worth a word: once for each request."""


class OfNodes:
    """Remembers what was told. A call costs next to nothing where no kinds are declared, and by open requests elsewhere."""

    def __init__(self) -> None:
        self._refused: dict[int, int] = {}
        """By request: of how many nodes it was told that they do not come."""
        self._refused_at: dict[str, float] = {}
        self._waiting: set[int] = set()
        self._problems: dict[str, str] = {}

    def __call__(self, state: State) -> list[Note]:
        """What is new."""
        ledger = state.scaling
        if ledger is None:
            return []
        found = []
        if ledger.problems != self._problems:
            before, self._problems = self._problems, dict(ledger.problems)
            found += [
                Note(f"{called(by)} could not say how many nodes it wants: {why}")
                for by, why in self._problems.items()
                if before.get(by) != why
            ]
        if ledger.refused_at != self._refused_at:
            self._refused_at = dict(ledger.refused_at)
            found += [note for request in ledger.requests if (note := self._refusal(ledger, request, state.now))]
        now = state.present(time())
        for request in ledger.open.values():
            if request.number not in self._waiting and now > max(request.asked_at + WAITS_S, request.expected_at):
                self._waiting.add(request.number)
                said = f": {request.detail}" if request.detail else ""
                found.append(Note(f"still waiting for {count(request.coming, 'node')} of kind {request.kind}{said}"))
        return found

    def _refusal(self, ledger: Ledger, request: Request, now: float) -> Note | None:
        more = request.refused - self._refused.get(request.number, 0)
        self._refused[request.number] = request.refused
        if more <= 0:
            return None
        from cantle.core.scaling.refusals import then

        what = then(ledger, request.kind, now)
        said = f"{request.detail or 'nobody said why'}{f'; {what}' if what else ''}"
        return Note(f"{count(more, 'node')} of kind {request.kind} refused: {said}")
