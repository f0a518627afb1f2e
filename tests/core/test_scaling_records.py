"""What is known of kinds, requests and nodes on their way, as the records tell it; and what no kind can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.builders import Job, Story, job, node, nodes

from cantle.core.explain import explain
from cantle.core.plan import Plan
from cantle.core.scaling.ledger import GIVEN_BACK_S, MOST_REFUSALS, Ledger
from cantle.core.scaling.seam import WAKES_AT
from cantle.model.kinds import Kind
from cantle.model.records import (
    Decision,
    DrainNode,
    GiveUpNode,
    KindsDeclared,
    NodeDrainAsked,
    NodeLost,
    NodeReleased,
    NodeResumeAsked,
    NodesJoined,
    NodesWished,
    NoticeIdle,
    Refuse,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    ResumeNode,
    RunResumed,
    TimePassed,
    WithdrawRequest,
)

CPU = Kind("cpu", 4, most=10, starts_in_s=60.0)
GPU = Kind("gpu", 2, gpus=2, most=2)


def told(*jobs: Job, there: int = 1, kinds: tuple[Kind, ...] = (CPU, GPU)) -> tuple[Story, Ledger]:
    story = Story(*jobs, on=nodes(there))
    story.decider.scaler = lambda _plan: iter(())
    story.happens(KindsDeclared(1.0, list(kinds)))
    ledger = story.state.scaling
    assert ledger is not None
    return story, ledger


def refused(story: Story) -> list[str]:
    return [d.why for d in story.decides() if isinstance(d, Refuse)]


def test_a_request_is_on_its_way_until_it_is_answered_otherwise() -> None:
    story, ledger = told()
    story.happens(RequestNodes(5.0, "cpu", 4, "why"))
    request = ledger.requests[0]
    assert (ledger.coming("cpu"), ledger.coming("gpu"), request.expected_at) == (4, 0, 65.0)
    story.happens(RequestAnswered(6.0, 0, 3, 1, "one is too many", 80.0))
    assert (ledger.coming("cpu"), request.refused, request.expected_at) == (3, 1, 80.0)
    story.happens(NodesJoined(80.0, [CPU.node("a"), CPU.node("b")], 0))
    assert (ledger.coming("cpu"), ledger.there("cpu"), request.joined) == (1, 2, 2)
    story.happens(RequestAnswered(81.0, 0, 3, 1))
    assert ledger.coming("cpu") == 1  # those that joined do not come once more
    story.happens(WithdrawRequest(82.0, 0, 1, "not needed"))
    assert ledger.coming() == 0 and not ledger.open
    story.happens(RequestAnswered(83.0, 0, 1, 1))
    assert ledger.coming() == 0  # told before it had heard of the withdrawal


def test_nodes_of_a_declared_kind_count_as_of_it_whether_requested_or_not() -> None:
    story, ledger = told()
    story.join(node("x", 4, kind="cpu"), node("y", 4, kind="other"))
    assert ledger.kind_of == {1: "cpu"}
    story.happens(RequestNodes(5.0, "gpu", 1, "why"))
    story.happens(NodesJoined(6.0, [node("z", 2, gpus=2)], 0))
    assert ledger.kind_of == {1: "cpu", 3: "gpu"} and ledger.request_of == {3: 0}
    story.happens(KindsDeclared(7.0, [GPU]))
    assert ledger.kind_of == {3: "gpu"} and list(ledger.kinds) == ["gpu"]
    story.lose("z")
    assert ledger.there("gpu") == 0


def test_how_long_nodes_take_is_learned_from_those_that_came() -> None:
    story, ledger = told()
    assert ledger.starts_in_s("cpu") == 60.0
    story.happens(RequestNodes(10.0, "cpu", 1, "why"))
    story.happens(NodesJoined(40.0, [CPU.node("a")], 0))
    assert ledger.starts_in_s("cpu") == 30.0


def test_nodes_that_were_asked_for_are_not_those_that_the_allocation_awaits() -> None:
    story, _ = told()
    story.await_nodes(2)
    story.happens(RequestNodes(5.0, "cpu", 1, "why"))
    story.happens(NodesJoined(6.0, [CPU.node("a")], 0))
    assert story.state.awaited == 2


def test_the_last_wish_for_a_kind_holds_until_it_is_taken_back() -> None:
    story, ledger = told()
    story.happens(NodesWished(3.0, "cpu", 3, "f"))
    story.happens(NodesWished(4.0, "cpu", 2, "f"))
    assert ledger.wishes["cpu"].count == 2
    story.happens(NodesWished(5.0, "", by="f", problem="it raised ValueError"))
    assert ledger.wishes["cpu"].count == 2 and ledger.problems == {"f": "it raised ValueError"}
    story.happens(NodesWished(6.0, "cpu", None, "f"))
    assert not ledger.wishes and not ledger.problems


def test_a_node_that_retires_takes_nothing_and_is_used_again_when_it_is_wanted() -> None:
    story, ledger = told(job("a"), there=1)
    story.happens(DrainNode(3.0, 0, "not needed", "retires"))
    assert ledger.retiring == {0: 3.0} and not story.decides()
    story.happens(ResumeNode(4.0, 0, "wanted again"))
    assert not ledger.retiring and len(story.decides()) == 1


def test_a_node_that_was_given_back_goes_as_planned_and_is_never_used_again() -> None:
    story, ledger = told(job("a", cores=4))
    story.join(CPU.node("x"))
    story.happens(ReleaseNode(5.0, 1, "idle"))
    assert ledger.released == {1: 5.0} and ledger.there("cpu") == 0
    story.happens(ResumeNode(6.0, 1, "too late"))
    assert not [d for d in story.decides() if not isinstance(d, Refuse)]
    story.happens(NodeReleased(7.0, 1))
    story.happens(NodeLost(8.0, 1, "given back"))
    assert not ledger.released and story.state.trouble is None and not ledger.kind_of


def test_a_node_that_its_provider_never_takes_is_given_up_once() -> None:
    story, ledger = told(job("a", cores=4))
    story.join(CPU.node("x"))
    story.happens(ReleaseNode(5.0, 1, "idle"))
    story.decides()
    story.happens(TimePassed(5.0 + GIVEN_BACK_S - 1.0))
    assert not [d for d in story.decides() if isinstance(d, GiveUpNode)]
    assert story.decider.wakes_at == 5.0 + GIVEN_BACK_S
    story.happens(TimePassed(5.0 + GIVEN_BACK_S))
    [given_up] = [d for d in story.decides() if isinstance(d, GiveUpNode)]
    assert given_up.node == 1 and "its provider has not taken it" in given_up.why
    story.happens(TimePassed(6.0 + GIVEN_BACK_S))
    assert not [d for d in story.decides() if isinstance(d, GiveUpNode)], "the loss is about to be told"
    story.happens(NodeLost(7.0 + GIVEN_BACK_S, 1, given_up.why))
    assert not ledger.released and not ledger.overdue and not story.state.lost_nodes


def test_a_node_that_its_provider_cannot_take_back_is_used_again() -> None:
    story, ledger = told(job("a", cores=4))
    story.join(CPU.node("x"))
    story.happens(ReleaseNode(5.0, 1, "idle"))
    story.happens(NodeReleased(6.0, 1, "the batch job cannot shrink"))
    assert ledger.unreleasable == {1: "the batch job cannot shrink"} and len(story.decides()) == 1


def test_a_node_that_fails_everything_stays_drained_when_its_provider_cannot_take_it_back() -> None:
    story, ledger = told(job("a", cores=4))
    story.join(CPU.node("x"))
    story.happens(DrainNode(4.0, 1, "it fails what succeeds elsewhere", "fails"))
    story.happens(ReleaseNode(5.0, 1, "nothing may begin on it"))
    story.happens(NodeReleased(6.0, 1, "the batch job cannot shrink"))
    assert story.state.drained == {1: "it fails what succeeds elsewhere"} and not ledger.released
    assert not story.decides(), "others of its kind can be asked for"


def test_a_node_whose_end_has_come_stays_drained_when_its_provider_cannot_take_it_back() -> None:
    story, ledger = told(job("a", cores=4))
    story.join(CPU.node("x", ends_at=100.0))
    story.happens(DrainNode(95.0, 1, "its allocation ends", "ends"))
    story.happens(ReleaseNode(96.0, 1, "nothing may begin on it"))
    story.happens(NodeReleased(97.0, 1, "the batch job cannot shrink"))
    assert story.state.drained == {1: "its allocation ends"} and not ledger.released


def test_whoever_lets_a_node_be_used_again_that_was_given_back_is_heeded_when_it_cannot_go() -> None:
    story, _ = told(job("a", cores=4))
    story.join(CPU.node("x"))
    story.happens(NodeDrainAsked(4.0, "x", "me"))
    story.happens(ReleaseNode(5.0, 1, "nothing may begin on it"))
    story.happens(NodeResumeAsked(6.0, "x", "me"))
    assert 1 in story.state.drained, "it is on its way out"
    story.happens(NodeReleased(7.0, 1, "the batch job cannot shrink"))
    assert not story.state.drained and len(story.decides()) == 1


def test_it_is_known_since_when_a_node_has_no_work_and_whether_that_was_told() -> None:
    story, ledger = told(job("a"), job("b"))
    assert ledger.idle_since(story.state, 0) == story.state.joined_at[0]
    story.decides()
    story.end("a")
    ended = story.state.now
    story.happens(NoticeIdle(ended + 5, 0, "unused"))
    assert ledger.idle_since(story.state, 0) == ended and ledger.is_noticed(story.state, 0)
    story.decides()
    story.end("b")
    assert not ledger.is_noticed(story.state, 0)


def test_what_a_kind_could_hold_waits_and_what_none_can_is_refused_with_the_largest_of_both() -> None:
    """O03."""
    story, _ = told(job("wide", cores=8), job("big", cores=3), there=2)
    (why,) = refused(story)
    assert why == (
        "needs 8 cores; the largest node, n0 (1 core), has 1 of 8 cores; of the kinds that can be asked for the largest, "
        "kind cpu (4 cores), has 4 of 8 cores"
    )
    assert story.phase("big").name == "READY"
    assert explain(story.state, 1)[1] == (
        "It needs 3 cores, which no node that is there could hold; it waits for one of kind cpu to be asked for."
    )
    story.happens(RequestNodes(5.0, "cpu", 1, "why"))
    assert "1 node of kind cpu on the way, expected in 60 s" in explain(story.state, 1)[1]
    late = "1 node of kind cpu on the way, expected 40 s ago (who brings them has not answered yet)"
    assert late in explain(story.state, 1, 105.0)[1]


def test_a_gang_wider_than_all_that_may_be_there_is_refused() -> None:
    story, _ = told(job("gang", cores=2, gpus=1, nodes=3), job("pair", cores=2, gpus=1, nodes=2))
    assert refused(story) == [
        "needs 2 cores, 1 GPU on each of 3 nodes; at most 2 nodes that could hold a share of it may be there at once"
    ]


def test_a_kind_whose_nodes_end_before_the_walltime_cannot_hold_the_task() -> None:
    """O04."""
    short = Kind("short", 4, lasts_s=10.0)
    story, _ = told(job("long", cores=4, walltime_s=60.0), job("brief", cores=4, walltime_s=5.0), kinds=(short,))
    (why,) = refused(story)
    assert "needs 4 cores for 60 s" in why and "a node of kind short lasts 10 s" in why
    assert story.phase("brief").name == "READY"


def test_a_kind_whose_provider_cannot_add_helps_nobody() -> None:
    """D6."""
    story, _ = told(job("a", cores=4), kinds=(Kind("fixed", 4, adds=False),))
    (why,) = refused(story)
    assert "its provider cannot add nodes of kind fixed" in why
    story, _ = told(job("a", cores=4), kinds=(Kind("bare", 4, adds=False, provider="nobody"),))
    (why,) = refused(story)
    assert "nobody is declared who brings nodes of kind bare: say so as in `provider: local`" in why


def test_after_some_refusals_in_a_row_a_kind_counts_as_one_that_cannot_be_had() -> None:
    story, _ = told(job("a", cores=4), kinds=(CPU,))
    for number in range(MOST_REFUSALS):
        assert not refused(story)
        story.happens(RequestNodes(5.0 + number, "cpu", 1, "why"))
        story.happens(RequestAnswered(5.0 + number, number, 0, 1, "no money left"))
    (why,) = refused(story)
    assert "5 requests for nodes of kind cpu brought none: no money left" in why


def test_a_new_conductor_knows_no_kinds_and_nothing_is_on_its_way_to_it() -> None:
    story, ledger = told()
    story.happens(RequestNodes(5.0, "cpu", 1, "why"))
    story.happens(RunResumed(6.0, "host", 1))
    assert not ledger.kinds and not ledger.open
    story.happens(RequestNodes(7.0, "cpu", 1, "why"))
    assert ledger.requests[1].number == 1


def test_the_scaler_is_asked_only_where_kinds_are_declared_and_again_when_it_wants() -> None:
    asked: list[float] = []

    def scaler(plan: Plan) -> Iterator[Decision]:
        asked.append(plan.state.now)
        plan.memory[WAKES_AT] = 50.0
        if len(asked) == 1:
            yield RequestNodes(plan.state.now, "cpu", 1, "to see")

    story = Story(job("a"), on=nodes(1))
    story.decider.scaler = scaler
    story.decides()
    assert not asked
    story.happens(KindsDeclared(3.0, [CPU]))
    decisions: list[Any] = story.decides()
    assert [type(d) for d in decisions] == [RequestNodes] and story.decider.wakes_at == 50.0
    story.decides()
    assert len(asked) == 1


def test_a_node_that_was_given_back_is_forgotten_by_the_next_conductor_whatever_kinds_were_declared_since() -> None:
    story, ledger = told(job("a"))
    story.join(node("x", 4, kind="cpu"))
    story.happens(ReleaseNode(5.0, 1, "idle"))
    story.happens(KindsDeclared(6.0, [GPU]))
    assert ledger.leaving() == 0b10
    story.resume()
    assert ledger.leaving() == 0 and not ledger.released
