"""What has become of what was asked for? Of each request, how many nodes have joined, will not come, or were taken back.

The rest is on its way. What changes is told to the run as an event. All this happens in the loop's thread, to which
`answers.py` brings what providers say.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from cantle.allocations.forking import LocalChannel
from cantle.model.records import Event, NodeLost, NodeReleased, NodesAwaited, NodesJoined, RequestAnswered
from cantle.model.resources import Node
from cantle.model.seams import Inbox

from .gate import Gate


class Request:
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


class Held(NamedTuple):
    """A node that was asked for: in answer to which request, and as what it came."""

    request: Request
    instance: str


class Requests:
    """All requests of a run, and the nodes that came of them.

    Runners of the `inviting` kinds join by themselves, through the `gate`.
    """

    def __init__(self, inviting: Container[str], gate: Gate | None) -> None:
        self.held: dict[str, Held] = {}
        """Nodes that serve now, by name."""
        self.local: dict[str, LocalChannel | None] = {}
        """Of those, the ones on this machine, with the channel to their runners."""
        self._inviting = inviting
        self._gate = gate
        self._by_number: dict[int, Request] = {}
        self._awaited = 0
        """How many nodes of the base are on their way."""
        self._inbox: Inbox | None = None

    def open(self, inbox: Inbox) -> None:
        """What changes is told there from now on."""
        self._inbox = inbox

    def new(self, number: int, kind: str, count: int) -> Request | None:
        """A request for so many nodes; None if there is one of that number."""
        if number in self._by_number:
            return None
        request = self._by_number[number] = Request(number, kind, count)
        return request

    def numbered(self, number: int) -> Request | None:
        """The request of that number, if there is one."""
        return self._by_number.get(number)

    def of_kind(self, kind: str) -> Iterator[Request]:
        """All requests for nodes of that kind, as they came."""
        return (request for request in self._by_number.values() if request.kind == kind)

    def refused(self, request: Request, n: int, why: str) -> None:
        """So many of its nodes will not come."""
        request.refused += min(n, request.coming)
        request.detail, request.expected_at = why, 0.0
        self.tell(request)

    def refused_all(self, kind: str, why: str) -> None:
        """No node of that kind that is on its way will come."""
        for request in self.of_kind(kind):
            if request.coming:
                self.refused(request, request.coming, why)

    def over(self, request: Request, instance: str, n: int, why: str) -> None:
        """The instance, which has or would have had `n` nodes, is gone."""
        channel = self.local.get(instance)
        if channel is not None:
            channel.hang_up()
        missing = n - len(request.joined.get(instance, ()))
        if missing > 0 and request.coming:
            self.refused(request, missing, why)

    def waits(self, request: Request, detail: str, expected_at: float) -> None:
        """Why its nodes are not there yet, and when they should be, in seconds since the epoch."""
        request.detail, request.expected_at = detail, expected_at
        self.tell(request)

    def withdrawn(self, request: Request, n: int) -> None:
        """So many of its nodes were on their way and are not any more."""
        request.withdrawn += max(0, min(n, request.coming))
        self.tell(request)

    def tell(self, request: Request) -> None:
        """Answer the request, unless that was said already."""
        answer = (request.coming, request.refused, request.withdrawn, request.detail, request.expected_at)
        if answer != request.told:
            request.told = answer
            coming, refused, _, detail, expected_at = answer
            self._put(RequestAnswered(self._now(), request.number, coming, refused, detail, expected_at))

    def arrived(self, request: Request, nodes: Sequence[Node]) -> None:
        """Nodes of this machine are there."""
        for node in nodes:
            self.held[node.name] = Held(request, node.name)
            self.local[node.name] = None
            request.joined[node.name] = [node.name]
        self._put(NodesJoined(self._now(), list(nodes), request.number))
        if self._awaited:  # those that joined are not among them
            self._put(NodesAwaited(self._now(), self._awaited))

    def released(self, index: int, node: Node, held: Held | None, problem: str) -> None:
        """The node was given back; or, if there was a problem, it stays."""
        self._put(NodeReleased(self._now(), index, problem))
        if not problem and held is not None and self.held.get(node.name) is held:
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
        request = self._by_number.get(event.request)
        if request is None:
            if node.kind not in self._inviting:
                return event
            fits = [each for each in self._by_number.values() if each.kind == node.kind and each.coming]
            named = [each for each in fits if node.name in each.handed or node.machine in each.handed]
            if not fits:
                return event
            request = (named or fits)[0]
        instance = self._gate.instance_of(node.name) if self._gate is not None else ""
        instance = instance or _called(node, request)
        self.held[node.name] = Held(request, instance)
        request.joined.setdefault(instance, []).append(node.name)
        return replace(event, request=request.number)

    def _put(self, event: Event) -> None:
        assert self._inbox is not None
        self._inbox.put(event)

    def _now(self) -> float:
        assert self._inbox is not None
        return self._inbox.now()


def _called(node: Node, request: Request) -> str:
    """What the node's provider calls it, as far as its names tell."""
    for name in (node.name, node.machine):
        if name in request.handed:
            return name
    return request.handed[0] if len(request.handed) == request.count == 1 else ""
