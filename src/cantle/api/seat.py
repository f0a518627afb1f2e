"""How does a program talk with its pilot as it goes: who numbers calls, who sends them when, and who hears what became of them?

Calls gather until somebody waits for one, until there are many, or until a moment has passed. They are sent in the order in
which they were handed in. One thread listens, one sends what nobody else has sent, and one calls users' callbacks.

A signal (Ctrl-C) may end any step of the main thread between two of its calls: what belongs together is stored without a call
in between, and what was sent of a frame is counted by the very step that sends it.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cantle.errors import CantleBug, MachineError, PilotGoneError, RequestError, printable
from cantle.model.study import Step
from cantle.runtime.pilot.messages import framed
from cantle.runtime.pilot.sitting_messages import (
    MOST_SAID,
    AskNodes,
    Begun,
    CancelTasks,
    Dismissed,
    Down,
    Ends,
    Fetch,
    Fetched,
    ForgetTasks,
    Function,
    Heeded,
    Leave,
    Left,
    LetGo,
    NewSteps,
    NewTask,
    NewTasks,
    NodesNow,
    Note,
    PartitionNews,
    ResizePartition,
    Up,
    WishNodes,
)

if TYPE_CHECKING:
    import socket

    from cantle.api.futures import Future

A = TypeVar("A")
BATCH = 256
"""So many calls are sent at once, without waiting for more."""
BATCH_BYTES = 4 << 20
GATHER_S = 0.002
"""So long a call waits for others that go with it, when nobody waits for it."""

_seats: weakref.WeakSet[Seat] = weakref.WeakSet()


class _Frame:
    """A frame on its way, and how much of it has been sent."""

    __slots__ = ("data", "sent")

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.sent: list[int] = []


class Seat:
    """One program's place at one pilot."""

    def __init__(
        self,
        connection: socket.socket,
        pilot: str,
        news: Callable[[PartitionNews], None],
        let_go: Callable[[list[int]], None],
        log: str = "its pilot.log",
    ) -> None:
        self.pilot = pilot
        """What people call it."""
        self.waiting: dict[int, Future[Any]] = {}
        """By number, the calls that are not over."""
        self.tally: dict[str, Counter[str]] = {}
        """By step, how many calls were handed in, run, and ended how."""
        self.unseen: dict[int, tuple[str, str]] = {}
        """By number, the names of calls that failed, and why, as long as nobody has asked what became of them."""
        self.left = threading.Event()
        """Nothing will be heard any more."""
        self.parted = False
        """The pilot has said that all is over."""
        self.closed = False
        """No more calls are taken."""
        self._log = log
        self._news = news
        self._let_go = let_go
        self._connection = connection
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._base = 0
        self._tasks: list[NewTask] = []
        self._out: list[Up] = []
        self._weight = 0
        self._dropped: deque[int] = deque()
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._frame: _Frame | None = None
        self._wake = threading.Semaphore(0)
        self._asleep = True
        self._steps: dict[Step, int] = {}
        self._digests: set[str] = set()
        self._fetches: dict[int, list[Future[Any]]] = {}
        self._nodes: deque[queue.SimpleQueue[NodesNow | None]] = deque()
        self._asked: deque[queue.SimpleQueue[Heeded | None]] = deque()
        self._to_tell: queue.SimpleQueue[Future[Any] | None] | None = None
        self._gone: BaseException | None = None
        _seats.add(self)
        for life in (self._listen, self._send_late):
            threading.Thread(target=life, name=f"cantle-{life.__name__.strip('_')}", daemon=True).start()

    # Handing in

    def step(self, step: Step) -> int:
        """The number of this step, which the pilot knows from now on."""
        number = self._steps.get(step)
        if number is None:
            with self._lock:
                number = self._steps.get(step)
                if number is None:
                    number = len(self._steps)
                    self.tally.setdefault(step.name, Counter())
                    self._put((NewSteps([step]),))
                    self._steps[step] = number
        return number

    def define(self, digest: str, body: bytes) -> None:
        """The pilot knows this function from now on."""
        if digest not in self._digests:
            with self._lock:
                self._put((Function(digest, body),))
                self._digests.add(digest)

    def hand_in(self, future: Future[Any], task: NewTask) -> None:
        """The call goes out with the next ones. Raises RequestError when no more are taken, PilotGoneError."""
        with self._lock:
            if self.closed or self._gone is not None:
                raise self._why_closed()
            number = self._base + len(self._tasks)
            self.waiting[number] = future
            self._tasks.append(task)
            future.number = number
            self._weight += len(task.arguments)
            self._count(future.step, "all")
            many = len(self._tasks) >= BATCH or self._weight >= BATCH_BYTES
            late, self._asleep = self._asleep, False
        if many:
            self.flush()
        elif late:
            self._wake.release()

    def say(self, *messages: Up) -> None:
        """These go out after the calls that were handed in before."""
        with self._lock:
            if self._gone is not None:
                raise self._why_closed()
            self._put(messages)
            late, self._asleep = self._asleep, False
        if late:
            self._wake.release()

    def flush(self) -> None:
        """Send what has gathered. What cannot be sent as the pilot has gone, the listener tells."""
        if self._pid != os.getpid():
            raise self._why_closed()
        if not (self._tasks or self._out or self._frame):
            return
        with self._sending:
            try:
                self._push()
                with self._lock:
                    out = self._gathered()
                    if not out:
                        return
                    frame = _Frame(framed(out))
                    nothing: list[Up] = []
                    tasks: list[NewTask] = []
                    base = self._base + len(self._tasks)
                    self._frame, self._out, self._tasks, self._base, self._weight = frame, nothing, tasks, base, 0
                self._push()
            except OSError:
                self._frame = None

    def dropped(self, number: int) -> None:
        """Nobody will ask for that result any more. Cheap, and safe at any moment."""
        self._dropped.append(number)

    def cancel(self, future: Future[Any]) -> None:
        """The pilot is told to end it."""
        self.waiting.pop(future.number, None)
        self._count(future.step, "canceled")
        try:
            self.say(CancelTasks([future.number]))
        except (RequestError, MachineError):  # nothing runs any more
            return
        self.flush()

    def fetch(self, future: Future[Any]) -> None:
        """The result is wanted here. Raises RequestError after the pilot was left, PilotGoneError."""
        with self._lock:
            self._fetches.setdefault(future.number, []).append(future)
        try:
            self.say(Fetch(future.number))
        except (RequestError, MachineError):
            self._fetches.pop(future.number, None)
            raise RequestError(
                f"the result of {future.name} was not asked for before its pilot was left; call result() inside the block"
            ) from None

    def nodes(self) -> NodesNow:
        """Which nodes are there. Raises PilotGoneError."""
        return self._answered(AskNodes(), self._nodes)

    def ask(self, question: WishNodes | ResizePartition) -> None:
        """Until the pilot has taken note. Raises RequestError with why it does not, PilotGoneError."""
        if problem := self._answered(question, self._asked).problem:
            raise RequestError(problem)

    def _answered(self, question: Up, waiting: deque[queue.SimpleQueue[A | None]]) -> A:
        answer: queue.SimpleQueue[A | None] = queue.SimpleQueue()
        with self._asking:  # answers come in the order of the questions
            waiting.append(answer)  # first, as another thread may send what is said, and the answer be there at once
            try:
                self.say(question)
            except BaseException:
                with suppress(ValueError, IndexError):  # the listener may have told all who waited
                    waiting.remove(answer)
                raise
        self.flush()
        if self.left.is_set():  # all who waited may have been told already
            answer.put(None)
        told = answer.get()
        if told is None:
            raise self._why_closed()
        return told

    def tell(self, future: Future[Any]) -> None:
        """Its callbacks are called, but not in the thread that listens: they may ask for results."""
        if self._to_tell is None:
            with self._lock:
                if self._to_tell is None:
                    self._to_tell = queue.SimpleQueue()
                    threading.Thread(target=self._call_back, name="cantle-call-back", daemon=True).start()
        self._to_tell.put(future)

    def leave(self, cancel: bool) -> None:
        """No more calls come; `left` is set when all are over. With `cancel` they are canceled now."""
        self.closed = True
        try:
            self.say(Leave(cancel))
        except (RequestError, MachineError):
            return
        self.flush()

    def hang_up(self) -> None:
        """Whatever is not over is lost."""
        import socket

        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    # Sending

    def _put(self, messages: Iterable[Up]) -> None:
        """These go out after the calls that were handed in before. Under the lock."""
        out = [*self._gathered(), *messages]
        base = self._base + len(self._tasks)
        tasks: list[NewTask] = []
        self._out, self._tasks, self._base, self._weight = out, tasks, base, 0

    def _gathered(self) -> list[Up]:
        """What is to be sent, in its order. Under the lock."""
        out = [*self._out]
        if self._tasks:
            out.append(NewTasks(self._base, self._tasks))
        if self._dropped:
            dropped = []
            while self._dropped:
                dropped.append(self._dropped.popleft())
            out.append(ForgetTasks(dropped))
        return out

    def _push(self) -> None:
        """Send the rest of the frame, if there is one. Raises OSError."""
        frame = self._frame
        if frame is None:
            return
        send = self._connection.send
        while (sent := sum(frame.sent)) < len(frame.data):
            frame.sent.extend(map(send, (frame.data[sent:],)))
        self._frame = None

    def _send_late(self) -> None:
        """Send what nobody waits for."""
        while self._wake.acquire(timeout=1.0) or not self.left.is_set():
            sleep(GATHER_S)
            self._asleep = True
            if self._dropped and not (self._tasks or self._out):
                try:
                    self.say()
                except (RequestError, MachineError):
                    return
            self.flush()

    # Listening

    def _listen(self) -> None:
        """Hear the pilot until it, or this program, hangs up."""
        try:
            try:
                self._hear_all()
            except ConnectionError:  # the same, while something was on its way there
                pass
            why = f"the pilot {self.pilot} went away; what it said last is in {self._log}"
        except (OSError, ValueError) as problem:
            why = f"the connection to the pilot {self.pilot} broke: {problem}"
        self._end(PilotGoneError(why))
        self._connection.close()

    def _hear_all(self) -> None:
        decode = msgspec.msgpack.Decoder(list[Down]).decode
        receive = self._connection.recv
        heard = bytearray()
        while data := receive(1 << 18):
            heard += data
            at = 0
            while len(heard) - at >= 4:
                end = at + 4 + int.from_bytes(heard[at : at + 4], "big")
                if end - at > MOST_SAID + 4:
                    raise ValueError("a message is too long")
                if len(heard) < end:
                    break
                for message in decode(memoryview(heard)[at + 4 : end].tobytes()):
                    self._hear(message)
                at = end
            del heard[:at]

    def _hear(self, message: Down) -> None:
        if isinstance(message, Ends):
            waiting = self.waiting
            for end in message.ends:
                future = waiting.pop(end.task, None)
                if future is not None:
                    self._count(future.step, end.phase)
                    future.over(end)
        elif isinstance(message, Begun):
            for task in message.tasks:
                if (future := self.waiting.get(task)) is not None:
                    future.begun(False)
            for task in message.back:
                if (future := self.waiting.get(task)) is not None:
                    future.begun(True)
        elif isinstance(message, Fetched):
            for future in self._fetches.pop(message.task, ()):
                future.fetched(message)
        elif isinstance(message, LetGo):
            self._let_go(message.tasks)
        elif isinstance(message, NodesNow):
            if self._nodes:
                self._nodes.popleft().put(message)
        elif isinstance(message, Heeded):
            if self._asked:
                self._asked.popleft().put(message)
        elif isinstance(message, PartitionNews):
            self._news(message)
        elif isinstance(message, Note):
            import sys

            print(f"cantle: {printable(message.text)}", file=sys.stderr, flush=True)
        elif isinstance(message, Left):
            self.parted = True
            self._gone = RequestError(f"the pilot {self.pilot} was left: no more can be asked of it")
            self._finish(CantleBug("the pilot told that all is over, and did not tell of this call"))
        elif isinstance(message, Dismissed):
            why = f"the pilot {self.pilot} sent this program away and canceled its calls: {message.why}"
            self._end(PilotGoneError(why))

    def _end(self, error: BaseException) -> None:
        if self._gone is None:
            self._gone = error
        self._finish(self._gone)

    def _finish(self, error: BaseException) -> None:
        self.closed = True
        with self._lock:
            lost = [*self.waiting.values(), *(each for several in self._fetches.values() for each in several)]
            self.waiting.clear()
            self._fetches.clear()
        for future in lost:
            future.lost(error)
        self._news(PartitionNews("", "failed", why=str(error)))
        self.left.set()
        for waiting in (self._nodes, self._asked):
            while waiting:
                waiting.popleft().put(None)
        if self._to_tell is not None:
            self._to_tell.put(None)

    def _count(self, step: str, what: str) -> None:
        tally = self.tally[step]
        tally[what] = tally[what] + 1

    def _call_back(self) -> None:
        assert self._to_tell is not None
        while (future := self._to_tell.get()) is not None:
            future.tell_callbacks()
            del future

    @property
    def went_away(self) -> bool:
        """The pilot has gone by itself, or sent this program away."""
        return isinstance(self._gone, PilotGoneError)

    def _why_closed(self) -> BaseException:
        if self._pid != os.getpid():
            return RequestError("this process was forked from the one that opened the pilot; open one of its own here")
        return self._gone or RequestError(f"the pilot {self.pilot} was left: it takes no more calls")

    def forked(self) -> None:
        """This is a child of the program: the connection is its parent's."""
        self._gone = RequestError(
            "this process was forked from the one that opened the pilot; open one of its own here"
        )
        self.closed = True
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self.left.set()
        self._connection.close()


def _after_fork() -> None:
    for seat in list(_seats):
        seat.forked()


os.register_at_fork(after_in_child=_after_fork)
