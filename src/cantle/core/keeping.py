"""Which results live on nodes alone, and which of them are still needed?

A result may live where it was made: what a Python call returned, or files that a step declares as local. It is needed as long
as a task that takes it is not over, or somebody outside the run wants it. Nodes that share a machine share what lives there; a
node apart keeps its own. What becomes of needed results that are lost stands in `again.py`.

These books begin with the first result that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from cantle.core.again import run_again, waits_for
from cantle.core.fates import recount
from cantle.core.phases import FINAL, OVER, UNSTARTED, Phase
from cantle.model import records as r
from cantle.model.resources import indexes

if TYPE_CHECKING:
    from cantle.core.state import State

Store: TypeAlias = tuple[str, int]
"""Where things live: a machine (and -1), or a node apart, by its number."""


class Result(msgspec.Struct):
    """What a task has made, and where it is; nowhere, when it is gone. `users`: the tasks that take it and are not over.

    `wanted`: somebody outside the run may ask for it. `files`: it is files of the user's, which nobody removes.
    """

    size: int
    at: dict[Store, None] = {}
    users: dict[int, None] = {}
    wanted: bool = True
    files: bool = False
    alone_at: Store | None = None
    """It is needed, and this is the only place of it that is to stay; where none is, the first of them."""

    @property
    def needed(self) -> bool:
        """Whether anybody could still ask for it."""
        return self.wanted or bool(self.users)


class _Stored(msgspec.Struct):
    """What lives in one store. `nodes` see it, as bits, and of these `leaving` are about to go."""

    nodes: int = 0
    leaving: int = 0
    tasks: dict[int, None] = {}
    alone: dict[int, None] = {}
    bytes_alone: int = 0

    @property
    def stays(self) -> bool:
        return bool(self.nodes & ~self.leaving)


class Keeping:
    """The books: results by task, what lives where, and what had to be made again."""

    def __init__(self) -> None:
        self.results: dict[int, Result] = {}
        self.again: dict[int, tuple[int, str]] = {}
        """How often each of these tasks had to run again since its result was gone, and why the last time."""
        self.unneeded: dict[int, None] = {}
        """Results that nobody needs any more, for whoever removes them and empties this."""
        self.moving: dict[int, int] = {}
        """Results that are on their way to another node, and to which."""
        self.problems: dict[tuple[int, int], str] = {}
        """Why a result could not be moved to a node, the last time."""
        self.has_files = False
        """Whether there ever was a result that is files."""
        self._forgotten: set[int] = set()
        self._orphans = 0
        """Tasks with lower numbers are of an earlier conductor, and so are those who wanted their results."""
        self._stores: dict[Store, _Stored] = {}
        self._store_of: dict[int, Store] = {}

    # Questions

    def is_there(self, task: int) -> bool:
        """Whether the result of a task that is done can be had."""
        result = self.results.get(task)
        return result is None or bool(result.at)

    def nodes_with(self, task: int) -> int:
        """The nodes, as bits, on which the task's result is there; 0 when it lives on none in particular, or is gone."""
        nodes = 0
        result = self.results.get(task)
        for store in () if result is None else result.at:
            nodes |= self._stores[store].nodes
        return nodes

    def alone_on(self, index: int) -> tuple[Collection[int], int]:
        """The tasks whose results are needed and live with this node alone, and how many bytes these are.

        Of what lives only with nodes that are about to go, each result counts as alone with one of them. Costs next to nothing.
        """
        stored = self._stores.get(self._store_of.get(index, ("", -1)))
        if stored is None or stored.nodes & ~stored.leaving & ~(1 << index):
            return (), 0
        return stored.alone.keys(), stored.bytes_alone

    def nodes_sharing(self, index: int) -> int:
        """The nodes, as bits, that see what lives with this one, itself included; 0 when it is not there."""
        store = self._store_of.get(index)
        return 0 if store is None else self._stores[store].nodes

    def leaving(self) -> list[int]:
        """The nodes that are about to go."""
        return [index for stored in self._stores.values() for index in indexes(stored.leaving)]

    def barred(self, state: State, task: int) -> int:
        """The nodes, as bits, on which the task cannot start, since files that it takes lie elsewhere."""
        barred = 0
        for parent in state.tasks[task].parents if self.has_files else ():
            result = self.results.get(parent)
            if result is not None and result.files and result.at:
                barred |= state.room.alive & ~self.nodes_with(parent)
        return barred

    # What happens to nodes

    def joined(self, state: State, index: int) -> None:
        """A node is there: it sees what lives on its machine."""
        node = state.room.nodes[index]
        store = self._store_of[index] = (node.machine or node.name, index if node.apart else -1)
        stored = self._stores.get(store)
        if stored is None:
            stored = self._stores[store] = _Stored()
        self._now_seen_by(stored, stored.nodes | 1 << index, stored.leaving)

    def leaves(self, index: int) -> None:
        """The node is about to go: what lives there alone counts as lost already when others ask where they are alone."""
        if (store := self._store_of.get(index)) is not None:
            stored = self._stores[store]
            self._now_seen_by(stored, stored.nodes, stored.leaving | 1 << index)

    def stays(self, index: int) -> None:
        """It does not go after all."""
        if (store := self._store_of.get(index)) is not None:
            stored = self._stores[store]
            self._now_seen_by(stored, stored.nodes, stored.leaving & ~(1 << index))

    def lost(self, state: State, index: int, reason: str) -> None:
        """A node is gone, and unless others see what lives there, so is that."""
        store = self._store_of.pop(index, None)
        if store is None:
            return
        self.moving = {task: to for task, to in self.moving.items() if to != index}
        stored = self._stores[store]
        left = ~(1 << index)
        if stored.nodes & left:
            self._now_seen_by(stored, stored.nodes & left, stored.leaving & left)
            return
        tasks = list(stored.tasks)
        for task in tasks:
            self._drop(task, store)
        del self._stores[store]
        why = f"its result was lost with {state.room.nodes[index].name}" + (f" ({reason})" if reason else "")
        run_again(state, self, [task for task in tasks if waits_for(state, self, task)], why)

    def all_gone(self, state: State) -> None:
        """Another conductor goes on, with nodes of its own."""
        self._stores.clear()
        self._store_of.clear()
        self._forgotten.clear()
        self._orphans = len(state.tasks)
        self.moving.clear()
        self.problems.clear()
        for result in self.results.values():
            result.at.clear()
            result.alone_at = None
            result.wanted = False
        missed = [task for task in self.results if waits_for(state, self, task)]
        run_again(state, self, missed, "its result was lost with the nodes of the conductor before")

    # What happens to results

    def made(self, state: State, task: int, size: int, index: int) -> None:
        """An attempt is done, and has left so much on its node."""
        store = self._store_of.get(index)
        if store is None:
            return  # where a journal has a gap
        self._lose_all(task)
        files = bool(state.step_of(task).local)
        before = self.results.get(task)
        wanted = not files and task >= self._orphans and task not in self._forgotten
        users = {child: None for child in state.children[task] or () if _takes(state, child, task)}
        self.results[task] = Result(size, {}, users, before.wanted if before is not None else wanted, files)
        if files:
            self.has_files = state.choosy = True
        self._forgotten.discard(task)
        self.unneeded.pop(task, None)
        self._add(task, store)

    def made_elsewhere(self, task: int) -> None:
        """The task is done, and what it has made lives on no node in particular."""
        self._forgotten.discard(task)
        if task in self.results:
            self._lose_all(task)
            del self.results[task]

    def copied(self, task: int, index: int) -> None:
        """What lived elsewhere lives with this node as well."""
        store = self._store_of.get(index)
        if store is not None and task in self.results and self.results[task].at:
            self._add(task, store)

    def missing(self, state: State, tasks: Iterable[int], index: int, reason: str) -> None:
        """The node is there, but these results are not there any more. Below 0: they are nowhere, and no node had them."""
        if index < 0:
            self._missing_altogether(state, [task for task in tasks if state.phases[task] == Phase.DONE], reason)
            return
        store = self._store_of.get(index)
        if store is None:
            return
        here = [task for task in tasks if task in self._stores[store].tasks]
        for task in here:
            self._drop(task, store)
        why = f"its result was lost on {state.room.nodes[index].name}" + (f" ({reason})" if reason else "")
        run_again(state, self, [task for task in here if waits_for(state, self, task)], why)

    def _missing_altogether(self, state: State, tasks: Iterable[int], reason: str) -> None:
        lost = list(tasks)
        for task in lost:
            self._lose_all(task)
            if task not in self.results:
                users = {child: None for child in state.children[task] or () if _takes(state, child, task)}
                self.results[task] = Result(0, {}, users, wanted=False)
        run_again(
            state, self, [task for task in lost if waits_for(state, self, task)], f"its result was lost ({reason})"
        )

    def unwanted(self, state: State, task: int) -> None:
        """Nobody outside the run asks for it any more."""
        result = self.results.get(task)
        if result is not None:
            result.wanted = False
            self._file(task)
        elif state.phases[task] not in FINAL:
            self._forgotten.add(task)

    def forget(self, task: int) -> None:
        """Nobody at all asks for it any more, nor will."""
        result = self.results.get(task)
        if result is not None:
            result.wanted = False
            result.users.clear()
            self._file(task)
            self._lose_all(task)
            del self.results[task]
        self.again.pop(task, None)

    # What happens to those who take them

    def over(self, state: State, task: int) -> None:
        """A task is over: it takes nothing any more."""
        for parent in state.tasks[task].parents:
            result = self.results.get(parent)
            if result is not None and task in result.users:
                del result.users[task]
                if not result.users:
                    self._file(parent)
        if task in self.again and state.phases[task] == Phase.DONE:
            # Who ran, or was over, while this one was done again did not wait for it; now each is told that it is done.
            for child in [child for child in state.children[task] or () if not state.blockers[child]]:
                state.blockers[child] += 1

    def counted_anew(self, state: State, tasks: Iterable[int]) -> None:
        """Tasks are new, or begin anew: they take what their parents have made, and what is gone has to be made again."""
        gone: dict[int, None] = {}
        for task in tasks:
            if state.phases[task] in FINAL:
                continue
            for parent in state.tasks[task].parents:
                result = self.results.get(parent)
                if result is None:
                    continue
                if not result.users:
                    result.users[task] = None
                    self._file(parent)
                result.users[task] = None
                if not result.at and state.phases[task] in UNSTARTED:
                    gone[parent] = None
        run_again(state, self, gone, "its result had been removed or lost before another task came to take it")

    def sent_back(self, state: State, task: int) -> None:
        """An attempt was for nothing. What it takes may have gone while it ran."""
        row = state.tasks[task]
        if state.phases[task] == Phase.READY and not (
            all(state.phases[parent] == Phase.DONE and self.is_there(parent) for parent in row.parents)
            and all(state.phases[parent] in OVER for parent in row.after)
        ):
            recount(state, [task])

    # What these are made of

    def _add(self, task: int, store: Store) -> None:
        self.results[task].at[store] = None
        self._stores[store].tasks[task] = None
        self._file(task)

    def _drop(self, task: int, store: Store) -> None:
        self.results[task].at.pop(store, None)
        self._stores[store].tasks.pop(task, None)
        self._file(task)

    def _lose_all(self, task: int) -> None:
        for store in list(self.results[task].at) if task in self.results else ():
            self._drop(task, store)

    def _now_seen_by(self, stored: _Stored, nodes: int, leaving: int) -> None:
        """Costs by what lives there only when it stays from now on, or does not any more: many nodes may see one store."""
        stayed = stored.stays
        stored.nodes, stored.leaving = nodes, leaving
        for task in list(stored.tasks) if stored.stays != stayed else ():
            self._file(task)

    def _file(self, task: int) -> None:
        """Note where the result is alone, if it is needed and is; let it go when nobody needs it."""
        result = self.results[task]
        staying = [store for store in result.at if self._stores[store].stays] or list(result.at)
        alone = len(staying) == 1 or bool(staying and not self._stores[staying[0]].stays)
        alone_at = staying[0] if alone and result.needed else None
        if alone_at != result.alone_at:
            for store, sign in ((result.alone_at, -1), (alone_at, 1)):
                if store is not None:
                    stored = self._stores[store]
                    stored.bytes_alone += sign * result.size
                    if sign > 0:
                        stored.alone[task] = None
                    else:
                        del stored.alone[task]
            result.alone_at = alone_at
        if not result.needed and not result.files and result.at:
            for store in result.at:
                del self._stores[store].tasks[task]
            result.at.clear()
            self.unneeded[task] = None


def _takes(state: State, task: int, parent: int) -> bool:
    """Whether the task, one of the parent's children, is not over, and takes what the parent makes."""
    row = state.tasks[task]
    return state.phases[task] not in FINAL and (not row.after or parent in row.parents)  # there may be 100,000 parents


def needed_alone_on(state: State, index: int) -> tuple[Collection[int], int]:
    """The tasks whose results are needed and live on this node alone, and how many bytes these are. Costs next to nothing."""
    return ((), 0) if state.keeping is None else state.keeping.alone_on(index)


def keeping_of(state: State) -> Keeping:
    """The books, begun now if they were not before."""
    if state.keeping is None:
        state.keeping = Keeping()
        for index in indexes(state.room.alive):
            state.keeping.joined(state, index)
        for index in state.scaling.released if state.scaling is not None else ():
            state.keeping.leaves(index)
        for index in indexes(state.lifetimes.over) if state.lifetimes is not None else ():
            state.keeping.leaves(index)
    return state.keeping


# What each record means. Called by `State.apply`.


def made(state: State, record: r.TaskEnded, launch: r.Launch) -> None:
    """An attempt is done: note where its result lives."""
    keeping = keeping_of(state)
    if record.kept and launch.on:
        keeping.made(state, record.task, record.kept, launch.on[0].node)
    else:
        keeping.made_elsewhere(record.task)


def _move_results(state: State, record: r.MoveResults) -> None:
    for task in record.tasks:
        keeping_of(state).moving[task] = record.to


def _results_moved(state: State, record: r.ResultsMoved) -> None:
    keeping = keeping_of(state)
    for task in record.tasks:
        if keeping.moving.get(task) == record.to:
            del keeping.moving[task]
        if record.problem:
            keeping.problems[task, record.to] = record.problem
        else:
            keeping.copied(task, record.to)
    state.version += 1


def _results_lost(state: State, record: r.ResultsLost) -> None:
    keeping_of(state).missing(state, record.tasks, record.node, record.reason)
    state.version += 1


def _results_forgotten(state: State, record: r.ResultsForgotten) -> None:
    for task in record.tasks:
        keeping_of(state).unwanted(state, task)
    state.version += 1


RULES: dict[type, Callable[[State, Any], None]] = {
    r.MoveResults: _move_results,
    r.ResultsMoved: _results_moved,
    r.ResultsLost: _results_lost,
    r.ResultsForgotten: _results_forgotten,
}
