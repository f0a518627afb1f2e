"""Which elements of slices that idle are kept, since tasks for them are about to come?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from cantle.core.broker import Broker
from cantle.core.demand import ASKED, is_in_the_way, suits_none
from cantle.core.elements import Element
from cantle.core.forecast import expected_end, expected_s
from cantle.core.holding import Holding, gang_start_cost_s
from cantle.core.partitions import queues_of
from cantle.core.phases import UNSTARTED, Phase
from cantle.core.queues import Shape
from cantle.core.roster import Key
from cantle.core.standings import Standing
from cantle.core.state import State

AGENT_S = 0.02
"""What starting an agent is taken to cost, until some have started."""


class Retaining:
    """What is held of each width of one slicing. `jobs`: where the tasks of each job of the broker are at home.

    `wakes_at`: when to ask again what goes.
    """

    def __init__(self, broker: Broker, jobs: dict[int, Key]) -> None:
        self.wakes_at = math.inf
        self._broker = broker
        self._jobs = jobs
        self._holding: dict[int, Holding[int]] = {}

    def busy(self, element: Element, now: float) -> None:
        """A task begins in the element."""
        if element.width in self._holding:
            self._holding[element.width].busy(element.number, now)

    def lost(self, number: int, width: int, now: float) -> None:
        """The element of that width is closed, or about to be."""
        if width in self._holding:
            self._holding[width].lost(number, now)

    def what_goes(self, state: State) -> Iterator[tuple[int, str]]:
        """The elements that shall be closed, and why each."""
        self.wakes_at = math.inf
        ledger, now = self._broker.ledger, state.now
        for element in list(ledger.elements.values()):
            partition = state.partitions.all[element.number]
            if partition.running or partition.standing != Standing.ACTIVE or element.status == "closing":
                continue
            if element.job is not None and element.job <= ASKED:
                if element.job not in self._broker.claims or not state.unfinished:
                    yield (element.number, f"{partition.holder} wants it no more")
                elif suits_none(state, self._jobs[element.job], partition) or (
                    self._broker.claims[element.job].hungry
                    and is_in_the_way(state, self._jobs[element.job], partition.width)
                ):
                    yield (element.number, f"nothing that is ready for {partition.holder} could run there")
                continue
            if element.status == "held" and not ledger.park(element.number, now):
                yield (element.number, "nothing is ready for it, and its copy is wanted no more")
                continue
            self._holding_of(state, element.width).idle(element.number, now)
        hungry = sum(claim.hungry for claim in self._broker.claims.values())
        for width, holding in self._holding.items():
            if not holding.held:
                continue
            left = not state.stopping and self._work_left(state, width)
            verdict = holding.decide(
                now, partial(self._coming, state, width, len(holding.held)), work_left=left, waited_for=hungry
            )
            for number in verdict.give_back:
                idle = now - state.partitions.all[number].idle_since
                reason = "nothing is left that could use it" if not left else "fewer are expected to be used soon"
                yield (number, f"idle for {idle:.1f} s; {reason}")
            if verdict.wake_up_at is not None:
                self.wakes_at = min(self.wakes_at, verdict.wake_up_at)

    def _holding_of(self, state: State, width: int) -> Holding[int]:
        holding = self._holding.get(width)
        if holding is None:
            holding = self._holding[width] = Holding(gang_start_cost_s(width, _agent_s(state), self._drain_s(state)))
        return holding

    def _drain_s(self, state: State) -> float:
        """What it takes until so many nodes are free together again: half a task, where others would take them."""
        others = len(self._broker.ledger.of_width) > 1 or len(self._jobs) > 1 or bool(state.homes[""])
        means = [
            state.queues[n].mean_s
            for home in self._jobs.values()
            for n in queues_of(state, home)
            if state.queues[n].done
        ]
        return sum(means) / len(means) / 2 if others and means else 0.0

    def _work_left(self, state: State, width: int) -> bool:
        """Whether any task may still want an element of this width."""
        for home in self._jobs.values():
            shapes = {n for n in queues_of(state, home) if takes(state.queues[n].shape, width)}
            for step, shape in enumerate(state.shape_of_step):
                if shape in shapes and any(state.counts[step][phase] for phase in UNSTARTED):
                    return True
        return False

    def _coming(self, state: State, width: int, at_most: int, until: float) -> int:
        """How many tasks of this width are ready, or will be until that time: those whose last parents run."""
        homes = {n for home in self._jobs.values() for n in queues_of(state, home)}
        found = sum(
            len(state.queues[n].heap)
            for n in homes
            if state.queues[n].head() is not None and takes(state.queues[n].shape, width)
        )
        open_parents: dict[int, int] = {}
        for task in state.running:
            end = expected_end(state.now, state.launched_at[task], expected_s(state, task))
            if end > until:
                continue
            for child in state.children[task] or ():
                shape = state.shape_of_step[state.tasks[child].step]
                if shape in homes and state.phases[child] == Phase.WAITING and takes(state.queues[shape].shape, width):
                    open_parents[child] = open_parents.get(child, 0) + 1
        return min(at_most, found + sum(n == state.blockers[child] for child, n in open_parents.items()))


def takes(shape: Shape, width: int) -> bool:
    """Whether tasks of this shape can run on so many nodes."""
    return width in (shape.widths or (shape.needs.nodes,))


def _agent_s(state: State) -> float:
    """What agents took to start, so far."""
    took = [p.active_at - p.opened_at for p in state.partitions.all[-50:] if p.active_at]
    return sum(took) / len(took) if took else AGENT_S
