"""What becomes of an engine that lives in a partition? It is begun, watched, made wider and narrower, and ended.

First the head, then a worker on each node; the partition starts when all of them serve. A worker that dies is replaced, some
times; a head that dies, or a worker that dies again and again, fails the partition, with its last words. Only when nothing
of it is left, that is told: whoever hears of it may give the cores to others. It has no states beyond its processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from cantle.engines.hosted.base import Hosted, Program, Site, Station
from cantle.engines.rendezvous import choose_port
from cantle.errors import CantleError
from cantle.model.records import Event, PartitionEnded, PartitionFailed, PartitionStarted, PartitionTold, WorkersRetired
from cantle.model.study import Command
from cantle.runner.messages import Ended, Key, Serve, Start

MOST_DEATHS = 3
"""So often within `_WHILE_S` seconds the worker of a node may die before the partition is given up."""
_WHILE_S = 600.0
RETIRE_S = 60.0
"""So long a worker has to hand over what it has when its node leaves."""
_LAST_GRACE_S = 3.0
"""For those whose head is dead."""
Role = Literal["head", "worker", "retire"]


class _Process:
    """One process on a node. `of`: the node whose worker it helps to leave."""

    __slots__ = ("deadline", "key", "late", "node", "of", "role", "serves", "within_s")

    def __init__(self, key: Key, node: int, role: Role, within_s: float, of: int) -> None:
        self.key = key
        self.node = node
        self.role = role
        self.of = of
        self.serves = False
        self.within_s = within_s
        self.deadline = time.monotonic() + within_s
        self.late = False


class Hosting:
    """One partition's engine.

    `post(node, serve)` starts a process and says whether the node has a runner; `end(key, why, grace_s)` ends one; `put` takes
    events; `over(event)` takes the last one.
    """

    def __init__(
        self,
        hosted: Hosted,
        site: Site,
        stations: Sequence[Station],
        *,
        post: Callable[[int, Serve], bool],
        end: Callable[[Key, str, float], None],
        put: Callable[[Event], None],
        over: Callable[[PartitionEnded | PartitionFailed], None],
        now: Callable[[], float],
    ) -> None:
        self.hosted = hosted
        self.site = site
        self.stations = {station.node: station for station in stations}
        self._post = post
        self._end = end
        self._put = put
        self._over = over
        self._now = now
        self._processes: dict[Key, _Process] = {}
        self._serial = 0
        self._address: str | None = None
        """Known once the head serves: from then on there are workers."""
        self._told = False
        self._failed = ""
        self._closing = False
        self._retiring: set[int] = set()
        self._deaths: dict[int, list[float]] = {}

    # What the partition does

    def begin(self) -> None:
        """All nodes are there: start the head."""
        self._carry_out(self._start_head)

    def grow(self, stations: Iterable[Station]) -> None:
        """These nodes are the partition's as well."""
        for station in stations:
            self.stations[station.node] = station
            if self._address is not None and not self._is_ending:
                self._carry_out(self._start_worker, station)

    def retire(self, nodes: Iterable[int]) -> None:
        """The worker leaves these nodes: `WorkersRetired` follows for each."""
        for node in nodes:
            station = self.stations.pop(node, None)
            worker = self._on(node, "worker")
            if station is None or worker is None or self._is_ending or self._address is None:
                self._put(WorkersRetired(self._now(), self.site.partition, (node,)))
                continue
            self._retiring.add(node)
            try:
                program = self.hosted.retire(self.site, station, self._address) if worker.serves else None
            except CantleError as error:
                self._tell(f"{station.name} leaves without notice: {error}")
                program = None
            if program is None or not self._start(self.site.head, "retire", program, of=node):
                self._end(worker.key, "its node leaves the partition", -1.0)

    def close(self) -> None:
        """The partition ends: so does this, and then that is told."""
        self._failed, self._closing = "", True
        self._end_all("its partition ends", -1.0)

    def silence(self) -> None:
        """The run ends, and with it all that runs: nothing of it need be told."""
        self._failed, self._closing = "", True
        self._processes.clear()

    def node_gone(self, node: int) -> None:
        """The node is gone with what ran on it."""
        name = self._name(node)
        for key in [key for key, process in self._processes.items() if process.node == node]:
            del self._processes[key]
        self.stations.pop(node, None)
        self._retiring.discard(node)
        if self._is_ending:
            self._conclude()
        elif node == self.site.head.node:
            self._fail(f"the node of its {self.hosted.name} head is gone: {name}")
        else:
            self._look()

    # What the runners say

    def serves(self, key: Key, text: str) -> None:
        """A process serves; `text` is what it said with that."""
        process = self._processes.get(key)
        if process is None or self._is_ending:
            return
        process.serves = process.role != "retire"
        if process.role == "head":
            self._head_serves(text)
        self._look()

    def ended(self, message: Ended) -> None:
        """A process is over."""
        process = self._processes.pop(message.key, None)
        if process is None:
            return
        if self._is_ending:
            self._conclude()
        elif process.role == "retire":
            self._has_handed_over(process, message)
        elif process.node in self._retiring:
            self._retiring.discard(process.node)
            self._put(WorkersRetired(self._now(), self.site.partition, (process.node,)))
        elif process.role == "head":
            self._fail(self._obituary(process, message))
        else:
            self._worker_died(process, message)

    def tick(self, now: float) -> None:
        """Look at the clock (monotonic)."""
        for process in list(self._processes.values()):
            if now >= process.deadline and not process.late and not process.serves and not self._is_ending:
                process.late = True
                self._end(process.key, f"it did not serve within {process.within_s:g} s", _LAST_GRACE_S)

    # Its processes

    @property
    def _is_ending(self) -> bool:
        return self._closing or bool(self._failed)

    def _carry_out(self, act: Callable[..., None], *what: Station) -> None:
        """What asks the engine for its programs: where it cannot answer the partition fails."""
        try:
            act(*what)
        except CantleError as error:
            self._fail(str(error))

    def _start_head(self) -> None:
        site = self.site
        site.port = choose_port((), 7 * site.partition + self._serial, site.one_machine)
        program = self.hosted.head(site)
        if program is None:
            self._head_serves("")
            self._look()
        elif not self._start(site.head, "head", program):
            self._fail(f"the node of its {self.hosted.name} head is gone: {site.head.name}")

    def _head_serves(self, text: str) -> None:
        self._address = text or f"{self.site.host(self.site.head)}:{self.site.port}"
        for station in list(self.stations.values()):
            self._carry_out(self._start_worker, station)

    def _start_worker(self, station: Station) -> None:
        assert self._address is not None
        if self._is_ending or self._on(station.node, "worker") is not None:
            return
        program = self.hosted.worker(self.site, station, self._address)
        if program is not None:
            self._start(station, "worker", program)

    def _start(self, station: Station, role: Role, program: Program, of: int = -1) -> bool:
        """Start it; False where the node has no runner any more, of which we shall hear."""
        self._serial += 1
        site = self.site
        key = (-1 - site.partition, self._serial)
        env: dict[str, str | None] = {"CANTLE_PARTITION": site.name, **program.env}
        command = Command(argv=program.argv, env=env, output_stem=f"{site.directory}/{role}-{station.name}")
        start = Start(key, command, station.cores, station.gpus)
        if not self._post(station.node, Serve(start, program.says, program.answers, program.private)):
            return False
        within_s = RETIRE_S if role == "retire" else program.within_s
        self._processes[key] = _Process(key, station.node, role, within_s, of)
        return True

    def _on(self, node: int, role: Role) -> _Process | None:
        return next((each for each in self._processes.values() if (each.node, each.role) == (node, role)), None)

    def _look(self) -> None:
        """Tell that the partition starts, when all of it serves for the first time."""
        if self._told or self._is_ending or self._address is None:
            return
        if any(not process.serves for process in self._processes.values()):
            return
        try:
            env = self.hosted.environment(self.site, self._address)
        except CantleError as error:
            self._fail(str(error))
            return
        self._told = True
        self._put(PartitionStarted(self._now(), self.site.partition, self._address, tuple(sorted(env.items()))))

    def _has_handed_over(self, process: _Process, message: Ended) -> None:
        """The worker may be ended now, and is in any case."""
        if message.outcome != "done":
            self._tell(f"{self._name(process.of)} leaves all the same: {message.detail}")
        worker = self._on(process.of, "worker")
        if worker is not None:
            self._end(worker.key, "its node leaves the partition", -1.0)

    def _worker_died(self, process: _Process, message: Ended) -> None:
        """Replace it, if that does not go on and on."""
        now = time.monotonic()
        lately = self._deaths[process.node] = [t for t in self._deaths.get(process.node, ()) if now - t < _WHILE_S]
        lately.append(now)
        if len(lately) >= MOST_DEATHS:
            times = f" for the {MOST_DEATHS}rd time in {_WHILE_S / 60:g} minutes"
            self._fail(self._obituary(process, message, times))
            return
        self._tell(self._obituary(process, message, " and is replaced"))
        station = self.stations.get(process.node)
        if station is not None:
            self._carry_out(self._start_worker, station)

    def _obituary(self, process: _Process, message: Ended, more: str = "") -> str:
        how = "did not come up" if not process.serves else "died"
        return f"its {self.hosted.name} {process.role} on {self._name(process.node)} {how}{more}: {message.detail}"

    def _name(self, node: int) -> str:
        station = self.site.head if node == self.site.head.node else self.stations.get(node)
        return station.name if station is not None else f"node {node}"

    def _tell(self, what: str) -> None:
        self._put(PartitionTold(self._now(), self.site.partition, what))

    def _fail(self, why: str) -> None:
        if not self._is_ending:
            self._failed = why
            self._end_all("its partition failed", _LAST_GRACE_S)

    def _end_all(self, why: str, grace_s: float) -> None:
        for key in self._processes:
            self._end(key, why, grace_s)
        self._conclude()

    def _conclude(self) -> None:
        """Tell the end, once nothing is left."""
        if self._processes:
            return
        if self._closing:
            self._over(PartitionEnded(self._now(), self.site.partition))
        else:
            self._over(PartitionFailed(self._now(), self.site.partition, self._failed))
