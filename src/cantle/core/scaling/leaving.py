"""Which nodes that are to go may go now, what is moved before, and who is told that a node is unused?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf

from cantle.core.moving import PAUSE_S, by_target, move_s, needed_for_s, stay_longest
from cantle.core.phases import FINAL, Phase
from cantle.core.plan import Plan
from cantle.core.scaling.idle import earmarked, is_empty, needed_alone_on, unused
from cantle.core.scaling.ledger import Ledger
from cantle.core.scaling.look import Look
from cantle.core.scaling.seam import WAKES_AT
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import Decision, DrainNode, MoveResults, NoticeIdle, ReleaseNode, ResumeNode
from cantle.model.resources import count, indexes

EMPTY = "it is empty, and nothing that is needed lives there alone"


def let_go(plan: Plan, settings: Scaling) -> Iterator[Decision]:
    """Give back nodes that retire, once they are empty and hold nothing that is needed; and drained ones after a while.

    So go nodes that somebody has sent away, sooner than their kind or the settings let others go.
    """
    state, ledger = plan.state, plan.state.scaling
    assert ledger is not None
    for index in (*ledger.retiring, *ledger.sent_away):
        if index in ledger.unreleasable or not is_empty(state, index):
            continue
        tasks, size = needed_alone_on(state, index)
        if not tasks:
            why = f"it is {state.drained[index]}, and empty" if index in ledger.sent_away else EMPTY
            yield ReleaseNode(state.now, index, why)
        elif index in ledger.sent_away and _waits_for_it_alone(state, ledger):
            yield ResumeNode(state.now, index, "what is ready needs what lives there, and can run nowhere else")
        else:
            yield from _move(plan, index, tasks, size)
    for index in indexes(state.drained_nodes & ~ledger.leaving()):
        if not _may_be_given_back(state, ledger, index):
            continue
        at = ledger.idle_since(state, index) + settings.idle_s
        if at > state.now:
            _wake(plan, at)
        else:
            yield ReleaseNode(state.now, index, f"nothing may begin on it: {state.drained[index]}")


def _waits_for_it_alone(state: State, ledger: Ledger) -> bool:
    """Something is ready, nothing runs, comes or is moved, and no node is left that may be used."""
    if state.running or ledger.open or not state.totals[Phase.READY]:
        return False
    if state.keeping is not None and state.keeping.moving:
        return False
    return not state.room.alive & ~state.drained_nodes


def free_of_others(look: Look, kind: Kind) -> Iterator[Decision]:
    """Nodes with GPUs that only serve what needs none, when no work for them is left and other nodes can serve that. (D4)"""
    state, ledger = look.state, look.ledger
    nodes = indexes(ledger.usable(state, kind.name)) if look.unstarted and kind.removes else []
    if not nodes or _gpu_work_is_left(state):
        return
    parted = 0  # what partitions have serves their own tasks alone, and is not taken from under them
    for partition in state.partitions.living.values():
        parted |= partition.room.alive
    others = state.room.alive & ~ledger.up.get(kind.name, 0) & ~state.drained_nodes & ~parted
    others = sum(1 << index for index in indexes(others) if not state.room.nodes[index].gpus)
    heads = [queue.shape.needs for queue in state.queues if queue.head() is not None]
    if not others or any((state.room.could_ever_hold(needs) & others).bit_count() < needs.nodes for needs in heads):
        return
    for index in nodes:
        if not parted >> index & 1 and state.now >= state.joined_at.get(index, 0.0) + look.settings.idle_s:
            yield DrainNode(state.now, index, "no work for its GPUs is left, and others can serve the rest", "retires")


def _gpu_work_is_left(state: State) -> bool:
    for step, counts in zip(state.steps, state.counts, strict=True):
        if step.needs.gpus and any(n and phase not in FINAL for phase, n in enumerate(counts)):
            return True
    return False


def _may_be_given_back(state: State, ledger: Ledger, index: int) -> bool:
    """Whether a node that is drained for another reason is of no use where it is."""
    kind = ledger.kinds.get(ledger.kind_of.get(index, ""))
    if kind is None or not kind.removes or index in ledger.unreleasable or not state.room.alive >> index & 1:
        return False
    if state.trouble is not None and index in state.trouble.suspects:
        return False
    return is_empty(state, index) and not needed_alone_on(state, index)[0]


def _move(plan: Plan, index: int, tasks: Collection[int], size: int) -> Iterator[Decision]:
    """Move the results that live there alone, unless those who need them are done before that.

    What could be brought to none of the nodes that were tried waits until it is not needed any more.
    """
    state, keeping = plan.state, plan.state.keeping
    paused_until = plan.memory.get(("moves paused", index), -inf)
    if state.now < paused_until:
        _wake(plan, paused_until)
        return
    targets = stay_longest(state, index)
    if keeping is None or not targets:
        return
    plan.memory["moves paused", index] = state.now + PAUSE_S
    if any(task in keeping.moving for task in tasks):
        return  # under way
    takes_s = move_s(size)
    if needed_for_s(state, keeping, tasks) <= takes_s:
        _wake(plan, state.now + takes_s)
        return
    for to, movable in by_target(keeping, tasks, targets).items():
        yield MoveResults(
            state.now,
            movable,
            index,
            to,
            f"{count(len(movable), 'result')} that live there alone are needed, and the node shall go",
        )


def notices(plan: Plan, settings: Scaling) -> Iterator[Decision]:
    """Tell of nodes that have been unused for a while, each once as long as it stays unused."""
    state, ledger = plan.state, plan.state.scaling
    assert ledger is not None
    for index in indexes(unused(state) & ~earmarked(state, settings.survivors_s)):
        since = ledger.idle_since(state, index)
        if ledger.is_noticed(state, index) or needed_alone_on(state, index)[0]:
            continue
        if state.now >= since + settings.notice_s:
            yield NoticeIdle(state.now, index, f"it has had no work for {state.now - since:.3g} s")
        else:
            _wake(plan, since + settings.notice_s)


def _wake(plan: Plan, at: float) -> None:
    plan.memory[WAKES_AT] = min(plan.memory.get(WAKES_AT, inf), at)
