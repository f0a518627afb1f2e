"""What is a function worker to those who send it calls, and how is one started?"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from typing import TypeAlias

import cantle
from cantle.model.study import Command
from cantle.runner.family import Attempt, Place
from cantle.runner.messages import Start
from cantle.runner.spawn import Spawner

from .store import Store

Kind: TypeAlias = "tuple[int, str, str, tuple[tuple[str, str | None], ...]]"
"""Base, cores, GPUs, and what is laid over the environment: calls of one kind can share a worker."""

_LAUNCH = "import sys; sys.path.append({root!r}); from cantle.runner.calling.worker import main; main()"


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


def kind_of(start: Start) -> Kind:
    """Which workers the call can go to."""
    command = start.command
    return (command.base, start.cores, start.gpus, tuple(sorted(command.env.items())) if command.env else ())


def hire(kind: Kind, serial: int, spawner: Spawner, store: Store) -> Worker:
    """Start a worker, as the attempt of that number. Raises NotStarted when that cannot be."""
    base, cores, gpus, env = kind
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    poke = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    ours.setblocking(False)
    key = (serial, 1)
    root = os.path.dirname(os.path.dirname(os.path.abspath(cantle.__file__)))  # noqa: PTH100, PTH120
    words = (str(theirs.fileno()), str(poke), store.folder, store.spare)
    argv = (sys.executable, "-P", "-c", _LAUNCH.format(root=root), *words)
    command = Command(argv=argv, env=dict(env), packed=True, base=base)
    os.set_inheritable(theirs.fileno(), True)
    os.set_inheritable(poke, True)
    try:
        pid, output = spawner.start(Start(key, command, cores, gpus))
    except BaseException:
        ours.close()
        theirs.close()
        os.close(poke)
        raise
    os.set_inheritable(theirs.fileno(), False)
    os.set_inheritable(poke, False)
    if output.writer is not None:
        output.writer.close()  # the worker has it open: wide nodes have many workers, and a bound on open files
    attempt = Attempt(key, pid, output, 0.0, 0, ("worker", str(serial)))
    attempt.passed_on = True
    return Worker(kind, attempt, ours, theirs, poke)
