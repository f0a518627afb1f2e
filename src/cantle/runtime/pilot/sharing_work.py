"""What does a task run, whose study is one of several?"""

from __future__ import annotations

from bisect import bisect_right

from msgspec.structs import replace

from cantle.errors import RequestError
from cantle.model.resources import Node, Place
from cantle.model.study import Command, Commands


class SharedWork:
    """The work halves of all studies of a pilot, as one. The base of a study's commands is its number, counted from 1."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._studies: list[int] = []
        self._work: dict[int, Commands] = {}

    def add(self, study: int, first: int, work: Commands) -> None:
        """The study's tasks are numbered from `first`. Studies come in the order of their tasks."""
        self._firsts.append(first)
        self._studies.append(study)
        self._work[study] = work

    def remove(self, study: int) -> None:
        """Nothing of the study will be launched any more."""
        if self._work.pop(study, None) is not None:
            at = self._studies.index(study)
            del self._studies[at], self._firsts[at]

    def prepare(self, directory: str) -> None:
        """Each study is prepared when it comes."""

    def command(
        self, task: int, attempt: int, restart: bool, places: tuple[Place, ...], nodes: tuple[Node, ...]
    ) -> Command:
        """What the task runs in this attempt. Raises RequestError for a study that has no work half here."""
        at = bisect_right(self._firsts, task) - 1
        if at < 0:
            raise RequestError("its study is not here")
        study = self._studies[at]
        command = self._work[study].command(task - self._firsts[at], attempt, restart, places, nodes)
        return replace(command, base=base_of(study))


def base_of(study: int) -> int:
    """The number of a study's directory and environment on the engine; 0 is the pilot's own."""
    return study + 1
