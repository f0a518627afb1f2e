"""How are runners started on hosts that the user names? By the system's own ssh, all at once, each over a session of its own.

The session's standard input carries the set-up script, what is copied, and the invitation; then it stays open as the life
line of the runner, which ends when it closes, however that comes about. One thread looks after all sessions.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic

from cantle.allocations.fleet.source import Invitation, Report
from cantle.allocations.hosts import script, wording
from cantle.allocations.hosts.host import Host
from cantle.allocations.hosts.session import Session
from cantle.model.resources import count
from cantle.runner.bell import Bell

AT_ONCE = 64
"""So many hosts are being connected to at a time: each costs a process that reckons with keys."""
AGAIN_S = (1.0, 5.0, 20.0)
"""When a host is tried again that was lost, or whose server had too many others at its door: so long after each failure."""
MOST_REVIVALS = 5
"""So often within an hour the runner of a host is started again."""
_HOUR_S = 3600.0
_TICK_S = 0.5
_CLOSE_S = 5.0


class _Try:
    """A host to be started: the how-maniest try it is, when, and whether it is there for a runner that was lost."""

    __slots__ = ("again", "at", "host", "number")

    def __init__(self, host: Host, at: float = 0.0, number: int = 0, again: bool = False) -> None:
        self.host = host
        self.at = at
        self.number = number
        self.again = again


class HostsSource:
    """Starts a runner on each host. `ssh` are the words that begin ssh. `environ` is what tasks there may inherit.

    `patience_s` bounds connecting, setting up and joining, in this order. A try that may be repeated is so after `again_s`.
    Raises RequestError when what is to be copied to a host cannot be.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        *,
        ssh: Sequence[str] = ("ssh",),
        environ: Mapping[bytes, bytes] | None = None,
        patience_s: tuple[float, float, float] = (30.0, 300.0, 90.0),
        again_s: Sequence[float] = AGAIN_S,
    ) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._files = {host.copy: script.archive(host.copy) for host in hosts}
        self._ssh = tuple(ssh)
        self._environ = os.environb if environ is None else environ
        self._patience_s = patience_s
        self._again_s = tuple(again_s)
        self._revivals: dict[str, list[float]] = {}
        self._asked: deque[_Try] = deque()
        self._waiting: deque[_Try] = deque()
        self._closing = False
        self._selector: selectors.BaseSelector | None = None
        self._sessions: dict[Session, _Try] = {}
        self._restless: dict[Session, None] = {}
        """Those of which something is to be expected before they are heard: all whose runner has not joined."""
        self._bell: Bell | None = None
        self._thread: threading.Thread | None = None
        self._invitation: Invitation | None = None
        self._report: Report | None = None

    def start(self, invitation: Invitation, report: Report) -> None:
        """Begin to start all runners."""
        self._invitation, self._report = invitation, report
        report.expect(len(self._hosts))
        self._asked.extend(_Try(host) for host in self._hosts.values())
        self._bell = Bell()
        self._thread = threading.Thread(target=self._live, args=(self._bell,), name="hosts", daemon=True)
        self._thread.start()

    def lost(self, name: str) -> None:
        """The runner of this host is gone: start another one, if that does not go on and on."""
        host = self._hosts.get(name)
        if host is None or self._report is None or self._closing:
            return
        now = monotonic()
        lately = self._revivals[name] = [t for t in self._revivals.get(name, ()) if now - t < _HOUR_S]
        if len(lately) >= MOST_REVIVALS:
            self._report.note(
                f"{name} was started {count(MOST_REVIVALS, 'time')} again within an hour, and is not any more"
            )
            return
        lately.append(now)
        self._report.expect(1)
        self._asked.append(_Try(host, again=True))
        self._wake()

    def close(self) -> None:
        """Let go of all life lines, and wait a little for the sessions to end."""
        self._closing = True
        if self._thread is not None:
            self._wake()
            self._thread.join(_CLOSE_S)
            self._thread = None
            self._end_all(list(self._sessions))
            if self._selector is not None:
                self._selector.close()
            if self._bell is not None:
                self._bell.close()

    @property
    def ended(self) -> bool:
        """Whether no session is left that it has begun, and none is to begin."""
        return self._thread is not None and not (self._asked or self._waiting or self._sessions)

    def _wake(self) -> None:
        if self._bell is not None:
            self._bell.ring()

    # All below runs in the thread.

    def _live(self, bell: Bell) -> None:
        try:
            self._watch(bell)
        except Exception as problem:  # noqa: BLE001 - nobody shall wait for ever, whatever it is
            self._closing = True  # whoever is lost from now on is not started again; life lines stay until the end
            assert self._report is not None
            self._report.failed(
                len(self._hosts), f"hosts are looked after no more: {type(problem).__name__}: {problem}"
            )

    def _watch(self, bell: Bell) -> None:
        self._selector = selector = selectors.DefaultSelector()
        selector.register(bell.fd, selectors.EVENT_READ)
        waiting = self._waiting
        looked = monotonic()
        while not self._closing:
            while self._asked:
                waiting.append(self._asked[0])
                self._asked.popleft()
            if waiting:
                self._begin_some(waiting, selector)
            look: dict[Session, None] = {}
            for key, _ in selector.select(_TICK_S if waiting or self._restless else None):
                if key.data is None:
                    bell.hush()
                else:
                    key.data.serve(key.fd)
                    look[key.data] = None
            now = monotonic()
            if now - looked >= _TICK_S:
                looked = now
                look |= self._restless
            for session in look:
                if again := self._look_at(session, now):
                    waiting.append(again)

    def _look_at(self, session: Session, now: float) -> _Try | None:
        """See how far it is. Another try, if it has ended and that may help."""
        if session.is_quiet:
            self._restless.pop(session, None)
            return None
        self._restless[session] = None
        if not session.is_over(now):
            return None
        del self._restless[session]
        tried = self._sessions.pop(session)
        session.close()
        return self._end(tried, session.end())

    def _begin_some(self, waiting: deque[_Try], selector: selectors.BaseSelector) -> None:
        connecting = sum(session.phase == "connecting" for session in self._restless)
        now = monotonic()
        again = any(tried.again for tried in waiting)
        held = {tried.host.name: session for session, tried in self._sessions.items()} if again else {}
        for _ in range(len(waiting)):
            if connecting >= AT_ONCE and not again:
                break
            tried = waiting.popleft()
            before = held.get(tried.host.name)
            if before is not None and before.phase == "joined":  # its runner was lost, but perhaps only to us
                before.hang_up()
                self._restless[before] = None
            if before is not None or connecting >= AT_ONCE or tried.at > now:
                waiting.append(tried)
                continue
            try:
                session = self._begin(tried.host, selector)
            except (OSError, ValueError) as problem:
                assert self._report is not None
                why = getattr(problem, "strerror", None) or problem
                self._report.failed(1, f"{tried.host.name}: no process could be started for it here: {why}")
                continue
            self._sessions[session] = tried
            self._restless[session] = None
            connecting += 1

    def _begin(self, host: Host, selector: selectors.BaseSelector) -> Session:
        assert self._invitation is not None
        command = self._invitation.command(*host.options(), stdin=True)
        files = self._files[host.copy]
        parts = [(part,) for part in script.script_for(host, command, self._invitation.python, self._environ, files)]
        words = (
            [*self._ssh, *ssh_options(), "--", host.address, "exec /bin/sh -s"] if host.address else ["/bin/sh", "-s"]
        )
        return Session(words, [*parts, (files, self._invitation.content)], self._patience_s, selector)

    def _end(self, tried: _Try, end: wording.End) -> _Try | None:
        """A session is over. Another try, if that may help; otherwise it is told, unless the conductor knows."""
        assert self._report is not None
        if end.phase in ("joined", "refused", "leaving"):
            return None
        may_pass = wording.is_passing(end) or (tried.again and end.phase == "connecting")
        if may_pass and tried.number < len(self._again_s) and not self._closing:
            return _Try(tried.host, monotonic() + self._again_s[tried.number], tried.number + 1, tried.again)
        self._report.failed(1, wording.why(tried.host, end))
        return None

    def _end_all(self, sessions: list[Session]) -> None:
        """Close all life lines; a session whose runner has not ended after a while is left to its own bounds."""
        for session in sessions:
            # No runner is there yet that would heed its life line, the host may never answer, a command may take for ever.
            if session.phase in ("connecting", "setting up"):
                session.kill()
            session.hang_up()
        until = monotonic() + _CLOSE_S
        for session in sessions:
            session.wait(until - monotonic())
            session.close()


def ssh_options() -> list[str]:
    """No questions, no terminal, no tunnels of the user's, and a dead host is noticed; all else is as the user has it.

    A session of the user's that others may share is used, but none is opened: nobody else's must hang on ours.
    """
    words = ["-T", "-x"]
    for option in (
        "BatchMode=yes",
        "ConnectTimeout=15",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
        "ClearAllForwardings=yes",
        "ControlMaster=no",
        "ControlPersist=no",
    ):
        words += ["-o", option]
    return words
