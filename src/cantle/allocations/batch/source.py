"""How do the nodes of a job get their runners? The batch system's own starter brings them up, and is watched while it does.

One thread looks after all starters. A starter that has brought nobody up after some seconds is told of, with what it said
and what that means; one that ends, or takes far too long, has failed for those of its hosts that have not joined.
"""

from __future__ import annotations

import os
import selectors
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from .job import OVER, Host, Job, System
from .stale import cleaned
from .starter import Starter
from .systems import short

if TYPE_CHECKING:
    from cantle.allocations.fleet.source import Invitation, Report

TOLD_S = 15.0
"""After so long without its runners a starter is told of."""
BOUND_S = 180.0
"""After so long those of its hosts that have not joined are given up."""
_LEAVE_S = 4.0
_AGAIN = 3
"""So often within an hour a host that was lost gets another runner."""
_HOUR_S = 3600.0


class BatchSource:
    """Runners on these hosts of a job.

    `ends_at` says when the job ends, in seconds since the epoch, 0 when nobody knows; it may take a while, and is called in a
    thread. `options` are further ones of `cantle runner`, for all.
    """

    def __init__(
        self,
        system: System,
        job: Job,
        hosts: Sequence[Host],
        environ: Mapping[str, str],
        ends_at: Callable[[], float] = lambda: 0.0,
        options: Sequence[str] = (),
        *,
        told_s: float = TOLD_S,
        bound_s: float = BOUND_S,
    ) -> None:
        self._system = system
        self._job = job
        self._hosts = tuple(hosts)
        self._environ = dict(environ)
        self._ends_at = ends_at
        self._options = tuple(options)
        self._told_s = told_s
        self._bound_s = bound_s
        self._lately: dict[str, list[float]] = {}
        """When which host was started again, in the last hour."""
        self._wanted: deque[tuple[Host, ...]] = deque()
        """What the thread shall start next."""
        self._starters: list[Starter] = []
        self._closing = False
        self._wake: tuple[int, int] = (-1, -1)
        self._thread: threading.Thread | None = None

    def start(self, invitation: Invitation, report: Report) -> None:
        """Begin to start all."""
        self._invitation = invitation
        self._report = report
        report.expect(len(self._hosts))
        self._wanted.append(self._hosts)
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._live, name="batch", daemon=True)
        self._thread.start()

    def lost(self, name: str) -> None:
        """Start another runner on that host, unless that has been done too often: the node may well be alive."""
        host = next((host for host in self._hosts if short(host.name) == short(name)), None)
        if host is None or self._closing or self._thread is None:
            return
        now = monotonic()
        lately = self._lately[host.name] = [t for t in self._lately.get(host.name, ()) if now - t < _HOUR_S]
        if len(lately) >= _AGAIN:
            self._report.note(f"{host.name} lost its runner {_AGAIN + 1} times within an hour: it gets no more")
            return
        lately.append(now)
        self._report.expect(1)
        self._wanted.append((host,))
        self._awake()

    def close(self) -> None:
        """Runners have been told to leave, and starters end with them; those that do not are ended."""
        self._closing = True
        if self._thread is not None:
            self._awake()
            self._thread.join(_LEAVE_S)
            self._thread = None
            self._end_all()
            for fd in self._wake:
                os.close(fd)

    def _awake(self) -> None:
        try:
            os.write(self._wake[1], b"\0")
        except OSError:  # full of them
            pass

    def _end_all(self) -> None:
        for patience_s, number in ((_LEAVE_S, signal.SIGTERM), (_LEAVE_S, signal.SIGKILL)):
            until = monotonic() + patience_s
            for starter in self._starters:
                starter.wait(max(0.0, until - monotonic()))
            for starter in self._starters:
                starter.signal(number)
        for starter in self._starters:
            starter.wait(1.0)
            if not starter.ended:
                starter.forget()

    # All below runs in the thread.

    def _live(self) -> None:
        try:
            self._watch()
        except Exception as problem:  # noqa: BLE001 - nobody shall wait for ever, whatever it is
            self._closing = True  # whoever is lost from now on is not started again
            missing = sum(starter.missing for starter in self._starters if starter.waits)
            missing += sum(len(hosts) for hosts in self._wanted)
            self._report.failed(missing, f"starters are watched no more: {type(problem).__name__}: {problem}")

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake[0], selectors.EVENT_READ, None)
            ends_at = self._ends_at()
            until = ("--until", f"{ends_at:.0f}") if ends_at else ()
            while not self._closing:
                while self._wanted and not self._closing:
                    self._begin(self._wanted[0], until, selector)
                    self._wanted.popleft()
                waiting = any(starter.waits for starter in self._starters)
                for key, _ in selector.select(0.5 if waiting else None):
                    self._heed(key.data, selector)
                for starter in [each for each in self._starters if each.waits]:
                    self._look_after(starter)

    def _begin(self, hosts: Sequence[Host], until: tuple[str, ...], selector: selectors.BaseSelector) -> None:
        def invite(options: Sequence[str]) -> list[str]:
            return self._invitation.command(*options, *until, *self._options)

        for start in self._system.starts(hosts, self._job, invite, self._environ):
            if self._closing:
                return
            try:
                starter = Starter(start, cleaned(self._environ))
            except OSError as error:
                names = _listed(start.hosts)
                self._report.failed(
                    len(start.hosts), f"no runner on {names}: {start.words[0]}: {error.strerror or error}"
                )
                continue
            self._starters.append(starter)
            selector.register(starter.output, selectors.EVENT_READ, starter)
            selector.register(starter.end, selectors.EVENT_READ, starter)

    def _heed(self, starter: Starter | None, selector: selectors.BaseSelector) -> None:
        if starter is None:
            try:
                while os.read(self._wake[0], 4096):
                    pass
            except BlockingIOError:
                pass
            return
        if starter.ended:  # its output and its end may come in one go
            return
        if not starter.hear():
            if starter.silent and starter.output in selector.get_map():
                selector.unregister(starter.output)
            return
        for fd in (starter.output, starter.end):
            if fd in selector.get_map():
                selector.unregister(fd)
        starter.forget()

    def _look_after(self, starter: Starter) -> None:
        """Tell of what takes long; give up what takes too long, or has ended before all had joined."""
        missing = starter.missing
        if not missing:
            starter.waits = False
            return
        now = monotonic()
        program = starter.start.words[0]
        if starter.ended and self._divided(starter):
            starter.waits = False
        elif starter.ended:
            how = f"exit status {starter.code}" if starter.code >= 0 else signal.Signals(-starter.code).name
            self._report.failed(missing, f"{_none(starter)}: {program} ended ({how}){self._said(starter)}")
            starter.waits = False
        elif now - starter.begun > self._bound_s:
            self._report.failed(missing, f"{_none(starter)} after {self._bound_s:.0f} s{self._said(starter)}")
            starter.waits = False
            if missing == len(starter.start.hosts):
                starter.signal(signal.SIGTERM)
        elif now - starter.begun > self._told_s and not starter.told:
            starter.told = True
            self._report.note(
                f"{_none(starter)} after {self._told_s:.0f} s; {program} goes on trying{self._said(starter)}"
            )

    def _divided(self, starter: Starter) -> bool:
        """One host that cannot be had may keep all others away: then each half is tried by itself, and so on."""
        hosts = starter.start.hosts
        over = any(OVER in meaning for meaning in self._meanings(starter))
        if len(hosts) < 2 or starter.missing < len(hosts) or not starter.code or over:
            return False
        half = len(hosts) // 2
        self._wanted += (hosts[:half], hosts[half:])
        return True

    def _meanings(self, starter: Starter) -> list[str]:
        text = "\n".join(starter.said).lower()
        return [meaning for piece, meaning in self._system.sayings if piece.lower() in text]

    def _said(self, starter: Starter) -> str:
        """What a starter said, and what that means; a sentence's continuation."""
        said = [line for line in starter.said if not any(piece in line for piece in self._system.noise)]
        meanings = self._meanings(starter)
        quoted = "".join(f"\n    {line}" for line in said)
        if not quoted:
            return "; it said nothing"
        return f". {meanings[0].capitalize() if meanings else 'It said'}:{quoted}"


def _none(starter: Starter) -> str:
    hosts = starter.start.hosts
    if starter.missing == len(hosts):
        return f"no runner on {_listed(hosts)}"
    is_ = "is" if starter.missing == 1 else "are"
    return f"{starter.missing} of the {len(hosts)} runners on {_listed(hosts)} {is_} missing"


def _listed(hosts: Sequence[Host]) -> str:
    names = [host.name for host in hosts[:4]]
    return ", ".join(names) + (f" and {len(hosts) - 4:,} more" if len(hosts) > 4 else "")
