"""How does a decision become a process on a node? It goes to that node's runner, and what the runner says becomes an event.

Messages are gathered and sent once a turn, one frame a node. A task on several nodes is started on the first of them; what
spreads it out from there is in its command.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH103, PTH108, PTH118, PTH208

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cantle.errors import LockedError
from cantle.model.records import Launch, NodeLost, PartitionEnded, Stop, TaskEnded, TaskStarted
from cantle.model.resources import Node
from cantle.model.seams import Channel, Inbox
from cantle.model.study import Command
from cantle.runner.frames import Frames, encode, frame
from cantle.runner.messages import (
    Ack,
    Base,
    BaseOver,
    End,
    Ended,
    Held,
    Hold,
    Key,
    Leaving,
    Release,
    Setup,
    Start,
    Started,
    Up,
)
from cantle.runner.spool import read_spool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cantle.engines.agents import Agents

_RUN = b"CANTLE_RUN"
"""The variable that tells every process of a run which run that is: its directory."""
_CLOSING_S = 5.0
"""How long `close` waits beyond the grace for what cannot be killed."""


class _Link:
    """One node: the channel to its runner, what waits to be sent there, and what runs there."""

    __slots__ = ("acknowledged", "bases", "channel", "frames", "name", "outgoing", "received", "running", "unsent")

    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self.channel = channel
        self.frames: Frames[Up] = Frames(Up)
        self.outgoing: list[bytes] = []
        self.running: set[Key] = set()
        self.received = 0
        self.unsent: list[Key] = []
        self.acknowledged = 0
        self.bases: set[int] = set()


class ProcessEngine:
    """Runs attempts as processes.

    `directory` is the run's. `home` is a folder in it for what belongs to the runners: their locks, spools and packed
    output. `env` is what tasks inherit (default: this process's environment). `hide_gpus`: tasks that asked for no GPU see
    none. `grace_s` lies between TERM and KILL.
    """

    keeps_lines = True

    def __init__(
        self,
        inbox: Inbox,
        directory: str,
        *,
        home: str = "runners",
        env: dict[str, str] | None = None,
        grace_s: float = 5.0,
        hide_gpus: bool = False,
    ) -> None:
        self._inbox = inbox
        self._directory = directory
        self._home = home
        inherited = os.environb if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
        self._env = {**inherited, _RUN: os.fsencode(os.path.abspath(directory))}  # noqa: PTH100
        self._grace_s = grace_s
        self._hide_gpus = hide_gpus
        self._bases: dict[int, Base] = {}
        self._links: dict[int, _Link] = {}
        self._where: dict[Key, int] = {}
        self._agents: Agents | None = None
        os.makedirs(os.path.join(directory, home), exist_ok=True)

    def add_node(self, index: int, node: Node, channel: Channel) -> None:
        """Work may be sent to this node from now on, through its runner's channel."""
        link = _Link(node.name, channel)
        own = f"{self._home}/{index}"
        setup = Setup(
            directory=self._directory,
            env=self._env,
            core_ids=node.core_ids,
            gpu_ids=node.gpu_ids,
            hide_gpus=self._hide_gpus,
            spool=f"{own}.spool",
            lock=f"{own}.lock",
            packed=own,
            grace_s=self._grace_s,
        )
        link.outgoing.append(encode(setup))
        self._links[index] = link
        self._inbox.watch(channel.fileno(), lambda: self._hear(index))

    def remove_node(self, index: int) -> None:
        """Use this node no more: the runner ends what still runs there, TERM, a short grace, KILL."""
        link = self._links.get(index)
        if link is not None:
            self._send(index, link)
            if index in self._links:  # it may turn out to be gone while we send
                self._forget(index, link)

    def open_base(self, number: int, directory: str, env: dict[bytes, bytes], hide_gpus: bool, first: int) -> None:
        """Commands with this `base` number start in a directory and environment of their own: another study's.

        Its tasks are told their numbers counted from `first`; packed output lies in its own `home` folder.
        """
        env = {**env, _RUN: os.fsencode(os.path.abspath(directory))}  # noqa: PTH100
        os.makedirs(os.path.join(directory, self._home), exist_ok=True)
        self._bases[number] = Base(number, directory, env, hide_gpus, self._home, first)

    def close_base(self, number: int) -> None:
        """All of that base is over."""
        self._bases.pop(number, None)
        for link in self._links.values():
            if number in link.bases:
                link.bases.discard(number)
                link.outgoing.append(encode(BaseOver(number)))

    def open_partition(self, partition: int, name: str, nodes: Sequence[int]) -> None:
        """Start the agent of a partition on these nodes."""
        if self._agents is None:
            from cantle.engines.agents import Agents

            self._agents = Agents(self._inbox, self._tell)
        self._agents.open(partition, name, nodes)

    def resize_partition(self, partition: int, joining: Sequence[int], leaving: Sequence[int]) -> None:
        """The agent serves these nodes as well, and those no more."""
        if self._agents is not None:
            self._agents.grow(partition, joining)
            self._agents.shrink(partition, leaving)

    def close_partition(self, partition: int) -> None:
        """End the agent of a partition; what runs there has ended, or is being ended by itself."""
        if self._agents is not None:
            self._agents.close(partition)
        else:
            self._inbox.put(PartitionEnded(self._inbox.now(), partition))

    def _tell(self, index: int, message: Hold | Release) -> bool:
        link = self._links.get(index)
        if link is not None:
            link.outgoing.append(encode(message))
        return link is not None

    def launch(self, launch: Launch, command: Command, walltime_s: float = 0.0, memory_mib: int = 0) -> None:
        """Start the attempt on its places. It is ended when it passes its walltime or its memory (0: no bound)."""
        place = launch.on[0]
        key = (launch.task, launch.attempt)
        link = self._links.get(place.node)
        if link is None:
            self._unstartable(key, f"node {place.node} is not there any more")
            return
        if command.base and command.base not in link.bases:
            self._introduce(link, place.node, command.base)
        after = (launch.behind, launch.if_done) if launch.if_done and launch.behind is not None else None
        start = Start(key, command, place.cores, place.gpus, walltime_s, memory_mib, after)
        try:
            link.outgoing.append(encode(start))
        except UnicodeEncodeError as error:
            self._unstartable(key, f"its command holds text that is no valid Unicode: {error.object[:80]!a}")
            return
        link.running.add(key)
        link.unsent.append(key)
        self._where[key] = place.node

    def stop(self, stop: Stop) -> None:
        """End the attempt (TERM, grace, KILL; `at_once`: KILL); its `TaskEnded` bears the stop's outcome."""
        key = (stop.task, stop.attempt)
        index = self._where.get(key)
        if index is not None:
            grace_s = 0.0 if stop.at_once else -1.0
            self._links[index].outgoing.append(encode(End(key, stop.outcome, stop.why, grace_s)))

    def written(self) -> None:
        """All events that the engine has put into the inbox so far are written down: runners may forget them."""
        for link in self._links.values():
            if link.received > link.acknowledged:
                link.acknowledged = link.received
                link.outgoing.append(encode(Ack(link.received)))

    def flush(self) -> None:
        """Send what has been gathered since the last flush."""
        for index, link in list(self._links.items()):
            if link.outgoing or link.channel.backlog:
                self._send(index, link)

    def close(self) -> None:
        """End everything on all nodes, wait for it within a bound, put what ended into the inbox, let the runners go."""
        for link in self._links.values():  # what was never settled must not begin: its launch may not be written down
            if link.unsent:
                for key in link.unsent:
                    link.running.discard(key)
                    self._where.pop(key, None)
                link.unsent.clear()
                link.outgoing.clear()
        for key, index in self._where.items():
            self._links[index].outgoing.append(encode(End(key, "interrupted", "the run was closed")))
        self.flush()
        stop = time.monotonic() + self._grace_s + _CLOSING_S
        while self._where and (left := stop - time.monotonic()) > 0:
            self._wait(left)
        for index in list(self._links):
            self.remove_node(index)

    def _introduce(self, link: _Link, index: int, number: int) -> None:
        """Tell the node's runner of a base. Of one that nobody opened the runner says so, for each of its tasks."""
        base = self._bases.get(number)
        if base is not None:
            link.bases.add(number)
            link.outgoing.append(encode(replace(base, packed=f"{base.packed}/{index}")))

    def _wait(self, seconds: float) -> None:
        import select

        poll = select.poll()
        by_fd = {link.channel.fileno(): index for index, link in self._links.items()}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(seconds * 1000):
            self._hear(by_fd[fd])

    def _send(self, index: int, link: _Link) -> None:
        data = frame(link.outgoing) if link.outgoing else b""
        link.outgoing.clear()
        link.unsent.clear()
        try:
            link.channel.send(data)
        except OSError:
            # The runner has gone, but what it said before may still be on its way: then the end of the channel tells.
            self._hear(index)

    def _hear(self, index: int) -> None:
        """Turn what a runner says into events."""
        link = self._links.get(index)
        if link is None:
            return
        try:
            data = link.channel.receive()
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(index, link, f"its runner cannot be reached: {error.strerror or error}")
            return
        if not data:
            self._lost(index, link, "its runner is gone")
            return
        put = self._inbox.put
        for message in link.frames.feed(data):
            if type(message) is Ended:
                link.received = message.number
                if message.key in link.running:
                    link.running.discard(message.key)
                    del self._where[message.key]
                    put(as_event(message))
            elif type(message) is Started:
                if message.key in link.running:
                    put(TaskStarted(message.time, *message.key, message.pid))
            elif type(message) is Held and self._agents is not None:
                self._agents.heard(index, message.partition)
            elif type(message) is Leaving:
                self._lost(index, link, message.reason)
                return

    def _lost(self, index: int, link: _Link, reason: str) -> None:
        self._forget(index, link)
        self._inbox.put(NodeLost(self._inbox.now(), index, f"{link.name}: {reason}"))

    def _forget(self, index: int, link: _Link) -> None:
        """The link is over, and with it what runs there."""
        del self._links[index]
        for key in link.running:
            del self._where[key]
        self._inbox.unwatch(link.channel.fileno())
        link.channel.close()
        if self._agents is not None:
            self._agents.node_gone(index)

    def _unstartable(self, key: Key, why: str) -> None:
        self._inbox.put(TaskEnded(self._inbox.now(), *key, "unstartable", detail=why))


def as_event(ended: Ended) -> TaskEnded:
    """A runner's result as the event that the journal stores."""
    task, attempt = ended.key
    return TaskEnded(
        ended.time,
        task,
        attempt,
        ended.outcome,
        ended.exit_code,
        ended.signal,
        ended.cpu_s,
        ended.peak_mib,
        ended.detail,
        ended.output,
        ended.started,
        ended.pid,
    )


def await_runners(home: str, timeout_s: float = 15.0) -> None:
    """Wait until no runner of an earlier conductor is left. `home` is the engine's folder, absolute.

    Raises LockedError when one still lives after the time, OSError when a lock file cannot be used.
    """
    import fcntl

    stop = time.monotonic() + timeout_s
    for name in _files(home, ".lock"):
        fd = os.open(name, os.O_RDWR)
        try:
            while True:
                try:
                    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except (BlockingIOError, PermissionError):
                    if time.monotonic() > stop:
                        raise LockedError(
                            f"the runner of an earlier conductor still holds {name}: its tasks have not ended yet; "
                            "try again in a moment"
                        ) from None
                    time.sleep(0.02)
        finally:
            os.close(fd)


def end_strays(directory: str, timeout_s: float = 5.0) -> int:
    """KILL what is left of a run's processes on this machine, and wait until it is gone. Returns how many there were.

    There is something only when a runner was killed together with its conductor. For the holder of the run's lock.
    """
    from cantle.runner import processes

    mark = (os.fsencode(os.path.abspath(directory)),)  # noqa: PTH100
    ours = {os.getpid(), *processes.ancestors()}
    found: set[int] = set()
    stop = time.monotonic() + timeout_s
    while time.monotonic() < stop:
        left = [
            pid
            for name in os.listdir("/proc")
            if name.isdigit() and (pid := int(name)) not in ours and processes.variables(pid, _RUN) == mark
        ]
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                found.add(pid)
            except OSError:  # it has gone, or is not ours to end
                ours.add(pid)
        time.sleep(0.02)
    return len(found)


def leftovers(home: str) -> list[TaskEnded]:
    """Results that an earlier conductor did not write down, oldest first. Call `await_runners` before."""
    found = [ended for name in _files(home, ".spool") for ended in read_spool(name)]
    return sorted(map(as_event, found), key=lambda event: event.time)


def clear_leftovers(home: str) -> None:
    """The leftovers are in the journal now: remove their files."""
    for name in _files(home, ".spool"):
        os.unlink(name)


def _files(home: str, end: str) -> list[str]:
    try:
        return sorted(f"{home}/{name}" for name in os.listdir(home) if name.endswith(end))
    except FileNotFoundError:
        return []
