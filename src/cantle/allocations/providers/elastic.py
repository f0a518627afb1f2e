"""How do nodes come and go while a run goes on? A base that is there from the start, and providers that are asked for more.

What the run decides about nodes arrives here in the loop's thread and is passed to the provider of that kind, whose desk has a
thread of its own. What becomes of it stands in `requests.py`; how it is told, in `answers.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from cantle.allocations.base import Allocation
from cantle.allocations.carrying import Carrier, Errand, OneMachine, Then
from cantle.allocations.fleet.source import Invitation
from cantle.allocations.forking import LocalChannel
from cantle.allocations.overheard import OverheardInbox
from cantle.errors import CantleError, MachineError, PluginError, said_by
from cantle.model.kinds import Kind
from cantle.model.records import KindsDeclared
from cantle.model.resources import Node
from cantle.model.seams import Channel, Inbox

from .answers import Ear, Heard
from .base import Asked, HearsOfLosses, Provider
from .desk import Desk
from .gate import Gate
from .records import FOLDER, Records
from .requests import Held, Request, Requests

HUNG_S = 300.0
"""A provider that has not come back for so long when one of its nodes is lost, or given up, is asked for nothing more."""
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
        self._ear = Ear(self.notes)
        self._base = base
        self.is_spread = gate is not None
        """Whether nodes may stand on other machines."""
        self._starts = starts
        self._desks = {
            provider.kind.name: Desk(provider, self._ear.note, partial(self._given_up, provider.kind.name))
            for provider in providers
        }
        self._kinds = [
            *(provider.kind for provider in providers),
            *(replace(kind, adds=False, removes=False) for kind in others),
        ]
        self._scaling = tuple(scaling)
        self._requests = Requests({provider.kind.name for provider in providers if provider.invites}, gate)
        self._invitation: Invitation | None = None
        self._waiting: list[Request] = []
        """Requests for runners that cannot be invited yet."""
        self._why_none = ""
        """Why no runner can join by itself any more."""
        self._mark = os.urandom(4).hex()
        self._directory = ""
        self._records: Records | None = None
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
        self._requests.open(inbox)
        self._ear.open(inbox)
        inbox.put(KindsDeclared(inbox.now(), self._kinds, self._scaling))
        if self._base is not None:
            self._base.open(OverheardInbox(inbox, self._requests.base_says))

    def connect(self, node: Node) -> Channel:
        """Start a runner on this node, or give the channel to the one that has joined."""
        if node.name in self._requests.local and self._starts is not None:
            channel = self._requests.local[node.name] = self._starts.connect(node)
            return channel
        if self._base is None:
            raise MachineError(f"{node.name} has gone before it was used")
        return self._base.connect(node)

    def lost(self, node: Node) -> None:
        """The node is gone. Whether another one shall come in its place is decided elsewhere."""
        held = self._requests.held.pop(node.name, None)
        if held is not None and (desk := self._desks.get(held.request.kind)) is not None:
            desk.give_up_if_hung(HUNG_S)
        if self._requests.local.pop(node.name, self) is not self:
            return
        if self._base is not None:
            self._base.lost(node)
        elif held is None:
            raise RuntimeError(f"{node.name} was never there")
        if held is not None and held not in self._requests.held.values():
            self._left(held)

    def _left(self, held: Held) -> None:
        """Nothing of ours runs any more on what the provider calls so."""
        desk = self._desks.get(held.request.kind)
        if desk is None or not held.instance or not isinstance(provider := desk.provider, HearsOfLosses):
            return

        def tell() -> None:
            try:
                provider.lost(held.instance)
            except BaseException as problem:  # noqa: BLE001 - a provider's fault is told, and not the run's end
                self._ear.note(f"kind {held.request.kind}: {held.instance} may be left: {said_by(problem)}")

        desk.give(tell)

    def request(self, number: int, kind: str, count: int) -> None:
        """Ask for so many nodes. A number that was handed on before is not handed on again."""
        request = self._requests.new(number, kind, count)
        if request is None:
            return
        desk = self._desks.get(kind)
        if desk is None or not desk.provider.kind.adds:
            why = "nobody brings nodes of that kind" if desk is None else "its provider cannot add nodes"
            self._requests.refused(request, count, why)
        elif desk.given_up:
            self._requests.refused(request, count, desk.given_up)
        elif desk.provider.invites and self._invitation is None:
            if self._why_none:
                self._requests.refused(request, count, self._why_none)
            else:
                self._waiting.append(request)
        else:
            self._ask(desk, request)

    def withdraw(self, number: int, count: int) -> None:
        """So many of a request's nodes are not needed any more; what comes all the same is told as any other node."""
        request = self._requests.numbered(number)
        desk = self._desks.get(request.kind) if request is not None else None
        if request is None or desk is None:
            return
        if request in self._waiting:  # nobody has been asked yet
            self._requests.withdrawn(request, count)
            return

        def take_back() -> None:
            try:
                taken = int(desk.provider.withdraw(number, count))
            except BaseException as problem:  # noqa: BLE001 - a provider's fault is told, and not the run's end
                self._ear.note(f"kind {request.kind}: nodes on their way could not be taken back: {said_by(problem)}")
                taken = 0
            self._ear.say(partial(self._requests.withdrawn, request, taken))

        desk.give(take_back)

    def release(self, index: int, node: Node) -> None:
        """Give the node back. `NodeReleased` answers; if it is gone, `NodeLost` follows."""
        held = self._requests.held.get(node.name)
        desk = self._desks.get(held.request.kind) if held is not None else None
        if held is None or desk is None or not desk.provider.kind.removes:
            why = (
                "no provider brought it" if desk is None else f"the provider of kind {node.kind} cannot take nodes back"
            )
            self._requests.released(index, node, None, f"{node.name} stays: {why}")
            return

        def take_back() -> None:
            problem = ""
            try:
                desk.provider.remove(node, held.instance)
            except BaseException as fault:  # noqa: BLE001 - a provider's fault is told, and not the run's end
                problem = said_by(fault) or "its provider does not say why"
            self._ear.say(partial(self._requests.released, index, node, held, problem))

        desk.give(take_back)

    def carry(self, errand: Errand, then: Then) -> None:
        """Bring a file from node to node: on this machine, or as the base does it where others may take part."""
        if isinstance(self._base, Carrier):
            self._base.carry(replace(errand, source=self._or_here(errand.source), to=self._or_here(errand.to)), then)
        else:
            OneMachine().carry(errand, then)

    def _or_here(self, node: Node | None) -> Node | None:
        return None if node is None or node.name in self._requests.local else node

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
            for request in self._requests.of_kind(name):
                if clean and self._records is not None:
                    self._records.nothing_left(request.number)
            if not clean:
                self.notes.append(
                    f"kind {name}: something that was asked for may be left; `cantle cancel {self._directory}` tries again "
                    "to take it back"
                )
        self._ear.close()

    def turned_away(self, request: int, instance: str, why: str) -> None:
        """A runner that answers this request was refused by the fleet."""
        known = self._requests.numbered(request)
        if known is not None:
            self._requests.refused(known, 1, f"{instance}: {why}" if instance else why)

    def nobody_can_join(self, why: str) -> None:
        """The fleet has broken down."""
        self._invited(None, f"no runner can join any more: {why}")

    def _given_up(self, kind: str, why: str) -> None:  # from a desk's thread
        self._ear.say(partial(self._requests.refused_all, kind, why))

    def _invited(self, invitation: Invitation | None, why: str = "") -> None:
        """Runners can join by themselves from now on; or (None) no more."""
        self._invitation, self._why_none = invitation, why
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if invitation is not None and request.coming:
                self._ask(self._desks[request.kind], request)
            elif request.coming:
                self._requests.refused(request, request.coming, why)

    def _ask(self, desk: Desk, request: Request) -> None:
        token = f"cantle-{request.kind}-{request.number}-{self._mark}"
        provider, records = desk.provider, self._records
        answers = Heard(request.kind, self._ear, self._requests, records)
        invitation = self._invitation if provider.invites else None
        folder = str(records.folder) if records is not None else ""
        asked = Asked(request.number, request.coming, token, self._directory, folder, invitation)

        def add() -> None:
            if desk.given_up:  # meanwhile
                self._ear.say(partial(self._requests.refused, request, asked.count, desk.given_up))
                return
            try:
                if records is not None and provider.undo:
                    records.asked(request.number, token, request.kind, asked.count, provider.undo)
                provider.add(asked, answers)
            except BaseException as problem:  # noqa: BLE001 - a provider's fault is told, and not the run's end
                ours = isinstance(problem, CantleError) and not isinstance(problem, PluginError)
                broke = "" if ours else "its provider broke: "
                self._ear.say(partial(self._requests.refused, request, asked.count, broke + said_by(problem)))
            else:
                self._ear.say(partial(self._requests.tell, request))
            if records is not None:
                with suppress(MachineError):  # to take it back once more does no harm
                    records.answered(request.number)

        desk.give(add)
