"""How many of the idle nodes will be used soon?

A list schedule over estimates: running tasks end when they are expected to, what they unblock starts where room is, most
urgent first, on nodes that are partly busy before idle ones; the walk stops at the horizon. It reads the state and changes
nothing. Its cost grows with what runs and with what happens within the horizon, not with what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush

from cantle.core.phases import Phase
from cantle.core.queues import KNOWN_AFTER
from cantle.core.state import State
from cantle.model.resources import Needs, lowest_bits

OVERDUE_SHARE = 0.25
"""A task that has taken longer than expected is expected to take this share of its age more."""

CREDIBLE = 4.0
"""Estimates are taken to be wrong by such a factor at most."""


def correction(done: int, took_s: float, told_s: float) -> float:
    """By what to multiply estimates, as `done` of those who were estimated turned out. Bounded: a few tell only so much."""
    if done < KNOWN_AFTER or told_s <= 0 or took_s <= 0:
        return 1.0
    return min(CREDIBLE, max(1 / CREDIBLE, took_s / told_s))


def expected_s(state: State, task: int) -> float:
    """How long an attempt of the task should take, seconds: as it was estimated, else as others of its shape took.

    An estimate is corrected by how wrong those of its shape were. Infinite when nobody knows.
    """
    queue = state.queue_of(task)
    told = state.tasks[task].estimate_s
    if told > 0:
        return told * correction(queue.done, queue.took_s, queue.told_s)
    return queue.mean_s if queue.done else float("inf")


def expected_end(now: float, began: float, expected: float) -> float:
    """When a running attempt should be over, never before `now`."""
    end = began + expected
    return end if end > now else now + OVERDUE_SHARE * (now - began)


class Forecast:
    """Looks ahead from where the state stands. `expected` and `ranks`, by task, replace what the state knows of them."""

    def __init__(
        self,
        state: State,
        expected: Callable[[int], float] | None = None,
        ranks: Sequence[float] | None = None,
    ) -> None:
        self.state = state
        self.expected_s = expected or partial(expected_s, state)
        self._ranks = ranks
        self._able: dict[Needs, int] = {}
        self._able_version = -1
        self._in_progress: list[int] = []

    def nodes_used(self, until: float, at_most: int | None = None) -> int:
        """So many of the nodes that idle now will be used until that time; counting ends with `at_most`."""
        state = self.state
        idle = state.room.untouched
        enough = idle.bit_count() if at_most is None else min(at_most, idle.bit_count())
        if enough <= 0:
            return 0
        now = state.now
        ends = []
        for task in state.running:
            if state.stands_in_line(task):
                continue
            end = expected_end(now, state.launched_at[task], self.expected_s(task))
            if end <= until:
                ends.append((end, task))
        heapify(ends)
        ahead = _RoomAhead(state, idle)
        waiting = [(-self._rank(task), task) for queue in state.queues for task in queue.first(enough)]
        heapify(waiting)
        blockers: dict[int, int] = {}
        self._in_progress = [study.in_progress for study in state.studies]
        while ends:
            end = ends[0][0]
            while ends and ends[0][0] <= end:
                task = heappop(ends)[1]
                self._in_progress[self._study_of(task)] -= 1
                ahead.give_back(task)
                self._unblock(task, blockers, waiting)
            for task in self._begin(waiting, ahead):
                expected = self.expected_s(task)
                if end + expected <= until:
                    heappush(ends, (end + expected, task))
            if ahead.used >= enough:
                return enough
        return ahead.used

    def _rank(self, task: int) -> float:
        return self.state.ranks[task] if self._ranks is None else self._ranks[task]

    def _unblock(self, done: int, blockers: dict[int, int], waiting: list[tuple[float, int]]) -> None:
        state = self.state
        for child in state.children[done] or ():
            left = blockers.get(child, state.blockers[child]) - 1
            blockers[child] = left
            if not left and state.phases[child] == Phase.WAITING:
                heappush(waiting, (-self._rank(child), child))

    def _begin(self, waiting: list[tuple[float, int]], ahead: _RoomAhead) -> list[int]:
        """Start what fits, most urgent first, and pass over what does not."""
        begun: list[int] = []
        passed_over: list[tuple[float, int]] = []
        misfits: set[Needs] = set()
        while waiting and not ahead.full:
            entry = heappop(waiting)
            task = entry[1]
            needs = self.state.step_of(task).needs
            if needs not in misfits and self._may_begin(task):
                if ahead.take(task, needs, self._able_for(needs)):
                    self._in_progress[self._study_of(task)] += 1
                    begun.append(task)
                    continue
                misfits.add(needs)
            passed_over.append(entry)
        for entry in passed_over:
            heappush(waiting, entry)
        return begun

    def _may_begin(self, task: int) -> bool:
        study = self._study_of(task)
        throttle = self.state.studies[study].limits.throttle
        return not throttle or self._in_progress[study] < throttle

    def _study_of(self, task: int) -> int:
        return self.state.study_of_step[self.state.tasks[task].step]

    def _able_for(self, needs: Needs) -> int:
        if self._able_version != self.state.feasibility_version:
            self._able.clear()
            self._able_version = self.state.feasibility_version
        found = self._able.get(needs)
        if found is None:
            found = self._able[needs] = self.state.room.could_ever_hold(needs)
        return found


class _RoomAhead:
    """The free cores of the nodes as the forecast goes on: of the state's room a copy that costs few big integers."""

    def __init__(self, state: State, idle: int) -> None:
        self.state = state
        self.by_cores = list(state.room.by_cores)
        self.never_used = idle
        self.used = 0
        self._changed: dict[int, int] = {}
        self._begun: dict[int, tuple[list[int], int]] = {}

    @property
    def full(self) -> bool:
        """Not one free core anywhere."""
        return self.by_cores[0] == self.state.room.alive

    def give_back(self, task: int) -> None:
        """The task is over."""
        begun = self._begun.pop(task, None)
        if begun is not None:
            nodes, cores = begun
            for node in nodes:
                self._move(node, cores)
            return
        whole = self.state.step_of(task).needs
        for place in self.state.running[task].on:
            self._move(place.node, self.state.room.nodes[place.node].cores if whole.whole_nodes else whole.cores)

    def take(self, task: int, needs: Needs, able: int) -> bool:
        """Start the task on the fullest nodes that hold it, those never used only when no others do. False: no room."""
        missing = needs.nodes
        chosen = 0
        for rested in (~self.never_used, self.never_used):
            for number, nodes in enumerate(self.by_cores[needs.cores :], needs.cores):
                found = nodes & able & rested
                if found and needs.whole_nodes:
                    found = self._whole(found, number)
                if found:
                    found = lowest_bits(found, min(missing, found.bit_count()))
                    chosen |= found
                    missing -= found.bit_count()
                    if not missing:
                        break
            if not missing:
                break
        if missing:
            return False
        self.used += (chosen & self.never_used).bit_count()
        self.never_used &= ~chosen
        nodes_of = []
        while chosen:
            low = chosen & -chosen
            chosen ^= low
            nodes_of.append(low.bit_length() - 1)
        for node in nodes_of:
            self._move(node, -(self.state.room.nodes[node].cores if needs.whole_nodes else needs.cores))
        cores = self.state.room.nodes[nodes_of[0]].cores if needs.whole_nodes else needs.cores
        self._begun[task] = (nodes_of, cores)
        return True

    def _whole(self, nodes: int, cores: int) -> int:
        found = 0
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            if self.state.room.nodes[low.bit_length() - 1].cores == cores:
                found |= low
        return found

    def _move(self, node: int, cores: int) -> None:
        room = self.state.room
        before = self._changed.get(node)
        if before is None:
            before = room.free_cores[node].bit_count()
        after = max(0, min(room.nodes[node].cores, before + cores))
        self._changed[node] = after
        bit = 1 << node
        self.by_cores[before] &= ~bit
        self.by_cores[after] |= bit
