"""What scalers of whatever kind are held to: what is impossible is an error of theirs, what is too much is cut."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import Job, Story, job

from cantle.core.plan import Plan
from cantle.core.scaling.bounds import held
from cantle.core.scaling.frame import Frame
from cantle.core.scaling.seam import WAKES_AT
from cantle.core.scaling.settings import Scaling
from cantle.core.scaling.wishing import why_not
from cantle.errors import PluginError
from cantle.model.kinds import MOST_NODES, Kind
from cantle.model.records import (
    DrainNode,
    KindsDeclared,
    MoveResults,
    NodesWished,
    NoticeIdle,
    Refuse,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    ResumeNode,
    TaskEnded,
    WithdrawRequest,
)
from cantle.model.resources import Node

SETTINGS = Scaling(cool_down_s=30.0, idle_s=20.0, retry_s=10.0)


class Bench:
    """A state on which something is proposed."""

    def __init__(self, *jobs: Job, kind: Kind, there: int = 0, settings: Scaling = SETTINGS) -> None:
        nodes = [Node(f"n{i}", kind.cores, kind=kind.name, machine=f"m{i}") for i in range(there)]
        self.story = Story(*jobs, on=nodes)
        self.story.decider.scaler = lambda _plan: iter(())
        self.story.happens(KindsDeclared(1.0, [kind]))
        self.story.decides()
        self.settings = settings
        self.memory: dict[object, Any] = {}

    @property
    def now(self) -> float:
        return self.story.state.now

    def proposes(self, *proposals: Any, open_ended: bool = False) -> list[Any]:
        """What is let through; it is applied."""
        plan = Plan(self.story.state, memory=self.memory)
        made = []
        for decision in held(iter(proposals), plan, self.settings, "mine", open_ended=open_ended):
            self.story.happens(decision)
            made.append(decision)
        return made

    def fault(self, proposal: Any) -> str:
        with pytest.raises(PluginError) as caught:
            self.proposes(proposal)
        return str(caught.value)


def test_requests_are_cut_to_what_may_be_there_and_then_dropped() -> None:
    bench = Bench(kind=Kind("cpu", 1, most=5), there=2)
    (first,) = bench.proposes(RequestNodes(bench.now, "cpu", 100, "much"))
    assert first.count == 3 and "of the 100" in first.why
    assert not bench.proposes(RequestNodes(bench.now, "cpu", 1, "more"))


def test_where_no_bound_was_said_there_is_one_all_the_same() -> None:
    bench = Bench(kind=Kind("cpu", 1), there=2)
    (first,) = bench.proposes(RequestNodes(bench.now, "cpu", 10**9, "a slip of the pen"))
    assert first.count == MOST_NODES - 2 and "there may be 100,000 in all" in first.why
    assert why_not(bench.story.state, "cpu", 10**9).startswith("there may be 100,000 nodes of kind cpu at most")
    assert not bench.proposes(RequestNodes(bench.now, "cpu", 1, "more"))


def test_requests_are_for_whole_blocks() -> None:
    bench = Bench(kind=Kind("cpu", 1, most=7, block=4))
    assert [r.count for r in bench.proposes(*(RequestNodes(bench.now, "cpu", 1, "one") for _ in range(2)))] == [4]


@pytest.mark.parametrize(("proposed", "withdrawn"), [(3, []), (6, [4]), (8, [8]), (100, [8])])
def test_requests_are_withdrawn_in_whole_blocks(proposed: int, withdrawn: list[int]) -> None:
    bench = Bench(kind=Kind("cpu", 1, block=4))
    bench.proposes(RequestNodes(bench.now, "cpu", 8, "two jobs"))
    bench.story.state.now += SETTINGS.cool_down_s
    assert [each.count for each in bench.proposes(WithdrawRequest(bench.now, 0, proposed, "no"))] == withdrawn


def test_a_kind_that_refused_is_asked_again_after_a_while_twice_as_long_each_time() -> None:
    bench = Bench(kind=Kind("cpu", 1))
    for number, wait_s in enumerate((10.0, 20.0)):
        asked = bench.now
        assert bench.proposes(RequestNodes(asked, "cpu", 1, "one"))
        bench.story.happens(RequestAnswered(asked, number, 0, 1, "full"))
        assert not bench.proposes(RequestNodes(asked, "cpu", 1, "one"))
        assert bench.memory.pop(WAKES_AT) == asked + wait_s
        bench.story.state.now = asked + wait_s


def test_what_was_just_asked_for_is_not_given_back_as_long_as_something_may_need_it() -> None:
    bench = Bench(job("a", cores=2), job("b", "a"), kind=Kind("cpu", 2), there=2)
    asked = bench.now
    bench.proposes(RequestNodes(asked, "cpu", 2, "two"))
    assert not bench.proposes(WithdrawRequest(asked, 0, 1, "no"), ReleaseNode(asked, 1, "no"))
    assert bench.memory[WAKES_AT] == asked + 30.0
    bench.story.state.now = asked + 30.0
    assert len(bench.proposes(WithdrawRequest(bench.now, 0, 9, "no"), ReleaseNode(bench.now, 1, "no"))) == 2


def test_what_was_just_given_back_is_not_asked_for_unless_nothing_runs() -> None:
    bench = Bench(job("a", cores=2), job("b", "a", cores=2), kind=Kind("cpu", 2), there=2)
    bench.proposes(ReleaseNode(bench.now, 1, "no"))
    assert not bench.proposes(RequestNodes(bench.now, "cpu", 1, "yes"))
    bench.story.lose("n0")
    assert bench.proposes(RequestNodes(bench.now, "cpu", 1, "yes"))


def test_who_wishes_anew_need_not_wait_for_the_cool_down_but_a_function_has_to() -> None:
    for by, goes in (("ann", True), ("mine:wish", False)):
        settings = Scaling(("mine:wish",), cool_down_s=30.0, idle_s=0.0)
        bench = Bench(job("a", cores=2), job("b", "a"), kind=Kind("cpu", 2), there=2, settings=settings)
        bench.proposes(RequestNodes(bench.now, "cpu", 2, "two"))
        bench.story.state.now += 1.0
        bench.story.happens(NodesWished(bench.now, "cpu", 1, by))
        fewer = bench.proposes(WithdrawRequest(bench.now, 0, 1, "no"), ReleaseNode(bench.now, 1, "no"), open_ended=True)
        assert len(fewer) == 2 * goes, by
        if not goes:
            bench.story.state.now += 40.0
            assert len(bench.proposes(ReleaseNode(bench.now, 1, "no"))) == 1
        bench.story.state.now += 1.0
        assert not bench.proposes(RequestNodes(bench.now, "cpu", 1, "yes")), "nobody has wished since"
        bench.story.happens(NodesWished(bench.now, "cpu", None, by))
        assert len(bench.proposes(RequestNodes(bench.now, "cpu", 1, "yes"))) == goes


def test_no_node_goes_before_it_has_stayed_nor_below_the_least() -> None:
    bench = Bench(kind=Kind("cpu", 1, least=1, stays_s=50.0), there=2)
    joined = bench.story.state.joined_at[0]
    assert not bench.proposes(ReleaseNode(bench.now, 0, "no")) and bench.memory[WAKES_AT] == joined + 50.0
    bench.story.state.now = joined + 50.0
    assert len(bench.proposes(ReleaseNode(bench.now, 0, "no"), ReleaseNode(bench.now, 1, "no"))) == 1


def test_where_more_work_may_come_no_node_goes_before_it_has_idled_for_a_while() -> None:
    bench = Bench(kind=Kind("cpu", 1), there=1)
    joined = bench.story.state.joined_at[0]
    assert not bench.proposes(ReleaseNode(bench.now, 0, "no"), open_ended=True)
    assert bench.memory[WAKES_AT] == joined + 20.0


def test_a_node_whose_provider_cannot_take_it_back_is_not_given_back() -> None:
    """D6."""
    bench = Bench(kind=Kind("cpu", 1, removes=False), there=1)
    assert not bench.proposes(ReleaseNode(bench.now, 0, "no"), DrainNode(bench.now, 0, "no", "retires"))


def test_what_is_ready_is_never_left_without_a_node_that_could_hold_it() -> None:
    bench = Bench(job("a"), job("b"), kind=Kind("cpu", 1), there=1)
    assert not bench.proposes(DrainNode(bench.now, 0, "no", "retires"))


def test_a_node_with_work_is_drained_and_given_back_when_it_is_empty() -> None:
    bench = Bench(job("a"), job("b", "a"), kind=Kind("cpu", 1), there=2)
    bench.proposes(DrainNode(bench.now, 0, "too many", "retires"))
    frame = Frame(SETTINGS, {})
    assert not list(frame(Plan(bench.story.state)))
    bench.story.end("a")
    made = [type(decision) for decision in frame(Plan(bench.story.state, memory={}))]
    assert made == [ReleaseNode]


def test_a_node_with_what_is_needed_alone_is_not_given_back_until_that_has_moved() -> None:
    """O11, D1."""
    bench = Bench(job("a"), job("c"), job("b", "a c"), kind=Kind("cpu", 1), there=2)
    story = bench.story
    story.happens(TaskEnded(story.state.now + 1, 0, 1, "done", kept=1 << 20))
    (drained,) = bench.proposes(ReleaseNode(bench.now, 0, "too many"))
    assert type(drained) is DrainNode and drained.cause == "retires"
    (moved,) = list(Frame(SETTINGS, {})(Plan(story.state, memory={})))
    assert type(moved) is MoveResults and (moved.tasks, moved.node, moved.to) == ([0], 0, 1)


def test_an_unused_node_that_is_to_be_drained_goes_at_once() -> None:
    bench = Bench(kind=Kind("cpu", 1), there=1)
    assert [type(r) for r in bench.proposes(DrainNode(bench.now, 0, "no", "retires"))] == [ReleaseNode]


def test_what_is_impossible_names_who_proposed_it_and_what() -> None:
    bench = Bench(job("a"), kind=Kind("cpu", 1), there=1)
    now = bench.now
    for proposal, said in (
        (RequestNodes(now, "tpu", 1, ""), "scaler mine: it asked for nodes of kind 'tpu'; declared are cpu"),
        (RequestNodes(now, "cpu", 0, ""), "asked for 0 nodes"),
        (RequestNodes(now + 1, "cpu", 1, ""), "dated a decision"),
        (RequestNodes(now, "cpu", "many", ""), "cannot be written down"),  # type: ignore[arg-type]
        (WithdrawRequest(now, 7, 1, ""), "withdrew request 7"),
        (ReleaseNode(now, 0, ""), "gave back node n0, on which a runs"),
        (ReleaseNode(now, 9, ""), "node 9, which is not there"),
        (DrainNode(now, 0, "", "fails"), "with the cause 'fails'"),
        (Refuse(now, 0, ""), "which is no decision of a scaler"),
        ("nonsense", "yielded 'nonsense'"),
    ):
        assert said in bench.fault(proposal)


def test_what_changes_nothing_is_left_out() -> None:
    bench = Bench(job("a"), kind=Kind("cpu", 1), there=1)
    assert not bench.proposes(ResumeNode(bench.now, 0, "it does not retire"), NoticeIdle(bench.now, 0, "it works"))


def test_of_an_unused_node_it_is_told_once_in_each_idle_spell() -> None:
    """D1."""
    bench = Bench(job("a"), kind=Kind("cpu", 1, removes=False), there=1)
    frame, memory = Frame(Scaling(notice_s=5.0), {}), {}  # type: ignore[var-annotated]
    story = bench.story
    story.end("a")
    told = []
    for _ in range(12):
        story.state.now += 1.0
        for decision in frame(Plan(story.state, memory=memory)):
            story.happens(decision)
            told.append(type(decision))
    assert told == [NoticeIdle]
