"""How do decisions about partitions that host an engine become programs on nodes?

The name of the engine is looked up where it is wanted: among those that a study brings, else among the plug-ins. What the
partition has of each node follows from its room.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cantle.engines.base import Engine, HostingEngine
from cantle.engines.hosted.base import Hosted, Papers, Station
from cantle.errors import CantleError, MachineError
from cantle.model.records import GrowPartition, PartitionFailed, PartitionTold, RetireWorkers, WorkersRetired
from cantle.model.resources import mask_to_list
from cantle.model.seams import Inbox

if TYPE_CHECKING:
    from cantle.core.partitions import Partition
    from cantle.core.state import State


class Hosting:
    """Brings partitions that host an engine, and their decisions, to the engine that runs tasks."""

    def __init__(self, state: State, inbox: Inbox, engine: Engine) -> None:
        self._state = state
        self._inbox = inbox
        self._engine = engine

    def open(self, partition: Partition) -> None:
        """Start the partition with what it hosts; it fails where that cannot be."""
        try:
            hosted = hosted_by_name(self._state, partition.wish.engine, partition.study)
        except CantleError as error:
            self._inbox.put(PartitionFailed(self._inbox.now(), partition.number, str(error)))
            return
        if not isinstance(self._engine, HostingEngine):
            why = f"{type(self._engine).__name__} hosts no engines, and this partition wants {partition.wish.engine}"
            self._inbox.put(PartitionFailed(self._inbox.now(), partition.number, why))
            return
        stations = [self._station(partition, index) for index in partition.nodes()]
        papers = cache(lambda: make_papers(partition.name))
        self._engine.open_hosting_partition(partition.number, partition.name, hosted, stations, papers)

    def grown(self, decision: GrowPartition) -> None:
        """The partition has more slots: nodes of which it has its full share now get what it hosts."""
        partition = self._state.partitions.all[decision.partition]
        if not partition.wish.engine or not partition.agent or not isinstance(self._engine, HostingEngine):
            return
        full = []
        for index in {slots.node: None for slots in decision.slots}:
            wanted = partition.wish.cores or self._state.room.nodes[index].cores
            if partition.room.capacity[index][0].bit_count() >= wanted:
                full.append(self._station(partition, index))
        if full:
            self._engine.grow_hosting(partition.number, full)

    def retire(self, decision: RetireWorkers) -> None:
        """What it hosts leaves these nodes."""
        if isinstance(self._engine, HostingEngine):
            self._engine.retire_workers(decision.partition, decision.leaving)
        else:
            self._inbox.put(WorkersRetired(self._inbox.now(), decision.partition, decision.leaving))

    def in_words(self, told: PartitionTold) -> str:
        """The same for people."""
        return f"partition {self._state.partitions.all[told.partition].name}: {told.what}"

    def _station(self, partition: Partition, index: int) -> Station:
        node = self._state.room.nodes[index]
        cores, gpus = partition.room.capacity[index]
        memory_mib = partition.room.nodes[index].memory_mib
        machine = node.machine or node.name
        return Station(index, node.name, machine, mask_to_list(cores), mask_to_list(gpus), memory_mib)


def hosted_by_name(state: State, name: str, study: int) -> Hosted:
    """The engine of that name: the study's own, else that of any study, else a plug-in. Raises CantleError."""
    studies = [state.studies[study]] if study >= 0 else state.studies
    for each in studies:
        for commands in each.added.engines:
            if commands.name == name:
                from cantle.engines.hosted.commands import Commands

                return Commands(commands)
    from cantle.plugins import made

    hosted: Hosted = made("hosted_engines", name)
    return hosted


def make_papers(name: str) -> Papers:
    """By what those know each other who belong to a partition of this name. Raises MachineError where none can be made."""
    try:
        from cantle.allocations.fleet.certificates import make_identities

        _, identity = make_identities(f"partition-{name}")
    except ImportError as missing:
        raise MachineError(f"certificates cannot be made: {missing}; install cantle[cluster]") from missing
    return Papers(identity.authority, identity.certificate, identity.key)
