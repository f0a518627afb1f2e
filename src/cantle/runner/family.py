"""Which processes belong to which attempt, and how are all of them ended?

An attempt's processes are its leader (which opened a session and a group of the same number), the leader's descendants, and
*strays*: those whose parent died, so that the runner inherited them. A stray is told by its session, by the variables that
every task is given, or else it is suspected of belonging to any of the attempts that ran when it was found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from signal import SIGCONT, SIGKILL, SIGTERM
from typing import TypeAlias

from . import processes
from .messages import Key, Start
from .spawn import Output

_EXEC_S = 2.0
"""What seems to be in `exec` for longer is not: a program can erase its command line, and to look costs."""

Place: TypeAlias = tuple[str, str]
"""The cores and GPUs of an attempt, as index lists of the node."""


class Attempt:
    """One attempt from its start until its end is reported.

    `status` is the leader's wait status, None while it lives. `alone`: its group is known to be empty. `passed_on`: the next
    in line has its place. `by_hand`: the directory and the words to run it again, where no script tells them. `outcome` is set
    once somebody decided to end it. `due` is the time (monotonic) at which the next thing happens to it: the walltime
    runs out, or what is left is killed. `staged`: what it was started by, when files came with it or go back.
    """

    __slots__ = (
        "alone",
        "by_hand",
        "cpu_s",
        "detail",
        "due",
        "ended_at",
        "key",
        "kills",
        "memory_mib",
        "outcome",
        "output",
        "passed_on",
        "peak_mib",
        "pid",
        "place",
        "reported",
        "staged",
        "status",
        "strays",
        "walltime_s",
    )

    def __init__(
        self, key: Key, pid: int, output: Output, walltime_s: float, memory_mib: int, place: Place = ("", "")
    ) -> None:
        self.key = key
        self.place = place
        self.pid = pid
        self.output = output
        self.walltime_s = walltime_s
        self.memory_mib = memory_mib
        self.outcome = ""
        self.detail = ""
        self.due = 0.0
        self.kills = 0
        self.status: int | None = None
        self.ended_at = 0.0
        self.cpu_s = 0.0
        self.peak_mib = 0.0
        self.strays: set[int] = set()
        self.alone = False
        self.passed_on = False
        self.reported = False
        self.by_hand: tuple[str, tuple[str, ...]] | None = None
        self.staged: Start | None = None


class Family:
    """All attempts of a runner, by leader, and all strays."""

    def __init__(self) -> None:
        self.leaders: dict[int, Attempt] = {}
        """Attempts that are not reported yet, by the number of their process, group and session."""
        self.by_key: dict[Key, Attempt] = {}
        self.alive = 0
        """How many leaders live."""
        self.in_workers: Callable[[Key], Attempt | None] = self.by_key.get
        """Of a call, the worker at which it is."""
        self._strays: dict[int, Attempt | frozenset[Attempt]] = {}
        self._in_exec: dict[int, float] = {}
        """Strays of which nothing could be told because they were in `exec`, and until when they are looked at anew."""
        self._children = processes.Children()
        self._mark = b"%d" % os.getpid()

    def add(self, attempt: Attempt) -> None:
        """An attempt's process has been started."""
        self.leaders[attempt.pid] = attempt
        self.by_key[attempt.key] = attempt
        self.alive += 1

    def drop(self, attempt: Attempt) -> None:
        """The attempt is reported; whatever strays it may still have are ended."""
        attempt.reported = True
        del self.leaders[attempt.pid]
        del self.by_key[attempt.key]
        if self._strays:
            self._end_overdue()

    def gone(self, pid: int, cpu_s: float, peak_mib: float) -> Attempt | None:
        """A child that is no living leader was waited for. Its attempt, if it is known."""
        owner = self._strays.pop(pid, None)
        self._in_exec.pop(pid, None)
        if not isinstance(owner, Attempt):
            return None
        owner.strays.discard(pid)
        owner.cpu_s += cpu_s
        owner.peak_mib = max(owner.peak_mib, peak_mib)
        return owner

    def adopt(self) -> None:
        """Look for new strays; end at once those whose attempt is over."""
        if not self._in_exec and self._children.count() == self.alive + len(self._strays):
            return
        now = time.monotonic()
        for pid in self._children.pids():
            known = pid in self._strays
            if known and pid not in self._in_exec:
                continue
            leader = self.leaders.get(pid)
            if leader is not None and leader.status is None:
                continue
            environment = processes.environment(pid)
            if environment is not None or not known:
                self._strays[pid] = owner = self._owner(pid, environment or {})
                if isinstance(owner, Attempt):
                    owner.strays.add(pid)
                    if known and owner.outcome:
                        send(pid, SIGTERM)  # the others have been told, when nobody knew whose this one is
            if environment is not None or now > self._in_exec.setdefault(pid, now + _EXEC_S):
                self._in_exec.pop(pid, None)
        self._end_overdue()

    def may_have_more(self, attempt: Attempt) -> bool:
        """Whether there is a stray in `exec` that may be the attempt's."""
        for pid in self._in_exec:
            suspects = self._strays.get(pid)
            if isinstance(suspects, frozenset) and attempt in suspects:
                return True
        return False

    def is_over(self, attempt: Attempt) -> bool:
        """Whether no process of an attempt whose leader has ended, and that has no strays, is left."""
        try:
            os.killpg(attempt.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def members(self, attempt: Attempt) -> list[int]:
        """All processes of the attempt that can be found, the leader first."""
        found = [] if attempt.status is not None else [attempt.pid, *processes.descendants(attempt.pid)]
        for stray in attempt.strays:
            found += (stray, *processes.descendants(stray))
        return found

    def signal(self, attempt: Attempt, number: int) -> None:
        """Send a signal to the group and to all that has left it. Stopped ones are woken, that they may hear it."""
        members = self.members(attempt)
        send_to_group(attempt.pid, number)
        for pid in members:
            if pid != attempt.pid and (number == SIGKILL or not _in_group(pid, attempt.pid)):
                send(pid, number)
        if number != SIGKILL:
            send_to_group(attempt.pid, SIGCONT)

    def kill_everything(self) -> bool:
        """KILL all that is below this process. Whether nothing was left."""
        pids = processes.descendants(os.getpid())
        for pid in pids:
            send(pid, SIGKILL)
        return not pids

    def _owner(self, pid: int, environment: dict[bytes, bytes]) -> Attempt | frozenset[Attempt]:
        who = processes.identity(pid)
        if who is not None and who.session in self.leaders:
            return self.leaders[who.session]
        task, number = (environment.get(name, b"") for name in (b"CANTLE_TASK", b"CANTLE_ATTEMPT"))
        ours = environment.get(b"CANTLE_RUNNER") == self._mark
        if not (ours and task.removeprefix(b"-").isdigit() and number.isdigit()):
            return frozenset(self.leaders.values())
        first = environment.get(b"CANTLE_FIRST", b"0")
        key = (int(task) + (int(first) if first.isdigit() else 0), int(number))
        owner = self.by_key.get(key)
        if owner is None:
            part = [environment.get(name, b"") for name in (b"CANTLE_STREAM", b"CANTLE_STREAMS")]
            if all(each.isdigit() for each in part):
                owner = self.by_key.get((*key, *map(int, part)))
        return owner or self.in_workers(key) or frozenset()

    def _end_overdue(self) -> None:
        for pid, owner in list(self._strays.items()):
            if isinstance(owner, Attempt):
                over = owner.reported or (owner.status is not None and not owner.outcome)
            else:
                over = all(suspect.reported for suspect in owner)
            if over:
                for each in (pid, *processes.descendants(pid)):
                    send(each, SIGKILL)


def send(pid: int, number: int) -> None:
    """Send a signal, to a process that may be gone."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def send_to_group(pid: int, number: int) -> bool:
    """Send a signal to a group. Whether there was one."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _in_group(pid: int, group: int) -> bool:
    who = processes.identity(pid)
    return who is not None and who.group == group
