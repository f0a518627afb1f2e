"""The simulated world itself: the same seed tells the same story, and each of its knobs does what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from builders import CheckedState, Job, job, node, nodes, study_records
from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.errors import CantleBug
from cantle.model.records import (
    AnyRecord,
    CancelAsked,
    Launch,
    NodeLost,
    NodesAwaited,
    StopAsked,
    TaskEnded,
    TaskStarted,
)
from cantle.model.resources import Node
from cantle.model.study import Limits
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld


def ten_seconds(_task: int, _attempt: int) -> Fate:
    return Fate(10.0)


def simulate(
    jobs: list[Job],
    on: list[Node] | list[tuple[float, list[Node]]],
    fate: Callable[[int, int], Fate] = ten_seconds,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    events: tuple[Any, ...] = (),
    **knobs: Any,
) -> CheckedState:
    state = CheckedState()
    for record in study_records(jobs, limits):
        state.apply(record)
    groups = [(0.0, on)] if isinstance(on[0], Node) else on
    world = SimulatedWorld(state, groups, fate, **knobs)  # type: ignore[arg-type]
    for event in events:
        world.put(event)
    run(state, world, NoLog(), Decider())
    return state


def spans(state: CheckedState) -> list[tuple[float, float]]:
    """When each task's last attempt began and ended."""
    return list(zip(state.launched_at, state.ended_at, strict=True))


FAN = [job("a"), *(job(f"b{i}", "a") for i in range(6)), job("c", " ".join(f"b{i}" for i in range(6)))]


def test_time_jumps_from_one_event_to_the_next() -> None:
    state = simulate(FAN, [node(cores=3)])
    assert state.succeeded
    assert spans(state) == [(0, 10), *[(10, 20)] * 3, *[(20, 30)] * 3, (30, 40)]


def test_the_same_seed_tells_the_same_story_and_another_tells_another() -> None:
    knobs: dict[str, Any] = {"jitter": 0.4, "failures": 0.2, "start_s": 0.5}
    first = simulate(FAN, [node(cores=3)], seed=1, **knobs)
    assert simulate(FAN, [node(cores=3)], seed=1, **knobs).records == first.records
    assert simulate(FAN, [node(cores=3)], seed=2, **knobs).records != first.records


def test_jitter_spreads_durations_about_their_median() -> None:
    state = simulate([job(f"t{i}") for i in range(400)], [node(cores=400)], jitter=0.3, seed=7)
    ends = sorted(end for _, end in spans(state))
    assert 9.5 < ends[200] < 10.5
    far = sum(not 7.4 < end < 13.5 for end in ends)
    assert 90 < far < 170, "a third is off by more than 30 %"


def test_failures_come_with_their_chance_before_their_time_and_retries_mend_them() -> None:
    state = simulate([job(f"t{i}") for i in range(300)], [node(cores=300)], failures=0.25, seed=3)
    assert 50 < state.totals[Phase.FAILED] < 100
    failed = [r for r in state.records if isinstance(r, TaskEnded) and r.outcome == "failed"]
    assert all(r.exit_code == 1 and r.time < 10.0 for r in failed)
    assert simulate([job("t", retries=50)], [node()], failures=0.9, seed=3).succeeded


def test_a_process_starts_some_time_after_its_launch_and_takes_its_duration_from_there() -> None:
    state = simulate([job("a"), job("b", "a")], [node()], start_s=0.5)
    times = [(type(r), r.time) for r in state.records if isinstance(r, Launch | TaskStarted | TaskEnded)]
    assert times == [
        (Launch, 0.0), (TaskStarted, 0.5), (TaskEnded, 10.5), (Launch, 10.5), (TaskStarted, 11.0), (TaskEnded, 21.0),
    ]  # fmt: skip


def test_the_walltime_ends_what_takes_too_long() -> None:
    state = simulate([job("a", walltime_s=4), job("b", walltime_s=10)], [node(cores=2)])
    assert [p.name for p in state.phases] == ["TIMEDOUT", "DONE"]
    assert state.ended_at[0] == 4.0


def test_a_restart_after_the_walltime_goes_on() -> None:
    def shorter(_task: int, attempt: int) -> Fate:
        return Fate(10.0 / attempt)

    state = simulate([job("a", walltime_s=4, restartable=True)], [node()], shorter, Limits(rlimit=2))
    assert state.succeeded and state.attempts == [3] and state.now == pytest.approx(4 + 4 + 10 / 3)


def test_a_lost_node_costs_the_time_since_the_launch() -> None:
    state = simulate([job("a")], nodes(2), losses=[(7.0, 0)])
    assert state.succeeded and spans(state) == [(7, 17)]
    assert [r.task for r in state.records if isinstance(r, TaskEnded)] == [0, 0], "the old attempt's end comes late"


def test_nodes_come_up_in_groups_and_are_awaited_until_then() -> None:
    state = simulate([job("wide", cores=4), job("a")], [(50.0, [node("b", 4)]), (5.0, [node("a", 1)])])
    assert state.succeeded
    assert spans(state) == [(50, 60), (5, 15)]
    assert next(r for r in state.records if isinstance(r, NodesAwaited)).count == 2


def test_what_fits_nowhere_is_refused_once_the_last_group_is_there() -> None:
    state = simulate([job("wide", cores=9), job("a")], [(0.0, [node("a", 1)]), (5.0, [node("b", 4)])])
    assert [p.name for p in state.phases] == ["FAILED", "DONE"]
    assert "the largest node, b (4 cores)" in state.cause_of[0]


def test_a_refusal_alone_ends_the_run() -> None:
    assert simulate([job("wide", cores=9)], [node()]).finished


def test_a_stop_ends_what_runs_after_the_grace_and_at_once_without() -> None:
    graceful = simulate([job("a")], [node()], events=(StopAsked(3.0, "enough"),), grace_s=2.0)
    assert (graceful.now, graceful.phases[0].name) == (5.0, "READY")
    hasty = simulate([job("a")], [node()], events=(StopAsked(3.0, "enough", at_once=True),), grace_s=2.0)
    assert hasty.now == 3.0


def test_what_would_have_ended_within_the_grace_does() -> None:
    state = simulate([job("a")], [node()], events=(CancelAsked(9.0, [0]),), grace_s=2.0)
    assert state.succeeded and state.now == 10.0


def test_what_is_canceled_ends_after_the_grace() -> None:
    state = simulate([job("a"), job("b")], [node()], events=(CancelAsked(5.0, [0]),), grace_s=2.0)
    assert [p.name for p in state.phases] == ["CANCELED", "DONE"]
    assert spans(state) == [(0, 7), (7, 17)]


def test_a_simulation_that_runs_dry_is_a_bug_and_says_where_it_stands() -> None:
    state = CheckedState()
    for record in study_records([job("a")]):
        state.apply(record)
    world = SimulatedWorld(state, [], ten_seconds)
    world.wait()
    with pytest.raises(CantleBug, match=r"ran dry at 0\.0 s"):
        world.wait()


def test_a_simulation_without_nodes_refuses_all() -> None:
    state = simulate([job("a")], [(0.0, [])])
    assert state.finished and "there is no node left" in state.cause_of[0]


def test_a_run_that_waits_for_nodes_that_never_come_runs_dry() -> None:
    with pytest.raises(CantleBug, match="nothing is to come, and yet not all is over"):
        simulate([job("a")], [node()], events=(NodeLost(0.1, 0), NodesAwaited(0.1, 1)))


def test_the_loop_writes_down_before_it_applies_and_applies_before_it_carries_out() -> None:
    happened: list[str] = []

    class Told(State):
        def apply(self, record: AnyRecord) -> None:
            happened.append(f"apply {type(record).__name__}")
            super().apply(record)

    class Book:
        def write(self, record: AnyRecord) -> None:
            happened.append(f"write {type(record).__name__}")

        def flush(self) -> None:
            happened.append("flush")

    class World(SimulatedWorld):
        def carry_out(self, decision: Any) -> None:
            happened.append(f"carry out {type(decision).__name__}")
            super().carry_out(decision)

        def settle(self) -> None:
            happened.append("settle")

    state = Told()
    for record in study_records([job("a")]):
        state.apply(record)
    world = World(state, [(0.0, [node()])], ten_seconds)
    happened.clear()
    seen: list[bool] = []
    run(state, world, Book(), Decider(), [lambda s: seen.append(s.finished)])
    assert happened == [
        "write NodesAwaited", "apply NodesAwaited", "write NodesJoined", "apply NodesJoined",
        "write Launch", "apply Launch", "carry out Launch", "flush", "settle",
        "write TaskEnded", "apply TaskEnded", "flush", "settle",
    ]  # fmt: skip
    assert seen == [False, True], "observers are called once a turn"
