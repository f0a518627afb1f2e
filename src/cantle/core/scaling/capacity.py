"""Could nodes that are there, are on their way, or may yet be asked for ever hold a task? If not, what is missing?

As long as one kind could, the task waits. What no kind can hold is refused at once, since nothing will ever change that.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from cantle.core.lifetimes import DRAIN_S, DRAIN_SHARE, in_words, needs_s
from cantle.core.phases import UNSTARTED, Phase
from cantle.core.queues import ReadyQueue
from cantle.core.room import shortage
from cantle.core.scaling.ledger import room_for_more
from cantle.model.kinds import Kind
from cantle.model.records import Decision, Refuse
from cantle.model.resources import Needs, count

if TYPE_CHECKING:
    from cantle.core.state import State

DEPTH = 16
"""So many of a queue's most urgent tasks are looked at for one that is short."""


def useful_s(state: State, kind: Kind) -> float:
    """For how long at most a task may run on a new node of the kind, seconds: until it has to be empty."""
    if not kind.lasts_s:
        return inf
    drain_s = state.lifetimes.drain_s if state.lifetimes is not None else -1.0
    if drain_s < 0:
        drain_s = min(DRAIN_S, DRAIN_SHARE * kind.lasts_s)
    return kind.lasts_s - drain_s


def can_hold(state: State, kind: Kind, needs: Needs, walltime_s: float = 0.0) -> bool:
    """Whether an empty node of the kind could hold one node's share of that, for that long.

    As those of the kind are that are there; before one is, as the kind was declared.
    """
    if walltime_s > useful_s(state, kind):
        return False
    up = 0 if state.scaling is None else state.scaling.up.get(kind.name, 0)
    if up:
        return shortage(state.room.nodes[up.bit_length() - 1], needs) == ""
    return kind.could_hold(needs)


def could_ever_be_there(state: State, needs: Needs, walltime_s: float = 0.0) -> float:
    """How many nodes that could hold a share of that may be there at once, with all that may be asked for."""
    able = able_now(state, needs, walltime_s)
    ledger = state.scaling
    if ledger is None:
        return able.bit_count()
    total: float = 0
    for kind in ledger.kinds.values():
        up = ledger.up.get(kind.name, 0)
        there = (able & up).bit_count()
        able &= ~up
        if can_hold(state, kind, needs, walltime_s):
            coming = ledger.coming(kind.name)
            there += coming
            stay = there if kind.removes or kind.lasts_s else up.bit_count() + coming  # others of it may make way
            total += there + (room_for_more(kind, stay) if ledger.can_add(kind) else 0)
        else:
            total += there
    return total + able.bit_count()


def able_now(state: State, needs: Needs, walltime_s: float = 0.0) -> int:
    """The nodes that are there, as bits, that could hold a share of that if they were empty, and stay for so long."""
    able = state.room.could_ever_hold(needs)
    if state.lifetimes is not None:
        able &= ~(state.lifetimes.leave_before(state.now + walltime_s) | state.lifetimes.over)
    return able if state.scaling is None else able & ~state.scaling.released_nodes


def keeps_what_fits_nowhere(state: State) -> bool:
    """Whether tasks that could never run here are kept: the run's first nodes end, and it may go on with others."""
    if state.lifetimes is None or state.scaling is None:
        return False
    ending = state.lifetimes.over | sum(1 << index for index in state.lifetimes.ends)
    return bool(ending & ~state.scaling.brought)


def refuse_what_no_node_will_hold(state: State) -> Iterator[Decision]:
    """Fail the tasks that neither what is there nor what may be asked for could ever hold."""
    from cantle.core.scaling.imagined import why_never_in_its_place

    if keeps_what_fits_nowhere(state):
        return
    hopeless: dict[int, str] = {}
    for step, number in enumerate(state.shape_of_step):
        counts = state.counts[step]
        if (counts[Phase.WAITING] or counts[Phase.READY]) and not state.studies[state.study_of_step[step]].over:
            shape = state.queues[number].shape
            described = state.steps[step]
            if shape.partition or state.is_sliced(shape):
                why = why_never_in_its_place(state, shape, described.walltime_s)
            else:
                why = why_never(state, described.needs, described.walltime_s)
            if why and state.lost_nodes:
                from cantle.core.losses import told_of_losses

                why += told_of_losses(state, shape)
            if why:
                hopeless[step] = why
    if not hopeless:
        return
    for task, phase in enumerate(state.phases):
        if phase in UNSTARTED and (verdict := hopeless.get(state.tasks[task].step)):
            yield Refuse(state.now, task, verdict)


def may_come(state: State) -> bool:
    """Whether nodes are on their way, or one may be asked for that could hold something that is ready."""
    ledger = state.scaling
    if ledger is None:
        return False
    if ledger.open:
        return True
    kinds = [kind for kind in ledger.kinds.values() if ledger.can_add(kind)]
    if not kinds:
        return False
    for needs, width, seconds, _ in what_is_ready(state):
        if any(can_hold(state, kind, needs, seconds) for kind in kinds):
            able = (able_now(state, needs, seconds) & ~state.drained_nodes).bit_count()
            if able < width <= could_ever_be_there(state, needs, seconds):
                return True
    return False


def shortest(state: State, queue: ReadyQueue) -> tuple[float, int]:
    """How much time the one of the queue's most urgent tasks must be given that needs least, seconds, and which it is."""
    return min((needs_s(state, task), task) for task in queue.first(DEPTH))


def why_too_long(state: State) -> str:
    """Why nothing that is ready will ever begin: no node stays so long. "" when that is not what all of it waits for."""
    told = ""
    for queue in state.queues:
        if queue.head() is None:
            continue
        seconds, task = shortest(state, queue)
        placed = queue.shape.partition or state.is_sliced(queue.shape)
        if placed or could_ever_be_there(state, queue.shape.needs, seconds) >= queue.shape.needs.nodes:
            return ""
        told = told or f"{state.tasks[task].name} needs {in_words(seconds)}, and no node stays so long"
    return told


def what_is_ready(state: State) -> Iterator[tuple[Needs, int, float, str]]:
    """Who could ask for nodes: what each needs of a node, of how many, for how long, and what people call it.

    Who lacks a partition asks for none: a partition does, once somebody wants it.
    """
    from cantle.core.scaling.idle import partitions_wanted

    for number in state.homes[""]:
        queue = state.queues[number]
        if queue.head() is not None:
            needs = queue.shape.needs
            least_s, task = shortest(state, queue)
            yield needs, needs.nodes, least_s, state.tasks[task].name
    if not (wanted := partitions_wanted(state)):
        return
    from cantle.core.scaling.imagined import scattered

    for needs, width in (*((needs, width) for needs, width, _ in wanted), *scattered(state)):
        yield needs, width, 0.0, "a task that runs in a partition"


def to_spare(state: State, kind: Kind, index: int = -1) -> float:
    """How many nodes of the kind may go, so that all that is ready could still be held: infinite if all may.

    `index`: this node is to go; what it could not hold does not miss it.
    """
    ledger = state.scaling
    found = inf
    for needs, width, walltime_s, _ in what_is_ready(state) if ledger is not None and state.totals[Phase.READY] else ():
        if ledger is not None and can_hold(state, kind, needs, walltime_s):
            able = able_now(state, needs, walltime_s) & ~state.drained_nodes
            if index >= 0 and not able >> index & 1:
                continue
            coming = sum(
                request.coming
                for request in ledger.open.values()
                if (of := ledger.kinds.get(request.kind)) is not None and can_hold(state, of, needs, walltime_s)
            )
            found = min(found, max(0, able.bit_count() + coming - width))
    return found


def is_missed_for_ever(state: State, kind: Kind) -> bool:
    """Whether a node of the kind that goes could not come again, and something that has not begun needs as many as there are.

    It could not where no more can be added, or where there are more now than there may be.
    """
    ledger = state.scaling
    if ledger is None:
        return False
    up = ledger.up.get(kind.name, 0)
    if ledger.can_add(kind) and room_for_more(kind, up.bit_count() + ledger.coming(kind.name) - 1) > 0:
        return False
    going = sum(up >> index & 1 for index in (*ledger.retiring, *ledger.sent_away))
    for step, counts in enumerate(state.counts):
        if counts[Phase.WAITING] or counts[Phase.READY]:
            needs, walltime_s = state.steps[step].needs, state.steps[step].walltime_s
            left = could_ever_be_there(state, needs, walltime_s) - going - 1
            if left < needs.nodes and can_hold(state, kind, needs, walltime_s):
                return True
    return False


def why_never(state: State, needs: Needs, walltime_s: float = 0.0) -> str:
    """Why so much can never be met, for so long, "" when it can: with the largest node and the largest kind."""
    could = could_ever_be_there(state, needs, walltime_s)
    if could >= needs.nodes:
        return ""
    what = f"needs {needs}" + (f" for {in_words(walltime_s)}" if walltime_s else "")
    if could:
        return f"{what}; at most {count(int(could), 'node')} that could hold a share of it may be there at once"
    parts = []
    alive = state.nodes_alive()
    if alive:
        largest = max(
            alive, key=lambda node: (not needs.kind or node.kind == needs.kind, node.cores, node.gpus, node.memory_mib)
        )
        lack = shortage(largest, needs) or "has to be empty sooner"
        parts.append(f"the largest node, {largest}, {lack}")
    else:
        parts.append("there is no node")
    parts.append(_why_no_kind(state, needs, walltime_s))
    return "; ".join((what, *filter(None, parts)))


def _why_no_kind(state: State, needs: Needs, walltime_s: float) -> str:
    """What the kind that comes closest lacks."""
    ledger = state.scaling
    if ledger is None or not ledger.kinds:
        return "no kind of node can be asked for"
    kinds = list(ledger.kinds.values())
    roomy = [kind for kind in kinds if can_hold(state, kind, needs)]
    if not roomy:
        largest = max(
            kinds, key=lambda kind: (not needs.kind or kind.name == needs.kind, kind.cores, kind.gpus, kind.memory_mib)
        )
        node = largest.node(f"kind {largest.name}")
        return f"of the kinds that can be asked for the largest, {node}, {shortage(node, needs)}"
    lasting = [kind for kind in roomy if walltime_s <= useful_s(state, kind)]
    if not lasting:
        longest = max(roomy, key=lambda kind: useful_s(state, kind))
        return (
            f"a node of kind {longest.name} lasts {in_words(longest.lasts_s)} and has to be empty "
            f"{in_words(longest.lasts_s - useful_s(state, longest))} before that"
        )
    kind = lasting[0]
    if not kind.adds:
        if kind.provider == "nobody":
            return f"nobody is declared who brings nodes of kind {kind.name}: say so as in `provider: local`, or slurm"
        return f"its provider cannot add nodes of kind {kind.name}"
    if not ledger.refusals.get(kind.name) and not ledger.headroom(kind):
        return f"there may be no more nodes of kind {kind.name}"
    detail = next((request.detail for request in reversed(ledger.requests) if request.kind == kind.name), "")
    return f"{count(ledger.refusals.get(kind.name, 0), 'request')} for nodes of kind {kind.name} brought none" + (
        f": {detail}" if detail else ""
    )


def why_waits(state: State, task: int, now: float = 0.0) -> str:
    """For which node a ready task waits that nothing there could hold, as a sentence; "" when something could.

    `now`, 0 for the last record's time.
    """
    from cantle.core.scaling.awaited import what_was_said, when_expected

    ledger = state.scaling
    step = state.step_of(task)
    needs, walltime_s = step.needs, step.walltime_s
    if ledger is None or able_now(state, needs, walltime_s).bit_count() >= needs.nodes:
        return ""
    able = [kind for kind in ledger.kinds.values() if can_hold(state, kind, needs, walltime_s) and ledger.can_add(kind)]
    if not able:
        return ""
    now = max(now, state.now)
    told = []
    for kind in able:
        for request in ledger.open.values():
            if request.kind == kind.name:
                when, said = when_expected(request, now), what_was_said(request, now)
                said = f" ({said})" if said else ""
                told.append(f"{count(request.coming, 'node')} of kind {kind.name} on the way{when}{said}")
    if told:
        return f"It needs {needs}, which no node that is there could hold: {'; '.join(told)}."
    names = " or ".join(kind.name for kind in able)
    return (
        f"It needs {needs}, which no node that is there could hold; it waits for one of kind {names} to be asked for."
    )
