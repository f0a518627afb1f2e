"""How do policies become decisions? The one scaler that a run has asks who is named, and does what they want within bounds.

Those who say how many nodes there should be (`look.Opinion`) are asked together: the largest wish for a kind is met, and of
what is there goes what idles and nobody would keep. Those who decide about nodes themselves (`seam.Scaler`) come after them,
one after the other, so that each sees what those before it have asked for; where there is one of them nodes go as it says,
unless an opinion keeps them. Whoever it is, he is held to the same bounds. When something is ready, nothing runs and nobody
has asked for anything, the least is asked for that can hold it: whatever the policies say, a run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf

from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.scaling.bounds import LEAVING, held
from cantle.core.scaling.capacity import able_now, can_hold, what_is_ready
from cantle.core.scaling.leaving import free_of_others, let_go, notices
from cantle.core.scaling.ledger import Ledger
from cantle.core.scaling.look import Look, Opinion, Want
from cantle.core.scaling.policies import needed_at_least
from cantle.core.scaling.seam import WAKES_AT, Scaler
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import Decision, DrainNode, ReleaseNode, RequestNodes, ResumeNode, WithdrawRequest
from cantle.model.resources import indexes

LOOK_S = 1.0
"""Two looks are so far apart at least, unless there is something new to do, or nodes have come or gone,"""
LOOK_SHARE = 0.05
"""and at least so large a share of the time in which nodes come, where that is longer."""


class Frame:
    """The scaler of a run. It remembers nothing but when it looked, so it may be made anew at any time."""

    def __init__(
        self,
        settings: Scaling,
        opinions: dict[str, Opinion],
        scalers: dict[str, Scaler] | None = None,
        open_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        """`open_ended` tells whether work may come that nobody knows of yet."""
        self.settings = settings
        self.opinions = opinions
        self.scalers = scalers or {}
        self.open_ended = open_ended
        self.looks = 0
        """How often opinions were asked."""
        self._wants: dict[str, Want] = {}
        self._levels: dict[str, dict[str, int]] = {}
        """Of several scalers, how many nodes of each kind each would have."""
        self._pressing: object = None
        self._stirred: object = None
        self._next_look = -inf
        self._again = -inf
        self._next_notice = -inf
        self._progress: tuple[int, ...] = ()
        self._progress_at = 0.0

    def __call__(self, plan: Plan) -> Iterator[Decision]:
        """What is to be done about nodes now."""
        state, ledger = plan.state, plan.state.scaling
        if ledger is None:
            return
        self._note_progress(state)
        more = self.open_ended() or bool(state.growing)
        if ledger.retiring or state.drained:
            yield from held(let_go(plan, self.settings), plan, self.settings, LEAVING, open_ended=more)
        if ledger.kinds:
            if self._is_due(plan, ledger):
                yield from self._as_opinions_want(plan, more)
            for name, scaler in self.scalers.items():
                proposals = self._counted(name, scaler(plan), state, ledger) if len(self.scalers) > 1 else scaler(plan)
                yield from held(proposals, plan, self.settings, name, partial(self._others_keep, name), more)
            if state.totals[Phase.READY] and not state.running and not ledger.open:
                yield from self._least(plan, more)
        if state.now >= self._next_notice:
            yield from held(notices(plan, self.settings), plan, self.settings, "notices")
            self._next_notice = state.now + LOOK_S

    def _note_progress(self, state: State) -> None:
        progress = (*state.totals, len(state.tasks))
        if progress != self._progress:
            self._progress = progress
            self._progress_at = state.now

    # What opinions want

    def _is_due(self, plan: Plan, ledger: Ledger) -> bool:
        """Whether it is time for a look: something pressing is new, or somebody wanted to be asked now, or a while is over."""
        state = plan.state
        if _pressing(state, ledger) != self._pressing or state.now >= self._again:
            return True
        if _stirred(state) == self._stirred:
            _wake(plan, self._again)
            return False
        if state.now < self._next_look:
            _wake(plan, min(self._again, self._next_look))
            return False
        return True

    def _as_opinions_want(self, plan: Plan, more: bool) -> Iterator[Decision]:
        state, ledger = plan.state, plan.state.scaling
        assert ledger is not None
        self.looks += 1
        look = Look(plan, self.settings, self._progress_at, more)
        self._wants = _combined(look, self.opinions)
        others_wake_at = plan.memory.get(WAKES_AT, inf)
        plan.memory[WAKES_AT] = inf
        for kind in list(ledger.kinds.values()):
            yield from self._towards(look, kind, self._wants[kind.name])
            if kind.gpus and not self.scalers and not self._is_kept_as_it_is(ledger, kind):
                yield from held(free_of_others(look, kind), plan, self.settings, "opinions", open_ended=more)
        self._again = min(plan.memory[WAKES_AT], look.wakes_at)
        plan.memory[WAKES_AT] = min(self._again, others_wake_at)
        soonest = min((ledger.starts_in_s(kind.name) for kind in ledger.kinds.values()), default=0.0)
        self._next_look = state.now + max(LOOK_S, LOOK_SHARE * soonest)
        self._pressing = _pressing(state, ledger)
        self._stirred = _stirred(state)

    def _is_kept_as_it_is(self, ledger: Ledger, kind: Kind) -> bool:
        """Whether somebody has said how many nodes of the kind there are to be."""
        return kind.name in ledger.wishes or any(name.startswith("fixed") for name in self.opinions)

    def _towards(self, look: Look, kind: Kind, want: Want) -> Iterator[Decision]:
        """From what there is to what is wanted."""
        state, ledger = look.state, look.ledger
        lacking = want.count - look.have(kind.name)
        for index in list(ledger.retiring) if lacking > 0 else ():
            if lacking > 0 and ledger.kind_of.get(index) == kind.name:
                lacking -= 1
                yield ResumeNode(state.now, index, want.why)
        if lacking > 0:
            asks = iter((RequestNodes(state.now, kind.name, lacking, want.why),))
            yield from held(asks, look.plan, self.settings, "opinions")
        elif not self.scalers:
            fewer = self._fewer(look, kind, look.have(kind.name) - want.least, want)
            yield from held(fewer, look.plan, self.settings, "opinions", open_ended=look.open_ended)

    def _fewer(self, look: Look, kind: Kind, surplus: int, want: Want) -> Iterator[Decision]:
        """What is on its way first, the last that was asked for; then what idles longest, but not what is used soon."""
        state, ledger = look.state, look.ledger
        for request in reversed(list(ledger.open.values())):
            if surplus > 0 and request.kind == kind.name:
                before = request.coming
                yield WithdrawRequest(state.now, request.number, min(surplus, before), f"not needed: {want.why}")
                surplus -= before - request.coming
        spare = indexes(look.spare & ledger.usable(state, kind.name)) if surplus > 0 else []
        tail = not look.unstarted and not look.open_ended
        soon = look.soon(look.spare) if spare else 0
        for index in sorted(spare, key=lambda index: (ledger.idle_since(state, index), index)):
            if surplus <= 0:
                return
            if soon >> index & 1:
                continue
            since = ledger.idle_since(state, index)
            if not (tail or want.at_once) and state.now < since + self.settings.idle_s:
                _wake(look.plan, since + self.settings.idle_s)
                return  # those behind it have idled for less long
            idles = f"it has had no work for {state.now - since:.3g} s"
            yield ReleaseNode(state.now, index, "nothing is left that could begin" if tail else f"{idles}; {want.why}")
            if index in ledger.released:
                surplus -= 1

    def _others_keep(self, name: str, kind: str) -> int:
        """How many nodes of the kind an opinion, or a scaler other than this one, would keep."""
        want = self._wants.get(kind)
        levels = (level.get(kind, 0) for other, level in self._levels.items() if other != name)
        return max(0 if want is None else want.least, max(levels, default=0))

    def _counted(self, name: str, proposals: Iterator[Decision], state: State, ledger: Ledger) -> Iterator[Decision]:
        """What one of several scalers proposes; how many nodes it would have by that is noted, whatever is done of it."""
        level: dict[str, int] = {}
        there = {kind: ledger.usable(state, kind).bit_count() + ledger.coming(kind) for kind in ledger.kinds}
        for proposal in proposals:
            kind, more = _effect(proposal, ledger)
            if kind in there:
                level[kind] = level.get(kind, there[kind]) + more
                self._levels.setdefault(name, {})[kind] = max(0, level[kind])
            yield proposal

    def _least(self, plan: Plan, more: bool) -> Iterator[Decision]:
        """Something is ready, nothing runs, and nothing is on its way."""
        look = Look(plan, self.settings, self._progress_at, more)
        for want in needed_at_least(look):
            yield from self._towards(look, look.ledger.kinds[want.kind], want)
        if not look.ledger.open:
            yield from held(_make_way(look), plan, self.settings, "opinions", open_ended=more)


def _make_way(look: Look) -> Iterator[Decision]:
    """Give back a node that could not hold what is ready, where others of its kind could and no more of them may be there."""
    state, ledger = look.state, look.ledger
    for needs, width, walltime_s, what in what_is_ready(state):
        able = able_now(state, needs, walltime_s)
        for kind in ledger.kinds.values() if able.bit_count() < width else ():
            if (
                not (kind.removes and kind.adds)
                or ledger.headroom(kind) > 0
                or not can_hold(state, kind, needs, walltime_s)
            ):
                continue
            for index in indexes(look.spare & ledger.usable(state, kind.name) & ~able):
                why = f"{what} needs nodes of kind {kind.name}, of which no more may be there, and this one cannot hold it"
                yield ReleaseNode(state.now, index, why)
                return


def _effect(proposal: Decision, ledger: Ledger) -> tuple[str, int]:
    """Of which kind it wants how many nodes more, or fewer."""
    match proposal:
        case RequestNodes():
            return proposal.kind, proposal.count
        case WithdrawRequest() if 0 <= proposal.request < len(ledger.requests):
            return ledger.requests[proposal.request].kind, -proposal.count
        case DrainNode() | ReleaseNode() if proposal.node not in ledger.retiring:
            return ledger.kind_of.get(proposal.node, ""), -1
        case ResumeNode() if proposal.node in ledger.retiring:
            return ledger.kind_of.get(proposal.node, ""), 1
    return "", 0


def _pressing(state: State, ledger: Ledger) -> object:
    """What calls for a look at once when it has changed: tasks, nodes, requests, wishes, and whether nothing is left to do."""
    wishes = tuple((wish.kind, wish.count) for wish in ledger.wishes.values())
    starves = bool(state.totals[Phase.READY]) and not state.running
    unused = state.room.untouched & state.room.alive
    done = not (state.totals[Phase.WAITING] or state.totals[Phase.READY])
    return (
        len(state.tasks),
        state.feasibility_version,
        tuple(ledger.kinds),
        len(ledger.requests),
        wishes,
        starves,
        unused if done else 0,
    )


def _stirred(state: State) -> object:
    """What calls for a look after a while when it has changed."""
    return (*state.totals, (state.room.untouched & state.room.alive).bit_count())


def _combined(look: Look, opinions: dict[str, Opinion]) -> dict[str, Want]:
    """For each kind the largest wish, and the most that anybody would keep."""
    found: dict[str, Want] = {}
    for opinion in opinions.values():
        for want in opinion(look):
            other = found.get(want.kind)
            if want.kind in look.ledger.kinds:
                found[want.kind] = want if other is None else _both(other, want)
    for kind in look.kinds:
        want = found.get(kind.name) or Want(kind.name, 0, "nobody wants it")
        if want.count < kind.least:
            why = f"at least {kind.least} of kind {kind.name} are to be there"
            want = Want(kind.name, kind.least, why, max(kind.least, want.least), want.at_once)
        found[kind.name] = want
    return found


def _both(one: Want, other: Want) -> Want:
    more = one if one.count >= other.count else other
    return Want(more.kind, more.count, more.why, max(one.least, other.least), one.at_once and other.at_once)


def _wake(plan: Plan, at: float) -> None:
    plan.memory[WAKES_AT] = min(plan.memory.get(WAKES_AT, inf), at)
