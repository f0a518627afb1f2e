"""Which ready task goes where: order, best fit, gangs in few runs, and what a pass costs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Job, Story, job, node, nodes
from cantle.core.decide import Decider
from cantle.core.packing import best_fit, fewest_runs, find_places, first_fit, spread
from cantle.core.phases import Phase
from cantle.core.plan import Plan, Policy
from cantle.core.queues import ReadyQueue
from cantle.core.room import Room
from cantle.model.records import Decision, Launch, Refuse, TimePassed
from cantle.model.resources import Needs, Node, Place, indexes, list_to_mask
from cantle.model.study import Limits
from cantle.plugins import find
from cantle.testing import check_packer


def runs_in(chosen: list[int]) -> int:
    return sum(1 for n in chosen if n - 1 not in chosen)


@given(st.sets(st.integers(0, 11), min_size=1, max_size=12), st.data())
@settings(max_examples=200, deadline=None)
def test_a_gang_gets_as_few_runs_as_any_choice_could(found: set[int], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(found)))
    chosen = fewest_runs(sum(1 << i for i in found), n)
    assert chosen == sorted(set(chosen)) and len(chosen) == n and set(chosen) <= found
    assert runs_in(chosen) == min(runs_in(list(c)) for c in combinations(sorted(found), n))


def test_a_gang_takes_the_smallest_run_that_holds_it_and_leaves_the_long_one_whole() -> None:
    assert fewest_runs(0b111111_0_11_0_1, 2) == [2, 3]
    assert fewest_runs(0b11_0_1111_0_11, 5) == [0, 3, 4, 5, 6]


def test_a_gang_gets_all_or_nothing() -> None:
    room = Room()
    for n in nodes(3, 2):
        room.add(n)
    gang = Needs(cores=2, nodes=3)
    room.take(Place(1, "0"), Needs())
    assert find_places(room, gang) is None
    room.give(Place(1, "0"), Needs())
    assert find_places(room, gang) == (Place(0, "0-1"), Place(1, "0-1"), Place(2, "0-1"))


def test_o15_leftovers_are_never_handed_out_as_less_than_was_asked_for() -> None:
    story = Story(
        job("a", cores=2), job("b", cores=2), job("wide", cores=2, nodes=2), job("one", cores=4), on=nodes(2, cores=3)
    )
    launched = [r for r in story.decides() if isinstance(r, Launch)]
    for launch in launched:
        needs = story.state.step_of(launch.task).needs
        assert [list_to_mask(place.cores).bit_count() for place in launch.on] == [needs.cores] * needs.nodes
    assert story.state.phases[story.number_of["one"]] == Phase.FAILED, "four cores that no node has are refused at once"
    running = {story.state.tasks[launch.task].name for launch in launched}
    assert running == {"wide"} or running == {"a", "b"}, "of one core left on each node nobody gets a part"


def test_a_task_goes_where_the_least_stays_free_so_that_wide_room_stays_whole() -> None:
    room = Room()
    for n in [node("wide", 8), node("used", 4), node("narrow", 2)]:
        room.add(n)
    assert find_places(room, Needs(cores=2)) == (Place(2, "0-1"),)
    assert find_places(room, Needs(cores=3)) == (Place(1, "0-2"),)
    room.take(Place(0, "0-6"), Needs(cores=7))
    assert find_places(room, Needs(cores=1)) == (Place(0, "7"),)


def test_best_fit_looks_only_at_nodes_with_all_else_that_is_needed() -> None:
    room = Room()
    for n in [node("a", 1), node("b", 4, gpus=1), node("c", 8, gpus=2, memory_mib=10), node("d", 9, kind="big")]:
        room.add(n)
    assert find_places(room, Needs(gpus=1)) == (Place(1, "0", "0"),)
    assert find_places(room, Needs(gpus=1, memory_mib=5)) == (Place(2, "0", "0"),)
    assert find_places(room, Needs(kind="big")) == (Place(3, "0"),)
    assert find_places(room, Needs(gpus=3)) is None
    assert find_places(room, Needs(whole_nodes=True, gpus=1)) == (Place(1, "0-3", "0"),)


# The other packers


def placements(packer: Policy, *jobs: Job, on: list[Node]) -> dict[str, list[int]]:
    """On which nodes each task goes, in one pass."""
    story = Story(*jobs, on=on)
    story.decider = Decider(packer)
    return {name: [place.node for place in story.launch_of(name).on] for name in story.launches()}


def test_first_fit_takes_the_lowest_numbered_node_that_fits() -> None:
    tasks = [job(n, cores=2) for n in "abc"] + [job("gpu", gpus=1), job("last")]
    on = [node("n0", 1), node("n1", 5), node("n2", 4, gpus=1)]
    assert placements(first_fit, *tasks, on=on) == {"a": [1], "b": [1], "c": [2], "gpu": [2], "last": [0]}


def test_first_fit_gives_a_gang_the_lowest_numbered_nodes_or_none() -> None:
    on = [node("n0", 2), node("n1", 1), node("n2", 2), node("n3", 2)]
    assert placements(first_fit, job("gang", cores=2, nodes=2), on=on) == {"gang": [0, 2]}
    assert placements(first_fit, job("x", cores=2), job("gang", nodes=4, cores=1, priority=-1), on=on) == {"x": [0]}


def test_spread_takes_the_emptiest_node_and_of_those_the_first() -> None:
    tasks = [job(n) for n in "abcdef"]
    on = [node("n0", 2), node("n1", 3), node("n2", 2)]
    assert placements(spread, *tasks, on=on) == {"a": [1], "b": [0], "c": [1], "d": [2], "e": [0], "f": [1]}


def test_spread_gives_a_gang_the_emptiest_nodes_that_fit_or_none() -> None:
    on = [node("n0", 2), node("n1", 4), node("n2", 3), node("n3", 9)]
    gang = job("gang", cores=2, nodes=2)
    assert placements(spread, gang, on=on) == {"gang": [1, 3]}
    assert placements(spread, job("gang", cores=2, nodes=2, kind=""), on=on[:3]) == {"gang": [1, 2]}
    assert placements(spread, job("x", cores=9), job("gang", cores=3, nodes=3, priority=-1), on=on) == {"x": [3]}


@pytest.mark.parametrize("packer", [best_fit, first_fit, spread])
def test_each_of_our_packers_keeps_the_rules_that_are_checked_for_others(packer: Policy) -> None:
    check_packer(packer, runs=40)


@pytest.mark.parametrize(("name", "packer"), [("best-fit", best_fit), ("first-fit", first_fit), ("spread", spread)])
def test_our_packers_are_known_by_name(name: str, packer: Policy) -> None:
    assert find("packers", name) is packer


# The order


def test_priority_goes_first_then_rank_then_area_then_number() -> None:
    story = Story(
        job("last", estimate_s=5),
        job("also last", estimate_s=5),
        job("wide", estimate_s=5, cores=2),
        job("long", estimate_s=50),
        job("wished", estimate_s=1, priority=1),
        on=[node(cores=8)],
    )
    assert story.launches() == ["wished", "long", "wide", "last", "also last"]


def test_of_tasks_that_nobody_estimated_the_sort_with_the_longest_so_far_goes_first() -> None:
    jobs = [job(f"n{i}") for i in range(12)] + [job(f"w{i}", nodes=2) for i in range(12)]
    story = Story(*jobs, job("huge", nodes=3), on=nodes(4, cores=1))
    numbers = {task.name: i for i, task in enumerate(story.state.tasks)}
    for took, names in ((9.0, [f"n{i}" for i in range(8)]), (2.0, [f"w{i}" for i in range(8)])):
        queue = story.state.queue_of(numbers[names[0]])
        for _ in names:
            queue.took(took)
    order = [queue.shape.needs.nodes for queue in Plan(story.state).by_urgency()]
    assert order == [3, 1, 2], "what leaves no room for its like comes first; then the one that took nine seconds"
    for _ in range(8):
        story.state.queue_of(numbers["w0"]).took(20.0, told_s=20.0)
    assert [q.shape.needs.nodes for q in Plan(story.state).by_urgency()] == [3, 1, 2], (
        "what was foretold is no surprise"
    )


def test_rank_counts_the_longest_chain_below_over_parents_and_after_alike() -> None:
    story = Story(
        job("alone", estimate_s=9),
        job("head", estimate_s=1),
        job("other", estimate_s=2),
        job("tail", "head", estimate_s=10),
        job("late", after="other", estimate_s=20),
        on=[node()],
    )
    assert story.state.ranks == [9, 11, 22, 10, 20]
    order = []
    for _ in range(5):
        [name] = story.launches()
        order.append(name)
        story.end(name)
    assert order == ["other", "late", "head", "tail", "alone"]


def test_who_does_not_fit_is_passed_over_and_others_fill_the_room() -> None:
    story = Story(job("wide", cores=4, priority=9), job("a"), job("b"), job("c", cores=3), on=[node(cores=3)])
    refused, *launched = story.decides()
    assert type(refused) is Refuse and story.name(refused.task) == "wide"
    assert [story.name(d.task) for d in launched] == ["c"], "by area, the widest of one rank goes first"
    story.end("c")
    assert story.launches() == ["a", "b"]


def test_a_task_that_is_too_wide_now_waits_and_goes_first_once_there_is_room() -> None:
    story = Story(job("x", priority=2), job("wide", cores=2, priority=1), job("b"), on=[node(cores=2)])
    assert story.launches() == ["x", "b"]
    story.end("x")
    assert story.launches() == []
    story.end("b")
    assert story.launches() == ["wide"]


def test_tasks_that_come_back_queue_by_their_rank_again() -> None:
    story = Story(job("a", estimate_s=3, retries=1), job("b", estimate_s=2), job("c", estimate_s=1), on=[node()])
    assert story.launches() == ["a"]
    story.end("a", "failed")
    assert story.launches() == ["a"]


def test_a_head_that_was_canceled_lets_the_next_through() -> None:
    story = Story(job("x", priority=1), job("a"), job("b"), job("c"), on=[node()])
    assert story.launches() == ["x"]
    story.cancel("a", "b")
    story.end("x")
    assert story.launches() == ["c"]


def test_a_packer_of_ones_own_is_asked_instead() -> None:
    def last_first(plan: Plan) -> Iterator[Decision]:
        for queue in plan.by_urgency():
            for task in reversed(queue.ready()):
                places = find_places(plan.room, queue.shape.needs)
                if places:
                    yield plan.launch(task, places, "the last shall be first")

    story = Story(*(job(n) for n in "abc"), on=[node(cores=2)])
    story.decider = Decider(last_first)
    assert story.launches() == ["c", "b"]
    assert story.launch_of("c").why == "the last shall be first"
    story.end("c")
    assert story.launches() == ["a"]
    story.end("a", "lost")
    assert story.launches() == ["a"], "a task launched from the middle of its queue comes back to it"


# What a pass costs, in counts


def counting(story: Story) -> list[int]:
    passes: list[int] = []

    def packer(plan: Plan) -> Iterator[Decision]:
        passes.append(plan.state.version)
        yield from best_fit(plan)

    story.decider = Decider(packer)
    return passes


def test_a_pass_with_nothing_new_asks_no_policy() -> None:
    story = Story(job("a"), job("b"), on=[node()])
    passes = counting(story)
    assert story.launches() == ["a"]
    story.start("a")
    story.end("a", attempt=7)
    assert story.decides() == [] and story.decides() == []
    assert len(passes) == 1, "neither a start nor a late message asks for decisions"
    story.end("a")
    assert story.launches() == ["b"]
    assert len(passes) == 2
    story.happens(TimePassed(99.0))
    assert story.launches() == [] and len(passes) == 3, "time passing may matter to somebody's policy"


def looks_counted(monkeypatch: pytest.MonkeyPatch) -> list[ReadyQueue]:
    """From now on each look at the head of a queue is in this list."""
    looks: list[ReadyQueue] = []
    head = ReadyQueue.head

    def counted(self: ReadyQueue) -> int | None:
        looks.append(self)
        return head(self)

    monkeypatch.setattr(ReadyQueue, "head", counted)
    return looks


@pytest.mark.parametrize("full", [True, False])
def test_a_pass_looks_at_each_shape_once_and_twice_more_per_launch(monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    shapes, per_shape = 200, 5
    jobs = [Job(f"{s}.{i}", needs=Needs(memory_mib=s + 1)) for i in range(per_shape) for s in range(shapes)]
    story = Story(*jobs, on=[Node("n0", 4 if full else 400, memory_mib=10**6 if full else 5000)])
    looks = looks_counted(monkeypatch)
    first = len(story.launches())
    assert first and len(looks) <= 2 * shapes + 3 * first
    for _ in range(5):
        name = story.name(next(iter(story.state.running)))
        looks.clear()
        story.end(name)
        launched = len(story.launches())
        assert len(looks) <= 2 * shapes + 3 * launched


def test_o30_a_long_queue_costs_no_more_than_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(*(job(f"t{i}") for i in range(3000)), on=[node(cores=1)])
    looks = looks_counted(monkeypatch)
    assert len(story.launches()) == 1
    assert len(looks) <= 5


def test_a_throttled_study_is_passed_over_at_once() -> None:
    story = Story(*(job(n) for n in "abcd"), on=[node(cores=4)], limits=Limits(throttle=2))
    assert story.launches() == ["a", "b"]
    story.end("a")
    assert story.launches() == ["c"]
    assert indexes(story.state.room.free_cores[0]) == [2, 3]
    story.limit(Limits(throttle=0))
    assert story.launches() == ["d"]
