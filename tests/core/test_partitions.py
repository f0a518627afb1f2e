"""Partitions: records in, decisions and states out. The invariants are checked after each record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders import Story, job, node, nodes
from cantle.core.decide import Decider, why_never_as
from cantle.core.explain import explain
from cantle.core.partitions import Partition
from cantle.core.siting import targets_of
from cantle.core.standings import OVER, TABLE, Standing, Turn, following
from cantle.core.unmakeable import why_never
from cantle.errors import CantleBug
from cantle.model.records import (
    AdmitPartition,
    ClosePartition,
    Decision,
    GrowPartition,
    Launch,
    NodeDrainAsked,
    NodeLost,
    NodeResumeAsked,
    OpenPartition,
    PartitionAsked,
    PartitionCancelAsked,
    PartitionDrainAsked,
    PartitionEnded,
    PartitionFailed,
    PartitionResizeAsked,
    PartitionStarted,
    Refuse,
    RefusePartition,
    RetireWorkers,
    Stop,
    WorkersRetired,
)
from cantle.model.resources import Needs
from cantle.model.study import PartitionWish, Slice, Slicing

PAIR = PartitionWish("pair", width=2)


class Carved(Story):
    """A story in which agents answer: `settles` lets what was decided come true until nothing new is decided."""

    def ask(self, wish: PartitionWish) -> Partition:
        """Somebody asks for a partition."""
        self.happens(PartitionAsked(self._next(), wish, by="me"))
        return self.partition(wish.name)

    def resize(self, name: str, width: int) -> None:
        """Somebody wants it wider or narrower."""
        self.happens(PartitionResizeAsked(self._next(), name, width))

    def drain(self, name: str) -> None:
        """Somebody wants it to end when it is empty."""
        self.happens(PartitionDrainAsked(self._next(), name, "me"))

    def cancel_partition(self, name: str) -> None:
        """Somebody wants it to end now."""
        self.happens(PartitionCancelAsked(self._next(), name, "me"))

    def settles(self) -> list[Decision]:
        """Passes until nothing more is decided, with every agent's answer and every stopped task's end in between."""
        made: list[Decision] = []
        for partition in list(self.state.partitions.living.values()):
            if partition.closing:
                self.happens(PartitionEnded(self._next(), partition.number))
            elif partition.standing == Standing.STARTING:
                self.happens(PartitionStarted(self._next(), partition.number))
            if waits := tuple(index for index, left in partition.retiring.items() if not left):
                self.happens(WorkersRetired(self._next(), partition.number, waits))
        while new := self.decides():
            made += new
            for decision in new:
                if isinstance(decision, OpenPartition):
                    self.happens(PartitionStarted(self._next(), decision.partition))
                elif isinstance(decision, ClosePartition):
                    self.happens(PartitionEnded(self._next(), decision.partition))
                elif isinstance(decision, RetireWorkers):
                    self.happens(WorkersRetired(self._next(), decision.partition, decision.leaving))
                elif isinstance(decision, Stop):
                    self.end(self.name(decision.task), decision.outcome)
        return made

    def partition(self, name: str) -> Partition:
        """The newest of that name."""
        return next(p for p in reversed(self.state.partitions.all) if p.name == name)

    def nodes_of(self, name: str) -> list[int]:
        """The nodes of it, by number."""
        return self.partition(name).nodes()

    def places(self, name: str) -> list[tuple[int, str]]:
        """Where the task runs."""
        return [(place.node, place.cores) for place in self.launch_of(name).on]


def in_pair(name: str, parents: str = "", **rest: Any) -> Any:
    return job(name, parents, partition="pair", **rest)


def test_the_states_are_those_of_the_definition_and_nothing_leads_out_of_the_final_ones() -> None:
    assert [standing.name for standing in Standing] == [
        "NEW",
        "PENDING",
        "STARTING",
        "ACTIVE",
        "DONE",
        "FAILED",
        "CANCELED",
    ]
    assert all(not TABLE[standing] for standing in OVER)
    way = [Standing.NEW]
    for turn in (Turn.ADMIT, Turn.OPEN, Turn.START, Turn.FINISH):
        way.append(following(way[-1], turn))
    assert way == [Standing.NEW, Standing.PENDING, Standing.STARTING, Standing.ACTIVE, Standing.DONE]
    with pytest.raises(CantleBug, match="state NEW cannot start"):
        following(Standing.NEW, Turn.START)


def test_a_declared_partition_is_made_for_its_first_ready_task_and_closed_after_its_last() -> None:
    story = Carved(job("first"), in_pair("x", "first"), job("last", "x"), on=nodes(3), partitions=(PAIR,))
    story.settles()
    assert story.state.partitions.all == []
    story.end("first")
    story.decides()
    partition = story.partition("pair")
    assert (partition.standing, story.phase("x").name) == (Standing.STARTING, "READY")
    story.happens(PartitionStarted(story._next(), 0))
    story.decides()
    assert story.places("x") == [(0, "0")]
    assert story.launch_of("x").partition == 0
    story.end("x")
    story.settles()
    assert (partition.standing, partition.why) == (Standing.DONE, "no task is left that runs in it")
    assert story.state.room.full is False
    story.end("last")
    assert story.state.finished


def test_tasks_stay_in_their_partition_and_others_out_of_it() -> None:
    story = Carved(
        *(in_pair(f"in{i}") for i in range(3)), *(job(f"out{i}") for i in range(3)), on=nodes(4), partitions=(PAIR,)
    )
    story.settles()
    inside = set(story.nodes_of("pair"))
    assert {story.places(f"in{i}")[0][0] for i in range(2)} == inside
    assert story.phase("in2").name == "READY"
    assert {story.places(f"out{i}")[0][0] for i in range(2)} == {0, 1, 2, 3} - inside


def test_a_partition_that_waits_gathers_what_becomes_free_and_nobody_else_gets_it() -> None:
    story = Carved(*(job(f"t{i}") for i in range(20)), on=nodes(4))
    story.settles()
    story.ask(PartitionWish("wide", width=3))
    assert [type(d) for d in story.settles()] == [AdmitPartition]
    for i in range(3):
        story.end(f"t{i}")
        story.settles()
    assert story.partition("wide").standing == Standing.ACTIVE
    assert len(story.state.running) == 1


def test_of_two_that_wait_only_the_first_gathers_and_the_second_may_open_beside_it() -> None:
    story = Carved(*(job(f"t{i}") for i in range(20)), on=nodes(4))
    story.settles()
    first = story.ask(PartitionWish("first", width=3))
    second = story.ask(PartitionWish("second", width=3))
    story.end("t0")
    story.end("t1")
    story.settles()
    assert (len(first.nodes()), len(second.nodes())) == (2, 0)
    story.end("t2")
    story.settles()
    assert (first.standing, second.standing) == (Standing.ACTIVE, Standing.PENDING)
    story.cancel_partition("first")
    story.settles()
    assert (first.standing, second.standing) == (Standing.CANCELED, Standing.ACTIVE)


def test_what_can_never_be_is_refused_with_the_numbers_unless_nodes_are_on_their_way() -> None:
    story = Carved(job("t"), on=nodes(2))
    story.await_nodes(1)
    wide = story.ask(PartitionWish("wide", width=3))
    story.settles()
    assert wide.standing == Standing.NEW
    story.await_nodes(0)
    refused = [d for d in story.settles() if isinstance(d, RefusePartition)]
    assert wide.standing == Standing.FAILED
    assert "wants 3 nodes" in refused[0].why
    assert "there are 2 nodes that could be in it" in refused[0].why


def test_a_share_leaves_the_rest_of_the_node_to_others() -> None:
    story = Carved(
        job("out", cores=2), in_pair("in", cores=2), on=nodes(2, 4), partitions=(PartitionWish("pair", 2, cores=2),)
    )
    story.settles()
    (inside,), (outside,) = story.places("in"), story.places("out")
    assert {inside[1], outside[1]} <= {"0-1", "2-3"}
    assert [story.state.room.free_cores[i].bit_count() for i in (0, 1)] in ([0, 2], [2, 0])


def test_o17_partitions_of_cores_share_nodes_and_one_that_is_left_over_waits_and_says_for_what() -> None:
    """O17: 3 nodes of 5 cores, seven partitions of 2 cores: six at once, two on each node, and the seventh after them."""
    names = [f"p{i}" for i in range(7)]
    story = Carved(
        *(job(f"in-{name}", cores=2, partition=name) for name in names),
        on=nodes(3, 5),
        partitions=tuple(PartitionWish(name, 1, cores=2) for name in names),
    )
    story.settles()
    active = [name for name in names if story.partition(name).standing == Standing.ACTIVE]
    assert len(active) == 6
    places = [story.places(f"in-{name}")[0] for name in active]
    assert sorted(node for node, _ in places) == [0, 0, 1, 1, 2, 2]
    assert len(set(places)) == 6, "no two have a core in common"
    assert [story.state.room.free_cores[index].bit_count() for index in range(3)] == [1, 1, 1]
    (last,) = set(names) - set(active)
    assert any("PENDING" in line for line in explain(story.state, story.number_of[f"in-{last}"]))
    story.end(f"in-{active[0]}")
    story.settles()
    assert story.places(f"in-{last}")


def test_memory_and_named_things_go_with_whole_nodes_and_in_proportion_with_shares() -> None:
    story = Carved(job("t"), on=nodes(2, 4, memory_mib=4000, named=(("licence", 2),)))
    story.ask(PartitionWish("whole", 1))
    story.ask(PartitionWish("share", 1, cores=1))
    story.settles()
    whole, share = (story.partition(name) for name in ("whole", "share"))
    assert [(n.memory_mib, n.named) for n in whole.room.nodes.values()] == [(4000, (("licence", 2),))]
    assert [(n.memory_mib, n.named) for n in share.room.nodes.values()] == [(1000, ())]


@pytest.mark.parametrize(
    ("owned", "wanted", "place"),
    [
        ({"gpus": 2}, {"gpus": 1}, 1),
        ({"gpus": 1}, {"gpus": 1}, 0),
        ({"memory_mib": 3000}, {"memory_mib": 2000}, 1),
        ({"memory_mib": 1000}, {"memory_mib": 2000}, 0),
        ({}, {"cores": 4}, 1),
    ],
)
def test_a_partition_waits_for_no_node_of_which_another_owns_too_much(
    owned: dict[str, int], wanted: dict[str, int], place: int
) -> None:
    """The node with the fewest busy cores is of no use if what is missing there belongs to a partition that stays."""
    story = Carved(job("t", cores=4), job("stays"), on=nodes(2, 4, gpus=2, memory_mib=4000))
    story.ask(PartitionWish("a", 1, **{"cores": 1, **owned}))
    story.settles()
    assert story.nodes_of("a") == [0] and story.places("t") == [(1, "0-3")]
    story.ask(PartitionWish("b", 1, **{"cores": 1, **wanted}))
    story.settles()
    assert targets_of(story.state, story.partition("b")) == [place]
    story.end("t")
    story.settles()
    assert story.nodes_of("b") == [place]


@pytest.mark.parametrize(("layout", "expected"), [("any", [0, 2]), ("contiguous", [2, 3]), ("spread", [0, 2, 4])])
def test_the_layout_decides_which_nodes(layout: Any, expected: list[int]) -> None:
    on = [node("n0", machine="a"), node("n1", machine="a"), *(node(f"n{i}", machine="b") for i in (2, 3))]
    story = Carved(*(job(f"t{i}") for i in range(5)), on=[*on, node("n4", machine="c")])
    story.settles()
    for i in (0, 2, 3, 4) if layout != "any" else (0, 2):
        story.end(f"t{i}")
    story.ask(PartitionWish("p", len(expected), layout=layout))
    story.settles()
    assert story.nodes_of("p") == expected


def test_near_prefers_the_named_machines() -> None:
    story = Carved(job("t"), on=[node(f"n{i}", machine="ab"[i // 2]) for i in range(4)])
    story.ask(PartitionWish("p", 2, near=("b",)))
    story.settles()
    assert story.nodes_of("p") == [2, 3]


def test_a_contiguous_partition_waits_for_its_window_and_gathers_only_there() -> None:
    story = Carved(*(job(f"t{i}") for i in range(8)), on=nodes(4))
    story.settles()
    story.ask(PartitionWish("p", 2, layout="contiguous"))
    story.end("t1")
    story.settles()
    story.end("t3")
    story.settles()
    assert story.partition("p").standing == Standing.PENDING
    assert story.places("t4") == [(3, "0")]
    story.end("t0")
    story.settles()
    assert (story.nodes_of("p"), story.partition("p").standing) == ([0, 1], Standing.ACTIVE)


def test_resizing_up_takes_free_nodes_while_it_works() -> None:
    story = Carved(*(in_pair(f"t{i}") for i in range(6)), on=nodes(4), partitions=(PAIR,))
    story.settles()
    story.resize("pair", 4)
    made = story.settles()
    assert any(isinstance(d, GrowPartition) for d in made)
    assert not any(isinstance(d, OpenPartition) for d in made)
    assert len(story.state.running) == 4


def test_resizing_down_gives_idle_nodes_back_at_once_and_busy_ones_when_they_are_free() -> None:
    story = Carved(
        *(in_pair(f"t{i}") for i in range(3)), job("out"), on=nodes(4, 2), partitions=(PartitionWish("pair", 4),)
    )
    story.settles()
    story.resize("pair", 1)
    story.settles()
    assert story.nodes_of("pair") == [0, 1]
    assert story.partition("pair").room.capacity[1] == (1, 0)
    assert story.phase("out").name == "LAUNCHED"
    story.end("t2")
    story.settles()
    assert story.nodes_of("pair") == [0]


def test_what_began_to_leave_leaves_also_when_another_node_becomes_idle_first() -> None:
    story = Carved(*(in_pair(f"t{i}") for i in range(3)), on=nodes(2, 2), partitions=(PAIR,))
    story.settles()
    story.resize("pair", 1)
    story.settles()
    assert story.partition("pair").room.capacity == {0: (0b11, 0), 1: (0b01, 0)}
    story.end("t0")
    story.end("t1")
    story.settles()
    assert story.nodes_of("pair") == [0, 1]
    story.end("t2")
    story.settles()
    assert story.partition("pair").over
    assert story.state.room.untouched == 0b11


def test_draining_starts_nothing_more_gives_back_what_is_free_and_ends_when_it_is_empty() -> None:
    story = Carved(*(in_pair(f"t{i}") for i in range(3)), job("out", cores=2), on=nodes(2, 2), partitions=(PAIR,))
    story.settles()
    story.drain("pair")
    story.settles()
    assert story.partition("pair").standing == Standing.ACTIVE
    story.end("t0")
    story.end("t1")
    story.settles()
    assert story.places("out") == [(0, "0-1")]
    story.end("t2")
    story.settles()
    assert story.partition("pair").standing == Standing.DONE


def test_what_a_person_took_away_is_not_made_again_until_a_person_asks() -> None:
    story = Carved(*(in_pair(f"t{i}") for i in range(5)), on=nodes(2), partitions=(PAIR,))
    story.settles()
    story.cancel_partition("pair")
    story.settles()
    assert story.partition("pair").standing == Standing.CANCELED
    assert story.phases() == dict.fromkeys((f"t{i}" for i in range(5)), "ready")
    assert not story.state.finished
    story.ask(PAIR)
    story.settles()
    assert len(story.state.running) == 2


def test_tasks_of_a_canceled_partition_return_to_their_queue_and_it_is_not_their_fault() -> None:
    story = Carved(in_pair("t"), on=nodes(2), partitions=(PAIR,))
    story.settles()
    story.cancel_partition("pair")
    assert any(isinstance(d, Stop) and d.outcome == "interrupted" for d in story.settles())
    assert story.phase("t").name == "READY"
    assert story.state.faults == {}
    story.ask(PAIR)
    story.settles()
    assert story.attempt("t") == 2


def test_slots_of_a_failed_partition_come_back_when_the_last_of_its_tasks_has_left() -> None:
    story = Carved(in_pair("t", estimate_s=9), job("out"), on=nodes(2), partitions=(PAIR,))
    story.settles()
    partition = story.partition("pair")
    story.happens(PartitionFailed(story._next(), 0, "its agent died"))
    assert (partition.standing, partition.nodes()) == (Standing.FAILED, [0, 1])
    decisions = story.decides()
    assert [type(d) for d in decisions] == [Stop]
    story.end("t", "interrupted")
    assert partition.nodes() == []
    story.settles()
    assert story.partition("pair") is not partition
    assert story.partition("pair").standing == Standing.ACTIVE


def test_a_declared_partition_that_fails_again_and_again_is_given_up_and_its_tasks_say_why() -> None:
    story = Carved(in_pair("t"), on=nodes(2), partitions=(PAIR,))
    for number in range(3):
        story.decides()
        story.happens(PartitionFailed(story._next(), number, "no agent could be started"))
    refused = [d for d in story.decides() if isinstance(d, Refuse)]
    assert refused[0].why == "its partition pair failed 3 times: no agent could be started"
    assert story.phase("t").name == "FAILED"


def test_a_lost_node_costs_a_partition_that_node_and_it_takes_another_when_there_is_one() -> None:
    story = Carved(in_pair("a"), in_pair("b"), on=nodes(3), partitions=(PAIR,))
    story.settles()
    story.lose("n0")
    story.settles()
    assert story.partition("pair").standing == Standing.ACTIVE
    assert story.nodes_of("pair") == [1, 2]
    assert story.attempt("a") == 2


def test_a_partition_without_any_node_left_has_failed() -> None:
    story = Carved(in_pair("a"), on=nodes(2), partitions=(PAIR,))
    story.settles()
    story.lose("n0")
    story.lose("n1")
    partition = story.partition("pair")
    assert (partition.standing, partition.agent) == (Standing.FAILED, True)
    story.settles()
    assert not story.state.partitions.living


@pytest.mark.parametrize(
    ("needs", "wish", "told"),
    [
        (Needs(cores=3), PAIR, "each node of its partition pair has 2 of 3 cores"),
        (Needs(nodes=3), PAIR, "its partition pair has 2 nodes"),
        (Needs(cores=2), PartitionWish("pair", 2, cores=1), "each node of its partition pair has 1 of 2 cores"),
        (Needs(whole_nodes=True), PartitionWish("pair", 2, cores=1), "has only 1 of its 2 cores there"),
        (Needs(), PartitionWish("pair", 9), "wants 9 nodes"),
    ],
)
def test_a_task_that_its_partition_can_never_hold_fails_at_once(needs: Needs, wish: PartitionWish, told: str) -> None:
    story = Carved(in_pair("t", needs=needs), on=nodes(3, 2), partitions=(wish,))
    assert told in why_never_as(story.state, story.state.queue_of(0).shape)
    story.settles()
    assert story.phase("t").name == "FAILED"


def test_a_task_whose_partition_nobody_makes_waits_as_long_as_other_work_goes_on_and_then_fails() -> None:
    story = Carved(in_pair("t"), job("other"), on=nodes(3))
    story.settles()
    assert (story.phase("t").name, story.phase("other").name) == ("READY", "LAUNCHED")
    assert "which will be asked for" not in " ".join(explain(story.state, 0))
    story.end("other")
    story.settles()
    assert story.phase("t").name == "FAILED"
    assert "which nobody has declared or asked for" in story.cause("t")
    story = Carved(in_pair("t"), job("other"), on=nodes(3))
    story.settles()
    story.ask(PAIR)
    story.settles()
    assert story.phase("t").name == "LAUNCHED"


def test_a_partition_that_waits_for_what_stands_behind_that_keeps_nothing_from_failing() -> None:
    jobs = [in_pair("first"), job("t", partition="nobodys"), in_pair("last", "t")]
    story = Carved(*jobs, on=nodes(3), partitions=(PAIR,))
    story.settles()
    assert (story.phase("first").name, story.phase("t").name) == ("LAUNCHED", "READY")
    story.end("first")
    story.settles()
    assert (story.phase("t").name, story.phase("last").name) == ("FAILED", "SKIPPED")
    assert "which nobody has declared or asked for" in story.cause("t")


def test_nor_do_elements_that_have_the_nodes_for_which_something_else_is_ready() -> None:
    jobs = [in_pair("first"), job("t", partition="nobodys"), in_pair("last", "t"), job("outside", "first")]
    held = PartitionWish("pair", 1, elements="2 x 1")
    story = Carved(*jobs, on=nodes(2, machine="m"), partitions=(held,), slicing=Slicing((Slice(1),)))
    story.settles()
    story.end("first")
    story.settles()
    assert (story.phase("t").name, story.phase("last").name) == ("FAILED", "SKIPPED")
    assert story.phase("outside").name == "LAUNCHED", "they were given back"


def test_a_drained_node_on_which_something_else_could_run_is_a_reason_to_wait() -> None:
    jobs = [in_pair("first"), job("t", partition="nobodys"), in_pair("last", "t"), job("outside", "first")]
    held = PartitionWish("pair", 1, elements="2 x 1")
    story = Carved(*jobs, on=nodes(3, machine="m"), partitions=(held,), slicing=Slicing((Slice(1),)))
    story.happens(NodeDrainAsked(story._next(), "n2"))
    story.settles()
    story.end("first")
    story.settles()
    assert (story.phase("t").name, story.phase("outside").name) == ("READY", "READY")
    story.happens(NodeResumeAsked(story._next(), "n2"))
    story.settles()
    assert (story.phase("t").name, story.phase("outside").name) == ("READY", "LAUNCHED")


def test_a_second_partition_of_a_living_name_is_not_made() -> None:
    story = Carved(job("t"), on=nodes(4))
    story.ask(PAIR)
    story.ask(PartitionWish("pair", width=1))
    story.settles()
    assert [p.width for p in story.state.partitions.all] == [2]


def test_partitions_end_with_the_run_and_with_its_conductor() -> None:
    story = Carved(job("t"), on=nodes(3))
    story.ask(PAIR)
    story.settles()
    story.resume(on=nodes(3))
    assert (story.partition("pair").standing, story.partition("pair").why) == (
        Standing.FAILED,
        "its conductor went away",
    )
    story.ask(PAIR)
    story.settles()
    story.end("t")
    assert not story.state.finished
    story.settles()
    assert story.partition("pair").standing == Standing.DONE
    assert story.state.finished


def test_a_pending_partition_is_drained_by_forgetting_it() -> None:
    story = Carved(*(job(f"t{i}") for i in range(4)), on=nodes(2))
    story.settles()
    story.ask(PAIR)
    story.end("t0")
    story.settles()
    assert story.nodes_of("pair") == [0]
    story.drain("pair")
    story.settles()
    assert story.partition("pair").standing == Standing.CANCELED
    assert len(story.state.running) == 2


def test_explain_says_what_a_task_of_a_partition_waits_for() -> None:
    story = Carved(
        *(in_pair(f"t{i}") for i in range(3)), *(job(f"o{i}") for i in range(4)), on=nodes(4), partitions=(PAIR,)
    )
    story.decides()
    assert "which is STARTING: it has slots on 2 of 2 nodes" in explain(story.state, 0)[1]
    story.settles()
    assert "in partition pair" in explain(story.state, 0)[0]
    assert "in its partition pair, where 2 tasks run, 0 nodes have that much room now" in explain(story.state, 2)[1]
    story.drain("pair")
    assert "which is draining" in explain(story.state, 2)[1]
    story.cancel_partition("pair")
    story.settles()
    assert "which was canceled by me; ask for it again: cantle partition create DIR pair" in explain(story.state, 2)[1]


ALL = PartitionWish("all", width=2)


def test_a_declared_partition_in_which_nothing_can_begin_gives_way_to_tasks_that_it_waits_for() -> None:
    story = Carved(
        job("a", partition="all"), job("b", "a"), job("c", "b", partition="all"), on=nodes(2), partitions=(ALL,)
    )
    story.settles()
    story.end("a")
    story.settles()
    assert (story.phase("b").name, story.state.partitions.by_name) == ("LAUNCHED", {})
    story.end("b")
    story.settles()
    assert story.phase("c").name == "LAUNCHED"


def test_a_declared_partition_in_which_nothing_can_begin_gives_way_to_another_one() -> None:
    story = Carved(
        job("a", partition="all"),
        in_pair("b", parents="a"),
        job("c", "b", partition="all"),
        on=nodes(2),
        partitions=(ALL, PAIR),
    )
    for name in "abc":
        story.settles()
        assert story.phase(name).name == "LAUNCHED", name
        story.end(name)
    story.settles()
    assert story.state.finished


def test_a_partition_that_waits_and_can_never_be_any_more_has_failed_and_so_have_its_tasks() -> None:
    story = Carved(in_pair("t"), job("out"), on=nodes(2), partitions=(PAIR,))
    story.decides()
    story.happens(PartitionFailed(story._next(), 0, "it broke"))
    story.ask(PartitionWish("wide", 2))
    story.lose("n0")
    story.settles()
    why, lost = story.cause("t").split("; 1 of")
    assert why == "its partition pair wants 2 nodes and all of each; there is 1 node that could be in it"
    assert lost.startswith(" the 2 nodes that were there was lost: n0, ")
    assert story.partition("wide").standing == Standing.FAILED


def test_what_a_partition_of_whole_nodes_asks_of_each_is_named_when_none_has_it() -> None:
    state = Carved(job("a"), on=nodes(2)).state
    wish = PartitionWish("apart", 1, gpus=2, memory_mib=4096, kind="big")
    assert why_never(state, wish, 1) == (
        "wants 1 node and all of each of kind big, with 2 GPUs and 4,096 MiB of memory; there are 0 nodes that could be in it"
    )


def test_neighbours_that_are_not_there_any_more_are_not_waited_for() -> None:
    story = Carved(*(job(f"t{i}") for i in range(3)), on=nodes(3))
    story.settles()
    story.ask(PartitionWish("p", 2, layout="contiguous"))
    story.lose("n1")
    story.settles()
    assert story.partition("p").standing == Standing.FAILED
    assert "wants 2 nodes next to each other" in story.partition("p").why


def test_a_gang_that_its_partition_can_hold_no_more_since_a_node_was_lost_fails() -> None:
    story = Carved(in_pair("a"), in_pair("gang", parents="a", nodes=2), on=nodes(2), partitions=(PAIR,))
    story.settles()
    story.lose("n1")
    story.end("a")
    story.settles()
    why, lost = story.cause("gang").split("; 1 of")
    assert why == "needs 1 core on each of 2 nodes; only 1 node of its partition pair could hold a share of it"
    assert lost.startswith(" the 2 nodes that were there was lost: n1, ")


def test_tasks_that_a_resized_partition_can_never_hold_fail_at_once() -> None:
    story = Carved(in_pair("a"), in_pair("gang", parents="a", nodes=2), on=nodes(2), partitions=(PAIR,))
    story.settles()
    story.resize("pair", 1)
    story.settles()
    assert story.cause("gang") == "needs 1 core on each of 2 nodes; its partition pair has 1 node"


def test_a_partition_takes_the_nodes_that_all_of_its_tasks_fit_on() -> None:
    story = Carved(
        in_pair("small"),
        in_pair("large", parents="small", cores=4),
        on=[node("n0", 1), node("n1", 4)],
        partitions=(PartitionWish("pair", 1),),
    )
    story.settles()
    assert story.nodes_of("pair") == [1]


def test_a_task_fails_that_fits_on_no_node_of_its_partition_as_it_is() -> None:
    story = Carved(in_pair("large", cores=4), on=[node("n0", 2)], partitions=(PartitionWish("pair", 1),))
    story.await_nodes(1)
    story.ask(PartitionWish("pair", 1))
    story.settles()
    story.await_nodes(0)
    story.settles()
    assert story.cause("large") == "needs 4 cores; each node of its partition pair has 2 of 4 cores"


def test_one_that_waits_gives_back_what_it_gathered_when_others_hold_what_it_lacks() -> None:
    story = Carved(*(job(f"t{i}") for i in range(4)), on=nodes(3))
    story.ask(PartitionWish("one"))
    story.settles()
    story.ask(PartitionWish("two", 2))
    ((first, _),), ((second, _),) = story.places("t0"), story.places("t1")
    story.end("t0")
    story.settles()
    assert story.nodes_of("two") == [first]
    story.lose(f"n{second}")
    story.settles()
    assert (story.partition("two").standing, story.nodes_of("two")) == (Standing.PENDING, [])
    assert story.places("t1") == [(first, "0")], "the lost task runs where the partition cannot be"


def test_one_that_waits_is_forgotten_when_no_task_is_left_that_runs_in_it() -> None:
    story = Carved(job("first"), in_pair("t", parents="first"), job("out"), on=nodes(2), partitions=(PAIR,))
    story.settles()
    story.end("first")
    story.settles()
    assert story.partition("pair").standing == Standing.PENDING
    story.cancel("t")
    story.settles()
    assert story.partition("pair").standing == Standing.CANCELED
    assert story.phase("out").name == "LAUNCHED"


def test_a_resumed_run_makes_again_what_was_taken_away_or_failed_too_often() -> None:
    story = Carved(in_pair("a"), in_pair("b"), on=nodes(2), partitions=(PAIR,))
    for number in range(3):
        story.decides()
        story.happens(PartitionFailed(story._next(), number, "no agent could be started"))
    story.decides()
    assert story.phase("a").name == "FAILED"
    story.resume(on=nodes(2))
    story.settles()
    story.cancel_partition("pair")
    story.settles()
    assert len(story.state.running) == 0
    story.resume(on=nodes(2))
    story.settles()
    assert len(story.state.running) == 2


def test_elements_of_slices_are_not_resized_by_hand() -> None:
    story = Carved(job("gang", nodes=2), on=nodes(4), slicing=Slicing((Slice(2),)))
    story.settles()
    [element] = story.state.partitions.living.values()
    story.resize(element.name, 4)
    story.settles()
    assert element.width == 2


def test_a_moldable_task_begins_narrower_when_a_partition_has_the_nodes_that_it_would_like() -> None:
    story = Carved(job("t", widths=(1, 3), estimate_s=9), on=nodes(3))
    story.decider = Decider()
    story.state.apply(PartitionAsked(story.state.now, PartitionWish("mine", 1), by="me"))
    story.settles()
    assert len(story.launch_of("t").on) in (1, 3)
    assert story.state.running


class TheCarving(RuleBasedStateMachine):
    """Anything may be asked for, end, fail, be resized, lost; the invariants hold after each record."""

    @initialize(
        cores=st.lists(st.integers(1, 4), min_size=1, max_size=5),
        kinds=st.lists(st.sampled_from(["", "p0", "p1"]), min_size=1, max_size=12),
        widths=st.lists(st.integers(1, 3), min_size=12, max_size=12),
    )
    def begin(self, cores: list[int], kinds: list[str], widths: list[int]) -> None:
        jobs = [
            job(f"t{i}", partition=kind, nodes=widths[i], cores=1 + i % 2, retries=1) for i, kind in enumerate(kinds)
        ]
        self.story = Carved(*jobs, on=[node(f"n{i}", n, memory_mib=8) for i, n in enumerate(cores)])
        self.lost: set[int] = set()

    @rule(
        name=st.sampled_from(["p0", "p1", "p2"]),
        width=st.integers(1, 4),
        cores=st.integers(0, 3),
        layout=st.sampled_from(["any", "contiguous", "spread"]),
        engine=st.sampled_from(["", "dask"]),
    )
    def asks(self, name: str, width: int, cores: int, layout: Any, engine: str) -> None:
        wish = PartitionWish(name, width, cores, layout=layout, engine=engine)
        self.story.happens(PartitionAsked(self.story._next(), wish))

    @rule(name=st.sampled_from(["p0", "p1", "p2"]), width=st.integers(1, 4))
    def resizes(self, name: str, width: int) -> None:
        self.story.resize(name, width)

    @rule(name=st.sampled_from(["p0", "p1", "p2"]))
    def drains(self, name: str) -> None:
        self.story.drain(name)

    @rule(name=st.sampled_from(["p0", "p1", "p2"]))
    def cancels(self, name: str) -> None:
        self.story.cancel_partition(name)

    @rule()
    def decides(self) -> None:
        self.story.decides()

    @rule()
    def settles(self) -> None:
        self.story.settles()

    @rule(which=st.integers(0, 99), how=st.sampled_from(["done", "failed", "done"]))
    @precondition(lambda self: self.story.state.running)
    def ends(self, which: int, how: Any) -> None:
        running = sorted(self.story.state.running)
        self.story.end(self.story.name(running[which % len(running)]), how)

    @rule(which=st.integers(0, 99))
    @precondition(lambda self: self.story.state.partitions.all)
    def fails(self, which: int) -> None:
        number = which % len(self.story.state.partitions.all)
        self.story.happens(PartitionFailed(self.story._next(), number, "it broke"))

    @rule(which=st.integers(0, 4))
    def loses_a_node(self, which: int) -> None:
        if self.story.state.room.alive >> which & 1 and self.story.state.room.alive.bit_count() > 1:
            self.story.happens(NodeLost(self.story._next(), which, "gone"))

    @rule(cores=st.integers(1, 4))
    @precondition(lambda self: len(self.story.state.room.nodes) < 8)
    def a_node_joins(self, cores: int) -> None:
        self.story.join(node(f"n{len(self.story.state.room.nodes)}", cores, memory_mib=8))

    @rule()
    def the_conductor_changes(self) -> None:
        self.story.resume(on=[node("new", 2, memory_mib=8)])

    @invariant()
    def launches_are_in_their_partition(self) -> None:
        if not hasattr(self, "story"):
            return
        state = self.story.state
        for record in self.story.records[-3:]:
            if isinstance(record, Launch) and record.partition >= 0:
                assert state.partitions.all[record.partition].name == state.step_of(record.task).partition

    def teardown(self) -> None:
        """Whatever happened, all of it comes to an end: what is asked for is there or refused, nothing is kept for ever."""
        if not hasattr(self, "story"):
            return
        story = self.story
        for name in ("p0", "p1", "p2"):
            story.cancel_partition(name)
        for _ in range(200):
            story.settles()
            if not story.state.running:
                break
            for task in sorted(story.state.running):
                story.end(story.name(task))
        assert not story.state.running
        assert not story.state.partitions.living
        assert story.state.room.untouched == story.state.room.alive


TestTheCarving = TheCarving.TestCase
TestTheCarving.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
