"""How does a lane get from the process that has joined to its child, the runner, which then reads and writes it by itself?

Over a socket pair between the two goes the plain connection, and the runner makes it a lane; so no message passes through a
third process. The other one keeps the connection open as well: the conductor finds the lane ended only when both have let go,
which is when all that the runner started has ended, also if the runner was killed. The pair's end is the word to end.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH103, PTH118, PTH120

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from cantle.allocations.fleet.lane import Lane, open_lane
from cantle.allocations.fleet.trust import context_of
from cantle.runner.frames import Frames, encode, frame
from cantle.runner.main import serve, settle
from cantle.runner.messages import Down, Setup

if TYPE_CHECKING:
    from cantle.allocations.fleet.certificates import Identity

_MOST = 1 << 16

THE_NODES_OWN = (
    "HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "SSH_AUTH_SOCK", "SLURMD_NODENAME",
    "SLURM_NODEID", "SLURM_TOPOLOGY_ADDR",
)  # fmt: skip
"""What of the environment belongs to a machine and not to the run."""


class Handed(msgspec.Struct, frozen=True):
    """Comes with the connection. `own_env`: tasks get the runner's environment. `apart`: we do not see the run's directory."""

    key: bytes
    own_env: bool
    apart: bool


class Told(msgspec.Struct, frozen=True):
    """What the runner says to the process that has joined.

    `refused`: there is no lane, and why. `taken`: there is one. `home`: the folder for what belongs to runners. `ended`: the
    conductor has ended the lane, and here all has ended as well. `broken`: the runner goes by itself, perhaps it knows why.
    """

    what: Literal["refused", "taken", "home", "ended", "broken"]
    text: str = ""


def hand_over(pair: int, connection: socket.socket, handed: Handed) -> None:
    """Let the runner at the other end of the pair have the connection. Raises OSError when it has gone."""
    with socket.socket(fileno=os.dup(pair)) as end:
        socket.send_fds(end, [msgspec.msgpack.encode(handed)], [connection.fileno()])


def take_over(pair: int, identity: Identity) -> None:
    """The runner's whole life: wait for the connection, make it a lane, serve, and tell how it ended."""
    settled = settle()
    context = context_of(identity)
    os.set_blocking(pair, True)
    with socket.socket(fileno=os.dup(pair)) as end:
        data, fds, *_ = socket.recv_fds(end, _MOST, 1)
        if not data:
            return
        os.set_inheritable(fds[0], False)
        try:
            handed = msgspec.msgpack.decode(data, type=Handed)
            lane = RunnersLane(open_lane(socket.socket(fileno=fds[0]), context, handed.key), end, handed)
        except OSError as error:
            _tell(end, Told("refused", str(error)))
            return
        _tell(end, Told("taken"))
        try:
            serve(lane, settled)
        except UnusableError as error:
            _tell(end, Told("broken", str(error)))
        else:
            _tell(end, Told("ended" if lane.ended else "broken"))


class UnusableError(Exception):
    """Nothing can run on this machine, and the text says why."""


class RunnersLane(Lane):
    """The runner's end of a lane. The setup is changed on its way to what it is on this machine.

    `lifeline` can be read when whoever has joined wants the runner to end, or has gone. `ended`: the conductor has.
    """

    def __init__(self, connection: ssl.SSLSocket, end: socket.socket, handed: Handed) -> None:
        super().__init__(connection)
        self.lifeline = end.fileno()
        self.ended = False
        self._end = end
        self._handed = handed
        self._before: Frames[Down] | None = Frames(Down)

    def send(self, data: bytes) -> None:
        """As of any lane. Raises ConnectionError when the conductor has gone."""
        try:
            super().send(data)
        except OSError as error:
            self.ended = True
            raise ConnectionError(str(error)) from None

    def receive(self) -> bytes:
        """As of any lane. Raises UnusableError when the setup cannot be met here."""
        data = super().receive()
        if not data:
            self.ended = True
        elif self._before is not None:
            messages = self._before.feed(data)
            if not messages:
                raise BlockingIOError
            self._before = None
            data = frame([encode(self._as_here(message)) for message in messages])
        return data

    def _as_here(self, message: Down) -> Down:
        if not isinstance(message, Setup):
            return message
        own_env = self._handed.own_env
        env = _without_the_jobs_shape() if own_env else {**message.env, **_own()}
        if own_env:
            env.update({name: value for name, value in message.env.items() if name.startswith(b"CANTLE_")})
        else:
            for name in THE_NODES_OWN:
                if name not in os.environ:
                    env.pop(name.encode(), None)
        if self._handed.apart:
            for path in (message.lock, message.packed):
                folder = os.path.dirname(os.path.join(message.directory, path))
                try:
                    os.makedirs(folder, exist_ok=True)
                except OSError as error:
                    raise UnusableError(f"{folder} cannot be made: {error.strerror}") from None
        _tell(self._end, Told("home", os.path.dirname(message.packed)))
        return replace(message, env=env)


def _without_the_jobs_shape() -> dict[bytes, bytes]:
    """This process's environment, without what says how the job, or the launcher, in which it runs was shaped."""
    from cantle.allocations.batch.stale import cleaned

    return {os.fsencode(name): os.fsencode(value) for name, value in cleaned(os.environ).items()}


def _own() -> dict[bytes, bytes]:
    return {name.encode(): os.fsencode(os.environ[name]) for name in THE_NODES_OWN if name in os.environ}


def _tell(end: socket.socket, told: Told) -> None:
    try:
        end.send(msgspec.msgpack.encode(told))
    except OSError:  # nobody is there any more
        pass
