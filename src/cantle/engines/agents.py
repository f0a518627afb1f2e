"""Who serves a partition? Its agent: one for each, on the runners of its nodes, and on nobody else's.

The agent stands when each of these runners has said that it holds its share; until then the partition is STARTING. It has no
states of its own. When a runner goes, its share is gone with the node, and the agent goes on with the others. Where the
partition hosts an engine it stands when that serves, and ends when nothing of it is left (`cantle.engines.hosted.hosting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cantle.model.records import PartitionEnded, PartitionFailed, PartitionStarted, WorkersRetired
from cantle.model.seams import Inbox
from cantle.runner.messages import Ended, Hold, Key, Release

if TYPE_CHECKING:
    from cantle.engines.hosted.base import Station
    from cantle.engines.hosted.hosting import Hosting


class Agent:
    """One partition's: the nodes whose runners hold a share, and those that have not answered yet."""

    __slots__ = ("asked", "holds", "hosting", "name", "started")

    def __init__(self, name: str, hosting: Hosting | None = None) -> None:
        self.name = name
        self.hosting = hosting
        self.asked: set[int] = set()
        self.holds: set[int] = set()
        self.started = False


class Agents:
    """All agents of an engine. `send` brings a message to the runner of a node; False when there is none."""

    def __init__(self, inbox: Inbox, send: Callable[[int, Hold | Release], bool]) -> None:
        self._inbox = inbox
        self._send = send
        self._agents: dict[int, Agent] = {}

    def open(self, partition: int, name: str, nodes: Iterable[int], hosting: Hosting | None = None) -> None:
        """Start the partition's agent on these nodes: `PartitionStarted` follows, or `PartitionFailed`."""
        self._agents[partition] = Agent(name, hosting)
        self.grow(partition, nodes)

    def grow(self, partition: int, nodes: Iterable[int]) -> None:
        """The agent serves these nodes as well from now on."""
        agent = self._agents.get(partition)
        if agent is None:
            return
        for index in nodes:
            if index in agent.holds or index in agent.asked:
                continue
            if self._send(index, Hold(partition, agent.name)):
                agent.asked.add(index)
        self._look(partition, agent)

    def shrink(self, partition: int, nodes: Iterable[int]) -> None:
        """The agent serves these nodes no more."""
        agent = self._agents.get(partition)
        if agent is None:
            return
        for index in nodes:
            if index in agent.holds or index in agent.asked:
                agent.holds.discard(index)
                agent.asked.discard(index)
                self._send(index, Release(partition))

    def close(self, partition: int) -> None:
        """End the partition's agent: `PartitionEnded` follows, also when there never was one."""
        agent = self._agents.get(partition)
        if agent is not None and agent.hosting is not None:
            agent.hosting.close()
        else:
            self.over(PartitionEnded(self._inbox.now(), partition))

    def over(self, event: PartitionEnded | PartitionFailed) -> None:
        """The partition has no agent any more."""
        agent = self._agents.pop(event.partition, None)
        for index in sorted(agent.holds | agent.asked) if agent is not None else ():
            self._send(index, Release(event.partition))
        self._inbox.put(event)

    def hosting(self, partition: int) -> Hosting | None:
        """The engine that lives in the partition, if one does."""
        agent = self._agents.get(partition)
        return agent.hosting if agent is not None else None

    def grow_hosting(self, partition: int, stations: Sequence[Station]) -> None:
        """What the partition hosts, if it does, shall be on these nodes as well."""
        if (hosting := self.hosting(partition)) is not None:
            hosting.grow(stations)

    def retire_workers(self, partition: int, nodes: Sequence[int]) -> None:
        """What the partition hosts shall leave these nodes: `WorkersRetired` follows, at once where it hosts nothing."""
        if (hosting := self.hosting(partition)) is not None:
            hosting.retire(nodes)
        else:
            self._inbox.put(WorkersRetired(self._inbox.now(), partition, tuple(nodes)))

    def serves(self, key: Key, text: str) -> None:
        """A process of a partition's engine serves."""
        if (hosting := self.hosting(-1 - key[0])) is not None:
            hosting.serves(key, text)

    def ended(self, message: Ended) -> None:
        """A process of a partition's engine is over."""
        if (hosting := self.hosting(-1 - message.key[0])) is not None:
            hosting.ended(message)

    def tick(self, now: float) -> None:
        """Look at the clock (monotonic): once a turn."""
        for agent in list(self._agents.values()):
            if agent.hosting is not None:
                agent.hosting.tick(now)

    def silence(self) -> None:
        """The run ends, and all agents with it."""
        for agent in self._agents.values():
            if agent.hosting is not None:
                agent.hosting.silence()

    def heard(self, index: int, partition: int) -> None:
        """The node's runner says that it holds its share."""
        agent = self._agents.get(partition)
        if agent is not None and index in agent.asked:
            agent.asked.discard(index)
            agent.holds.add(index)
            self._look(partition, agent)

    def node_gone(self, index: int) -> None:
        """The node's runner is gone."""
        for partition, agent in list(self._agents.items()):
            if index in agent.holds or index in agent.asked:
                agent.holds.discard(index)
                agent.asked.discard(index)
                if agent.hosting is not None:
                    agent.hosting.node_gone(index)
                if partition in self._agents:
                    self._look(partition, agent)

    def _look(self, partition: int, agent: Agent) -> None:
        if agent.started or agent.asked:
            return
        if agent.holds:
            agent.started = True
            if agent.hosting is not None:
                agent.hosting.begin()
            else:
                self._inbox.put(PartitionStarted(self._inbox.now(), partition))
        else:
            self.over(PartitionFailed(self._inbox.now(), partition, "none of its nodes has a runner any more"))
