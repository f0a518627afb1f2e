"""How does an attempt run on several nodes, or as several streams, and still begin once and end once?

Its *parts* are what the runners know: one process for each stream, or a single one on the first node for a task that
spreads itself. The attempt starts with the first of them and is over when all are. The first that fails ends the others,
and is what is told. When a node goes, the parts on its other nodes are killed, and only when they are over the loss is told:
whoever hears of it starts the task again, and must not meet its own remains.

A task that spreads itself does so by a program that is not ours (srun, mpirun), whose ranks no runner knows. So when it is
over, the runner of each of its nodes is told to end what is left of it there. Their answers also show that all nodes were
still there at the end: a launcher may report a failure, or even success, long before a lost node is known to be lost.

Streams that communicate start together or not at all: all are sent off at once, to places that are theirs alone, and when
one cannot be started the others are ended. To hold all of them back until each is ready would need a further round between
conductor and runners, and would promise nothing more: a process may still end with its first instruction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cantle.engines.verdict import Result, verdict
from cantle.model.records import Event, Launch, NodeLost, Outcome, TaskHindered, TaskStarted
from cantle.model.resources import Node, list_to_mask
from cantle.model.streams import Share, Streams, crowding, output_stem, shares
from cantle.model.study import MOST_STREAMS, Command
from cantle.runner.messages import Ended, Key, Start, Started, Sweep

if TYPE_CHECKING:
    from cantle.engines.hosted.base import Hosted, Meeting

_MOURNING_S = 15.0
"""The longest time for which the loss of a node is held back."""


class _Gang:
    """One attempt, its parts that are not over, and how the others ended."""

    __slots__ = (
        "asked",
        "base",
        "deadline",
        "failing",
        "key",
        "lanes",
        "left",
        "lost",
        "nodes",
        "port",
        "results",
        "said",
        "spreads",
        "sweeping",
        "told",
        "walltime_s",
    )

    def __init__(self, launch: Launch, lanes: dict[Key, tuple[int, int]], port: int, walltime_s: float) -> None:
        self.key: tuple[int, int] = (launch.task, launch.attempt)
        self.nodes = [place.node for place in launch.on]
        self.lanes = lanes
        """For each part its node and lane."""
        self.left = dict.fromkeys(lanes)
        self.results: list[Result] = []
        self.port = port
        self.walltime_s = walltime_s
        self.deadline = monotonic() + walltime_s if walltime_s else float("inf")
        self.asked: tuple[Outcome, str] | None = None
        """What shall be told, since somebody wanted all of it ended."""
        self.failing = False
        self.lost = False
        self.told = False
        self.spreads = False
        """It starts processes where its runner does not see them, by a program that is not ours."""
        self.base = 0
        self.sweeping: set[int] | None = None
        """Nodes whose runners were told to end what is left of it, and have not answered yet."""
        self.said = ""
        """What its launcher said that keeps it from beginning, or kept it from succeeding."""

    @property
    def is_open(self) -> bool:
        """Whether something of it may be left."""
        return bool(self.left or self.sweeping)


class Gangs:
    """All attempts that have several nodes or several parts. It decides; `end` and `put` do it.

    `end(part, outcome, why, grace_s)` ends a part, with a grace below 0 after that of its node; `put` takes events; `tell`
    sends a message to the runner of a node, if there is one. `launch_lost_a_node` hears of each attempt that spreads itself
    and has lost one of its nodes. `now` is the time to stamp on events.
    """

    def __init__(
        self,
        end: Callable[[Key, Outcome, str, float], None],
        put: Callable[[Event], None],
        tell: Callable[[int, Sweep], bool],
        launch_lost_a_node: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._end = end
        self._put = put
        self._tell = tell
        self._launch_lost_a_node = launch_lost_a_node
        self._now = now
        self._gangs: dict[Key, _Gang] = {}
        self._bounded: dict[Key, _Gang] = {}
        """Those of them of which nobody but us knows when their walltime is over."""
        self._names: dict[int, str] = {}
        self._held_back: dict[int, tuple[float, NodeLost]] = {}
        self._meetings = 0
        self.kept: dict[int, dict[int, None]] = {}
        """By node, the numbers of results that runners must keep although we have them: their attempts are not over."""
        self._fresh: dict[int, dict[int, None]] = {}
        """Those of them of which the runner was not told yet."""
        self._done_with: dict[int, list[int]] = {}
        """By node, results that its runner was told to keep, and need not any more."""

    def add(
        self,
        launch: Launch,
        command: Command,
        nodes: Sequence[Node],
        streams: Streams | None,
        walltime_s: float,
        memory_mib: int,
        directory: str,
        hosted: Hosted | None = None,
    ) -> list[tuple[int, Start]]:
        """Take in an attempt on these nodes; what to send to which of them. Raises ValueError when it cannot be started.

        `directory` is that in which the command's relative paths begin. `hosted` lives in the partition where it runs.
        """
        env = {
            **command.env,
            "CANTLE_NODES": str(len(nodes)),
            "CANTLE_NODELIST": ",".join(node.name for node in nodes),
        }
        if streams is None:
            key = (launch.task, launch.attempt)
            place = launch.on[0]
            each = replace(command, env=env)
            starts = [(place.node, Start(key, each, place.cores, place.gpus, walltime_s, memory_mib))]
            gang = _Gang(launch, {key: (place.node, 0)}, 0, 0.0)
            gang.spreads = command.launches or len({node.machine or node.name for node in nodes}) > 1
            gang.base = command.base
        else:
            if streams.count > MOST_STREAMS:
                raise ValueError(f"it has {streams.count:,} streams, and at most {MOST_STREAMS:,} can be started")
            spread = shares(streams, launch.on)
            in_lines = max(share.beside for share in spread) > max(share.lane for share in spread) + 1
            if streams.together and in_lines:
                cores = min(list_to_mask(place.cores).bit_count() for place in launch.on)
                raise ValueError(crowding(streams, cores, len(nodes)))
            port = self._port(nodes) if streams.together else 0
            env |= {"CANTLE_STREAMS": str(streams.count), "CANTLE_WIDTH": str(len(nodes))}
            starts = []
            lanes = {}
            for share in spread:
                part: Key = (launch.task, launch.attempt, share.stream, streams.count)
                each = _for_stream(command, env, share, launch.attempt, directory)
                if streams.together:
                    meeting = _meeting(share, streams.count, nodes, port)
                    each.env.update(meeting)
                    if hosted is not None:
                        each.env.update(hosted.of_process(_told(launch, share, streams.count, len(nodes), meeting)))
                starts.append((share.node, Start(part, each, share.cores, share.gpus, walltime_s, memory_mib)))
                lanes[part] = (share.node, share.lane)
            gang = _Gang(launch, lanes, port, walltime_s if in_lines else 0.0)
        self._gangs[gang.key] = gang
        if gang.walltime_s:
            self._bounded[gang.key] = gang
        self._names.update((place.node, node.name) for place, node in zip(launch.on, nodes, strict=True))
        return starts

    def stop(self, attempt: Key, outcome: Outcome, why: str, grace_s: float) -> bool:
        """End all of an attempt; whether it is one of ours."""
        gang = self._gangs.get(attempt)
        if gang is None:
            return False
        if not gang.failing:
            gang.asked = gang.asked or (outcome, why)
        self._end_the_rest(gang, outcome, why, grace_s)
        return True

    def stop_all(self, outcome: Outcome, why: str) -> None:
        """End everything."""
        for attempt in list(self._gangs):
            self.stop(attempt, outcome, why, -1.0)

    def started(self, message: Started) -> bool:
        """A part has started; whether it is one of ours."""
        gang = self._gangs.get(message.key[:2])
        if gang is None:
            return len(message.key) > 2
        self._tell_start(gang, message.time, message.pid)
        return True

    def ended(self, message: Ended) -> bool:
        """A part is over; whether it is one of ours."""
        gang = self._gangs.get(message.key[:2])
        if gang is None:
            return len(message.key) > 2
        node, lane = gang.lanes[message.key]
        del gang.left[message.key]
        gang.results.append(Result(message, node, lane, self._names[node]))
        self.kept.setdefault(node, {})[message.number] = None
        self._fresh.setdefault(node, {})[message.number] = None
        if not gang.left:
            self._part_over(gang)
            return True
        if message.started:
            self._tell_start(gang, message.started, message.pid)
        if message.outcome != "done" and gang.asked is None and not gang.lost and not gang.failing:
            gang.failing = True
            self._end_the_rest(gang, "interrupted", f"stream {message.key[2]} did not succeed", -1.0)
        return True

    def never_sent(self, part: Key) -> None:
        """The start of this part was not sent, and will not be."""
        gang = self._gangs.get(part[:2])
        if gang is not None:
            gang.left.pop(part, None)
            if not gang.left:
                gang.lost = gang.lost or not gang.results
                gang.spreads = gang.spreads and bool(gang.results)
                self._part_over(gang)

    def swept(self, node: int, attempt: Key) -> None:
        """Nothing of the attempt is left on this node."""
        gang = self._gangs.get(attempt)
        if gang is not None and gang.sweeping is not None:
            gang.sweeping.discard(node)
            self._part_over(gang)

    def said(self, attempt: Key, text: str, over: bool, waits: str) -> None:
        """What the attempt's launcher has written to stderr so far; `over`: in all. `waits`: it has begun no rank yet."""
        gang = self._gangs.get(attempt)
        if gang is None:
            return
        from cantle.engines.launchers.diagnosis import diagnosis, of_silence

        found = diagnosis(text) or of_silence(waits)
        if found != gang.said:
            gang.said = found
            if not over:
                self._put(TaskHindered(self._now(), *gang.key, found))

    def node_gone(self, node: int, event: NodeLost | None = None) -> None:
        """A node is gone with what ran on it. The loss is told when what it has orphaned elsewhere is over."""
        for gang in list(self._gangs.values()):
            if node not in gang.nodes:
                continue
            gang.lost = True
            if gang.spreads:
                self._launch_lost_a_node()
            for part, (where, _) in gang.lanes.items():
                if where == node:
                    gang.left.pop(part, None)
            if gang.sweeping is not None:
                gang.sweeping.discard(node)
            self._end_the_rest(gang, "lost", "a node of its was lost", 0.0)
            if not gang.left:
                self._part_over(gang)
        for numbers in (self.kept, self._fresh, self._done_with):
            numbers.pop(node, None)
        if event is not None:
            self._held_back[node] = (monotonic() + _MOURNING_S, event)
        self._tell_losses()

    def is_held_back(self, node: int) -> bool:
        """Whether the node is gone although that is not told yet."""
        return node in self._held_back

    def kept_since(self, node: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Which results the node's runner must keep of those that came since the last call, and which no longer."""
        return tuple(self._fresh.pop(node, ())), tuple(self._done_with.pop(node, ()))

    def tick(self) -> None:
        """Look at the clock: once a turn."""
        now = monotonic()
        for gang in self._bounded.values():
            if now >= gang.deadline and gang.asked is None and not gang.failing:
                why = f"ran into its walltime of {gang.walltime_s:g} s"
                gang.asked = ("timeout", why)
                self._end_the_rest(gang, "timeout", why, -1.0)
        if self._held_back:
            self._tell_losses(now)

    @property
    def sweeps(self) -> bool:
        """Whether the end of an attempt waits for nothing but the runners' word that nothing of it is left."""
        return any(gang.sweeping for gang in self._gangs.values())

    def close(self) -> None:
        """Nothing more will be heard."""
        for gang in [gang for gang in self._gangs.values() if gang.sweeping and not gang.left]:
            self._conclude(gang)
        self._gangs.clear()
        self._bounded.clear()
        self._tell_losses(float("inf"))

    def _end_the_rest(self, gang: _Gang, outcome: Outcome, why: str, grace_s: float) -> None:
        for part in gang.left:
            self._end(part, outcome, why, grace_s)

    def _part_over(self, gang: _Gang) -> None:
        """All of its parts are over: it is as well, once nothing of it is left on its nodes."""
        if gang.spreads and gang.sweeping is None:
            message = Sweep(gang.key, gang.base)
            gang.sweeping = {node for node in dict.fromkeys(gang.nodes) if self._tell(node, message)}
        if not gang.sweeping:
            self._conclude(gang)

    def _tell_start(self, gang: _Gang, when: float, pid: int) -> None:
        if not gang.told:
            gang.told = True
            self._put(TaskStarted(when, *gang.key, pid))

    def _conclude(self, gang: _Gang) -> None:
        del self._gangs[gang.key]
        self._bounded.pop(gang.key, None)
        for result in gang.results:
            self._need_not_keep(result.node, result.ended.number)
        if gang.lost:
            self._tell_losses()
        elif gang.results:
            event = verdict(gang.results, gang.asked)
            if gang.said and event.outcome in ("failed", "timeout"):
                from cantle.engines.launchers.diagnosis import with_diagnosis

                event = with_diagnosis(event, gang.said)
            self._put(replace(event, started=0.0, pid=0) if gang.told else event)

    def _need_not_keep(self, node: int, number: int) -> None:
        """The result's attempt is over. A node that is gone keeps nothing."""
        if node in self.kept:
            self.kept[node].pop(number, None)
            fresh = self._fresh.get(node, {})
            if number in fresh:
                del fresh[number]
            else:
                self._done_with.setdefault(node, []).append(number)

    def _tell_losses(self, now: float = 0.0) -> None:
        """Tell those losses for which nothing is left to wait for, or that were held back long enough."""
        for node, (until, event) in list(self._held_back.items()):
            if now >= until or not any(gang.is_open and node in gang.nodes for gang in self._gangs.values()):
                del self._held_back[node]
                self._put(event)

    def _port(self, nodes: Sequence[Node]) -> int:
        from cantle.engines.rendezvous import choose_port

        self._meetings += 1
        try:
            taken = {gang.port for gang in self._gangs.values()}
            return choose_port(taken, self._meetings, nodes[0].machine == os.uname().nodename)
        except OSError as error:
            raise ValueError(f"its streams have nowhere to meet: {error}") from error


def _for_stream(command: Command, env: dict[str, str | None], share: Share, attempt: int, directory: str) -> Command:
    """What one stream runs. The first on each node writes the script, the others run it as it lies there."""
    each = replace(
        command,
        env={**env, "CANTLE_STREAM": str(share.stream)},
        output_stem=command.output_stem and output_stem(command.output_stem, share.stream, attempt),
    )
    if command.script_path and share.local:
        path = command.script_path if command.script_path.startswith("/") else f"{directory}/{command.script_path}"
        each = replace(each, argv=(*command.shell, path), script="", script_path="")
    return each


def _told(launch: Launch, share: Share, streams: int, nodes: int, meeting: dict[str, str]) -> Meeting:
    from cantle.engines.hosted.base import Meeting

    return Meeting(
        meeting["MASTER_ADDR"],
        int(meeting["MASTER_PORT"]),
        share.stream,
        streams,
        share.at,
        nodes,
        share.local,
        share.beside,
        launch.task,
        launch.attempt,
    )


def _meeting(share: Share, streams: int, nodes: Sequence[Node], port: int) -> dict[str, str]:
    from cantle.engines.rendezvous import variables

    machines = {node.machine or node.name for node in nodes}
    address = "127.0.0.1" if len(machines) == 1 else nodes[0].machine or nodes[0].name
    return variables(share, streams, address, port)
