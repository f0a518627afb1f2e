"""Random runs in which everything meets that the core knows of: see `wide_plots.py` for what is drawn."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from wide_drawn import wide_plots
from wide_plots import WidePlot
from wide_told import WideWitness, resume_wide, tell_wide

from builders import snapshot
from cantle.core.phases import FINAL, UNSUCCESSFUL
from cantle.core.state import State
from cantle.model.records import (
    AnyRecord,
    Event,
    Launch,
    NodeReleased,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    StepsAdded,
    StudyAdded,
    TasksAdded,
    TimePassed,
    WithdrawRequest,
)


@given(wide_plots())
@settings(max_examples=80, deadline=None)
def test_every_run_ends_whatever_meets_in_it(plot: WidePlot) -> None:
    state = tell_wide(plot)
    assert state.finished and not state.running
    if not state.stopping:
        assert all(phase in FINAL for phase in state.phases)
        assert not state.partitions.living
        drained = sum(1 << index for index in state.drained)
        assert state.room.untouched == state.room.alive & ~drained, "no slot leaked"
    for task, phase in enumerate(state.phases):
        assert (phase in UNSUCCESSFUL) == bool(state.cause_of.get(task)), "all that ended badly says why"
    for kind, turns in turns_of(state):
        assert sum(one != other for one, other in pairwise(turns)) <= 1, f"nodes of kind {kind} come and go: {turns}"


def turns_of(state: WideWitness) -> list[tuple[str, list[str]]]:
    """For each stretch in which nothing happened but time passed, and each kind: whether nodes came or went, in order."""
    ledger, found = state.scaling, []
    turns: dict[str, list[str]] = {}
    for record in state.records:
        if isinstance(record, RequestNodes):
            turns.setdefault(record.kind, []).append("more")
        elif isinstance(record, WithdrawRequest) and ledger is not None:
            turns.setdefault(ledger.requests[record.request].kind, []).append("fewer")
        elif isinstance(record, ReleaseNode) and ledger is not None:
            request = ledger.request_of.get(record.node)
            kind = state.room.nodes[record.node].kind if request is None else ledger.requests[request].kind
            turns.setdefault(kind, []).append("fewer")
        elif isinstance(record, Launch) or (isinstance(record, Event) and not _is_no_news(record)):
            found += turns.items()
            turns = {}
    return [*found, *turns.items()]


def _is_no_news(record: Event) -> bool:
    return isinstance(record, TimePassed | NodeReleased) or (isinstance(record, RequestAnswered) and not record.refused)


@given(wide_plots())
@settings(max_examples=25, deadline=None)
def test_the_same_plot_tells_the_same_story_and_its_journal_leads_to_the_same_state(plot: WidePlot) -> None:
    told = tell_wide(plot)
    assert told.records == tell_wide(plot).records
    decoder = msgspec.json.Decoder(AnyRecord)
    again = State()
    for record in told.records:
        read = decoder.decode(msgspec.json.encode(record))
        assert read == record
        again.apply(read)
    same = snapshot(told)
    assert {key: same[key] for key in snapshot(again)} == snapshot(again)


@given(wide_plots(), st.floats(0.0, 1.0))
@settings(max_examples=30, deadline=None)
def test_cut_anywhere_and_resumed_it_ends_and_what_was_done_stays_done(plot: WidePlot, share: float) -> None:
    records = tell_wide(plot).records
    first = next(i for i, record in enumerate(records) if isinstance(record, TasksAdded)) + 1
    cut = first + int((len(records) - first) * share)
    while isinstance(records[cut - 1], StudyAdded | StepsAdded):
        cut += 1  # what a study brings is written down together
    state = WideWitness()
    for record in records[:cut]:
        state.apply(record)
    done = set(state.done)
    resume_wide(plot, state)
    assert state.stopping or all(phase in FINAL for phase in state.phases)
    again = set() if state.keeping is None else set(state.keeping.again)
    assert not {r.task for r in state.records[cut:] if isinstance(r, Launch)} & done - again
