"""What do the records about nodes mean that end, are drained, or make trouble?

A drained node stays in its room, but what is free on it is withheld, and so is what becomes free: nobody who looks for room
need know of it. A node that goes after it was drained, or about when its allocation ends, goes as planned: what still ran
there was interrupted, and nobody counts that against the task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cantle.core.lifetimes import Lifetimes
from cantle.core.trouble import MOST_FLAPS, Trouble
from cantle.model import records as r
from cantle.model.resources import Needs, Node, indexes

if TYPE_CHECKING:
    from cantle.core.state import State

TRIES = 3
"""On so many nodes it is tried to start a task before its not starting counts as its own fault."""


def joined(state: State, index: int, node: Node) -> None:
    """A node is there of which more is to be known: it ends, or nodes of its name were drained or lost before."""
    if node.ends_at:
        _lifetimes(state).joined(index, state.now, node.ends_at)
    if node.name in state.drained_names:
        drain(state, index, state.drained_names[node.name])
    if state.trouble is not None and state.trouble.flaps.get(node.name, 0) >= MOST_FLAPS:
        state.trouble.newcomers[index] = None


def lost(state: State, index: int, reason: str) -> bool:
    """A node is gone. Whether that was planned."""
    if state.scaling is None or index not in state.scaling.released:
        from cantle.core.losses import Loss

        state.lost_nodes[index] = Loss(state.now, reason)
    planned = state.drained.pop(index, None) is not None
    state.drained_nodes &= ~(1 << index)
    if state.lifetimes is not None:
        planned = state.lifetimes.lost(index, state.now) or planned
    if not planned and index in state.room.nodes:
        state.trouble = state.trouble or Trouble()
        state.trouble.lost(state.room.nodes[index].name, state.now - state.joined_at.get(index, 0.0))
    if state.trouble is not None:
        state.trouble.forget(index)
    return planned


def all_gone(state: State) -> None:
    """Another conductor goes on, with nodes of its own."""
    state.drained.clear()
    state.drained_nodes = 0
    state.drained_names.clear()
    state.shunned.clear()
    state.lost_nodes.clear()
    state.trouble = None
    if state.scaling is not None:
        state.scaling.gone()
    if state.lifetimes is not None:
        state.lifetimes.gone()


def drain(state: State, index: int, why: str) -> None:
    """Nothing more begins on the node."""
    if not state.room.alive >> index & 1:
        return
    state.drained[index] = why
    state.drained_nodes |= 1 << index
    state.room.withhold(index)
    for partition in state.partitions.living.values():
        partition.room.withhold(index)
    forgive(state)
    state.version += 1


def forgive(state: State) -> None:
    """Where a task could not be started, it may be tried again when no other node is left that could hold it."""
    if not state.shunned:
        return
    able: dict[Needs, int] = {}
    for task, shunned in list(state.shunned.items()):
        needs = state.step_of(task).needs
        if needs not in able:
            able[needs] = able_to_hold(state, needs)
        if not able[needs] & ~shunned:
            del state.shunned[task]


def able_to_hold(state: State, needs: Needs) -> int:
    """The nodes, as bits, that could hold that if nothing else ran: not drained, and not with partitions."""
    room = state.room
    able = room.could_ever_hold(needs) & ~state.drained_nodes
    if not state.partitions.living:
        return able
    for index in indexes(able):
        cores, gpus = room.capacity[index]
        for partition in state.partitions.living.values():
            theirs = partition.room.capacity.get(index, (0, 0))
            cores, gpus = cores & ~theirs[0], gpus & ~theirs[1]
        wanted = room.nodes[index].cores if needs.whole_nodes else needs.cores
        if cores.bit_count() < wanted or gpus.bit_count() < needs.gpus:
            able ^= 1 << index
    return able


def may_start_elsewhere(state: State, task: int, launch: r.Launch) -> bool:
    """Where an attempt could not be started, and whether another node is left to try; then the task shuns this one."""
    if launch.partition >= 0 or len(launch.on) != 1:
        return False
    shunned = state.shunned.get(task, 0) | 1 << launch.on[0].node
    if not able_to_hold(state, state.step_of(task).needs) & ~shunned or shunned.bit_count() >= TRIES:
        state.shunned.pop(task, None)
        return False
    state.shunned[task] = shunned
    state.choosy = True
    return True


def cut_off(state: State, task: int, launch: r.Launch, begun: bool) -> None:
    """An attempt was interrupted. If its node went as planned, remember how long it had; one that can restart shall."""
    lifetimes = state.lifetimes
    if lifetimes is None or not begun or not any(lifetimes.over >> place.node & 1 for place in launch.on):
        return
    if state.step_of(task).restartable:
        state.restart_next.add(task)
    else:
        lifetimes.was_cut_off(task, state.ended_at[task] - state.launched_at[task])


def _lifetimes(state: State) -> Lifetimes:
    if state.lifetimes is None:
        state.lifetimes = Lifetimes()
        state.choosy = True
    return state.lifetimes


# What each record means. Called by `State.apply`.


def _drain_asked(state: State, record: r.NodeDrainAsked) -> None:
    why = f"{'taken away' if record.goes else 'drained'}{f' by {record.by}' if record.by else ''}"
    if not record.goes:
        state.drained_names[record.node] = why
    for index in indexes(state.room.alive):
        if state.room.nodes[index].name == record.node and not _is_over(state, index):
            drain(state, index, why)
            if record.goes and state.scaling is not None:
                state.scaling.send_away(index)


def _resume_asked(state: State, record: r.NodeResumeAsked) -> None:
    state.drained_names.pop(record.node, None)
    if state.trouble is not None:
        state.trouble.flaps.pop(record.node, None)
    for index in list(state.drained):
        if state.room.nodes[index].name != record.node:
            continue
        if state.scaling is not None:
            state.scaling.drained_before.pop(index, None)
        if not _is_over(state, index):
            use_again(state, index)


def _drain_time_set(state: State, record: r.DrainTimeSet) -> None:
    _lifetimes(state).drain_s = record.drain_s


def _drain_node(state: State, record: r.DrainNode) -> None:
    if not state.room.alive >> record.node & 1:
        return  # a journal with a gap
    drain(state, record.node, record.why)
    if record.cause == "retires":
        from cantle.core.scaling.ledger import ledger_of

        ledger_of(state).retiring[record.node] = record.time
    if record.cause == "ends" and state.lifetimes is not None:
        state.lifetimes.ends_now(record.node)
        if state.keeping is not None:
            state.keeping.leaves(record.node)
        for task in state.running_on.get(record.node, ()):
            if task not in state.being_stopped:
                state.to_stop.setdefault(task, "interrupted")
    if state.trouble is not None:
        state.trouble.newcomers.pop(record.node, None)
        state.trouble.suspects.pop(record.node, None)
        if record.cause == "suspect":
            state.trouble.suspects[record.node] = None


def _resume_node(state: State, record: r.ResumeNode) -> None:
    if record.node in state.drained and not _is_over(state, record.node):
        use_again(state, record.node)


def use_again(state: State, index: int) -> None:
    """The node is not drained any more."""
    del state.drained[index]
    state.drained_nodes ^= 1 << index
    if state.scaling is not None:
        state.scaling.stays(index)
    state.room.release(index)
    for partition in state.partitions.living.values():
        if partition.retiring.get(index, True):  # what is to leave it takes nothing more, drained or not
            partition.room.release(index)
    state.feasibility_version += 1
    if state.trouble is not None:
        state.trouble.forget(index)
    state.version += 1


def _is_over(state: State, index: int) -> bool:
    """Whether the node is about to go, for good."""
    if state.scaling is not None and index in state.scaling.released:
        return True
    return state.lifetimes is not None and bool(state.lifetimes.over >> index & 1)


def _give_up_node(state: State, record: r.GiveUpNode) -> None:
    if state.lifetimes is not None:
        state.lifetimes.overdue.pop(record.node, None)
    if state.scaling is not None:
        state.scaling.overdue.pop(record.node, None)


def _end_run(state: State, record: r.EndRun) -> None:
    state.stopping = record.why
    state.expired = True
    state.version += 1


RULES: dict[type, Callable[[State, Any], None]] = {
    r.NodeDrainAsked: _drain_asked,
    r.NodeResumeAsked: _resume_asked,
    r.DrainTimeSet: _drain_time_set,
    r.DrainNode: _drain_node,
    r.ResumeNode: _resume_node,
    r.GiveUpNode: _give_up_node,
    r.EndRun: _end_run,
}
