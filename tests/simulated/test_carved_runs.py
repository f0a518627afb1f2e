"""Random studies whose nodes are carved while they run: every run ends, and what is taken away comes back."""

from __future__ import annotations

import pytest
from carved_plots import CarvedWitness, carved_plots, resume_carved, tell_carved
from hypothesis import given, settings
from hypothesis import strategies as st
from plots import Plot

from builders import job, node, snapshot
from cantle.core.phases import FINAL, UNSUCCESSFUL
from cantle.core.state import State
from cantle.model.records import Event, Launch, NodeLost, PartitionFailed, RequestPartition, TasksAdded
from cantle.model.study import Limits, PartitionWish, Slice, Slicing
from cantle.runtime.simulated import Fate


@given(carved_plots())
@settings(max_examples=300, deadline=None)
def test_every_run_with_partitions_and_slices_ends_and_keeps_all_rules_at_each_record(plot: Plot) -> None:
    state = tell_carved(plot)
    assert state.finished and not state.running
    assert state.stopping or all(phase in FINAL for phase in state.phases)
    assert state.stopping or not state.partitions.living
    assert state.stopping or state.room.untouched == state.room.alive, "no slot leaked"
    for task, phase in enumerate(state.phases):
        assert (phase in UNSUCCESSFUL) == bool(state.cause_of.get(task)), "all that ended badly says why"


@pytest.mark.parametrize(
    ("nodes_of_two_cores", "phase", "why"), [(0, "FAILED", "has only 2 of its 4 cores there"), (1, "DONE", "")]
)
def test_a_task_that_wants_a_node_for_itself_runs_on_no_part_of_one_also_while_others_are_awaited(
    nodes_of_two_cores: int, phase: str, why: str
) -> None:
    wish = PartitionWish("p0", 1, cores=2)
    jobs = [job("alone", whole_nodes=True, partition="p0"), job("beside", cores=2)]
    late = [(1.0, [node("n1", 4)])]
    there = [(0.0, [node("n0", 2 if nodes_of_two_cores else 4)])]
    state = tell_carved(Plot(jobs, [*late, *there], [Fate(2.0)], partitions=(wish,)))
    assert [phase.name for phase in state.phases] == [phase, "DONE"]
    assert why in state.cause_of.get(0, "")


def test_a_partition_that_lost_its_neighbour_says_what_can_never_run_there_any_more() -> None:
    wish = PartitionWish("p0", 2, layout="contiguous")
    jobs = [job("wide", nodes=2, gpus=1, retries=2, partition="p0"), job("narrow", "", "wide", gpus=1, partition="p0")]
    there = [node("n0", 1, gpus=1), node("n1", 1, gpus=1), node("n2", 1, gpus=1), node("n3", 1)]
    plot = Plot(jobs, [(0.0, there)], [Fate(2.0)], mishaps=[NodeLost(1.0, 1, "mishap")], partitions=(wish,))
    state = tell_carved(plot)
    assert [phase.name for phase in state.phases] == ["FAILED", "DONE"]
    assert "only 1 node of its partition p0 could hold a share of it" in state.cause_of[0]


def test_what_comes_back_from_a_partition_that_failed_and_cannot_be_made_again_fails() -> None:
    wish = PartitionWish("p0", 2)
    there = [(0.0, [node("n0", 1), node("n1", 1)])]
    mishaps: list[Event] = [NodeLost(1.0, 1, "mishap"), PartitionFailed(1.0, 0, "it broke")]
    plot = Plot([job("t", partition="p0")], there, [Fate(2.0)], mishaps=mishaps, partitions=(wish,))
    state = tell_carved(plot)
    assert state.phases[0].name == "FAILED"
    assert "its partition p0 wants 2 nodes" in state.cause_of[0]


@pytest.mark.parametrize("throttle", [0, 1, 2, 3])
def test_no_element_is_made_that_the_throttle_would_leave_idle(throttle: int) -> None:
    """Those that are made and given back at once would be made again at once, for ever."""
    jobs = [job(f"t{i}", widths=(1, 2)) for i in range(7)]
    slicing = Slicing((Slice(1),))
    plot = Plot(jobs, [(0.0, [node("n0", 4), node("n1", 4)])], [Fate(2.0)], Limits(throttle), slicing=slicing)
    state = tell_carved(plot)
    assert state.succeeded
    made = sum(isinstance(record, RequestPartition) for record in state.records)
    assert made <= 2 * len({record.time for record in state.records if isinstance(record, Launch)})


@given(carved_plots())
@settings(max_examples=60, deadline=None)
def test_the_same_carved_plot_tells_the_same_story_and_replaying_it_leads_to_the_same_state(plot: Plot) -> None:
    first, second = tell_carved(plot), tell_carved(plot)
    assert first.records == second.records
    replayed = State()
    for record in first.records:
        replayed.apply(record)
    same = snapshot(first)
    assert {key: same[key] for key in snapshot(replayed)} == snapshot(replayed)


@given(carved_plots(survivable=True), st.data())
@settings(max_examples=60, deadline=None)
def test_cut_anywhere_and_resumed_all_is_done_and_what_was_done_stays_done(plot: Plot, data: st.DataObject) -> None:
    records = tell_carved(plot).records
    first = next(i for i, r in enumerate(records) if isinstance(r, TasksAdded)) + 1
    cut = data.draw(st.integers(first, len(records)), "cut")
    state = CarvedWitness()
    for record in records[:cut]:
        state.apply(record)
    done = set(state.done)
    for _ in range(60):
        resume_carved(plot, state)
        if state.succeeded:
            break
    assert state.succeeded, state.totals
    assert not {r.task for r in state.records[cut:] if isinstance(r, Launch)} & done
