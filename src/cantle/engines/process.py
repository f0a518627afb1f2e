"""How does a decision become a process on a node? It goes to that node's runner, and what the runner says becomes an event.

Messages are gathered and sent once a turn, one frame a node. A task on several nodes is started on the first of them, and
what spreads it out from there is in its command; or it has streams (`cantle.engines.gangs`).
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH103, PTH118

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cantle.engines.link import Link
from cantle.engines.mail import Mail
from cantle.engines.sending import Sending
from cantle.engines.told import as_event, no_text, on_our_clock
from cantle.model.records import Launch, NodeLost, Stop, TaskEnded, TaskStarted
from cantle.model.resources import Node
from cantle.model.seams import Channel, Inbox
from cantle.model.study import Command
from cantle.runner import clock
from cantle.runner.frames import encode
from cantle.runner.messages import (
    RUN,
    Ack,
    Base,
    Define,
    Ended,
    Forget,
    Held,
    Hold,
    Key,
    Leaving,
    Release,
    Said,
    Serving,
    Setup,
    Start,
    Started,
    Sweep,
    Swept,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cantle.engines.agents import Agents
    from cantle.engines.calls import Calls, Transport
    from cantle.engines.gangs import Gangs
    from cantle.engines.hosted.base import Hosted, Papers, Station
    from cantle.engines.luggage import Luggage
    from cantle.model.streams import Streams
    from cantle.runner.messages import Up

_CLOSING_S = 5.0
"""How long `close` waits beyond the grace for what cannot be killed."""
_SAME_S = 0.001
"""Clocks that differ by less are one: it takes a moment to read both."""


class ProcessEngine:
    """Runs attempts as processes.

    `directory` is the run's. `home` is a folder in it for what belongs to the runners: their locks, spools and packed
    output. `env` is what tasks inherit (default: this process's environment). `hide_gpus`: tasks that asked for no GPU see
    none. `grace_s` lies between TERM and KILL.
    """

    keeps_lines = True
    runs_streams = True

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
        ahead_s = clock.now() - inbox.now()
        self._ahead_s = ahead_s if abs(ahead_s) > _SAME_S else 0.0
        """By how much the clock of the runners that we fork is ahead of the records' time."""
        self._directory = directory
        self._home = home
        inherited = os.environb if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
        self._env = {**inherited, RUN: os.fsencode(os.path.abspath(directory))}  # noqa: PTH100
        self._grace_s = grace_s
        self._hide_gpus = hide_gpus
        self._mail = mail = Mail()
        self._links = mail.links
        self._sending = Sending(inbox, mail.links, self._hear)
        self._where = mail.where
        self.post: Callable[[int, Start], None] = mail.post
        """Lets a start go to a node's runner with all else of this turn."""
        self.tell: Callable[[int, Hold | Release | Sweep | Define | Forget], bool] = mail.tell
        """Says something to a node's runner with all else of this turn. Whether the node is there."""
        self._luggage: Luggage | None = None
        self._agents: Agents | None = None
        self._gangs: Gangs | None = None
        self._calls: Calls | None = None
        self.make_transport: Callable[[], Transport] | None = None
        """Who brings results from machine to machine, when that is needed."""
        self.launch_lost_a_node: Callable[[], None] = lambda: None
        """Who hears that an attempt which spreads itself has lost one of its nodes."""
        self.local_files: dict[int, list[str]] = {}
        """Of tasks that leave files which other machines do not see: where."""
        os.makedirs(os.path.join(directory, home), exist_ok=True)

    def add_node(self, index: int, node: Node, channel: Channel) -> None:
        """Work may be sent to this node from now on, through its runner's channel."""
        link = Link(node, channel)
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
        if self._calls is not None:
            self._calls.node_came(index, node)

    def remove_node(self, index: int) -> None:
        """Use this node no more: the runner ends what still runs there, TERM, a short grace, KILL."""
        link = self._links.get(index)
        if link is not None:
            self._sending.send(index, link)
            if index in self._links:  # it may turn out to be gone while we send
                self._forget(index, link)
                if self._gangs is not None:
                    self._gangs.node_gone(index)

    @property
    def calls(self) -> Calls:
        """The calls of Python functions, made when they are first asked for."""
        if self._calls is None:
            from cantle.engines.calls import Calls

            self._calls = Calls(self)
        return self._calls

    @property
    def calls_so_far(self) -> Calls | None:
        """The same, None when nobody has called anything."""
        return self._calls

    def open_base(self, number: int, directory: str, env: dict[bytes, bytes], hide_gpus: bool, first: int) -> None:
        """Commands with this `base` number start in a directory and environment of their own: another study's.

        Its tasks are told their numbers counted from `first`; packed output lies in its own `home` folder.
        """
        env = {**env, RUN: os.fsencode(os.path.abspath(directory))}  # noqa: PTH100
        os.makedirs(os.path.join(directory, self._home), exist_ok=True)
        self._mail.bases[number] = Base(number, directory, env, hide_gpus, self._home, first)

    def close_base(self, number: int) -> None:
        """All of that base is over."""
        self._mail.close_base(number)

    def open_partition(self, partition: int, name: str, nodes: Sequence[int]) -> None:
        """Start the agent of a partition on these nodes."""
        self._its_agents().open(partition, name, nodes)

    def open_hosting_partition(
        self,
        partition: int,
        name: str,
        hosted: Hosted,
        stations: Sequence[Station],
        papers: Callable[[], Papers],
    ) -> None:
        """Start the agent of a partition on these nodes, and in it this engine."""
        from cantle.engines.lodging import Surroundings, lodge

        here = Surroundings(
            os.path.abspath(self._directory),  # noqa: PTH100
            self._home,
            [link.node for link in self._links.values()],
            self._inbox,
            self._mail.post_serve,
            self._mail.end,
        )
        lodge(self._its_agents(), partition, name, hosted, stations, papers, here)

    def grow_hosting(self, partition: int, stations: Sequence[Station]) -> None:
        """What the partition hosts shall be on these nodes as well, of which the partition has all that it wants."""
        self._its_agents().grow_hosting(partition, stations)

    def retire_workers(self, partition: int, nodes: Sequence[int]) -> None:
        """What the partition hosts shall leave these nodes."""
        self._its_agents().retire_workers(partition, nodes)

    def _its_agents(self) -> Agents:
        if self._agents is None:
            from cantle.engines.agents import Agents

            self._agents = Agents(self._inbox, self.tell)
        return self._agents

    def resize_partition(self, partition: int, joining: Sequence[int], leaving: Sequence[int]) -> None:
        """The agent serves these nodes as well, and those no more."""
        if self._agents is not None:
            self._agents.grow(partition, joining)
            self._agents.shrink(partition, leaving)

    def close_partition(self, partition: int) -> None:
        """End the agent of a partition; what runs there has ended, or is being ended by itself."""
        self._its_agents().close(partition)

    def put(self, event: TaskEnded) -> None:
        """Something that is known here without asking a runner."""
        self._inbox.put(event)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._inbox.now()

    def nodes(self) -> dict[int, Node]:
        """The nodes that are there."""
        return {index: link.node for index, link in self._links.items()}

    def launch(
        self,
        launch: Launch,
        command: Command,
        walltime_s: float = 0.0,
        memory_mib: int = 0,
        streams: Streams | None = None,
    ) -> None:
        """Start the attempt on its places. It is ended when it passes its walltime or its memory (0: no bound)."""
        if command.call is not None and launch.on[0].node in self._links:
            self.calls.launch(launch, command, walltime_s, memory_mib)
            return
        if command.ranks > 1 and streams is None:
            from cantle.model.streams import Streams

            streams = Streams(command.ranks, command.cores_each, together=True)
        if streams is not None or len(launch.on) > 1 or command.launches:
            if command.stage is not None:
                self._unstartable(
                    (launch.task, launch.attempt),
                    "files are staged for steps of one process, and this one launches others",
                )
                return
            self._launch_gang(launch, command, walltime_s, memory_mib, streams)
            return
        place = launch.on[0]
        key = (launch.task, launch.attempt)
        link = self._links.get(place.node)
        if link is None:
            self._not_there(key, place.node)
            return
        after = (launch.behind, launch.if_done) if launch.if_done and launch.behind is not None else None
        start = Start(key, command, place.cores, place.gpus, walltime_s, memory_mib, after)
        if command.stage is not None or (self._luggage is not None and self._luggage.is_ahead_of(launch.behind)):
            self._with_luggage().send(place.node, link.node, start, self._directory_of(command), launch.behind)
            return
        try:
            self.post(place.node, start)
        except UnicodeEncodeError as error:
            self._unstartable(key, no_text(error))

    def stop(self, stop: Stop) -> None:
        """End the attempt (TERM, grace, KILL; `at_once`: KILL); its `TaskEnded` bears the stop's outcome."""
        key = (stop.task, stop.attempt)
        grace_s = 0.0 if stop.at_once else -1.0
        if self._calls is not None and self._calls.stop(key, stop.outcome, stop.why):
            return
        if self._luggage is not None and self._luggage.drop(key):
            self._inbox.put(TaskEnded(self._inbox.now(), *key, stop.outcome, detail=stop.why))
            return
        if self._gangs is None or not self._gangs.stop(key, stop.outcome, stop.why, grace_s):
            self._mail.end(key, stop.outcome, stop.why, grace_s)

    def written(self) -> None:
        """All events that the engine has put into the inbox so far are written down: runners may forget them."""
        for index, link in self._links.items():
            but, over = ((), ()) if self._gangs is None else self._gangs.kept_since(index)
            if link.received > link.acknowledged or over:
                link.acknowledged = link.received
                link.outgoing.append(encode(Ack(link.received, but, over)))

    def flush(self) -> None:
        """Send what has been gathered since the last flush."""
        if self._gangs is not None:
            self._gangs.tick()
        if self._luggage is not None:
            self._luggage.tick()
        if self._agents is not None:
            self._agents.tick(time.monotonic())
        self._sending.send_all()

    def close(self) -> None:
        """End everything on all nodes, wait for it within a bound, put what ended into the inbox, let the runners go."""
        if self._luggage is not None:
            self._luggage.close()
        for key in self._mail.keep_unsent():
            if self._gangs is not None:
                self._gangs.never_sent(key)
        if self._agents is not None:
            self._agents.silence()
        if self._gangs is not None:
            self._gangs.stop_all("interrupted", "the run was closed")
        for key in self._where:
            self._mail.end(key, "interrupted", "the run was closed", -1.0)
        self.flush()
        stop = time.monotonic() + self._grace_s + _CLOSING_S
        while self._is_busy() and (left := stop - time.monotonic()) > 0:
            self._sending.wait(left, self._hear, self._luggage.waits_for if self._luggage is not None else {})
            self.flush()
        if self._gangs is not None:
            self._gangs.close()
        for index in list(self._links):
            self.remove_node(index)
        if self._luggage is not None:
            self._luggage.end()
        self._sending.close()
        if self._calls is not None:
            self._calls.close(self._directory, self._home)

    def _is_busy(self) -> bool:
        return bool(self._where) or (self._gangs is not None and self._gangs.sweeps)

    def _hear(self, index: int) -> None:
        """Turn what a runner says into events."""
        link = self._links.get(index)
        if link is None or link.is_over:
            return
        try:
            data = link.channel.receive()
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(index, link, f"its runner cannot be reached: {error.strerror or error}")
            return
        if not data:
            self._lost(index, link, link.channel.why_ended or "its runner is gone")
            return
        messages = link.frames.feed(data)
        if link.held is None:
            self._take(index, link, messages)
        else:
            link.held += messages

    def _take(self, index: int, link: Link, messages: Iterable[Up | str]) -> None:
        put = self._inbox.put
        ahead_s = link.channel.clock_ahead_s + self._ahead_s
        told = iter(messages)
        for message in told:
            if ahead_s and isinstance(message, Ended | Started):
                message = on_our_clock(message, ahead_s)
            if type(message) is Ended:
                # A gang, and what is hosted, name their nodes themselves.
                of_one_node = len(message.key) == 2 and message.key[0] >= 0
                if message.outcome == "unstartable" and len(self._links) > 1 and of_one_node:
                    message = replace(message, detail=f"on {link.node.name}: {message.detail}")
                if message.files and message.key in link.running and self._takes_in(index, link, message):
                    link.held = deque(told)
                    return
                self._ended(index, link, message)
            elif type(message) is Started:
                if message.key[0] < 0 or message.key not in link.running:
                    continue
                if self._gangs is None or not self._gangs.started(message):
                    put(TaskStarted(message.time, message.key[0], message.key[1], message.pid))
            elif type(message) is Swept and self._gangs is not None:
                self._gangs.swept(index, message.key)
            elif type(message) is Said and self._gangs is not None:
                self._gangs.said(message.key, message.text, message.over, message.waits)
            elif type(message) is Serving and self._agents is not None:
                self._agents.serves(message.key, message.text)
            elif type(message) is Held and self._agents is not None:
                self._agents.heard(index, message.partition)
            elif type(message) is Leaving:
                self._lost(index, link, message.reason)
                return
            elif type(message) is str:
                self._lost(index, link, message)
                return

    def _takes_in(self, index: int, link: Link, ended: Ended) -> bool:
        luggage = self._luggage
        return luggage is not None and luggage.takes_in(ended, lambda taken: self._taken_in(index, link, taken))

    def _taken_in(self, index: int, link: Link, ended: Ended) -> None:
        """What came with the end of an attempt is where it belongs: now what the runner has said after it is heard."""
        if self._links.get(index) is link:
            held, link.held = link.held or (), None
            self._ended(index, link, ended)
            self._take(index, link, held)

    def _ended(self, index: int, link: Link, message: Ended) -> None:
        link.received = message.number
        if message.key in link.running:
            link.running.discard(message.key)
            del self._where[message.key]
            if message.key[0] < 0:
                self._its_agents().ended(message)
                return
            if self._luggage is not None:
                self._luggage.over(message.key)
            if self._calls is not None:
                self._calls.ended(index, message)
            if self._gangs is None or not self._gangs.ended(message):
                self._inbox.put(as_event(message))

    def _lost(self, index: int, link: Link, reason: str) -> None:
        if link.held is not None:
            link.held.append(reason)
            self._inbox.unwatch(link.channel.fileno())
            self._sending.stop(index)
            return
        self._forget(index, link)
        event = NodeLost(self._inbox.now(), index, f"{link.node.name}: {reason}")
        if self._gangs is None:
            self._inbox.put(event)
        else:
            self._gangs.node_gone(index, event)

    def _forget(self, index: int, link: Link) -> None:
        """The link is over, and with it what runs there."""
        self._mail.forget(index)
        self._inbox.unwatch(link.channel.fileno())
        self._sending.stop(index)
        link.channel.close()
        if self._luggage is not None:
            self._luggage.node_gone(index)
        if self._agents is not None:
            self._agents.node_gone(index)
        if self._calls is not None:
            self._calls.node_gone(index)

    def _launch_gang(
        self, launch: Launch, command: Command, walltime_s: float, memory_mib: int, streams: Streams | None
    ) -> None:
        """Start an attempt of several parts, or on several nodes: all of it or nothing."""
        if self._gangs is None:
            from cantle.engines.gangs import Gangs

            self._gangs = Gangs(self._mail.end, self._inbox.put, self.tell, self.launch_lost_a_node, self._inbox.now)
        key = (launch.task, launch.attempt)
        for place in launch.on:
            if place.node not in self._links:
                self._not_there(key, place.node)
                return
        nodes = [self._links[place.node].node for place in launch.on]
        directory = self._directory_of(command)
        try:
            encode(command)
            hosting = self._agents.hosting(launch.partition) if self._agents is not None else None
            hosted = hosting.hosted if hosting is not None else None
            starts = self._gangs.add(launch, command, nodes, streams, walltime_s, memory_mib, directory, hosted)
        except UnicodeEncodeError as error:
            self._unstartable(key, no_text(error))
            return
        except ValueError as error:
            self._unstartable(key, str(error))
            return
        except MemoryError:
            parts = streams.count if streams is not None else 1
            self._unstartable(key, f"this machine has not the memory to hand out its {parts:,} streams")
            return
        if launch.if_done and launch.behind is not None and streams is None:
            starts = [(node, replace(start, after=(launch.behind, launch.if_done))) for node, start in starts]
        for node, start in starts:
            self.post(node, start)

    def _directory_of(self, command: Command) -> str:
        base = self._mail.bases.get(command.base)
        return base.directory if base is not None else self._directory

    def _with_luggage(self) -> Luggage:
        if self._luggage is None:
            from cantle.engines.luggage import Luggage

            self._luggage = Luggage(self._inbox, self.post, self._unstartable, self.local_files)
        return self._luggage

    def _not_there(self, key: Key, node: int) -> None:
        """What was launched on a node that has gone meanwhile needs no answer if its loss is still to be told."""
        if self._gangs is None or not self._gangs.is_held_back(node):
            self._unstartable(key, f"node {node} is not there any more", everywhere=False)

    def _unstartable(self, key: Key, why: str, everywhere: bool = True) -> None:
        now = self._inbox.now()
        self._inbox.put(TaskEnded(now, key[0], key[1], "unstartable", detail=why, everywhere=everywhere))
