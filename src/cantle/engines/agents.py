"""Who serves a partition? Its agent: one for each, on the runners of its nodes, and on nobody else's.

The agent stands when each of these runners has said that it holds its share; until then the partition is STARTING. It has no
states of its own. When a runner goes, its share is gone with the node, and the agent goes on with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cantle.model.records import PartitionEnded, PartitionFailed, PartitionStarted
from cantle.model.seams import Inbox
from cantle.runner.messages import Hold, Release


class Agent:
    """One partition's: the nodes whose runners hold a share, and those that have not answered yet."""

    __slots__ = ("asked", "holds", "name", "started")

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: set[int] = set()
        self.holds: set[int] = set()
        self.started = False


class Agents:
    """All agents of an engine. `send` brings a message to the runner of a node; False when there is none."""

    def __init__(self, inbox: Inbox, send: Callable[[int, Hold | Release], bool]) -> None:
        self._inbox = inbox
        self._send = send
        self._agents: dict[int, Agent] = {}

    def open(self, partition: int, name: str, nodes: Iterable[int]) -> None:
        """Start the partition's agent on these nodes: `PartitionStarted` follows, or `PartitionFailed`."""
        self._agents[partition] = Agent(name)
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
        agent = self._agents.pop(partition, None)
        for index in sorted(agent.holds | agent.asked) if agent is not None else ():
            self._send(index, Release(partition))
        self._inbox.put(PartitionEnded(self._inbox.now(), partition))

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
                self._look(partition, agent)

    def _look(self, partition: int, agent: Agent) -> None:
        if agent.started or agent.asked:
            return
        if agent.holds:
            agent.started = True
            self._inbox.put(PartitionStarted(self._inbox.now(), partition))
        else:
            del self._agents[partition]
            self._inbox.put(PartitionFailed(self._inbox.now(), partition, "none of its nodes has a runner any more"))
