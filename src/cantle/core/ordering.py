"""Do the ready tasks of a study go by rank, or in another order in which all would be over sooner?

By rank, all tasks of a level begin before anything of the next one. Where the work decides and not the longest chain, that
leaves cores idle between the levels and at the end; completing one family of tasks after the other overlaps them. Which is
better for this graph on these nodes, packing it on paper tells (`justified`). That is done when the study's tasks and the
nodes are known, and anew when they have changed much, and only where there is far more time to gain than it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from cantle.core.forecast import expected_end, expected_s
from cantle.core.justified import Work, better_order
from cantle.core.phases import FINAL, Phase
from cantle.core.plan import Plan
from cantle.core.state import State
from cantle.core.studies import StudyState
from cantle.model.records import Decision, OrderTasks
from cantle.model.resources import Needs, count

WORTH_S = 2e-3
"""Seconds for each task that there must be to gain: about twenty times what it takes to find out."""
KNOWN_ENOUGH = 0.9
"""Durations of this share of the tasks must be known."""
CHANGED = 0.25
"""An order is sought again when there are so many more or fewer cores than at the last time."""


def reorder(plan: Plan) -> Iterator[Decision]:
    """The policy: the order in which tasks shall go, where it is another than the one in which they go now."""
    state = plan.state
    study = _only_study(state)
    if study is None:
        return
    setting, cores = (study.tasks.stop, study.digest), plan.cores()
    known: tuple[object, int] | None = plan.memory.get("ordered for")
    if known is not None and known[0] == setting and abs(cores - known[1]) <= CHANGED * known[1]:
        return
    plan.memory["ordered for"] = (setting, cores)
    slots = _slots(state, study)
    if not slots:
        return
    tasks, running = _left(state, study)
    work = _work(state, tasks, running, slots) if len(tasks) - running > slots else None
    found = None if work is None else better_order(work, _by_rank(state, tasks, running), WORTH_S * len(tasks))
    if found is not None:
        why = f"all could be over in {found.makespan_s:.4g} s; with the longest chains first in {found.by_rank_s:.4g} s"
        yield OrderTasks(state.now, [tasks[place] for place in found.tasks[running:]], why)
    elif state.ordered:
        yield OrderTasks(
            state.now, [], f"where {count(slots, 'task')} can run at once, no other order is clearly better"
        )


def _only_study(state: State) -> StudyState | None:
    """The study that has all nodes to itself, if its tasks are known and may run on any of them, each in one way."""
    if state.observed or state.partitions.living:
        return None
    if len(state.living) != 1:
        return None
    study = next(iter(state.living.values()))
    elsewhere = study.added.slicing is not None or study.added.partitions
    return study if study.whole and not elsewhere else None


def _slots(state: State, study: StudyState) -> int:
    """How many of the study's tasks can run at once; 0 when they differ in size or urgency, or need more than cores."""
    shapes = {
        state.queues[state.shape_of_step[step]].shape
        for step in study.step_numbers
        if state.counts[step][Phase.WAITING] or state.counts[step][Phase.READY]
    }
    if len({(shape.needs.cores, shape.priority) for shape in shapes}) != 1:
        return 0
    if any(shape.partition or not _is_plain(shape.needs) for shape in shapes):
        return 0
    cores = shapes.pop().needs.cores
    nodes = state.room.nodes
    usable = [nodes[index] for index in nodes if state.room.alive >> index & 1 and index not in state.drained]
    slots = sum(node.cores // cores for node in usable)
    return min(slots, study.limits.throttle or slots)


def _is_plain(needs: Needs) -> bool:
    more = needs.gpus or needs.memory_mib or needs.named or needs.kind or needs.whole_nodes
    return needs.nodes == 1 and not more


def _left(state: State, study: StudyState) -> tuple[list[int], int]:
    """The tasks that are not over, those that were launched first, and how many these are."""
    left = [task for task in study.tasks if state.phases[task] not in FINAL]
    launched = [task for task in left if task in state.running]
    return launched + [task for task in left if task not in state.running], len(launched)


def _work(state: State, tasks: list[int], running: int, slots: int) -> Work | None:
    """What is left to do; None when too little is known of how long it takes."""
    expected = [expected_s(state, task) for task in tasks]
    known = [seconds for seconds in expected if seconds < inf]
    if len(known) < KNOWN_ENOUGH * len(tasks):
        return None
    usual = sum(known) / len(known)
    seconds = [one if one < inf else usual for one in expected]
    place_of = {task: place for place, task in enumerate(tasks)}
    parents: list[list[int]] = []
    for place, task in enumerate(tasks):
        row = state.tasks[task]
        if place < running:
            seconds[place] = expected_end(state.now, state.launched_at[task], seconds[place]) - state.now
            parents.append([])
        else:
            parents.append([place_of[parent] for parent in (*row.parents, *row.after) if parent in place_of])
    return Work(parents, seconds, slots, running)


def _by_rank(state: State, tasks: list[int], running: int) -> list[int]:
    """Places of the tasks in the order in which they go while none is set."""
    ranked = sorted(
        range(running, len(tasks)), key=lambda place: (-state.unordered_urgency_of(tasks[place]), tasks[place])
    )
    return [*range(running), *ranked]
