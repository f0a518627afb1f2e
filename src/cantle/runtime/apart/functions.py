"""How are functions of the user's called that add machines and remove them, so that the run goes on whatever they do?

They run in one process of their own, which is begun when it is first needed and lives as long as the run; what their modules
remember between calls is there. What one of them does to that process, those feel that are called at the time; the next call
begins another one, which remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock, Thread

import msgspec

from cantle.allocations.providers.base import Asked
from cantle.errors import MachineError, PluginError
from cantle.runtime.apart.child import Child
from cantle.runtime.apart.functions_inside import Answer, Call, Look, Question, Where

INSIDE = "cantle.runtime.apart.functions_inside"
IMPORTS_WITHIN_S = 60.0
"""So long a module may take to be imported, when it is looked whether the function is there."""
_TELLS_WITHIN_S = 5.0
"""A process that does not say within that where a call is, lets nothing else run: it is ended."""
_CLOSE_S = 2.0
"""So long a process may take to end by itself."""


class Died(MachineError):
    """The process in which the function ran has ended."""


class Functions:
    """The process, and what it is asked. From any thread."""

    def __init__(self) -> None:
        self._numbers = count()
        self._first: Child | None = None
        """The process while it was only looked at what there is: no thread hears it yet, as somebody may want to fork."""
        self._now: _Life | None = None
        self._changing = Lock()
        self._users = 0
        self._closed = False

    def look(self, name: str) -> str:
        """Where the function stands that is called so, to be put behind a sentence. Raises PluginError when there is none."""
        look = Look(self.next(), name)
        try:
            answer = self._look_first(look) if self._now is None else self._life().asked(look, IMPORTS_WITHIN_S)
        except TimeoutError:
            raise PluginError(f"provider {name}: to import it took more than {IMPORTS_WITHIN_S:g} s") from None
        except Died as problem:
            raise PluginError(f"provider {name}: {problem} when it was imported") from None
        if answer.problem:
            raise PluginError(answer.problem)
        return answer.place

    def begin(self, call: Call) -> Pending:
        """Call it; what is given back waits for what comes of it."""
        life = self._life()
        return Pending(life, call, life.ask(call))

    def next(self) -> int:
        """A number that no other question has."""
        return next(self._numbers)

    def ending(self, name: str, patience_s: float) -> Callable[[str], None]:
        """The function of that name, which ends a machine. It raises MachineError, also when it has not come back by then."""
        place = self.look(name)

        def end(instance: str) -> None:
            pending = self.begin(Call(self.next(), name, [instance]))
            try:
                pending.wait(patience_s, place)
            except Empty:
                at = pending.given_up(self.next(), place)
                raise MachineError(f"{name}: it has not come back within {patience_s:g} s{at}") from None

        return end

    def enlist(self) -> None:
        """Somebody asks, and says so by `close` when he does no more."""
        self._users += 1

    def close(self) -> None:
        """When nobody asks any more, the process ends; what hangs in it, too."""
        with self._changing:
            self._users -= 1
            if self._users > 0:
                return
            self._closed = True
            life, self._now = self._now, None
            first, self._first = self._first, None
        if life is None and first is not None:
            life = _Life(first)
        if life is not None:
            life.close()

    def _look_first(self, look: Look) -> Answer:
        """Raises Died, TimeoutError."""
        try:
            child = self._first = self._first or Child(INSIDE)
        except OSError as problem:
            raise _no_process(problem) from None
        try:
            child.tell(msgspec.msgpack.encode(look))
            return msgspec.msgpack.decode(child.hear(IMPORTS_WITHIN_S), type=Answer)
        except (OSError, EOFError, ValueError) as problem:
            self._first = None
            if isinstance(problem, TimeoutError | ValueError):
                child.end(group=False)
            how = child.how_it_ended(group=False)
            child.let_go()
            if isinstance(problem, TimeoutError):
                raise
            raise Died(how) from None

    def _life(self) -> _Life:
        with self._changing:
            if self._closed:
                raise Died("the run is over")
            if self._now is None or self._now.over:
                first, self._first = self._first, None
                try:
                    self._now = _Life(first)
                except OSError as problem:
                    raise _no_process(problem) from None
            return self._now


def _no_process(problem: OSError) -> Died:
    return Died(f"no process could be started for it: {problem.strerror or problem}")


class _Life:
    """A process, another one if not `begun`, and a thread that hears it until it ends. Raises OSError."""

    def __init__(self, begun: Child | None) -> None:
        self.over = ""
        """How it ended."""
        self._why = ""
        self._waiting: dict[int, SimpleQueue[Answer | None]] = {}
        self._gate = Lock()
        there: SimpleQueue[Child | OSError] = SimpleQueue()
        self._thread = Thread(target=self._hear_all, args=(begun, there), name="functions of providers", daemon=True)
        self._thread.start()
        child = there.get()
        if isinstance(child, OSError):
            raise child
        self._child = child

    def ask(self, question: Question) -> SimpleQueue[Answer | None]:
        """Where the answer comes; None when none comes any more. Raises Died when it has ended already."""
        answer: SimpleQueue[Answer | None] = SimpleQueue()
        with self._gate:
            if self.over:
                raise Died(self.over)
            self._waiting[question.number] = answer
        try:
            self._child.tell(msgspec.msgpack.encode(question))
        except OSError:  # its end comes to be heard
            pass
        return answer

    def asked(self, question: Question, within_s: float) -> Answer:
        """The answer. Raises TimeoutError when none comes within that time, Died."""
        try:
            answer = self.ask(question).get(timeout=within_s)
        except Empty:
            raise TimeoutError from None
        if answer is None:
            raise Died(self.over)
        return answer

    def close(self) -> None:
        """Let it end by itself, else KILL it."""
        self._child.say_no_more()
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            self._child.end(group=False)
            self._thread.join(_CLOSE_S)

    def end(self, name: str) -> None:
        """KILL it, as this function lets nothing else run."""
        self._why = f"its process was ended, since {name} let nothing else run in it"
        self._child.end(group=False)

    def _hear_all(self, begun: Child | None, there: SimpleQueue[Child | OSError]) -> None:
        try:
            child = begun or Child(INSIDE)  # here, as it is ended when the thread ends that has begun it
        except OSError as problem:
            there.put(problem)
            return
        there.put(child)
        try:
            while True:
                answer = msgspec.msgpack.decode(child.hear(), type=Answer)
                with self._gate:
                    waiting = self._waiting.pop(answer.number, None)
                if waiting is not None:
                    waiting.put(answer)
        except (OSError, EOFError):
            over = child.how_it_ended(group=False)
        except (ValueError, RecursionError):  # a DecodeError is one
            child.end(group=False)
            over = "it wrote to a descriptor that is not its own"
        with self._gate:
            self.over = self._why or over
            left = list(self._waiting.values())
        for waiting in left:
            waiting.put(None)
        child.let_go()


class Pending:
    """A call that has begun."""

    def __init__(self, life: _Life, call: Call, answer: SimpleQueue[Answer | None]) -> None:
        self._life = life
        self._call = call
        self._answer = answer

    def wait(self, within_s: float | None, place: str) -> list[str]:
        """What came of it. Raises MachineError with what went wrong, Empty when it has not come back by then."""
        answer = self._answer.get(timeout=within_s)
        if answer is None:
            raise Died(self._life.over + place)
        if answer.problem:
            raise MachineError(answer.problem)
        return answer.machines

    def given_up(self, number: int, place: str) -> str:
        """Where it is, to be put behind a sentence. A process that does not even say that is ended."""
        try:
            return self._life.asked(Where(number, self._call.number), _TELLS_WITHIN_S).place or place
        except Died:
            return place
        except TimeoutError:
            self._life.end(self._call.name)
            return f" and let nothing else run, so its process was ended{place}"


class FunctionCloud:
    """Functions of these names, as `CustomProvider` wants them: `add(kind, n, letter)` gives names, `remove(name)` nothing.

    Raises PluginError when one of them is not there.
    """

    def __init__(self, functions: Functions, add: str, remove: str = "") -> None:
        self.name = add
        self._functions = functions
        self._remove = remove
        self._places = {name: functions.look(name) for name in (add, remove) if name}
        self._last: tuple[Pending, str] | None = None
        self._enlisted = False

    def add(self, asked: Asked, kind: str) -> list[str]:
        """Call the one."""
        letter = asked.invitation.file if asked.invitation else ""
        return self._called(self.name, [kind, asked.count, letter], begins=True)

    def remove(self, instance: str) -> None:
        """Call the other."""
        self._called(self._remove, [instance])

    def given_up(self) -> str:
        """What was called last is not waited for any more: where it is, in words to be put behind a sentence."""
        if self._last is None:
            return ""
        pending, place = self._last
        return pending.given_up(self._functions.next(), place)

    def close(self) -> None:
        """Nothing more is asked."""
        if self._enlisted:
            self._enlisted = False
            self._functions.close()

    def _called(self, name: str, given: list[str | int], begins: bool = False) -> list[str]:
        if not self._enlisted:  # who never asks need not say that he asks no more
            self._enlisted = True
            self._functions.enlist()
        pending = self._functions.begin(Call(self._functions.next(), name, given, begins))
        place = self._places.get(name, "")
        self._last = pending, place
        return pending.wait(None, place)
