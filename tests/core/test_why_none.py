"""Whether a task that waits is told why no node is asked for: bounds, refusals, the cool-down, and what the policies say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.builders import Story, job, node

from cantle.core.explain import explain
from cantle.core.scaling.ledger import MOST_REFUSALS
from cantle.model.kinds import Kind
from cantle.model.records import (
    KindsDeclared,
    NodeLost,
    NodesJoined,
    NodesWished,
    RequestAnswered,
    RequestNodes,
    WithdrawRequest,
)

CPU = Kind("cpu", 1, most=4, starts_in_s=60.0)


def busy(*words: str, kind: Kind = CPU, estimate_s: float = 10.0, there: int = 1, waiting: int = 3) -> Story:
    """Nodes of the kind, each with a task, and tasks that wait for one."""
    story = Story(*(job(f"t{i}", estimate_s=estimate_s) for i in range(there + waiting)), on=[])
    story.decider.scaler = lambda _plan: iter(())
    story.happens(KindsDeclared(1.0, [kind], words))
    story.happens(RequestNodes(1.0, kind.name, there, "there is work"))
    story.happens(NodesJoined(61.0, [node(f"cpu-{i}", kind="cpu") for i in range(there)], 0))
    story.decides()
    return story


def told(story: Story, now: float = 0.0) -> str:
    last = len(story.state.tasks) - 1
    return " ".join(explain(story.state, last, now))


def test_as_many_as_there_may_be_are_there() -> None:
    assert "Of kind cpu 2 are there, and 2 may be there at most." in told(busy(kind=replace(CPU, most=2), there=2))
    blocks = told(busy(kind=replace(CPU, most=3, block=2), there=2))
    assert "Of kind cpu 2 are there, and 3 may be there at most, and they come in blocks of 2." in blocks


def test_nobody_can_add_any() -> None:
    assert "Of kind cpu none is asked for: nobody who brings nodes can add any." in told(
        busy(kind=replace(CPU, adds=False))
    )


def test_the_last_request_was_refused_and_when_it_is_asked_for_again() -> None:
    story = busy("payoff", "retry=40s")
    story.happens(RequestNodes(62.0, "cpu", 1, "more work"))
    story.happens(RequestAnswered(63.0, 1, 0, 1, "the queue is closed"))
    said = "Of kind cpu the last request was refused: the queue is closed; it is asked for again in 30 s."
    assert said in told(story, 73.0)


def test_after_some_refusals_in_a_row_it_is_not_asked_for_any_more() -> None:
    story = busy()
    for number in range(1, MOST_REFUSALS + 1):
        story.happens(RequestNodes(62.0 + number, "cpu", 1, "more work"))
        story.happens(RequestAnswered(62.5 + number, number, 0, 1, "no such queue"))
    assert (
        "Of kind cpu none is asked for any more: 5 requests in a row brought none, the last was refused: no such queue."
        in told(story)
    )


def test_one_was_given_back_and_the_cool_down_is_not_over() -> None:
    story = busy("demand", "cool-down=2min")
    story.happens(RequestNodes(62.0, "cpu", 1, "more work"))
    story.happens(WithdrawRequest(63.0, 1, 1, "not needed"))
    text = told(story, 83.0)
    assert "one was given back, or not wanted any more, 20 s ago" in text and "for another 100 s" in text
    assert "cool-down" not in told(story, 200.0)


def test_the_cool_down_is_no_reason_where_it_holds_up_nobody() -> None:
    story = busy("demand", "cool-down=2min")
    story.happens(RequestNodes(62.0, "cpu", 1, "more work"))
    story.happens(WithdrawRequest(63.0, 1, 1, "not needed"))
    story.happens(NodesWished(64.0, "cpu", 3, "ann"))
    assert "cool-down" not in told(story, 83.0), "somebody has wished anew since"
    story = busy("demand", "cool-down=2min")
    story.happens(RequestNodes(62.0, "cpu", 1, "more work"))
    story.happens(WithdrawRequest(63.0, 1, 1, "not needed"))
    story.happens(NodeLost(64.0, 0, "it died"))
    assert "cool-down" not in told(story, 83.0), "nothing runs, and something is ready"


def test_some_are_on_the_way_with_the_providers_words() -> None:
    story = busy()
    story.happens(RequestNodes(62.0, "cpu", 2, "more work"))
    story.happens(RequestAnswered(63.0, 1, 2, 0, "job 7: pending (Priority)", 162.0))
    assert "Of kind cpu 2 nodes are on the way, expected in 62 s (job 7: pending (Priority))." in told(story, 100.0)


def test_the_default_policy_says_that_it_does_not_pay() -> None:
    text = told(busy(estimate_s=2.0))
    assert "Of kind cpu no more are asked for; payoff: what is left ends in " in text
    assert "no sooner with one more, which takes 60 s to come" in text
    text = told(busy(estimate_s=40.0, waiting=2))
    assert "ends in 2 min with what is there; with one more in 100 s, which costs 50 % more." in text


def test_the_default_policy_says_that_more_would_pay_but_later() -> None:
    story = busy(estimate_s=900.0)
    assert "payoff: 3 more would pay" in told(story)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("demand", "demand: what is there has room for all that needs nodes of kind cpu"),
        ("fixed:1", "fixed:1: there are always to be 1"),
        ("eta:1h", "eta:1h: all should be over in 7 s, which is not more than 60 min"),
        ("no-nodes", "no-nodes: there are nodes"),
        ("cheapest", "cheapest: as few nodes as it can be done with"),
        ("mine:f", "mine:f: it wishes for 1 of them"),
    ],
)
def test_each_policy_has_its_reason(policy: str, said: str) -> None:
    story = busy(policy, estimate_s=2.0)
    story.happens(NodesWished(62.0, "cpu", 1, "mine:f"))
    assert said in told(story)
    assert ("mine:f wishes for 1" in told(story)) == (not policy.startswith("mine"))


def test_what_a_function_wishes_is_told_with_what_was_wrong_the_last_time() -> None:
    story = busy("mine:f", "mine:g", estimate_s=2.0)
    story.happens(NodesWished(62.0, "cpu", 1, "mine:f"))
    story.happens(NodesWished(63.0, "", None, "mine:f", "", "it took too long"))
    assert "mine:f: it wishes for 1 of them (it took too long); mine:g: it wishes for no number of them" in told(story)


def test_where_nothing_is_there_that_could_hold_it_it_is_told_too() -> None:
    story = Story(job("gpu", gpus=1), on=[node("n0")])
    story.decider.scaler = lambda _plan: iter(())
    story.happens(KindsDeclared(1.0, [Kind("g", 1, gpus=1)]))
    story.happens(RequestNodes(2.0, "g", 1, "it waits"))
    story.happens(RequestAnswered(3.0, 0, 0, 1, "no GPU is free"))
    text = " ".join(explain(story.state, 0))
    assert "it waits for one of kind g to be asked for" in text
    assert "Of kind g the last request was refused: no GPU is free; it is asked for again in 10 s." in text


def test_without_kinds_nothing_is_said_of_them() -> None:
    story = Story(job("a"), job("b"), on=[node("n0")])
    story.decides()
    assert "kind" not in " ".join(explain(story.state, 1))


def test_nodes_that_should_have_come_are_told_to_be_late() -> None:
    story = busy()
    story.happens(RequestNodes(62.0, "cpu", 2, "more work"))
    late = story.state.scaling.requests[1].expected_at + 30.0
    assert "2 nodes are on the way, expected 30 s ago (who brings them has not answered yet)." in told(story, late)
