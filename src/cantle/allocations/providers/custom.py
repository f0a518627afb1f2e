"""How do nodes come from somewhere that only the user knows, a cloud say? By two functions or commands of his.

To add: it is told the kind, how many, and where the letter lies, and gives back a name for each machine that it has begun. To
remove: it is told such a name. A machine joins when something on it runs `cantle runner --connect LETTER`, which is arranged as
the user likes; the node is recognised by its name, which should be the machine's. Whatever goes wrong with them (they raise,
hang, give back something else) is told by name, and the run goes on.
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Protocol

from msgspec.structs import replace

from cantle.errors import MachineError, said_by
from cantle.model.kinds import Kind
from cantle.model.resources import Node, count

from .base import Answers, Asked, end_all
from .checking import machines

PATIENCE_S = 300.0
"""So long a function or a command may take."""
JOINS_S = 600.0
"""A machine that has not joined by then, or by three times as long as its kind takes to start, is removed again."""
_LONGEST = 200
"""Letters of a line that a command prints as the name of a machine."""
_TAIL = 400
_LOOK_S = 5.0


class Cloud(Protocol):
    """What the user brings."""

    name: str

    def add(self, asked: Asked, kind: str) -> Iterable[str]:
        """Begin machines, and give back a name for each."""

    def remove(self, instance: str) -> None:
        """End the machine of that name."""

    def given_up(self) -> str:
        """What was called last is not waited for any more: where it is, to be put behind a sentence, if anybody can tell."""

    def close(self) -> None:
        """Neither is called any more."""


class CustomProvider:
    """Nodes of one kind by what the user brings. `removes`: he has said how to end a machine.

    `patience_s` bounds each call, `joins_s` how long a machine may take until it has joined.
    """

    invites = True

    def __init__(
        self,
        kind: Kind,
        cloud: Cloud,
        undo: dict[str, str] | None = None,
        removes: bool = True,
        patience_s: float = PATIENCE_S,
        joins_s: float = 0.0,
    ) -> None:
        self.kind = replace(kind, removes=removes)
        self.undo = undo or {"by": "nobody"}
        self._cloud = cloud
        self._patience_s = patience_s
        self._joins_s = joins_s or max(JOINS_S, 3 * kind.starts_in_s)
        self._there: dict[str, tuple[int, float]] = {}
        """By machine, the request and by when it has to have joined."""
        self._late: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        """What functions gave back that were not waited for any more."""
        self._hanging = 0
        self._answers: Answers | None = None

    def add(self, asked: Asked, answers: Answers) -> None:
        """Let machines begin. What comes back is looked at closely."""
        self._answers = answers
        cloud, kind = self._cloud, self.kind.name
        given = self._bounded(lambda: machines(cloud.add(asked, kind)), asked.number, "add")
        if isinstance(cloud, Commands) and (odd := [name for name in given if len(name) > _LONGEST or " " in name]):
            given = [name for name in given if name not in odd]
            answers.note(
                f"{cloud.name} has printed {_short(odd[0])}, which is taken for no machine's name: print names alone, one a "
                "line, and what else is to be read to standard error"
            )
        new = [name for name in dict.fromkeys(given) if name not in self._there]
        until = monotonic() + self._joins_s
        self._there |= dict.fromkeys(new, (asked.number, until))
        try:
            for name in new:
                answers.handed_out(asked.number, name)
        except BaseException:  # one that cannot be put on record: the request is refused, so none of them is to stay
            for name in new:
                self._end(name)
            raise
        if len(new) > asked.count:
            answers.note(
                f"{self._cloud.name} has begun {count(len(new), 'machine')} where {_asked_for(asked)}: the others are "
                "removed again"
            )
            for name in new[asked.count :]:
                self._end(name)
        elif len(new) < asked.count:
            why = f"{self._cloud.name} has named {count(len(new), 'machine')} where {_asked_for(asked)}"
            answers.refused(asked.number, asked.count - len(new), why)

    def withdraw(self, request: int, n: int) -> int:
        """End machines that have not joined, the last ones first."""
        assert self._answers is not None
        if not self.kind.removes:
            return 0
        joined = self._answers.joined(request)
        waiting = [name for name, (number, _) in self._there.items() if number == request and name not in joined]
        return sum(self._end(name) for name in reversed(waiting[max(0, len(waiting) - n) :]))

    def remove(self, node: Node, instance: str) -> None:
        """End the machine."""
        if instance not in self._there:
            raise MachineError(
                f"which of its machines {node.name} is, {self._cloud.name} cannot be told: name the node as the machine is "
                "named (cantle runner --name)"
            )
        self._remove(instance)

    def lost(self, instance: str) -> None:
        """Nothing runs on the machine any more: end it, as it costs until somebody does."""
        if instance in self._there:
            self._end(instance)

    def tend(self) -> float:
        """End what came too late, and what has not joined in time."""
        while True:
            try:
                request, given = self._late.get_nowait()
            except Empty:
                break
            self._hanging -= 1
            for name in given:
                self._there[name] = (request, math.inf)
                self._end(name)
        now = monotonic()
        waiting = False
        for name, (request, until) in list(self._there.items()):
            assert self._answers is not None
            if until == math.inf:
                continue
            if name in self._answers.joined(request):
                self._there[name] = (request, math.inf)
            elif until <= now:
                self._there[name] = (request, math.inf)
                self._answers.over(request, name, 1, f"{name} has not joined within {self._joins_s:g} s")
                self._end(name)
            else:
                waiting = True
        return min(_LOOK_S, self._joins_s) if waiting or self._hanging else math.inf

    def close(self) -> None:
        """End all machines. Raises MachineError with those that could not be."""
        try:
            if self.kind.removes:
                end_all(self._there, self._remove)
            elif self._there:
                raise MachineError(f"nobody has said how to end these machines: {', '.join(self._there)}")
        finally:
            self._cloud.close()

    def _end(self, name: str) -> bool:
        """End a machine that nobody needs; whether that could be done."""
        if not self.kind.removes:
            return False
        try:
            self._remove(name)
        except MachineError as problem:
            if self._answers is not None:
                self._answers.note(str(problem))
            return False
        return True

    def _remove(self, name: str) -> None:
        def end() -> list[str]:
            self._cloud.remove(name)
            return []

        self._bounded(end, -1, f"remove {name}")
        self._there.pop(name, None)

    def _bounded(self, call: Callable[[], list[str]], request: int, what: str) -> list[str]:
        """What comes back in time. Raises MachineError that says what went wrong."""
        answer: SimpleQueue[tuple[list[str], BaseException | None]] = SimpleQueue()
        given_up = threading.Event()
        gate = threading.Lock()

        def live() -> None:
            found: list[str] = []
            problem: BaseException | None = None
            try:
                found = call()
            except BaseException as fault:  # noqa: BLE001 - SystemExit as well: it is the user's, and told
                problem = fault
            with gate:
                if given_up.is_set():
                    self._late.put((request, found))
                else:
                    answer.put((found, problem))

        threading.Thread(target=live, name=f"{what} {self.kind.name}", daemon=True).start()
        try:
            found, problem = answer.get(timeout=self._patience_s)
        except Empty:
            with gate:
                given_up.set()
            try:
                found, problem = answer.get_nowait()
            except Empty:
                self._hanging += 1
                raise MachineError(
                    f"{self._cloud.name}: {what} has not come back within {self._patience_s:g} s{self._cloud.given_up()}"
                ) from None
        if problem is not None:
            raise MachineError(f"{self._cloud.name}: {what}: {said_by(problem)}")
        return found


class _CutOff(MachineError):
    """A command was ended before it had said all."""


class Commands:
    """Commands of the user's: `ADD KIND N LETTER` prints a name a line, `REMOVE NAME` nothing that is heeded.

    In their environment stand `CANTLE_KIND`, `CANTLE_COUNT`, `CANTLE_LETTER`, `CANTLE_TOKEN` (a name that no other request
    has) and `CANTLE_RUNNER`, the words that start a runner on a machine that sees the run's directory. They are ended after
    `patience_s`. Where nobody has heard which machines ADD had begun, as it was ended or its conductor killed, REMOVE is given
    the token: all whose names begin with it shall go.
    """

    def __init__(self, add: str, remove: str = "", patience_s: float = PATIENCE_S) -> None:
        self.name = add.split()[0] if add.split() else "the command"
        self._add = _split(add, "add")
        self._remove = _split(remove, "remove")
        self._patience_s = patience_s

    def add(self, asked: Asked, kind: str) -> Iterable[str]:
        """Run the one."""
        assert asked.invitation is not None
        runner = asked.invitation.answering(asked.number).command("--kind", kind)
        env = {
            "CANTLE_KIND": kind,
            "CANTLE_COUNT": str(asked.count),
            "CANTLE_LETTER": asked.invitation.file,
            "CANTLE_TOKEN": asked.token,
            "CANTLE_RUNNER": shlex.join(runner),
        }
        try:
            out = self._run([*self._add, kind, str(asked.count), asked.invitation.file], env)
        except _CutOff as cut_off:
            if self._remove:
                try:
                    self.remove(asked.token)
                except MachineError as problem:
                    raise MachineError(
                        f"{cut_off}; and `remove {asked.token}`, which shall end what it had begun, failed: {problem}"
                    ) from None
            raise
        return [line.strip() for line in out.splitlines() if line.strip()]

    def remove(self, instance: str) -> None:
        """Run the other."""
        self._run([*self._remove, instance], {})

    def given_up(self) -> str:
        """A command that takes too long is ended before that."""
        return ""

    def close(self) -> None:
        """Nothing is left to be closed."""

    def _run(self, words: list[str], env: dict[str, str]) -> str:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **env},
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is the conductor's to heed
            )
        except OSError as error:
            raise MachineError(f"{words[0]} cannot be started: {error.strerror}") from None
        try:
            out, err = process.communicate(timeout=self._patience_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise _CutOff(f"it was ended, since it had not come back within {self._patience_s:g} s") from None
        if process.returncode:
            said = " / ".join((err.strip() or out.strip()).splitlines()[-3:])[-_TAIL:]
            raise MachineError(f"exit status {process.returncode}" + (f": {said}" if said else ""))
        return out


def _kill(process: subprocess.Popen[str]) -> None:
    import signal

    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.communicate()


def _split(text: str, what: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise MachineError(f"{what}: {text!r} cannot be split into words: {problem}") from None


def _asked_for(asked: Asked) -> str:
    return f"{asked.count:,} {'was' if asked.count == 1 else 'were'} asked for"


def _short(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 60 else f"{text[:57]}..."
