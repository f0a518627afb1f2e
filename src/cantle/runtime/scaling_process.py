"""How is a scaling function of the user's called so that nothing that it does can end the run, or hold it up?

In a process of its own, which is begun when it is asked first and lives as long as the run. When it dies, the next question
begins another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from threading import Lock

import msgspec

from cantle.core.scaling.snapshot import Snapshot, Wish
from cantle.errors import PluginError
from cantle.runtime.apart.child import Child
from cantle.runtime.scaling_inside import Answer, Found

INSIDE = "cantle.runtime.scaling_inside"
_CLOSE_S = 5.0
"""So long the end of a run waits for somebody who still asks."""


class Died(PluginError):
    """The process in which the function ran has ended."""


class FunctionProcess:
    """Calls the function of this name, which can be imported. One question at a time, from one thread.

    `place` is where it stands, to be put behind a sentence; it is told anew by each process.
    """

    def __init__(self, name: str, place: str = "") -> None:
        self._name = name
        self.place = place
        self._child: Child | None = None
        self._heard_of = False
        """The process has said what it has found."""
        self._beginning = Lock()
        self._asking = Lock()
        self._closed = False

    def look(self, within_s: float = inf) -> Found:
        """What the name stands for. Raises Died when its process ended over that, or was not done with it by then."""
        with self._asking:
            child = self._begun()
            try:
                return self._found(child, within_s)
            except TimeoutError:
                self.end()
                raise Died(f"to import it took more than {within_s:g} s") from None
            except (OSError, EOFError, ValueError) as problem:
                raise self._death(problem) from None

    def ask(self, seen: Snapshot) -> Sequence[Wish]:
        """What it wishes. Raises PluginError with what it did wrong, Died when its process has ended."""
        with self._asking:
            return self._asked(seen)

    def end(self) -> None:
        """KILL the process, and what it has started that did not go away. From any thread; waits for nothing."""
        if self._child is not None:
            self._child.end(group=True)

    def close(self) -> None:
        """No more questions come: the process ends, and who waits for an answer gets none."""
        with self._beginning:
            self._closed = True
            self.end()
        if self._asking.acquire(timeout=_CLOSE_S):
            if self._child is not None:
                self._child.let_go()
            self._asking.release()

    def _asked(self, seen: Snapshot) -> Sequence[Wish]:
        child = self._begun()
        try:
            if not self._heard_of:
                self._found(child)
            child.tell(msgspec.msgpack.encode(seen))
            answer = msgspec.msgpack.decode(child.hear(), type=Answer)
        except (OSError, EOFError, ValueError, RecursionError) as problem:
            raise self._death(problem) from None
        if answer.problem:
            raise PluginError(answer.problem + (answer.where or self.place))
        return answer.wishes

    def _found(self, child: Child, within_s: float = inf) -> Found:
        found = msgspec.msgpack.decode(child.hear(within_s), type=Found)
        self._heard_of = True
        self.place = found.place or self.place
        return found

    def _begun(self) -> Child:
        child = self._child
        if child is not None and child.lives:
            return child
        if child is not None:
            child.let_go()
        with self._beginning:
            if self._closed:
                raise Died("the run is over")
            try:
                self._child = child = Child(INSIDE, self._name)
            except OSError as problem:
                raise Died(f"no process could be started for it: {problem.strerror or problem}") from None
        self._heard_of = False
        return child

    def _death(self, problem: Exception) -> Died:
        """Of the process, in words."""
        child = self._child
        assert child is not None
        if isinstance(problem, ValueError):  # a DecodeError is one
            self.end()
            how = "it wrote to a descriptor that is not its own"
        else:
            how = child.how_it_ended(group=True)
        return Died(how + ("" if self._heard_of else " when it was imported") + self.place)
