"""Plans of widths: valid, never worse than what is easily had, and right where the right answer is known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantle.core.chance import Chance
from cantle.core.widths.choosing import plan_widths
from cantle.core.widths.dispatch import BLIND, PLANNED, Dispatch, Manner
from cantle.core.widths.graph import Graph
from cantle.core.widths.moves import moved
from cantle.core.widths.robust import TIGHT, course
from cantle.core.widths.schedules import Schedule, as_it_goes, in_order
from cantle.core.widths.sweep import sweep
from cantle.core.widths.tables import Table, amdahl, rigid, table


@st.composite
def graphs(draw: st.DrawFn, slots: int) -> Graph:
    tables, parents = [], []
    for task in range(draw(st.integers(1, 14))):
        work = draw(st.sampled_from([0.0, 1.0, 2.0, 5.0, 7.5, 20.0]))
        widths = draw(st.sampled_from([(1,), (1,), (3,), (1, 2), (1, 2, 4), (2, 3), (1, 5), tuple(range(1, 7))]))
        widths = tuple(width for width in widths if width <= slots) or (1,)
        if len(widths) == 1 or not work:
            tables.append(rigid(widths[0], work))
        else:
            tables.append(table(widths, dict.fromkeys(widths[:1], work), slots))
        parents.append(draw(st.lists(st.integers(0, task - 1), max_size=3, unique=True)) if task else [])
    return Graph(parents, tables)


pools = st.integers(1, 6)


def object_to(graph: Graph, schedule: Schedule, slots: int) -> None:
    """Precedence, durations, and never more nodes than there are."""
    moments = []
    for task, times in enumerate(graph.tables):
        level = schedule.levels[task]
        assert schedule.finishes[task] == schedule.starts[task] + times.times[level]
        for parent in graph.parents[task]:
            assert schedule.finishes[parent] <= schedule.starts[task]
        moments.append((schedule.starts[task], schedule.finishes[task], times.widths[level]))
    for now, _, _ in moments:
        assert sum(width for start, finish, width in moments if start <= now < finish) <= slots
    assert schedule.makespan_s == max(schedule.finishes)


@given(st.data(), pools)
@settings(max_examples=150, deadline=None)
def test_every_schedule_keeps_the_order_and_the_nodes(data: st.DataObject, slots: int) -> None:
    graph = data.draw(graphs(slots))
    for allotment in sweep(graph, slots):
        times = graph.times(allotment.levels)
        assert allotment.tails == graph.tails(times)
        ranks = graph.b_levels(times)
        for spare in (None, allotment.tails):
            made = in_order(graph, allotment.levels, ranks, slots, tails=spare)
            assert made is not None
            object_to(graph, made, slots)
        for manner in (PLANNED, BLIND, Manner(0.7, 0.5, 1.0)):
            made = as_it_goes(graph, allotment.levels, ranks, allotment.tails, slots, manner)
            assert made is not None
            object_to(graph, made, slots)
            assert all(got >= base for got, base in zip(made.levels, allotment.levels, strict=True))


@given(st.data(), pools)
@settings(max_examples=150, deadline=None)
def test_a_sweep_ends_where_nothing_can_shorten_the_longest_path_or_area_rules(data: st.DataObject, slots: int) -> None:
    graph = data.draw(graphs(slots))
    last = sweep(graph, slots)[-1]
    times = graph.times(last.levels)
    paths = [h + t + r for h, t, r in zip(graph.heads(times), times, graph.tails(times), strict=True)]
    longest = max(paths)
    assert last.path_s == longest and last.area_s == pytest.approx(graph.area(last.levels) / slots)
    on_it = [task for task, path in enumerate(paths) if path >= longest * (1 - 1e-9) and times[task]]
    as_wide_as_it_gets = all(last.levels[task] == len(graph.tables[task].widths) - 1 for task in on_it)
    assert as_wide_as_it_gets or longest < last.area_s / 4


@given(st.data(), pools)
@settings(max_examples=150, deadline=None)
def test_a_plan_is_valid_and_no_worse_than_one_width_for_all(data: st.DataObject, slots: int) -> None:
    graph = data.draw(graphs(slots))
    chosen = plan_widths(graph, slots)
    object_to(graph, chosen.schedule, slots)
    least, most = [0] * len(graph), [len(t.widths) - 1 for t in graph.tables]
    enough = chosen.bound_s * 1.0005
    for levels in (least, most):
        fixed = in_order(graph, levels, graph.b_levels(graph.times(levels)), slots)
        assert fixed is not None
        assert chosen.makespan_s <= max(fixed.makespan_s, enough)
        assert fixed.makespan_s >= chosen.bound_s * (1 - 1e-9)
    assert chosen.makespan_s >= chosen.bound_s * (1 - 1e-9)


@given(st.data(), pools)
@settings(max_examples=60, deadline=None)
def test_the_same_graph_gets_the_same_plan(data: st.DataObject, slots: int) -> None:
    graph = data.draw(graphs(slots))
    again = Graph(graph.parents, graph.tables)
    first, second = plan_widths(graph, slots), plan_widths(again, slots)
    assert first.levels == second.levels and first.schedule.starts == second.schedule.starts
    assert first.priorities == second.priorities


@given(st.data(), pools)
@settings(max_examples=100, deadline=None)
def test_backward_is_forward_on_the_graph_turned_around(data: st.DataObject, slots: int) -> None:
    graph = data.draw(graphs(slots))
    levels = [0] * len(graph)
    made = in_order(graph, levels, [0.0] * len(graph), slots, backward=True)
    assert made is not None
    for task, above in enumerate(graph.parents):
        for parent in above:
            assert made.finishes[task] <= made.starts[parent]


@given(st.data(), pools)
@settings(max_examples=100, deadline=None)
def test_moves_never_make_it_worse(data: st.DataObject, slots: int) -> None:
    graph = data.draw(graphs(slots))
    levels = [0] * len(graph)
    made = in_order(graph, levels, graph.b_levels(graph.times(levels)), slots)
    assert made is not None
    better = moved(graph, slots, made, 30, 0.0)
    object_to(graph, better, slots)
    assert better.makespan_s <= made.makespan_s


# Where the answer is known


def test_one_long_task_alone_gets_all_nodes() -> None:
    chosen = plan_widths(Graph([()], [amdahl(10.0, 0.0, range(1, 9))]), 8)
    assert chosen.makespan_s == 1.25 and chosen.levels == [7]


def test_many_tasks_run_narrow_because_wide_ones_waste_area() -> None:
    chosen = plan_widths(Graph([()] * 16, [amdahl(10.0, 0.1, range(1, 9))] * 16), 8)
    assert chosen.makespan_s == 20.0 and chosen.levels == [0] * 16


def test_the_one_task_that_all_wait_for_goes_wide() -> None:
    tables = [amdahl(80.0, 0.0, range(1, 9)), *[rigid(1, 1.0)] * 8]
    assert plan_widths(Graph([(), *[(0,)] * 8], tables), 8).makespan_s == 11.0


def test_two_chains_share_the_nodes_as_their_lengths_are() -> None:
    tables = [amdahl(30.0, 0.0, range(1, 5)), amdahl(10.0, 0.0, range(1, 5))]
    chosen = plan_widths(Graph([(), ()], tables), 4)
    assert (chosen.makespan_s, chosen.levels) == (10.0, [2, 0])


def test_rigid_tasks_alone_are_scheduled_like_any_list() -> None:
    graph = Graph([(), (), (0,), (1,)], [rigid(1, 3.0), rigid(2, 1.0), rigid(1, 1.0), rigid(1, 3.0)])
    chosen = plan_widths(graph, 3)
    assert chosen.makespan_s == 4.0 and chosen.levels == [0, 0, 0, 0]


def test_tasks_that_take_no_time_end_at_once() -> None:
    graph = Graph([(), (0,), (1,)], [rigid(1, 0.0), amdahl(0.0, 0.5, [1, 2]), rigid(2, 0.0)])
    assert plan_widths(graph, 2).makespan_s == 0.0


def test_no_task_at_all_is_a_plan() -> None:
    chosen = plan_widths(Graph([], []), 4)
    assert (chosen.makespan_s, chosen.levels) == (0.0, [])


def test_a_table_beyond_the_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="wider than the 2 nodes"):
        plan_widths(Graph([()], [amdahl(1.0, 0.0, [1, 4])]), 2)


def test_what_runs_already_begins_every_plan() -> None:
    tables = [amdahl(100.0, 0.0, [1, 2, 4]), rigid(3, 2.0), amdahl(4.0, 0.0, [1, 2, 4])]
    chosen = plan_widths(Graph([(), (), (1,)], tables, pinned=frozenset({1})), 4)
    assert chosen.schedule.starts[1] == 0.0
    assert chosen.priorities[1] == float("inf")


# Dispatch, instant by instant


def ready(dispatch: Dispatch, *times: Table, base: int = 0) -> None:
    for task, found in enumerate(times):
        dispatch.ready(task, found, base, found.areas[base], 0.0)


def test_dispatch_starts_a_lone_task_as_wide_as_it_pays() -> None:
    dispatch = Dispatch(64)
    ready(dispatch, amdahl(10.0, 0.1, range(1, 65)))
    [(_, level)] = dispatch.starts(0.0, {0: 64})
    areas = amdahl(10.0, 0.1, range(1, 65)).areas
    assert areas[level] <= areas[0] / 0.2 < areas[level + 1], "no wider than a fifth of its efficiency is left"


def test_dispatch_starts_many_at_their_least_width() -> None:
    dispatch = Dispatch(4)
    ready(dispatch, *[amdahl(10.0, 0.1, range(1, 5))] * 20)
    assert dispatch.starts(0.0, {0: 4}) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert len(dispatch) == 16 and 3 not in dispatch


def test_dispatch_widens_the_one_long_task_among_short_ones() -> None:
    dispatch = Dispatch(4)
    ready(dispatch, amdahl(100.0, 0.0, range(1, 5)), *[amdahl(1.0, 0.0, range(1, 5))] * 20)
    assert dispatch.horizon_s(0.0) == pytest.approx(120.0 / 4, rel=0.4)
    assert dispatch.starts(0.0, {0: 4})[0] == (0, 3)


def test_dispatch_never_starts_below_the_planned_width() -> None:
    dispatch = Dispatch(4)
    ready(dispatch, *[amdahl(10.0, 0.1, [1, 2, 4])] * 9, base=1)
    assert dispatch.starts(0.0, {0: 3}) == [(0, 1)]


def test_dispatch_lets_a_wide_task_wait_when_less_than_its_patience_is_free_and_starts_others() -> None:
    dispatch = Dispatch(8, Manner(1.0, 0.1, 0.8))
    wide = amdahl(100.0, 0.0, [1, 8])
    dispatch.ready(0, wide, 0, 100.0, 0.0)
    dispatch.ready(1, rigid(1, 1.0), 0, 1.0, 0.0)
    assert dispatch.starts(0.0, {0: 4}) == [(1, 0)]
    dispatch.begun(1, 1, 1.0)
    dispatch.over(1)
    assert dispatch.starts(1.0, {0: 8}) == [(0, 1)]


def test_dispatch_counts_what_runs_until_its_expected_end() -> None:
    dispatch = Dispatch(4)
    dispatch.begun(7, 2, 10.0)
    assert dispatch.horizon_s(0.0) == 5.0
    assert dispatch.horizon_s(4.0) == 3.0
    assert dispatch.horizon_s(99.0) == 0.0, "what is overdue is expected to end now"
    dispatch.over(7)
    assert dispatch.horizon_s(0.0) == 0.0


def test_a_task_that_went_away_is_not_started() -> None:
    dispatch = Dispatch(2)
    ready(dispatch, amdahl(10.0, 0.1, [1, 2]), rigid(1, 1.0), rigid(1, 2.0))
    dispatch.gone(0)
    dispatch.gone(2)
    dispatch.ready(2, rigid(2, 5.0), 0, 10.0, 0.0)
    assert dispatch.starts(0.0, {0: 3}) == [(2, 0), (1, 0)], "and one that came back stands only where it belongs now"
    assert dispatch.starts(0.0, {0: 3}) == []


def test_chance_is_even_and_always_the_same() -> None:
    chance, again = Chance(5), Chance(5)
    drawn = [chance.below(6) for _ in range(6000)]
    assert drawn == [again.below(6) for _ in range(6000)]
    assert all(850 < drawn.count(face) < 1150 for face in range(6))


# Groups of tasks that fit on different nodes; tight dispatch; courses


def test_groups_fit_on_nodes_of_their_own_and_what_one_takes_is_taken_from_all() -> None:
    dispatch = Dispatch(8)
    dispatch.ready(0, rigid(2, 1.0), 0, 3.0, 0.0, group=0)
    dispatch.ready(1, rigid(2, 1.0), 0, 2.0, 0.0, group=1)
    dispatch.ready(2, rigid(1, 1.0), 0, 1.0, 0.0, group=1)
    assert dispatch.starts(0.0, {0: 4, 1: 3}) == [(0, 0), (2, 0)], "of its three nodes the second group has one left"
    assert dispatch.spare == {0: 1, 1: 0}
    assert dispatch.starts(0.0, {0: 4}) == [], "a group that is not named may not start"


def test_urgency_goes_before_priority() -> None:
    dispatch = Dispatch(1)
    dispatch.ready(0, rigid(1, 9.0), 0, 9.0, 0.0)
    dispatch.ready(1, rigid(1, 1.0), 0, 1.0, 0.0, urgency=1.0)
    assert dispatch.starts(0.0, {0: 1}) == [(1, 0)]


def test_weights_count_as_cores_do() -> None:
    dispatch = Dispatch(8)
    dispatch.ready(0, rigid(2, 10.0), 0, 1.0, 0.0, weight=2)
    assert dispatch.horizon_s(0.0) == 5.0


def test_advice_is_what_dispatch_would_do_with_so_many_free_nodes() -> None:
    dispatch = Dispatch(4, Manner(1.0, 0.2, 0.8))
    ready(dispatch, amdahl(100.0, 0.0, [1, 2, 4]), *[rigid(1, 1.0)] * 4)
    assert dispatch.advice(0, 0.0, 4) == 4
    assert dispatch.advice(0, 0.0, 2) == 0, "it had better wait"
    assert dispatch.advice(1, 0.0, 2) == 1
    assert dispatch.advice(99, 0.0, 2) == 0


def test_tight_dispatch_widens_a_task_that_would_only_just_be_in_time() -> None:
    for manner, width in ((PLANNED, 1), (TIGHT, 2)):
        dispatch = Dispatch(4, manner)
        ready(dispatch, amdahl(10.0, 0.0, [1, 2]), *[rigid(1, 7.0)] * 5)
        [level] = [level for task, level in dispatch.starts(0.0, {0: 4}) if task == 0]
        assert level + 1 == width, manner.tightness


def test_loose_dispatch_leaves_a_task_narrow_that_is_a_little_late() -> None:
    dispatch = Dispatch(4, BLIND)
    ready(dispatch, amdahl(10.0, 0.0, [1, 2]), *[rigid(1, 8.5)] * 3)
    assert dispatch.starts(0.0, {0: 4})[0] == (0, 0), "T is 8.9, and it may take 1.3 times that"


def test_tight_dispatch_does_not_widen_what_can_all_start_at_once() -> None:
    dispatch = Dispatch(4, TIGHT)
    ready(dispatch, *[amdahl(80.0, 0.1, [1, 2, 4])] * 4)
    assert dispatch.starts(0.0, {0: 4}) == [(0, 0), (1, 0), (2, 0), (3, 0)]


@given(st.data(), pools)
@settings(max_examples=60, deadline=None)
def test_a_course_holds_a_width_for_every_task_and_is_the_same_again(data: st.DataObject, slots: int) -> None:
    graph = data.draw(graphs(slots))
    found, again = course(graph, slots), course(graph, slots)
    assert found.levels == again.levels and found.priorities == again.priorities
    made = as_it_goes(graph, found.levels, found.priorities, found.tails, slots, found.manner)
    assert made is not None
    object_to(graph, made, slots)


def test_many_tasks_get_a_course_too_and_a_long_one_among_them_goes_wide() -> None:
    tables = [amdahl(4000.0, 0.0, range(1, 9)), *[rigid(1, 8.0)] * 700]
    found = course(Graph([()] * 701, tables), 8)
    made = as_it_goes(Graph([()] * 701, tables), found.levels, found.priorities, found.tails, 8, found.manner)
    assert made is not None and made.makespan_s < 1.1 * (4000 + 5600) / 8
