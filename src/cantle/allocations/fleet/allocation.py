"""How do several machines serve as nodes? Sources start runners there, and each that joins is a node; this machine may be one.

Sources report from any thread, and so does the server; all that they say is acted on in the loop's thread.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from cantle.allocations.carrying import Carried, Errand, Then
from cantle.allocations.fleet import letter as letters
from cantle.allocations.fleet.addresses import chosen, interfaces_here
from cantle.allocations.fleet.hauling import Shelf
from cantle.allocations.fleet.joining import Hello, Verdict, arrived, judge, unique, welcome
from cantle.allocations.fleet.lane import Lane
from cantle.allocations.fleet.letter import Letter
from cantle.allocations.fleet.server import (
    Broken,
    FleetServer,
    Hauled,
    Joined,
    Listening,
    News,
    Refused,
)
from cantle.allocations.fleet.source import Invitation, Source
from cantle.allocations.fleet.speech import version
from cantle.allocations.forking import allow_many_files
from cantle.allocations.overheard import OverheardInbox
from cantle.errors import MachineError
from cantle.model.records import Event, NodesAwaited, NodesJoined, StopAsked
from cantle.model.resources import Node
from cantle.model.seams import Channel, Inbox
from cantle.runner import clock
from cantle.runner.bell import Bell

SILENCE_S = 20.0
_TOLD_REFUSALS = 20
"""So many refused connections are told one by one: somebody may try all night."""


class Here(Protocol):
    """What of the machine under us takes part: an allocation that can be made ready early."""

    notes: list[str]

    def prepare(self, errand: Callable[[], None] | None = None) -> None:
        """Fork a runner now."""

    def open(self, inbox: Inbox) -> None:
        """Begin."""

    def connect(self, node: Node) -> Channel:
        """Start a runner for this node."""

    def lost(self, node: Node) -> None:
        """The node's runner is gone."""

    def close(self) -> None:
        """Give everything back."""


class Hears(Protocol):
    """Who asked for nodes, and has to know when their runners cannot come. Told in the loop's thread."""

    def turned_away(self, request: int, instance: str, why: str) -> None:
        """A runner that answers this request was refused."""

    def nobody_can_join(self, why: str) -> None:
        """The fleet has broken down."""


class _Said(NamedTuple):
    """What a source has said: `more` runners are on their way (negative: will not come), and why."""

    source: int
    more: int
    text: str = ""


class FleetAllocation:
    """Nodes on other machines, and on this one when `here` is given.

    `sources` start the runners. `open_ended`: others may come at any time, so that no task is called impossible, and the run
    waits for them. `grows`: more may be asked for, so that the run goes on when nobody has come. `interface` names the
    interface or the address to listen on. `silence_s` bounds how long a runner is taken for alive without a word.
    Call `prepare` before anything large is read, and `house` before `open`.
    """

    is_spread = True
    """Nodes may stand on other machines."""

    def __init__(
        self,
        sources: Sequence[Source],
        here: Here | None = None,
        *,
        open_ended: bool = False,
        grows: bool = False,
        interface: str = "",
        silence_s: float = SILENCE_S,
    ) -> None:
        self.notes: list[str] = []
        self._sources = sources
        self._here = here
        self._here_names: set[str] = set()
        self.hears: Hears | None = None
        self._open_ended = open_ended
        self._grows = grows
        self._silence_s = silence_s
        host, advertised = chosen(interface, interfaces_here())
        self._run = f"{os.uname().nodename}-{os.getpid()}-{os.urandom(6).hex()}"
        self._shelf = Shelf()
        self._server = FleetServer(
            self._run,
            self._put,
            self._judge,
            host=host,
            advertised=advertised,
            silence_s=silence_s,
            shelf=self._shelf,
        )
        self._begun = False
        self._folder: Path | None = None
        self._directory = ""
        self._probe: tuple[str, str] = ("", "")
        self._inbox: Inbox | None = None
        self._told: deque[News | _Said] = deque()
        self._bell = Bell()
        self._awaited: dict[int, int] = {}
        """By source, how many of its runners are on their way; -1: this machine's own nodes."""
        self._awaited_told = 0
        """How many the run takes for being on their way: what was told it last, less those that have joined since."""
        self._channels: dict[str, tuple[Hello, Lane]] = {}
        """By node, those that serve now."""
        self._arrived: list[tuple[Node, str]] = []
        """Expected nodes that the user was not told of yet, and by which address they came."""
        self._why_none = ""
        """Why the first of those that were expected did not come."""
        self._ever = False
        """Whether one has joined."""
        self._refusals = 0
        self._servers: dict[str, str] = {}
        """By node, the address of the server that has its files."""
        self._errands: dict[int, tuple[Errand, Then]] = {}
        self._errand = 0

    def prepare(self, errand: Callable[[], None] | None = None) -> None:
        """Fork this machine's runner, if it has one, and begin to listen. The errand is for such a child, or for nobody."""
        if self._here is not None:
            self._here.prepare(errand)
        self._begin()

    def house(self, directory: Path, folder: Path) -> None:
        """The run's directory, and the folder in it for what concerns the fleet."""
        self._directory = str(directory)
        self._shelf.run = str(directory)
        self._shelf.home = os.path.relpath(folder.with_name("nodes"), directory)
        self._folder = folder

    def open(self, inbox: Inbox) -> None:
        """Begin: this machine's nodes are there at once; the others come when they come."""
        self._inbox = inbox
        inbox.watch(self._bell.fd, self._hear)
        self._begin()
        self._awaited = dict.fromkeys(range(len(self._sources)), 1)  # until they have said how many
        self._tell_awaited()
        if self._here is not None:
            self._here.open(OverheardInbox(inbox, self.here_says))
            self.notes += self._here.notes

    def connect(self, node: Node) -> Channel:
        """The channel to the node's runner. Raises MachineError when it has gone meanwhile."""
        if node.name in self._here_names and self._here is not None:
            return self._here.connect(node)
        if node.name not in self._channels:
            raise MachineError(f"{node.name} has gone before it was used")
        return self._channels[node.name][1]

    def lost(self, node: Node) -> None:
        """Whoever started the runner may start another one."""
        if node.name in self._here_names and self._here is not None:
            self._here.lost(node)
            return
        self._tell_arrived(at_once=any(one.name == node.name for one, _ in self._arrived))
        self._servers.pop(node.name, None)
        for number, (errand, _) in list(self._errands.items()):
            if errand.source is not None and errand.source.name == node.name:
                self._answer(number, Carried(problem=f"{node.name} has gone", gone=True))
        hello, channel = self._channels.pop(node.name, (None, None))
        if channel is not None:
            channel.close()
        if hello is not None and hello.expected and 0 <= hello.source < len(self._sources):
            self._sources[hello.source].lost(hello.node.name)
            self._hear()

    def instance_of(self, name: str) -> str:
        """What the provider of the node of that name calls it, "" when it has said nothing."""
        known = self._channels.get(name)
        return known[0].instance if known is not None else ""

    def carry(self, errand: Errand, then: Then) -> None:
        """Bring a file from one node's machine to another's."""
        source, to = self._server_of(errand.source), self._server_of(errand.to)
        if source is None or to is None:
            missing = errand.source if source is None else errand.to
            assert missing is not None
            then(Carried(problem=f"{missing.name} has gone", gone=source is None))
            return
        if source == to or (errand.source is not None and errand.to is not None and _share(errand.source, errand.to)):
            then(Carried(errand.path))
            return
        self._errand += 1
        self._errands[self._errand] = errand, then
        self._server.haul(self._errand, source, to, errand.path, errand.name, errand.at)

    def _answer(self, number: int, carried: Carried) -> None:
        _, then = self._errands.pop(number, (None, None))
        if then is not None:
            then(carried)

    def _server_of(self, node: Node | None) -> str | None:
        """The address of the server that has the node's files, "" for the conductor's own; None when it has gone."""
        if node is None or node.name in self._here_names:
            return ""
        return self._servers.get(node.name)

    def close(self) -> None:
        """Let all runners end, and end what sources have started."""
        self._server.close()
        self._shelf.close()
        for source in self._sources:
            source.close()
        if self._here is not None:
            self._here.close()
        if self._inbox is not None:
            self._inbox.unwatch(self._bell.fd)
        self._bell.close()  # a thread that did not end in time may still have something to say
        if self._folder is not None:
            for name in (letters.FILE, _PROBE):
                (self._folder / name).unlink(missing_ok=True)

    # What others say, from their threads

    def _put(self, said: News | _Said) -> None:
        self._told.append(said)
        self._bell.ring()

    def _judge(self, hello: Hello) -> Verdict:
        """In the server's thread; reads only what does not change any more once runners can come."""
        python = sys.version.split()[0]
        return judge(hello, self._run, version(), python, self._probe[0], self._probe[1], clock.now())

    # In the loop's thread

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            allow_many_files()  # each runner costs several, and so does each session that started one
            self._server.start()

    def _hear(self) -> None:
        self._bell.hush()
        while self._told:
            said = self._told.popleft()
            if isinstance(said, _Said):
                self._heed(said)
            elif isinstance(said, Listening):
                self._invite(said)
            elif isinstance(said, Joined):
                self._join(said)
            elif isinstance(said, Hauled):
                self._answer(said.number, said.carried)
            elif isinstance(said, Refused):
                self._refuse(said)
            elif isinstance(said, Broken):
                self.notes.append(f"no runner can join any more: {said.why}")
                self._awaited.clear()
                self._open_ended = False
                if self.hears is not None:
                    self.hears.nobody_can_join(said.why)
        self._tell_awaited()

    def _invite(self, listening: Listening) -> None:
        if self._folder is None:
            raise RuntimeError("house() was not called")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = self._folder / _PROBE
        self._probe = (str(probe), os.urandom(12).hex())
        probe.write_text(self._probe[1])
        letter = Letter(
            run=self._run,
            addresses=listening.addresses,
            identity=listening.identity,
            directory=self._directory,
            probe=self._probe[0],
            probe_text=self._probe[1],
            silence_s=self._silence_s,
            cantle=version(),
            python=sys.version.split()[0],
        )
        path = self._folder / letters.FILE
        letters.write(path, letter)
        if self._open_ended:
            self.notes.append(f"runners may join: cantle runner --connect {path}")
        content = letters.encode(letter)
        for number, source in enumerate(self._sources):
            self._awaited[number] = 0
            source.start(Invitation(str(path), content, sys.executable, number), _Report(self, number))
        # What they have said so far counts before anybody hears that none is awaited.
        while self._told and isinstance(first := self._told[0], _Said):
            self._told.popleft()
            self._heed(first)

    def _heed(self, said: _Said) -> None:
        """What a source has reported."""
        self._awaited[said.source] = max(0, self._awaited.get(said.source, 0) + said.more)
        self._tell_arrived(at_once=bool(said.text) and not said.more)  # they have come, whoever is waited for longer
        if said.text:
            self.notes.append(said.text)
        if said.more < 0:
            self._why_none = self._why_none or said.text

    def _join(self, joined: Joined) -> None:
        assert self._inbox is not None
        hello = joined.hello
        taken = self._here_names | self._channels.keys()
        node = replace(hello.node, name=unique(hello.node.name, taken))
        self._channels[node.name] = (hello, joined.channel)
        self._servers[node.name] = joined.server
        self.notes += joined.notes
        address = hello.address.removeprefix("tls://")
        if hello.expected:
            self._arrived.append((node, address))
        else:
            self.notes.append(f"a runner has joined, {welcome(node)}, by {address}")
        self._ever = True
        self._inbox.put(NodesJoined(self._inbox.now(), [node], hello.request))
        self._awaited_told = max(0, self._awaited_told - 1)
        if hello.expected:
            self._awaited[hello.source] = max(0, self._awaited.get(hello.source, 0) - 1)
        self._tell_arrived()

    def _tell_arrived(self, at_once: bool = False) -> None:
        """Those that were expected are told of together, when no more are on their way."""
        on_their_way = any(self._awaited.get(number, 0) for number in range(len(self._sources)))
        if not self._arrived or (on_their_way and not at_once):
            return
        self.notes.append(arrived(self._arrived))
        self._arrived = []

    def _refuse(self, refused: Refused) -> None:
        self._refusals += 1
        if self._refusals <= _TOLD_REFUSALS:
            self.notes.append(refused.why)
        if self._refusals == _TOLD_REFUSALS:
            self.notes.append("further refusals are not told")
        hello = refused.hello
        if hello is not None and hello.expected and hello.run == self._run:
            self._why_none = self._why_none or refused.why
            self._awaited[hello.source] = max(0, self._awaited.get(hello.source, 0) - 1)
            if hello.request >= 0 and self.hears is not None:
                self.hears.turned_away(hello.request, hello.instance, refused.why)

    def _tell_awaited(self) -> None:
        if self._inbox is None:
            return
        awaited = sum(self._awaited.values()) + self._open_ended
        if awaited != self._awaited_told:
            if not (awaited or self._ever or self._grows) and self._here is None:
                # No task is to blame: the run is stopped as it is, and can be resumed where machines can be had.
                self._inbox.put(
                    StopAsked(self._inbox.now(), f"no machine could be had: {self._why_none or 'none was named'}")
                )
            self._awaited_told = awaited
            self._inbox.put(NodesAwaited(self._inbox.now(), awaited))

    def here_says(self, event: Event, inbox: Inbox) -> None:
        """This machine's own nodes are counted with the others."""
        if isinstance(event, NodesAwaited):
            self._awaited[-1] = event.count
            self._tell_awaited()
            return
        if isinstance(event, NodesJoined):
            self._here_names.update(node.name for node in event.nodes)
            self._awaited_told = max(0, self._awaited_told - len(event.nodes))
        inbox.put(event)


def _share(one: Node, other: Node) -> bool:
    """Whether they see each other's files."""
    return one.machine == other.machine and not (one.apart or other.apart)


_PROBE = "probe"


class _Report:
    """What one source says, brought into the loop's thread."""

    def __init__(self, fleet: FleetAllocation, source: int) -> None:
        self._fleet = fleet
        self._source = source

    def expect(self, n: int) -> None:
        """So many more are on their way."""
        self._fleet._put(_Said(self._source, n))

    def failed(self, n: int, why: str) -> None:
        """So many will not come."""
        self._fleet._put(_Said(self._source, -n, why))

    def outstanding(self) -> int:
        """How many are on their way."""
        return self._fleet._awaited.get(self._source, 0)

    def note(self, text: str) -> None:
        """A sentence for the user."""
        self._fleet._put(_Said(self._source, 0, text))
