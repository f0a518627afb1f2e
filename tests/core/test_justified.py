"""Which order is found by packing a graph backward and forward: a real one, a better one, and not a fragile one."""

from __future__ import annotations

from math import inf, log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantle.core import justified
from cantle.core.justified import CLEARLY, Work, better_order, ends_of


def layered(seed: int, running: int = 0) -> Work:
    """Some ten to eighty tasks in layers, each of which waits for none to two of the layer above."""
    chance = Random(seed)
    parents: list[list[int]] = [[] for _ in range(running)]
    above = list(range(running))
    for _ in range(chance.randint(3, 6)):
        here = range(len(parents), len(parents) + chance.randint(4, 14))
        parents += [sorted(chance.sample(above, min(len(above), chance.randint(0, 2)))) for _ in here]
        above = list(here)
    return Work(parents, [float(chance.randint(1, 20)) for _ in parents], chance.randint(max(3, running), 6), running)


def by_rank(work: Work) -> list[int]:
    ranks = list(work.seconds)
    for task in range(len(work) - 1, -1, -1):
        ranks[task] += max([ranks[child] for child in work.children[task]], default=0.0)
    return sorted(range(len(work)), key=lambda task: (task >= work.running, -ranks[task], task))


def least_s(work: Work) -> float:
    return max(work.chain_s(), work.share_s())


def makespan_s(work: Work, order: list[int], seconds: list[float] | None = None) -> float:
    return max(ends_of(work, order, seconds or work.seconds))


@given(st.integers(0, 10_000), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_a_packed_schedule_keeps_the_rules_forward_and_backward(seed: int, backward: bool, chance: Random) -> None:
    work = layered(seed)
    order = list(range(len(work)))
    chance.shuffle(order)
    ends = ends_of(work, order, work.seconds, backward=backward)
    starts = [end - one for end, one in zip(ends, work.seconds, strict=True)]
    before = work.children if backward else work.parents
    assert all(ends[other] <= starts[task] + 1e-9 for task in range(len(work)) for other in before[task])
    assert all(sum(s <= at < e for s, e in zip(starts, ends, strict=True)) <= work.slots for at in starts)
    assert least_s(work) <= max(ends) + 1e-9


@given(st.integers(0, 10_000), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_an_order_that_is_found_has_every_task_once_and_ends_clearly_sooner(seed: int, running: int) -> None:
    work = layered(seed, running)
    rank = by_rank(work)
    found = better_order(work, rank)
    if found is None:
        return
    assert found.tasks[:running] == list(range(running)), "what runs already comes first"
    assert sorted(found.tasks) == list(range(len(work)))
    assert found.makespan_s == makespan_s(work, found.tasks)
    assert found.by_rank_s == makespan_s(work, rank)
    assert least_s(work) - 1e-9 <= found.makespan_s <= CLEARLY * found.by_rank_s
    again = better_order(work, rank)
    assert again is not None and again.tasks == found.tasks


def test_for_some_small_random_graphs_there_is_such_an_order() -> None:
    found = [better_order(work, by_rank(work)) for work in map(layered, range(60))]
    assert sum(order is not None for order in found) >= 5


def families(number: int, parts: int, after: int, by_level: bool) -> tuple[list[list[int]], list[float]]:
    """Each: parts of 10 s, a merge of 20 s that waits for all of them, and plots of 10 s after it."""
    if by_level:
        merges = range(number * parts, number * parts + number)
        above: list[list[int]] = [[] for _ in range(number * parts)]
        above += [list(range(i * parts, i * parts + parts)) for i in range(number)]
        above += [[merge] for merge in merges for _ in range(after)]
        return above, [10.0] * (number * parts) + [20.0] * number + [10.0] * (number * after)
    above, seconds = [], []
    for _ in range(number):
        first = len(above)
        above += [[] for _ in range(parts)] + [list(range(first, first + parts))]
        above += [[first + parts] for _ in range(after)]
        seconds += [10.0] * parts + [20.0] + [10.0] * after
    return above, seconds


@pytest.mark.parametrize("by_level", [True, False], ids=["numbered by levels", "numbered by families"])
def test_families_are_completed_one_after_another_where_the_work_decides(by_level: bool) -> None:
    """By rank all parts take 40 s, then half of the slots idle while four merges run for 20 s, then come all plots."""
    work = Work(*families(4, 8, 8, by_level), 8)
    assert least_s(work) == 90
    found = better_order(work, by_rank(work))
    assert found is not None
    assert (found.by_rank_s, found.makespan_s) == (100, 90)


def test_what_is_fragile_is_not_taken() -> None:
    """By estimates it would end 1.6 % sooner, with durations off by 30 % some 5 % later."""
    work = layered(120)
    rank = by_rank(work)
    assert better_order(work, rank) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(justified, "BEARABLE", inf)
        patch.setattr(justified, "TOGETHER", -inf)
        fragile = better_order(work, rank)
    assert fragile is not None
    assert fragile.makespan_s <= 0.985 * fragile.by_rank_s
    chance = Random(1)
    lost = []
    for _ in range(200):
        seconds = [one * chance.lognormvariate(0, 0.26) for one in work.seconds]
        lost.append(log(makespan_s(work, fragile.tasks, seconds) / makespan_s(work, rank, seconds)))
    assert sum(lost) / len(lost) > 0.03


def test_nothing_is_sought_where_rank_could_lose_no_more_than_it_is_worth() -> None:
    work = Work(*families(4, 8, 8, True), 8)
    assert better_order(work, by_rank(work), worth_s=10.0) is not None
    assert better_order(work, by_rank(work), worth_s=10.5) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(justified, "ends_of")
        assert better_order(work, by_rank(work), worth_s=50.5) is None, "the chain is 40 s: not even rank is simulated"
