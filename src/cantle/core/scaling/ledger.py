"""Which kinds of node can be had, what was asked for, what is coming, and which nodes are on their way out?

`State.scaling` is such a ledger, there with the first record about any of it. It only notes what the records say. What is
to be done stands in the policies; what they are held to, in the bounds.

Nodes go by their numbers; a node is of a kind when it bears its name, or joined in answer to a request for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from cantle.model import records as r
from cantle.model.kinds import Kind
from cantle.model.resources import indexes

if TYPE_CHECKING:
    from cantle.core.state import State

GIVEN_BACK_S = 600.0
"""A node that is still there so long after it was given back is given up: clouds take minutes, and no provider for ever."""
MOST_REFUSALS = 5
"""A kind of which so many requests in a row brought no node at all counts as one that cannot be had, until one comes."""
RECENT = 5
"""How long nodes of a kind take to come is a mean in which so many of the last ones weigh most."""


class Request(msgspec.Struct):
    """One request for nodes and what became of it. `coming` of them are on their way; `withdrawn` are not wanted any more."""

    number: int
    kind: str
    count: int
    asked_at: float
    why: str
    expected_at: float
    coming: int
    joined: int = 0
    refused: int = 0
    withdrawn: int = 0
    detail: str = ""
    """What the provider said last."""
    answered: bool = False


class Ledger:
    """Kinds, requests, wishes, and nodes on their way in and out."""

    def __init__(self) -> None:
        self.kinds: dict[str, Kind] = {}
        """Those that can be had now, as they were declared."""
        self.words: tuple[str, ...] = ()
        """By which policies and bounds they come and go, as it was said."""
        self.requests: list[Request] = []
        """All that were ever made, by number."""
        self.before = 0
        """So many of them were made by earlier conductors."""
        self.open: dict[int, Request] = {}
        """Those of which nodes are on their way."""
        self.up: dict[str, int] = {}
        """The nodes that are there, as bits, by kind; those that leave included."""
        self.kind_of: dict[int, str] = {}
        """Of the nodes that are there: which kind they are of. Others are of no kind that can be had."""
        self.brought = 0
        """The nodes that are or were of a kind, as bits; also those that are gone."""
        self.request_of: dict[int, int] = {}
        """Which request brought the node; also of nodes that are gone."""
        self.wishes: dict[str, r.NodesWished] = {}
        """What is wished for by kind, the last wish for each."""
        self.wished: dict[str, tuple[float, str]] = {}
        """By kind, when somebody wished last, or wished no more, and who."""
        self.problems: dict[str, str] = {}
        """Whose wishing went wrong the last time, and how."""
        self.worked_at: dict[int, float] = {}
        """When the last attempt on a node ended; of nodes that had any since this was kept."""
        self.noticed: dict[int, float] = {}
        """When it was told of a node that it is unused."""
        self.retiring: dict[int, float] = {}
        """Nodes that are emptied in order to be given back: since when."""
        self.sent_away: dict[int, None] = {}
        """Nodes that somebody wants to be given back as soon as they are empty, whatever policies say."""
        self.released: dict[int, float] = {}
        """Nodes that were given back and are still there: since when. All of them are drained."""
        self.released_nodes = 0
        """The same nodes, as bits."""
        self.overdue: dict[int, float] = {}
        """Of these: when they are given up, as nobody has taken them away."""
        self.drained_before: dict[int, str] = {}
        """Of these: why nothing was to begin on them in any case."""
        self.unreleasable: dict[int, str] = {}
        """Nodes that were given back in vain, and why."""
        self.refusals: dict[str, int] = {}
        """How many requests in a row, by kind, ended without bringing a node."""
        self.refused_at: dict[str, float] = {}
        self.asked_at: dict[str, float] = {}
        """When nodes of the kind were last asked for."""
        self.reduced_at: dict[str, float] = {}
        """When the last one of the kind was given back, or was not wanted any more before it came."""
        self.last: r.RequestNodes | r.WithdrawRequest | r.ReleaseNode | None = None
        """What was decided last about how many nodes there are to be."""
        self._took_s: dict[str, tuple[int, float]] = {}

    # Questions

    def coming(self, kind: str | None = None) -> int:
        """How many nodes of the kind, or of any, are on their way."""
        return sum(request.coming for request in self.open.values() if kind is None or request.kind == kind)

    def leaving(self) -> int:
        """The nodes, as bits, that are emptied in order to go, or were given back."""
        found = self.released_nodes
        for index in (*self.retiring, *self.sent_away):
            found |= 1 << index
        return found

    def there(self, kind: str) -> int:
        """How many nodes of the kind are there, without those that leave."""
        return (self.up.get(kind, 0) & ~self.leaving()).bit_count()

    def usable(self, state: State, kind: str) -> int:
        """The nodes of the kind, as bits, that are there and neither leave nor are drained."""
        return self.up.get(kind, 0) & ~state.drained_nodes

    def can_add(self, kind: Kind) -> bool:
        """Whether more nodes of the kind can be had at all: not now, perhaps, since there are as many as there may be."""
        return kind.adds and self.refusals.get(kind.name, 0) < MOST_REFUSALS

    def headroom(self, kind: Kind) -> int:
        """How many more nodes of the kind may be asked for."""
        if not self.can_add(kind):
            return 0
        return room_for_more(kind, self.up.get(kind.name, 0).bit_count() + self.coming(kind.name))

    def starts_in_s(self, kind: str) -> float:
        """How long a node of the kind takes from being asked for until it can work: as was observed, else as declared."""
        known = self._took_s.get(kind)
        if known is not None:
            return known[1]
        declared = self.kinds.get(kind)
        return declared.starts_in_s if declared is not None else 0.0

    def idle_since(self, state: State, index: int) -> float:
        """Since when the node, on which nothing runs, has had no work: since it joined, if it never had any."""
        return max(self.worked_at.get(index, 0.0), state.joined_at.get(index, 0.0))

    def is_noticed(self, state: State, index: int) -> bool:
        """Whether it was told already that the node, on which nothing runs, is unused."""
        at = self.noticed.get(index)
        return at is not None and at >= self.idle_since(state, index)

    # What changes it besides the rules below

    def joined(self, state: State, first: int, request: int) -> None:
        """Nodes are there, the last of the state's, numbered from `first`."""
        asked = self.requests[request] if 0 <= request < len(self.requests) else None
        indices = range(first, len(state.room.nodes))
        for index in indices:
            if asked is not None:
                self.request_of[index] = request
            self._enlist(index, state.room.nodes[index].kind, asked)
        if asked is not None:
            asked.joined += len(indices)
            asked.coming = max(0, asked.coming - len(indices))
            self._close_if_over(asked)
            self.refusals.pop(asked.kind, None)
            done, mean = self._took_s.get(asked.kind, (0, 0.0))
            done += 1
            self._took_s[asked.kind] = (done, mean + (state.now - asked.asked_at - mean) / min(done, RECENT))

    def lost(self, index: int) -> None:
        """A node is gone."""
        kind = self.kind_of.pop(index, None)
        if kind is not None:
            self.up[kind] &= ~(1 << index)
        for known in (
            self.worked_at,
            self.noticed,
            self.released,
            self.overdue,
            self.drained_before,
            self.unreleasable,
        ):
            known.pop(index, None)
        self.released_nodes &= ~(1 << index)
        self.stays(index)

    def gone(self) -> None:
        """Another conductor goes on, with nodes and kinds of its own. Requests keep their numbers, and bring nothing more."""
        self.before = len(self.requests)
        for request in self.open.values():
            request.coming = 0
        for index in {**self.kind_of, **self.released, **self.retiring, **self.sent_away, **self.unreleasable}:
            self.lost(index)  # other kinds may have been declared since it was given back
        for known in (
            self.open,
            self.kinds,
            self.wishes,
            self.wished,
            self.problems,
            self.refusals,
            self.refused_at,
            self.asked_at,
            self.reduced_at,
        ):
            known.clear()

    def send_away(self, index: int) -> None:
        """Somebody wants the node to be given back."""
        if index in self.kind_of:
            self.sent_away[index] = None
            self.retiring.pop(index, None)

    def stays(self, index: int) -> None:
        """The node is used again."""
        self.retiring.pop(index, None)
        self.sent_away.pop(index, None)

    def _enlist(self, index: int, name: str, asked: Request | None) -> None:
        kind = asked.kind if asked is not None and name not in self.kinds else name
        if kind in self.kinds:
            self.kind_of[index] = kind
            self.brought |= 1 << index
            self.up[kind] = self.up.get(kind, 0) | 1 << index

    def _close_if_over(self, request: Request) -> None:
        if request.coming <= 0:
            self.open.pop(request.number, None)


def room_for_more(kind: Kind, there: int) -> int:
    """How many more nodes of the kind there may be beside so many, in whole blocks."""
    block = max(1, kind.block)
    return max(0, kind.bound - there) // block * block


# What each record means. Called by `State.apply`.


def ledger_of(state: State) -> Ledger:
    """The state's ledger, made now if there was none."""
    if state.scaling is None:
        state.scaling = Ledger()
    return state.scaling


def _kinds_declared(state: State, record: r.KindsDeclared) -> None:
    ledger = ledger_of(state)
    ledger.kinds = {kind.name: kind for kind in record.kinds}
    ledger.words = record.scaling
    ledger.refusals.clear()
    ledger.up.clear()
    ledger.kind_of.clear()
    for index in indexes(state.room.alive):
        request = ledger.request_of.get(index)
        ledger._enlist(index, state.room.nodes[index].kind, None if request is None else ledger.requests[request])
    state.feasibility_version += 1
    state.version += 1


def _request_nodes(state: State, record: r.RequestNodes) -> None:
    ledger = ledger_of(state)
    number = len(ledger.requests)
    expected_at = record.time + ledger.starts_in_s(record.kind)
    request = Request(number, record.kind, record.count, record.time, record.why, expected_at, record.count)
    ledger.requests.append(request)
    ledger.open[number] = request
    ledger.last = record
    ledger.asked_at[record.kind] = record.time
    state.version += 1


def _request_answered(state: State, record: r.RequestAnswered) -> None:
    ledger = ledger_of(state)
    if not 0 <= record.request < len(ledger.requests):
        return  # a journal with a gap
    request = ledger.requests[record.request]
    fewer = record.refused > request.refused
    request.answered = True
    request.refused = record.refused
    request.detail = record.detail
    left = request.count - request.joined - request.withdrawn - request.refused
    request.coming = max(0, min(record.coming, left))
    if record.expected_at:
        request.expected_at = record.expected_at
    if request.coming:
        ledger.open[request.number] = request
    else:
        ledger.open.pop(request.number, None)
    if fewer:
        ledger.refused_at[request.kind] = record.time
        if not request.coming and not request.joined:
            ledger.refusals[request.kind] = ledger.refusals.get(request.kind, 0) + 1
    state.feasibility_version += 1
    state.version += 1


def _withdraw_request(state: State, record: r.WithdrawRequest) -> None:
    ledger = ledger_of(state)
    request = ledger.requests[record.request]
    fewer = min(record.count, request.coming)
    ledger.last = record
    request.withdrawn += fewer
    request.coming -= fewer
    ledger._close_if_over(request)
    ledger.reduced_at[request.kind] = record.time
    state.version += 1


def _nodes_wished(state: State, record: r.NodesWished) -> None:
    ledger = ledger_of(state)
    if record.problem:
        ledger.problems[record.by] = record.problem
    else:
        ledger.problems.pop(record.by, None)
        ledger.wished[record.kind] = (record.time, record.by)
        if record.count is None:
            ledger.wishes.pop(record.kind, None)
        else:
            ledger.wishes[record.kind] = record
    state.version += 1


def _release_node(state: State, record: r.ReleaseNode) -> None:
    from cantle.core.nodes import drain

    ledger = ledger_of(state)
    if not state.room.alive >> record.node & 1:
        return
    why = state.drained.get(record.node)
    if why is not None and record.node not in ledger.retiring and record.node not in ledger.sent_away:
        ledger.drained_before[record.node] = why
    ledger.stays(record.node)
    ledger.released[record.node] = record.time
    ledger.released_nodes |= 1 << record.node
    ledger.overdue[record.node] = record.time + GIVEN_BACK_S
    ledger.last = record
    if record.node in ledger.kind_of:
        ledger.reduced_at[ledger.kind_of[record.node]] = record.time
    if state.keeping is not None:
        state.keeping.leaves(record.node)
    drain(state, record.node, f"it is given back: {record.why}")


def _node_released(state: State, record: r.NodeReleased) -> None:
    ledger = ledger_of(state)
    if not record.problem or record.node not in ledger.released:
        return  # that it is gone is told by `NodeLost`
    from cantle.core.nodes import use_again

    del ledger.released[record.node]
    ledger.overdue.pop(record.node, None)
    ledger.released_nodes ^= 1 << record.node
    ledger.unreleasable[record.node] = record.problem
    before = ledger.drained_before.pop(record.node, None)
    ends = state.lifetimes is not None and bool(state.lifetimes.over >> record.node & 1)
    if state.keeping is not None and not ends:
        state.keeping.stays(record.node)
    asked = state.drained_names.get(state.room.nodes[record.node].name)
    if ends or asked or before:
        state.drained[record.node] = asked or before or state.drained[record.node]
        state.version += 1
    else:
        use_again(state, record.node)


def _notice_idle(state: State, record: r.NoticeIdle) -> None:
    ledger_of(state).noticed[record.node] = record.time


RULES: dict[type, Callable[[State, Any], None]] = {
    r.KindsDeclared: _kinds_declared,
    r.RequestNodes: _request_nodes,
    r.RequestAnswered: _request_answered,
    r.WithdrawRequest: _withdraw_request,
    r.NodesWished: _nodes_wished,
    r.ReleaseNode: _release_node,
    r.NodeReleased: _node_released,
    r.NoticeIdle: _notice_idle,
}
