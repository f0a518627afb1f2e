"""Which calls stand in line at each worker: what is sent ahead, taken back, over there, or shall never begin?

Calls are sent ahead, as many as stand in line, so that a worker goes from one to the next by itself. What it has not begun is
taken back, from the socket between them, when the line is to be changed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

from cantle.model.records import Outcome
from cantle.runner import clock
from cantle.runner.family import Place
from cantle.runner.messages import Ended, Key, Start
from cantle.runner.wording import how_it_ended

from . import wire
from .hiring import Worker
from .keeping import Keeping
from .store import Store, remove

WATCH_S = 0.25
"""So often the memory of a call is looked at that has a bound."""
_FEW = 16
"""When so few calls are left at a worker, the conductor is told at once of those that are over, and sends more meanwhile."""
_AHEAD = 64
"""So many calls are sent ahead to a worker at most; it remembers twice as many results."""
_POKE_EACH = 16
"""Of a line, the end of each so-manieth call and of the last is heard at once, that of the others with it or soon after."""
_NOT_DONE_BEFORE = "it never began, because the call that it was to follow was not done"


class Lines:
    """The lines of all workers of a node.

    `is_up` is told of workers that begin to listen, `has_none` of those that have no call any more.
    """

    def __init__(
        self, keeper: Keeping, store: Store, is_up: Callable[[Worker], None], has_none: Callable[[Worker], None]
    ) -> None:
        self._keeper = keeper
        self._reports = keeper.reports
        self._places = keeper.places
        self._store = store
        self._is_up = is_up
        self._has_none = has_none
        self.bodies: dict[str, bytes] = {}
        """The functions that calls may name, by their digests."""
        self.where: dict[Key, Worker] = {}
        """At which worker each call is."""
        self._files: dict[Key, str] = {}
        """Calls whose message lies in a file."""

    def add(self, worker: Worker, start: Start) -> None:
        """The call is the last in line there; somebody has to `feed` the worker then."""
        self.where[start.key] = worker
        worker.waiting.append(start)

    def feed(self, worker: Worker) -> None:
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
                self.never_began(worker, start.key, "unstartable", f"its arguments: {error.strerror or error}")
                continue
            if message is None:
                waiting.popleft()
                self.never_began(worker, start.key, "interrupted", "what it was to take is not there")
                continue
            try:
                worker.socket.send(message)
            except (BlockingIOError, ConnectionError):
                break  # the line is as long as the socket takes; or the worker has ended, which is about to be seen
            if poke:
                worker.unpoked = 0
            if not sent:
                self._begins(worker, clock.now())
            sent.append(waiting.popleft())
        if not sent and not waiting and worker.place is not None:
            self._has_none(worker)

    def _message(self, worker: Worker, start: Start, poke: bool) -> bytes | None:
        call = start.command.call
        assert call is not None
        if call.function not in worker.known:
            body = self.bodies.get(call.function)
            if body is not None:
                self._send_definition(worker, call.function, body)
        after = start.after
        given: list[tuple[int, bytes | str | None]] = []
        if after is not None and self.where.get(after) is not worker:
            ended = self._reports.made(after)
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
            path = self._store.put(f"call-{start.key[0]}-{start.key[1]}", data)
            self._files[start.key] = path
            data = wire.encode((wire.IN_FILE, path))
        return data

    def _send_definition(self, worker: Worker, digest: str, body: bytes) -> None:
        data = wire.encode((wire.DEFINE, digest, body))
        if len(data) > wire.MOST_BYTES:
            data = wire.encode((wire.IN_FILE, self._store.put(f"function-{digest}", data)))
        try:
            worker.socket.send(data)
        except (BlockingIOError, ConnectionError):
            return  # the call after it cannot be sent either, and is tried again
        worker.known.add(digest)

    def _begins(self, worker: Worker, wall: float) -> None:
        worker.began_at = time.monotonic()
        worker.began_wall = wall
        worker.long = False
        worker.next_watch = worker.began_at + WATCH_S
        worker.peak_mib = 0.0

    def take_back(self, worker: Worker) -> None:
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

    def hold_back(self, worker: Worker) -> None:
        """Take back what has not begun, and hear what is over: then at most one call is at the worker."""
        self.take_back(worker)
        self.hear(worker, last=True)

    def hear(self, worker: Worker, last: bool = False) -> None:
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
                self._is_up(worker)
                self._begins(worker, clock.now())
                continue
            start = sent.popleft()
            assert start.key == message[1:3], f"{start.key} is over as {message[1:3]}"
            self._over(worker, start, message)
            self._begins(worker, clock.BASE + message[7])
        if not last:
            self.feed(worker)

    def _over(self, worker: Worker, start: Start, message: tuple[Any, ...]) -> None:
        _, _, _, status, result, size, began, ended, cpu_s, peak_mib, out_at, err_at, detail = message
        key = start.key
        place = worker.place
        assert place is not None
        del self.where[key]
        if self._files:
            self._drop_file(key)
        if status == wire.NEVER_BEGAN:
            self._reports.never_began(key, "interrupted", _NOT_DONE_BEFORE)
            self._places.let_go(key, place)
            return
        outcome: Outcome = "done" if status == wire.DONE else "failed"
        if worker.attempt.outcome:  # somebody had decided to end it, and it was a moment quicker
            outcome, detail = worker.attempt.outcome, worker.attempt.detail  # type: ignore[assignment]
            if not isinstance(result, bytes):
                remove(result)
            result, size = b"", 0
        kept = isinstance(result, str)
        self._reports.over(
            Ended(
                self._reports.number(),
                key,
                clock.BASE + ended,
                outcome,
                0,
                0,
                cpu_s,
                max(peak_mib, worker.peak_mib),
                detail,
                self._words(worker, out_at, err_at),
                0.0 if worker.long else clock.BASE + began,
                0 if worker.long else worker.attempt.pid,
                (),
                b"" if kept else result,
                size if kept else 0,
                result if kept else "",
            ),
            status != wire.DONE or len(worker.sent) <= _FEW,
        )
        if outcome != "done":
            self._places.let_go(key, place)

    def _words(self, worker: Worker, out_at: int, err_at: int) -> str:
        """Where the call's output lies, as in `Ended.output`."""
        if worker.quiet_words[:2] == (out_at, err_at):
            return worker.quiet_words[2]
        writer = worker.attempt.output.writer
        assert writer is not None
        words = writer.upto(out_at, err_at)
        worker.quiet_words = (out_at, err_at, writer.upto(out_at, err_at))
        return words

    def never_began(self, worker: Worker, key: Key, outcome: Outcome, detail: str) -> None:
        """The call is over without having begun, and so are those that were to follow it if it was done."""
        place = worker.place
        assert place is not None
        self.where.pop(key, None)
        self._reports.never_began(key, outcome, detail)
        gone = {key}
        for start in list(worker.waiting):
            if start.after in gone:
                gone.add(start.key)
                worker.waiting.remove(start)
                self.where.pop(start.key, None)
                self._reports.never_began(start.key, "interrupted", _NOT_DONE_BEFORE)
        for each in gone:
            self._places.let_go(each, place)

    def _drop_file(self, key: Key) -> None:
        path = self._files.pop(key, "")
        if path:
            remove(path)

    def died(self, worker: Worker, start: Start, place: Place) -> None:
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
        self._store.forget(start.key)
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
        self.where.pop(start.key, None)
        self._reports.over(
            Ended(
                self._reports.number(),
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
                self.never_began(worker, other.key, "interrupted", _NOT_DONE_BEFORE)
        self._places.let_go(start.key, place)
