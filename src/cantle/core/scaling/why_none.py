"""Why is no node asked for, though a task waits that one could hold? A sentence for each kind, for people.

From what the journal tells: what was asked for, refused and given back, and by which policies and bounds the run goes. Policies
are asked anew, in the state as it stands; a function of the user's is not called for that.
"""

from __future__ import annotations

from cantle.core.lifetimes import in_words, needs_s
from cantle.core.plan import Plan
from cantle.core.scaling.awaited import what_was_said, when_expected
from cantle.core.scaling.bounds import cools_until, starves
from cantle.core.scaling.capacity import can_hold
from cantle.core.scaling.ledger import MOST_REFUSALS, Ledger
from cantle.core.scaling.look import Look
from cantle.core.scaling.naming import DEFAULT, is_built_in, opinion_of, worth_of
from cantle.core.scaling.refusals import settings_of, then
from cantle.core.scaling.remaining import Overview
from cantle.core.scaling.settings import Scaling, called
from cantle.core.scaling.trials import Trials
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.resources import count


def why_none(state: State, task: int, now: float = 0.0) -> list[str]:
    """For each kind that could hold the task, what comes of it or why nothing does. `now`, 0 for the last record's time."""
    ledger = state.scaling
    if ledger is None:
        return []
    needs, walltime_s = state.queue_of(task).shape.needs, needs_s(state, task)
    settings = settings_of(ledger.words)
    now = max(now, state.now)
    able = [kind for kind in ledger.kinds.values() if can_hold(state, kind, needs, walltime_s)]
    told = [
        (kind, _bounds(state, ledger, kind, settings, now) or _policies(state, ledger, kind, settings)) for kind in able
    ]
    return [f"Of kind {kind.name} {why}." for kind, why in told if why]


def _bounds(state: State, ledger: Ledger, kind: Kind, settings: Scaling, now: float) -> str:
    """What keeps anybody from asking for one, "" when nothing does."""
    coming = [request for request in ledger.open.values() if request.kind == kind.name and request.coming]
    if coming:
        n = sum(request.coming for request in coming)
        when = when_expected(min(coming, key=lambda request: request.expected_at), now)
        said = f" ({said})" if (said := what_was_said(coming[0], now)) else ""
        return f"{count(n, 'node')} {'is' if n == 1 else 'are'} on the way{when}{said}"
    if not kind.adds:
        return "none is asked for: nobody who brings nodes can add any"
    last = next((request for request in reversed(ledger.requests) if request.kind == kind.name), None)
    said = f"refused: {last.detail or 'nobody said why'}" if last is not None and last.refused else ""
    refusals = ledger.refusals.get(kind.name, 0)
    if refusals >= MOST_REFUSALS:
        return f"none is asked for any more: {count(refusals, 'request')} in a row brought none, the last was {said}"
    there = ledger.up.get(kind.name, 0).bit_count()
    if ledger.headroom(kind) < 1:
        blocks = f", and they come in blocks of {kind.block}" if kind.block > 1 and there < kind.bound else ""
        return f"{there:,} {'is' if there == 1 else 'are'} there, and {kind.bound:,} may be there at most{blocks}"
    if refusals:
        return f"the last request was {said}; {then(ledger, kind.name, now)}"
    since = ledger.reduced_at.get(kind.name)
    if since is not None and not starves(state) and (left := cools_until(ledger, kind, settings, since) - now) > 0:
        return (
            f"one was given back, or not wanted any more, {in_words(now - since)} ago, and none is asked for within the "
            f"cool-down, for another {in_words(left)}"
        )
    return ""


def _policies(state: State, ledger: Ledger, kind: Kind, settings: Scaling) -> str:
    """What the policies say, none of which wants more."""
    told = []
    for name in settings.policies or DEFAULT:
        if name.partition(":")[0] == "payoff":
            told.append(f"{name}: {_does_not_pay(state, ledger, kind, name)}")
        elif is_built_in(name):
            told += [f"{name}: {want}" for want in _opinion(state, kind, settings, name)]
        else:
            wish = ledger.wishes.get(kind.name)
            count_ = (
                f"{wish.count:,}" if wish is not None and wish.by == name and wish.count is not None else "no number"
            )
            problem = f" ({ledger.problems[name]})" if name in ledger.problems else ""
            told.append(f"{called(name)}: it wishes for {count_} of them{problem}")
    wish = ledger.wishes.get(kind.name)
    if wish is not None and wish.count is not None and wish.by not in settings.policies:
        told.append(f"{called(wish.by) or 'somebody'} wishes for {wish.count:,}")
    return f"no more are asked for; {'; '.join(told)}" if told else ""


def _opinion(state: State, kind: Kind, settings: Scaling, name: str) -> list[str]:
    look = Look(Plan(state), settings, _last_progress(state), bool(state.growing))
    wants = [want for want in opinion_of(name)(look) if want.kind == kind.name]
    have = look.have(kind.name)
    if any(want.count > have for want in wants):
        return [f"{want.why}: some will be asked for" for want in wants]
    return [want.why for want in wants]


def _does_not_pay(state: State, ledger: Ledger, kind: Kind, name: str) -> str:
    trials = Trials(state, Overview().remaining(state), worth_of(name), state.started_at)
    choice = trials.best()
    have = trials.have(kind.name)
    end = choice.outlook.end - state.now
    if choice.wanted[kind.name] > have:
        n = choice.wanted[kind.name] - have
        return f"{n:,} more would pay, asked for so that there is work when {'it comes' if n == 1 else 'they come'}"
    more = trials.play({**choice.wanted, kind.name: have + 1})
    sooner, dearer = choice.outlook.end - more.outlook.end, more.outlook.cost - choice.outlook.cost
    as_it_is = f"what is left ends in {in_words(end)} with what is there"
    if sooner < 1e-3 * max(1.0, end):
        return f"{as_it_is}, and no sooner with one more, which takes {in_words(ledger.starts_in_s(kind.name))} to come"
    cost = (
        f"costs {100 * dearer / max(choice.outlook.cost, 1e-9):.0f} % more" if dearer > 0 else "is not worth a change"
    )
    return f"{as_it_is}; with one more in {in_words(end - sooner)}, which {cost}"


def _last_progress(state: State) -> float:
    return max((*state.launched_at, *state.ended_at), default=state.started_at)
