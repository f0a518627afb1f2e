"""How wide plots are told, and what is objected to while they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from carved_plots import CarvedWitness
from wide_plots import WidePlot, opening
from wide_world import Whimsical, WideWorld

from cantle.core.decide import Decider
from cantle.core.explain import explain
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.model.records import (
    AnyRecord,
    ClosePartition,
    DrainNode,
    EndRun,
    Event,
    KindsDeclared,
    Launch,
    MoveResults,
    NoticeIdle,
    Refuse,
    RefusePartition,
    ReleaseNode,
    RequestNodes,
    RequestPartition,
    ResumeNode,
    RunResumed,
    StudyClosed,
    WithdrawRequest,
)
from cantle.runtime.loop import NoLog, turn

MOST_RECORDS = 6000
"""A run with more records than that has no end,"""
MOST_TURNS = 3000
"""nor has one with more turns."""
REASONED = (
    Launch,
    Refuse,
    DrainNode,
    ResumeNode,
    RequestNodes,
    WithdrawRequest,
    MoveResults,
    ReleaseNode,
    NoticeIdle,
    EndRun,
    RequestPartition,
    RefusePartition,
    ClosePartition,
)
"""Decisions that say why."""


class WideWitness(CarvedWitness):
    """Lets a task that was done run again when its result is gone, and nothing go on for ever."""

    def _had_its_parents(self, task: int) -> bool:
        again = () if self.keeping is None else self.keeping.again
        return all(parent in self.done or parent in again for parent in self.tasks[task].parents)

    def _may_undo(self, record: AnyRecord) -> bool:
        return self.keeping is not None or super()._may_undo(record)

    def apply(self, record: AnyRecord) -> None:
        """Object to what must never happen, then apply."""
        assert len(self.records) < MOST_RECORDS, "this goes on for ever"
        assert not isinstance(record, REASONED) or record.why, f"no reason is given for {record}"
        super().apply(record)


def world_of(plot: WidePlot, state: State, later: Iterable[Event] = (), fresh: bool = False) -> WideWorld:
    """The world in which the plot takes place; a `fresh` one has all of its nodes from now on, to stay."""
    groups = plot.nodes
    if fresh:
        groups = [(state.now, [msgspec.structs.replace(n, ends_at=0.0) for _, group in groups for n in group])]
    world = WideWorld(
        state,
        groups,
        plot.fate,
        start_s=plot.start_s,
        agent_s=plot.agent_s,
        grace_s=0.5,
        provider=Whimsical(plot),
    )
    if plot.kinds:
        world.put(KindsDeclared(state.now, plot.kinds))
    for event in later:
        world.put(event)
    return world


def deciders(plot: WidePlot) -> Iterator[Decider]:
    """Who decides in each turn."""
    decider = None
    for number in range(MOST_TURNS):
        if decider is None or number in plot.forgets:
            decider = Decider(lines=plot.lines)
            decider.scaling = plot.scaling
        yield decider


def go_on(plot: WidePlot, state: State, world: WideWorld) -> None:
    """Turn the loop to the end."""
    late = 0  # what changes nothing may come at the very moment at which somebody wanted to be woken
    for decider in deciders(plot):
        if state.finished:
            return
        turn(state, world, NoLog(), decider, world.wait())
        late = late + 1 if decider.wakes_at <= state.now and not state.finished else 0
        assert late < 3, "asks to be woken in the past, again and again"
    waiting = [task for task, phase in enumerate(state.phases) if phase == Phase.READY][:1]
    raise AssertionError(f"no end in sight: {' '.join(explain(state, waiting[0])) if waiting else state.totals}")


def tell_wide(plot: WidePlot) -> WideWitness:
    """The whole story."""
    state = WideWitness()
    first, later = opening(plot)
    for record in first:
        state.apply(record)
    go_on(plot, state, world_of(plot, state, [*later, *plot.mishaps]))
    return state


def resume_wide(plot: WidePlot, state: State) -> None:
    """Another conductor goes on with the run, undisturbed, to the end."""
    state.apply(RunResumed(state.now, "host", 2, True, len(state.partitions.all)))
    for number, study in enumerate(state.studies):
        if study.grows:
            state.apply(StudyClosed(state.now, number))
    go_on(plot, state, world_of(plot, state, fresh=True))
