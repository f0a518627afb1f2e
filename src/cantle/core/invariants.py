"""Is the state consistent with itself? Everything that must always hold, counted anew from scratch.

Costs by tasks and nodes: for tests, which ask after each record, and for a bug report.
"""

from __future__ import annotations

from cantle.core.phases import ACTIVE, FINAL, OVER, UNSTARTED, Phase
from cantle.core.state import State
from cantle.errors import CantleBug
from cantle.model.resources import list_to_mask


def check(state: State) -> None:
    """Raise CantleBug with what is broken."""
    _counts_agree(state)
    _running_is_what_is_active(state)
    _every_slot_is_accounted_for(state)
    _lines_pass_on_what_their_owner_has(state)
    _blockers_agree(state)
    _ready_tasks_stand_in_their_queue(state)


def _counts_agree(state: State) -> None:
    for phase in Phase:
        _require(state.totals[phase] == sum(p == phase for p in state.phases), f"total of {phase.name}")
        _require(state.totals[phase] == sum(row[phase] for row in state.counts), f"counts by step of {phase.name}")
    for number, study in enumerate(state.studies):
        running = sum(state.study_of_step[state.tasks[task].step] == number for task in state.running)
        _require(study.in_progress == running, f"tasks in progress of study {study.added.name}")


def _running_is_what_is_active(state: State) -> None:
    active = {task for task, phase in enumerate(state.phases) if phase in ACTIVE}
    _require(active == set(state.running), "running tasks are those in an active phase")
    for task, launch in state.running.items():
        _require(launch.task == task and launch.attempt == state.attempts[task], f"attempt of task {task}")
        nodes = {place.node for place in launch.on}
        step = state.step_of(task)
        allowed = step.widths or (step.needs.nodes,)
        whole = not launch.on or (len(nodes) == len(launch.on) and len(nodes) in allowed)
        _require(whole, f"task {task} runs on all of its nodes")  # or on unknown ones, where a journal had a gap
        for place in launch.on:
            _require(task in state.running_on.get(place.node, ()), f"task {task} is listed on its node")
    listed = {task for found in state.running_on.values() for task in found}
    _require(listed <= active, "tasks listed on nodes run")
    _require(active.issuperset(state.to_stop), "only what runs is to be stopped")
    _require(active.issuperset(state.being_stopped), "only what runs is being stopped")
    doubly = [task for task, outcome in state.to_stop.items() if state.being_stopped.get(task) == outcome]
    _require(state.at_once or not doubly, f"tasks {doubly} are asked to stop twice")


def _every_slot_is_accounted_for(state: State) -> None:
    room = state.room
    owned_cores = [0] * len(room.nodes)
    owned_gpus = [0] * len(room.nodes)
    memory = [0] * len(room.nodes)
    named = [dict(node.named) for node in room.nodes]
    for task, launch in state.running.items():
        line = state.lines.get(task)
        if line is not None and line.owner != task:
            continue
        needs = state.step_of(task).needs
        for place in launch.on:
            cores, gpus = list_to_mask(place.cores), list_to_mask(place.gpus)
            _require(not owned_cores[place.node] & cores, f"task {task} shares a core of node {place.node}")
            _require(not owned_gpus[place.node] & gpus, f"task {task} shares a GPU of node {place.node}")
            _require(cores.bit_count() >= needs.cores, f"task {task} has fewer cores than it needs")
            _require(gpus.bit_count() >= needs.gpus, f"task {task} has fewer GPUs than it needs")
            owned_cores[place.node] |= cores
            owned_gpus[place.node] |= gpus
            memory[place.node] += needs.memory_mib
            for name, n in needs.named:
                named[place.node][name] -= n
            if needs.whole_nodes:
                _require(
                    all(t == task or state.lines.get(t) is line is not None for t in state.running_on[place.node]),
                    f"task {task} has node {place.node} to itself",
                )
    for index, node in enumerate(room.nodes):
        bit = 1 << index
        if not room.alive & bit:
            _require(not owned_cores[index], f"something runs on node {index}, which is gone")
            listed = [room.untouched, *room.by_cores, *room.by_gpus, *room.of_kind.values()]
            _require(not any(nodes & bit for nodes in listed), f"node {index} is gone, but still listed")
            continue
        _require(room.free_cores[index] ^ owned_cores[index] == (1 << node.cores) - 1, f"cores of node {index}")
        _require(room.free_gpus[index] ^ owned_gpus[index] == (1 << node.gpus) - 1, f"GPUs of node {index}")
        _require(room.free_memory[index] + memory[index] == node.memory_mib, f"memory of node {index}")
        _require(room.free_memory[index] >= 0, f"memory of node {index} is promised twice")
        _require(room.free_named[index] == named[index], f"named things of node {index}")
        _require(all(n >= 0 for n in named[index].values()), f"named things of node {index} are promised twice")
        for counted, free in ((room.by_cores, room.free_cores[index]), (room.by_gpus, room.free_gpus[index])):
            stands = [n for n, nodes in enumerate(counted) if nodes & bit]
            _require(stands == [free.bit_count()], f"node {index} stands under {stands}")
        idle = not owned_cores[index]
        _require(bool(room.untouched & bit) == idle, f"node {index} is {'idle' if idle else 'in use'}")


def _lines_pass_on_what_their_owner_has(state: State) -> None:
    for task, line in state.lines.items():
        _require(task in state.running, f"task {task} stands in a line and is in progress")
        _require(line.owner == task or task in line.waiting, f"task {task} stands in its line")
        _require(line.owner in state.running, f"the owner of task {task}'s line is in progress")
        _require(state.running[task].on == state.running[line.owner].on, f"task {task} waits for its line's places")
        _require(state.queue_of(task) is state.queue_of(line.owner), f"task {task} is of its line's kind")
    for queue in state.queues:
        owners = [
            t
            for t in state.running
            if state.queue_of(t) is queue and (t not in state.lines or state.lines[t].owner == t)
        ]
        _require(queue.slots == len(owners), "attempts that own room are counted")
        _require(set(queue.short_lines) <= set(owners), "only what owns room has a line behind it")


def _blockers_agree(state: State) -> None:
    for number, task in enumerate(state.tasks):
        if state.phases[number] in UNSTARTED:
            open_ = sum(state.phases[p] != Phase.DONE for p in task.parents)
            open_ += sum(state.phases[p] not in OVER for p in task.after)
            _require(state.blockers[number] == open_, f"task {number} waits for {open_}")
            _require((open_ == 0) == (state.phases[number] == Phase.READY), f"task {number} is ready iff unblocked")
            doomed = any(state.phases[p] in FINAL - {Phase.DONE} for p in task.parents)
            doomed |= any(state.phases[p] == Phase.CANCELED for p in task.after)
            _require(not doomed, f"task {number} waits for one that will never succeed")


def _ready_tasks_stand_in_their_queue(state: State) -> None:
    for queue in state.queues:
        standing = [task for _, task in queue.heap]
        _require(len(standing) == len(set(standing)), "a task stands twice in a queue")
        _require(all(state.queued[task] for task in standing), "tasks in queues are marked so")
    for task, phase in enumerate(state.phases):
        if phase == Phase.READY:
            _require(any(t == task for _, t in state.queue_of(task).heap), f"ready task {task} stands in its queue")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise CantleBug(f"invariant broken: {what}")
