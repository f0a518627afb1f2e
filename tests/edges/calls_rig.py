"""What do the tests of Python calls share? A rig on logical cores that calls functions and keeps what they return."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cantle.allocations.local import LocalAllocation
from cantle.engines.calls import Calls, Result
from cantle.engines.process import ProcessEngine
from cantle.model.records import TaskEnded
from cantle.model.resources import Node
from cantle.model.study import Call, Command
from cantle.runner.calling import values
from cantle.testing import Rig


class Taken:
    """Stands in arguments for the result of a task."""

    def __init__(self, task: int) -> None:
        self.task = task


class CallRig(Rig):
    """Launches calls as well. `results` holds what the sink was told, by task."""

    def __init__(self, directory: Path, *nodes: Node, grace_s: float = 1.0) -> None:
        self.results: dict[int, Result] = {}
        self._process_engine: ProcessEngine | None = None
        given = nodes or (Node("here", 8),)

        def engine(inbox: Any, place: str) -> ProcessEngine:
            self._process_engine = ProcessEngine(inbox, place, grace_s=grace_s)
            self._process_engine.calls.sink = self._take
            return self._process_engine

        super().__init__(engine, lambda: LocalAllocation(nodes=given), directory)

    @property
    def calls(self) -> Calls:
        assert self._process_engine is not None
        return self._process_engine.calls

    def _take(self, result: Result) -> None:
        self.results[result.task] = result

    def command(self, function: Callable[..., Any], *args: Any, env: dict[str, str | None] | None = None) -> Command:
        """What a task runs that calls this function."""
        digest, body = values.pack_function(function)
        self.calls.define(digest, body)
        arguments, takes = values.pack_call(args, {}, lambda value: value.task if isinstance(value, Taken) else None)
        return Command(call=Call(digest, arguments, takes), env=env or {})

    def begin(self, task: int, function: Callable[..., Any], *args: Any, **how: Any) -> None:
        """Launch a call, and do not wait for its end."""
        self.launch(task, self.command(function, *args), **how)

    def call(self, task: int, function: Callable[..., Any], *args: Any, **how: Any) -> TaskEnded:
        """Launch a call and wait for its end."""
        self.begin(task, function, *args, **how)
        return self.ended(task)

    def value(self, task: int) -> Any:
        """What the call returned."""
        found: list[Any] = []
        self.calls.fetch(task, lambda data, problem: found.append(values.unpack(data) if data is not None else problem))
        return found[0]

    def error(self, task: int) -> BaseException:
        """What the call raised."""
        inline = self.results[task].inline
        assert inline is not None
        return values.unpack_error(inline)
