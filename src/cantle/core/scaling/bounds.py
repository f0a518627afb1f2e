"""What is every scaler held to, ours and users'?

What is impossible is an error of whoever proposed it: the run ends with his name. What is only too much, too soon, or not
allowed now is cut or left out, and he is asked again when it may be:

- never more nodes of a kind than `most`, never fewer than `least`; what is cut says so once, in the request's `why`
- requests are for whole blocks, if a kind's nodes come so
- a kind that refused is not asked again for a while, each time for longer
- no node goes before it has stayed as long as its kind, or the settings, say
- what was asked for is not given back, and what was given back not asked for, within the cool-down. At the end it is: where
  nothing is left that has not begun, what idles goes at once. And at the start: where nothing runs and something is ready. And
  where somebody has wished for fewer or more since
- a node for which somebody waits who needs several is not idle; nor is one, where more work may come, before `idle_s`
- what would leave something that is ready without a node, there or on its way, that could hold it stays; so does, until
  something begins or ends, a node that was used again since nothing else was left
- a node goes only when nothing runs there, and nothing that is needed lives there alone; until then it is drained
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, TypeAlias

import msgspec

from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.scaling.capacity import is_missed_for_ever, to_spare
from cantle.core.scaling.idle import earmarked, is_empty, needed_alone_on
from cantle.core.scaling.ledger import Ledger
from cantle.core.scaling.seam import WAKES_AT
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.errors import PluginError, said_by, shown
from cantle.model.kinds import Kind
from cantle.model.records import (
    Decision,
    DrainNode,
    MoveResults,
    NoticeIdle,
    ReleaseNode,
    RequestNodes,
    ResumeNode,
    WithdrawRequest,
)

Keeps: TypeAlias = Callable[[str], int]
"""How many nodes of the kind, there or on their way, somebody else would keep."""
LEAVING = "leaving"
"""Who empties nodes and gives them back bears this name; nobody else may keep a node that somebody has sent away."""
MOST_RETRY_S = 3600.0
"""A kind that refuses is asked again at least so often."""


def held(
    proposals: Iterator[Any],
    plan: Plan,
    settings: Scaling,
    name: str,
    keeps: Keeps = lambda _kind: 0,
    open_ended: bool = False,
) -> Iterator[Decision]:
    """Of what the scaler called `name` proposes what may be done now. Raises PluginError for what never can.

    `open_ended`: work may come that nobody knows of yet.
    """
    bounds = Bounds(plan, settings, name, keeps, open_ended)
    version = plan.state.version
    while True:
        try:
            proposal = next(proposals, None)
        except (PluginError, AssertionError):
            raise
        except Exception as problem:
            raise PluginError(f"scaler {name}: it raised {said_by(problem)}") from problem
        if plan.state.version != version:
            raise PluginError(f"scaler {name}: it changed the state itself; a scaler reads, and yields decisions")
        if proposal is None:
            return
        decision = bounds.allowed(proposal)
        if decision is not None:
            yield decision
            version = plan.state.version


def retry_at(ledger: Ledger, kind: Kind, settings: Scaling) -> float:
    """When a kind may be asked for again that has refused, in the records' time."""
    refusals = ledger.refusals.get(kind.name, 0)
    if not refusals:
        return -inf
    wait_s = min(settings.retry_s * 2.0 ** (refusals - 1), MOST_RETRY_S)
    return ledger.refused_at.get(kind.name, -inf) + wait_s


def cools_until(ledger: Ledger, kind: Kind, settings: Scaling, then: float) -> float:
    """Until when it is too soon to undo what was done then: at once where somebody, no function, has wished anew since."""
    wished_at, by = ledger.wished.get(kind.name, (-inf, ""))
    return -inf if wished_at > then and by not in settings.policies else then + settings.cool_down_s


def starves(state: State) -> bool:
    """Something is ready, and nothing runs or comes: then the cool-down holds up nobody."""
    return bool(state.totals[Phase.READY]) and not (state.running or (state.scaling and state.scaling.open))


class Bounds:
    """Judges one proposal after the other, each as the state is then."""

    def __init__(self, plan: Plan, settings: Scaling, name: str, keeps: Keeps, open_ended: bool) -> None:
        self.plan = plan
        self.state: State = plan.state
        assert plan.state.scaling is not None
        self.ledger: Ledger = plan.state.scaling
        self.settings = settings
        self.name = name
        self.keeps = keeps
        self.open_ended = open_ended

    def allowed(self, proposal: Any) -> Decision | None:
        """What of it may be done now; None for nothing. Raises PluginError for what is no decision of a scaler's."""
        judge = _JUDGES.get(type(proposal))
        if judge is None:
            raise self._fault(f"yielded {shown(proposal)}, which is no decision of a scaler")
        try:  # anything may stand in its fields; the journal, too, has to be able to read it again
            msgspec.json.decode(msgspec.json.encode(proposal), type=type(proposal))
        except (TypeError, ValueError, msgspec.MsgspecError) as problem:
            raise self._fault(f"yielded {shown(proposal)}, which cannot be written down: {problem}") from problem
        if proposal.time != self.state.now:
            raise self._fault(f"dated a decision {proposal.time}, but now is {self.state.now} (`plan.state.now`)")
        found: Decision | None = judge(self, proposal)
        return found

    # More

    def _request(self, proposal: RequestNodes) -> Decision | None:
        ledger, now = self.ledger, self.state.now
        kind = ledger.kinds.get(proposal.kind)
        if kind is None:
            known = ", ".join(ledger.kinds) or "none"
            raise self._fault(f"asked for nodes of kind {proposal.kind!r}; declared are {known}")
        if proposal.count < 1:
            raise self._fault(f"asked for {proposal.count} nodes")
        if self._too_soon(retry_at(ledger, kind, self.settings)) or not ledger.can_add(kind):
            return None
        reduced_at = ledger.reduced_at.get(kind.name, -inf)
        if not starves(self.state) and self._cools_since(kind, reduced_at):
            return None
        count = self._in_blocks(kind, proposal.count)
        if count < 1:
            return None
        why = proposal.why
        if count < proposal.count:
            why = f"{why} (of the {proposal.count:,} that were asked for; there may be {kind.bound:,} in all)"
        return RequestNodes(now, kind.name, count, why)

    def _in_blocks(self, kind: Kind, count: int) -> int:
        headroom = self.ledger.headroom(kind)
        block = max(1, kind.block)
        return min(-(-count // block) * block, headroom)

    # Fewer

    def _withdraw(self, proposal: WithdrawRequest) -> Decision | None:
        request = self.ledger.open.get(proposal.request)
        if request is None:
            if not 0 <= proposal.request < len(self.ledger.requests):
                raise self._fault(f"withdrew request {proposal.request}, but there were {len(self.ledger.requests)}")
            return None
        kind = self.ledger.kinds.get(request.kind)
        if kind is None:
            return None
        if self._wanted_again() and self._cools_since(kind, self.ledger.asked_at.get(kind.name, -inf)):
            return None
        spare = (self.ledger.there(kind.name) + self.ledger.coming(kind.name)) - kind.least
        spare = min(spare, self._beyond_what_others_keep(kind))
        count = int(min(proposal.count, request.coming, spare, to_spare(self.state, kind)))
        if count < request.coming:
            count -= count % max(1, kind.block)  # they come together
        if count < 1:
            return None
        return WithdrawRequest(self.state.now, request.number, count, proposal.why)

    def _drain(self, proposal: DrainNode) -> Decision | None:
        if proposal.cause != "retires":
            raise self._fault(f"drained a node with the cause {proposal.cause!r}; a scaler's is 'retires'")
        self._require_node(proposal.node)
        state, index = self.state, proposal.node
        if index in state.drained or not self._may_go(index):
            return None
        if is_empty(state, index) and not needed_alone_on(state, index)[0]:
            return ReleaseNode(state.now, index, proposal.why)
        return proposal

    def _resume(self, proposal: ResumeNode) -> Decision | None:
        self._require_node(proposal.node)
        sent_away = self.name == LEAVING and proposal.node in self.ledger.sent_away
        return proposal if proposal.node in self.ledger.retiring or sent_away else None

    def _release(self, proposal: ReleaseNode) -> Decision | None:
        self._require_node(proposal.node)
        state, index = self.state, proposal.node
        if state.running_on.get(index):
            name = state.tasks[next(iter(state.running_on[index]))].name
            raise self._fault(f"gave back node {state.room.nodes[index].name}, on which {name} runs")
        goes = index in self.ledger.retiring or index in self.ledger.sent_away
        if index in self.ledger.released or not (goes or self._may_go(index)):
            return None
        if not is_empty(state, index) or needed_alone_on(state, index)[0]:
            return None if index in state.drained else DrainNode(state.now, index, proposal.why, "retires")
        return proposal

    def _may_go(self, index: int) -> bool:
        """Whether the node may be given back now, or drained in order to be."""
        kind = self.ledger.kinds.get(self.ledger.kind_of.get(index, ""))
        if kind is None or not kind.removes or index in self.ledger.unreleasable:
            return False
        if self.keeps(kind.name) and self._beyond_what_others_keep(kind) < 1:
            return False
        drained = index in self.state.drained
        if not drained and self.plan.memory.get(("used again", index)) == tuple(self.state.totals):
            return False
        if not drained and self.ledger.usable(self.state, kind.name).bit_count() <= kind.least:
            return False
        if not drained and (to_spare(self.state, kind, index) < 1 or is_missed_for_ever(self.state, kind)):
            return False
        if not drained and earmarked(self.state, self.settings.survivors_s) >> index & 1:
            return False
        if self.open_ended and self._too_soon(self.ledger.idle_since(self.state, index) + self.settings.idle_s):
            return False
        stays_s = kind.stays_s or self.settings.stays_s
        if self._too_soon(self.state.joined_at.get(index, 0.0) + stays_s):
            return False
        asked_at = self.ledger.asked_at.get(kind.name, -inf)
        return drained or not self._wanted_again() or not self._cools_since(kind, asked_at)

    def _cools_since(self, kind: Kind, then: float) -> bool:
        return self._too_soon(cools_until(self.ledger, kind, self.settings, then))

    def _beyond_what_others_keep(self, kind: Kind) -> int:
        """How many nodes of the kind, there or on their way, no opinion would keep."""
        there = self.ledger.usable(self.state, kind.name).bit_count() + self.ledger.coming(kind.name)
        return there - self.keeps(kind.name)

    def _wanted_again(self) -> bool:
        """Whether something is left that has not begun, or may come: then what goes now may be missed."""
        return self.open_ended or bool(self.state.totals[Phase.WAITING] or self.state.totals[Phase.READY])

    # The rest

    def _move(self, proposal: MoveResults) -> Decision | None:
        self._require_node(proposal.node)
        self._require_node(proposal.to)
        return proposal if proposal.tasks and proposal.node != proposal.to else None

    def _notice(self, proposal: NoticeIdle) -> Decision | None:
        self._require_node(proposal.node)
        fresh = is_empty(self.state, proposal.node) and not self.ledger.is_noticed(self.state, proposal.node)
        return proposal if fresh else None

    def _require_node(self, index: int) -> None:
        if not (index >= 0 and self.state.room.alive >> index & 1):
            raise self._fault(f"decided about node {index}, which is not there")

    def _too_soon(self, at: float) -> bool:
        """Whether it is before that time; then whoever proposed it is asked again at that time."""
        if self.state.now >= at - 1e-6:
            return False
        memory = self.plan.memory
        memory[WAKES_AT] = min(memory.get(WAKES_AT, inf), at)
        return True

    def _fault(self, what: str) -> PluginError:
        return PluginError(f"scaler {self.name}: it {what}")


_JUDGES: dict[type, Callable[[Bounds, Any], Decision | None]] = {
    RequestNodes: Bounds._request,
    WithdrawRequest: Bounds._withdraw,
    DrainNode: Bounds._drain,
    ResumeNode: Bounds._resume,
    ReleaseNode: Bounds._release,
    MoveResults: Bounds._move,
    NoticeIdle: Bounds._notice,
}
