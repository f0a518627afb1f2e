"""What kept results cost: records and passes take as many steps with 2,000 of them as with 100, counted, not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cantle.core.decide import Decider
from cantle.core.fates import recount
from cantle.core.phases import Phase
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    AnyRecord,
    KindsDeclared,
    Launch,
    MoveResults,
    NodeDrainAsked,
    NodeLost,
    NodesJoined,
    ReleaseNode,
    ResultsForgotten,
    ResultsLost,
    ResultsMoved,
    StudyAdded,
    TaskEnded,
    TasksAdded,
    TimePassed,
)
from cantle.model.resources import Node, Place
from cantle.model.study import Step, Task
from counting import steps

FEW, MANY = 100, 2_000
MIB = 1 << 20


class OnlyInOrder(tuple[int, ...]):
    """Parents that nobody may search."""

    def __contains__(self, _other: object) -> bool:
        raise AssertionError("all parents were searched")


def with_results(n: int, ends_at: float = 0.0, machine: str = "") -> State:
    """n results on the first of four nodes; each is taken later, after something that runs, and one task takes them all.

    `machine`: the first three nodes are on it.
    """
    state = State()
    makes = [Task(f"makes.{i}", 0, ()) for i in range(n)]
    takes = [Task(f"takes.{i}", 0, (i, n)) for i in range(n)]
    state.apply(StudyAdded(0.0, "study", [Step("call", retries=9)]))
    everything = Task("all", 0, OnlyInOrder(range(n + 1)))
    state.apply(TasksAdded(0.0, 0, [*makes, Task("runs", 0, ()), *takes, everything]))
    nodes = [Node(f"n{i}", 2, kind="cpu", machine=machine if machine and i < 3 else f"m{i}") for i in range(4)]
    state.apply(NodesJoined(0.0, [Node("n0", 2, kind="cpu", machine=nodes[0].machine, ends_at=ends_at), *nodes[1:]]))
    state.apply(Launch(0.0, n, 1, (Place(3, "0"),)))
    for task in range(n):
        made(state, task)
    state.apply(ResultsForgotten(1.0, list(range(n))))
    return state


def made(state: State, task: int) -> None:
    state.apply(Launch(state.now, task, 1, (Place(0, "0"),)))
    state.apply(TaskEnded(state.now, task, 1, "done", kept=MIB))


def decided(state: State, decider: Decider) -> list[AnyRecord]:
    """What is decided now, and applied."""
    found = []
    for decision in decider.decide(state):
        state.apply(decision)
        found.append(decision)
    return found


def sent_away(state: State) -> Decider:
    """The first node's user wants it back; what lives there is on its way."""
    state.apply(KindsDeclared(2.0, [Kind("cpu", 2, adds=False)]))
    decider = Decider()
    decider.scaling = Scaling(("demand",))
    decided(state, decider)
    state.apply(NodeDrainAsked(3.0, "n0", "its user", goes=True))
    moves = [each for each in decided(state, decider) if isinstance(each, MoveResults)]
    assert len(moves) == 1
    return decider


def ends(state: State) -> Decider:
    """The first node has to be empty since it ends; what lives there is on its way."""
    decider = Decider()
    state.apply(TimePassed(95.0))
    moves = [each for each in decided(state, decider) if isinstance(each, MoveResults)]
    assert len(moves) == 1
    return decider


def passes(state: State, decider: Decider) -> Iterator[int]:
    """The steps of ten passes within a moment, while what was moved is under way."""
    for _ in range(10):
        state.apply(TimePassed(state.now + 0.01))
        state.version += 1
        yield steps(lambda: decided(state, decider))


def test_that_a_call_has_left_its_result_costs_the_same_whatever_else_its_users_take() -> None:
    def cost(n: int) -> int:
        state = with_results(n)
        assert state.keeping is not None
        keeping = state.keeping
        return steps(lambda: keeping.made(state, 0, MIB, 0))

    assert cost(MANY) == cost(FEW)


@pytest.mark.parametrize(("goes", "ends_at"), [(sent_away, 0.0), (ends, 100.0)])
def test_a_pass_costs_the_same_however_many_results_are_being_moved_from_a_node_that_goes(
    goes: Callable[[State], Decider], ends_at: float
) -> None:
    def cost(n: int) -> int:
        state = with_results(n, ends_at)
        return max(passes(state, goes(state)))

    assert cost(MANY) <= cost(FEW) + 20


@pytest.mark.parametrize(("goes", "ends_at"), [(sent_away, 0.0), (ends, 100.0)])
def test_results_that_could_be_moved_nowhere_are_looked_at_now_and_then_only(
    goes: Callable[[State], Decider], ends_at: float
) -> None:
    def cost(n: int) -> int:
        state = with_results(n, ends_at)
        decider = goes(state)
        for to in (1, 2, 3):
            state.apply(ResultsMoved(state.now, list(range(n)), 0, to, "no room"))
        state.apply(TimePassed(state.now + 2.0))
        state.version += 1
        assert not [each for each in decided(state, decider) if isinstance(each, MoveResults)]
        return max(passes(state, decider))

    assert cost(MANY) <= cost(FEW) + 20


def test_a_node_that_comes_or_goes_beside_others_of_its_machine_costs_the_same_whatever_lives_there() -> None:
    def cost(n: int) -> int:
        state = with_results(n, machine="shared")
        assert state.keeping is not None
        lived = state.keeping.alone_on(0)
        beside = Node("n4", 2, machine="shared")
        came = steps(lambda: state.apply(NodesJoined(state.now, [beside])))
        went = steps(lambda: [state.apply(NodeLost(state.now, index, "went")) for index in (4, 1)])
        assert lived == ((), 0), "others see it"
        assert state.keeping.nodes_with(0).bit_count() == 2
        return came + went

    assert cost(MANY) == cost(FEW)


def test_what_is_lost_with_a_node_costs_by_what_is_lost() -> None:
    def cost(n: int) -> int:
        state = with_results(n)
        return steps(lambda: state.apply(NodeLost(state.now, 0, "its plug was pulled")))

    assert cost(MANY) / MANY <= 1.1 * cost(FEW) / FEW


def test_once_a_move_has_ended_what_is_left_is_moved_on_and_then_the_node_goes() -> None:
    state = with_results(FEW)
    decider = sent_away(state)
    state.apply(ResultsMoved(state.now, list(range(FEW - 1)), 0, 3))
    state.apply(ResultsMoved(state.now, [FEW - 1], 0, 3, "no room"))
    assert not [each for each in decided(state, decider) if isinstance(each, MoveResults)]
    until = state.now + 1.0
    again: list[AnyRecord] = []
    while not again and state.now < until:
        state.apply(TimePassed(decider.wakes_at))
        state.version += 1
        again = [each for each in decided(state, decider) if isinstance(each, MoveResults)]
    (move,) = again
    assert isinstance(move, MoveResults)
    assert move.tasks == [FEW - 1]
    assert move.to != 3
    state.apply(ResultsMoved(state.now, [FEW - 1], 0, move.to))
    assert [type(each) for each in decided(state, decider)] == [ReleaseNode]


def test_a_task_that_waits_for_a_place_near_what_it_takes_costs_a_pass_the_same_however_much_that_is() -> None:
    def cost(n: int) -> int:
        state = with_results(n)
        fills = [Task(f"fills.{i}", 0, ()) for i in range(2)]
        takes = Task("takes", 0, OnlyInOrder(range(n)), 100.0)
        first = len(state.tasks)
        state.apply(TasksAdded(state.now, first, [*fills, takes]))
        for i in range(2):
            state.apply(Launch(state.now, first + i, 1, (Place(0, str(i)),)))
        decider = Decider()
        assert decided(state, decider) == [], "it waits for its home"
        found = max(passes(state, decider))
        assert decider.wakes_at < state.now + 3.0
        return found

    assert cost(MANY) == cost(FEW)


def test_that_a_result_is_lost_costs_the_same_whatever_else_its_users_take() -> None:
    def cost(n: int) -> int:
        state = with_results(n)
        lost = ResultsLost(2.0, [0], 0, "removed by hand")
        return steps(lambda: state.apply(lost))

    assert cost(MANY) == cost(FEW)


def test_who_takes_many_results_waits_for_each_that_is_lost_and_begins_when_all_are_made_again() -> None:
    state = State()
    n = MANY
    takes_all = Task("all", 0, tuple(range(n)))
    state.apply(StudyAdded(0.0, "study", [Step("call")]))
    state.apply(TasksAdded(0.0, 0, [*(Task(f"makes.{i}", 0, ()) for i in range(n)), takes_all]))
    state.apply(NodesJoined(0.0, [Node("n0", 2)]))
    for task in range(n):
        made(state, task)
    assert state.phases[n] == Phase.READY
    for task in (3, 5, 9):
        state.apply(ResultsLost(2.0, [task], 0, "removed by hand"))
    state.apply(ResultsLost(2.0, [3], 0, "told twice"))
    assert (state.phases[n], state.blockers[n]) == (Phase.WAITING, 3)
    for task in (3, 9, 5):
        assert state.phases[n] == Phase.WAITING
        state.apply(Launch(3.0, task, 2, (Place(0, "0"),)))
        state.apply(TaskEnded(3.0, task, 2, "done", kept=MIB))
    assert (state.phases[n], state.blockers[n]) == (Phase.READY, 0)
    recount(state, [n])
    assert (state.phases[n], state.blockers[n]) == (Phase.READY, 0)
    assert [decision.task for decision in decided(state, Decider()) if isinstance(decision, Launch)] == [n]
