"""What does a task run, whose study is one of several?"""

from __future__ import annotations

from msgspec.structs import replace

from cantle.core.state import State
from cantle.errors import RequestError
from cantle.model.resources import Node, Place
from cantle.model.study import Command, Commands, LaunchingCommands


class SharedWork:
    """The work halves of all studies of a pilot, as one. The base of a study's commands is its number, counted from 1."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._work: dict[int, Commands] = {}
        self._orphans = False
        """A launch has lost a node: all studies launch in the same job."""

    def add(self, study: int, work: Commands) -> None:
        """The study's tasks can be launched from now on."""
        self._work[study] = work
        if self._orphans and isinstance(work, LaunchingCommands):
            work.launch_lost_a_node()

    def remove(self, study: int) -> None:
        """Nothing of the study will be launched any more."""
        self._work.pop(study, None)

    def prepare(self, directory: str) -> None:
        """Each study is prepared when it comes."""

    def launch_lost_a_node(self) -> None:
        """A launch had ranks on a node that has gone, whichever study's it was."""
        self._orphans = True
        for work in self._work.values():
            if isinstance(work, LaunchingCommands):
                work.launch_lost_a_node()

    def command(
        self, task: int, attempt: int, restart: bool, places: tuple[Place, ...], nodes: tuple[Node, ...]
    ) -> Command:
        """What the task runs in this attempt. Raises RequestError for a study that has no work half here."""
        state = self._state
        study = state.study_of_step[state.tasks[task].step]
        work = self._work.get(study)
        if work is None:
            raise RequestError(f"study {study} is not here")
        command = work.command(state.studies[study].tasks.own_number(task), attempt, restart, places, nodes)
        return replace(command, base=base_of(study))


def base_of(study: int) -> int:
    """The number of a study's directory and environment on the engine; 0 is the pilot's own."""
    return study + 1
