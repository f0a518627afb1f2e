"""For which wide task is room kept, and what may start in the meantime?

Narrow tasks fill every core that becomes free, and a task on several cores or nodes would wait until they run out. So room is
kept for one such task at a time: it is expected to fit at some time, the shadow, and until then only those start that are
expected to be over by then, or that take what the wide one does not need. Not nodes are kept but a count of them: of those
that will have the cores by then, all but as many as it needs are spare. Where durations are estimated by nobody and known of
no other task of the shape, a task counts as one that ends after the shadow.

Within one study room is kept only for what decides when the study ends: a task whose chain is long against the work that is
left, and only when it can be foreseen how long. For others it does not pay, since room that is held free idles.
"""

from __future__ import annotations

from math import inf

from cantle.core.forecast import expected_end, expected_s
from cantle.core.packing import PlacesFor
from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.queues import ReadyQueue
from cantle.core.room import Room
from cantle.core.state import State
from cantle.core.studies import StudyState
from cantle.model.resources import Needs, Place, indexes

CRITICAL = 0.35
"""Room is kept within a study when a task's chain takes so large a part of the time that all that is left needs."""
DEPTH = 16
"""So many tasks of a queue are looked at to find one that is over by then."""
LOOKS = 64
"""So many tasks are looked at like that in a pass."""
LOOK_AGAIN = 4
"""After a reckoning comes none until a record has come for one in so many running tasks, so that what a task costs does not
grow with them."""

_NEVER = 1e18
"""Stands for the end of what nobody knows anything of: later than all that is known, but it comes."""


class Kept:
    """Room kept for `task`, as it was reckoned in one pass.

    At `shadow` it is expected to fit on any of `nodes` (bits), `spare_nodes` more than it needs; on each of them are some
    spare cores beside it.
    """

    def __init__(self, task: int, shadow: float, nodes: int, spare_nodes: int, spare_cores: dict[int, int]) -> None:
        self.task = task
        self.shadow = shadow
        self.nodes = nodes
        self.spare_nodes = spare_nodes
        self.spare_cores = spare_cores
        """Nodes, as bits, by how many cores they have to spare."""
        self.looks = LOOKS

    @property
    def foreseen(self) -> bool:
        """Whether anybody can tell when the task will fit."""
        return self.shadow < _NEVER

    def places(
        self, plan: Plan, task: int, places_for: PlacesFor, needs: Needs | None = None
    ) -> tuple[Place, ...] | None:
        """Where another task may start now without being in the way, None when nowhere. `needs`: if not its step's."""
        needs = needs or plan.state.step_of(task).needs
        room = plan.room_for(task)
        found = places_for(room, needs)
        if found is None:
            return None
        barred = self._barred(plan.state, task, needs)
        return places_for(room.within(~barred), needs) if barred else found

    def shorter(self, state: State, queue: ReadyQueue) -> list[int]:
        """Behind the head of the queue, which would be in the way: the next ones that are over by then."""
        if self.looks <= 0:
            return []
        found = queue.first(DEPTH)
        self.looks -= len(found)
        return [task for task in found if self._over_by_then(state, task)]

    def took(self, state: State, task: int, places: tuple[Place, ...]) -> None:
        """Another task starts there now."""
        if self._over_by_then(state, task):
            return
        needs = state.step_of(task).needs
        for place in places:
            bit = 1 << place.node
            if not self.nodes & bit:
                continue
            spare = next(n for n, nodes in self.spare_cores.items() if nodes & bit)
            self.spare_cores[spare] &= ~bit
            left = -1 if needs.whole_nodes else spare - needs.cores
            if left >= 0:
                self.spare_cores[left] = self.spare_cores.get(left, 0) | bit
            else:
                self.nodes &= ~bit
                self.spare_nodes -= 1

    def _over_by_then(self, state: State, task: int) -> bool:
        return state.now + expected_s(state, task) <= self.shadow

    def _barred(self, state: State, task: int, needs: Needs) -> int:
        """The nodes, as bits, that the task must leave alone."""
        if needs.nodes <= self.spare_nodes or self._over_by_then(state, task):
            return 0
        barred = 0
        for spare, nodes in self.spare_cores.items():
            if spare < needs.cores or needs.whole_nodes:
                barred |= nodes
        return barred & self.nodes


def kept_before(plan: Plan, queue: ReadyQueue, task: int, not_before: float = 0.0) -> Kept | None:
    """The room to keep for the task, from an earlier pass as long as that is fresh. Asked once in a pass.

    None: it can never fit here, or another task was reckoned for just now. `not_before`: it becomes ready only then.
    """
    room = _room_number(plan)
    kept: Kept | None = plan.memory.get(("kept", room))
    version = plan.state.version
    if version < plan.memory.get(("reckon from", room), 0):
        if kept is None or kept.task != task:
            return None
    else:
        plan.memory["reckon from", room] = version + len(plan.state.running) // LOOK_AGAIN
        kept = plan.memory["kept", room] = _reckon(plan, queue.shape.needs, task, not_before)
    if kept is not None:
        kept.looks = LOOKS
    return kept


def kept_for(plan: Plan) -> int | None:
    """For which task room was kept in the last pass."""
    kept: Kept | None = plan.memory.get(("kept", _room_number(plan)))
    return None if kept is None else kept.task


def let_go(plan: Plan) -> None:
    """Keep no room any more."""
    plan.memory.pop(("kept", _room_number(plan)), None)


def decides_the_end(plan: Plan, queue: ReadyQueue) -> bool:
    """Whether the head of the queue begins a chain that is long against the time that all cores need for what is left."""
    rank = -queue.heap[0][0]
    key = ("work left", _room_number(plan))
    known: tuple[int, float] | None = plan.memory.get(key)
    version = plan.state.version
    if known is None or version >= known[0]:
        cores = plan.cores()
        left = work_left_s(plan, queue.shape.study) / cores if cores else inf
        known = plan.memory[key] = (version + len(plan.state.running) // LOOK_AGAIN, left)
    return rank > CRITICAL * known[1]


def _room_number(plan: Plan) -> int:
    return -1 if plan.partition is None else plan.partition.number


def work_left_s(plan: Plan, study: int) -> float:
    """Core seconds that the study needs yet, in the estimates by which its tasks are ranked."""
    state = plan.state
    total = 0.0
    for step, mean in _means(plan, study).items():
        counts = state.counts[step]
        unstarted = counts[Phase.WAITING] + counts[Phase.READY]
        running = counts[Phase.LAUNCHED] + counts[Phase.RUNNING]
        total += (unstarted + running / 2) * mean * state.steps[step].needs.area
    return total


class _Means:
    """The mean estimate of a study's tasks by step, of so many of them. A study that grows is taken in piece by piece."""

    __slots__ = ("by_step", "counts", "digest", "known", "told_s", "unknown")

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.known = 0
        self.counts: dict[int, int] = {}
        self.unknown: dict[int, int] = {}
        """Of so many of them nobody knows how long they take."""
        self.told_s: dict[int, float] = {}
        self.by_step: dict[int, float] = {}

    def follow(self, state: State, study: StudyState) -> None:
        """Take in the tasks that are new."""
        for own in range(self.known, study.known):
            row = state.tasks[study.tasks.number(own)]
            self.counts[row.step] = self.counts.get(row.step, 0) + 1
            self.told_s[row.step] = self.told_s.get(row.step, 0.0) + row.estimate_s
            if not row.estimate_s:
                self.unknown[row.step] = self.unknown.get(row.step, 0) + 1
        self.known = study.known
        estimated = sum(self.counts.values()) - sum(self.unknown.values())
        usual_s = sum(self.told_s.values()) / estimated if estimated else 1.0
        self.by_step = {
            step: (self.told_s[step] + self.unknown.get(step, 0) * usual_s) / n for step, n in self.counts.items()
        }


def _means(plan: Plan, number: int) -> dict[int, float]:
    """The mean estimate of the study's tasks by step; where there is none what stands for it in the ranks."""
    study = plan.state.studies[number]
    means: _Means | None = plan.memory.get(("means", number))
    if means is None or means.digest != study.digest:
        means = plan.memory["means", number] = _Means(study.digest)
    if means.known != study.known:
        means.follow(plan.state, study)
    return means.by_step


def _able(plan: Plan, needs: Needs) -> int:
    key = ("able", _room_number(plan), needs)
    version = (plan.state.feasibility_version, plan.room.alive)
    known: tuple[object, int] | None = plan.memory.get(key)
    if known is None or known[0] != version:
        known = plan.memory[key] = (version, plan.room.could_ever_hold(needs))
    return known[1]


def _reckon(plan: Plan, needs: Needs, task: int, not_before: float) -> Kept | None:
    state = plan.state
    room = plan.room
    able = _able(plan, needs)
    leaves: dict[int, float] = {}
    if state.choosy:
        from cantle.core.lifetimes import latest_starts

        leaves = latest_starts(state, task)
        able &= ~state.shunned.get(task, 0)
    fitting = 0
    for found in room.by_cores[needs.cores :]:
        fitting |= found
    fitting &= able
    if needs.whole_nodes:
        fitting &= room.untouched
    ends = {index: _ends(plan, index) for index in indexes(able) if index in state.running_on}
    shadow = max(state.now, not_before)
    if leaves:
        late = sum(1 << index for index, at in leaves.items() if at < shadow)
        able &= ~late
        fitting &= ~late
    missing = needs.nodes - fitting.bit_count()
    if missing > 0:
        times = sorted(_time_of(room, index, needs, ends.get(index, [])) for index in indexes(able & ~fitting))
        if len(times) < missing or times[missing - 1] == inf:
            return None
        shadow = max(shadow, times[missing - 1])
    if leaves:
        able &= ~sum(1 << index for index, at in leaves.items() if at < shadow)
        if able.bit_count() < needs.nodes:
            return None  # until enough of them are free, others leave
    nodes = 0
    spare_cores: dict[int, int] = {}
    for index in indexes(able):
        free = room.free_cores[index].bit_count() + sum(cores for end, cores in ends.get(index, ()) if end <= shadow)
        spare = free - _needed(room, index, needs)
        if spare >= 0:
            nodes |= 1 << index
            spare_cores[spare] = spare_cores.get(spare, 0) | 1 << index
    return Kept(task, shadow, nodes, nodes.bit_count() - needs.nodes, spare_cores)


def _needed(room: Room, index: int, needs: Needs) -> int:
    return room.nodes[index].cores if needs.whole_nodes else needs.cores


def _ends(plan: Plan, index: int) -> list[tuple[float, int]]:
    """When what runs on the node in this room is expected to end, and how many cores each gives back; soonest first."""
    state = plan.state
    number = _room_number(plan)
    found = []
    for task in state.running_on[index]:
        launch = state.running[task]
        if launch.partition == number and not state.stands_in_line(task):
            end = expected_end(state.now, state.launched_at[task], expected_s(state, task))
            found.append((min(end, _NEVER), _needed(plan.room, index, state.step_of(task).needs)))
    found.sort()
    return found


def _time_of(room: Room, index: int, needs: Needs, ends: list[tuple[float, int]]) -> float:
    """When the node is expected to have room for a share of `needs`; infinite when it never has."""
    free = room.free_cores[index].bit_count()
    for end, cores in ends:
        free += cores
        if free >= _needed(room, index, needs):
            return end
    return inf
