"""Which idle nodes are held, and which are given back?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantle.core.holding import CAP, HORIZON, Floor, Holding, gang_start_cost_s

S = 10.0


def uses(n: int) -> Callable[[float], int]:
    """A forecast that expects n of the idle nodes to be used."""
    return lambda _until: n


def holding_idle_nodes(*since: float) -> Holding[int]:
    """Nodes 0, 1 ... that have been idle since then."""
    found: Holding[int] = Holding(S)
    for node, time in enumerate(since):
        found.idle(node, time)
    return found


def test_as_many_are_held_as_the_forecast_uses_and_those_that_idle_longest_go() -> None:
    holding = holding_idle_nodes(0.0, 1.0, 2.0)
    verdict = holding.decide(5.0, uses(1))
    assert verdict.give_back == [0, 1]
    assert holding.held == [2]


def test_the_forecast_is_asked_a_little_further_than_the_start_cost() -> None:
    asked = []

    def forecast(until: float) -> int:
        asked.append(until)
        return 1

    holding_idle_nodes(0.0).decide(3.0, forecast)
    assert asked == [3.0 + HORIZON * S]
    assert 1.0 < HORIZON < 1.5


def test_the_node_that_became_idle_last_is_used_first_and_held_ones_before_those_given_back() -> None:
    holding = holding_idle_nodes(0.0, 1.0, 2.0, 3.0)
    holding.decide(5.0, uses(2))
    assert list(holding.in_order()) == [3, 2, 1, 0]


def test_a_surplus_node_stays_for_the_floor_and_the_verdict_says_when_to_ask_again() -> None:
    holding = holding_idle_nodes(5.0)
    verdict = holding.decide(5.0, uses(0))
    assert verdict.give_back == []
    assert verdict.wake_up_at == 5.0 + holding.floor.seconds
    assert holding.decide(verdict.wake_up_at, uses(0)).give_back == [0]


def test_a_forecast_that_does_not_come_true_is_asked_again() -> None:
    holding = holding_idle_nodes(5.0)
    verdict = holding.decide(5.0, uses(1))
    assert verdict.wake_up_at == 5.0 + S / 4


def test_nobody_is_held_longer_than_the_cap_whatever_the_forecast_says() -> None:
    holding = holding_idle_nodes(0.0)
    now = 0.0
    for _ in range(100):
        verdict = holding.decide(now, uses(1))
        if verdict.give_back:
            break
        assert verdict.wake_up_at is not None and verdict.wake_up_at > now
        now = verdict.wake_up_at
    assert now == CAP * S


def test_when_nothing_is_left_to_start_all_go_at_once() -> None:
    holding = holding_idle_nodes(5.0, 5.0)
    verdict = holding.decide(5.0, uses(2), work_left=False)
    assert verdict.give_back == [0, 1]
    assert verdict.wake_up_at is None


def test_where_starting_costs_next_to_nothing_all_go_at_once_and_no_forecast_is_made() -> None:
    holding: Holding[str] = Holding(0.5)
    holding.idle("a", 1.0)

    def forecast(_until: float) -> int:
        raise AssertionError("nobody need ask")

    assert holding.decide(1.0, forecast).give_back == ["a"]


def test_a_node_that_is_being_started_or_kept_for_a_gang_has_no_idle_time() -> None:
    holding = holding_idle_nodes(0.0, 0.0)
    holding.busy(0, 1.0)
    assert holding.held == [1]
    assert holding.cost.held_s == 1.0
    assert holding.decide(100.0, uses(0)).give_back == [1]


def test_a_forecast_of_more_than_is_held_takes_nothing() -> None:
    holding = holding_idle_nodes(0.0)
    verdict = holding.decide(1.0, uses(7))
    assert verdict.give_back == []
    assert holding.held == [0]
    assert holding.cost.taken_again == 0


def test_without_idle_nodes_nothing_is_forecast_and_nobody_wakes() -> None:
    verdict = Holding[int](S).decide(1.0, uses(3))
    assert (verdict.give_back, verdict.wake_up_at) == ([], None)


def test_when_somebody_waits_surplus_goes_at_once_and_only_as_much_as_he_waits_for() -> None:
    holding = holding_idle_nodes(5.0, 5.0, 5.0)
    verdict = holding.decide(5.0, uses(0), waited_for=2)
    assert verdict.give_back == [0, 1]


def test_when_somebody_waits_a_node_that_is_expected_to_be_used_is_held_for_one_start_cost_at_most() -> None:
    assert holding_idle_nodes(0.0).decide(S - 1, uses(1), waited_for=1).give_back == []
    assert holding_idle_nodes(0.0).decide(S, uses(1), waited_for=1).give_back == [0]
    assert holding_idle_nodes(0.0).decide(S, uses(1)).give_back == []


def test_the_cost_is_what_was_held_and_what_was_taken_again() -> None:
    holding = holding_idle_nodes(0.0, 0.0)
    holding.decide(4.0, uses(1))
    holding.busy(1, 6.0)
    holding.busy(0, 9.0)
    assert (holding.cost.held_s, holding.cost.given_back, holding.cost.taken_again) == (10.0, 1, 1)
    assert holding.cost.total_s == 10.0 + S


def test_a_node_that_works_for_the_first_time_is_not_taken_again() -> None:
    holding: Holding[int] = Holding(S)
    holding.busy(3, 1.0)
    assert holding.cost.taken_again == 0


def test_a_lost_node_is_neither_held_nor_taken_again() -> None:
    holding = holding_idle_nodes(0.0, 0.0)
    holding.decide(4.0, uses(1))
    holding.lost(0, 5.0)
    holding.lost(1, 5.0)
    holding.busy(0, 6.0)
    assert holding.held == []
    assert holding.cost.taken_again == 0
    assert holding.cost.held_s == 4.0 + 5.0


def test_the_floor_becomes_the_gap_at_which_forecasts_keep_failing() -> None:
    floor = Floor(S)
    at_first = floor.seconds
    for _ in range(5):
        floor.learn(1.0)
    assert at_first < 1.0
    assert floor.seconds == 1.0


def test_the_floor_falls_again_when_what_was_called_surplus_was_surplus() -> None:
    floor = Floor(S)
    at_first = floor.seconds
    floor.learn(4.0)
    for _ in range(50):
        floor.learn(2 * S)
    assert floor.seconds == at_first


def test_a_node_that_was_called_surplus_and_never_came_back_teaches_that_it_was_surplus() -> None:
    holding = holding_idle_nodes(0.0)
    for _ in range(3):
        holding.floor.learn(4.0)
    assert holding.floor.seconds == 4.0
    holding.decide(5.0, uses(0))
    for node in range(1, 12):
        holding.idle(node, 100.0)
    holding.decide(104.0, uses(0))
    holding.idle(99, 200.0)
    holding.decide(200.0, uses(1))
    assert holding.floor.seconds < 4.0


@pytest.mark.parametrize(("long_ago", "lately"), [(3.0, 1.0), (2 * S, 9.0)])
def test_the_floor_forgets_what_was_long_ago(long_ago: float, lately: float) -> None:
    floor = Floor(S)
    for _ in range(1000):
        floor.learn(long_ago)
    for _ in range(1000):
        floor.learn(lately)
    assert floor.seconds == lately


def test_the_floor_weighs_what_waiting_costs_against_what_taking_again_costs() -> None:
    """Holding ten nodes for 9 s each would cost 90 s and more for those that were never used: dearer than taking them again."""
    floor = Floor(S)
    at_first = floor.seconds
    for _ in range(3):
        floor.learn(9.0)
        floor.learn(2 * S)
    assert floor.seconds == at_first
    for _ in range(30):
        floor.learn(1.0)
    assert floor.seconds == 1.0


@pytest.mark.parametrize("cost", [float("nan"), -1.0])
def test_a_start_cost_that_is_no_cost_is_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Holding(cost)


def test_a_gang_of_four_that_must_be_drained_is_dearer_than_a_node() -> None:
    assert gang_start_cost_s(4, 2.0, 5.0) == 28.0


steps = st.lists(
    st.tuples(st.floats(0.0, 30.0), st.sampled_from(["idle", "work", "decide"]), st.integers(0, 3), st.integers(0, 2)),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_a_node_is_given_back_once_in_an_idle_period_and_taken_again_only_when_none_is_held(
    told: list[tuple[float, str, int, int]],
) -> None:
    """Demand goes up and down by one; a step up uses whom `in_order` names first."""
    holding: Holding[int] = Holding(S)
    busy = [0, 1, 2, 3]
    given_back: set[int] = set()
    now = 0.0
    for passed, what, number, forecast in told:
        now += passed
        if what == "idle" and busy:
            node = busy.pop(number % len(busy))
            given_back.discard(node)
            holding.idle(node, now)
        elif what == "work" and len(busy) < 4:
            node = next(iter(holding.in_order()))
            again = holding.cost.taken_again
            held = bool(holding.held)
            holding.busy(node, now)
            assert (holding.cost.taken_again == again) == held
            busy.append(node)
        elif what == "decide":
            verdict = holding.decide(now, uses(forecast))
            assert given_back.isdisjoint(verdict.give_back)
            given_back.update(verdict.give_back)
            assert len(holding.held) + len(given_back.difference(busy)) + len(busy) == 4
            assert verdict.wake_up_at is None or verdict.wake_up_at > now
    assert holding.cost.taken_again <= holding.cost.given_back
