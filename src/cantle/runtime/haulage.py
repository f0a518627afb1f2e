"""How do results and local files come to where they are needed, and what does the run learn of it?

What is brought to a node lives there as well from then on: `ResultsMoved` says so, and what is gone from where it should be
is `ResultsLost`. Whoever wants the same result on the same node waits for the same errand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cantle.allocations.carrying import Carried, Carrier, Errand, OneMachine, Then
from cantle.engines.base import Engine, KeepingEngine
from cantle.model.records import MoveResults, ResultsLost, ResultsMoved
from cantle.model.resources import Node

if TYPE_CHECKING:
    from cantle.allocations.base import Allocation
    from cantle.core.state import State
    from cantle.engines.calls import Brought, Calls, Result
    from cantle.model.seams import Inbox

HERE = -1
"""The conductor's own machine."""


class Haulage:
    """The transport of calls, and what carries out `MoveResults`. Used in the loop's thread.

    `nodes` are all that ever joined, by number.
    """

    def __init__(
        self,
        state: State,
        inbox: Inbox,
        allocation: Allocation,
        nodes: Sequence[Node],
        engine: Engine,
    ) -> None:
        self._state = state
        self._inbox = inbox
        self._nodes = nodes
        self._engine = engine if isinstance(engine, KeepingEngine) else None
        self._carrier: Carrier = allocation if isinstance(allocation, Carrier) else OneMachine()
        self._under_way: dict[tuple[int, int], list[Then]] = {}
        """By task and node, who waits for it there."""
        self._here: dict[int, str] = {}
        """By task, where a copy lies that was brought to the conductor's machine."""

    # For calls

    def fetch(self, result: Result, to: int, then: Brought) -> None:
        """Bring a result to the machine of a node."""
        self._bring(result, to, lambda carried: then(carried.path, carried.problem, carried.gone))

    def bring_file(self, path: str, name: str, to: int, then: Brought) -> None:
        """Bring a file of this machine to that of a node."""
        errand = Errand(path, None, self._node(to), name)
        self._carrier.carry(errand, lambda carried: then(carried.path, carried.problem, carried.gone))

    def lost(self, task: int) -> None:
        """A result that should be known is not."""
        self._inbox.put(ResultsLost(self._inbox.now(), [task], HERE, "nobody knows where it is"))

    def forget(self, results: Iterable[Result]) -> None:
        """Remove what was brought to this machine of these."""
        for result in results:
            path = self._here.pop(result.task, "")
            if path:
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108

    # For the run

    def move(self, decision: MoveResults) -> None:
        """Bring what lives on one node to another one; `ResultsMoved` follows for what has come, and for what has not."""
        left = len(decision.tasks)
        moved: list[int] = []
        problems: dict[str, list[int]] = {}

        def ended(task: int, carried: Carried) -> None:
            nonlocal left
            left -= 1
            if carried.problem:
                problems.setdefault(carried.problem, []).append(task)
            else:
                moved.append(task)
            if not left:
                now = self._inbox.now()
                if moved:
                    self._inbox.put(ResultsMoved(now, moved, decision.node, decision.to))
                for problem, tasks in problems.items():
                    self._inbox.put(ResultsMoved(now, tasks, decision.node, decision.to, problem))

        for task in decision.tasks:
            self._move(task, decision, lambda carried, task=task: ended(task, carried))  # type: ignore[misc]

    def drop_unneeded(self) -> None:
        """Remove the results that nobody needs any more."""
        keeping = self._state.keeping
        if keeping is not None and keeping.unneeded:
            tasks = list(keeping.unneeded)
            keeping.unneeded.clear()
            calls = self._calls
            if calls is not None:
                calls.forget(tasks)

    # What these are made of

    @property
    def _calls(self) -> Calls | None:
        return self._engine.calls_so_far if self._engine is not None else None

    def _node(self, index: int) -> Node | None:
        return self._nodes[index] if index >= 0 else None

    def _bring(self, result: Result, to: int, then: Then) -> None:
        waiting = self._under_way.setdefault((result.task, to), [])
        waiting.append(then)
        if len(waiting) > 1:
            return

        def ended(carried: Carried) -> None:
            del self._under_way[result.task, to]
            if carried.gone:
                self._inbox.put(ResultsLost(self._inbox.now(), [result.task], result.node, carried.problem))
            elif not carried.problem:
                self._has_come(result, to, carried.path)
            for each in waiting:
                each(carried)

        name = f"{result.task}-{result.attempt}"  # as the runners call what they keep, so that they remove it
        self._carrier.carry(Errand(result.path, self._node(result.node), self._node(to), name), ended)

    def _has_come(self, result: Result, to: int, path: str) -> None:
        calls = self._calls
        if to == HERE:
            if path != result.path:
                self._here[result.task] = path
        elif calls is not None:
            calls.copied(result.task, to, path)
            self._inbox.put(ResultsMoved(self._inbox.now(), [result.task], result.node, to))

    def _move(self, task: int, decision: MoveResults, then: Then) -> None:
        if not self._state.step_of(task).local:
            calls = self._calls
            result = calls.result_of(task) if calls is not None else None
            if result is None or result.inline is not None:
                then(Carried(problem=f"the result of {self._state.tasks[task].name} is not there any more", gone=True))
            else:
                self._bring(result, decision.to, then)
            return
        paths = self._engine.local_files.get(task, []) if self._engine is not None else []
        if not paths:
            then(Carried(problem=f"nobody knows any more where the files of {self._state.tasks[task].name} lie"))
            return
        left = len(paths)
        bad: list[Carried] = []

        def ended(carried: Carried) -> None:
            nonlocal left
            left -= 1
            if carried.problem:
                bad.append(carried)
            if left:
                return
            if any(each.gone for each in bad):
                self._inbox.put(ResultsLost(self._inbox.now(), [task], decision.node, bad[0].problem))
            then(bad[0] if bad else carried)

        for path in paths:
            self._carrier.carry(Errand(path, self._node(decision.node), self._node(decision.to), "", path), ended)
