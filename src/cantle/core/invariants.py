"""Is the state consistent with itself? Everything that must always hold, counted anew from scratch.

Costs by tasks and nodes: for tests, which ask after each record, and for a bug report.
"""

from __future__ import annotations

from cantle.core.partitions import Partition
from cantle.core.phases import ACTIVE, FINAL, OVER, UNSTARTED, Phase
from cantle.core.room import Room
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.errors import CantleBug
from cantle.model.resources import Place, indexes, list_to_mask


def check(state: State) -> None:
    """Raise CantleBug with what is broken."""
    _counts_agree(state)
    _running_is_what_is_active(state)
    _every_slot_is_accounted_for(state)
    _bits_agree_with_the_nodes_they_stand_for(state)
    _partitions_hold_together(state)
    _lines_pass_on_what_their_owner_has(state)
    _blockers_agree(state)
    _ready_tasks_stand_in_their_queue(state)
    _what_is_needed_is_somewhere(state)


def _counts_agree(state: State) -> None:
    for phase in Phase:
        _require(state.totals[phase] == sum(p == phase for p in state.phases), f"total of {phase.name}")
        _require(state.totals[phase] == sum(row[phase] for row in state.counts), f"counts by step of {phase.name}")
    living = [number for number, study in enumerate(state.studies) if not study.over]
    _require(list(state.living) == living, "the studies that are not over")
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
    """Each slot of a room is free, or owned by one task; in the run's room also by one partition."""
    taken: dict[int, _Taken] = {-1: _Taken(state, state.room)}
    for partition in state.partitions.living.values():
        taken[partition.number] = _Taken(state, partition.room)
        for index in partition.nodes():
            taken[-1].by_partition(index, partition)
    for task, launch in state.running.items():
        line = state.lines.get(task)
        if line is None or line.owner == task:
            for place in launch.on:
                taken[launch.partition].by_task(task, place)
    for room in taken.values():
        room.agree()


def _bits_agree_with_the_nodes_they_stand_for(state: State) -> None:
    _require(indexes(state.drained_nodes) == sorted(state.drained), "the drained nodes as bits")
    _require(not state.drained_nodes & ~state.room.alive, "only nodes that are there are drained")
    if state.scaling is not None:
        _require(indexes(state.scaling.released_nodes) == sorted(state.scaling.released), "those given back as bits")
        _require(not state.scaling.released_nodes & ~state.drained_nodes, "nodes that were given back are drained")


class _Taken:
    """What of each node of a room is not free, counted anew."""

    def __init__(self, state: State, room: Room) -> None:
        self.state = state
        self.room = room
        self.cores = dict.fromkeys(room.nodes, 0)
        self.gpus = dict.fromkeys(room.nodes, 0)
        self.memory = dict.fromkeys(room.nodes, 0)
        self.named = {index: dict(node.named) for index, node in room.nodes.items()}

    def by_task(self, task: int, place: Place) -> None:
        """A task owns the place."""
        needs = self.state.step_of(task).needs
        cores, gpus = list_to_mask(place.cores), list_to_mask(place.gpus)
        _require(cores.bit_count() >= needs.cores, f"task {task} has fewer cores than it needs")
        _require(gpus.bit_count() >= needs.gpus, f"task {task} has fewer GPUs than it needs")
        self._add(f"task {task}", place.node, cores, gpus, needs.memory_mib, needs.named)
        if needs.whole_nodes:
            line = self.state.lines.get(task)
            here = self.state.running_on[place.node]
            alone = all(t == task or self.state.lines.get(t) is line is not None for t in here)
            _require(alone, f"task {task} has node {place.node} to itself")

    def by_partition(self, index: int, partition: Partition) -> None:
        """A partition owns these slots."""
        has, node = partition.room.capacity[index], partition.room.nodes[index]
        self._add(f"partition {partition.name}", index, *has, node.memory_mib, node.named)

    def _add(
        self, who: str, index: int, cores: int, gpus: int, memory_mib: int, named: tuple[tuple[str, int], ...]
    ) -> None:
        _require(bool(self.room.alive >> index & 1), f"{who} has node {index}, which is not there")
        _require(not self.cores[index] & cores, f"{who} shares a core of node {index}")
        _require(not self.gpus[index] & gpus, f"{who} shares a GPU of node {index}")
        self.cores[index] |= cores
        self.gpus[index] |= gpus
        self.memory[index] += memory_mib
        for name, n in named:
            self.named[index][name] = self.named[index].get(name, 0) - n

    def agree(self) -> None:
        """What the room says is free is all the rest."""
        room = self.room
        for index, node in room.nodes.items():
            bit = 1 << index
            if not room.alive & bit:
                _require(not self.cores[index], f"something runs on node {index}, which is gone")
                listed = [room.untouched, *room.by_cores, *room.by_gpus, *room.of_kind.values()]
                _require(not any(nodes & bit for nodes in listed), f"node {index} is gone, but still listed")
                continue
            cores, gpus = room.capacity[index]
            held_cores, held_gpus = room.withheld.get(index, (0, 0))
            _require(
                index not in room.withheld or not (room.free_cores[index] or room.free_gpus[index]),
                f"node {index} is drained",
            )
            _require(room.free_cores[index] ^ held_cores ^ self.cores[index] == cores, f"cores of node {index}")
            _require(room.free_gpus[index] ^ held_gpus ^ self.gpus[index] == gpus, f"GPUs of node {index}")
            _require(room.free_memory[index] + self.memory[index] == node.memory_mib, f"memory of node {index}")
            _require(room.free_memory[index] >= 0, f"memory of node {index} is promised twice")
            free = {name: n for name, n in room.free_named[index].items() if n}
            left = {name: n for name, n in self.named[index].items() if n}
            _require(free == left, f"named things of node {index}")
            _require(all(n >= 0 for n in left.values()), f"named things of node {index} are promised twice")
            for counted, having in ((room.by_cores, room.free_cores[index]), (room.by_gpus, room.free_gpus[index])):
                stands = [n for n, nodes in enumerate(counted) if nodes & bit]
                _require(stands == [having.bit_count()], f"node {index} stands under {stands}")
            idle = not self.cores[index] and index not in room.withheld
            _require(bool(room.untouched & bit) == idle, f"node {index} is {'idle' if idle else 'in use'}")


def _partitions_hold_together(state: State) -> None:
    of = state.partitions
    for partition in of.all:
        name = f"partition {partition.name} ({partition.number})"
        _require(of.all[partition.number] is partition, f"{name} stands under its number")
        runs = {task for task, launch in state.running.items() if launch.partition == partition.number}
        _require(runs == set(partition.running), f"{name} knows what runs in it")
        _require((of.by_name.get(partition.key) is partition) == (not partition.over), f"{name} is found by its name")
        living = partition.number in of.living
        _require(living or (partition.over and not partition.room.alive and not runs), f"{name} left nothing behind")
        _require(set(partition.retiring) <= set(partition.nodes()), f"{name} lets nodes go that it has")
        if partition.wish.engine and partition.standing == Standing.ACTIVE and not partition.lost_nodes:
            _require(bool(partition.room.alive >> partition.head & 1), f"{name} keeps the node of its head")
        if partition.standing in (Standing.NEW, Standing.PENDING):
            _require(not runs, f"nothing runs in {name} before it is open")
        if partition.over:
            _require(
                all(t in state.to_stop or t in state.being_stopped for t in runs), f"what runs in {name} is being ended"
            )
        for task in runs:
            shape = state.queue_of(task).shape
            ours = shape.partition == partition.name or partition.element is not None
            ours = ours and partition.is_seen_by(shape.study)
            _require(ours, f"task {task} of {shape.partition or 'no partition'} runs in {name}")


def _lines_pass_on_what_their_owner_has(state: State) -> None:
    for task, line in state.lines.items():
        _require(task in state.running, f"task {task} stands in a line and is in progress")
        _require(line.owner == task or task in line.waiting, f"task {task} stands in its line")
        _require(line.owner in state.running, f"the owner of task {task}'s line is in progress")
        _require(state.running[task].on == state.running[line.owner].on, f"task {task} waits for its line's places")
        _require(state.queue_of(task) is state.queue_of(line.owner), f"task {task} is of its line's kind")
    slots: dict[int, int] = {}
    for queue in state.queues:
        owners = [
            t
            for t in state.running
            if state.queue_of(t) is queue and (t not in state.lines or state.lines[t].owner == t)
        ]
        _require(queue.slots == len(owners), "attempts that own room are counted")
        cores = sum(len(state.running[t].on) * queue.shape.needs.cores for t in owners)
        slots[queue.shape.study] = slots.get(queue.shape.study, 0) + cores
        _require(set(queue.short_lines) <= set(owners), "only what owns room has a line behind it")
    for number, study in enumerate(state.studies):
        _require(study.slots == slots.get(number, 0), f"cores that study {study.added.name} owns")


def _blockers_agree(state: State) -> None:
    for number, task in enumerate(state.tasks):
        launch = state.running.get(number)
        begun_before = state.keeping is not None and not state.blockers[number]  # what it took may be made again now
        if launch is not None and launch.if_done and not begun_before:
            open_ = _open_blockers(state, number)
            _require(state.blockers[number] == open_, f"task {number} waits for {open_}")
            _require(not open_ or state.phases[number] == Phase.LAUNCHED, f"task {number} waits, and has not begun")
            ending = number in state.to_stop or number in state.being_stopped
            _require(open_ <= 1 or ending, f"task {number} waits for one alone")
            if open_:
                ahead = -1 if launch.behind is None else launch.behind
                waited_for = ahead in task.parents and state.phases[ahead] != Phase.DONE
                _require(waited_for, f"task {number} waits for the one behind which it was launched")
                in_turn = state.stands_in_line(number) or not state.awaits_its_turn(number)
                _require(in_turn or not state.running[ahead].on, f"task {number} has not its turn before that is done")
        if state.phases[number] in UNSTARTED:
            open_ = _open_blockers(state, number)
            _require(state.blockers[number] == open_, f"task {number} waits for {open_}")
            _require((open_ == 0) == (state.phases[number] == Phase.READY), f"task {number} is ready iff unblocked")
            doomed = any(state.phases[p] in FINAL - {Phase.DONE} for p in task.parents)
            doomed |= any(state.phases[p] == Phase.CANCELED for p in task.after)
            _require(not doomed, f"task {number} waits for one that will never succeed")


def _what_is_needed_is_somewhere(state: State) -> None:
    """No result that is needed is on no node: it is there, or being made again."""
    keeping = state.keeping
    if keeping is None:
        return
    alive = state.room.alive
    alone: dict[int, set[int]] = {}
    for task, result in keeping.results.items():
        nodes = keeping.nodes_with(task)
        _require(nodes & ~alive == 0, f"the result of task {task} is on nodes that are alive")
        _require(bool(nodes) == keeping.is_there(task), f"the result of task {task} is there iff it is on a node")
        users = {
            child
            for child in state.children[task] or ()
            if task in state.tasks[child].parents and state.phases[child] not in FINAL
        }
        _require(set(result.users) == users, f"who takes the result of task {task}")
        if state.phases[task] == Phase.DONE and not nodes:
            begun = all(state.phases[user] not in UNSTARTED for user in users)
            _require(not result.wanted and begun, f"the result of task {task} is needed, and nowhere")
        stays = nodes & ~sum(1 << index for index in keeping.leaving())
        if result.needed and stays:
            for index in indexes(stays):
                if keeping.nodes_sharing(index) & stays == stays:
                    alone.setdefault(index, set()).add(task)
        elif result.needed and nodes:  # of several that are about to go, one answers for it
            answers = [index for index in indexes(nodes) if task in keeping.alone_on(index)[0]]
            _require(bool(answers), f"who answers for the result of task {task}")
            _require(all(keeping.nodes_sharing(answers[0]) >> index & 1 for index in answers), f"one for {task}")
    for index in indexes(alive):
        tasks, size = keeping.alone_on(index)
        _require(size == sum(keeping.results[task].size for task in tasks), f"bytes alone on node {index}")
        shared = keeping.nodes_sharing(index) & ~sum(1 << other for other in keeping.leaving()) & ~(1 << index)
        expected = set() if shared else alone.get(index, set())
        _require(index in keeping.leaving() or set(tasks) == expected, f"what is alone on node {index}")


def _open_blockers(state: State, number: int) -> int:
    task = state.tasks[number]
    return sum(state.phases[p] != Phase.DONE for p in task.parents) + sum(
        state.phases[p] not in OVER for p in task.after
    )


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
