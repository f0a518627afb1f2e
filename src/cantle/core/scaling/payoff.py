"""Would more nodes pay, or fewer? The default policy: it plays what is left through with each number of nodes worth a try.

From the best of these plays (`trials.py`) it knows when each node would be used. One that is not there is asked for so early
that it comes when it is needed, while other work still runs. One that idles is given back if it is not needed before another
could be there in its stead, and one that had better take nothing new is emptied and given back.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from cantle.core.lifetimes import in_words
from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.scaling.idle import is_empty
from cantle.core.scaling.ledger import Ledger, room_for_more
from cantle.core.scaling.remaining import Overview
from cantle.core.scaling.seam import WAKES_AT
from cantle.core.scaling.trials import Choice, Trials
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import Decision, DrainNode, ReleaseNode, RequestNodes, ResumeNode, WithdrawRequest
from cantle.model.resources import count

WORTH = 3.0
"""To be over one percent sooner is worth so many percent more cost, where nobody says otherwise."""
LOOK_SHARE = 0.05
"""It looks at least when so large a share of the time that is left should have passed."""
QUIET_SHARE = 0.05
"""When nothing has happened for long, it looks so much less often: a share of that time lies between two looks at least."""
SOONEST_S = 1.0
"""Two looks are so far apart at least, unless tasks or kinds are new."""
EARLY_SHARE = 0.1
"""A node is asked for earlier than needed by so large a share of the time that it takes to come."""


class Payoff:
    """The scaler. What it remembers may be lost: then it looks anew, and counts time and cost from there."""

    def __init__(self, worth: float = WORTH) -> None:
        self.worth = worth
        self._overview = Overview()
        self._there: object = None
        self._signs: object = None
        self._news: object = None
        self._news_at = 0.0
        self._looked_at = -inf
        self._next = -inf
        self._idle = True
        self._since = 0.0
        self._spent = 0.0
        self._rate = 0.0
        self.looks = 0
        """How often it has looked,"""
        self.steps = 0
        """and how many steps the plays of all these looks took."""

    def __call__(self, plan: Plan) -> Iterator[Decision]:
        """What to ask for, and what to give back."""
        state, ledger = plan.state, plan.state.scaling
        if ledger is None or not ledger.kinds:
            return
        there = (len(state.tasks), tuple(ledger.kinds), len(state.living))
        due = self._next
        if there != self._there:
            due = -inf
        elif _signs(state, ledger) != self._signs:
            due = min(due, self._looked_at + SOONEST_S)
        news = (there, *state.totals, len(ledger.requests), len(ledger.open), state.room.alive, len(state.drained))
        if news != self._news:
            self._news, self._news_at = news, state.now
        if state.now >= due:
            yield from self._look(state, ledger)
            self._there = there
            due = self._next
        plan.memory[WAKES_AT] = min(plan.memory.get(WAKES_AT, inf), due)

    def _look(self, state: State, ledger: Ledger) -> Iterator[Decision]:
        self._account(state)
        trials = Trials(state, self._overview.remaining(state), self.worth, self._since, self._spent)
        choice = trials.best()
        self.looks += 1
        self.steps += trials.steps
        self._looked_at = state.now
        quiet_s = state.now - self._news_at
        self._next = max(_next_look(trials, choice, quiet_s), state.now + SOONEST_S)
        yield from list(
            decisions(trials, choice)
        )  # made before the first is applied: each changes what they are made of
        self._rate = sum(
            kind.cost * (ledger.up.get(kind.name, 0).bit_count() + ledger.coming(kind.name)) for kind in trials.kinds
        )
        self._signs = _signs(state, ledger)

    def _account(self, state: State) -> None:
        """Since when there is something to do, and what the nodes have cost since then."""
        if self._looked_at > -inf:
            self._spent += self._rate * (state.now - self._looked_at)
        if self._idle:
            self._since, self._spent = state.now, 0.0
        self._idle = not state.unfinished


def _signs(state: State, ledger: Ledger) -> object:
    """When these have changed something may be to decide: nodes, requests, how many nodes idle, whether something waits."""
    idle = (state.room.untouched & state.room.alive).bit_count()
    return state.feasibility_version, len(ledger.requests), idle, bool(state.totals[Phase.READY])


def _next_look(trials: Trials, choice: Choice, quiet_s: float) -> float:
    """When it is time to look again although nothing happens, as it has not for so long."""
    now = trials.state.now
    if not trials.state.unfinished:
        return inf
    found = now + max(LOOK_SHARE * (choice.outlook.end - now), QUIET_SHARE * quiet_s)
    for member, first in zip(choice.members, choice.outlook.first_use, strict=True):
        if member.is_new and now < (asked := first - trials.groups[member.group].starts_s):
            found = min(found, asked)
    return found


def decisions(trials: Trials, choice: Choice) -> Iterator[Decision]:
    """What is to be done now for the choice: ask for what is needed as soon as it can come, give back what is not."""
    for kind in trials.kinds:
        yield from _more(trials, choice, kind)
        yield from _fewer(trials, choice, kind)


def _more(trials: Trials, choice: Choice, kind: Kind) -> Iterator[Decision]:
    now = trials.state.now
    number = trials.number_of[kind.name]
    starts_s = trials.groups[number].starts_s
    soon = now + starts_s + max(SOONEST_S, EARLY_SHARE * starts_s)
    needed = sum(
        member.is_new and member.group == number and first <= soon
        for member, first in zip(choice.members, choice.outlook.first_use, strict=True)
    )
    least = max(trials.floor[kind.name], kind.least) - trials.have(kind.name)
    needed = int(min(max(needed, least), trials.ledger.headroom(kind)))
    if needed > 0:
        yield RequestNodes(now, kind.name, needed, _why_more(trials, choice, kind, needed))


def _fewer(trials: Trials, choice: Choice, kind: Kind) -> Iterator[Decision]:
    """Nodes that had better go, and requests that bring more than is needed."""
    state, ledger = trials.state, trials.ledger
    now = state.now
    number = trials.number_of[kind.name]
    group = trials.groups[number]
    coming = dict.fromkeys((request.number for request in ledger.open.values() if request.kind == kind.name), 0)
    there = ledger.up.get(kind.name, 0).bit_count() + ledger.coming(kind.name)
    for member, first in zip(choice.members, choice.outlook.first_use, strict=True):
        if member.group != number or member.is_new:
            continue
        if member.number < 0:
            coming[member.request] += first < inf
            continue
        another = first == inf or (ledger.can_add(kind) and room_for_more(kind, there - 1) > 0)
        goes = member.closed or (another and first - now > group.starts_s + SOONEST_S)
        there -= goes
        if not goes and member.number in ledger.retiring:
            yield ResumeNode(now, member.number, _ends_in(trials, choice, "with it"))
        elif goes and kind.removes:
            why = _why_fewer(trials, choice, first)
            if is_empty(state, member.number):
                yield ReleaseNode(now, member.number, why)
            elif member.closed and member.number not in ledger.retiring:
                yield DrainNode(now, member.number, why, "retires")
    needed = max(trials.floor[kind.name], kind.least) - ledger.usable(state, kind.name).bit_count()
    for request, used in coming.items():
        spare = ledger.open[request].coming - max(used, min(needed, ledger.open[request].coming))
        needed -= ledger.open[request].coming
        if spare > 0:
            yield WithdrawRequest(now, request, spare, _ends_in(trials, choice, "without it"))


def _why_more(trials: Trials, choice: Choice, kind: Kind, needed: int) -> str:
    nodes = f"{needed:,} more node{'s' if needed > 1 else ''}"
    least = max(trials.bounds(kind)[0], trials.have(kind.name))
    without = trials.play({**choice.wanted, kind.name: least})
    end = in_words(choice.outlook.end - trials.state.now)
    if without.outlook.undone > choice.outlook.undone:
        them, tasks = "it" if needed == 1 else "them", count(without.outlook.undone, "task")
        return f"with {nodes} all can be over in {end}, without {them} {tasks} can never begin"
    if without is choice:
        return f"{nodes} for what waits for a partition, or since so many are to be there"
    return f"{nodes} end{'s' if needed == 1 else ''} it in {end} instead of {in_words(without.outlook.end - trials.state.now)}"


def _why_fewer(trials: Trials, choice: Choice, first: float) -> str:
    if first < inf and first > trials.state.now:
        return f"it is not needed for {in_words(first - trials.state.now)}, and another can be there by then"
    return _ends_in(trials, choice, "without it")


def _ends_in(trials: Trials, choice: Choice, how: str) -> str:
    return f"what is left ends in {in_words(choice.outlook.end - trials.state.now)} {how}"
