"""How does a runner on another machine live? As a child of a Dask worker, which joins the fleet and hands its lane to it.

The child is the same runner that a conductor forks on its own machine; it is forked first, while this process is small. When
the conductor falls silent or says that all is over, the child is told to end; when its lane ends, it does so by itself. Once
all that it started has ended, this process ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

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
from cantle.allocations.fleet.handing import Handed, Told, hand_over
from cantle.allocations.fleet.hauling import Hauler, Shelf
from cantle.allocations.fleet.joining import Hello
from cantle.allocations.fleet.lane import OPENS_S, prepare
from cantle.allocations.fleet.letter import Letter
from cantle.allocations.fleet.reaching import reach
from cantle.allocations.fleet.scratch import Scratch
from cantle.allocations.fleet.source import JOINED
from cantle.allocations.fleet.source import REFUSED as TOLD_REFUSED
from cantle.allocations.fleet.turning import turn
from cantle.runner import clock

if TYPE_CHECKING:
    from distributed.worker import Worker

    from cantle.allocations.forking import LocalChannel

T = TypeVar("T")

DONE, UNREACHABLE, REFUSED_US, LOST, BROKEN = 0, 3, 4, 5, 6
"""How it ended: the run is over; no address led to the conductor; it did not take us; it was lost; our runner is gone."""
_REACH = 3
"""Nothing runs here yet: a conductor to which hundreds come at once may take so many times as long to answer."""
_WELCOME_S = 60.0
_LEAVE_S = 5.0
_WORD_S = 1.0
"""When the lane has ended, the word that all is over comes by another way, and may be that late."""
_SOONER = 0.75
"""A runner gives its conductor up in this part of the time after which the conductor gives it up: so no task runs twice."""


class Member:
    """One runner in the fleet. `say` tells whoever looks at this process's stderr.

    The runner's process lives in `take_over`, at the other end of the channel. `own_env`: tasks get this process's
    environment. `lifeline`: this process ends when its stdin does.
    """

    def __init__(
        self,
        letter: Letter,
        hello: Hello,
        channel: LocalChannel,
        own_env: bool,
        say: Callable[[str], None],
        lifeline: bool = False,
    ) -> None:
        self._letter = letter
        self._hello = hello
        self._channel = channel
        self._own_env = own_env
        self._say = say
        self._lifeline = lifeline
        self._heard = monotonic()
        self._code: int | None = None
        self._why = ""
        self._worker: Worker | None = None
        self._lane: socket.socket | None = None
        """The connection that the runner has. Nothing is read or written here as long as there is a runner."""
        self._reached = ""
        self._port = 0
        self._closing: asyncio.Future[None] | None = None
        self._welcomed = False
        self._shelf = Shelf(letter.directory)

    def live(self) -> int:
        """Join, serve, and end. The exit status."""
        try:
            return turn(self._live(), tidy=False)
        finally:
            self._channel.close()

    async def _live(self) -> int:
        loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(
                number, self._end, LOST, f"somebody sent {signal.Signals(number).name} to the runner"
            )
        if self._lifeline:
            loop.add_reader(0, self._on_stdin)
        patience_s = _REACH * self._letter.silence_s
        found = await self._unless_ended(reach(self._letter.addresses, self._letter.identity, patience_s))
        if found is None:
            return self._given_up()
        if not found.address:
            self._say("no address led to the conductor:\n" + "\n".join(f"  {line}" for line in found.tried))
            return UNREACHABLE
        configure(self._letter.silence_s)
        from distributed.worker import Worker

        problems: list[str] = []
        hear_log(problems.append)
        with Scratch() as scratch:
            worker = Worker(
                found.address,
                nthreads=1,
                security=security_of(self._letter.identity),
                local_directory=scratch,
                memory_limit=0,
                dashboard=False,
                name=f"{self._hello.host}-{os.getpid()}-{os.urandom(4).hex()}",
                heartbeat_interval="60s",  # its own; ours are on the stream
                protocol="tls",
            )
            self._worker = worker
            self._hauler = Hauler(worker, self._shelf, found.address)
            self._reached = found.address
            worker.stream_handlers.update(
                {
                    WELCOME: self._on_welcome,
                    REFUSED: self._on_refused,
                    OVER: self._on_over,
                    BEAT: self._on_beat,
                }
            )
            try:
                if await self._unless_ended(asyncio.wait_for(worker, _WELCOME_S)) is None:
                    return self._given_up()
            except Exception as problem:  # noqa: BLE001 - whatever Dask raises, we are not in
                self._say(f"the conductor at {found.address} did not take this runner: {problem}")
                return REFUSED_US
            hello = replace(self._hello, time=clock.now(), address=found.address)
            self._send({"op": HELLO, "hello": msgspec.msgpack.encode(hello)})
            beating = asyncio.create_task(self._beat())
            asyncio.get_running_loop().add_reader(self._channel.read_fd, self._on_told)
            await self._ended.wait()
            beating.cancel()
            await self._close_runner()  # whatever the conductor hears from now on, what ran here has ended
            if self._why:
                self._send({"op": OVER, "why": self._why})
                if self._code != DONE:
                    self._say(self._why)
                await self._heard_of()
            if self._lane is not None:
                self._lane.close()
            self._shelf.close()
            with suppress(Exception):  # we leave anyway
                await asyncio.wait_for(worker.close(timeout=2, nanny=False, executor_wait=False), _LEAVE_S)
        return DONE if self._code is None else self._code

    async def _unless_ended(self, what: Coroutine[Any, Any, T]) -> T | None:
        """What comes of it; None when this process is told to end before."""
        task = asyncio.ensure_future(what)
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if task.done():
            return task.result()
        task.cancel()
        return None

    def _given_up(self) -> int:
        """It ends before it has joined."""
        self._say(self._why)
        return LOST if self._code is None else self._code

    def _end(self, code: int, why: str) -> None:
        if self._code is None:
            self._code = code
            self._why = why
            self._ended.set()

    def _on_stdin(self) -> None:
        try:
            said = os.read(0, 4096)
        except OSError:
            said = b""
        if not said:
            asyncio.get_running_loop().remove_reader(0)
            self._end(LOST, "whoever started the runner has gone")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._worker is not None
        try:
            self._worker.batched_stream.send(message)
        except OSError:
            self._end(LOST, "the connection to the conductor broke")

    async def _beat(self) -> None:
        assert self._worker is not None
        silence_s = self._letter.silence_s
        pause = max(0.05, min(2.0, silence_s / 6))
        begun = monotonic()
        while True:
            slept = monotonic()
            await asyncio.sleep(pause)
            now = monotonic()
            if now - slept > pause + silence_s / 4:
                # It is us who were not there (stopped, or starved of time): what came meanwhile is read first.
                await asyncio.sleep(pause / 4)
                now = monotonic()
            if str(self._worker.status).endswith(("closed", "closing", "failed")):
                self._end(LOST, "the conductor went away")
            elif not self._welcomed and now - begun > _WELCOME_S:
                self._end(REFUSED_US, "the conductor did not answer")
            elif now - self._heard > _SOONER * silence_s:
                self._end(LOST, f"the conductor gave no sign of life for {now - self._heard:.0f} s")
            else:
                self._send({"op": BEAT})

    def _on_beat(self) -> None:
        self._heard = monotonic()

    def _on_welcome(self, key: bytes, port: int) -> None:
        self._heard = monotonic()
        self._welcomed = True
        self._opening = asyncio.get_running_loop().create_task(self._open_lane(key, port))

    async def _open_lane(self, key: bytes, port: int) -> None:
        """Connect, and let the runner do the rest."""
        self._port = port
        host = self._reached.removeprefix("tls://").rpartition(":")[0].strip("[]")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(OPENS_S):
                [(family, kind, protocol, _, address), *_] = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                self._lane = lane = socket.socket(family, kind, protocol)
                prepare(lane)
                await loop.sock_connect(lane, address)
            handed = Handed(key, self._own_env, self._hello.node.apart)
            hand_over(self._channel.write_fd, lane, handed)
        except (OSError, TimeoutError) as error:
            self._unreachable(str(error))

    def _unreachable(self, why: str) -> None:
        self._end(
            UNREACHABLE, f"the conductor let us in, but its port {self._port} for messages cannot be reached: {why}"
        )

    def _on_told(self) -> None:
        """The runner says something, or has gone."""
        try:
            data = self._channel.receive()
        except BlockingIOError:
            return
        told = msgspec.msgpack.decode(data, type=Told) if data else Told("broken")
        if told.what == "taken":
            self._tell_starter(JOINED)
        elif told.what == "home":
            self._shelf.home = told.text
        elif told.what == "refused":
            self._unreachable(told.text)
        elif told.what == "ended":
            self._on_lane_ended()
        else:
            self._end(BROKEN, told.text or "its runner is gone")
            asyncio.get_running_loop().remove_reader(self._channel.read_fd)

    def _on_lane_ended(self) -> None:
        """Either the node is used no more, and we are told so, or the conductor has gone."""
        self._close_runner().add_done_callback(
            lambda _: asyncio.get_running_loop().call_later(_WORD_S, self._end, LOST, "the conductor went away")
        )

    async def _heard_of(self) -> None:
        """Until the conductor has taken in why we leave, and hangs up; for a bounded time, it may be gone itself."""
        until = monotonic() + _WORD_S
        while self._lane is not None and monotonic() < until:
            try:
                if not self._lane.recv(1 << 16):
                    return
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError:
                return

    def _close_runner(self) -> asyncio.Future[None]:
        """Let the runner end its tasks and go; done when it has."""
        if self._closing is None:
            asyncio.get_running_loop().remove_reader(self._channel.read_fd)
            self._closing = asyncio.get_running_loop().run_in_executor(None, self._channel.close)
        return self._closing

    def _tell_starter(self, line: str) -> None:
        """Whoever started us may want to know how it went on."""
        if self._hello.expected:
            try:
                print(f"\n{line}", flush=True)
            except OSError:  # he has gone, and our stdin ends as well
                pass

    def _on_refused(self, why: str) -> None:
        self._tell_starter(TOLD_REFUSED)
        self._end(REFUSED_US, f"the conductor refused this runner: {why}")

    def _on_over(self, why: str) -> None:
        self._end(DONE, why)


def report_to_stderr(text: str) -> None:
    """Say it where whoever started the runner can read it: ssh, srun, a person."""
    print(f"cantle runner on {os.uname().nodename}: {text}", file=sys.stderr, flush=True)
