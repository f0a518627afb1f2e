"""How does the conductor let runners in, and how do their bytes reach its engine? A Dask scheduler in a thread of its own.

What happens there is told through `hear`, from that thread: the server is listening, a runner has joined, or was refused,
perhaps before it could say a word. All else goes over the runner's lane, which the loop's thread reads and writes; the lane
ends when the runner has gone.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from cantle.allocations.carrying import Carried
from cantle.allocations.fleet.certificates import Identity, make_identities
from cantle.allocations.fleet.dasked import (
    BEAT,
    HELLO,
    OVER,
    REFUSED,
    WELCOME,
    configure,
    hear_log,
    security_of,
)
from cantle.allocations.fleet.hauling import Hauler, Shelf
from cantle.allocations.fleet.joining import Hello, Verdict
from cantle.allocations.fleet.lane import KEY_BYTES, TAKEN, Lane
from cantle.allocations.fleet.lanes import Lanes
from cantle.allocations.fleet.trust import context_of
from cantle.allocations.fleet.turning import turn

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

_HUNG_UP = ("UNEXPECTED_EOF", "Connection reset", "Stream is closed")
"""A runner tries all addresses, and hangs up on the rest as soon as one has answered."""
_LEAVE_S = 10.0
"""So long the server waits for runners to end their tasks and leave when the run is over."""


class Listening(msgspec.Struct, frozen=True):
    """Runners can come, if they know these addresses and have this identity."""

    addresses: tuple[str, ...]
    identity: Identity


class Broken(msgspec.Struct, frozen=True):
    """The server could not begin, or has died."""

    why: str


class Joined(msgspec.Struct, frozen=True):
    """A runner was let in, as `hello.node`; `channel` leads to it."""

    hello: Hello
    channel: Any
    notes: tuple[str, ...]
    server: str = ""
    """The address of the server beside it, by which other machines fetch its files."""


class Refused(msgspec.Struct, frozen=True):
    """Somebody was not let in. `hello` is None when it never got so far as to say who it is."""

    hello: Hello | None
    why: str


class Hauled(msgspec.Struct, frozen=True):
    """What came of the file of that number."""

    number: int
    carried: Carried


News: TypeAlias = Listening | Broken | Joined | Refused | Hauled


class _Member:
    """A runner as the server's thread knows it, from its connection to its end."""

    __slots__ = ("ahead_s", "heard", "hello", "key", "lane", "notes")

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.key = b""
        """With which it opens its lane, once it was let in."""
        self.lane: Lane | None = None
        self.ahead_s = 0.0
        self.notes: tuple[str, ...] = ()
        self.heard = monotonic()


class FleetServer:
    """Serves from `start` to `close`. `judge` decides on each runner that says hello, in the server's thread.

    `host` is the address to listen on, "" for all; `advertised` are those that runners are told, of which each
    takes what leads here. `silence_s` bounds how long a runner is taken for alive without a word. On the `shelf` lies what
    is brought to this machine.
    """

    def __init__(
        self,
        run: str,
        hear: Callable[[News], None],
        judge: Callable[[Hello], Verdict],
        *,
        host: str = "",
        advertised: Sequence[str] = ("127.0.0.1",),
        silence_s: float = 20.0,
        shelf: Shelf | None = None,
    ) -> None:
        self._run = run
        self._shelf = shelf or Shelf()
        self._hear = hear
        self._judge = judge
        self._host = host
        self._advertised = advertised
        self._silence_s = silence_s
        self._members: dict[str, _Member] = {}
        self._by_key: dict[bytes, str] = {}
        self._lanes_port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._over = False
        self._patience_s = _LEAVE_S
        self._scheduler: Scheduler | None = None
        self._hauler: Hauler | None = None
        self._hauling: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._live, name="fleet", daemon=True)

    def start(self) -> None:
        """Begin. `Listening` follows, or `Broken`."""
        self._thread.start()

    def haul(self, number: int, source: str, to: str, path: str, name: str, at: str) -> None:
        """Bring a file from one server to another, "" for the conductor's own. `Hauled` with that number follows."""
        self._do(self._haul(number, source, to, path, name, at))

    def close(self, patience_s: float = _LEAVE_S) -> None:
        """Tell all runners that the run is over, and wait until they have gone, for a bounded time."""
        self._patience_s = patience_s
        self._over = True
        if self._loop is None or self._end is None:
            return  # it is still being loaded, and nobody can have come
        try:
            self._loop.call_soon_threadsafe(self._end.set)
        except RuntimeError:  # it has ended by itself
            pass
        self._thread.join(patience_s + 5)

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._begin_to, what)
        except RuntimeError:  # the server has ended, and nobody waits for files any more
            what.close()

    # All below runs in the server's thread.

    def _begin_to(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self._hauling.add(task)
        task.add_done_callback(self._hauling.discard)

    async def _haul(self, number: int, source: str, to: str, path: str, name: str, at: str) -> None:
        assert self._hauler is not None
        try:
            carried = await self._hauler.carry(source, to, path, name, at)
        except Exception as problem:  # noqa: BLE001 - somebody waits for an answer, whatever it is
            carried = Carried(problem=f"{type(problem).__name__}: {problem}")
        self._hear(Hauled(number, carried))

    def _live(self) -> None:
        try:
            turn(self._serve())
        except Exception as problem:  # noqa: BLE001 - the run has to know, whatever it is
            self._hear(Broken(f"{type(problem).__name__}: {problem}"))

    async def _serve(self) -> None:
        configure(self._silence_s)
        from distributed.diagnostics.plugin import SchedulerPlugin
        from distributed.scheduler import Scheduler

        hear_log(self._hear_log)
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        if self._over:
            return
        ours, theirs = make_identities(self._run)
        host = self._host or "0.0.0.0"
        scheduler = Scheduler(
            host=f"tls://{host}:0", security=security_of(ours), dashboard=False, dashboard_address=":0"
        )
        self._scheduler = scheduler
        members = self._members
        come, gone = self._come, self._gone

        class Watch(SchedulerPlugin):
            """Tells of workers that come and leave."""

            def add_worker(self, scheduler: Scheduler, worker: str) -> None:  # noqa: ARG002
                come(worker)

            def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:  # noqa: ARG002
                gone(worker, "")

        scheduler.add_plugin(Watch(), name="cantle")
        self._hauler = Hauler(scheduler, self._shelf)
        scheduler.stream_handlers.update({HELLO: self._on_hello, OVER: self._on_over, BEAT: self._on_beat})
        await scheduler
        port = scheduler.port
        addresses = tuple(f"tls://{_bracketed(address)}:{port}" for address in self._advertised)
        lanes = Lanes(self._host, context_of(ours, ssl.Purpose.CLIENT_AUTH), self._on_lane, self._refused)
        self._lanes_port = lanes.port
        self._hear(Listening(addresses, theirs))
        accepting = asyncio.create_task(lanes.accept())
        beating = asyncio.create_task(self._beat())
        ending = asyncio.create_task(self._end.wait())
        try:
            for dead in (await asyncio.wait({ending, beating, accepting}, return_when=asyncio.FIRST_COMPLETED))[0]:
                dead.result()  # without either of the two nobody could join any more, nor stay
            for address in list(members):
                self._send(address, {"op": OVER, "why": ""})
            until = monotonic() + self._patience_s
            while members and monotonic() < until:
                await asyncio.sleep(0.01)
        finally:
            for task in (ending, beating, accepting):
                task.cancel()
            await asyncio.wait_for(scheduler.close(), 5)

    async def _beat(self) -> None:
        """Give signs of life, and miss those of others."""
        pause = max(0.05, min(2.0, self._silence_s / 6))
        while True:
            slept = monotonic()
            await asyncio.sleep(pause)
            now = monotonic()
            if now - slept > pause + self._silence_s / 4:
                # It is us who were not there (stopped, or starved of time): nobody is to blame for our silence.
                for member in self._members.values():
                    member.heard = now
            for address, member in list(self._members.items()):
                if now - member.heard > self._silence_s:
                    self._gone(address, f"its runner gave no sign of life for {self._silence_s:g} s")
                else:
                    self._send(address, {"op": BEAT})

    def _send(self, address: str, message: dict[str, Any]) -> None:
        assert self._scheduler is not None
        comm = self._scheduler.stream_comms.get(address)
        if comm is None:
            self._gone(address, "the connection to its runner broke")
            return
        try:
            comm.send(message)
        except OSError:
            self._gone(address, "the connection to its runner broke")

    def _come(self, address: str) -> None:
        """Somebody with a certificate is there; if he does not say who he is, he is forgotten like one that fell silent."""
        self._members.setdefault(address, _Member())

    def _on_hello(self, worker: str, hello: bytes) -> None:
        member = self._members.setdefault(worker, _Member())
        member.heard = monotonic()
        try:
            said = msgspec.msgpack.decode(hello, type=Hello)
        except (msgspec.DecodeError, RecursionError) as error:
            self._refuse(worker, None, f"a runner at {worker} speaks another language: {error}")
            return
        verdict = self._judge(said)
        if verdict.refusal:
            self._refuse(worker, said, verdict.refusal)
            return
        member.hello = said
        member.key = os.urandom(KEY_BYTES)
        member.ahead_s = verdict.ahead_s
        member.notes = verdict.notes
        self._by_key[member.key] = worker
        self._send(worker, {"op": WELCOME, "key": member.key, "port": self._lanes_port})

    def _on_lane(self, key: bytes, connection: ssl.SSLSocket) -> bool:
        """Somebody with a certificate opens a lane: whose is it? Each key opens one."""
        worker = self._by_key.pop(key, "")
        member = self._members.get(worker)
        if member is None or member.hello is None:
            return False
        lane = Lane(connection, member.ahead_s)
        try:
            connection.send(TAKEN)  # before anybody else uses the connection, and only to whom we tell of
        except OSError:
            lane.close()
            return False
        member.heard = monotonic()
        member.lane = lane
        lane.on_close = partial(self._from_elsewhere, self._let_go, worker)
        self._hear(Joined(member.hello, lane, member.notes, worker))
        return True

    def _on_beat(self, worker: str) -> None:
        member = self._members.get(worker)
        if member is not None:
            member.heard = monotonic()

    def _on_over(self, worker: str, why: str) -> None:
        self._gone(worker, why)

    def _refuse(self, address: str, hello: Hello | None, why: str) -> None:
        self._members.pop(address, None)
        self._send(address, {"op": REFUSED, "why": why})
        self._hear(Refused(hello, why))

    def _from_elsewhere(self, what: Callable[[str], None], address: str) -> None:
        """From another thread: do it in the server's."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(what, address)
        except RuntimeError:  # the server has ended, and all runners with it
            pass

    def _let_go(self, address: str) -> None:
        """The engine has closed its end: the node is used no more."""
        member = self._members.get(address)
        if member is not None and member.lane is not None:
            member.lane = None
            self._send(address, {"op": OVER, "why": ""})

    def _gone(self, address: str, why: str) -> None:
        member = self._members.pop(address, None)
        if member is None:
            return
        self._by_key.pop(member.key, None)
        if member.lane is not None:
            member.lane.why_ended = why
            member.lane.hang_up()
        scheduler = self._scheduler
        if scheduler is not None and address in scheduler.workers:
            assert self._loop is not None
            self._loop.create_task(scheduler.remove_worker(address, stimulus_id="cantle", close=True))

    def _hear_log(self, text: str) -> None:
        _, failed, who = text.partition("TLS handshake failed with remote ")
        if failed and not any(harmless in who for harmless in _HUNG_UP):
            self._refused(who)

    def _refused(self, who: str) -> None:
        self._hear(Refused(None, f"a connection was refused, since it has no certificate of this run: {who}"))


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
