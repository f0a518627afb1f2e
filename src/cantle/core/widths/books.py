"""What does the choice of widths know of one study, from pass to pass? Its ready and running tasks, and the course it is on.

The books follow the moves that the state notes, so a pass costs by what has changed. They can be made anew from the state
at any time. A course (`robust`) is set for the whole rest of the study as soon as enough durations are known, and set
again when a fifth of what was left is over; without one, dispatch goes by what is ready.
"""

from __future__ import annotations

from msgspec import structs

from cantle.core.observed import Observed
from cantle.core.phases import FINAL, Phase
from cantle.core.plan import Plan
from cantle.core.room import Room
from cantle.core.state import State
from cantle.core.widths.dispatch import BLIND, Dispatch
from cantle.core.widths.expected import Expected
from cantle.core.widths.graph import Graph
from cantle.core.widths.robust import Course, course
from cantle.core.widths.tables import Table, rigid
from cantle.model.resources import Needs

REPLANNED_AFTER = 0.2
"""A course is set again when this share of the tasks that were left at the last time is over."""
KNOWN_ENOUGH = 0.5
"""A course is set when the durations of this share of the tasks are known."""
MOST_PLANNED = 5000
"""Of more tasks no course is set: that would hold up the run for more than a second."""
_LEAST_LEFT = 0.1
"""What runs is expected to go on for at least this share of its expected duration."""


class Books:
    """One study in one room."""

    def __init__(self, plan: Plan, study: int, seen: Observed) -> None:
        self.study = study
        self.seen = seen
        self.queues = frozenset(n for n in plan.queues if plan.state.queues[n].shape.study == study)
        self._group_of: dict[int, int] = {}
        self._needs: list[Needs] = []
        for number in sorted(self.queues):
            share = structs.replace(plan.state.queues[number].shape.needs, nodes=1)
            if share not in self._needs:
                self._needs.append(share)
            self._group_of[number] = self._needs.index(share)
        self.course: dict[int, tuple[int, float, float]] = {}
        """Of each task of the course: its least width, priority and tail in seconds."""
        self._setting: tuple[object, ...] = ()
        self._left = 0
        self._over = 0
        self._followed = 0
        self._learned = 0
        self._most: dict[int, int] = {}
        self._slots = 0
        self._expected = Expected(seen, 1.0)
        self._running: dict[int, tuple[int, float]] = {}
        self.dispatch = Dispatch(1, BLIND)

    # Following the state

    def follow(self, plan: Plan) -> None:
        """Take in what has moved since the last time; set the course, if it is time for that."""
        state = plan.state
        moves = self.seen.moves
        setting = (state.feasibility_version, plan.room.alive, state.awaited)
        if setting != self._setting:
            self._setting = setting
            self._begin(plan)
            return
        if self._followed == len(moves):
            return
        moved = dict.fromkeys(moves[self._followed :])
        self._followed = len(moves)
        self._over += sum(state.phases[task] == Phase.DONE for task in moved)
        if self._over and self._over >= REPLANNED_AFTER * self._left:
            self._begin(plan)
        elif (known := sum(n for n, _ in self.seen.means.values())) >= 2 * self._learned and known != self._learned:
            self._begin(plan, replan=not self.course)
        else:
            for task in moved:
                self._place(state, task)

    def settle(self, state: State, tasks: list[int]) -> None:
        """Take in what was decided, and that the others of these tasks were not started after all."""
        moves = self.seen.moves
        for task in dict.fromkeys([*moves[self._followed :], *tasks]):
            self._place(state, task)
        self._followed = len(moves)

    def _begin(self, plan: Plan, replan: bool = True) -> None:
        """Make everything anew."""
        state, room = plan.state, plan.room
        self._followed = len(self.seen.moves)
        self._learned = sum(n for n, _ in self.seen.means.values())
        tasks = state.studies[self.study].tasks
        rest = [task for task in tasks if state.phases[task] not in FINAL]
        mine = [task for task in rest if state.shape_of_step[state.tasks[task].step] in self.queues]
        self._slots = max(1, room.cores)
        self._most = {n: _able(room, state.queues[n].shape.needs) for n in sorted(self.queues)}
        known = [state.tasks[task].estimate_s for task in mine if state.tasks[task].estimate_s > 0]
        self._expected = Expected(self.seen, sum(known) / len(known) if known else self._usual_s())
        if replan:
            self._left, self._over = len(rest), 0
            self.course = {}
            manner = BLIND
            if len(mine) == len(rest) <= MOST_PLANNED and not state.awaited and self._knows_enough(state, mine):
                found = self._set_course(state, mine)
                if found is not None:
                    manner = found.manner
            self.dispatch = Dispatch(self._slots, manner)
        else:
            self.dispatch = Dispatch(self._slots, self.dispatch.manner)
        self._running = {}
        for task in mine:
            if state.phases[task] != Phase.WAITING:
                self._place(state, task)

    def _usual_s(self) -> float:
        seen = [(n, mean) for (_, _, estimated), (n, mean) in self.seen.means.items() if not estimated]
        total = sum(n for n, _ in seen)
        return sum(n * mean for n, mean in seen) / total if total else 1.0

    def _knows_enough(self, state: State, mine: list[int]) -> bool:
        known = sum(self._expected.knows(state.step_of(task), state.tasks[task]) for task in mine)
        return bool(mine) and known >= KNOWN_ENOUGH * len(mine)

    def _place(self, state: State, task: int) -> None:
        """Let the books say of the task what is true now."""
        row = state.tasks[task]
        number = state.shape_of_step[row.step]
        if number not in self.queues:
            return
        dispatch = self.dispatch
        launch = state.running.get(task)
        running = self._running.get(task)
        if running is not None and (launch is None or launch.attempt != running[0]):
            dispatch.over(task)
            del self._running[task]
        if (state.phases[task] == Phase.READY) != (task in dispatch):
            if task in dispatch:
                dispatch.gone(task)
            else:
                self._make_ready(state, task, number)
        if launch is not None and task not in self._running:
            width = max(1, len(launch.on))
            end = self._expected_end(state, task, width)
            self._running[task] = (launch.attempt, end)
            dispatch.begun(task, width * self.weight(state, number), end)

    def _make_ready(self, state: State, task: int, number: int) -> None:
        table = self.table(state, task)
        shape = state.queues[number].shape
        planned = self.course.get(task)
        if planned is None:
            rank = state.ranks[task]
            level, priority, tail = 0, rank, max(0.0, rank - table.times[0])
        else:
            least, priority, tail = planned
            level = level_of(table, least)
        self.dispatch.ready(
            task,
            table,
            level,
            priority,
            tail,
            group=self._group_of[number],
            weight=self.weight(state, number),
            urgency=shape.priority,
        )

    # What it knows

    def free(self, plan: Plan) -> dict[int, int]:
        """By group of the dispatch, on how many nodes its tasks fit now; 0 when the study's throttle lets none start."""
        study = plan.state.studies[self.study]
        throttle = study.limits.throttle
        if throttle and study.in_progress >= throttle:
            return {}
        return {group: plan.room.fitting(share).bit_count() for group, share in enumerate(self._needs)}

    def table(self, state: State, task: int) -> Table:
        """The task's expected times on the widths that it may have here."""
        row = state.tasks[task]
        return self._expected.table(row.step, state.steps[row.step], row, self._most[state.shape_of_step[row.step]])

    def seconds(self, state: State, task: int, width: int) -> float:
        """How long the task is expected to take on so many nodes."""
        table = self.table(state, task)
        return table.times[level_of(table, width)]

    def weight(self, state: State, queue: int) -> int:
        """How many of the room's cores a task of the queue takes on each of its nodes."""
        needs = state.queues[queue].shape.needs
        if not needs.whole_nodes:
            return needs.cores
        return max(needs.cores, self._slots // max(1, self._most[queue]))

    def _expected_end(self, state: State, task: int, width: int) -> float:
        table = self.table(state, task)
        expected = table.times[level_of(table, width)]
        return max(state.launched_at[task] + expected, state.now + _LEAST_LEFT * expected)

    # The course

    def _set_course(self, state: State, mine: list[int]) -> Course | None:
        """Plan all that is left: tasks that run begin it, rigid and as wide as they are."""
        places = {task: place for place, task in enumerate(mine)}
        parents: list[list[int]] = []
        tables: list[Table] = []
        pinned: set[int] = set()
        for place, task in enumerate(mine):
            row = state.tasks[task]
            launch = state.running.get(task)
            weight = self.weight(state, state.shape_of_step[row.step])
            if launch is not None:
                width = max(1, len(launch.on))
                left = self._expected_end(state, task, width) - state.now
                tables.append(rigid(min(self._slots, width * weight), left))
                pinned.add(place)
                parents.append([])
                continue
            own = self.table(state, task)
            if weight * own.widths[-1] > self._slots:
                return None  # it waits for more nodes, or for somebody to refuse it
            tables.append(own if weight == 1 else Table([weight * width for width in own.widths], own.times))
            parents.append(sorted({places[p] for p in (*row.parents, *row.after) if p in places}))
        found = course(Graph(parents, tables, frozenset(pinned)), self._slots)
        for place, task in enumerate(mine):
            if place not in pinned:
                width = self.table(state, task).widths[found.levels[place]]
                self.course[task] = (width, found.priorities[place], found.tails[place])
        return found


def level_of(table: Table, width: int) -> int:
    """The highest level that is not wider."""
    level = 0
    while level + 1 < len(table.widths) and table.widths[level + 1] <= width:
        level += 1
    return level


def _able(room: Room, needs: Needs) -> int:
    """On how many nodes of the room a share of the needs could be."""
    return room.could_ever_hold(needs).bit_count()
