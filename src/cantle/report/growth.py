"""What was decided about nodes that come and go, why, and what came of it?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from cantle.core.scaling.settings import called
from cantle.core.state import State
from cantle.model import records as r
from cantle.model.resources import count
from cantle.report.wording import duration, printable, time_of_day

if TYPE_CHECKING:
    from cantle.core.scaling.ledger import Ledger, Request

MOST_TOLD = 3


def in_words(state: State, decision: r.AnyRecord) -> str:
    """A decision about nodes without its reason; "" for any other record."""
    if type(decision) is r.RequestNodes:
        return f"{count(decision.count, 'node')} of kind {decision.kind} asked for"
    ledger = state.scaling
    if type(decision) is r.WithdrawRequest and ledger is not None and 0 <= decision.request < len(ledger.requests):
        kind = ledger.requests[decision.request].kind
        return f"{count(decision.count, 'node')} of kind {kind} on the way not wanted any more"
    if type(decision) is r.ReleaseNode and decision.node in state.room.nodes:
        return f"{printable(state.room.nodes[decision.node].name)} given back"
    return ""


def growth_lines(state: State, now: float, ended: bool = False) -> Iterator[str]:
    """How many nodes of each kind there are, what was decided last, and what providers say; nothing without kinds.

    `ended`: nobody is at work on the run any more, so that this is how it stood, and what was on its way may be gone.
    """
    ledger = state.scaling
    if ledger is None or not (ledger.kinds or ledger.requests):
        return
    for kind in ledger.kinds:
        yield f"nodes of kind {kind}{' then' if ended else ''}: {_numbers(ledger, kind)}"
    if ledger.last is not None and (what := in_words(state, ledger.last)):
        at = ledger.last.time
        when = f"at {time_of_day(at)}" if ended else f"{duration(max(0.0, now - at))} ago"
        yield f"last decision, {when}: {what}: {printable(ledger.last.why)}"
    if ended:
        return
    for request in list(ledger.open.values())[:MOST_TOLD]:
        yield f"request {request.number}: {on_its_way(request, now)}"
    if len(ledger.open) > MOST_TOLD:
        yield f"and {count(len(ledger.open) - MOST_TOLD, 'request')} more"
    refused = {request.kind: request for request in ledger.requests if request.refused}
    for kind, request in refused.items():
        if request is next((each for each in reversed(ledger.requests) if each.kind == kind), None):
            n, all_ = request.refused, request.count
            yield f"request {request.number}: {n:,} of {all_:,} of kind {kind} refused: {_refusal(ledger, request, now)}"
    for by, problem in ledger.problems.items():
        yield _failing(by, problem)


def _refusal(ledger: Ledger, request: Request, now: float) -> str:
    """Why, and what comes then."""
    from cantle.core.scaling.refusals import then

    what = then(ledger, request.kind, now)
    return (printable(request.detail) or "nobody said why") + (f"; {what}" if what else "")


def _failing(by: str, problem: str) -> str:
    return f"{printable(called(by))} could not say how many nodes it wants: {printable(problem)}"


def _numbers(ledger: Ledger, kind: str) -> str:
    leaving = (ledger.up.get(kind, 0) & ledger.leaving()).bit_count()
    most = ledger.kinds[kind].most
    text = f"{ledger.there(kind):,} there, {ledger.coming(kind):,} on the way"
    text += f", {leaving:,} leaving" if leaving else ""
    text += f", {most:,} at most" if most else ""
    wish = ledger.wishes.get(kind)
    if wish is not None and wish.count is not None:
        text += f"; {printable(called(wish.by)) or 'somebody'} wants {wish.count:,}"
    return text


def on_its_way(request: Request, now: float) -> str:
    """What is known of nodes that were asked for."""
    from cantle.core.scaling.awaited import what_was_said, when_expected

    which = "node" if request.coming == 1 else "nodes"
    text = (
        f"{request.coming:,} {which} of kind {request.kind} on the way for {duration(max(0.0, now - request.asked_at))}"
    )
    text += when_expected(request, now, duration)
    said = what_was_said(request, now)
    return f"{text}: {printable(said)}" if said else text


def growth_object(state: State) -> dict[str, object] | None:
    """The same for programs; None without kinds. Times are seconds since the epoch."""
    ledger = state.scaling
    if ledger is None or not (ledger.kinds or ledger.requests):
        return None
    last = ledger.last
    return {
        "kinds": [
            {
                "kind": kind,
                "there": ledger.there(kind),
                "coming": ledger.coming(kind),
                "leaving": (ledger.up.get(kind, 0) & ledger.leaving()).bit_count(),
                "most": declared.most or None,
            }
            for kind, declared in ledger.kinds.items()
        ],
        "last": None if last is None else {"at": last.time, "what": in_words(state, last), "why": last.why},
        "requests": [
            {
                "request": each.number,
                "kind": each.kind,
                "count": each.count,
                "coming": each.coming,
                "joined": each.joined,
                "refused": each.refused,
                "withdrawn": each.withdrawn,
                "asked_at": each.asked_at,
                "expected_at": each.expected_at,
                "why": each.why,
                "detail": each.detail,
            }
            for each in ledger.requests
        ],
        "problems": dict(ledger.problems),
    }


class Moment(msgspec.Struct):
    """Something that happened to nodes. `at`: seconds since the epoch."""

    at: float
    what: str
    why: str


class Growth:
    """What happened to nodes in a run, gathered record by record."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        """Decisions, and what providers said of them."""
        self.there: dict[str, list[tuple[float, int]]] = {}
        """How many nodes of each kind there were, from when on."""
        self.wanted: dict[str, list[tuple[float, int]]] = {}
        """How many of each kind were there or on the way, from when on."""

    def note(self, state: State, record: r.AnyRecord) -> None:
        """Take in a record that the state has just applied."""
        ledger = state.scaling
        if ledger is None or type(record) not in _ABOUT_NODES:
            return
        if isinstance(record, r.RequestNodes | r.WithdrawRequest | r.ReleaseNode):
            if what := in_words(state, record):
                self.moments.append(Moment(record.time, what, record.why))
        elif type(record) is r.RequestAnswered and record.refused and record.request < len(ledger.requests):
            kind = ledger.requests[record.request].kind
            self.moments.append(
                Moment(record.time, f"{count(record.refused, 'node')} of kind {kind} refused", record.detail)
            )
        elif type(record) is r.NodeReleased and record.problem:
            name = state.room.nodes[record.node].name
            self.moments.append(Moment(record.time, f"{name} could not be given back", record.problem))
        for kind in ledger.kinds:
            up = ledger.up.get(kind, 0).bit_count()
            _add(self.there.setdefault(kind, []), record.time, up)
            _add(self.wanted.setdefault(kind, []), record.time, up + ledger.coming(kind))


_ABOUT_NODES = {
    r.KindsDeclared,
    r.RequestNodes,
    r.RequestAnswered,
    r.WithdrawRequest,
    r.NodesJoined,
    r.NodeLost,
    r.ReleaseNode,
    r.NodeReleased,
}


def _add(curve: list[tuple[float, int]], at: float, level: int) -> None:
    if not curve or curve[-1][1] != level:
        curve.append((at, level))


class GrowthNews:
    """What is new about nodes since it was last asked for, in few lines."""

    def __init__(self, state: State) -> None:
        ledger = state.scaling
        self._asked = self._before = ledger.before if ledger is not None else 0
        self._joined: dict[int, int] = {}
        self._refused: dict[int, int] = {}
        self._released: set[int] = set()
        self._problems: dict[str, str] = {}

    def troubles(self, state: State) -> list[tuple[str, str]]:
        """Of these only what goes wrong: which kind was refused, or which function fails, and a line about it."""
        ledger = state.scaling
        if ledger is None:
            return []
        found = []
        for each in ledger.requests[self._before :]:
            if (refused := each.refused - self._refused.get(each.number, 0)) > 0:
                self._refused[each.number] = each.refused
                what = f"{count(refused, 'node')} of kind {each.kind} refused"
                found.append((each.kind, f"{what}: {_refusal(ledger, each, state.now)}"))
        if ledger.problems != self._problems:
            new = {by: why for by, why in ledger.problems.items() if self._problems.get(by) != why}
            found += [(by, _failing(by, why)) for by, why in new.items()]
            self._problems = dict(ledger.problems)
        return found

    def lines(self, state: State) -> list[str]:
        """A line each for nodes that were asked for, came, were refused, or were given back, and for a function that fails."""
        ledger = state.scaling
        if ledger is None:
            return []
        found = [
            f"{count(each.count, 'node')} of kind {each.kind} asked for: {printable(each.why)}"
            for each in ledger.requests[self._asked :]
        ]
        self._asked = len(ledger.requests)
        found += [line for _, line in self.troubles(state)]
        came: dict[str, int] = {}
        for each in ledger.requests[self._before :]:
            if (more := each.joined - self._joined.get(each.number, 0)) > 0:
                came[each.kind] = came.get(each.kind, 0) + more
                self._joined[each.number] = each.joined
        found += [f"{count(number, 'node')} of kind {kind} came" for kind, number in came.items()]
        new = [index for index in ledger.released if index not in self._released]
        self._released.update(new)
        for index in new[:MOST_TOLD]:
            why = state.drained.get(index, "").removeprefix("it is given back: ")
            found.append(f"{printable(state.room.nodes[index].name)} is given back: {printable(why)}")
        if len(new) > MOST_TOLD:
            found.append(f"{count(len(new) - MOST_TOLD, 'node')} more given back")
        if len(found) > 2 * MOST_TOLD:
            found[2 * MOST_TOLD :] = [f"and {len(found) - 2 * MOST_TOLD:,} more such news about nodes"]
        return found
