"""Nodes whose time is over, and which nobody takes away, hold nothing up for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.builders import job, node, study_records

from cantle.core.decide import Decider
from cantle.core.lifetimes import OVERDUE_S
from cantle.core.scaling.ledger import GIVEN_BACK_S
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    AnyRecord,
    Decision,
    GiveUpNode,
    KindsDeclared,
    NodeDrainAsked,
    NodeLost,
    NodesJoined,
    ReleaseNode,
    Stop,
)
from cantle.model.resources import Node
from cantle.runtime.loop import NoLog, turn
from cantle.runtime.simulated import Fate, SimulatedWorld

MOST_TURNS = 2000


class Kept(State):
    """A state that keeps what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[AnyRecord] = []

    def apply(self, record: AnyRecord) -> None:
        """Keep it."""
        self.records.append(record)
        super().apply(record)


@dataclass
class Forgotten:
    """Whether stops are heard on nodes whose time is over."""

    ends_what_runs: bool


class Forgetful(SimulatedWorld):
    """Nobody takes away a node whose time is over."""

    forgotten = Forgotten(ends_what_runs=True)

    def _foresee_ends(self, joins: NodesJoined, number: int) -> None:
        pass

    def carry_out(self, decision: Decision) -> None:
        """Nor is one given back that shall be; and what runs on a hung one is not ended."""
        if type(decision) is ReleaseNode or (type(decision) is Stop and not self.forgotten.ends_what_runs):
            return
        super().carry_out(decision)


def tell(there: list[Node], kinds: list[Kind], seconds: float, *, ends_what_runs: bool = True, tasks: int = 30) -> Kept:
    """So many tasks that take so long, in a world that forgets nodes."""
    state = Kept()
    for record in study_records([job(f"t{i}") for i in range(tasks)]):
        state.apply(record)
    world = Forgetful(state, [(0.0, there)], lambda _task, _attempt: Fate(seconds), grace_s=0.5)
    world.forgotten = Forgotten(ends_what_runs)
    if kinds:
        world.put(KindsDeclared(0.0, kinds))
    decider = Decider()
    decider.scaling = Scaling(("demand",), idle_s=1.0, cool_down_s=0.0)
    for _ in range(MOST_TURNS):
        if state.finished:
            return state
        turn(state, world, NoLog(), decider, world.wait())
    raise AssertionError(f"no end in sight: {state.totals}")


@pytest.mark.parametrize("ends_what_runs", [True, False])
def test_another_node_of_the_kind_is_had_although_nobody_takes_away_the_one_whose_time_is_over(
    ends_what_runs: bool,
) -> None:
    cpu = Kind("cpu", 1, most=1, starts_in_s=5.0, lasts_s=100.0)
    state = tell([], [cpu], 8.0, ends_what_runs=ends_what_runs)
    assert state.succeeded
    given_up = [record for record in state.records if isinstance(record, GiveUpNode)]
    assert len(given_up) >= 2
    for record in given_up:
        ended = state.room.nodes[record.node].ends_at
        assert ended + OVERDUE_S <= record.time < ended + OVERDUE_S + 1.0
        assert "its allocation ended 2 min ago" in record.why
    lost = [record.node for record in state.records if isinstance(record, NodeLost)]
    assert len(lost) == len(set(lost)), "each is lost once"
    assert not state.losses, "no task is blamed for it"


def test_another_node_of_the_kind_is_had_although_its_provider_never_takes_back_the_one_that_was_given_back() -> None:
    state = Kept()
    for record in study_records([job(f"t{i}") for i in range(4)]):
        state.apply(record)
    world = Forgetful(state, [], lambda _task, _attempt: Fate(10.0))
    world.put(KindsDeclared(0.0, [Kind("cpu", 1, most=1, starts_in_s=5.0)]))
    world.put(NodeDrainAsked(20.0, "cpu-1", "me", goes=True))
    decider = Decider()
    decider.scaling = Scaling(("demand",), idle_s=1.0, cool_down_s=0.0)
    for _ in range(MOST_TURNS):
        if state.finished:
            break
        turn(state, world, NoLog(), decider, world.wait())
    assert state.succeeded
    released = next(record for record in state.records if isinstance(record, ReleaseNode))
    [given_up] = [record for record in state.records if isinstance(record, GiveUpNode)]
    assert given_up.node == released.node and given_up.time == released.time + GIVEN_BACK_S
    assert given_up.why == "it was given back 10 min ago, and its provider has not taken it"
    assert len([record for record in state.records if isinstance(record, NodesJoined)]) == 2
    assert not state.lost_nodes, "it went as planned"


def test_what_hangs_on_a_node_whose_time_is_over_runs_elsewhere() -> None:
    ends, stays = node("ends", ends_at=20.0), node("stays")
    state = tell([ends, stays], [], 500.0, ends_what_runs=False, tasks=3)
    assert state.succeeded
    assert [record.node for record in state.records if isinstance(record, GiveUpNode)] == [0]
    assert state.now >= 20.0 + OVERDUE_S


def test_a_node_that_goes_in_time_is_not_given_up() -> None:
    state = Kept()
    for record in study_records([job(f"t{i}") for i in range(4)]):
        state.apply(record)
    world = SimulatedWorld(state, [(0.0, [node("ends", ends_at=20.0), node("stays")])], lambda *_: Fate(100.0))
    decider = Decider()
    while not state.finished:
        turn(state, world, NoLog(), decider, world.wait())
    assert state.succeeded and not [record for record in state.records if isinstance(record, GiveUpNode)]


def test_who_says_too_late_that_a_given_up_node_is_gone_changes_nothing() -> None:
    state = tell([node("ends", ends_at=20.0), node("stays")], [], 500.0, ends_what_runs=False, tasks=3)
    version, alive = state.feasibility_version, state.room.alive
    state.apply(NodeLost(state.now + 1.0, 0, "its lane is broken"))
    assert (state.feasibility_version, state.room.alive) == (version, alive)
    assert state.trouble is None
