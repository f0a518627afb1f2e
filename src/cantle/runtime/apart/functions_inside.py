"""What does the process do in which the functions of providers run, those that add machines and remove them?

It hears calls and answers them as they come back, each in a thread of its own: one that hangs keeps no other waiting, and what
a module remembers between calls is there for all of them. When nothing can be asked any more it ends, and with it what hangs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import sleep
from typing import Any, BinaryIO

import msgspec

from cantle.allocations.providers.checking import machines
from cantle.errors import CantleError, PluginError, said_by
from cantle.plugins import find
from cantle.runtime.apart.child import place_of
from cantle.runtime.apart.inside import enter, heard, imported_at, is_at, raised_at, tell


class Look(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Import this function, and say where it stands."""

    number: int
    name: str


class Call(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Call this function with that. `begins`: it gives back names of machines, otherwise nothing that is heeded."""

    number: int
    name: str
    given: list[str | int]
    begins: bool = False


class Where(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """At which line is the call of that number?"""

    number: int
    of: int


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """To what bears the number: the machines that were begun; the `problem` that came up instead; a `place`."""

    number: int
    machines: list[str] = []
    problem: str = ""
    place: str = ""


Question = Look | Call | Where


def live(parent: int, questions: int, answers: int, _said: str) -> None:
    """Answer until nobody asks any more. The descriptors are this process's to close, `parent` is who started it."""
    pipes = enter(parent, questions, answers)
    if pipes is not None:
        _Desk(pipes[1]).serve(pipes[0])


class _Desk:
    def __init__(self, tells: BinaryIO) -> None:
        self._tells = tells
        self._telling = Lock()
        self._importing = Lock()
        self._found: dict[str, Callable[..., Any]] = {}
        self._under_way: dict[int, tuple[Thread, str]] = {}

    def serve(self, hears: BinaryIO) -> None:
        while frame := self._heard(hears):
            question = msgspec.msgpack.decode(frame, type=Question)
            if isinstance(question, Where):
                self._tell(self._where(question))
            else:
                answer = self._look if isinstance(question, Look) else self._call
                thread = Thread(target=answer, args=(question,), name=question.name, daemon=True)
                self._under_way[question.number] = thread, question.name
                thread.start()

    def _heard(self, hears: BinaryIO) -> bytes:
        """The next question. If a function has closed the pipe, wait to be ended: the other end tells whose fault it is."""
        try:
            return heard(hears)
        except OSError:
            with suppress(OSError):
                os.close(self._tells.fileno())
            while True:
                sleep(60.0)

    def _look(self, look: Look) -> None:
        try:
            answer = Answer(look.number, place=place_of(self._function(look.name)))
        except CantleError as problem:
            answer = Answer(look.number, problem=str(problem))
        self._answer(answer)

    def _call(self, call: Call) -> None:
        function: Any = None
        try:
            function = self._function(call.name)
            given = function(*call.given)
            answer = Answer(call.number, machines(given) if call.begins else [])
        except BaseException as problem:  # noqa: BLE001 - whatever it raises is told, SystemExit as well
            answer = Answer(
                call.number, problem=said_by(problem) + (raised_at(problem, function) or place_of(function))
            )
        self._answer(answer)

    def _function(self, name: str) -> Callable[..., Any]:
        with self._importing:
            if name not in self._found:
                try:
                    self._found[name] = find("providers", name)
                except CantleError as problem:
                    raise PluginError(said_by(problem) + imported_at(problem)) from problem
                except BaseException as problem:  # a module may leave the interpreter when it is imported
                    raise PluginError(f"provider {name}: {said_by(problem)}") from problem
            return self._found[name]

    def _where(self, where: Where) -> Answer:
        thread, name = self._under_way.get(where.of, (None, ""))
        frame = sys._current_frames().get(thread.ident or 0) if thread is not None else None
        return Answer(where.number, place="" if frame is None else is_at(frame, self._found.get(name)))

    def _answer(self, answer: Answer) -> None:
        self._under_way.pop(answer.number, None)
        self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        with self._telling:
            try:
                tell(self._tells, answer)
            except (OSError, ValueError):  # it was closed by a function, which the other end sees as well
                return
