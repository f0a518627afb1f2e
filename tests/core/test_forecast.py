"""How many of the idle nodes does the work that is coming use?"""

from __future__ import annotations

import pytest

from builders import Story, job, node
from cantle.core.forecast import Forecast, correction, expected_end, expected_s
from cantle.model.records import TaskEnded
from cantle.model.study import Limits

INF = float("inf")


def fan(*, estimate_s: float = 10.0, children: int = 3, **needs: int) -> Story:
    """A root that runs on one of four nodes of one core, and what it unblocks."""
    below = [job(f"c{i}", "root", estimate_s=estimate_s, **needs) for i in range(children)]
    story = Story(job("root", estimate_s=estimate_s), *below, on=[node(f"n{i}") for i in range(4)])
    assert story.launches() == ["root"]
    return story


def used(story: Story, within_s: float) -> int:
    return Forecast(story.state).nodes_used(story.state.now + within_s)


def test_what_a_running_task_unblocks_within_the_horizon_uses_idle_nodes_beside_its_own() -> None:
    story = fan()
    assert used(story, 10.0) == 2
    assert used(story, 9.0) == 0


def test_counting_ends_with_as_many_as_one_wants_to_know_of() -> None:
    story = fan()
    assert Forecast(story.state).nodes_used(story.state.now + 10.0, 1) == 1
    assert Forecast(story.state).nodes_used(story.state.now + 10.0, 0) == 0


def test_a_chain_uses_the_node_that_its_parent_leaves_and_no_idle_one() -> None:
    jobs = [job("a", estimate_s=1.0), job("b", "a", estimate_s=1.0), job("c", "b", estimate_s=1.0)]
    story = Story(*jobs, on=[node("n0"), node("n1")])
    story.launches()
    assert used(story, 100.0) == 0


def test_partly_busy_nodes_are_filled_before_idle_ones_are_used() -> None:
    story = Story(
        job("root", estimate_s=5.0),
        job("other", estimate_s=50.0),
        *[job(f"c{i}", "root", estimate_s=5.0) for i in range(4)],
        on=[node("n0", 4), node("n1", 4)],
    )
    story.launches()
    assert used(story, 10.0) == 1


def test_a_small_idle_node_is_not_used_while_a_node_that_worked_has_room() -> None:
    jobs = [job("root", cores=2, estimate_s=5.0), job("c", "root", estimate_s=5.0)]
    story = Story(*jobs, on=[node("big", 4), node("small", 1)])
    story.launches()
    assert used(story, 10.0) == 0


def test_the_most_urgent_starts_first() -> None:
    story = Story(
        job("root", estimate_s=5.0),
        job("narrow", "root", estimate_s=6.0),
        job("wide", "root", nodes=3, estimate_s=90.0),
        on=[node(f"n{i}") for i in range(3)],
    )
    story.launches()
    assert used(story, 10.0) == 2


def test_what_does_not_fit_is_passed_over_and_starts_when_it_fits() -> None:
    story = Story(
        job("root", estimate_s=5.0),
        job("long", estimate_s=20.0),
        job("wide", "root", nodes=4, estimate_s=90.0),
        *[job(f"narrow{i}", "root", estimate_s=5.0) for i in range(2)],
        on=[node(f"n{i}") for i in range(4)],
    )
    story.launches()
    assert used(story, 10.0) == 1
    assert used(story, 20.0) == 2


def test_what_waits_for_somebody_beyond_the_horizon_uses_nothing() -> None:
    jobs = [job("a", estimate_s=5.0), job("b", estimate_s=50.0), job("c", "a b", nodes=2, estimate_s=5.0)]
    story = Story(*jobs, on=[node(f"n{i}") for i in range(4)])
    story.launches()
    assert used(story, 10.0) == 0
    assert used(story, 50.0) == 0
    assert used(story, 5.0) == 0


def test_a_node_that_joins_later_is_counted_as_well() -> None:
    story = Story(
        job("root", estimate_s=50.0), *[job(f"c{i}", "root", estimate_s=5.0) for i in range(3)], on=[node("n0")]
    )
    story.launches()
    forecast = Forecast(story.state)
    assert forecast.nodes_used(100.0) == 0
    story.join(node("n1"), node("n2"))
    assert forecast.nodes_used(100.0) == 2


def test_a_gang_that_becomes_ready_uses_all_of_its_nodes() -> None:
    story = fan(children=1, nodes=3)
    assert used(story, 10.0) == 2


def test_whole_nodes_are_not_shared_in_the_forecast() -> None:
    story = Story(
        job("root", estimate_s=5.0, cores=2),
        job("long", estimate_s=50.0),
        job("alone", "root", whole_nodes=True, estimate_s=5.0),
        on=[node("n0", 4), node("n1", 4)],
    )
    story.launches()
    assert used(story, 10.0) == 1


def test_a_task_that_needs_a_kind_of_node_uses_no_other() -> None:
    story = Story(
        job("root", estimate_s=5.0),
        *[job(f"c{i}", "root", kind="gpu", estimate_s=5.0) for i in range(3)],
        on=[node("n0"), node("n1"), node("n2", kind="gpu")],
    )
    story.launches()
    assert used(story, 10.0) == 1


def test_an_overdue_task_is_expected_to_last_a_quarter_of_its_age_more() -> None:
    assert expected_end(100.0, 0.0, 50.0) == 125.0
    assert expected_end(100.0, 90.0, 50.0) == 140.0


def test_what_nobody_has_estimated_and_nobody_has_seen_ends_after_the_horizon() -> None:
    story = fan(estimate_s=0.0)
    assert expected_s(story.state, 0) == INF
    assert used(story, 1e9) == 0


def test_what_nobody_has_estimated_takes_as_long_as_its_like_took() -> None:
    story = Story(job("a"), job("b"), job("c", "b"), job("d", "b"), on=[node("n0"), node("n1")])
    story.launches()
    story.happens(TaskEnded(story.state.now + 7.0, 0, 1, "done"))
    assert expected_s(story.state, 1) == 7.0
    assert used(story, 7.0) == 1


@pytest.mark.parametrize("estimate_s", [0.0, INF])
def test_estimates_that_are_all_nothing_or_all_infinite_use_no_node(estimate_s: float) -> None:
    assert used(fan(estimate_s=estimate_s), 1e6) == 0


def test_estimates_are_corrected_by_how_wrong_others_of_their_shape_were() -> None:
    jobs = [job(f"t{i}", estimate_s=10.0) for i in range(9)]
    story = Story(*jobs, on=[node("n0")])
    for i in range(8):
        story.launches()
        story.happens(TaskEnded(story.state.now + 5.0, i, 1, "done"))
    assert expected_s(story.state, 8) == 5.0


def test_few_tasks_correct_nothing_and_many_no_more_than_a_bound() -> None:
    assert correction(7, 100.0, 10.0) == 1.0
    assert correction(8, 20.0, 10.0) == 2.0
    assert correction(8, 1000.0, 10.0) == 4.0
    assert correction(8, 1.0, 1000.0) == 0.25
    assert correction(8, 0.0, 10.0) == 1.0


def test_a_throttle_keeps_idle_nodes_idle() -> None:
    jobs = [job(f"t{i}", estimate_s=5.0) for i in range(3)]
    story = Story(*jobs, on=[node("n0"), node("n1"), node("n2")], limits=Limits(throttle=1))
    assert story.launches() == ["t0"]
    assert used(story, 10.0) == 0
    story.limit(Limits(throttle=2))
    assert used(story, 10.0) == 1
