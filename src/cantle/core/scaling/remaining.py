"""What is left to do, in a form that can be played through many times?

Tasks of the same step that stand equally far from the beginning are taken together, consecutive ones, into *bulks*: so many
tasks of the mean duration. Where few tasks are left a bulk is one task; where many are, a play costs by bulks and not by tasks.
Bulks are made once and then only counted anew, until their number has halved.
"""

from __future__ import annotations

from cantle.core.forecast import correction, expected_end
from cantle.core.phases import ACTIVE, FINAL, UNSTARTED, Phase
from cantle.core.queues import ReadyQueue
from cantle.core.state import State
from cantle.model.resources import Needs

BULKS = 600
"""So many bulks there are about, at most twice as many."""
SHORTEST_GUESS_S = 10.0
"""A task of which nobody knows anything is expected to take so long, or as long as another one has been running."""


class Bulks:
    """How tasks that are not over are taken together. Made from a state; `fits` tells whether it still serves."""

    def __init__(self, state: State, size: int, levels: list[int]) -> None:
        self.size = size
        self.known = len(state.tasks)
        self.members: list[list[int]] = []
        self.queue: list[int] = []
        """By bulk: the number of the queue of its tasks."""
        self.told_s: list[float] = []
        """The mean of what was estimated of its tasks, 0 where nothing was."""
        self.rank: list[float] = []
        self.children: list[list[int]] = []
        self.of: dict[int, int] = {}
        """By task: its bulk."""
        self.living: list[int] = []
        """Bulks of which not all tasks are over."""
        self._split(state, levels)
        self._join(state)

    def fits(self, state: State, size: int) -> bool:
        """Whether all tasks that are not over are in bulks, which are not too coarse by now."""
        return self.known == len(state.tasks) and size > self.size // 2

    def _split(self, state: State, levels: list[int]) -> None:
        tasks, phases, of, members = state.tasks, state.phases, self.of, self.members
        open_: dict[tuple[int, int], int] = {}
        for task, row in enumerate(tasks):
            if phases[task] in FINAL:
                continue
            key = (row.step, levels[task])
            bulk = open_.get(key, -1)
            if bulk < 0 or len(members[bulk]) >= self.size:
                bulk = open_[key] = len(members)
                members.append([])
            members[bulk].append(task)
            of[task] = bulk
        for found in members:
            told = [tasks[task].estimate_s for task in found if tasks[task].estimate_s > 0]
            self.told_s.append(sum(told) / len(told) if told else 0.0)
            self.rank.append(max(state.ranks[task] for task in found))
            self.queue.append(state.shape_of_step[tasks[found[0]].step])
        self.living = list(range(len(members)))

    def _join(self, state: State) -> None:
        of = self.of
        self.children = [[] for _ in self.members]
        for bulk, members in enumerate(self.members):
            ahead: dict[int, None] = {}
            for task in members:
                row = state.tasks[task]
                for parent in row.parents + row.after if row.after else row.parents:
                    found = of.get(parent, -1)
                    if found >= 0 and found != bulk:
                        ahead[found] = None
            for found in ahead:
                self.children[found].append(bulk)


class Running:
    """An attempt that runs, or attempts of a bulk: when they should be over, where they are, and what they hold there."""

    __slots__ = ("bulk", "end", "nodes", "shape")

    def __init__(self, end: float, bulk: int, nodes: tuple[int, ...], shape: int) -> None:
        self.end = end
        self.bulk = bulk
        self.nodes = nodes
        self.shape = shape


class Remaining:
    """What is left, as lists by bulk.

    A bulk has `count` tasks that have not begun, of which `ready` could begin now; each takes `seconds`. `left` are those and
    the ones that run. `blockers` counts the bulks that it waits for, `children` are those that wait for it. `shape` numbers
    the `shapes`, what tasks need.
    """

    def __init__(self, state: State, bulks: Bulks) -> None:
        self.state = state
        self.bulks = bulks
        n = len(bulks.members)
        self.count, self.ready, self.left, self.blockers = [0] * n, [0] * n, [0] * n, [0] * n
        self.seconds, self.shape = [0.0] * n, [0] * n
        self.rank, self.children = bulks.rank, bulks.children
        self.shapes: list[Needs] = []
        self.running: list[Running] = []
        self.guessed = 0
        """So many tasks are left of which nobody knows how long they take."""
        self._shape_of: dict[int, int] = {}
        self._expected = _Expected(state)
        self._count()
        self._note_running()

    @property
    def tasks(self) -> int:
        """How many tasks have not begun."""
        return sum(self.count)

    def _count(self) -> None:
        state, bulks, expected = self.state, self.bulks, self._expected
        phases = state.phases
        living = []
        for bulk in bulks.living:
            ready = waiting = active = 0
            for task in bulks.members[bulk]:
                phase = phases[task]
                if phase == Phase.READY:
                    ready += 1
                elif phase == Phase.WAITING:
                    waiting += 1
                elif phase in ACTIVE:
                    active += 1
            if not ready + waiting + active:
                continue
            living.append(bulk)
            number = bulks.queue[bulk]
            self.shape[bulk] = self._shape(number)
            self.count[bulk] = ready + waiting
            self.ready[bulk] = ready
            seconds, known = expected.seconds(bulks.told_s[bulk], number)
            self.seconds[bulk] = seconds
            if not known:
                self.guessed += ready + waiting + active
        bulks.living = living
        count = self.count
        for task in state.running:
            if not state.stands_in_line(task):
                self.left[bulks.of[task]] += 1
        for bulk in living:
            self.left[bulk] += count[bulk]
            if self.left[bulk]:
                for child in self.children[bulk]:
                    self.blockers[child] += 1

    def _shape(self, number: int) -> int:
        shape = self._shape_of.get(number)
        if shape is None:
            shape = self._shape_of[number] = len(self.shapes)
            self.shapes.append(self.state.queues[number].shape.needs)
        return shape

    def _note_running(self) -> None:
        state = self.state
        for task, launch in state.running.items():
            if state.stands_in_line(task):
                continue
            number = state.shape_of_step[state.tasks[task].step]
            seconds, _ = self._expected.seconds(state.tasks[task].estimate_s, number)
            end = expected_end(state.now, state.launched_at[task], seconds)
            nodes = tuple(place.node for place in launch.on)
            self.running.append(Running(end, self.bulks.of[task], nodes, self._shape(number)))


class Overview:
    """Makes `Remaining` of a state again and again, and remembers what can be used again."""

    def __init__(self) -> None:
        self._levels: list[int] = []
        self._bulks: Bulks | None = None

    def remaining(self, state: State) -> Remaining:
        """What is left now. Costs by tasks that are not over; their bulks are made anew when they have become too coarse."""
        size = _size(state)
        bulks = self._bulks
        if bulks is None or not bulks.fits(state, size):
            bulks = self._made(state, size)
        found = Remaining(state, bulks)
        if found.tasks != sum(state.totals[phase] for phase in UNSTARTED):
            found = Remaining(state, self._made(state, size))  # some that were over have a new chance
        return found

    def _made(self, state: State, size: int) -> Bulks:
        levels = self._levels
        for number in range(len(levels), len(state.tasks)):
            task = state.tasks[number]
            levels.append(1 + max((levels[parent] for parent in (*task.parents, *task.after)), default=-1))
        self._bulks = Bulks(state, size, levels)
        return self._bulks


def _size(state: State) -> int:
    unstarted = sum(state.totals[phase] for phase in UNSTARTED)
    size = 1
    while size * BULKS * 2 < unstarted:
        size *= 2
    return size


class _Expected:
    """How long attempts should take: as estimated and corrected, as others of the shape took, or a guess."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._factors: dict[int, float] = {}
        self._guess = 0.0

    def seconds(self, told: float, number: int) -> tuple[float, bool]:
        """For tasks of that queue which were estimated so; and whether more than a guess is behind it."""
        queue: ReadyQueue = self.state.queues[number]
        if told > 0:
            factor = self._factors.get(number)
            if factor is None:
                factor = self._factors[number] = correction(queue.done, queue.took_s, queue.told_s)
            return told * factor, True
        if queue.done:
            return queue.mean_s, True
        if not self._guess:
            self._guess = self._of_others()
        return self._guess, False

    def _of_others(self) -> float:
        state = self.state
        done = sum(queue.done for queue in state.queues)
        if done:
            return max(1e-3, sum(queue.mean_s * queue.done for queue in state.queues) / done)
        ages = [state.now - state.launched_at[task] for task in state.running]
        return max(SHORTEST_GUESS_S, *ages) if ages else SHORTEST_GUESS_S
