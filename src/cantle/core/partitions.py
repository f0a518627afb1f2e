"""What is true of the partitions now, and what do the records about them mean?

A partition owns slots that nothing else owns, in a `Room` of its own; a task that runs in it takes its places from there. Its
slots come from the run's room when they are free there, one by one while it is PENDING, and go back when nothing runs on
them. What is over keeps its slots until the last of its attempts has left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cantle.core.room import Room
from cantle.core.roster import ALL, Key
from cantle.core.standings import OVER, Standing, Turn, following
from cantle.errors import CantleBug
from cantle.model import records as r
from cantle.model.resources import Slots, mask_to_list
from cantle.model.study import PartitionWish

if TYPE_CHECKING:
    from cantle.core.state import State


class Partition:
    """One partition, from the wish to its end. `width` is what is wanted now, which resizing changes."""

    __slots__ = (
        "active_at",
        "address",
        "agent",
        "asked_at",
        "busy_since",
        "by",
        "canceled",
        "closing",
        "declared",
        "draining",
        "element",
        "ended_at",
        "env",
        "head",
        "holder",
        "idle_since",
        "lost_nodes",
        "number",
        "opened_at",
        "retiring",
        "room",
        "running",
        "standing",
        "study",
        "why",
        "width",
        "wish",
    )

    def __init__(self, number: int, wish: PartitionWish, study: int, by: str, asked_at: float) -> None:
        self.number = number
        self.wish = wish
        self.study = study
        self.by = by
        self.asked_at = asked_at
        self.width = wish.width
        self.element: tuple[int, int, int] | None = None
        self.holder = ""
        self.declared = False
        """The run makes it as its study declares it; nobody has asked for it."""
        self.standing = Standing.NEW
        self.room = Room()
        self.running: dict[int, None] = {}
        self.draining = False
        self.canceled = False
        self.closing = ""
        self.agent = False
        """Whether the world was told to start an agent, and not yet that it is gone."""
        self.head = -1
        """The node where the head is of what it hosts; that one it keeps."""
        self.address = ""
        self.env: tuple[tuple[str, str], ...] = ()
        """Where what it hosts answers, and by which variables tasks find it."""
        self.retiring: dict[int, bool] = {}
        """Nodes that are to leave, and whether what it hosts has left them."""
        self.lost_nodes = 0
        self.opened_at = self.active_at = self.ended_at = self.idle_since = self.busy_since = 0.0
        self.why = ""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.wish.name

    @property
    def key(self) -> Key:
        """By what it is found. Elements pass from study to study, and no two of them have one name."""
        return (self.study if self.element is None else ALL, self.wish.name)

    def is_seen_by(self, study: int) -> bool:
        """Whether the study may use it, and those who ask in its directory see and change it; `ALL` sees everything."""
        return study == ALL or self.study in (study, ALL)

    @property
    def over(self) -> bool:
        """In a final state; slots may still be in use by attempts that are being ended."""
        return self.standing in OVER

    @property
    def serves(self) -> bool:
        """Whether tasks may begin in it."""
        return self.standing == Standing.ACTIVE and not self.draining and not self.closing

    def enter(self, task: int, time: float) -> None:
        """An attempt begins in it."""
        self.running[task] = None
        self.busy_since = time

    def nodes(self) -> list[int]:
        """The numbers of the nodes that it has slots on, ascending."""
        return [index for index in sorted(self.room.nodes) if self.room.alive >> index & 1]

    def free_slots(self, index: int) -> Slots:
        """What of a node is its own and free. Memory and named things only when all cores of it are."""
        room = self.room
        cores, gpus = room.free_cores[index], room.free_gpus[index]
        whole = cores == room.capacity[index][0]
        return Slots(
            index,
            mask_to_list(cores),
            mask_to_list(gpus),
            room.free_memory[index] if whole else 0,
            tuple(sorted((name, n) for name, n in room.free_named[index].items() if n)) if whole else (),
        )


def key_of(state: State, study: int, name: str) -> Key:
    """Which partition of that name the tasks of a study run in: its own when it declares or has one, else that for all.

    When somebody took its own away, one that is there for all takes its place.
    """
    of = state.partitions
    own, shared = (study, name), (ALL, name)
    if own in of.by_name or own in of.requests:
        return own
    declares = any(wish.name == name for wish in state.studies[study].added.partitions)
    if declares and own not in of.withheld:
        return own
    if shared in of.by_name or shared in of.requests:
        return shared
    return own if declares or own in of.withheld else shared


def queues_of(state: State, key: Key) -> list[int]:
    """The queues whose tasks run in the partition of this key, or would if there were one."""
    study, name = key
    queues = state.queues
    return [
        number
        for number in state.homes.get(name, ())
        if study == (owner := queues[number].shape.study) or (study == ALL and key_of(state, owner, name) == key)
    ]


# What each record means. Called by `State.apply`.


def _asked(state: State, record: r.PartitionAsked | r.RequestPartition) -> None:
    of = state.partitions
    by = record.by if isinstance(record, r.PartitionAsked) else ""
    partition = Partition(len(of.all), record.wish, record.study, by, record.time)
    if isinstance(record, r.RequestPartition):
        partition.element = record.element
        partition.holder = record.holder
        partition.declared = record.element is None
        partition.why = record.why
    if partition.key in of.by_name:
        return  # there is one of that name, and nobody could tell two of them apart
    of.withheld.pop(partition.key, None)
    of.all.append(partition)
    of.living[partition.number] = of.by_name[partition.key] = partition
    state.version += 1
    if isinstance(record, r.PartitionAsked):
        state.feasibility_version += 1


def _resize_asked(state: State, record: r.PartitionResizeAsked) -> None:
    partition = state.partitions.asked_for(record.study, record.name)
    if partition is not None and partition.element is None and not partition.closing and record.width > 0:
        partition.width = record.width
        state.version += 1
        state.feasibility_version += 1


def _drain_asked(state: State, record: r.PartitionDrainAsked) -> None:
    partition = state.partitions.asked_for(record.study, record.name)
    if partition is not None:
        partition.draining = True
        state.partitions.withheld[partition.key] = f"was drained{f' by {record.by}' if record.by else ''}"
        state.version += 1


def _cancel_asked(state: State, record: r.PartitionCancelAsked) -> None:
    partition = state.partitions.asked_for(record.study, record.name)
    if partition is not None and not partition.canceled:
        partition.draining = partition.canceled = True
        partition.why = f"canceled by {record.by}" if record.by else "canceled"
        state.partitions.withheld[partition.key] = f"was {partition.why}"
        _stop_what_runs(state, partition)
        state.version += 1


def _elements_asked(state: State, record: r.ElementsAsked) -> None:
    state.partitions.requests[record.study, record.name] = record
    state.version += 1
    state.feasibility_version += 1


def _admit(state: State, record: r.AdmitPartition) -> None:
    partition = state.partitions.all[record.partition]
    partition.standing = following(partition.standing, Turn.ADMIT)
    state.version += 1


def _refuse(state: State, record: r.RefusePartition) -> None:
    partition = state.partitions.all[record.partition]
    partition.why = record.why
    end(state, partition, Turn.FAIL)


def _grow(state: State, record: r.GrowPartition) -> None:
    partition = state.partitions.all[record.partition]
    if partition.over:
        raise CantleBug(f"partition {partition.name} is over and cannot grow")
    for slots in record.slots:
        state.room.cede(slots)
        partition.room.grow(state.room.nodes[slots.node], slots)
    if state.shunned:
        from cantle.core.nodes import forgive

        forgive(state)  # the only other nodes where a task could be tried may be this partition's now
    state.version += 1


def _shrink(state: State, record: r.ShrinkPartition) -> None:
    partition = state.partitions.all[record.partition]
    for slots in record.slots:
        partition.room.shrink(slots)
        state.room.regain(slots)
        if partition.retiring and not partition.room.alive >> slots.node & 1:
            partition.retiring.pop(slots.node, None)
    state.version += 1


def _assign(state: State, record: r.AssignPartition) -> None:
    partition = state.partitions.all[record.partition]
    partition.study = record.study
    partition.holder = record.holder
    state.version += 1


def _open(state: State, record: r.OpenPartition) -> None:
    partition = state.partitions.all[record.partition]
    partition.standing = following(partition.standing, Turn.OPEN)
    partition.opened_at = record.time
    partition.lost_nodes = 0
    partition.agent = True
    if partition.wish.engine:
        partition.head = min(partition.nodes(), default=-1)
    state.version += 1


def _started(state: State, record: r.PartitionStarted) -> None:
    partition = state.partitions.all[record.partition]
    if partition.standing == Standing.STARTING:
        partition.standing = following(partition.standing, Turn.START)
        partition.active_at = partition.idle_since = record.time
        partition.address, partition.env = record.address, record.env
        state.version += 1
        if partition.element is None:
            state.feasibility_version += 1


def _told(state: State, record: r.PartitionTold) -> None:
    partition = state.partitions.all[record.partition]
    if not partition.over:
        partition.why = record.what


def _retire(state: State, record: r.RetireWorkers) -> None:
    partition = state.partitions.all[record.partition]
    for index in record.leaving:
        partition.retiring[index] = False
        partition.room.withhold(index)
    state.version += 1


def _retired(state: State, record: r.WorkersRetired) -> None:
    partition = state.partitions.all[record.partition]
    for index in record.leaving:
        if index in partition.retiring:
            partition.retiring[index] = True
            if index not in state.drained:
                partition.room.release(index)
    state.version += 1


def _failed(state: State, record: r.PartitionFailed) -> None:
    partition = state.partitions.all[record.partition]
    partition.agent = False
    if partition.over:
        let_go(state, partition)
    else:
        partition.why = record.reason
        end(state, partition, Turn.FAIL)


def _close(state: State, record: r.ClosePartition) -> None:
    partition = state.partitions.all[record.partition]
    partition.closing = record.outcome
    if not partition.over and not partition.canceled:
        partition.why = record.why
    state.version += 1


def _ended(state: State, record: r.PartitionEnded) -> None:
    partition = state.partitions.all[record.partition]
    partition.agent = False
    if partition.over:
        let_go(state, partition)
    else:
        end(state, partition, Turn.FINISH if partition.closing == "done" else Turn.CANCEL)


def end(state: State, partition: Partition, turn: Turn) -> None:
    """The partition is over. What runs there is to be ended, by nobody's fault, and returns to its queue."""
    partition.standing = following(partition.standing, turn)
    partition.ended_at = state.now
    of = state.partitions
    of.by_name.pop(partition.key, None)
    if turn == Turn.FAIL:
        of.failures[partition.key] = of.failures.get(partition.key, 0) + 1
    _stop_what_runs(state, partition)
    let_go(state, partition)
    state.version += 1
    if partition.element is None:
        state.feasibility_version += 1


def _stop_what_runs(state: State, partition: Partition) -> None:
    for task in partition.running:
        if task not in state.being_stopped:
            state.to_stop.setdefault(task, "interrupted")


def let_go(state: State, partition: Partition) -> None:
    """Give all slots back if the partition is over and nothing runs there any more."""
    if partition.over and not partition.running and not partition.agent:
        for index in partition.nodes():
            partition.room.release(index)
            slots = partition.free_slots(index)
            partition.room.shrink(slots)
            state.room.regain(slots)
        partition.retiring.clear()  # it has no node any more that anybody could leave
        state.partitions.living.pop(partition.number, None)
        state.version += 1


def node_lost(state: State, index: int, reason: str) -> None:
    """The node is gone, and what ran on it has left. An element is broken by that; others go on with what they have."""
    for partition in list(state.partitions.living.values()):
        if not partition.room.alive >> index & 1:
            continue
        partition.room.lose(index)
        partition.retiring.pop(index, None)
        partition.lost_nodes += 1
        waits = partition.standing in (Standing.NEW, Standing.PENDING)
        if not partition.over and not waits and (partition.element is not None or not partition.room.alive):
            partition.why = reason or "a node of it was lost"
            end(state, partition, Turn.FAIL)


def conductor_gone(state: State, known: int) -> None:
    """A resumed run begins without partitions: nodes and agents of the earlier conductor are gone.

    What was taken away from that run or failed in it is not held against this one. So many partitions were `known`: those of
    which a damaged journal does not tell keep their numbers.
    """
    for partition in list(state.partitions.living.values()):
        partition.agent = False
        if partition.over:
            let_go(state, partition)
        else:
            partition.why = "its conductor went away"
            end(state, partition, Turn.FAIL)
    of = state.partitions
    of.failures.clear()
    of.withheld.clear()
    for number in range(len(of.all), known):
        missing = Partition(number, PartitionWish(f"({number})"), -1, "", state.now)
        missing.standing, missing.why = Standing.FAILED, "its records are missing from the journal"
        of.all.append(missing)


RULES: dict[type, Callable[[State, Any], None]] = {
    r.PartitionAsked: _asked,
    r.RequestPartition: _asked,
    r.PartitionResizeAsked: _resize_asked,
    r.PartitionDrainAsked: _drain_asked,
    r.PartitionCancelAsked: _cancel_asked,
    r.ElementsAsked: _elements_asked,
    r.AdmitPartition: _admit,
    r.RefusePartition: _refuse,
    r.GrowPartition: _grow,
    r.ShrinkPartition: _shrink,
    r.AssignPartition: _assign,
    r.OpenPartition: _open,
    r.PartitionStarted: _started,
    r.PartitionTold: _told,
    r.RetireWorkers: _retire,
    r.WorkersRetired: _retired,
    r.PartitionFailed: _failed,
    r.ClosePartition: _close,
    r.PartitionEnded: _ended,
}
