"""How does a decision become a process on a node? It goes to that node's runner; what the runner says is heard in `hearing`.

Messages are gathered and sent once a turn, one frame a node. A task on several nodes is started on the first of them, and
what spreads it out from there is in its command; or it has streams (`cantle.engines.gangs`).
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH103, PTH118

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cantle.engines.desks import Desks
from cantle.engines.hearing import Hearing
from cantle.engines.link import Link
from cantle.engines.mail import Mail
from cantle.engines.told import no_text, unstartable
from cantle.model.records import Launch, Stop, TaskEnded
from cantle.model.resources import Node
from cantle.model.seams import Channel, Inbox
from cantle.model.study import Command
from cantle.runner import clock
from cantle.runner.frames import encode
from cantle.runner.messages import RUN, Ack, Base, Define, Forget, Hold, Key, Release, Setup, Start, Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cantle.engines.calls import Calls, Transport
    from cantle.engines.hosted.base import Hosted, Papers, Station
    from cantle.model.streams import Streams

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
        self._directory = directory
        self._home = home
        inherited = os.environb if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
        self._env = {**inherited, RUN: os.fsencode(os.path.abspath(directory))}  # noqa: PTH100
        self._grace_s = grace_s
        self._hide_gpus = hide_gpus
        self._mail = mail = Mail()
        self._links = mail.links
        self._desks = desks = Desks(inbox, mail)
        ahead_s = clock.now() - inbox.now()
        self._hearing = hearing = Hearing(inbox, mail, desks, ahead_s if abs(ahead_s) > _SAME_S else 0.0)
        self._sending = hearing.sending
        self.post: Callable[[int, Start], None] = mail.post
        """Lets a start go to a node's runner with all else of this turn."""
        self.tell: Callable[[int, Hold | Release | Sweep | Define | Forget], bool] = mail.tell
        """Says something to a node's runner with all else of this turn. Whether the node is there."""
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
        self._hearing.listen(index, link)
        if self._desks.calls is not None:
            self._desks.calls.node_came(index, node)

    def remove_node(self, index: int) -> None:
        """Use this node no more: the runner ends what still runs there, TERM, a short grace, KILL."""
        link = self._links.get(index)
        if link is not None:
            self._sending.send(index, link)
            if index in self._links:  # it may turn out to be gone while we send
                self._hearing.let_go(index, link)
                if self._desks.gangs is not None:
                    self._desks.gangs.node_gone(index)

    @property
    def calls(self) -> Calls:
        """The calls of Python functions, made when they are first asked for."""
        return self._desks.open_calls(self)

    @property
    def calls_so_far(self) -> Calls | None:
        """The same, None when nobody has called anything."""
        return self._desks.calls

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
        self._desks.open_agents().open(partition, name, nodes)

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
        lodge(self._desks.open_agents(), partition, name, hosted, stations, papers, here)

    def grow_hosting(self, partition: int, stations: Sequence[Station]) -> None:
        """What the partition hosts shall be on these nodes as well, of which the partition has all that it wants."""
        self._desks.open_agents().grow_hosting(partition, stations)

    def retire_workers(self, partition: int, nodes: Sequence[int]) -> None:
        """What the partition hosts shall leave these nodes."""
        self._desks.open_agents().retire_workers(partition, nodes)

    def resize_partition(self, partition: int, joining: Sequence[int], leaving: Sequence[int]) -> None:
        """The agent serves these nodes as well, and those no more."""
        if self._desks.agents is not None:
            self._desks.agents.grow(partition, joining)
            self._desks.agents.shrink(partition, leaving)

    def close_partition(self, partition: int) -> None:
        """End the agent of a partition; what runs there has ended, or is being ended by itself."""
        self._desks.open_agents().close(partition)

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
        luggage = self._desks.luggage
        if command.stage is not None or (luggage is not None and luggage.is_ahead_of(launch.behind)):
            luggage = self._desks.open_luggage(self.local_files)
            luggage.send(place.node, link.node, start, self._directory_of(command), launch.behind)
            return
        try:
            self.post(place.node, start)
        except UnicodeEncodeError as error:
            self._unstartable(key, no_text(error))

    def stop(self, stop: Stop) -> None:
        """End the attempt (TERM, grace, KILL; `at_once`: KILL); its `TaskEnded` bears the stop's outcome."""
        desks = self._desks
        key = (stop.task, stop.attempt)
        grace_s = 0.0 if stop.at_once else -1.0
        if desks.calls is not None and desks.calls.stop(key, stop.outcome, stop.why):
            return
        if desks.luggage is not None and desks.luggage.drop(key):
            self._inbox.put(TaskEnded(self._inbox.now(), *key, stop.outcome, detail=stop.why))
            return
        if desks.gangs is None or not desks.gangs.stop(key, stop.outcome, stop.why, grace_s):
            self._mail.end(key, stop.outcome, stop.why, grace_s)

    def written(self) -> None:
        """All events that the engine has put into the inbox so far are written down: runners may forget them."""
        desks = self._desks
        for index, link in self._links.items():
            but, over = ((), ()) if desks.gangs is None else desks.gangs.kept_since(index)
            if link.received > link.acknowledged or over:
                link.acknowledged = link.received
                link.outgoing.append(encode(Ack(link.received, but, over)))

    def flush(self) -> None:
        """Send what has been gathered since the last flush."""
        desks = self._desks
        if desks.gangs is not None:
            desks.gangs.tick()
        if desks.luggage is not None:
            desks.luggage.tick()
        if desks.agents is not None:
            desks.agents.tick(time.monotonic())
        self._sending.send_all()

    def close(self) -> None:
        """End everything on all nodes, wait for it within a bound, put what ended into the inbox, let the runners go."""
        desks = self._desks
        if desks.luggage is not None:
            desks.luggage.close()
        for key in self._mail.keep_unsent():
            if desks.gangs is not None:
                desks.gangs.never_sent(key)
        if desks.agents is not None:
            desks.agents.silence()
        if desks.gangs is not None:
            desks.gangs.stop_all("interrupted", "the run was closed")
        for key in self._mail.where:
            self._mail.end(key, "interrupted", "the run was closed", -1.0)
        self.flush()
        stop = time.monotonic() + self._grace_s + _CLOSING_S
        while self._is_busy() and (left := stop - time.monotonic()) > 0:
            self._sending.wait(left, self._hearing.hear, desks.luggage.waits_for if desks.luggage is not None else {})
            self.flush()
        if desks.gangs is not None:
            desks.gangs.close()
        for index in list(self._links):
            self.remove_node(index)
        if desks.luggage is not None:
            desks.luggage.end()
        self._sending.close()
        if desks.calls is not None:
            desks.calls.close(self._directory, self._home)

    def _is_busy(self) -> bool:
        return bool(self._mail.where) or (self._desks.gangs is not None and self._desks.gangs.sweeps)

    def _launch_gang(
        self, launch: Launch, command: Command, walltime_s: float, memory_mib: int, streams: Streams | None
    ) -> None:
        """Start an attempt of several parts, or on several nodes: all of it or nothing."""
        desks = self._desks
        gangs = desks.open_gangs(self.launch_lost_a_node)
        key = (launch.task, launch.attempt)
        for place in launch.on:
            if place.node not in self._links:
                self._not_there(key, place.node)
                return
        nodes = [self._links[place.node].node for place in launch.on]
        directory = self._directory_of(command)
        try:
            encode(command)
            hosting = desks.agents.hosting(launch.partition) if desks.agents is not None else None
            hosted = hosting.hosted if hosting is not None else None
            starts = gangs.add(launch, command, nodes, streams, walltime_s, memory_mib, directory, hosted)
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

    def _not_there(self, key: Key, node: int) -> None:
        """What was launched on a node that has gone meanwhile needs no answer if its loss is still to be told."""
        if self._desks.gangs is None or not self._desks.gangs.is_held_back(node):
            self._unstartable(key, f"node {node} is not there any more", everywhere=False)

    def _unstartable(self, key: Key, why: str, everywhere: bool = True) -> None:
        self._inbox.put(unstartable(self._inbox.now(), key, why, everywhere))
