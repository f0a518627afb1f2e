"""Results that live on nodes: which are needed, where they are alone, and what runs again when one is lost."""

from __future__ import annotations

import pytest

from builders import Job, Story, job, node, nodes
from cantle.core.again import MOST_AGAIN
from cantle.core.explain import explain
from cantle.core.keeping import needed_alone_on
from cantle.core.state import State
from cantle.model.records import (
    Launch,
    MoveResults,
    NodeDrainAsked,
    NodeReleased,
    PartitionStarted,
    ReleaseNode,
    ResultsForgotten,
    ResultsLost,
    ResultsMoved,
    RunResumed,
    StudyOver,
)
from cantle.model.resources import Place
from cantle.model.study import Limits, PartitionWish

CHAIN = (job("a"), job("b", "a"))
TWO = tuple(node(f"n{i}", machine=f"m{i}") for i in range(2))


class Tale(Story):
    """A story about where results live."""

    def alone(self, name: str) -> list[str]:
        """Whose results are needed and live on that node alone."""
        index = max(i for i, n in self.state.room.nodes.items() if n.name == name)
        tasks, size = needed_alone_on(self.state, index)
        assert self.state.keeping is not None
        assert size == sum(self.state.keeping.results[task].size for task in tasks)
        return [self.name(task) for task in tasks]

    def copies(self, name: str) -> list[str]:
        """On which nodes the task's result is."""
        keeping = self.state.keeping
        assert keeping is not None
        bits = keeping.nodes_with(self.number_of[name])
        return [n.name for i, n in self.state.room.nodes.items() if bits >> i & 1]

    def forget(self, *names: str) -> None:
        """Nobody outside wants these any more."""
        self.happens(ResultsForgotten(self._next(), [self.number_of[name] for name in names]))

    def move(self, name: str, source: int, to: int, problem: str = "") -> None:
        """It is copied from one node to another, or cannot be."""
        self.happens(ResultsMoved(self._next(), [self.number_of[name]], source, to, problem))

    def runs(self, name: str) -> int:
        """How often it was launched."""
        return sum(isinstance(r, Launch) and r.task == self.number_of[name] for r in self.records)


def made(*jobs: Job, kept: int = 100) -> Tale:
    """Two machines; the first of the jobs is done on n0 and has left so much there."""
    tale = Tale(*jobs, on=TWO)
    tale.decides()
    tale.end(jobs[0].name, kept=kept)
    return tale


# What is needed, and where it is alone


def test_a_run_in_which_nothing_is_kept_has_no_such_books() -> None:
    tale = Tale(*CHAIN, on=TWO)
    tale.decides()
    tale.end("a")
    assert tale.state.keeping is None
    assert needed_alone_on(tale.state, 0) == ((), 0)


def test_a_result_is_needed_on_its_node_until_who_takes_it_is_over_and_nobody_outside_wants_it() -> None:
    tale = made(*CHAIN)
    assert tale.alone("n0") == ["a"]
    assert tale.alone("n1") == []
    tale.forget("a")
    assert tale.alone("n0") == ["a"], "b has not run"
    tale.decides()
    tale.end("b")
    assert tale.alone("n0") == []
    assert tale.state.keeping is not None
    assert list(tale.state.keeping.unneeded) == [tale.number_of["a"]]


def test_what_somebody_outside_wants_is_needed_though_no_task_takes_it() -> None:
    tale = made(job("a"))
    assert tale.alone("n0") == ["a"]
    tale.forget("a")
    assert tale.alone("n0") == []


def test_what_was_forgotten_before_it_was_made_is_needed_by_tasks_alone() -> None:
    tale = Tale(job("a"), job("b"), job("c", "b"), on=TWO)
    tale.decides()
    tale.forget("a", "b")
    tale.end("a", kept=1)
    tale.end("b", kept=1)
    assert tale.alone("n0") + tale.alone("n1") == ["b"]


def test_local_files_are_needed_by_tasks_alone_and_nobody_removes_them() -> None:
    tale = made(job("a", local=("out.bin",)), job("b", "a"))
    assert tale.alone("n0") == ["a"]
    tale.decides()
    tale.end("b")
    assert tale.alone("n0") == []
    assert tale.copies("a") == ["n0"]
    assert tale.state.keeping is not None and not tale.state.keeping.unneeded


def test_a_copy_elsewhere_frees_the_node_and_one_that_could_not_be_made_does_not() -> None:
    tale = made(*CHAIN)
    tale.move("a", 0, 1, problem="no space left on n1")
    assert tale.alone("n0") == ["a"]
    tale.move("a", 0, 1)
    assert tale.copies("a") == ["n0", "n1"]
    assert tale.alone("n0") == [] and tale.alone("n1") == []
    tale.lose("n0")
    assert tale.alone("n1") == ["a"]


def test_two_nodes_that_are_both_about_to_go_do_not_count_on_each_other() -> None:
    tale = made(*CHAIN)
    tale.move("a", 0, 1)
    tale.happens(ReleaseNode(tale.state.now, 0, "unused"))
    assert tale.alone("n1") == ["a"]
    tale.happens(NodeReleased(tale.state.now, 0, "it is locked"))
    assert tale.alone("n1") == []


def test_a_node_that_was_given_back_before_anything_was_kept_is_as_good_as_gone() -> None:
    tale = Tale(*CHAIN, on=TWO)
    tale.happens(ReleaseNode(tale.state.now, 0, "unused"))
    tale.decides()
    tale.end("a", kept=1)
    tale.move("a", 1, 0)
    assert tale.alone("n1") == ["a"]


def test_nodes_of_one_machine_share_what_lives_there_and_nodes_apart_do_not() -> None:
    tale = Tale(*CHAIN, on=nodes(2, machine="m"))
    tale.decides()
    tale.end("a", kept=5)
    assert tale.copies("a") == ["n0", "n1"]
    assert tale.alone("n0") == []
    tale.lose("n0")
    assert tale.state.phases[tale.number_of["a"]].name == "DONE"
    assert tale.alone("n1") == ["a"]
    apart = Tale(*CHAIN, on=[node(f"n{i}", machine="m", apart=i > 0) for i in range(2)])
    apart.decides()
    apart.end("a", kept=5)
    assert apart.copies("a") == ["n0"]


def test_a_node_that_joins_a_machine_sees_what_lives_there() -> None:
    tale = made(*CHAIN)
    tale.join(node("n2", machine="m0"))
    assert tale.copies("a") == ["n0", "n2"]
    assert tale.alone("n0") == []


# What is lost


def test_a_lost_node_with_the_only_copy_of_a_needed_result_makes_its_task_run_again_and_nobody_else() -> None:
    tale = Tale(job("x"), job("a", "x"), job("b", "a"), job("z"), on=[node("n0", 2, machine="m0"), TWO[1]])
    tale.decides()
    tale.end("x", kept=7)
    tale.end("z")
    tale.decides()
    tale.end("a", kept=7)
    tale.move("x", 0, 1)
    tale.move("x", 1, 0)
    tale.lose(*tale.copies("a"))
    assert tale.phases() == {"x": "done", "a": "ready", "b": "waiting", "z": "done"}
    tale.decides()
    tale.end("a", kept=7)
    tale.decides()
    tale.end("b")
    assert tale.state.succeeded
    assert [tale.runs(name) for name in "xabz"] == [1, 2, 1, 1]
    assert not tale.state.faults and not tale.state.losses


def test_what_a_task_that_runs_again_takes_is_made_again_when_it_is_gone_as_well() -> None:
    tale = made(*CHAIN, job("c", "b"))
    tale.forget("a", "b", "c")
    tale.decides()
    tale.end("b", kept=3)
    assert tale.copies("a") == [], "nobody needed it any more"
    tale.lose(tale.copies("b")[0])
    assert tale.phases() == {"a": "ready", "b": "waiting", "c": "waiting"}


def test_a_task_that_runs_is_left_alone_and_waits_for_what_it_takes_only_if_it_has_to_begin_anew() -> None:
    tale = Tale(job("a"), job("b", "a"), on=TWO)
    tale.decides()
    tale.end("a", kept=3)
    tale.forget("a")
    tale.happens(Launch(tale.state.now, 1, 1, (Place(1, "0"),)))
    tale.start("b")
    tale.lose("n0")
    assert tale.phases() == {"a": "done", "b": "running"}, "it may have all it needs"
    tale.end("b", "interrupted")
    assert tale.phases() == {"a": "ready", "b": "waiting"}
    tale.decides()
    tale.end("a", kept=3)
    tale.decides()
    tale.end("b")
    assert tale.state.succeeded


def test_a_task_that_runs_while_what_it_took_is_made_again_ends_as_it_would_have() -> None:
    tale = Tale(job("a"), job("b", "a"), job("c", "a"), on=TWO)
    tale.decides()
    tale.end("a", kept=3)
    tale.happens(Launch(tale.state.now, 1, 1, (Place(1, "0"),)))
    tale.start("b")
    tale.lose("n0")
    assert tale.phases() == {"a": "ready", "b": "running", "c": "waiting"}
    tale.join(node("n2", machine="m2"))
    tale.decides()
    tale.end("a", kept=3)
    tale.end("b", "failed")
    assert tale.phases() == {"a": "done", "b": "failed", "c": "ready"}


def test_a_result_that_somebody_outside_wants_is_made_again_though_all_was_done() -> None:
    tale = made(job("a"))
    assert tale.state.finished
    tale.lose("n0")
    assert tale.phases() == {"a": "ready"} and not tale.state.finished


def test_a_lost_result_that_nobody_needs_makes_nobody_run_again() -> None:
    tale = made(job("a"))
    tale.forget("a")
    tale.lose("n0")
    assert tale.phases() == {"a": "done"}


def test_a_result_that_is_no_longer_on_its_node_is_made_again() -> None:
    tale = made(*CHAIN)
    tale.happens(ResultsLost(tale.state.now, [tale.number_of["a"]], 0, "somebody removed its file"))
    assert tale.phases() == {"a": "ready", "b": "waiting"}
    assert tale.state.keeping is not None
    assert tale.state.keeping.again[0] == (1, "its result was lost on n0 (somebody removed its file)")


def test_a_result_that_nobody_knows_of_any_more_is_made_again_when_who_takes_it_begins_anew() -> None:
    """As after a resume: small results were in the hands of the conductor that is gone."""
    tale = Tale(*CHAIN, on=[node()])
    tale.decides()
    tale.end("a")
    tale.resume(on=[node()])
    tale.decides()
    tale.happens(ResultsLost(tale.state.now, [0], -1, "nobody knows where it is"))
    assert tale.phases() == {"a": "done", "b": "launched"}
    tale.end("b", "interrupted")
    assert tale.phases() == {"a": "ready", "b": "waiting"}
    tale.decides()
    tale.end("a")
    tale.decides()
    tale.end("b")
    assert tale.state.succeeded


def test_what_is_lost_again_and_again_is_made_again_so_often_and_then_fails_with_the_reason() -> None:
    tale = Tale(*CHAIN, on=[node()])
    for _ in range(MOST_AGAIN + 1):
        tale.decides()
        tale.end("a", kept=9)
        tale.happens(ResultsLost(tale.state.now, [0], 0, "the disk forgets"))
    assert tale.phases() == {"a": "failed", "b": "skipped"}
    assert tale.state.cause_of[0] == (
        f"its result was gone {MOST_AGAIN + 1} times, the last time since its result was lost on n0 (the disk forgets)"
    )


def test_with_fail_fast_nothing_is_made_again_once_something_failed() -> None:
    tale = Tale(job("a"), job("f"), on=TWO, limits=Limits(fail_fast=True))
    tale.decides()
    tale.end("a", kept=3)
    tale.end("f", "failed")
    tale.lose("n0")
    assert tale.phases() == {"a": "skipped", "f": "failed"}


def test_who_stands_in_line_for_its_turn_does_not_begin_without_what_it_takes() -> None:
    tale = made(job("a"), job("x"), job("b", "a x"))
    tale.happens(Launch(tale.state.now, 2, 1, (Place(1, "0"),), behind=1, if_done=1))
    assert tale.state.awaits_its_turn(2)
    tale.lose("n0")
    assert tale.state.to_stop == {2: "interrupted"}
    tale.decides()
    tale.end("b", "interrupted")
    assert tale.phases() == {"a": "ready", "x": "launched", "b": "waiting"}


# What begins anew


def test_another_conductor_makes_again_what_unfinished_tasks_take_and_nothing_else() -> None:
    tale = Tale(job("a"), job("b", "a"), job("c"), on=TWO)
    tale.decides()
    tale.end("a", kept=3)
    tale.end("c", kept=3)
    tale.happens(RunResumed(tale.state.now, "host", 2))
    assert tale.phases() == {"a": "ready", "b": "waiting", "c": "done"}, "whoever wanted c is gone as well"


@pytest.mark.parametrize("retry", [True, False])
def test_replaying_leads_to_the_same_books(retry: bool) -> None:
    tale = Tale(job("a"), job("b", "a"), job("c"), on=TWO)
    tale.decides()
    tale.end("a", kept=3)
    tale.end("c", kept=3)
    tale.happens(RunResumed(tale.state.now, "host", 2, retry))
    tale.join(*TWO)
    tale.decides()
    tale.end("a", kept=4)
    again = State()
    for record in tale.records:
        again.apply(record)
    assert again.keeping is not None and tale.state.keeping is not None
    assert again.keeping.results == tale.state.keeping.results
    assert again.phases == tale.state.phases


def test_when_a_study_is_over_its_results_are_forgotten() -> None:
    tale = made(job("a"))
    tale.happens(StudyOver(tale.state.now, 0))
    assert tale.alone("n0") == []
    assert tale.state.keeping is not None and list(tale.state.keeping.unneeded) == [0]


# Where tasks run that take them


def test_a_task_prefers_the_machine_with_most_bytes_of_what_it_takes() -> None:
    tale = Tale(job("a"), job("b"), job("c"), job("d", "a b c"), on=[node("n0", 2, machine="m0"), TWO[1]])
    for name, where, kept in (("a", 0, 10), ("b", 0, 10), ("c", 1, 10 << 20)):
        task = tale.number_of[name]
        tale.happens(Launch(tale.state.now, task, 1, (Place(where, "0" if name != "b" else "1"),)))
        tale.end(name, kept=kept)
    tale.decides()
    assert tale.launch_of("d").on == (Place(1, "0"),)


def test_a_task_that_takes_local_files_runs_where_they_are_and_waits_until_there_is_room() -> None:
    tale = Tale(job("a", local=("/x",)), job("b", "a"), job("c"), on=TWO)
    tale.happens(Launch(tale.state.now, 0, 1, (Place(0, "0"),)))
    tale.end("a", kept=9)
    tale.happens(Launch(tale.state.now, 2, 1, (Place(0, "0"),)))
    assert tale.launches() == []
    told = "It takes files that a left on n0: there is no room for it where they are."
    assert told in explain(tale.state, 1)
    tale.end("c")
    assert tale.launches() == ["b"]
    assert tale.launch_of("b").on == (Place(0, "0"),)


def test_local_files_are_brought_together_on_a_node_that_can_be_used_and_not_twice() -> None:
    tale = Tale(job("a", local=("/x",)), job("b", local=("/y",)), job("c", "a b"), on=TWO)
    tale.decides()
    tale.end("a", kept=9)
    tale.end("b", kept=99)
    big, small = ("b", "a")
    source, to = (next(i for i in (0, 1) if tale.copies(name) == [f"n{i}"]) for name in (small, big))
    [move] = tale.decides()
    assert isinstance(move, MoveResults)
    assert (move.tasks, move.node, move.to) == ([tale.number_of[small]], source, to)
    assert tale.decides() == []
    tale.move(small, source, to)
    assert tale.launches() == ["c"]
    assert tale.launch_of("c").on[0].node == to


def test_files_of_a_drained_node_are_moved_and_a_node_that_has_no_room_for_them_is_not_tried_again() -> None:
    tale = Tale(job("a", local=("/x",)), job("b", "a"), on=[*TWO, node("n2", machine="m2")])
    tale.happens(Launch(tale.state.now, 0, 1, (Place(0, "0"),)))
    tale.end("a", kept=9)
    tale.happens(NodeDrainAsked(tale.state.now, "n0"))
    [first] = tale.decides()
    assert isinstance(first, MoveResults) and (first.node, first.to) == (0, 1)
    tale.move("a", 0, 1, "no space left on device")
    [second] = tale.decides()
    assert isinstance(second, MoveResults) and (second.node, second.to) == (0, 2)
    tale.move("a", 0, 2)
    assert tale.launches() == ["b"]


def test_results_on_their_way_to_a_node_that_is_lost_can_be_moved_elsewhere() -> None:
    tale = made(*CHAIN)
    tale.happens(MoveResults(tale.state.now, [0], 0, 1, "n0 goes"))
    assert tale.state.keeping is not None and tale.state.keeping.moving == {0: 1}
    tale.lose("n1")
    assert not tale.state.keeping.moving


def test_local_files_are_brought_to_as_many_nodes_as_a_task_needs_that_takes_them() -> None:
    tale = Tale(job("a", local=("/x",)), job("b", "a", nodes=2), on=[*TWO, node("n2", machine="m2")])
    tale.decides()
    tale.end("a", kept=9)
    [move] = tale.decides()
    assert isinstance(move, MoveResults) and (move.tasks, move.node) == ([0], tale.state.ran_on[0])
    tale.move("a", move.node, move.to)
    assert tale.launches() == ["b"]
    assert {place.node for place in tale.launch_of("b").on} == {move.node, move.to}


def test_local_files_are_brought_into_the_partition_of_the_task_that_takes_them() -> None:
    wish = PartitionWish("p", 1, kind="big")
    there = [node("n0", kind="big", machine="m0"), TWO[1]]
    tale = Tale(job("a", local=("/x",)), job("b", "a", partition="p"), on=there, partitions=(wish,))
    tale.happens(Launch(tale.state.now, 0, 1, (Place(1, "0"),)))
    tale.end("a", kept=9)
    tale.decides()
    assert tale.state.partitions.all[0].nodes() == [0]
    tale.happens(PartitionStarted(tale._next(), 0))
    [move] = tale.decides()
    assert isinstance(move, MoveResults) and (move.tasks, move.node, move.to) == ([0], 1, 0)
    tale.move("a", 1, 0)
    assert tale.launches() == ["b"]


def test_a_task_whose_files_can_be_brought_to_no_node_where_it_could_run_fails_with_the_reason() -> None:
    there = [TWO[0], node("n1", 4, machine="m1")]
    tale = Tale(job("a", local=("/x",)), job("b", "a", cores=4), job("other"), on=there)
    tale.happens(Launch(tale.state.now, 0, 1, (Place(0, "0"),)))
    tale.happens(Launch(tale.state.now, 2, 1, (Place(1, "0"),)))
    tale.end("a", kept=9)
    [move] = tale.decides()
    assert isinstance(move, MoveResults) and move.to == 1
    tale.move("a", 0, 1, "no space left on device")
    assert tale.decides() == []
    tale.end("other")
    tale.decides()
    assert tale.phase("b").name == "FAILED"
    assert tale.cause("b") == (
        "takes files that a left on n0, where it cannot run; they could be brought to no other node, the last time to n1: "
        "no space left on device"
    )


def test_who_goes_after_one_that_runs_again_waits_for_it_once_more_when_his_own_attempt_was_for_nothing() -> None:
    tale = made(job("a"), job("b", after="a"))
    assert tale.launches() == ["b"]
    tale.happens(ResultsLost(tale._next(), [0], 0, "removed"))
    assert tale.phases() == {"a": "ready", "b": "launched"}
    tale.end("b", "interrupted")
    assert tale.phases() == {"a": "ready", "b": "waiting"}
    assert tale.launches() == ["a"]
    tale.end("a", kept=100)
    assert tale.launches() == ["b"]


def test_who_failed_where_his_files_are_is_tried_there_again_when_other_nodes_with_them_could_not_hold_him() -> None:
    """It stood still: the file lay on a small node as well, where it could never run."""
    there = [node("small", 1, machine="m0"), *(node(f"n{i}", 4, machine=f"m{i}") for i in (1, 2))]
    tale = Tale(job("a", local=("/x",)), job("b", "a", cores=4, retries=3), on=there)
    tale.launches()
    tale.end("a", kept=100)
    assert [type(made) for made in tale.decides()] == [MoveResults]
    tale.move("a", 0, 1)
    assert tale.launches() == ["b"]
    tale.end("b", "unstartable")
    assert tale.launches() == ["b"]
    assert tale.launch_of("b").on[0].node == 1
