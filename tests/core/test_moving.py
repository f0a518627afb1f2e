"""Where results are brought whose node goes."""

from __future__ import annotations

from collections import Counter

from builders import job, nodes, study_records
from cantle.core.keeping import keeping_of
from cantle.core.moving import MOST_MOVES, by_target, needed_for_s, stay_longer, stay_longest
from cantle.core.state import State
from cantle.model.records import Launch, NodesJoined, ResultsForgotten, TaskEnded
from cantle.model.resources import Node, Place


def with_nodes(*joined: Node) -> State:
    state = State()
    for record in study_records([job("makes"), job("takes", "makes"), job("later", "makes takes"), job("other")]):
        state.apply(record)
    state.apply(NodesJoined(0.0, list(joined)))
    return state


def test_the_results_of_many_nodes_that_go_are_spread_over_those_that_stay() -> None:
    state = with_nodes(*nodes(20))
    first = Counter(stay_longest(state, index)[0] for index in range(20))
    assert max(first.values()) <= 2
    assert all(index not in stay_longest(state, index) for index in range(20))
    assert len(stay_longest(state, 0)) == MOST_MOVES


def test_nodes_with_work_come_first_since_the_others_are_given_back_first() -> None:
    state = with_nodes(*nodes(6))
    state.apply(Launch(0.0, 3, 1, (Place(4, "0"),)))
    assert [stay_longest(state, index)[0] for index in range(4)] == [4] * 4


def test_nodes_that_end_sooner_are_no_better_than_this_one() -> None:
    state = with_nodes(Node("a", 1, ends_at=50.0), Node("b", 1, ends_at=90.0), Node("c", 1, ends_at=90.0))
    assert stay_longest(state, 1) == [2]
    assert stay_longer(state, 1) == []
    assert sorted(stay_longer(state, 0)) == [1, 2]


def test_each_result_goes_to_the_first_node_to_which_it_was_not_tried_in_vain() -> None:
    keeping = keeping_of(with_nodes(*nodes(3)))
    keeping.problems |= {(0, 1): "no room", (2, 1): "no room", (2, 2): "no room"}
    assert by_target(keeping, [0, 1, 2], [1, 2]) == {2: [0], 1: [1]}


def test_a_result_is_needed_as_long_as_those_run_that_take_it_and_for_ever_if_somebody_wants_it() -> None:
    state = with_nodes(*nodes(2))
    state.apply(Launch(0.0, 0, 1, (Place(0, "0"),)))
    state.apply(TaskEnded(1.0, 0, 1, "done", kept=5))
    keeping = keeping_of(state)
    assert needed_for_s(state, keeping, [0]) == float("inf"), "somebody may ask for it"
    state.apply(ResultsForgotten(1.0, [0]))
    assert needed_for_s(state, keeping, [0]) == float("inf"), "nobody knows when those begin that take it"
    assert needed_for_s(state, keeping, []) == 0.0
