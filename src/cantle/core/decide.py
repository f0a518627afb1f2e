"""What shall be done now? The policies in their order, asked only when something changed that may matter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cantle.core.packing import best_fit, is_ours
from cantle.core.phases import UNSTARTED, Phase
from cantle.core.plan import Plan, Policy
from cantle.core.queues import Shape
from cantle.core.room import Room, shortage
from cantle.core.state import State
from cantle.model.records import Decision, EndRun, Launch, Refuse, Stop
from cantle.model.resources import Needs, count, indexes

if TYPE_CHECKING:
    from cantle.core.granting import Granting
    from cantle.core.nearness import Nearness
    from cantle.core.scaling.seam import Scaler
    from cantle.core.scaling.settings import Scaling

MOST_ORDERED = 5000
"""Where there are more tasks they go by rank: to look for a better order would hold up the run."""


class Decider:
    """Asks the policies: what to refuse, what to end, and, unless the run is being stopped, what to start.

    It remembers which version of the state it has seen, and what policies want to know again. It may be thrown away and
    made anew at any time.
    `lines`: short tasks may stand in line behind each other, which the engine has to understand. `orders`: tasks may be let go
    in another order than by rank; with a packer that is not ours they are not.
    A packer that is not ours is watched: `decide` raises PluginError, which calls it by `name`, when it breaks a rule.
    """

    def __init__(self, packer: Policy = best_fit, name: str = "", lines: bool = True, orders: bool = True) -> None:
        self.lines = lines
        self.orders = orders and is_ours(packer)
        if not is_ours(packer):
            from cantle.core.guard import guarded

            packer = guarded(packer, name)
        self.packer = packer
        self._seen = -1
        self._seen_feasibility = -1
        self._memory: dict[object, Any] = {}
        self._granting: Granting | None = None
        self._next_leave = math.inf
        self.open_ended = False
        """More studies may come: what cannot be done here does not end the run before its nodes end."""
        self.scaling: Scaling | None = None
        """How the run grows and shrinks, where kinds of node are declared. None: as the defaults say."""
        self.scalers: Mapping[str, Scaler] = {}
        """Those that `scaling` names and that are not ours."""
        self.scaler: Scaler | None = None
        """Who is asked about nodes, once kinds are declared. None: whoever `scaling` names."""

    @property
    def wakes_at(self) -> float:
        """When there may be something to decide although nothing happens, in the records' time; infinite for never."""
        wakes_at = self._wakes_without_scaler
        if "scaling wakes at" in self._memory:
            wakes_at = min(wakes_at, self._memory["scaling wakes at"])
        return wakes_at

    @property
    def _wakes_without_scaler(self) -> float:
        wakes_at = self._next_leave if self._granting is None else min(self._next_leave, self._granting.wakes_at)
        if "rescuing wakes at" in self._memory:
            wakes_at = min(wakes_at, self._memory["rescuing wakes at"])
        nearness: Nearness | None = self._memory.get("nearness")
        return wakes_at if nearness is None else min(wakes_at, nearness.wakes_at)

    def decide(self, state: State) -> Iterator[Decision]:
        """The decisions, one by one. Each must be applied before the next is asked for."""
        while state.version != self._seen:
            yield from self._pass(state)
            if state.feasibility_version == self._seen_feasibility:
                self._seen = state.version  # otherwise what was decided may have made something impossible: look again

    def _pass(self, state: State) -> Iterator[Decision]:
        if state.feasibility_version != self._seen_feasibility:
            self._seen_feasibility = state.feasibility_version
            yield from refuse_what_can_never_run(Plan(state))
            if state.partitions.all and len(state.homes) > 1:
                from cantle.core.unmakeable import refuse_what_is_left_behind

                yield from refuse_what_is_left_behind(state)
            if self.orders and _may_be_ordered(state):
                from cantle.core.ordering import reorder

                yield from reorder(Plan(state, memory=self._memory))
        plan = Plan(state, memory=self._memory)
        if state.stopping:  # those who wanted to be woken are not asked any more
            self._memory.pop("scaling wakes at", None)
            self._memory.pop("rescuing wakes at", None)
        if "nearness" in self._memory:
            self._memory["nearness"].wakes_at = math.inf
        if state.lifetimes is not None or state.trouble is not None or (state.scaling and state.scaling.overdue):
            from cantle.core.tending import tend

            yield from tend(state, self._memory)
        if state.keeping is not None and state.keeping.has_files and not state.stopping:
            from cantle.core.gathering import gather

            yield from gather(state)
        if state.keeping is not None and state.lifetimes is not None and not state.stopping:
            from cantle.core.rescuing import rescue

            yield from rescue(state, self._memory)
        if state.to_stop:
            yield from stop_what_shall_stop(plan)
        if state.partitions.living or any(study.added.partitions for study in state.living.values()):
            from cantle.core.carving import carve

            yield from carve(state)
        if self._granting is not None or any(study.added.slicing is not None for study in state.living.values()):
            yield from self._grant(state)
        if not state.stopping:
            yield from self.packer(plan)
            if state.partitions.living:
                yield from self._pack_partitions(state)
        if self.lines and state.short_shapes and not state.stopping:
            from cantle.core.lines import let_short_tasks_stand_in_line, let_successors_stand_in_line

            yield from let_short_tasks_stand_in_line(plan)
            if not state.totals[Phase.READY]:
                yield from let_successors_stand_in_line(plan)
        if state.scaling is not None and not state.stopping:
            yield from self._scale(plan)
        self._next_leave = _when_nodes_go(state)
        if state.totals[Phase.READY] and not state.running and len(state.homes) > 1 and _is_stuck(state):
            from cantle.core.unmakeable import refuse_what_nobody_makes

            for refusal in refuse_what_nobody_makes(state, self._wakes_without_scaler == math.inf):
                yield refusal
                self._seen_feasibility = -1  # partitions that waited for that may end now: look again
        if (state.drained or state.lifetimes is not None or state.scaling is not None) and not (
            state.running or state.awaited or state.stopping or _more_may_come(state)
        ):
            yield from self._conclude(state)
        if state.stopping and not state.running:
            self._next_leave = math.inf  # what is left to happen decides nothing any more

    def _scale(self, plan: Plan) -> Iterator[Decision]:
        from cantle.core.scaling.seam import WAKES_AT

        self._memory[WAKES_AT] = math.inf
        if self.scaler is None:
            from cantle.core.scaling.naming import scaler_of
            from cantle.core.scaling.settings import Scaling

            self.scaler = scaler_of(self.scaling or Scaling(), lambda: self.open_ended, self.scalers)
        yield from self.scaler(plan)

    def _conclude(self, state: State) -> Iterator[Decision]:
        """Nothing runs, nothing is on its way, and nodes are drained or end: is this the end of what can be done here?"""
        from cantle.core.tending import end_what_cannot_be_done, end_what_waits_in_vain, use_what_is_left

        if state.drained and state.totals[Phase.READY]:
            for again in use_what_is_left(state):
                yield again
                self._memory["used again", again.node] = tuple(state.totals)
        if state.lifetimes is not None:
            yield from end_what_cannot_be_done(state, state.lifetimes, self.open_ended)
        elif state.scaling is not None and state.totals[Phase.READY] and not self.open_ended:
            from cantle.core.scaling.capacity import why_too_long

            if why := why_too_long(state):
                yield EndRun(state.now, f"the allocation is over for what is left: {why}")
        if (
            state.lifetimes is not None
            and not (state.stopping or self.open_ended)
            and self._wakes_without_scaler == math.inf
        ):
            yield from end_what_waits_in_vain(state, state.lifetimes)

    def _pack_partitions(self, state: State) -> Iterator[Decision]:
        from cantle.core.partitions import queues_of

        for partition in list(state.partitions.living.values()):
            if partition.serves and partition.element is None and not partition.room.full:
                queues = queues_of(state, partition.key)
                if any(state.queues[number].heap for number in queues):
                    yield from self.packer(Plan(state, partition, queues, self._memory))

    def _grant(self, state: State) -> Iterator[Decision]:
        if self._granting is None:
            from cantle.core.granting import Granting

            self._granting = Granting()
        yield from self._granting.decide(state, self._memory)


def _when_nodes_go(state: State) -> float:
    """When the next node has to be empty, or is given up; infinite when none is."""
    at = math.inf if state.lifetimes is None else state.lifetimes.next_leave()
    return at if state.scaling is None else min(at, min(state.scaling.overdue.values(), default=math.inf))


def _may_be_ordered(state: State) -> bool:
    """All tasks and most nodes are there, some tasks wait for others, and somebody has estimated how long they take."""
    if not state.totals[Phase.WAITING] or state.stopping or state.growing or len(state.tasks) > MOST_ORDERED:
        return False
    if 4 * state.awaited > state.room.alive.bit_count():
        return False
    return any(task.estimate_s > 0 for task in state.tasks)


def _is_stuck(state: State) -> bool:
    """Nothing runs, and nothing is on its way."""
    return not (state.awaited or state.stopping or _more_may_come(state))


def _more_may_come(state: State) -> bool:
    """Nodes were asked for, or one may be that could hold something that is ready."""
    if state.scaling is None:
        return False
    from cantle.core.scaling.capacity import may_come

    return may_come(state)


def stop_what_shall_stop(plan: Plan) -> Iterator[Decision]:
    """End the attempts that a cancellation, a stop of the run or fail-fast wants ended."""
    state = plan.state
    for task, outcome in list(state.to_stop.items()):
        launch = state.running.get(task)
        if launch is not None:
            why = state.stopping or _why_drained(state, launch)
            yield Stop(state.now, task, launch.attempt, outcome, why, state.at_once)


def _why_drained(state: State, launch: Launch) -> str:
    """What became of a node on which the attempt runs, "" when nothing."""
    found = [place.node for place in launch.on if place.node in state.drained] if state.drained else []
    return f"{state.room.nodes[found[0]].name}: {state.drained[found[0]]}" if found else ""


def refuse_what_can_never_run(plan: Plan) -> Iterator[Decision]:
    """Fail the tasks for which no node here, and none on its way, could ever have the room."""
    state = plan.state
    if state.scaling is not None and not (state.awaited or state.stopping):
        from cantle.core.scaling.capacity import refuse_what_no_node_will_hold

        yield from refuse_what_no_node_will_hold(state)
        return
    if state.awaited or state.stopping or (state.lifetimes is not None and state.lifetimes.over):
        return  # where nodes ended, what fits nowhere may fit when the run is resumed on others like them
    hopeless = {}
    for number, queue in enumerate(state.queues):
        why = "" if state.studies[queue.shape.study].over else why_never_as(state, queue.shape)
        if why:
            hopeless[number] = why
    if not hopeless:
        return
    for task, phase in enumerate(state.phases):
        if phase in UNSTARTED:
            verdict = hopeless.get(state.shape_of_step[state.tasks[task].step])
            if verdict and state.phases[task] in UNSTARTED:
                yield Refuse(state.now, task, verdict)


def why_never_as(state: State, shape: Shape, room: Room | None = None) -> str:
    """Why tasks of this shape can never run with what is there, "" when they can, or when that is not known.

    `room`: the nodes, if others are to be looked at than those that are there.
    """
    why = _why_never_as(state, shape, room or state.room)
    if why and room is None and state.lost_nodes:
        from cantle.core.losses import told_of_losses

        return why + told_of_losses(state, shape)
    return why


def _why_never_as(state: State, shape: Shape, room: Room) -> str:
    if not shape.partition:
        slicing = state.studies[shape.study].added.slicing
        if slicing is not None and state.is_sliced(shape):
            from cantle.core.holdable import why_never_in_slices

            return why_never_in_slices(room, shape, slicing)
        return why_never(room, shape.needs)
    from cantle.core.unmakeable import why_never_in_partition

    return why_never_in_partition(state, shape, room)


def why_never(room: Room, needs: Needs) -> str:
    """Why these needs can never be met by the nodes that are there, "" when they can."""
    able = room.could_ever_hold(needs).bit_count()
    if able >= needs.nodes:
        return ""
    alive = [room.nodes[index] for index in indexes(room.alive)]
    if not alive:
        return f"needs {needs}; there is no node left, and none is on its way"
    if able:
        return f"needs {needs}; only {count(able, 'node')} of {len(alive)} could hold a share of it"
    largest = max(
        alive, key=lambda node: (not needs.kind or node.kind == needs.kind, node.cores, node.gpus, node.memory_mib)
    )
    return f"needs {needs}; the largest node, {largest}, {shortage(largest, needs)}"
