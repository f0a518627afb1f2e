"""Results on nodes whose allocation ends while others stay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from builders import CheckedState, Job, job, study_records
from cantle.core.decide import Decider
from cantle.core.keeping import Keeping
from cantle.core.rescuing import rescue
from cantle.core.state import State
from cantle.model.records import Event, Launch, MoveResults, NodesJoined, ResultsForgotten, ResultsMoved
from cantle.model.resources import Node
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld
from cantle.runtime.simulated_provider import SimulatedProvider

GIB = 1 << 30
WANTS = [job("makes"), job("long"), job("takes", "makes long")]
"""The first is over soon, and what it has made is taken when the second is over, long after that."""


def simulate(
    jobs: list[Job], nodes: list[Node], kept: int, moves_in_s: float = 3.0, events: Iterable[Event] = ()
) -> CheckedState:
    """`makes` takes a second on the first node and leaves so much; `long` takes 200 s on the last one."""
    fates: dict[int, Callable[[], Fate]] = {0: lambda: Fate(1.0, "done", kept), 1: lambda: Fate(200.0)}
    state = CheckedState()
    for record in study_records(jobs):
        state.apply(record)
    world = SimulatedWorld(
        state,
        [(0.0, nodes)],
        lambda task, _attempt: fates.get(task, lambda: Fate(1.0))(),
        provider=SimulatedProvider(moves_in_s=moves_in_s),
    )
    for event in [ResultsForgotten(0.5, [0]), *events]:
        world.put(event)
    run(state, world, NoLog(), Decider())
    return state


def moves(state: CheckedState) -> list[MoveResults]:
    return [record for record in state.records if isinstance(record, MoveResults)]


def launches(state: CheckedState, task: int) -> int:
    return sum(isinstance(record, Launch) and record.task == task for record in state.records)


def apart(name: str, ends_at: float = 0.0) -> Node:
    return Node(name, 1, machine=name, ends_at=ends_at)


def test_what_is_needed_later_is_brought_to_a_node_that_stays_when_its_own_has_to_be_empty() -> None:
    state = simulate(WANTS, [apart("goes", 100.0), apart("stays")], 5)
    assert state.succeeded
    assert launches(state, 0) == 1, "the producer ran once"
    (move,) = moves(state)
    assert (state.room.nodes[move.node].name, state.room.nodes[move.to].name) == ("goes", "stays")
    assert 89.0 < move.time < 97.0, "when it has to be empty, and in time"
    assert "would be lost with goes, whose allocation ends" in move.why


def test_more_than_can_be_moved_in_the_last_seconds_is_moved_before() -> None:
    state = simulate(WANTS, [apart("goes", 100.0), apart("stays")], 3 * GIB)
    (move,) = moves(state)
    assert move.time < 50.0, "3 GiB take half a minute, and a disk may be half as fast"
    assert launches(state, 0) == 1


def test_what_lives_on_two_nodes_that_end_together_is_moved_as_well() -> None:
    nodes = [apart("goes", 100.0), apart("goes-too", 100.0), apart("stays")]
    jobs = [job("makes"), job("fills", estimate_s=500.0), *WANTS[1:]]
    state = CheckedState()
    for record in study_records(jobs):
        state.apply(record)
    seconds = [1.0, 2.0, 200.0, 1.0]
    world = SimulatedWorld(
        state,
        [(0.0, nodes)],
        lambda task, _attempt: Fate(seconds[task], "done", 5 if task == 0 else 0),
        provider=SimulatedProvider(moves_in_s=1.0),
    )
    world.put(ResultsForgotten(0.5, [0]))
    world.put(ResultsMoved(10.0, [0], 0, 1))
    run(state, world, NoLog(), Decider())
    assert state.succeeded
    assert launches(state, 0) == 1
    assert [state.room.nodes[move.to].name for move in moves(state)] == ["stays"]


def test_where_all_nodes_end_together_nothing_is_moved() -> None:
    state = simulate(WANTS, [apart("one", 900.0), apart("other", 900.0)], 5)
    assert state.succeeded
    assert moves(state) == []


def test_what_is_not_needed_any_more_stays_where_it_is() -> None:
    state = simulate([job("makes"), job("long")], [apart("goes", 100.0), apart("stays")], 5)
    assert state.succeeded
    assert moves(state) == []


def test_a_target_without_room_is_not_asked_again_and_another_one_is() -> None:
    nodes = [apart("goes", 100.0), apart("full"), apart("stays")]
    state = simulate(WANTS, nodes, 5, events=[ResultsMoved(20.0, [0], 0, 1, "no room")])
    assert [state.room.nodes[move.to].name for move in moves(state)] == ["stays"]
    assert launches(state, 0) == 1


class CountedKeeping(Keeping):
    """Counts how often it is asked what lives on a node."""

    asked = 0

    def alone_on(self, index: int) -> tuple[Collection[int], int]:
        self.asked += 1
        return super().alone_on(index)


class Untouchable(dict[int, None]):
    """Results that nobody may go through while they are not due."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("all that lives on a node was gone through")


def _ahead_of_its_end(nodes: int) -> tuple[State, CountedKeeping]:
    """So many nodes, half of which end long before the others; the first one holds a result that is needed later."""
    state = State()
    for record in study_records(WANTS):
        state.apply(record)
    state.apply(NodesJoined(0.0, [apart(f"n{i}", 9000.0 if i % 2 else 90000.0) for i in range(nodes)]))
    state.keeping = keeping = CountedKeeping()
    for index in range(nodes):
        keeping.joined(state, index)
    keeping.made(state, 0, 5, 1)
    return state, keeping


def test_what_is_not_due_costs_a_pass_nothing_however_much_lives_on_however_many_nodes() -> None:
    state, keeping = _ahead_of_its_end(400)
    [stored] = [each for each in keeping._stores.values() if each.alone]
    stored.alone = Untouchable(stored.alone)
    memory: dict[object, Any] = {}
    for _ in range(100):
        assert list(rescue(state, memory)) == []
        state.now += 0.01
    assert keeping.asked <= 2 * 400, "once a second, not once a pass"
    assert memory["rescuing wakes at"] < 9000.0


def test_a_result_that_is_made_between_two_looks_is_still_moved_in_time() -> None:
    state, keeping = _ahead_of_its_end(4)
    memory: dict[object, Any] = {}
    assert state.lifetimes is not None
    state.now = state.lifetimes.leaves[3] - 0.5
    state.lifetimes.over |= 1 << 1
    keeping.leaves(1)
    keeping.forget(0)
    assert list(rescue(state, memory)) == []
    keeping.made(state, 1, 5, 3)
    state.now += 0.25
    assert list(rescue(state, memory)) == []
    state.now = memory["rescuing wakes at"]
    [move] = rescue(state, memory)
    assert isinstance(move, MoveResults)
    assert (move.node, move.tasks) == (3, [1])
    assert move.time < state.lifetimes.ends[3] - 2.0
