"""How does a call of a Python function reach a worker, with the results that it takes, and what becomes of its own?

Functions go once to each node, arguments with their call. A small result comes back with the news that the call is over, and is
sent along to whoever takes it. A large one stays in a file on its node: on the same machine its path is sent along, elsewhere
a transport brings it first. Results are told to a sink; the journal learns how large they are, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from cantle.engines.told import unstartable
from cantle.model.records import Launch, TaskEnded
from cantle.model.resources import Node
from cantle.model.study import Command
from cantle.runner.messages import Define, Ended, Forget, Key, Start

if TYPE_CHECKING:
    from cantle.engines.arguments import Arguments
    from cantle.engines.process import ProcessEngine


class Result(msgspec.Struct, frozen=True, gc=False):
    """What a call returned, or, if it `failed`, raised.

    `inline` are its bytes, for `cantle.runner.calling.values.unpack` or `unpack_error`; None when it is kept on `node` in the
    file `path`, as `size` bytes. A failed call that raised nothing (its worker died, it was ended) has empty bytes.
    """

    task: int
    attempt: int
    inline: bytes | None
    size: int
    node: int
    path: str = ""
    failed: bool = False


Sink: TypeAlias = Callable[[Result], None]
"""Is told of each attempt that is over and was not merely interrupted, before its `TaskEnded` is in the inbox."""
Brought: TypeAlias = Callable[[str, str, bool], None]
"""Called in the loop's thread with the path at which a result can be read now, or with "", what went wrong, and whether the
result is gone."""


class Transport(Protocol):
    """Brings kept results from one machine to another. Nothing here waits."""

    def fetch(self, result: Result, to: int, then: Brought) -> None:
        """Bring it to the machine of the node `to`, -1 for the conductor's; `then` is called when that is done."""

    def bring_file(self, path: str, name: str, to: int, then: Brought) -> None:
        """Bring a file of the conductor's machine to that of the node `to`, where it lies by this name, as results do."""

    def lost(self, task: int) -> None:
        """The result of this task, which is done, is not known here: it has to be made again."""

    def forget(self, results: Iterable[Result]) -> None:
        """Nobody needs what was brought to the conductor's machine of these any more."""


class Calls:
    """The calls of one engine, which makes it when the first one is launched; set `sink` and `transport` before."""

    def __init__(self, engine: ProcessEngine) -> None:
        self._engine = engine
        self.sink: Sink = _nobody
        self._transport: Transport | None = None
        self._bodies: dict[str, bytes] = {}
        self._defined: dict[int, set[str]] = {}
        self._results: dict[int, Result] = {}
        self._running: dict[Key, int] = {}
        self._stores: dict[int, str] = {}
        """Where what a node keeps lies: with its machine's other nodes, or if it is apart alone. From the first call on."""
        self._copies: dict[int, dict[int, str]] = {}
        """Of kept results that were brought to other nodes: to which, and where they lie there."""
        self._held: dict[Key, _Held] = {}
        """Calls that wait for results, or for their arguments, on their way."""
        self._arguments: Arguments | None = None
        """There once a call's arguments lie in a file that its node does not see."""

    @property
    def transport(self) -> Transport | None:
        """Who brings results from machine to machine: the engine's, if nobody else was set."""
        if self._transport is None and self._engine.make_transport is not None:
            self._transport = self._engine.make_transport()
        return self._transport

    @transport.setter
    def transport(self, transport: Transport | None) -> None:
        self._transport = transport

    # For whoever makes the calls

    def define(self, digest: str, body: bytes) -> None:
        """A pickled function that calls may name from now on. It goes to a node with the first call there."""
        self._bodies.setdefault(digest, body)

    @property
    def functions(self) -> Container[str]:
        """The digests of those that may be named."""
        return self._bodies

    def result_of(self, task: int) -> Result | None:
        """What is known of the task's result; None when it has none, or it is forgotten or lost."""
        return self._results.get(task)

    def fetch(self, task: int, then: Callable[[bytes | memoryview | None, str], None]) -> None:
        """Hand the bytes of a result to `then`, with ""; or None with what went wrong. As `bring`; the file is mapped."""
        from cantle.runner.calling.values import read_kept

        def read(path: str, problem: str) -> None:
            try:
                data = read_kept(path) if not problem else None
            except OSError as error:
                data, problem = None, f"the result of task {task} cannot be read at {path}: {error.strerror or error}"
            then(data, problem)

        result = self._results.get(task)
        if result is not None and result.inline is not None:
            then(result.inline, "")
        else:
            self.bring(task, read)

    def bring(self, task: int, then: Callable[[str, str], None]) -> None:
        """Hand `then` a path at which a kept result can be read on this machine, with ""; or "" with what went wrong.

        At once where it lies here, otherwise when it has been brought.
        """
        import os

        result = self._results.get(task)
        if result is None or result.inline is not None:
            then("", f"the result of task {task} is not there: it was never made, is forgotten, or its node is lost")
        elif os.path.exists(result.path):  # noqa: PTH110
            then(result.path, "")
        elif self.transport is None:
            then("", f"the result of task {task} lies on another machine ({self._name(result.node)}), out of reach")
        else:
            self.transport.fetch(result, -1, lambda path, problem, _gone: then(path, problem))

    def forget(self, tasks: Iterable[int]) -> None:
        """Nobody needs the results of these tasks any more: they are removed, wherever they lie."""
        known = [result for task in tasks if (result := self._results.pop(task, None)) is not None]
        by_node: dict[int, list[Key]] = {}
        for result in known:
            if result.inline is None:
                for node in (result.node, *self._copies.pop(result.task, ())):
                    by_node.setdefault(node, []).append((result.task, result.attempt))
        for node, keys in by_node.items():
            self._engine.tell(node, Forget(tuple(keys)))
        if self.transport is not None and by_node:
            self.transport.forget(known)

    def copied(self, task: int, node: int, path: str) -> None:
        """The kept result of the task lives with this node as well, where it is read at this path."""
        result = self._results.get(task)
        if result is not None and result.inline is None:
            self._copies.setdefault(task, {})[node] = path

    # For the engine

    def launch(self, launch: Launch, command: Command, walltime_s: float, memory_mib: int) -> None:
        """Send the call to its node, with what it takes; what lies elsewhere is brought first."""
        call = command.call
        assert call is not None
        place = launch.on[0]
        node = place.node
        key = (launch.task, launch.attempt)
        if not self._stores:
            for index, each in self._engine.nodes().items():
                self._hold(index, each)
        if call.function not in self._defined.get(node, ()):
            self._define_on(node, call.function)
        after = (launch.behind, launch.if_done) if launch.if_done and launch.behind is not None else None
        start = Start(key, command, place.cores, place.gpus, walltime_s, memory_mib, after)
        self._running[key] = node
        if call.takes or call.file or (self._held and after in self._held):
            self._give(node, start)
        else:
            self._engine.post(node, start)

    def ended(self, node: int, ended: Ended) -> None:
        """An attempt is over: if it is a call, keep track of its result and tell the sink."""
        key = ended.key
        if self._running.pop(key, None) is None:
            return
        self._drop_arguments(key)
        done = ended.outcome == "done"
        task, attempt = key
        kept = bool(ended.path)
        size = ended.kept if kept else len(ended.result)
        result = Result(task, attempt, None if kept else ended.result, size, node, ended.path, not done)
        if done:
            self._results[task] = result
        if ended.outcome != "interrupted":  # that is nobody's fault, and the task comes again
            self.sink(result)

    def stop(self, key: Key, outcome: str, why: str) -> bool:
        """End a call that waits for results on their way. Whether it was one."""
        held = self._held.pop(key, None)
        if held is None:
            return False
        del self._running[key]
        self._drop_arguments(key)
        now = self._engine.now()
        self._engine.put(TaskEnded(now, key[0], key[1], outcome, detail=why))  # type: ignore[arg-type]
        for start in held.behind:
            self.stop(start.key, "interrupted", "it was to follow a call that did not begin")
        return True

    def node_came(self, index: int, node: Node) -> None:
        """The node is there: from now on its runner holds what its machine keeps."""
        if self._stores:
            self._hold(index, node)

    def node_gone(self, node: int) -> None:
        """The node is gone; what is kept there stays as long as another node sees it."""
        self._defined.pop(node, None)
        store = self._stores.pop(node, "")
        for key in [key for key, where in self._running.items() if where == node]:
            del self._running[key]
            self._held.pop(key, None)
            self._drop_arguments(key)
        other = next((other for other, theirs in self._stores.items() if theirs == store), -1)
        if self._arguments is not None:
            self._arguments.gone(node)
        for task, copies in list(self._copies.items()):
            path = copies.pop(node, "")
            if path and other >= 0:
                copies[other] = path
            if not copies:
                del self._copies[task]
        for task in [t for t, result in self._results.items() if result.node == node and result.inline is None]:
            if other >= 0:
                self._results[task] = replace(self._results[task], node=other)
            elif task in self._copies:
                elsewhere, path = next(iter(self._copies[task].items()))
                self._results[task] = replace(self._results[task], node=elsewhere, path=path)
            else:
                del self._results[task]

    def close(self, directory: str, home: str) -> None:
        """All runners are gone. What killed ones have left on this machine is removed."""
        import shutil

        from cantle.runner.calling.store import folders, remove_unless_held

        folder, spare = folders(directory, home)
        remove_unless_held(folder)
        shutil.rmtree(spare, ignore_errors=True)

    # Inside

    def _define_on(self, node: int, digest: str) -> None:
        body = self._bodies.get(digest)
        if body is not None and self._engine.tell(node, Define(digest, body)):
            self._defined.setdefault(node, set()).add(digest)

    def _give(self, node: int, start: Start) -> None:
        """Find what the call takes, then let it go."""
        call = start.command.call
        assert call is not None
        given: list[tuple[int, bytes, str]] = []
        away: list[Result] = []
        machine = self._stores[node]
        for task in call.takes:
            result = self._results.get(task)
            if result is None:
                if start.after is not None and start.after[0] == task:
                    continue  # its worker has it
                self._begin_anew(start.key, task)
                return
            if result.inline is not None:
                given.append((task, result.inline, ""))
            elif path := self._path_on(result, machine):
                given.append((task, b"", path))
            else:
                away.append(result)
        ahead = self._held.get(start.after) if start.after is not None else None
        its_file = bool(call.file) and self._is_apart(node)
        if not away and not its_file and ahead is None:
            self._engine.post(node, replace(start, given=tuple(given)))
            return
        if self.transport is None and (away or its_file):
            names = ", ".join(dict.fromkeys(self._name(result.node) for result in away)) or "the conductor's"
            self._refuse(start.key, f"what it takes lies on other machines ({names}), and nothing brings it here")
            return
        held = self._held[start.key] = _Held(start, node, given, len(away) + its_file + (ahead is not None))
        if ahead is not None:
            ahead.behind.append(start)
        for result in away:
            self._bring(result, held)
        if its_file and self._held.get(start.key) is held:
            self._bring_arguments(held, call.file)

    def _path_on(self, result: Result, machine: str) -> str:
        """Where the result can be read on this machine, "" when it lies on others alone."""
        for node, path in ((result.node, result.path), *self._copies.get(result.task, {}).items()):
            if self._stores.get(node) == machine:
                return path
        return ""

    def _bring(self, result: Result, held: _Held) -> None:
        assert self.transport is not None

        def then(path: str, problem: str, gone: bool) -> None:
            if path:
                self.copied(result.task, held.node, path)
            if self._held.get(held.start.key) is not held:
                return
            if problem:
                del self._held[held.start.key]
                if gone:
                    self._begin_anew(held.start.key, result.task, told=True)
                else:
                    why = f"the result of task {result.task} cannot be brought here: {problem}"
                    self._refuse(held.start.key, why, everywhere=False)
                self._let_go(held)
                return
            held.given.append((result.task, b"", path))
            self._one_less(held)

        self.transport.fetch(result, held.node, then)

    def _bring_arguments(self, held: _Held, file: str) -> None:
        if self._arguments is None:
            from cantle.engines.arguments import Arguments

            self._arguments = Arguments(lambda node, key: self._engine.tell(node, Forget((key,))))
        assert self.transport is not None

        def then(path: str, problem: str) -> None:
            if self._held.get(held.start.key) is not held:
                return
            if problem:
                del self._held[held.start.key]
                self._refuse(held.start.key, f"its arguments cannot be brought here: {problem}", everywhere=False)
                self._let_go(held)
                return
            held.file = path
            self._one_less(held)

        self._arguments.give(held.start.key, file, held.node, self.transport.bring_file, then)

    def _drop_arguments(self, key: Key) -> None:
        if self._arguments is not None:
            self._arguments.over(key)

    def _one_less(self, held: _Held) -> None:
        """Something that the call has waited for is there."""
        held.missing -= 1
        if held.missing:
            return
        del self._held[held.start.key]
        start = replace(held.start, given=tuple(held.given))
        if held.file and start.command.call is not None:
            start = replace(start, command=replace(start.command, call=replace(start.command.call, file=held.file)))
        self._engine.post(held.node, start)
        for each in held.behind:
            follower = self._held.get(each.key)
            if follower is not None:
                self._one_less(follower)

    def _let_go(self, held: _Held) -> None:
        for start in held.behind:
            self.stop(start.key, "interrupted", "it was to follow a call that did not begin")

    def _refuse(self, key: Key, why: str, everywhere: bool = True) -> None:
        self._running.pop(key, None)
        self._drop_arguments(key)
        self._engine.put(unstartable(self._engine.now(), key, why, everywhere))

    def _begin_anew(self, key: Key, task: int, told: bool = False) -> None:
        """What it takes is gone, by nobody's fault: that is made again, and then the call begins. `told`: it is known."""
        why = f"the result of task {task}, which it takes, is not there any more"
        if self.transport is None:
            self._refuse(key, why)
            return
        if not told:
            self.transport.lost(task)
        self._running.pop(key, None)
        self._drop_arguments(key)
        self._engine.put(TaskEnded(self._engine.now(), key[0], key[1], "interrupted", detail=why))

    def _hold(self, index: int, node: Node) -> None:
        machine = node.machine or node.name
        self._stores[index] = f"{machine}\n{index}" if node.apart else machine
        self._engine.tell(index, Forget(()))

    def _is_apart(self, index: int) -> bool:
        node = self._engine.nodes().get(index)
        return node is not None and node.apart

    def _name(self, index: int) -> str:
        node = self._engine.nodes().get(index)
        return node.name if node is not None else f"node {index}, which is gone"


class _Held:
    """A call that waits here: for so many results and files, or behind one that waits. `file`: where its arguments are now."""

    __slots__ = ("behind", "file", "given", "missing", "node", "start")

    def __init__(self, start: Start, node: int, given: list[tuple[int, bytes, str]], missing: int) -> None:
        self.start = start
        self.node = node
        self.given = given
        self.missing = missing
        self.file = ""
        self.behind: list[Start] = []


def _nobody(result: Result) -> None:
    """Where nobody wants to know."""
