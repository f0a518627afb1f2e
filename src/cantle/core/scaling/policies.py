"""How many nodes should there be? The built-in policies; each answers a look with what it wants.

None of them keeps a node that nobody uses, but for `fixed` and wishes: that nodes go when they idle is everybody's policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from cantle.core.lifetimes import in_words
from cantle.core.phases import Phase
from cantle.core.reserving import work_left_s
from cantle.core.scaling.capacity import able_now, can_hold, what_is_ready
from cantle.core.scaling.look import Look, Opinion, Want
from cantle.core.scaling.settings import called
from cantle.model.kinds import Kind
from cantle.model.resources import count


def demand(look: Look) -> Iterator[Want]:
    """As many as have something to do: for all that is ready and finds no room until a new node could be there."""
    for kind in look.kinds:
        yield _more(look, kind, look.missing(kind.name).nodes, _why_missing(look, kind))


def _more(look: Look, kind: Kind, more: int, why: str) -> Want:
    """So many more than there are. What is used is to stay, and what was missing a moment ago as well."""
    return Want(kind.name, look.have(kind.name) + more, why, look.used(kind.name) + more)


def _why_missing(look: Look, kind: Kind) -> str:
    missing = look.missing(kind.name)
    if not missing.nodes:
        return f"what is there has room for all that needs nodes of kind {kind.name}"
    whose = f"{look.state.tasks[missing.task].name} and what is like it" if missing.task >= 0 else "a partition"
    n = max(1, missing.tasks)
    what = (
        f"{count(n, 'task')} ({whose})"
        if missing.task >= 0 and n > 1
        else whose
        if missing.task < 0
        else whose.split(" and ")[0]
    )
    finds = "find" if missing.task >= 0 and n > 1 else "finds"
    return f"{what} {finds} no room on what is there or on its way"


def fixed(counts: dict[str, int]) -> Opinion:
    """Always so many of each kind; "" stands for the first that is declared."""

    def opinion(look: Look) -> Iterator[Want]:
        first = next(iter(look.ledger.kinds), "")
        for name, n in counts.items():
            yield Want(name or first, n, f"there are always to be {n}", at_once=True)

    return opinion


def no_progress(after_s: float) -> Opinion:
    """What is missing, once nothing has begun or ended for so long although something is ready. (D8)"""

    def opinion(look: Look) -> Iterator[Want]:
        stuck = look.state.totals[Phase.READY] > 0
        since = look.state.now - look.progress_at
        if stuck and since < after_s:
            look.wake_at(look.progress_at + after_s)
        for kind in look.kinds:
            more = look.missing(kind.name).nodes if stuck and since >= after_s else 0
            why = f"nothing has begun or ended for {in_words(since)}" if more else "there is progress"
            yield _more(look, kind, more, why)

    return opinion


def eta_beyond(limit_s: float) -> Opinion:
    """What is missing, as long as the end is expected later than so long from now. (D8)"""

    def opinion(look: Look) -> Iterator[Want]:
        left = completion_s(look) if look.unstarted else 0.0
        for kind in look.kinds:
            more = look.missing(kind.name).nodes if left > limit_s else 0
            end = "nobody can tell when all is over" if left == inf else f"all should be over in {in_words(left)}"
            why = f"{end}, which is {'more' if left > limit_s else 'not more'} than {in_words(limit_s)}"
            yield _more(look, kind, more, why)

    return opinion


def no_nodes(look: Look) -> Iterator[Want]:
    """The least that can hold what is ready, when there is no node at all and none on its way. (D7)"""
    state = look.state
    usable = state.room.alive & ~state.drained_nodes
    wanted = {} if usable or look.ledger.open else {want.kind: want for want in needed_at_least(look)}
    for kind in look.kinds:
        yield wanted.get(kind.name) or _more(look, kind, 0, "there are nodes")


def cheapest(look: Look) -> Iterator[Want]:
    """Never more than each task needs to run at all; what is unused goes at once."""
    wanted = {want.kind: want for want in needed_at_least(look)}
    for kind in look.kinds:
        have, used = look.have(kind.name), look.used(kind.name)
        yield wanted.get(kind.name) or Want(kind.name, have, "as few nodes as it can be done with", used, at_once=True)


def finish_by(deadline_s: float) -> Opinion:
    """So many that all should be over so long after the run began, and no more than have something to do."""

    def opinion(look: Look) -> Iterator[Want]:
        state = look.state
        left = state.started_at + deadline_s - state.now
        late = bool(look.unstarted) and completion_s(look) > left
        work = sum(work_left_s(look.plan, number) for number in state.living) if late else 0.0
        there = _cores(look)
        if look.unstarted and not late:
            look.wake_at(state.now + max(1.0, left / 20))
        for kind in look.kinds:
            missing = look.missing(kind.name).nodes if late else 0
            usable_s = left - look.ledger.starts_in_s(kind.name)
            needed = ceil(work / usable_s) if usable_s > 0 else inf
            more = int(min(missing, max(0, ceil((needed - there) / kind.cores)) if needed < inf else missing))
            there += more * kind.cores
            if left <= 0:
                why = f"all was to be over {in_words(-left)} ago"
            else:
                why = f"all is to be over in {in_words(left)}, and {'would not be' if late else 'should be'}"
            yield _more(look, kind, more, why)

    return opinion


def wishes(look: Look) -> Iterator[Want]:
    """What somebody, or a function of the user's, wishes for."""
    for wish in look.ledger.wishes.values():
        if wish.count is not None:
            why = f"{called(wish.by) or 'somebody'} wishes for {wish.count:,}" + (f": {wish.why}" if wish.why else "")
            yield Want(wish.kind, wish.count, why, at_once=True)


def needed_at_least(look: Look) -> Iterator[Want]:
    """The fewest nodes, of the kinds that cost least, without which something that is ready could never run."""
    state, ledger = look.state, look.ledger
    kinds = sorted(
        (kind for kind in ledger.kinds.values() if ledger.can_add(kind)), key=lambda kind: (bool(kind.gpus), kind.cost)
    )
    more: dict[str, int] = {}
    named: dict[str, str] = {}
    for needs, width, walltime_s, what in what_is_ready(state):
        able = able_now(state, needs, walltime_s) & ~state.drained_nodes
        holds = [kind for kind in kinds if can_hold(state, kind, needs, walltime_s)]
        lacking: float = (
            width - able.bit_count() - sum(ledger.coming(kind.name) + more.get(kind.name, 0) for kind in holds)
        )
        for kind in holds:
            n = int(min(lacking, ledger.headroom(kind) - more.get(kind.name, 0)))
            if n > 0:
                more[kind.name] = more.get(kind.name, 0) + n
                named.setdefault(kind.name, what)
                lacking -= n
    for name, n in more.items():
        yield Want(
            name, look.have(name) + n, f"{named[name]} is ready, and nothing that is there or on its way could hold it"
        )


def completion_s(look: Look) -> float:
    """In how many seconds all should be over with what is there: the longest chain, or the work over the cores."""
    state, plan = look.state, look.plan
    cores = _cores(look)
    if not cores:
        return inf
    work = sum(work_left_s(plan, number) for number in state.living)
    chain = state.longest_ready_s()
    for task in state.running:
        chain = max(chain, state.ranks[task] - (state.now - state.launched_at[task]))
    return max(chain, work / cores)


def _cores(look: Look) -> float:
    """The cores that are there and may be used, and those that are on their way."""
    state, ledger = look.state, look.ledger
    cores = look.plan.cores() - sum(state.room.nodes[index].cores for index in state.drained)
    return cores + sum(ledger.coming(kind.name) * kind.cores for kind in look.kinds)
