"""Slices, requests and grants: the examples that the threads give, and the edges between them."""

from __future__ import annotations

import math

import pytest
from slices_rig import Rig

from cantle.core.broker import Broker
from cantle.core.elements import Grant
from cantle.core.room import Room
from cantle.errors import CantleBug
from cantle.model.resources import Node
from cantle.model.slicing import slices_of
from cantle.model.study import Slicing

THOR = "3 x 400, 2 x 100, 2 x 50, 1 x 20"


# The threads' own examples


def test_two_wide_and_three_narrow_but_at_most_four_are_two_and_two() -> None:
    rig = Rig(400, 12, THOR, cap=6)
    rig.ask(1, "2 x 400 + 3 x 50, at most 4")
    assert len(rig.turn()) == 4
    assert rig.held(1) == {400: 2, 50: 2}


def test_nine_narrow_elements_come_from_two_copies_eight_and_one() -> None:
    rig = Rig(400, 12, THOR, cap=6)
    rig.ask(1, "9 x 50")
    grants = rig.turn()
    assert [(g.copy, g.index) for g in grants] == [(0, i) for i in range(8)] + [(1, 0)]
    assert all(g.nodes == tuple(range(50 * g.index, 50 * g.index + 50)) for g in grants)


@pytest.mark.parametrize(
    ("wants", "active"),
    [
        ("3 x 400 + 8 x 100 + 20 x 20", {400: 3, 100: 2, 20: 1}),
        ("1 x 400 + 8 x 100 + 16 x 50 + 20 x 20", {400: 1, 100: 2, 50: 2, 20: 1}),
    ],
)
def test_both_legal_combinations_fit_under_a_cap_of_six_and_a_seventh_copy_waits(
    wants: str, active: dict[int, int]
) -> None:
    rig = Rig(400, 12, THOR, cap=6)
    rig.ask(1, wants)
    rig.turn()
    assert rig.active() == active
    seventh = next(width for width in (50, 400) if active.get(width, 0) < {50: 2, 400: 3}[width])
    rig.ask(2, f"1 x {seventh}")
    assert rig.turn() == [] and rig.held(2) == {}
    rig.ask(1, "")
    twenty = [e.number for e in rig.ledger.of_job(1) if e.width == 20]
    for number in twenty[:-1]:
        rig.close(number)
        assert rig.turn() == [], "the copy stays active until its last element is gone"
    rig.close(twenty[-1])
    assert [(g.job, len(g.nodes)) for g in rig.turn()] == [(2, seventh)]


def test_each_active_copy_has_cores_of_its_own_the_same_on_every_node() -> None:
    rig = Rig(400, 12, THOR, cap=6)
    rig.ask(1, "3 x 400 + 8 x 100 + 20 x 20")
    layers = {(g.slice, g.copy): set(g.masks) for g in rig.turn()}
    assert sorted(min(masks) for masks in layers.values()) == [0b11 << 2 * i for i in range(6)]
    assert all(len(masks) == 1 for masks in layers.values())


def test_a_copy_keeps_off_the_cores_of_others_also_where_they_are_free() -> None:
    rig = Rig(4, 4, "1 x 2, 1 x 4", cap=2)
    rig.ask(1, "1 x 2")
    rig.ask(2, "1 x 4")
    assert [g.masks for g in rig.turn()] == [(0b11,) * 2, (0b1100,) * 4]


# Requests and grants


def test_a_partial_grant_is_completed_when_more_is_there() -> None:
    rig = Rig(8, 2, "1 x 2")
    rig.ask(1, "2 x 2")
    rig.ask(2, "3 x 2")
    rig.turn()
    assert (rig.held(1), rig.held(2)) == ({2: 2}, {2: 2})
    rig.ask(1, "")
    rig.close(rig.of(1)[0])
    assert [g.job for g in rig.turn()] == [2]


def test_elements_are_filled_in_by_what_each_job_holds_for_its_weight() -> None:
    rig = Rig(12, 1, "1 x 1")
    rig.ask(1, "12 x 1", weight=3.0)
    rig.ask(2, "12 x 1")
    rig.turn()
    assert (rig.held(1), rig.held(2)) == ({1: 9}, {1: 3})


def test_the_first_alternative_is_taken_and_the_others_only_where_it_cannot_be() -> None:
    rig = Rig(8, 2, "1 x 8, 2 x 2", cap=2)
    rig.ask(1, "1 x 8 or 8 x 2")
    rig.turn()
    assert rig.held(1) == {8: 1}
    rig.ask(2, "1 x 8 or 6 x 2")
    rig.turn()
    assert rig.held(2) == {2: 4}
    rig.ask(1, "")
    rig.close(rig.of(1)[0])
    rig.turn()
    assert rig.held(2) == {2: 6}, "who holds a part of one alternative gets nothing of another"


def test_who_got_a_part_of_one_alternative_gets_nothing_of_one_that_lists_its_width_with_none() -> None:
    rig = Rig(2, 2, "1 x 1 / 1, 1 x 2 / 1")
    rig.ask(1, "2 x 2 or 0 x 2 + 1 x 1")
    rig.turn()
    assert rig.held(1) == {2: 1}


@pytest.mark.parametrize(
    ("wants", "held"),
    [("2 x 2 or 0 x 2 + 1 x 1", {2: 1}), ("3 x 2 or 1 x 2 + 1 x 1", {2: 2}), ("4 x 2 or 2 x 2 + 1 x 1", {2: 3})],
)
def test_who_holds_more_of_a_width_than_an_alternative_has_gets_nothing_of_that_one(
    wants: str, held: dict[int, int]
) -> None:
    rig = Rig(2 * held[2], 2, "1 x 1 / 1, 1 x 2 / 1")
    rig.ask(1, f"{held[2]} x 2")
    rig.turn()
    rig.ask(1, wants)
    assert rig.turn() == [] and rig.held(1) == held


def test_who_holds_more_than_an_alternative_is_bounded_to_gets_the_rest_of_another() -> None:
    rig = Rig(8, 2, "1 x 2, 1 x 1")
    rig.ask(1, "2 x 2")
    rig.turn()
    rig.ask(1, "3 x 2 or 2 x 2 + 1 x 1, at most 1")
    assert [len(grant.nodes) for grant in rig.turn()] == [2]


def test_what_is_held_above_every_alternative_keeps_nobody_from_the_rest() -> None:
    rig = Rig(6, 2, "1 x 1 / 1, 1 x 2 / 1")
    rig.ask(1, "3 x 2")
    rig.turn()
    rig.ask(1, "1 x 2 + 2 x 1")
    rig.turn()
    assert rig.held(1) == {2: 3, 1: 2}


def test_the_newest_want_replaces_the_one_before() -> None:
    rig = Rig(8, 1, "1 x 1")
    rig.ask(1, "8 x 1")
    rig.ask(1, "2 x 1")
    rig.turn()
    assert rig.held(1) == {1: 2}
    rig.ask(1, "3 x 1")
    rig.turn()
    assert rig.held(1) == {1: 3}


@pytest.mark.parametrize("wants", ["3 x 2, at most 0", "0 x 2", "0 x 2 + 0 x 4", ""])
def test_a_want_of_nothing_is_met_at_once(wants: str) -> None:
    rig = Rig(8, 2, "1 x 2, 1 x 4", patience_s=1.0)
    rig.ask(1, wants)
    assert rig.turn() == []
    assert rig.broker.wakes_at == math.inf


def test_a_width_wanted_twice_counts_for_the_sum() -> None:
    rig = Rig(8, 1, "1 x 2")
    rig.ask(1, "1 x 2 + 2 x 2")
    assert len(rig.turn()) == 3


def test_a_lower_want_takes_nothing_by_force_and_grants_nothing_until_less_is_held() -> None:
    rig = Rig(8, 1, "1 x 1")
    rig.ask(1, "6 x 1")
    rig.turn()
    rig.ask(1, "3 x 1")
    assert rig.turn() == [] and rig.held(1) == {1: 6} and rig.closed == []
    for number in rig.of(1)[:3]:
        rig.close(number)
        assert rig.turn() == []
    rig.close(rig.of(1)[0])
    assert len(rig.turn()) == 1 and rig.held(1) == {1: 3}


def test_what_is_declined_is_passed_over_and_offered_again_when_something_changes() -> None:
    rig = Rig(4, 1, "1 x 1")
    rig.ask(1, "1 x 1")
    rig.ask(2, "1 x 1")
    offered = [move.job for move in rig.broker.moves(0.0) if isinstance(move, Grant)]
    assert offered == [1, 2] and rig.ledger.elements == {}
    rig.ledger.touch_all()
    assert [g.job for g in rig.turn()] == [1, 2]


def test_a_pass_after_which_nothing_changed_looks_at_nothing() -> None:
    rig = Rig(4, 1, "1 x 1")
    for job in range(6):
        rig.ask(job, "1 x 1")
    rig.turn()
    looked: list[int] = []
    rig.ledger.in_active = lambda slice_: looked.append(slice_)  # type: ignore[method-assign]
    assert rig.turn() == [] and looked == []


# Which element


def test_a_copy_that_is_active_is_filled_before_another_becomes_so_and_the_fullest_first() -> None:
    rig = Rig(4, 2, "2 x 1")
    rig.ask(1, "6 x 1")
    assert [g.copy for g in rig.turn()] == [0, 0, 0, 0, 1, 1]
    rig.ask(1, "")
    rig.close(next(e.number for e in rig.ledger.of_job(1) if (e.copy.number, e.index) == (0, 2)))
    rig.ask(2, "1 x 1")
    assert [(g.copy, g.index) for g in rig.turn()] == [(0, 2)]


def test_a_warm_element_is_taken_before_a_free_one_and_ones_own_before_others() -> None:
    rig = Rig(4, 1, "1 x 1")
    rig.ask(1, "1 x 1")
    rig.ask(2, "1 x 1")
    rig.turn()
    (first,), (second,) = rig.of(1), rig.of(2)
    for job in (1, 2):
        number = rig.of(job)[0]
        rig.ask(job, "")
        assert rig.park(number)
    rig.turn()
    rig.ask(2, "1 x 1")
    assert [g.element for g in rig.turn()] == [second]
    rig.ask(3, "2 x 1")
    assert [g.element for g in rig.turn()] == [first, None]


def test_a_copy_that_is_warm_only_goes_when_another_width_needs_its_place() -> None:
    rig = Rig(4, 2, "1 x 4, 1 x 2, 1 x 1", cap=2)
    rig.ask(1, "2 x 2")
    rig.ask(2, "1 x 1")
    rig.turn()
    rig.ask(1, "")
    rig.ask(2, "")
    rig.now = 5.0
    rig.park(rig.of(2)[0])
    rig.now = 7.0
    two = rig.of(1)
    rig.park(two[0])
    rig.turn()
    rig.ask(3, "1 x 4")
    assert [len(g.nodes) for g in rig.turn()] == [4], "the one of width 1 went: the other is at work"
    assert rig.active() == {2: 1, 4: 1}


def test_of_two_warm_copies_the_longest_unused_goes() -> None:
    rig = Rig(4, 2, "1 x 4, 1 x 2, 1 x 1", cap=2)
    rig.ask(1, "1 x 2")
    rig.ask(2, "1 x 1")
    rig.turn()
    for job, now in ((2, 5.0), (1, 3.0)):
        rig.now = now
        rig.ask(job, "")
        rig.park(rig.of(job)[0])
    rig.ask(3, "1 x 4")
    rig.turn()
    assert rig.active() == {1: 1, 4: 1}


def test_a_warm_copy_that_closes_slowly_is_waited_for_and_no_second_one_goes() -> None:
    rig = Rig(4, 2, "1 x 4, 1 x 2, 1 x 1", cap=2, slow=True, patience_s=5.0)
    rig.ask(1, "1 x 2")
    rig.ask(2, "1 x 1")
    rig.turn()
    numbers = [rig.of(1)[0], rig.of(2)[0]]
    for job in (1, 2):
        rig.now += 1
        rig.ask(job, "")
        rig.park(rig.of(job)[0])
    rig.ask(3, "1 x 4")
    assert rig.turn() == [] and rig.closed == [numbers[0]]
    rig.ask(4, "1 x 1")
    assert [g.job for g in rig.turn()] == [4], "others go on meanwhile"
    assert rig.later(10.0) == [] and [rig.broker.leaves(n) for n in rig.of(4)] == [""], "nothing drains for it as well"
    rig.gone(numbers[0])
    assert [g.job for g in rig.turn()] == [3]


def test_where_files_lie_decides_between_elements_that_cost_the_same() -> None:
    def transfer_s(job: int, nodes: tuple[int, ...]) -> float:
        return 10.0 - sum(job == node // 2 for node in nodes)

    rig = Rig(8, 2, "2 x 2", transfer_s=transfer_s)
    rig.ask(3, "1 x 2")
    rig.ask(1, "1 x 2")
    assert {g.job: g.nodes for g in rig.turn()} == {3: (6, 7), 1: (2, 3)}


def test_a_warm_element_far_from_the_files_loses_against_a_new_one_near_them() -> None:
    rig = Rig(8, 2, "2 x 2", transfer_s=lambda job, nodes: 0.0 if 6 in nodes or job == 1 else 60.0)
    rig.ask(1, "1 x 2")
    rig.turn()
    rig.ask(1, "")
    rig.park(rig.of(1)[0])
    rig.ask(2, "1 x 2")
    assert [(g.element, g.nodes) for g in rig.turn()] == [(None, (6, 7))]


# Cores


def test_more_copies_than_cores_make_no_copy_active_and_change_nothing() -> None:
    rig = Rig(4, 2, "3 x 4", cap=3)
    rig.ask(1, "1 x 4")
    assert rig.turn() == [] and rig.active() == {}
    assert rig.ledger.copies[0][0].cut == ()


def test_a_share_that_does_not_divide_the_cores_leaves_some_over() -> None:
    rig = Rig(2, 7, "3 x 2", cap=3)
    rig.ask(1, "3 x 2")
    assert [g.masks for g in rig.turn()] == [(0b11, 0b11), (0b1100, 0b1100), (0b110000, 0b110000)]
    assert list(rig.room.free_cores.values()) == [0b1000000, 0b1000000]


def test_explicit_shares_that_run_out_below_the_cap_leave_the_copy_inactive_until_cores_come_back() -> None:
    rig = Rig(4, 4, "3 x 4 / 2", cap=3)
    rig.ask(1, "3 x 4")
    assert len(rig.turn()) == 2
    assert rig.active() == {4: 2} and rig.ledger.copies[0][2].cut == () and rig.ledger.copies[0][2].free == 0
    rig.ask(2, "1 x 4")
    rig.ask(1, "1 x 4")
    assert rig.turn() == []
    rig.close(rig.of(1)[0])
    assert [g.job for g in rig.turn()] == [2]


def test_cores_that_others_hold_are_left_to_them_and_used_when_they_come_back() -> None:
    rig = Rig(4, 4, "1 x 2", cap=1)
    rig.taken_outside(1, 0b1000)
    rig.ask(1, "2 x 2")
    assert [g.nodes for g in rig.turn()] == [(2, 3)]
    assert rig.later(1.0) == []
    rig.given_outside(rig.outside[0])
    assert [g.nodes for g in rig.turn()] == [(0, 1)]


def test_an_element_whose_layer_is_taken_by_others_gets_other_cores() -> None:
    rig = Rig(2, 4, "2 x 2", cap=2)
    rig.taken_outside(1, 0b0001)
    rig.ask(1, "1 x 2")
    assert [g.masks for g in rig.turn()] == [(0b0011, 0b0110)]


def test_nodes_of_different_sizes_each_give_their_part_and_too_small_ones_are_left_out() -> None:
    rig = Rig(2, 8, "2 x 2", cap=2)
    rig.add(1)
    rig.add(4)
    rig.add(4)
    rig.ask(1, "2 x 2")
    assert [(g.nodes, g.masks) for g in rig.turn()] == [((0, 1), (0b1111, 0b1111)), ((3, 4), (0b11, 0b11))]


# Nodes


def test_a_width_that_does_not_divide_the_nodes_leaves_spares() -> None:
    rig = Rig(399, 1, "1 x 50")
    rig.ask(1, "9 x 50")
    assert len(rig.turn()) == 7
    assert rig.ledger.cuts.spares(0) == tuple(range(350, 399))


def test_a_lost_node_breaks_only_the_element_that_has_it() -> None:
    rig = Rig(9, 2, "1 x 2, 1 x 4", cap=2)
    rig.ask(1, "2 x 2 + 1 x 4")
    rig.turn()
    granted = next(e for e in rig.ledger.of_job(1) if e.nodes == (2, 3))
    assert rig.lose(8) == [], "a spare"
    assert rig.lose(6) == [], "in a free element"
    wide = next(e for e in rig.ledger.of_job(1) if e.width == 4)
    assert rig.lose(3) == [granted, wide]
    assert rig.held(1) == {2: 1}
    rig.ask(2, "9 x 2")
    assert [g.nodes for g in rig.turn() if g.job == 2] == [(4, 5)], "broken elements are not granted again"


def test_a_lost_node_in_a_warm_element_takes_it_from_the_warm_ones() -> None:
    rig = Rig(4, 1, "1 x 2")
    rig.ask(1, "1 x 2")
    rig.turn()
    rig.park(rig.of(1)[0])
    rig.ask(1, "")
    (broken,) = rig.ledger.node_lost(0)
    rig.ask(2, "2 x 2")
    assert [g.nodes for g in rig.turn()] == [(2, 3)]
    rig.ask(2, "")
    rig.room.lose(0)
    for number in (broken.number, *rig.of(2)):
        assert rig.gone(number)
    rig.ask(2, "2 x 2")
    assert [g.nodes for g in rig.turn()] == [(1, 2)], "cut anew from the three that are left"


def test_one_node_lost_disables_every_element_as_wide_as_the_machine_until_a_spare_comes() -> None:
    rig = Rig(4, 3, "3 x 4")
    rig.ask(1, "3 x 4")
    rig.turn()
    assert len(rig.lose(2)) == 3
    assert rig.turn() == [] and rig.active() == {}
    rig.add(3)
    assert [g.nodes for g in rig.turn()] == [(0, 1, 3, 4)] * 3


def test_a_node_that_comes_is_used_by_copies_that_become_active_after_it() -> None:
    rig = Rig(3, 2, "2 x 2", cap=2)
    rig.ask(1, "1 x 2")
    rig.turn()
    rig.add(2)
    rig.ask(2, "3 x 2")
    assert [(g.copy, g.nodes) for g in rig.turn()] == [(1, (0, 1)), (1, (2, 3))]
    rig.ask(1, "")
    rig.close(rig.of(1)[0])
    assert [(g.copy, g.nodes) for g in rig.turn()] == [(0, (0, 1))]


def test_a_released_element_that_was_lost_is_not_free_again() -> None:
    rig = Rig(4, 1, "1 x 2")
    rig.ask(1, "2 x 2")
    rig.turn()
    (element,) = rig.ledger.node_lost(0)
    assert not rig.park(element.number), "a broken element does not stay warm"
    rig.room.lose(0)
    assert rig.gone(element.number)
    assert rig.ledger.copies[0][0].free == 0


def test_a_late_release_of_an_element_that_is_gone_changes_nothing() -> None:
    rig = Rig(4, 1, "1 x 2")
    rig.ask(1, "1 x 2")
    rig.turn()
    (number,) = rig.of(1)
    rig.lose(1)
    rig.turn()
    version = rig.ledger.version
    assert not rig.gone(number) and not rig.park(number)
    rig.ledger.close(number, rig.now)
    assert rig.ledger.version == version
    assert rig.of(1) != [number], "and the element that stands in its place has another number"


def test_a_job_that_is_gone_leaves_its_elements_to_be_closed_and_wants_nothing() -> None:
    rig = Rig(4, 1, "1 x 2")
    rig.ask(1, "3 x 2")
    rig.ask(2, "2 x 2")
    rig.turn()
    for element in rig.broker.withdraw(1):
        rig.close(element.number)
    assert [g.job for g in rig.turn()] == [2]
    assert rig.held(1) == {} and rig.broker.withdraw(1) == []


# Patience


def test_an_endless_stream_lets_a_wide_job_in_when_its_patience_ends() -> None:
    rig = Rig(4, 1, "1 x 4, 1 x 1", cap=1, patience_s=30.0)
    rig.ask(1, "4 x 1")
    rig.turn()
    rig.ask(2, "1 x 4")
    assert rig.later(29.0) == []
    assert [rig.broker.leaves(n) for n in rig.of(1)] == [""] * 4
    assert rig.broker.wakes_at == 30.0
    assert rig.later(1.0) == []
    for number in rig.of(1):
        assert rig.broker.leaves(number) == "close" and not rig.park(number)
        rig.close(number)
        rig.ask(1, "4 x 1")
        granted = rig.turn()
    assert [(g.job, len(g.nodes)) for g in granted] == [(2, 4)]
    assert rig.broker.rotation.waiter is None and rig.broker.leaves(rig.of(2)[0]) == ""


def test_while_one_waits_nobody_else_makes_a_copy_and_warm_elements_of_the_draining_one_close() -> None:
    rig = Rig(4, 3, "1 x 4, 1 x 2, 2 x 1", cap=3, patience_s=10.0)
    rig.ask(1, "5 x 1 + 1 x 2")
    rig.turn()
    rig.ask(1, "4 x 1 + 1 x 2")
    warm = next(e.number for e in rig.ledger.of_job(1) if e.width == 1)
    assert rig.park(warm)
    rig.ask(2, "1 x 4")
    rig.turn()
    rig.later(10.0)
    waiter = rig.broker.rotation
    assert waiter.draining is not None and (waiter.draining.width, waiter.draining.number) == (2, 0)
    rig.ask(1, "4 x 1")
    rig.close(next(e.number for e in rig.ledger.of_job(1) if e.width == 2))
    rig.ask(0, "1 x 2")
    assert [g.job for g in rig.turn()] == [2]
    assert rig.held(0) == {}


def test_a_copy_that_somebody_else_could_have_waits_for_the_waiter_and_is_made_when_that_one_goes() -> None:
    rig = Rig(4, 3, "1 x 4 / 2, 1 x 2 / 2, 1 x 1 / 1", cap=3, patience_s=10.0)
    rig.ask(1, "2 x 2")
    rig.turn()
    rig.ask(2, "1 x 4")
    rig.turn()
    rig.later(10.0)
    rig.ask(3, "1 x 1")
    assert rig.turn() == []
    rig.broker.withdraw(2)
    assert [g.job for g in rig.turn()] == [3]


def test_of_several_whose_patience_has_ended_the_oldest_comes_first() -> None:
    rig = Rig(4, 1, "1 x 4, 1 x 2, 1 x 1", cap=1, patience_s=10.0)
    rig.ask(1, "4 x 1")
    rig.ask(5, "1 x 4")
    rig.turn()
    rig.now = 1.0
    rig.ask(4, "1 x 2")
    rig.later(20.0)
    waiter = rig.broker.rotation.waiter
    assert waiter is not None and waiter.want.job == 5


def test_the_warm_elements_of_a_copy_that_begins_to_drain_close_at_once() -> None:
    rig = Rig(4, 1, "1 x 4, 1 x 1", cap=1, patience_s=10.0)
    rig.ask(1, "3 x 1")
    rig.turn()
    rig.ask(1, "2 x 1")
    warm = rig.of(1)[1]
    rig.park(warm)
    rig.ask(2, "1 x 4")
    rig.turn()
    rig.later(10.0)
    assert rig.closed == [warm]


@pytest.mark.parametrize("how", ["withdraws", "wants something else", "wants nothing"])
def test_when_the_waiter_goes_everything_it_asked_for_is_lifted(how: str) -> None:
    rig = Rig(4, 1, "1 x 4, 1 x 1", cap=1, patience_s=10.0)
    rig.ask(1, "4 x 1")
    rig.turn()
    rig.ask(2, "1 x 4")
    rig.turn()
    rig.later(10.0)
    assert rig.broker.leaves(rig.of(1)[0]) == "close"
    if how == "withdraws":
        rig.broker.withdraw(2)
    else:
        rig.ask(2, "" if how == "wants nothing" else "1 x 1")
    rig.turn()
    left = "park" if how == "wants something else" else ""
    assert [rig.broker.leaves(n) for n in rig.of(1)] == [left] * 4
    rig.close(rig.of(1)[0])
    assert [g.job for g in rig.turn()] == ([2] if how == "wants something else" else [1])


def test_when_the_waiter_is_served_by_another_way_the_drain_is_lifted() -> None:
    rig = Rig(4, 2, "1 x 4, 1 x 2, 1 x 1", cap=2, patience_s=10.0)
    rig.ask(1, "4 x 1")
    rig.ask(3, "2 x 2")
    rig.turn()
    rig.ask(2, "1 x 4")
    rig.turn()
    rig.later(10.0)
    assert rig.broker.leaves(rig.of(3)[0]) == "close"
    rig.ask(1, "")
    for number in rig.of(1):
        rig.close(number)
    assert [g.job for g in rig.turn()] == [2]
    assert rig.broker.leaves(rig.of(3)[0]) == ""


def test_two_that_want_each_others_copies_take_turns_the_oldest_first() -> None:
    rig = Rig(4, 2, "1 x 4, 1 x 2, 1 x 1", cap=2, patience_s=10.0)
    rig.ask(1, "4 x 1")
    rig.ask(2, "2 x 2")
    rig.turn()
    rig.ask(3, "1 x 4")
    rig.later(1.0)
    rig.ask(4, "1 x 4 or 4 x 2")
    served: list[int] = []
    for _ in range(60):
        served += [g.job for g in rig.later(1.0) if g.job not in served]
        for number in list(rig.ledger.elements):
            if leave := rig.broker.leaves(number):
                if leave == "park" and rig.park(number):
                    continue
                rig.close(number)
    assert served[:2] == [3, 4]
    assert {1, 2} <= set(served[2:]), "nobody is left out for ever"


def test_a_holder_that_never_lets_go_gives_an_element_up_when_a_task_ends() -> None:
    rig = Rig(4, 1, "1 x 1", patience_s=10.0)
    rig.ask(1, "9 x 1")
    rig.turn()
    rig.ask(2, "9 x 1")
    assert rig.turn() == [] and rig.broker.leaves(rig.of(1)[0]) == ""
    rig.later(10.0)
    first, second = rig.of(1)[:2]
    assert rig.broker.leaves(first) == "park" and rig.park(first)
    assert rig.broker.leaves(second) == "", "one is enough for one patience"
    assert [(g.job, g.element) for g in rig.turn()] == [(2, first)]
    assert rig.later(9.0) == [] and rig.broker.leaves(second) == "", "the next one takes patience again"
    rig.later(1.0)
    assert rig.broker.leaves(second) == "park" and rig.park(second)
    rig.turn()
    assert (rig.held(1), rig.held(2)) == ({1: 2}, {1: 2})
    rig.later(10.0)
    assert [rig.broker.leaves(n) for n in rig.ledger.elements] == [""] * 4, "each has its share"


def test_who_was_asked_to_give_an_element_up_stays_the_one_until_he_has() -> None:
    rig = Rig(8, 1, "1 x 1", patience_s=10.0)
    for job in (1, 2):
        rig.ask(job, "4 x 1")
    rig.turn()
    rig.ask(3, "1 x 1")
    rig.later(10.0)
    assert [rig.broker.leaves(rig.of(job)[0]) for job in (1, 2)] == ["", "park"]
    rig.ask(1, "4 x 1", weight=0.1)
    rig.later(1.0)
    assert [rig.broker.leaves(rig.of(job)[0]) for job in (1, 2)] == ["", "park"], (
        "although 1 has more for his weight now"
    )


def test_an_only_element_goes_round_among_those_that_hold_nothing() -> None:
    rig = Rig(4, 1, "1 x 4", patience_s=10.0)
    holders = []
    for job in (1, 2, 3):
        rig.ask(job, "1 x 4")
    rig.turn()
    for _ in range(80):
        for number in list(rig.ledger.elements):
            if rig.broker.leaves(number) == "park":
                rig.park(number)
        holders += [g.job for g in rig.later(1.0)]
    assert holders[:6] == [2, 3, 1, 2, 3, 1]


def test_a_heavier_job_keeps_more_before_it_gives_up() -> None:
    rig = Rig(8, 1, "1 x 1", patience_s=1.0)
    rig.ask(1, "9 x 1", weight=3.0)
    rig.turn()
    rig.ask(2, "9 x 1")
    for _ in range(40):
        rig.later(1.0)
        for number in rig.of(1) + rig.of(2):
            if rig.broker.leaves(number) == "park":
                rig.park(number)
    rig.turn()
    assert (rig.held(1), rig.held(2)) == ({1: 6}, {1: 2})


def test_nobody_makes_room_in_vain_for_what_others_outside_hold() -> None:
    rig = Rig(4, 2, "1 x 4, 1 x 1", cap=1, patience_s=10.0)
    rig.taken_outside(3, 0b11)
    rig.ask(1, "3 x 1")
    rig.turn()
    rig.ask(2, "1 x 4")
    rig.later(20.0)
    assert [rig.broker.leaves(n) for n in rig.of(1)] == [""] * 3
    assert rig.broker.wakes_at == math.inf, "and nobody is woken for it while nothing changes"
    rig.given_outside(rig.outside[0])
    assert rig.broker.wakes_at == 30.0
    rig.later(10.0)
    assert rig.broker.leaves(rig.of(1)[0]) == "close"


def test_patience_is_three_times_what_tasks_take() -> None:
    rig = Rig(4, 1, "1 x 4", patience_s=0.0)
    assert rig.broker.rotation.patience_s == 30.0
    for seconds in (2.0, 4.0):
        rig.broker.ran(seconds)
    rig.ask(1, "1 x 4")
    rig.turn()
    rig.ask(2, "1 x 4")
    rig.turn()
    assert rig.broker.wakes_at == 9.0


# Books that disagree


def test_a_grant_that_contradicts_the_ledger_is_a_bug_and_changes_nothing() -> None:
    room = Room()
    for n in range(4):
        room.add(Node(f"n{n}", 2))
    broker = Broker(Slicing(slices_of("2 x 2, 1 x 4"), 0, 1), room)
    ledger = broker.ledger
    good = Grant(1, 0, 0, 0, (0, 1), (0b11, 0b11))
    ledger.occupy(good, 0.0, 7)
    before = ledger.version
    for bad, number, what in (
        (good, None, "granted twice"),
        (Grant(1, 0, 0, 1, (2, 3), (0b11, 0b11)), 7, "there is an element 7 already"),
        (Grant(1, 0, 1, 0, (0, 1), (0b11, 0b11)), None, "more than 1"),
        (Grant(1, 0, 0, 1, (1, 2), (0b11, 0b11)), None, "does not stand on nodes"),
        (Grant(1, 0, 0, 2, (), ()), None, "does not stand on nodes"),
        (Grant(2, 0, 0, 0, (0, 1), (0b11, 0b11), 7), None, "granted as a warm one"),
    ):
        with pytest.raises(CantleBug, match=what):
            ledger.occupy(bad, 0.0, number)
    assert ledger.version == before and list(ledger.elements) == [7]
