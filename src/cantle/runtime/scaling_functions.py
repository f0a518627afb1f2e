"""How is a scaling function of the user's asked, so that whatever it does, the run goes on?

It runs in a process of its own, on a copy of what is known; a thread here waits for it, and the loop never does. What it
wishes comes back as an event. When it raises, does not return, returns what is no wish, or ends its process, that is said
once, its last wishes are taken back, and it is asked again later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

from cantle.core.phases import FINAL
from cantle.core.scaling.naming import is_built_in
from cantle.core.scaling.seam import Scaler
from cantle.core.scaling.settings import Scaling
from cantle.core.scaling.snapshot import Snapshot, Wish, snapshot
from cantle.core.state import State
from cantle.errors import PluginError, RequestError, said_by
from cantle.model.records import NodesWished
from cantle.runtime.scaling_inside import Found
from cantle.runtime.scaling_process import Died, FunctionProcess

ASKED_EVERY_S = 2.0
"""Between two calls at least so much time passes,"""
ANSWERS_WITHIN_S = 30.0
"""and after so much time without an answer a function is taken to hang: its process is ended."""
IMPORTS_WITHIN_S = 60.0
"""So long its module may take to be imported, when it is looked what it is."""
MOST_PAUSE_S = 60.0
"""After each death in a row the time until it is asked again is twice as long, up to this."""


class Asked(Protocol):
    """Who calls the function. `ask` is called in a thread, one question at a time, the others from any thread."""

    place: str
    """Where the function stands, to be put behind a sentence."""

    def ask(self, seen: Snapshot) -> Sequence[Wish]:
        """What it wishes. Raises PluginError with what it did wrong, Died when a new process has to be begun."""

    def end(self) -> None:
        """Let it not go on with what it does. Does not wait."""

    def close(self) -> None:
        """It is asked no more."""


class ScalingFunction:
    """One function: an observer of the loop that hands it snapshots, and a thread that waits for what it says.

    `put` takes events from any thread; `now` is the time as records bear it.
    """

    def __init__(
        self,
        name: str,
        function: Asked,
        settings: Scaling,
        put: Callable[[NodesWished], None],
        now: Callable[[], float],
        every_s: float = ASKED_EVERY_S,
        within_s: float = ANSWERS_WITHIN_S,
    ) -> None:
        self.name = name
        self._function = function
        self._settings = settings
        self._put = put
        self._now = now
        self._every_s = self._pause_s = every_s
        self._within_s = within_s
        self._questions: SimpleQueue[Snapshot | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._asked_at = float("-inf")
        self._answered = True
        self._hangs = False
        self._closed = False
        self._problem = ""
        self._wished: dict[str, tuple[int, str]] = {}
        self._stirred: tuple[int, ...] = ()
        self._progress_at = 0.0
        self._ended = 0

    def __call__(self, state: State) -> None:
        """Ask it, if it is time. Called once a turn of the loop, in the loop's thread; never waits."""
        if state.scaling is None or not state.scaling.kinds or state.stopping:
            return
        stirred = (*state.totals, len(state.tasks))
        if stirred != self._stirred:
            self._stirred, self._progress_at = stirred, state.now
        now = self._now()
        if not self._answered:
            if now > self._asked_at + self._within_s and not self._hangs:
                self._hangs = True
                self._function.end()
            return
        if now < self._asked_at + self._pause_s:
            return
        self._asked_at = now
        self._answered = self._hangs = False
        seen = snapshot(state, self._settings, self._progress_at, self._ended)
        self._ended = sum(state.totals[phase] for phase in FINAL)
        self._questions.put(seen)
        if self._thread is None:
            self._thread = Thread(target=self._answer_all, name=f"scaling function {self.name}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """The run is over."""
        self._closed = True
        self._questions.put(None)
        self._function.close()

    def _answer_all(self) -> None:
        while (seen := self._questions.get()) is not None:
            pause_s = self._every_s
            try:
                wishes = self._function.ask(seen)
            except Died as problem:
                pause_s = min(2 * self._pause_s, MOST_PAUSE_S)
                hung = f"it had not returned for {self._within_s:g} s, and was ended{self._function.place}"
                self._failed(hung if self._hangs else str(problem))
            except PluginError as problem:
                self._failed(str(problem))
            except BaseException as problem:  # noqa: BLE001 - whatever it is, the run goes on
                self._failed(f"it could not be asked: {said_by(problem)}")
            else:
                self._problem = ""
                self._tell(wishes)
            self._pause_s = pause_s
            self._answered = True

    def _tell(self, wishes: Sequence[Wish]) -> None:
        """What it wishes now, as far as that is new."""
        wished = {wish.kind: (wish.count, wish.why) for wish in wishes}
        for kind in [kind for kind in self._wished if kind not in wished]:
            self._put(NodesWished(self._now(), kind, None, self.name))
        for kind, (count, why) in wished.items():
            if self._wished.get(kind, (None, ""))[0] != count:
                self._put(NodesWished(self._now(), kind, count, self.name, why))
        self._wished = wished

    def _failed(self, problem: str) -> None:
        """Said once, as long as it is the same."""
        if self._closed:
            return
        self._tell(())
        if problem != self._problem:
            self._problem = problem
            self._put(NodesWished(self._now(), "", None, self.name, problem=problem))


def functions_of(
    settings: Scaling | None, put: Callable[[NodesWished], None], now: Callable[[], float]
) -> list[ScalingFunction]:
    """Observers for the functions that the settings name. Raises PluginError, RequestError for one that cannot be found."""
    if settings is None:
        return []
    return [
        ScalingFunction(name, FunctionProcess(name, found.place), settings, put, now)
        for name in _named(settings)
        if not (found := looked_at(name)).decides
    ]


def scalers_of(settings: Scaling) -> dict[str, Scaler]:
    """The policies that the settings name and that decide about nodes themselves: generator functions of a plan.

    One that computes for long is interrupted. Raises PluginError, RequestError for one that cannot be found.
    """
    from cantle.plugins import find
    from cantle.runtime.patience import bounded

    names = [name for name in _named(settings) if looked_at(name).decides]
    return {name: bounded(find("scaling_functions", name), name, what="scaler") for name in names}


@cache
def looked_at(name: str) -> Found:
    """What the name stands for, by a process of its own that imports it, once: only a scaler is imported here as well.

    Raises PluginError, RequestError for what is neither a function nor a scaler.
    """
    process = FunctionProcess(name)
    try:
        found = process.look(IMPORTS_WITHIN_S)
    except Died as problem:
        raise PluginError(f"scaling_function {name}: {problem}") from None
    finally:
        process.close()
    if found.problem:
        raise (RequestError if found.fault == "request" else PluginError)(found.problem)
    return found


def _named(settings: Scaling) -> list[str]:
    return [name for name in settings.policies if not is_built_in(name)]
