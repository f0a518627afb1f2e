"""Random studies on random nodes with random fates and mishaps: what holds for every one of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from plots import (
    Plot,
    Witness,
    begin,
    go_on,
    plots,
    quick_plots,
    resume,
    survivable_plots,
    survivable_quick_plots,
    tell,
    world_of,
)

from builders import snapshot
from cantle.core.phases import FINAL, UNSUCCESSFUL, Phase
from cantle.core.state import State
from cantle.model.records import Launch, StopAsked, TasksAdded


@given(plots() | quick_plots())
@settings(max_examples=300, deadline=None)
def test_every_run_ends_and_keeps_all_rules_at_each_record(plot: Plot) -> None:
    state = tell(plot)
    assert state.finished and not state.running
    assert state.stopping or all(phase in FINAL for phase in state.phases)
    for task, phase in enumerate(state.phases):
        assert (phase in UNSUCCESSFUL) == bool(state.cause_of.get(task)), "all that ended badly says why"


@given(survivable_plots() | survivable_quick_plots())
@settings(max_examples=150, deadline=None)
def test_whatever_happened_resuming_often_enough_gets_all_done(plot: Plot) -> None:
    state = tell(plot)
    for _ in range(60):
        if state.succeeded:
            break
        done = {t for t, phase in enumerate(state.phases) if phase == Phase.DONE}
        begun = len(state.records)
        resume(plot, state)
        launched = {r.task for r in state.records[begun:] if isinstance(r, Launch)}
        assert not launched & done
    assert state.succeeded, state.totals


class Filmed(Witness):
    """Takes a picture of itself after each record."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: list[dict[str, Any]] = []

    def apply(self, record: Any) -> None:
        super().apply(record)
        self.pictures.append(picture(self))


OWN = {"done", "attempts_begun", "under_way", "in_turn", "stopped", "failed_fast", "pictures", "records"}


def picture(state: State) -> dict[str, Any]:
    return {k: v for k, v in snapshot(state).items() if k not in OWN}


@given(plots() | quick_plots())
@settings(max_examples=60, deadline=None)
def test_the_same_plot_tells_the_same_story_and_replaying_it_leads_through_the_same_states(plot: Plot) -> None:
    story, again = Filmed(), begin(plot)
    for record in again.records:
        story.apply(record)
    go_on(story, world_of(plot, story, plot.mishaps))
    go_on(again, world_of(plot, again, plot.mishaps))
    assert story.records == again.records
    replayed = State()
    for record, then in zip(story.records, story.pictures, strict=True):
        replayed.apply(record)
        assert picture(replayed) == then, record


@given(survivable_plots() | survivable_quick_plots(), st.data())
@settings(max_examples=100, deadline=None)
def test_cut_anywhere_and_resumed_what_was_done_stays_done_and_all_else_is_done(
    plot: Plot, data: st.DataObject
) -> None:
    whole = tell(plot)
    first = next(i for i, r in enumerate(whole.records) if isinstance(r, TasksAdded)) + 1
    cut = data.draw(st.integers(first, len(whole.records)), "cut")
    state = Witness()
    for record in whole.records[:cut]:
        state.apply(record)
    done = set(state.done)
    for _ in range(60):
        resume(plot, state)
        if state.succeeded:
            break
    assert state.succeeded
    assert not {r.task for r in state.records[cut:] if isinstance(r, Launch)} & done


@given(plots() | quick_plots(), st.data())
@settings(max_examples=100, deadline=None)
def test_without_retry_a_resumed_run_leaves_what_ended_as_it_was(plot: Plot, data: st.DataObject) -> None:
    whole = tell(plot)
    cut = data.draw(st.integers(3, len(whole.records)), "cut")
    state = Witness()
    for record in whole.records[:cut]:
        state.apply(record)
    ended = {t: p for t, p in enumerate(state.phases) if p in FINAL}
    resume(plot, state, retry=False)
    assert all(state.phases[t] == p for t, p in ended.items())
    assert all(p in FINAL for p in state.phases)


@given(plots(), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_a_stopped_run_ends_within_the_grace_and_no_attempt_begins(plot: Plot, quarter: int) -> None:
    stop = StopAsked(quarter / 4, "now", True)
    state = begin(plot)
    go_on(state, world_of(plot, state, [*plot.mishaps, stop]))
    if stop in state.records:
        assert state.now <= stop.time + 0.5
