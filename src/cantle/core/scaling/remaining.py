"""What is left to do, in a form that can be played through many times?

Where many tasks of a step stand equally far from the beginning, consecutive ones are taken together into *bulks*: so many tasks
of the mean duration. Elsewhere a bulk is one task. So a play costs by bulks and not by tasks, and what is narrow is still seen
exactly. Bulks are made once and then only counted anew, until they have become too coarse for what is left.
"""

from __future__ import annotations

from cantle.core.forecast import correction, expected_end
from cantle.core.phases import ACTIVE, FINAL, Phase
from cantle.core.queues import ReadyQueue
from cantle.core.scaling.overdue import Overdue
from cantle.core.state import State
from cantle.model.resources import Needs

BULKS = 800
"""So many bulks there are at most, but for steps and levels that are one task wide."""
SHORTEST_GUESS_S = 10.0
"""A task of which nobody knows anything is expected to take so long, or as long as another one has been running."""


class Bulks:
    """How tasks that are not over are taken together. Made from a state; `fits` tells whether it still serves."""

    def __init__(self, state: State, levels: list[int]) -> None:
        self.made_of = _left(state)
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
        self.ordered = state.ordered
        self.exact = True
        """Each bulk is one task."""
        self._split(state, levels)
        self._join(state)

    def fits(self, state: State) -> bool:
        """Whether all tasks that are not over are in bulks, which are not too coarse by now."""
        if self.ordered is not state.ordered:
            return False
        if self.known != len(state.tasks) or not (self.exact or _left(state) > self.made_of // 2):
            return False
        return all(task in self.of for task in state.running)  # one that was over may run again

    def _split(self, state: State, levels: list[int]) -> None:
        tasks, phases, of, members = state.tasks, state.phases, self.of, self.members
        alike: dict[tuple[int, int], list[int]] = {}
        for task, row in enumerate(tasks):
            if phases[task] in FINAL:
                continue
            key = (row.step, levels[task])
            if key in alike:
                alike[key].append(task)
            else:
                alike[key] = [task]
        most = _most_each([len(found) for found in alike.values()])
        self.exact = all(len(found) <= most for found in alike.values())
        for found in alike.values():
            size = -(-len(found) // most)
            for first in range(0, len(found), size):
                for task in found[first : first + size]:
                    of[task] = len(members)
                members.append(found[first : first + size])
        for found in members:
            told = [tasks[task].estimate_s for task in found if tasks[task].estimate_s > 0]
            self.told_s.append(sum(told) / len(told) if told else 0.0)
            self.rank.append(max(state.ordered.get(task, state.ranks[task]) for task in found))
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
        self.studies: list[int] = []
        """By shape: whose tasks these are."""
        self.running: list[Running] = []
        self.guessed = 0
        """So many tasks are left of which nobody knows how long they take."""
        self.unfinished = 0
        """So many tasks of the bulks are not over."""
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
            self.unfinished += ready + waiting + active
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
            self.studies.append(self.state.queues[number].shape.study)
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
        bulks = self._bulks
        if bulks is None or not bulks.fits(state):
            bulks = self._made(state)
        found = Remaining(state, bulks)
        if found.unfinished != sum(state.totals[phase] for phase in Phase if phase not in FINAL):
            found = Remaining(state, self._made(state))  # some that were over have a new chance, or run again
        return found

    def _made(self, state: State) -> Bulks:
        levels = self._levels
        for number in range(len(levels), len(state.tasks)):
            task = state.tasks[number]
            levels.append(1 + max((levels[parent] for parent in (*task.parents, *task.after)), default=-1))
        self._bulks = Bulks(state, levels)
        return self._bulks


def _left(state: State) -> int:
    totals = state.totals
    return totals[Phase.WAITING] + totals[Phase.READY] + totals[Phase.LAUNCHED] + totals[Phase.RUNNING]


def _most_each(widths: list[int]) -> int:
    """Into how many bulks each of these is cut at most, so that there are no more than `BULKS` in all."""
    left, most = BULKS, BULKS
    for done, width in enumerate(sorted(widths)):
        most = max(1, left // (len(widths) - done))
        if width > most:
            break
        left -= width
    return most if any(width > most for width in widths) else max(widths, default=1)


class _Expected:
    """How long attempts should take: as estimated and corrected, as others of the shape took, or a guess."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._factors: dict[int, float] = {}
        self._guess = 0.0
        self._overdue = Overdue(state)

    def seconds(self, told: float, number: int) -> tuple[float, bool]:
        """For tasks of that queue which were estimated so; and whether more than a guess is behind it."""
        queue: ReadyQueue = self.state.queues[number]
        if told > 0:
            factor = self._factors.get(number)
            if factor is None:
                factor = self._factors[number] = correction(queue.done, queue.took_s, queue.told_s)
            return told * factor, True
        if queue.done:
            return self._overdue.mean_s(number), True
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
