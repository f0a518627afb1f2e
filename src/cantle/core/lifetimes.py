"""Until when does which node stay, and is that long enough for a task?

Nodes of a batch job go when the job's time is up. Each is to be empty a while before, at the time when it *leaves*, so that
all is written down in order while its conductor still lives. So a task starts only where its walltime ends before that, or,
without a walltime, its expected duration and a margin. What nobody knows anything of may start anywhere; when it was cut off
by the end of its node, so much is known of it.

Nothing of this is loaded, asked or kept before the first node joins whose end is known.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import TYPE_CHECKING

import msgspec

from cantle.core.forecast import expected_s
from cantle.model.resources import indexes

if TYPE_CHECKING:
    from cantle.core.state import State

DRAIN_S = 60.0
"""A node is empty so long before its end,"""
DRAIN_SHARE = 0.1
"""and never longer than this share of its life."""
MARGIN = 1.2
"""So many times its expected duration a task must be given, where that is possible at all."""
AGAIN = 2.0
"""What was cut off after some time must be given so many times as much, where that is possible at all,"""
LONGER = 1.05
"""and so many times as much in any case."""
OVERDUE_S = 120.0
"""A node that is still there so long after its end is given up: batch systems take a while to end what runs."""
_INSTANT_S = 1e-6


class Lifetimes(msgspec.Struct):
    """When nodes end and leave, by number, in the records' time. Of those that are there; the others stay for ever.

    `over`, as bits: nodes that are being emptied, or were, since their end has come. `cut`: for how long, at most, an
    attempt of a task ran that was ended with its node. `drain_s` below 0: as the defaults say.
    """

    drain_s: float = -1.0
    ends: dict[int, float] = {}
    leaves: dict[int, float] = {}
    lives_s: dict[int, float] = {}
    over: int = 0
    overdue: dict[int, float] = {}
    """Of those of them that are still there: when they are given up."""
    cut: dict[int, float] = {}
    longest_s: float = 0.0
    """From joining to leaving: no task is given more time than that."""
    longest: int = 0
    """So many nodes stay that long."""
    steps: list[tuple[float, int]] = []
    """Times, ascending, with the nodes (bits) that have left then. It is replaced by another one when nodes come or go."""

    def joined(self, index: int, now: float, ends_at: float) -> None:
        """A node is there whose end is known."""
        drain_s = self.drain_s if self.drain_s >= 0 else min(DRAIN_S, DRAIN_SHARE * max(0.0, ends_at - now))
        self.ends[index] = ends_at
        leaves = self.leaves[index] = ends_at - drain_s
        lives_s = self.lives_s[index] = leaves - now
        if lives_s > self.longest_s:
            self.longest_s, self.longest = lives_s, 0
        self.longest += lives_s == self.longest_s
        at, before = self._place_of(leaves)
        later = self.steps[at:]
        if not later or later[0][0] != leaves:
            later.insert(0, (leaves, before))
        self.steps = self.steps[:at] + [(when, left | 1 << index) for when, left in later]

    def lost(self, index: int, now: float) -> bool:
        """A node is gone. Whether that was to be expected by now."""
        bit = 1 << index
        ends = self.ends.pop(index, inf)
        leaves = self.leaves.pop(index, inf)
        lives_s = self.lives_s.pop(index, -inf)
        self.overdue.pop(index, None)
        if now >= leaves - (ends - leaves):
            self.over |= bit
        self._stays_no_longer(lives_s)
        at, before = self._place_of(leaves)
        later = [(when, left & ~bit) for when, left in self.steps[at:]]
        if later and later[0][1] == before:
            del later[0]  # it was the only one that leaves then
        self.steps = self.steps[:at] + later
        return bool(self.over & bit)

    def gone(self) -> None:
        """All nodes are gone, with their conductor."""
        for known in (self.ends, self.leaves, self.lives_s, self.overdue):
            known.clear()
        self.over = self.longest = 0
        self.longest_s = 0.0
        self.steps = []

    def leave_before(self, until: float) -> int:
        """The nodes, as bits, that leave before that time."""
        found = bisect_left(self.steps, (until - _INSTANT_S, -1))
        return self.steps[found - 1][1] if found else 0

    def due(self, now: float) -> list[int]:
        """The nodes that have to be empty now, and are not being emptied."""
        return [index for index in indexes(self.leave_before(now + 2 * _INSTANT_S)) if not self.over >> index & 1]

    def ends_now(self, index: int) -> None:
        """The node is being emptied, since its end has come."""
        self.over |= 1 << index
        if index in self.ends:
            self.overdue[index] = self.ends[index] + OVERDUE_S

    def next_leave(self) -> float:
        """When the next node has to be empty, or is given up; infinite when none is."""
        leaves = next((at for at, left in self.steps if left & ~self.over), inf)
        return min(leaves, *self.overdue.values()) if self.overdue else leaves

    def was_cut_off(self, task: int, seconds: float) -> None:
        """An attempt of the task was ended with its node, after so long."""
        self.cut[task] = max(seconds, self.cut.get(task, 0.0))

    def _place_of(self, leaves: float) -> tuple[int, int]:
        """Where that time stands, or would, among the steps, and which nodes have left before it."""
        at = bisect_left(self.steps, (leaves, -1))
        return at, self.steps[at - 1][1] if at else 0

    def _stays_no_longer(self, lives_s: float) -> None:
        """One that was to stay for so long is gone. Costs by nodes only when none is left that stays as long."""
        self.longest -= lives_s == self.longest_s
        if not self.longest:
            self.longest_s = max(self.lives_s.values(), default=0.0)
            self.longest = sum(each == self.longest_s for each in self.lives_s.values())


def needs_s(state: State, task: int, expected: float | None = None) -> float:
    """How much time the task must be given, seconds; 0 when nobody knows. `expected`, when not as `expected_s` says."""
    step = state.step_of(task)
    if step.walltime_s > 0:
        return step.walltime_s
    if expected is None:
        expected = expected_s(state, task)
    lifetimes = state.lifetimes
    if lifetimes is None:
        return expected if expected < inf else 0.0
    longest_s = lifetimes.longest_s
    seconds = 0.0
    if expected < inf:
        seconds = expected * MARGIN if expected * MARGIN <= longest_s else expected
    cut_s = lifetimes.cut.get(task, 0.0)
    if cut_s and not step.restartable:
        seconds = max(seconds, cut_s * AGAIN if cut_s * AGAIN <= longest_s else cut_s * LONGER)
    return seconds


def expected_on(state: State, task: int, width: int) -> float | None:
    """How long the task should take on so many nodes, as its step says; None where it says nothing about that."""
    step = state.step_of(task)
    if width not in step.widths or not step.times_s:
        return None
    seconds = step.times_s[step.widths.index(width)]
    told, least = state.tasks[task].estimate_s, step.times_s[0]
    return (seconds * told / least if told and least else seconds) or None


def latest_starts(state: State, task: int) -> dict[int, float]:
    """Until when the task may start on which node; on those that are not named, at any time."""
    lifetimes = state.lifetimes
    if lifetimes is None:
        return {}
    seconds = needs_s(state, task)
    return {index: at - seconds for index, at in lifetimes.leaves.items()}


def barred_for(state: State, task: int, expected: float | None = None) -> int:
    """The nodes, as bits, on which the task shall not start now.

    They leave too soon, it could not be started there, or files that it takes are elsewhere.
    """
    barred = 0 if state.lifetimes is None else state.lifetimes.leave_before(state.now + needs_s(state, task, expected))
    shunned = state.shunned.get(task, 0)
    if state.keeping is not None and (elsewhere := state.keeping.barred(state, task)):
        barred |= elsewhere
        if shunned and not _able(state, task) & ~(elsewhere | shunned):
            shunned = 0  # its files are there alone, so that no other node is left to try
    return barred | shunned


def _able(state: State, task: int) -> int:
    from cantle.core.nodes import able_to_hold

    return able_to_hold(state, state.step_of(task).needs)


def in_words(seconds: float) -> str:
    """A duration for people: `45 s`, `8 min`, `2.5 h`."""
    if seconds < 120:
        return f"{max(0.0, seconds):.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
