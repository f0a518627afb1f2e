"""What do a program's calls turn into when they are launched, and how long may they have to be launched again?

A call whose result is kept on a node is made again when that node goes while somebody needs the result. What it takes may be
gone as well by then. So its arguments stay as long as its result is needed, or one of those who took it may be made again.
"""

from __future__ import annotations

from cantle.core.phases import FINAL, Phase
from cantle.core.state import State
from cantle.core.studies import StudyState
from cantle.errors import RequestError
from cantle.model.resources import Node, Place
from cantle.model.study import Call, Command
from cantle.runtime.pilot.growing import Known

MOST_REMEMBERED = 100_000
"""Of a program, so many calls that are over are remembered; those that were over first are forgotten first."""


class ProgramWork:
    """The commands of a program's calls."""

    def __init__(self) -> None:
        self.calls: dict[int, Known] = {}
        """By its own number, each call that is not over, or may have to be made again."""
        self.let_go: list[int] = []
        """Calls whose files nobody reads any more, for whoever tells the program and empties this."""
        self._over: dict[int, None] = {}
        """Those of them that are over."""

    def prepare(self, directory: str) -> None:
        """Nothing is to be fetched."""

    def command(
        self,
        task: int,
        attempt: int,  # noqa: ARG002 - every attempt is the same
        restart: bool,  # noqa: ARG002 - and calls cannot be restarted
        places: tuple[Place, ...],
        nodes: tuple[Node, ...],
    ) -> Command:
        """The call. Raises RequestError when its arguments are not there any more.

        Those that lie in a file stay there: a node that does not see it gets a copy. One that has several nodes is called on
        the first, and told of all by the variables that steps have.
        """
        known = self.calls.get(task)
        if known is None:
            raise RequestError("it was over, and its arguments are not there any more")
        call, takes = known
        env: dict[str, str | None] = {}
        if len(places) > 1:
            count, names = str(len(places)), ",".join(node.name for node in nodes)
            env = {"CANTLE_WIDTH": count, "CANTLE_NODES": count, "CANTLE_NODELIST": names}
        if call.file:
            return Command(packed=True, env=env, call=Call(call.function, b"", takes, call.wanted, call.file))
        return Command(packed=True, env=env, call=Call(call.function, call.arguments, takes, call.wanted))

    def over(self, own: int, kept: bool) -> None:
        """The call is over; if its result is `kept` on a node, it may have to be made again."""
        if not kept:
            self._drop(own)
            return
        self._over[own] = None
        if len(self._over) > MOST_REMEMBERED:
            self._drop(next(iter(self._over)))

    def forget_unneeded(self, state: State, study: StudyState) -> list[int]:
        """Forget what need not be made again any more: these calls, the last one first."""
        keeping = state.keeping
        forgotten = []
        for own in sorted(self._over, reverse=True):  # who takes has a higher number than what he takes
            task = study.tasks.number(own)
            if state.phases[task] not in FINAL:
                continue  # it is just made again
            result = None if keeping is None else keeping.results.get(task)
            needed = state.phases[task] == Phase.DONE and result is not None and result.needed
            if not needed and not self.is_lineage(state, study, task):
                self._drop(own)
                forgotten.append(own)
        return forgotten

    def is_lineage(self, state: State, study: StudyState, task: int) -> bool:
        """Whether a call that takes the result of this one of the run's may be made again."""
        children = state.children[task]
        if not children or not self._over:
            return False
        return any(study.tasks.own_number(child) in self._over for child in children)

    def _drop(self, own: int) -> None:
        self._over.pop(own, None)
        known = self.calls.pop(own, None)
        if known is not None and known[0].file:
            self.let_go.append(own)
