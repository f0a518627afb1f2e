"""How do hosts of a pool come and go? To add one, a runner is started on it by ssh; to remove it, that runner is ended.

Each host has a session of its own, which is its runner's life line: when it ends, however that comes about, the runner does,
and nothing stays on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from msgspec.structs import replace

from cantle.allocations.fleet.source import Invitation, Report
from cantle.allocations.hosts.host import Host
from cantle.allocations.hosts.source import HostsSource
from cantle.errors import MachineError
from cantle.model.kinds import Kind
from cantle.model.resources import Node

from .base import Answers, Asked

REST_S = 60.0
"""A host that could not be had is not tried again sooner, as long as there are others."""
_LOOK_S = 5.0


class OfOneHost(Protocol):
    """Starts the runner of one host."""

    @property
    def ended(self) -> bool:
        """Whether nothing is left of it, nor will be."""

    def start(self, invitation: Invitation, report: Report) -> None:
        """Begin."""

    def close(self) -> None:
        """End what was started."""


class _Taken:
    """A host that is in use, and for which request. `ended`: it was seen to be over."""

    def __init__(self, request: int, source: OfOneHost) -> None:
        self.request = request
        self.source = source
        self.ended = False
        self.why = ""
        """Why it will not come."""


class HostPool:
    """The hosts of one kind. `make` makes the source that starts a runner on one host, when it is not to be by ssh."""

    invites = True

    def __init__(
        self, kind: Kind, hosts: Sequence[Host], make: Callable[[Host], OfOneHost] = lambda host: HostsSource([host])
    ) -> None:
        most = min(kind.most or len(hosts), len(hosts))
        self.kind = replace(kind, adds=True, removes=True, most=most)
        self.undo: dict[str, str] = {}
        self._hosts = {host.name: replace(host, kind=kind.name) for host in hosts}
        self._make = make
        self._taken: dict[str, _Taken] = {}
        self._resting: dict[str, float] = {}
        """Until when a host that could not be had is left alone."""
        self._answers: Answers | None = None

    def add(self, asked: Asked, answers: Answers) -> None:
        """Take the next hosts that are free, those last that could not be had a moment ago."""
        assert asked.invitation is not None
        self._answers = answers
        self._free_failed()  # they are not in use, and nobody is to be told so
        now = monotonic()
        free = [name for name in self._hosts if name not in self._taken]
        free.sort(key=lambda name: self._resting.get(name, 0.0) > now)
        for name in free[: asked.count]:
            source = self._make(self._hosts[name])
            taken = self._taken[name] = _Taken(asked.number, source)
            answers.handed_out(asked.number, name)
            source.start(asked.invitation.answering(asked.number, name), _HostReport(answers, taken, name))
        missing = asked.count - min(asked.count, len(free))
        if missing:
            answers.refused(asked.number, missing, f"all {len(self._hosts)} hosts of the pool are in use")

    def withdraw(self, request: int, n: int) -> int:
        """Let go of hosts whose runners have not joined."""
        assert self._answers is not None
        joined = self._answers.joined(request)
        waiting = [name for name, taken in self._taken.items() if taken.request == request and name not in joined]
        for name in reversed(waiting[max(0, len(waiting) - n) :]):
            self._let_go(name)
        return min(n, len(waiting))

    def remove(self, node: Node, instance: str) -> None:
        """End the host's session, and with it the runner."""
        if instance not in self._taken:
            raise MachineError(f"{node.name} is no host of the pool")
        self._let_go(instance)

    def tend(self) -> float:
        """Free the hosts that could not be had, and those whose runners are gone."""
        self._free_failed()
        for name, taken in list(self._taken.items()):
            if taken.ended and taken.source.ended:
                self._let_go(name)
            else:
                taken.ended = taken.source.ended  # seen twice, since between two tries nothing is there for a moment
        return _LOOK_S if self._taken else math.inf

    def close(self) -> None:
        """End all sessions, side by side."""
        from concurrent.futures import ThreadPoolExecutor

        taken = list(self._taken.values())
        self._taken.clear()
        if taken:
            with ThreadPoolExecutor(min(32, len(taken))) as pool:
                list(pool.map(lambda each: each.source.close(), taken))

    def _free_failed(self) -> None:
        for name, taken in list(self._taken.items()):
            if taken.why:
                self._resting[name] = monotonic() + REST_S
                self._let_go(name)

    def _let_go(self, name: str) -> None:
        self._taken.pop(name).source.close()


class _HostReport:
    """What the source of one host says."""

    def __init__(self, answers: Answers, taken: _Taken, name: str) -> None:
        self._answers = answers
        self._taken = taken
        self._name = name
        self.note = answers.note

    def expect(self, n: int) -> None:
        """That was asked for."""

    def failed(self, n: int, why: str) -> None:
        """The host cannot be had."""
        self._taken.why = why
        self._answers.refused(self._taken.request, n, why)

    def outstanding(self) -> int:
        """Whether it is on its way."""
        return 0 if self._taken.why or self._name in self._answers.joined(self._taken.request) else 1
