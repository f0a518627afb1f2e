"""How does the machine under us serve as nodes? Each node's runner is a forked child of the conductor.

The machine is one node, or is dealt out to several, which share it. Call `prepare` before anything large is read: what a
child inherits costs time and memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import time
from typing import TYPE_CHECKING

from cantle.allocations.forking import LocalChannel, fork_runner
from cantle.allocations.machine import Machine, look
from cantle.errors import MachineError, RequestError
from cantle.model.kinds import MOST_CORES
from cantle.model.records import NodesAwaited, NodesJoined
from cantle.model.resources import Node, count
from cantle.model.seams import Inbox
from cantle.runner import processes

if TYPE_CHECKING:
    from cantle.allocations.claims import Claims
    from cantle.allocations.forge import Forge
    from cantle.allocations.groups import Group

MOST_NODES = 1000
"""Each has a runner, a process of some ten MiB: more of them would fill a machine before anybody noticed."""
MOST_REVIVALS = 5
"""So often within an hour the dead runner of a node is replaced. A task that kills its runners is stopped after three."""
_HOUR_S = 3600.0


class LocalAllocation:
    """This machine, as one node, dealt out to `groups` of nodes, or as the nodes given.

    `cores`, `gpus` and `memory_mib` replace what is found; more cores than there are make logical ones, without binding.
    `granted`: so many a batch system gave us here, which counts where it does not confine us; 0: nothing is said.
    With `groups`, which say the cores, `memory_mib` is each node's. `nodes` replaces everything. `physical` counts one core
    for all its hardware threads. `named` are further countable things, sorted. `ends_in_s`: the machine may be used for so
    long from `open` on, 0 for ever; `ends_at()`, asked then, says when it is taken away (seconds since the epoch, 0: nobody
    knows). `name` is the node's, if not the machine's own. `notes` says, after `open`, what is not as the machine has it.
    Raises RequestError for numbers that cannot be.
    """

    def __init__(
        self,
        cores: int | None = None,
        gpus: int | None = None,
        memory_mib: int | None = None,
        nodes: Sequence[Node] | None = None,
        physical: bool = False,
        named: tuple[tuple[str, int], ...] = (),
        groups: Sequence[Group] = (),
        ends_in_s: float = 0.0,
        ends_at: Callable[[], float] | None = None,
        name: str = "",
        grows: bool = False,
        granted: int = 0,
    ) -> None:
        for what, number, least in (("cores", cores, 1), ("gpus", gpus, 0), ("memory", memory_mib, 1)):
            if number is not None and number < least:
                raise RequestError(f"{what}: {number} cannot be; at least {least} is needed")
        if groups and cores is not None:
            raise RequestError("cores: the groups of nodes say how many cores there are")
        wanted = sum(group.count for group in groups)
        if wanted > MOST_NODES:
            raise RequestError(
                f"nodes: {wanted:,} are more than the {MOST_NODES:,} into which one machine is dealt out, since each has a "
                "runner process of its own; `cantle plan` and `cantle simulate` take any number"
            )
        if any(group.cores > MOST_CORES for group in groups) or (cores or 0) > MOST_CORES:
            raise RequestError(f"cores: no node may have more than {MOST_CORES:,} of them")
        self._groups = groups
        self._forge: Forge | None = None
        self._claims: Claims | None = None
        self._cores = cores
        self._gpus = gpus
        self._memory_mib = memory_mib
        self._nodes = nodes
        self._physical = physical
        self._named = named
        self._ends_in_s = ends_in_s
        self._ends_at = ends_at
        self._name = name or os.uname().nodename
        self._grows = grows
        self._granted = granted
        self._ready: list[LocalChannel] = []
        self._open: list[LocalChannel] = []
        self._inbox: Inbox | None = None
        self._revivals: dict[str, list[float]] = {}
        """When which node was brought back, in the last hour."""
        self.notes: list[str] = []

    def prepare(self, errand: Callable[[], None] | None = None) -> None:
        """Fork a runner now, while this process is small and has no threads; the first `connect` takes it.

        `errand` is something for the child to do first, on a core of its own.
        """
        if not self._ready and not self._open:
            self._ready.append(fork_runner(errand))
            if self._grows or sum(group.count for group in self._groups) > 1:
                self._forge = _forge()

    def open(self, inbox: Inbox) -> None:
        """Begin: all nodes are there at once."""
        self._inbox = inbox
        processes.become_subreaper()  # should a runner be killed, its tasks become our children and can be ended
        nodes = list(self._nodes) if self._nodes is not None else self._on_this_machine()
        ends = [time() + self._ends_in_s] if self._ends_in_s else []
        if self._ends_at is not None and (end := self._ends_at()):
            ends.append(end)
        if ends:
            from msgspec.structs import replace

            nodes = [replace(node, ends_at=min(ends)) for node in nodes]
        inbox.put(NodesAwaited(inbox.now(), len(nodes)))
        inbox.put(NodesJoined(inbox.now(), nodes))
        inbox.put(NodesAwaited(inbox.now(), 0))

    def connect(self, node: Node) -> LocalChannel:
        """Start a runner for this node. Raises MachineError when the machine refuses another process."""
        try:
            channel = self._ready.pop() if self._ready else self._new_runner()
        except OSError as error:
            raise MachineError(f"no runner could be started for {node.name}: {error.strerror or error}") from error
        self._open.append(channel)
        return channel

    def lost(self, node: Node) -> None:
        """The machine is well, only a runner is gone: bring its node back, if that does not go on and on."""
        if self._inbox is None or 0 < node.ends_at <= time():
            return
        now = self._inbox.now()
        lately = self._revivals[node.name] = [t for t in self._revivals.get(node.name, ()) if now - t < _HOUR_S]
        if len(lately) < MOST_REVIVALS:
            lately.append(now)
            self._inbox.put(NodesAwaited(self._inbox.now(), 1))
            self._inbox.put(NodesJoined(self._inbox.now(), [node]))

    def close(self) -> None:
        """Close what is open; runners end with their channels."""
        for channel in (*self._ready, *self._open):
            channel.close()
        self._ready.clear()
        self._open.clear()
        if self._forge is not None:
            self._forge.close()
            self._forge = None
        if self._claims is not None:
            self._claims.close()
            self._claims = None

    def _new_runner(self) -> LocalChannel:
        if self._forge is not None:
            try:
                return self._forge.runner()
            except OSError:  # somebody killed it, or it is overrun: then we fork ourselves
                pass
        return fork_runner()

    def this_machine(self) -> Node:
        """This machine as one node, as it was declared; `notes` say what is not as the machine has it."""
        return self._whole(self._look())

    def _on_this_machine(self) -> list[Node]:
        found = self._look()
        if not self._groups:
            return [self._whole(found)]
        from cantle.allocations.dealing import deal

        found = self._apart_from_others(found, self._declared)
        nodes, notes = deal(self._with_gpus_asked_for(found), self._name, self._groups, self._memory_mib, self._named)
        self.notes += notes
        return nodes

    def _look(self) -> Machine:
        found = look("", os.environ, os.sched_getaffinity(0), self._physical, self._granted, self._declared)
        self.notes += found.notes
        return found

    @property
    def _declared(self) -> int:
        """So many cores are taken, whatever is here; 0: nobody has said."""
        return sum(group.cores * group.count for group in self._groups) or self._cores or 0

    def _whole(self, found: Machine) -> Node:
        cores, core_ids = found.cores, found.core_ids
        if self._cores is not None:
            cores, core_ids = self._cores, self._apart_from_others(found, self._cores).core_ids
            if cores > found.cores:
                core_ids = ()
                self.notes.append(
                    f"{count(cores, 'core')} declared where {found.cores} can be used: tasks are not bound to cores"
                )
        gpu_ids = self._with_gpus_asked_for(found).gpu_ids
        name = self._name
        return Node(
            name=name,
            cores=cores,
            gpus=len(gpu_ids),
            memory_mib=self._memory_mib or found.memory_mib,
            named=self._named,
            machine=name,
            core_ids=core_ids,
            gpu_ids=gpu_ids,
        )

    def _apart_from_others(self, found: Machine, cores: int) -> Machine:
        """The machine with cores alone that no other run here has taken; without binding where they are too few."""
        if not found.core_ids or cores >= len(found.core_ids):
            return found
        from msgspec.structs import replace

        from cantle.allocations.claims import Claims

        if self._claims is None:
            self._claims = Claims()
        return replace(found, core_ids=self._claims.take(found.core_ids, cores))

    def _with_gpus_asked_for(self, found: Machine) -> Machine:
        if self._gpus is None:
            return found
        from msgspec.structs import replace

        gpu_ids = found.gpu_ids[: self._gpus]
        if self._gpus > len(found.gpu_ids):
            gpu_ids = tuple(map(str, range(self._gpus)))
            self.notes.append(f"{count(self._gpus, 'GPU')} declared where {len(found.gpu_ids)} can be seen")
        return replace(found, gpu_ids=gpu_ids)


def _forge() -> Forge | None:
    """A forge for the runners to come; None where runners would not become our children."""
    if not processes.become_subreaper():
        return None
    from cantle.allocations.forge import Forge

    try:
        return Forge()
    except OSError:  # then each runner is forked when it is needed
        return None
