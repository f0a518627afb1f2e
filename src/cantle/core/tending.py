"""Which node is emptied since it ends, or taken out since it fails everything, and when is the run itself over for now?

Asked only where a node has an end, or has made trouble.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cantle.core.decide import why_never_as
from cantle.core.lifetimes import Lifetimes, in_words, needs_s
from cantle.core.phases import Phase
from cantle.core.queues import ReadyQueue
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.core.trouble import (
    MOST_FLAPS,
    Trouble,
    proves_done_elsewhere,
    who_tries_elsewhere,
    why_bad,
    why_innocent,
    why_suspicious,
)
from cantle.model.records import Decision, DrainNode, EndRun, GiveUpNode, Launch, ResumeNode
from cantle.model.resources import indexes

LOOK_AGAIN = 1.25
"""A node that was judged is judged again when so many times as many tasks have failed there."""


def tend(state: State, memory: dict[object, Any]) -> Iterator[Decision]:
    """Drain the nodes whose time is up, and those that fail what succeeds elsewhere."""
    if state.lifetimes is not None:
        for index in state.lifetimes.due(state.now):
            if state.room.alive >> index & 1:
                yield DrainNode(state.now, index, why_it_ends(state.lifetimes, index), "ends")
        for index, at in list(state.lifetimes.overdue.items()):
            if at <= state.now:
                late = in_words(state.now - state.lifetimes.ends[index])
                yield GiveUpNode(state.now, index, f"its allocation ended {late} ago, and nobody has taken it away")
    if state.scaling is not None:
        for index, at in list(state.scaling.overdue.items()):
            if at <= state.now:
                since = in_words(state.now - state.scaling.released[index])
                yield GiveUpNode(state.now, index, f"it was given back {since} ago, and its provider has not taken it")
    if state.trouble is not None and not state.stopping:
        yield from _flapping(state, state.trouble)
        yield from _failing(state, state.trouble, memory)
        yield from _suspected(state, state.trouble, memory)


def why_it_ends(lifetimes: Lifetimes, index: int) -> str:
    """In words."""
    left = lifetimes.ends.get(index, 0.0) - lifetimes.leaves.get(index, 0.0)
    return f"its allocation ends, {left:.3g} s later" if left else "its allocation ends"


def _flapping(state: State, trouble: Trouble) -> Iterator[Decision]:
    for index in list(trouble.newcomers):
        if _is_needed(state, index):
            continue
        yield DrainNode(state.now, index, f"it went away {MOST_FLAPS} times, each time soon after it had come", "flaps")


def _failing(state: State, trouble: Trouble, memory: dict[object, Any]) -> Iterator[Decision]:
    """Judge the nodes on which something failed since the last pass."""
    seen = memory.get("failures seen", 0)
    memory["failures seen"] = len(trouble.news)
    for index in dict.fromkeys(trouble.news[seen:] if seen <= len(trouble.news) else trouble.news):
        streak = trouble.streaks.get(index)
        if streak is None or index in state.drained or not state.room.alive >> index & 1:
            continue
        judged = memory.get(("judged", index), 0)
        if judged <= len(streak) < judged * LOOK_AGAIN:
            continue
        memory["judged", index] = len(streak)
        if why := why_bad(state, trouble, index):
            if not _is_needed(state, index):
                yield DrainNode(state.now, index, why, "fails")
        elif (why := why_suspicious(state, trouble, index)) and not _is_needed(state, index):
            yield DrainNode(state.now, index, why, "suspect")


def _suspected(state: State, trouble: Trouble, memory: dict[object, Any]) -> Iterator[Decision]:
    """A verdict costs by tasks. It stays as it is while nothing ends that has to do with it and somebody still tries."""
    for index in list(trouble.suspects):
        signs = (len(trouble.news), trouble.done_of_its_steps(state, index))
        known: tuple[object, Launch] | None = memory.get(("suspected", index))
        if known is not None and known[0] == signs and state.running.get(known[1].task) is known[1]:
            continue
        if (tries := who_tries_elsewhere(state, trouble, index)) is not None:
            memory["suspected", index] = (signs, tries)
        if why := proves_done_elsewhere(state, trouble, index):
            yield DrainNode(state.now, index, why, "fails")
        elif why := why_innocent(state, trouble, index):
            yield ResumeNode(state.now, index, why)


def _is_needed(state: State, index: int) -> bool:
    """Whether it is the last node that may be used."""
    return not state.room.alive & ~(1 << index | state.drained_nodes)


def use_what_is_left(state: State) -> Iterator[ResumeNode]:
    """Nothing runs and nothing comes, but tasks are ready: nodes that were only taken out for their failures serve again."""
    asked = set(state.drained_names)
    over = 0 if state.lifetimes is None else state.lifetimes.over
    if state.scaling is not None:
        over |= state.scaling.released_nodes
        if state.keeping is not None and state.keeping.moving:  # what shall go is being emptied
            over |= sum(1 << index for index in state.scaling.sent_away)
    for index in list(state.drained):
        if state.room.nodes[index].name not in asked and not over >> index & 1:
            yield ResumeNode(state.now, index, "nothing else is left that could run what is ready")


def end_what_cannot_be_done(state: State, lifetimes: Lifetimes, open_ended: bool) -> Iterator[Decision]:
    """Nothing runs, and no node is on its way: end the run in order when what is left fits in no node's remaining time.

    `open_ended`: more studies may come, so it goes on until the last node has to be empty.
    """
    if lifetimes.over and not state.room.alive & ~lifetimes.over:
        if state.unfinished or open_ended:
            yield EndRun(state.now, "the allocation is over" + _too_long_for_kinds(state))
        return
    if open_ended or not state.totals[Phase.READY]:
        return
    blocked: tuple[float, int] | None = None
    unserved: list[int] = []
    if len(state.homes) > 1:
        from cantle.core.unmakeable import queues_that_nobody_serves

        unserved = queues_that_nobody_serves(state)
    for number, queue in enumerate(state.queues):
        if queue.head() is None or number in unserved:
            continue
        seconds, task = _shortest(state, queue)
        if _could_run(state, lifetimes, queue, seconds) and not why_never_as(state, queue.shape):
            return
        if blocked is None or seconds < blocked[0]:
            blocked = (seconds, task)
    if blocked is not None:
        yield EndRun(state.now, _why_over(state, lifetimes, *blocked))


def end_what_waits_in_vain(state: State, lifetimes: Lifetimes) -> Iterator[Decision]:
    """Nodes have gone, nothing runs, and nothing is about to happen of itself: what is left waits for nodes like those.

    Called when all that could be decided was, and nobody wants to be asked again later.
    """
    changing = any(p.agent and (p.closing or p.standing != Standing.ACTIVE) for p in state.partitions.living.values())
    if lifetimes.over and state.unfinished and not (changing or state.running or state.drained_names):
        yield EndRun(state.now, "the allocation is over: what is left needs nodes that have gone")


def _shortest(state: State, queue: ReadyQueue) -> tuple[float, int]:
    """How many seconds its shortest ready task needs, and which that is."""
    return min((needs_s(state, task), task) for task in queue.ready())


def _too_long_for_kinds(state: State) -> str:
    """Which ready task takes longer than any node that could be asked for may work, as the end of a sentence; "" for none."""
    ledger = state.scaling
    left = [_shortest(state, queue) for queue in state.queues if queue.head() is not None]
    if ledger is None or not left:
        return ""
    from cantle.core.scaling.capacity import useful_s

    seconds, task = min(left)
    longest = max(ledger.kinds.values(), key=lambda kind: useful_s(state, kind), default=None)
    if longest is None or seconds <= useful_s(state, longest):
        return ""
    return (
        f" for what is left: {state.tasks[task].name} needs {in_words(seconds)}, and a node of kind {longest.name} may work "
        f"for {in_words(useful_s(state, longest))}, as it lasts {in_words(longest.lasts_s)}"
    )


def _could_run(state: State, lifetimes: Lifetimes, queue: ReadyQueue, seconds: float) -> bool:
    """Whether the nodes would do for that long if they were empty."""
    able = state.room.could_ever_hold(queue.shape.needs) & ~lifetimes.over
    return (able & ~lifetimes.leave_before(state.now + seconds)).bit_count() >= queue.shape.needs.nodes


def _why_over(state: State, lifetimes: Lifetimes, seconds: float, task: int) -> str:
    name = state.tasks[task].name
    leaving = [index for index in indexes(state.room.alive & ~lifetimes.over) if index in lifetimes.leaves]
    last = max(leaving, key=lambda index: (lifetimes.leaves[index], -index), default=None)
    if last is None:
        return f"the allocation is over: the nodes that are left cannot hold {name}"
    left = lifetimes.leaves[last] - state.now
    return (
        f"the allocation is over for what is left: {name} needs {in_words(seconds)}, "
        f"and {state.room.nodes[last].name}, the last to go, has {in_words(left)}"
    )
