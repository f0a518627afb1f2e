"""How do nodes come and go while a run goes on? A base that is there from the start, and providers that are asked for more.

What the run decides about nodes arrives here in the loop's thread and is passed to the provider of that kind, whose desk has a
thread of its own; what providers say comes back through a list and a pipe, and is acted on in the loop's thread again. Who is
counted here: of each request how many have joined, will not come, or were taken back. The rest is on its way.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec.structs import replace

from cantle.allocations.base import Allocation
from cantle.allocations.carrying import Carrier, Errand, OneMachine, Then
from cantle.allocations.fleet.source import Invitation
from cantle.allocations.forking import LocalChannel
from cantle.allocations.overheard import OverheardInbox
from cantle.errors import CantleError, MachineError, PluginError, said_by
from cantle.model.kinds import Kind
from cantle.model.records import (
    Event,
    KindsDeclared,
    NodeLost,
    NodeReleased,
    NodesAwaited,
    NodesJoined,
    RequestAnswered,
)
from cantle.model.resources import Node
from cantle.model.seams import Channel, Inbox
from cantle.runner.bell import Bell

from . import checking
from .base import Asked, HearsOfLosses, Provider
from .desk import Desk
from .gate import Gate
from .records import FOLDER, Records

CLOSE_S = 20.0
"""So long the end of a run waits for providers to take their nodes back."""


@runtime_checkable
class Early(Protocol):
    """Can be made ready before anything large is read."""

    def prepare(self, errand: Callable[[], None] | None = None) -> None:
        """Fork a runner now, which does the errand first."""


@runtime_checkable
class Housed(Protocol):
    """Keeps something in the run's directory."""

    def house(self, directory: Path, folder: Path) -> None:
        """The run's directory, and the folder in it."""


class Starts(Early, Protocol):
    """Starts runners on this machine."""

    def connect(self, node: Node) -> LocalChannel:
        """Start a runner for this node. Raises MachineError."""

    def close(self) -> None:
        """End all of them."""


class _Request:
    """One request and what became of it. `told`: what was said about it last."""

    def __init__(self, number: int, kind: str, count: int) -> None:
        self.number = number
        self.kind = kind
        self.count = count
        self.joined: dict[str, list[str]] = {}
        """By instance, the names of the nodes that ever joined."""
        self.handed: list[str] = []
        """The instances that have come of it, whether they have joined or not."""
        self.refused = 0
        self.withdrawn = 0
        self.detail = ""
        self.expected_at = 0.0
        self.told: tuple[object, ...] = ()

    @property
    def coming(self) -> int:
        """How many are on their way."""
        return max(0, self.count - self.refused - self.withdrawn - sum(map(len, self.joined.values())))


class _Held(NamedTuple):
    """A node that was asked for: in answer to which request, and as what it came."""

    request: _Request
    instance: str


class ElasticAllocation:
    """The nodes of `base`, if there is one, and those that `providers` bring, one for each kind; nobody brings the `others`.

    `starts` starts the runners of nodes on this machine. `gate`, which is a source of the base, lets in runners that join by
    themselves; providers that invite need one. `scaling` says by what they come and go; it is only told. Call `prepare` before
    anything large is read, and `house` before `open`.
    """

    def __init__(
        self,
        base: Allocation | None,
        providers: Sequence[Provider],
        starts: Starts | None = None,
        gate: Gate | None = None,
        others: Sequence[Kind] = (),
        scaling: Sequence[str] = (),
    ) -> None:
        self.notes: list[str] = [] if base is None else base.notes
        self._base = base
        self.is_spread = gate is not None
        """Whether nodes may stand on other machines."""
        self._starts = starts
        self._gate = gate
        self._desks = {
            provider.kind.name: Desk(provider, self._note, partial(self._given_up, provider.kind.name))
            for provider in providers
        }
        self._kinds = [
            *(provider.kind for provider in providers),
            *(replace(kind, adds=False, removes=False) for kind in others),
        ]
        self._scaling = tuple(scaling)
        self._requests: dict[int, _Request] = {}
        self._held: dict[str, _Held] = {}
        """Nodes that serve now, by name."""
        self._local: dict[str, LocalChannel | None] = {}
        """Of those, the ones on this machine, with the channel to their runners."""
        self._invitation: Invitation | None = None
        self._waiting: list[_Request] = []
        """Requests for runners that cannot be invited yet."""
        self._why_none = ""
        """Why no runner can join by itself any more."""
        self._awaited = 0
        """How many nodes of the base are on their way."""
        self._mark = os.urandom(4).hex()
        self._directory = ""
        self._records: Records | None = None
        self._inbox: Inbox | None = None
        self._told: deque[Callable[[], None]] = deque()
        self._bell = Bell()
        if gate is not None:
            gate.opens = self._invited

    def prepare(self, errand: Callable[[], None] | None = None) -> None:
        """Fork a runner now, if this machine will need one; the fleet begins to listen."""
        if self._starts is not None:  # first: there are no threads yet
            self._starts.prepare(errand)
        if isinstance(self._base, Early):
            self._base.prepare(errand)

    def house(self, directory: Path, folder: Path) -> None:
        """The run's directory, and its folder for what concerns the fleet; beside that lies what is asked of providers."""
        self._directory = str(directory)
        self._records = Records(folder.with_name(FOLDER))
        if isinstance(self._base, Housed):
            self._base.house(directory, folder)

    def open(self, inbox: Inbox) -> None:
        """Begin: which kinds there can be is known from now on."""
        self._inbox = inbox
        inbox.watch(self._bell.fd, self._hear)
        inbox.put(KindsDeclared(inbox.now(), self._kinds, self._scaling))
        if self._base is not None:
            self._base.open(OverheardInbox(inbox, self.base_says))

    def connect(self, node: Node) -> Channel:
        """Start a runner on this node, or give the channel to the one that has joined."""
        if node.name in self._local and self._starts is not None:
            channel = self._local[node.name] = self._starts.connect(node)
            return channel
        if self._base is None:
            raise MachineError(f"{node.name} has gone before it was used")
        return self._base.connect(node)

    def lost(self, node: Node) -> None:
        """The node is gone. Whether another one shall come in its place is decided elsewhere."""
        held = self._held.pop(node.name, None)
        if self._local.pop(node.name, self) is not self:
            return
        if self._base is not None:
            self._base.lost(node)
        elif held is None:
            raise RuntimeError(f"{node.name} was never there")
        if held is not None and held not in self._held.values():
            self._left(held)

    def _left(self, held: _Held) -> None:
        """Nothing of ours runs any more on what the provider calls so."""
        desk = self._desks.get(held.request.kind)
        if desk is None or not held.instance or not isinstance(provider := desk.provider, HearsOfLosses):
            return

        def tell() -> None:
            try:
                provider.lost(held.instance)
            except BaseException as problem:  # noqa: BLE001 - a provider's fault is told, and not the run's end
                self._note(f"kind {held.request.kind}: {held.instance} may be left: {said_by(problem)}")

        desk.give(tell)

    def request(self, number: int, kind: str, count: int) -> None:
        """Ask for so many nodes. A number that was handed on before is not handed on again."""
        if number in self._requests:
            return
        request = self._requests[number] = _Request(number, kind, count)
        desk = self._desks.get(kind)
        if desk is None or not desk.provider.kind.adds:
            why = "nobody brings nodes of that kind" if desk is None else "its provider cannot add nodes"
            self._refused(request, count, why)
        elif desk.given_up:
            self._refused(request, count, desk.given_up)
        elif desk.provider.invites and self._invitation is None:
            if self._why_none:
                self._refused(request, count, self._why_none)
            else:
                self._waiting.append(request)
        else:
            self._ask(desk, request)

    def withdraw(self, number: int, count: int) -> None:
        """So many of a request's nodes are not needed any more; what comes all the same is told as any other node."""
        request = self._requests.get(number)
        desk = self._desks.get(request.kind) if request is not None else None
        if request is None or desk is None:
            return
        if request in self._waiting:  # nobody has been asked yet
            request.withdrawn = min(request.count, request.withdrawn + count)
            self._tell(request)
            return

        def take_back() -> None:
            try:
                taken = int(desk.provider.withdraw(number, count))
            except BaseException as problem:  # noqa: BLE001 - a provider's fault is told, and not the run's end
                self._note(f"kind {request.kind}: nodes on their way could not be taken back: {said_by(problem)}")
                taken = 0
            self._say(partial(self._withdrawn, request, taken))

        desk.give(take_back)

    def release(self, index: int, node: Node) -> None:
        """Give the node back. `NodeReleased` answers; if it is gone, `NodeLost` follows."""
        held = self._held.get(node.name)
        desk = self._desks.get(held.request.kind) if held is not None else None
        if held is None or desk is None or not desk.provider.kind.removes:
            why = (
                "no provider brought it" if desk is None else f"the provider of kind {node.kind} cannot take nodes back"
            )
            self._put(NodeReleased(self._now(), index, f"{node.name} stays: {why}"))
            return

        def take_back() -> None:
            problem = ""
            try:
                desk.provider.remove(node, held.instance)
            except BaseException as fault:  # noqa: BLE001 - a provider's fault is told, and not the run's end
                problem = said_by(fault) or "its provider does not say why"
            self._say(partial(self._released, index, node, held, problem))

        desk.give(take_back)

    def carry(self, errand: Errand, then: Then) -> None:
        """Bring a file from node to node: on this machine, or as the base does it where others may take part."""
        if isinstance(self._base, Carrier):
            self._base.carry(replace(errand, source=self._or_here(errand.source), to=self._or_here(errand.to)), then)
        else:
            OneMachine().carry(errand, then)

    def _or_here(self, node: Node | None) -> Node | None:
        return None if node is None or node.name in self._local else node

    def close(self) -> None:
        """Let runners end, then take back all that was brought."""
        if self._base is not None:
            self._base.close()
        if self._starts is not None:
            self._starts.close()
        for desk in self._desks.values():
            desk.close()
        until = monotonic() + CLOSE_S
        for name, desk in self._desks.items():
            clean = desk.closed_within(until - monotonic())
            for request in self._requests.values():
                if request.kind == name and clean and self._records is not None:
                    self._records.nothing_left(request.number)
            if not clean:
                self.notes.append(
                    f"kind {name}: something that was asked for may be left; `cantle cancel {self._directory}` tries again "
                    "to take it back"
                )
        if self._inbox is not None:
            self._inbox.unwatch(self._bell.fd)
        self._bell.close()
        while self._told:  # what was said last are notes
            self._told.popleft()()

    # What providers say, from their threads

    def _say(self, what: Callable[[], None]) -> None:
        self._told.append(what)
        self._bell.ring()

    def _note(self, text: str) -> None:
        self._say(partial(self.notes.append, text))

    def _given_up(self, kind: str, why: str) -> None:
        def refuse() -> None:
            for request in self._requests.values():
                if request.kind == kind and request.coming:
                    self._refused(request, request.coming, why)

        self._say(refuse)

    # In the loop's thread

    def _hear(self) -> None:
        self._bell.hush()
        while self._told:
            self._told.popleft()()

    def _invited(self, invitation: Invitation | None, why: str = "") -> None:
        """Runners can join by themselves from now on; or (None) no more."""
        self._invitation, self._why_none = invitation, why
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if invitation is not None and request.coming:
                self._ask(self._desks[request.kind], request)
            elif request.coming:
                self._refused(request, request.coming, why)

    def turned_away(self, request: int, instance: str, why: str) -> None:
        """A runner that answers this request was refused by the fleet."""
        known = self._requests.get(request)
        if known is not None:
            self._refused(known, 1, f"{instance}: {why}" if instance else why)

    def nobody_can_join(self, why: str) -> None:
        """The fleet has broken down."""
        self._invited(None, f"no runner can join any more: {why}")

    def _ask(self, desk: Desk, request: _Request) -> None:
        token = f"cantle-{request.kind}-{request.number}-{self._mark}"
        provider, records, answers = desk.provider, self._records, _Answers(self, request.kind, self._records)
        invitation = self._invitation if provider.invites else None
        folder = str(records.folder) if records is not None else ""
        asked = Asked(request.number, request.coming, token, self._directory, folder, invitation)

        def add() -> None:
            if desk.given_up:  # meanwhile
                self._say(partial(self._refused, request, asked.count, desk.given_up))
                return
            try:
                if records is not None and provider.undo:
                    records.asked(request.number, token, request.kind, asked.count, provider.undo)
                provider.add(asked, answers)
            except BaseException as problem:  # noqa: BLE001 - a provider's fault is told, and not the run's end
                ours = isinstance(problem, CantleError) and not isinstance(problem, PluginError)
                broke = "" if ours else "its provider broke: "
                self._say(partial(self._refused, request, asked.count, broke + said_by(problem)))
                return
            self._say(partial(self._tell, request))

        desk.give(add)

    def _refused(self, request: _Request, n: int, why: str) -> None:
        request.refused += min(n, request.coming)
        request.detail, request.expected_at = why, 0.0
        self._tell(request)

    def _over(self, request: _Request, instance: str, n: int, why: str) -> None:
        channel = self._local.get(instance)
        if channel is not None:
            channel.hang_up()
        missing = n - len(request.joined.get(instance, ()))
        if missing > 0 and request.coming:
            self._refused(request, missing, why)

    def _waits(self, request: _Request, detail: str, expected_at: float) -> None:
        request.detail, request.expected_at = detail, expected_at
        self._tell(request)

    def _withdrawn(self, request: _Request, n: int) -> None:
        request.withdrawn += max(0, min(n, request.coming))
        self._tell(request)

    def _tell(self, request: _Request) -> None:
        """Answer the request, unless that was said already."""
        answer = (request.coming, request.refused, request.withdrawn, request.detail, request.expected_at)
        if answer != request.told:
            request.told = answer
            coming, refused, _, detail, expected_at = answer
            self._put(RequestAnswered(self._now(), request.number, coming, refused, detail, expected_at))

    def _arrived(self, request: _Request, nodes: Sequence[Node]) -> None:
        """Nodes of this machine are there."""
        for node in nodes:
            self._held[node.name] = _Held(request, node.name)
            self._local[node.name] = None
            request.joined[node.name] = [node.name]
        self._put(NodesJoined(self._now(), list(nodes), request.number))
        if self._awaited:  # those that joined are not among them
            self._put(NodesAwaited(self._now(), self._awaited))

    def _released(self, index: int, node: Node, held: _Held, problem: str) -> None:
        self._put(NodeReleased(self._now(), index, problem))
        if not problem and self._held.get(node.name) is held:
            self._put(NodeLost(self._now(), index, "it was given back"))

    def base_says(self, event: Event, inbox: Inbox) -> None:
        """What the base tells of its nodes, among which are those that joined by themselves for a request."""
        if isinstance(event, NodesAwaited):
            self._awaited = event.count
        elif isinstance(event, NodesJoined):
            self._awaited = max(0, self._awaited - len(event.nodes))
            if len(event.nodes) == 1:
                event = self._attributed(event, event.nodes[0])
        inbox.put(event)

    def _attributed(self, event: NodesJoined, node: Node) -> NodesJoined:
        """The event, with the request that the node answers if it does not say so itself."""
        request = self._requests.get(event.request)
        if request is None:
            desk = self._desks.get(node.kind)
            if desk is None or not desk.provider.invites:
                return event
            fits = [each for each in self._requests.values() if each.kind == node.kind and each.coming]
            named = [each for each in fits if node.name in each.handed or node.machine in each.handed]
            if not fits:
                return event
            request = (named or fits)[0]
        instance = self._gate.instance_of(node.name) if self._gate is not None else ""
        instance = instance or _called(node, request)
        self._held[node.name] = _Held(request, instance)
        request.joined.setdefault(instance, []).append(node.name)
        return replace(event, request=request.number)

    def _put(self, event: Event) -> None:
        assert self._inbox is not None
        self._inbox.put(event)

    def _now(self) -> float:
        assert self._inbox is not None
        return self._inbox.now()


def _called(node: Node, request: _Request) -> str:
    """What the node's provider calls it, as far as its names tell."""
    for name in (node.name, node.machine):
        if name in request.handed:
            return name
    return request.handed[0] if len(request.handed) == request.count == 1 else ""


class _Answers:
    """What the provider of one kind says, brought into the loop's thread. Raises PluginError for what cannot be."""

    def __init__(self, elastic: ElasticAllocation, kind: str, records: Records | None) -> None:
        self._elastic = elastic
        self._kind = kind
        self._records = records

    def handed_out(self, request: int, instance: str) -> None:
        """Something was begun for the request."""
        self._known(request).handed.append(checking.name(instance))
        if self._records is not None:
            self._records.handed_out(request, instance)

    def waits(self, request: int, detail: str, expected_at: float = 0.0) -> None:
        """Why its nodes are not there yet."""
        self._say(self._elastic._waits, request, checking.text("detail", detail), checking.moment(expected_at))

    def refused(self, request: int, n: int, why: str) -> None:
        """So many will not come."""
        self._say(self._elastic._refused, request, checking.number("n", n), checking.text("why", why))

    def over(self, request: int, instance: str, n: int, why: str) -> None:
        """The instance is gone."""
        what = checking.text("instance", instance), checking.number("n", n), checking.text("why", why)
        self._say(self._elastic._over, request, *what)

    def arrived(self, request: int, nodes: Sequence[Node]) -> None:
        """These nodes of this machine are there."""
        self._say(self._elastic._arrived, request, checking.nodes(nodes, self._kind, self._elastic._held))

    def joined(self, request: int) -> Mapping[str, Sequence[str]]:
        """Who has joined so far."""
        return {instance: tuple(names) for instance, names in list(self._known(request).joined.items())}

    def note(self, text: str) -> None:
        """A sentence for the user."""
        self._elastic._note(checking.text("note", text))

    def _known(self, request: int) -> _Request:
        found = self._elastic._requests.get(request) if type(request) is int else None
        if found is None or found.kind != self._kind:
            raise PluginError(f"there is no request {request!r} for nodes of kind {self._kind}")
        return found

    def _say(self, what: Callable[..., None], request: int, *told: object) -> None:
        self._elastic._say(partial(what, self._known(request), *told))
