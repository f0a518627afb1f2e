"""How is a provider spoken with that may be slow, hang, or break? By a thread of its own, one call after another."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from cantle.errors import said_by

from .base import Provider

MOST_FAULTS = 5
"""After so many in a row a provider that breaks while it tends its nodes is not asked to any more."""


class Desk:
    """Does what it is given for one provider, in order; between that the provider tends its nodes.

    `note` is told what the user should know, from the thread; `gives_up` why the provider is asked no more.
    """

    def __init__(
        self,
        provider: Provider,
        note: Callable[[str], None],
        gives_up: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self.provider = provider
        self.given_up = ""
        """Why nothing more is asked of the provider, but to take back what it brought."""
        self._note = note
        self._gives_up = gives_up
        self._todo: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._closed_well = False
        self._faults = 0
        self._busy_since = math.inf
        self._thread: threading.Thread | None = None

    def give(self, errand: Callable[[], None]) -> None:
        """Do this when all before it is done. It must not raise."""
        with self._changed:
            self._todo.append(errand)
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._live, name=f"kind {self.provider.kind.name}", daemon=True)
                self._thread.start()
            self._changed.notify()

    def give_up_if_hung(self, seconds: float) -> None:
        """The provider has not come back for so long: whatever waits for it waits in vain."""
        busy_s = monotonic() - self._busy_since
        if busy_s >= seconds and not self.given_up:
            self.given_up = f"its provider has not come back for {busy_s:.0f} s from what was asked of it"
            self._gives_up(self.given_up)

    def close(self) -> None:
        """What was not begun is left; the provider closes next. Does not wait for that."""
        with self._changed:
            self._closing = True
            self._todo.clear()
            self._changed.notify()

    def closed_within(self, seconds: float) -> bool:
        """Whether by then the provider has closed, and nothing it brought is left."""
        if self._thread is None:
            return True  # it was never asked for anything
        self._thread.join(max(0.0, seconds))
        return self._closed_well and not self._thread.is_alive()

    # In the thread

    def _live(self) -> None:
        again_at = 0.0
        while True:
            with self._changed:
                while not (self._todo or self._closing) and (pause := again_at - monotonic()) > 0:
                    self._changed.wait(None if pause == math.inf else pause)
                if self._closing:
                    break
                errand = self._todo.popleft() if self._todo else None
            self._busy_since = monotonic()
            if errand is not None:
                errand()
            pause = self._tend()
            self._busy_since = math.inf
            again_at = monotonic() + pause
        try:
            self.provider.close()
            self._closed_well = True
        except BaseException as problem:  # noqa: BLE001 - the run ends, whatever it is
            self._note(f"kind {self.provider.kind.name}: {said_by(problem)}")

    def _tend(self) -> float:
        if self._faults >= MOST_FAULTS:
            return math.inf
        try:
            pause = float(self.provider.tend())
        except BaseException as problem:  # noqa: BLE001 - a plug-in's fault is told, and not the run's end
            self._faults += 1
            why = f"its provider broke: {said_by(problem)}"
            if self._faults == 1:
                self._note(f"kind {self.provider.kind.name}: {why}")
            elif self._faults == MOST_FAULTS:
                self.given_up = f"{why}, {MOST_FAULTS} times in a row"
                self._gives_up(self.given_up)
            return float(self._faults)
        self._faults = 0
        return pause if pause >= 0 else 1.0
