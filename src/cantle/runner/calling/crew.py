"""Which function workers are on this node, and which calls stand in line at each?

Of each place in use one worker is busy; those whose place is free wait for a while for the next call of their kind: on the same
cores, with the same environment. Calls are sent ahead, as many as stand in line, so that a worker goes from one to the next by
itself. What it has not begun is taken back, from the socket between them, when the line is to be changed.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections import deque
from typing import Any, Protocol, TypeAlias

import cantle
from cantle.model.records import Outcome
from cantle.model.study import Command
from cantle.runner import processes
from cantle.runner.family import Attempt, Family, Place
from cantle.runner.messages import Define, Ended, Forget, Key, Setup, Start, Started
from cantle.runner.spawn import Spawner
from cantle.runner.wording import duration, how_it_ended

from . import wire
from .store import Store, remove

FIRST_KEY = 1 << 48
"""Workers are attempts of the family like any other, with numbers that no task has."""
_FEW = 16
"""When so few calls are left at a worker, the conductor is told at once of those that are over, and sends more meanwhile."""
_AHEAD = 64
"""So many calls are sent ahead to a worker at most; it remembers twice as many results."""
_POKE_EACH = 16
"""Of a line, the end of each so-manieth call and of the last is heard at once, the others together with it,"""
_LOOK_S = 0.003
"""or this much later."""
_LONG_S = 0.035
"""A call that has run for so long is told as started, and nobody is sent behind it."""
_MOST_STILLBORN = 3
"""So many workers are begun before a call counts as one that cannot be started; then each costs one call."""
_WATCH_S = 0.25
_IDLE_S = 60.0
"""So long a worker without calls is kept,"""
_LEAST_IDLE = 8
"""so many of them, or twice the cores of the node if that is more."""
_NOT_DONE_BEFORE = "it never began, because the call that it was to follow was not done"

Kind: TypeAlias = "tuple[int, str, str, tuple[tuple[str, str | None], ...]]"
"""Base, cores, GPUs, and what is laid over the environment: calls of one kind can share a worker."""

_LAUNCH = "import sys; sys.path.append({root!r}); from cantle.runner.calling.worker import main; main()"


class Keeping(Protocol):
    """What the crew asks of the one who keeps all attempts of the node."""

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


class Worker:
    """One worker, and the calls in line there: first those that were `sent`, then those that wait here."""

    __slots__ = (
        "attempt",
        "began_at",
        "began_wall",
        "kind",
        "known",
        "long",
        "next_watch",
        "peak_mib",
        "place",
        "poke",
        "quiet_words",
        "ready",
        "sent",
        "socket",
        "theirs",
        "unpoked",
        "waiting",
    )

    def __init__(self, kind: Kind, attempt: Attempt, ours: socket.socket, theirs: socket.socket, poke: int) -> None:
        self.kind = kind
        self.attempt = attempt
        self.socket = ours
        self.theirs = theirs
        self.poke = poke
        self.place: Place | None = None
        self.sent: deque[Start] = deque()
        self.waiting: deque[Start] = deque()
        self.known: set[str] = set()
        self.ready = False
        self.long = False
        self.began_at = self.began_wall = 0.0
        self.next_watch = 0.0
        self.peak_mib = 0.0
        self.unpoked = 0
        self.quiet_words: tuple[int, int, str] = (-1, -1, "")


class Crew:
    """The function workers of a node."""

    def __init__(self, setup: Setup, family: Family, keeper: Keeping, poll: select.poll) -> None:
        self._setup = setup
        self._family = family
        self._keeper = keeper
        self._poll = poll
        self.store = Store(setup.directory, os.path.dirname(setup.packed))  # noqa: PTH120
        self._bodies: dict[str, bytes] = {}
        self._busy: dict[Place, Worker] = {}
        self._idle: dict[Kind, list[tuple[float, Worker]]] = {}
        self._by_poke: dict[int, Worker] = {}
        self._by_attempt: dict[Key, Worker] = {}
        self._where: dict[Key, Worker] = {}
        self._serial = FIRST_KEY
        self._files: dict[Key, str] = {}
        """Calls whose message lies in a file."""
        self._closing = False
        self._most_idle = max(_LEAST_IDLE, 2 * len(setup.core_ids))
        self._stillborn: dict[Kind, int] = {}
        """How many workers of a kind died one after the other before they were ready."""
        self._fresh: dict[Key, Worker] = {}
        """Workers for which there is something new."""
        family.in_workers = self._worker_of

    # What the keeper says

    def define(self, message: Define) -> None:
        """A function that calls may name."""
        self._bodies[message.digest] = message.body

    def forget(self, message: Forget) -> None:
        """Remove these results."""
        for key in message.keys:
            self.store.forget(key)

    def place_of(self, key: Key) -> Place | None:
        """Where this call stands in line or runs; None for unknown ones."""
        worker = self._where.get(key)
        return None if worker is None else worker.place

    def joins(self, start: Start, place: Place) -> bool:
        """Let the call stand in line at the worker that has this place, if it is of its kind. Whether it does."""
        worker = self._busy.get(place)
        if worker is None or worker.kind != _kind(start) or worker.attempt.outcome:
            return False
        self._add(worker, start)
        return True

    def begin(self, start: Start, place: Place) -> None:
        """The place is free: call there. Raises NotStarted when no worker can be started."""
        kind = _kind(start)
        worker = self._take_idle(kind) or self._new_worker(kind)
        worker.place = place
        self._busy[place] = worker
        self._add(worker, start)

    def end(self, key: Key, outcome: Outcome, detail: str, grace_s: float) -> bool:
        """End this call, or let it never begin. Whether it was here."""
        worker = self._where.get(key)
        if worker is None:
            return False
        self._hold_back(worker)
        if self._where.get(key) is not worker:  # it was just over
            self._feed(worker)
            return True
        if worker.sent and worker.sent[0].key == key:
            self._keeper.end(worker.attempt, outcome, detail, grace_s)
        else:
            for start in worker.waiting:
                if start.key == key:
                    worker.waiting.remove(start)
                    break
            self._never_began(worker, key, outcome, detail)
            self._feed(worker)
        return True

    def flush(self) -> None:
        """Send ahead what has come since the last time."""
        while self._fresh:
            self._feed(self._fresh.popitem()[1])

    def hears(self, fd: int) -> None:
        """A worker has poked."""
        worker = self._by_poke.get(fd)
        if worker is not None:
            try:
                os.read(fd, 8)
            except BlockingIOError:
                pass
            self._hear(worker)

    def next_due(self) -> float:
        """When `tick` wants to be called (monotonic)."""
        first = float("inf")
        for worker in self._busy.values():
            if worker.sent and worker.ready:
                first = min(first, self._due(worker))
        for idle in self._idle.values():
            if idle:
                first = min(first, idle[0][0] + _IDLE_S)
        return first

    def tick(self, now: float) -> None:
        """Do what is due: hear what nobody poked for, bound calls in time and memory, end workers that idle."""
        for worker in list(self._busy.values()):
            if worker.sent and worker.ready and now >= self._due(worker):
                self._hear(worker)
                if worker.sent:
                    self._look_at(worker, time.monotonic())
        for kind, idle in list(self._idle.items()):
            while idle and now >= idle[0][0] + _IDLE_S:
                self._keeper.end(idle.pop(0)[1].attempt, "interrupted", "idle", self._setup.grace_s)
            if not idle:
                del self._idle[kind]

    def base_over(self, number: int) -> None:
        """No more calls of that base will come: its workers end."""
        for kind in [kind for kind in self._idle if kind[0] == number]:
            for _, worker in self._idle.pop(kind):
                self._keeper.end(worker.attempt, "interrupted", "its study is over", self._setup.grace_s)

    def has(self, attempt: Attempt) -> bool:
        """Whether this is one of its workers."""
        return attempt.key in self._by_attempt

    def gone(self, attempt: Attempt) -> None:
        """A worker, and all that it started, has ended: so has the call that it was at; the others go on elsewhere."""
        worker = self._by_attempt.pop(attempt.key)
        self._take_back(worker)
        self._hear(worker, last=True)
        self._poll.unregister(worker.poke)
        del self._by_poke[worker.poke]
        for each in (worker.socket, worker.theirs):
            each.close()
        os.close(worker.poke)
        place = worker.place
        if place is None:
            idle = self._idle.get(worker.kind, [])
            idle[:] = [entry for entry in idle if entry[1] is not worker]
        else:
            del self._busy[place]
            if worker.sent:
                self._tell_death(worker, worker.sent.popleft(), place)
            elif worker.waiting and not worker.ready and not self._closing:
                self._stillborn[worker.kind] = self._stillborn.get(worker.kind, 0) + 1
                if self._stillborn[worker.kind] >= _MOST_STILLBORN:
                    self._tell_death(worker, worker.waiting.popleft(), place)
        if attempt.output.writer is not None:
            attempt.output.writer.close()
            attempt.output.writer.owner.give(attempt.output.writer)
        if place is None:
            return
        left = [*worker.sent, *worker.waiting]
        for start in left:
            self._where.pop(start.key, None)
        if self._closing:
            return
        self._go_on(place, left)

    def close(self) -> None:
        """Nothing begins any more; what waits needs no end."""
        self._closing = True
        for worker in self._busy.values():
            self._hold_back(worker)
            for start in worker.waiting:
                self._where.pop(start.key, None)
            worker.waiting.clear()

    def leave(self) -> None:
        """All workers have ended: what they kept goes."""
        self.store.close()

    # A worker's line

    def _add(self, worker: Worker, start: Start) -> None:
        self._where[start.key] = worker
        worker.waiting.append(start)
        self._fresh[worker.attempt.key] = worker

    def _feed(self, worker: Worker) -> None:
        """Send ahead what may be, if the worker is not at a long call or about to end."""
        if worker.attempt.outcome or worker.attempt.status is not None or (worker.long and worker.sent):
            return  # `gone`, or the end of the call, comes back to it
        sent, waiting = worker.sent, worker.waiting
        while waiting and len(sent) < _AHEAD:
            start = waiting[0]
            worker.unpoked += 1
            poke = len(waiting) == 1 or worker.unpoked >= _POKE_EACH
            try:
                message = self._message(worker, start, poke)
            except OSError as error:
                waiting.popleft()
                self._never_began(worker, start.key, "unstartable", f"its arguments: {error.strerror or error}")
                continue
            if message is None:
                waiting.popleft()
                self._never_began(worker, start.key, "interrupted", "what it was to take is not there")
                continue
            try:
                worker.socket.send(message)
            except (BlockingIOError, ConnectionError):
                break  # the line is as long as the socket takes; or the worker has ended, which is about to be seen
            if poke:
                worker.unpoked = 0
            if not sent:
                self._begins(worker, time.time())
            sent.append(waiting.popleft())
        if not sent and not waiting and worker.place is not None:
            self._set_free(worker)

    def _message(self, worker: Worker, start: Start, poke: bool) -> bytes | None:
        call = start.command.call
        assert call is not None
        if call.function not in worker.known:
            body = self._bodies.get(call.function)
            if body is not None:
                self._send_definition(worker, call.function, body)
        after = start.after
        given: list[tuple[int, bytes | str | None]] = []
        if after is not None and self._where.get(after) is not worker:
            ended = self._keeper.made(after)
            if ended is None:
                return None
            after = None
            given.append((ended.key[0], ended.path or ended.result))
        have = {number: path or data for number, data, path in start.given}
        have.update(given)  # type: ignore[arg-type]
        wanted = tuple((number, have.get(number)) for number in call.takes)
        first = self._keeper.spawner(start.command.base).first
        message: tuple[Any, ...] = (
            wire.CALL,
            *start.key,
            after,
            poke,
            str(start.key[0] - first),
            call.function,
            call.file or call.arguments,
            wanted,
        )
        data = wire.encode(message)
        if len(data) > wire.MOST_BYTES:
            path = self.store.put(f"call-{start.key[0]}-{start.key[1]}", data)
            self._files[start.key] = path
            data = wire.encode((wire.IN_FILE, path))
        return data

    def _send_definition(self, worker: Worker, digest: str, body: bytes) -> None:
        data = wire.encode((wire.DEFINE, digest, body))
        if len(data) > wire.MOST_BYTES:
            data = wire.encode((wire.IN_FILE, self.store.put(f"function-{digest}", data)))
        try:
            worker.socket.send(data)
        except (BlockingIOError, ConnectionError):
            return  # the call after it cannot be sent either, and is tried again
        worker.known.add(digest)

    def _begins(self, worker: Worker, wall: float) -> None:
        worker.began_at = time.monotonic()
        worker.began_wall = wall
        worker.long = False
        worker.next_watch = worker.began_at + _WATCH_S
        worker.peak_mib = 0.0

    def _take_back(self, worker: Worker) -> None:
        """What the worker has not begun waits here again."""
        back: list[bytes] = []
        while True:
            try:
                data = worker.theirs.recv(wire.MOST_BYTES, socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionError):
                break
            if not data:
                break
            back.append(data)
        calls = 0
        for data in back:
            message = wire.decode(data)
            if message[0] == wire.DEFINE:
                worker.known.discard(message[1])
            else:
                calls += 1
        for _ in range(calls):
            worker.waiting.appendleft(worker.sent.pop())

    def _hold_back(self, worker: Worker) -> None:
        """Take back what has not begun, and hear what is over: then at most one call is at the worker."""
        self._take_back(worker)
        self._hear(worker, last=True)

    def _hear(self, worker: Worker, last: bool = False) -> None:
        """Report what is over at the worker. `last`: nothing more is sent there for now."""
        sent = worker.sent
        while True:
            try:
                data = worker.socket.recv(wire.MOST_BYTES)
            except (BlockingIOError, ConnectionError):
                break
            if not data:
                break
            message = wire.decode(data)
            if message[0] == wire.READY:
                worker.ready = True
                self._stillborn.pop(worker.kind, None)
                self._begins(worker, time.time())
                continue
            start = sent.popleft()
            assert start.key == message[1:3], f"{start.key} is over as {message[1:3]}"
            self._over(worker, start, message)
            self._begins(worker, message[7])
        if not last:
            self._feed(worker)

    def _over(self, worker: Worker, start: Start, message: tuple[Any, ...]) -> None:
        _, _, _, status, result, size, began, ended, cpu_s, peak_mib, out_at, err_at, detail = message
        key = start.key
        place = worker.place
        assert place is not None
        del self._where[key]
        if self._files:
            self._drop_file(key)
        if status == wire.NEVER_BEGAN:
            self._keeper.never_began(key, "interrupted", _NOT_DONE_BEFORE)
            self._keeper.let_go(key, place)
            return
        outcome: Outcome = "done" if status == wire.DONE else "failed"
        if worker.attempt.outcome:  # somebody had decided to end it, and it was a moment quicker
            outcome, detail = worker.attempt.outcome, worker.attempt.detail  # type: ignore[assignment]
            if not isinstance(result, bytes):
                remove(result)
            result, size = b"", 0
        kept = isinstance(result, str)
        self._keeper.report(
            Ended(
                self._keeper.number(),
                key,
                ended,
                outcome,
                0,
                0,
                cpu_s,
                max(peak_mib, worker.peak_mib),
                detail,
                self._words(worker, out_at, err_at),
                0.0 if worker.long else began,
                0 if worker.long else worker.attempt.pid,
                (),
                b"" if kept else result,
                size if kept else 0,
                result if kept else "",
            ),
            status != wire.DONE or len(worker.sent) <= _FEW,
        )
        if outcome != "done":
            self._keeper.let_go(key, place)

    def _words(self, worker: Worker, out_at: int, err_at: int) -> str:
        """Where the call's output lies, as in `Ended.output`."""
        if worker.quiet_words[:2] == (out_at, err_at):
            return worker.quiet_words[2]
        writer = worker.attempt.output.writer
        assert writer is not None
        words = writer.upto(out_at, err_at)
        worker.quiet_words = (out_at, err_at, writer.upto(out_at, err_at))
        return words

    def _set_free(self, worker: Worker) -> None:
        place = worker.place
        assert place is not None
        worker.place = None
        del self._busy[place]
        self._idle.setdefault(worker.kind, []).append((time.monotonic(), worker))
        self._keeper.free(place)
        if sum(map(len, self._idle.values())) > self._most_idle:
            self._end_oldest()

    def _end_oldest(self) -> None:
        """End the worker that has idled longest: calls of too many kinds have been here."""
        kind = min((kind for kind, idle in self._idle.items() if idle), key=lambda kind: self._idle[kind][0][0])
        worker = self._idle[kind].pop(0)[1]
        self._keeper.end(worker.attempt, "interrupted", "idle", self._setup.grace_s)

    def _never_began(self, worker: Worker, key: Key, outcome: Outcome, detail: str) -> None:
        place = worker.place
        assert place is not None
        self._where.pop(key, None)
        self._keeper.never_began(key, outcome, detail)
        gone = {key}
        for start in list(worker.waiting):
            if start.after in gone:
                gone.add(start.key)
                worker.waiting.remove(start)
                self._where.pop(start.key, None)
                self._keeper.never_began(start.key, "interrupted", _NOT_DONE_BEFORE)
        for each in gone:
            self._keeper.let_go(each, place)

    def _drop_file(self, key: Key) -> None:
        path = self._files.pop(key, "")
        if path:
            remove(path)

    # A call that takes long

    def _due(self, worker: Worker) -> float:
        start = worker.sent[0]
        due = worker.began_at + (_LOOK_S if len(worker.sent) > 1 else _LONG_S) if not worker.long else float("inf")
        if start.walltime_s > 0 and not worker.attempt.outcome:
            due = min(due, worker.began_at + start.walltime_s)
        if start.memory_mib > 0 and not worker.attempt.outcome:
            due = min(due, worker.next_watch)
        return due

    def _look_at(self, worker: Worker, now: float) -> None:
        start = worker.sent[0]
        if worker.attempt.outcome or worker.attempt.status is not None:
            return
        if not worker.long and now >= worker.began_at + _LONG_S:
            self._take_back(worker)
            if len(worker.sent) != 1 or worker.sent[0] is not start:  # it is over, or was not even read
                self._feed(worker)
                return
            worker.long = True
            self._keeper.tell(Started(start.key, worker.began_wall, worker.attempt.pid))
        if start.walltime_s > 0 and now >= worker.began_at + start.walltime_s:
            self._end_current(
                worker, "timeout", f"ran into its walltime of {duration(start.walltime_s)}", self._setup.grace_s
            )
        elif start.memory_mib > 0 and now >= worker.next_watch:
            worker.next_watch = now + _WATCH_S
            members = self._family.members(worker.attempt)
            used = processes.resident_mib(members)
            if used > start.memory_mib:
                used = processes.proportional_mib(members)
            worker.peak_mib = max(worker.peak_mib, used)
            if used > start.memory_mib:
                detail = f"used {used:.0f} MiB of memory, asked for {start.memory_mib} MiB"
                self._end_current(worker, "memory", detail, min(self._setup.grace_s, 1.0))

    def _end_current(self, worker: Worker, outcome: Outcome, detail: str, grace_s: float) -> None:
        key = worker.sent[0].key
        self._hold_back(worker)
        if worker.sent and worker.sent[0].key == key:
            self._keeper.end(worker.attempt, outcome, detail, grace_s)
        else:
            self._feed(worker)

    # Workers

    def _take_idle(self, kind: Kind) -> Worker | None:
        idle = self._idle.get(kind)
        while idle:
            worker = idle.pop()[1]
            if worker.attempt.status is None and not worker.attempt.outcome:
                return worker
        return None

    def _new_worker(self, kind: Kind) -> Worker:
        base, cores, gpus, env = kind
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        poke = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        ours.setblocking(False)
        self._serial += 1
        key = (self._serial, 1)
        root = os.path.dirname(os.path.dirname(os.path.abspath(cantle.__file__)))  # noqa: PTH100, PTH120
        words = (str(theirs.fileno()), str(poke), self.store.folder, self.store.spare)
        argv = (sys.executable, "-P", "-c", _LAUNCH.format(root=root), *words)
        command = Command(argv=argv, env=dict(env), packed=True, base=base)
        os.set_inheritable(theirs.fileno(), True)
        os.set_inheritable(poke, True)
        try:
            pid, output = self._keeper.spawner(base).start(Start(key, command, cores, gpus))
        except BaseException:
            ours.close()
            theirs.close()
            os.close(poke)
            raise
        os.set_inheritable(theirs.fileno(), False)
        os.set_inheritable(poke, False)
        if output.writer is not None:
            output.writer.close()  # the worker has it open: wide nodes have many workers, and a bound on open files
        attempt = Attempt(key, pid, output, 0.0, 0, ("worker", str(self._serial)))
        attempt.passed_on = True
        self._family.add(attempt)
        worker = Worker(kind, attempt, ours, theirs, poke)
        self._by_poke[poke] = worker
        self._by_attempt[key] = worker
        self._poll.register(poke, select.POLLIN)
        return worker

    def _tell_death(self, worker: Worker, start: Start, place: Place) -> None:
        """The worker has ended in the middle of this call."""
        attempt = worker.attempt
        status = attempt.status or 0
        writer = attempt.output.writer
        output, tail = "", ""
        try:
            if writer is not None:
                output, tail = writer.end(True)
        except OSError:  # somebody has removed its files
            pass
        self.store.forget(start.key)
        self._drop_file(start.key)
        outcome: Outcome = attempt.outcome or "failed"  # type: ignore[assignment]
        detail = attempt.detail
        if not attempt.outcome:
            if worker.ready:
                detail = f"its worker process died while it ran: {how_it_ended(status) if status else 'exit code 0'}"
            else:
                outcome = "unstartable"
                detail = f"the worker process for its call could not start: {how_it_ended(status) if status else 'exit code 0'}"
        if tail:
            detail = f"{detail}\n{tail}"
        self._where.pop(start.key, None)
        self._keeper.report(
            Ended(
                self._keeper.number(),
                start.key,
                attempt.ended_at,
                outcome,
                os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
                os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                attempt.cpu_s,
                max(attempt.peak_mib, worker.peak_mib),
                detail,
                output,
                0.0 if worker.long else worker.began_wall,
                0 if worker.long else attempt.pid,
            ),
            True,
        )
        for other in list(worker.waiting):
            if other.after == start.key:
                worker.waiting.remove(other)
                self._never_began(worker, other.key, "interrupted", _NOT_DONE_BEFORE)
        self._keeper.let_go(start.key, place)

    def _go_on(self, place: Place, left: list[Start]) -> None:
        """Who stood in line at a worker that has ended goes on with another one."""
        from cantle.runner.spawn import NotStarted

        while left:
            try:
                self.begin(left[0], place)
            except NotStarted as error:
                self._keeper.never_began(left[0].key, "unstartable", str(error))
                self._keeper.let_go(left.pop(0).key, place)
                continue
            for start in left[1:]:
                self.joins(start, place)
            return
        self._keeper.free(place)

    def _worker_of(self, key: Key) -> Attempt | None:
        """The worker at which this call is, as an attempt of the family."""
        worker = self._where.get(key)
        return None if worker is None else worker.attempt


def _kind(start: Start) -> Kind:
    command = start.command
    return (command.base, start.cores, start.gpus, tuple(sorted(command.env.items())) if command.env else ())
