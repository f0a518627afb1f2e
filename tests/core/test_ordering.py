"""When do the tasks of a study go in another order than by rank, and what do the state and others make of that?"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from builders import Job, Story, job, node, nodes
from cantle.core import decide
from cantle.core.decide import Decider
from cantle.core.explain import explain
from cantle.core.packing import best_fit
from cantle.core.plan import Plan
from cantle.core.scaling.remaining import Bulks
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import (
    KindsDeclared,
    Launch,
    NodesJoined,
    OrderTasks,
    StudyAdded,
    StudyOver,
    TasksAdded,
)
from cantle.model.study import Limits, Slicing, Step, Task
from cantle.runtime.pilot.views import Views


def families(number: int = 4, seconds: float = 10.0, **rest: Any) -> list[Job]:
    """Each: eight parts, a merge of twice their length, eight plots. On eight cores 100 s by rank, and 90 s at best."""
    found = []
    for i in range(number):
        parts = [job(f"part{i}.{k}", estimate_s=seconds, **rest) for k in range(8)]
        merge = job(f"merge{i}", " ".join(part.name for part in parts), estimate_s=2 * seconds, **rest)
        plots = [job(f"plot{i}.{k}", merge.name, estimate_s=seconds, **rest) for k in range(8)]
        found += [*parts, merge, *plots]
    return found


def orders(story: Story) -> list[OrderTasks]:
    return [record for record in story.records if isinstance(record, OrderTasks)]


def test_an_order_is_set_as_soon_as_tasks_and_nearly_all_nodes_are_there_and_says_what_it_gains() -> None:
    story = Story(*families())
    story.await_nodes(9)
    story.join(*nodes(7))
    begun = [d.task for d in story.decides() if isinstance(d, Launch)]
    assert orders(story) == [], "more than a fifth of the nodes are on their way"
    story.join(*nodes(1))
    story.decides()
    [order] = orders(story)
    assert sorted([*begun, *order.tasks]) == list(range(len(story.state.tasks)))
    assert "all could be over in" in order.why


def test_tasks_are_launched_in_that_order() -> None:
    story = Story(*families(), on=[node(cores=8)])
    launched = [d.task for d in story.decides() if isinstance(d, Launch)]
    [order] = orders(story)
    assert launched == [task for task in order.tasks if not story.state.tasks[task].parents][:8]
    for task in launched:
        story.end(story.name(task))
    story.decides()
    assert any(story.name(task).startswith("merge") for task in story.state.running), (
        "not all parts are done, nor begun"
    )


def test_equally_long_tasks_keep_the_order_and_what_is_not_in_it_goes_by_rank() -> None:
    story = Story(*(job(name, estimate_s=5) for name in "abcd"), job("long", estimate_s=9), job("short", estimate_s=1))
    story.happens(OrderTasks(1, [3, 1, 0, 2], "as the test likes it"))
    story.join(node())
    for name in ["long", "d", "b", "a", "c", "short"]:
        assert story.launches() == [name]
        story.end(name)


def test_an_empty_order_lets_all_go_by_rank_again() -> None:
    story = Story(*(job(name, estimate_s=5) for name in "abc"))
    story.happens(OrderTasks(1, [2, 1, 0], "as the test likes it"))
    assert [queue.ready() for queue in story.state.queues] == [[2, 1, 0]]
    story.happens(OrderTasks(2, [], "no more"))
    assert [queue.ready() for queue in story.state.queues] == [[0, 1, 2]]


def test_who_is_sent_back_takes_his_place_in_the_order_again() -> None:
    story = Story(*(job(name, estimate_s=5) for name in "abc"))
    story.happens(OrderTasks(1, [2, 1, 0], "as the test likes it"))
    story.join(*nodes(2))
    assert story.launches() == ["c", "b"]
    story.lose("n0")
    story.end("b")
    assert story.launches() == ["c"]


def test_an_order_is_sought_again_when_the_nodes_are_much_fewer_or_more_and_not_for_one_of_many() -> None:
    story = Story(*families(12), on=nodes(8))
    story.decides()
    known = story.decider._memory["ordered for"]
    story.lose("n0")
    story.decides()
    assert story.decider._memory["ordered for"] == known
    story.lose("n1")
    story.lose("n2")
    story.decides()
    assert story.decider._memory["ordered for"] != known


def test_where_no_other_order_is_better_any_more_they_go_by_rank_again() -> None:
    story = Story(*families(), on=[node(cores=8)])
    story.decides()
    story.join(*nodes(120))
    story.decides()
    assert [bool(order.tasks) for order in orders(story)] == [True, False]
    assert story.state.ordered == {}


def test_another_conductor_seeks_an_order_for_what_is_left() -> None:
    story = Story(*families(), on=[node(cores=8)])
    done = [story.name(d.task) for d in story.decides() if isinstance(d, Launch)]
    for name in done:
        story.end(name)
    story.decider = Decider()
    story.resume(on=[node(cores=8)])
    story.decides()
    first, *_, last = orders(story)
    assert last is not first
    assert not {story.number_of[name] for name in done} & set(last.tasks)


@pytest.mark.parametrize(
    ("jobs", "rest"),
    [
        ([job(f"t{i}", estimate_s=100) for i in range(68)], {}),
        (families(seconds=0.0), {}),
        ([replace(row, estimate_s=0.0) if "plot" in row.name else row for row in families()], {}),
        (families(seconds=0.01), {}),
        ([*families(), job("wide", cores=2, estimate_s=1)], {"limits": Limits(throttle=8)}),
        ([*families(), job("urgent", priority=1, estimate_s=1)], {}),
        (families(memory_mib=1), {}),
        ([*families(), job("elastic", widths=(1, 2), estimate_s=1)], {}),
        (families(), {"slicing": Slicing()}),
    ],
    ids=[
        "nobody waits for another",
        "durations are not known",
        "half of the durations are not known",
        "there is next to nothing to gain",
        "one task needs more cores",
        "one task is more urgent",
        "tasks need more than cores",
        "a task may choose its width",
        "the study is sliced",
    ],
)
def test_no_order_is_set_where(jobs: list[Job], rest: dict[str, Any]) -> None:
    story = Story(*jobs, on=[node(cores=16 if "limits" in rest else 8, memory_mib=100)], **rest)
    story.decides()
    assert orders(story) == []


def test_no_order_is_set_while_another_study_is_under_way() -> None:
    story = Story(*families())
    story.happens(StudyAdded(1, "other", [Step("step")]))
    story.happens(TasksAdded(1, len(story.state.tasks), [Task("other", 1)], 1))
    story.join(node(cores=8))
    story.decides()
    assert orders(story) == []


def test_where_nodes_are_asked_for_an_order_is_sought_as_they_come() -> None:
    story = Story(*families())
    story.happens(KindsDeclared(1, [Kind("cpu", 4, most=2, starts_in_s=1)]))
    story.decides()
    assert orders(story) == [] and story.state.scaling is not None
    story.join(node("n0", 4), node("n1", 4))
    story.decides()
    assert len(orders(story)) == 1


def test_the_longest_chain_that_is_ready_is_known_in_whatever_order_they_go() -> None:
    story = Story(job("long", estimate_s=9), job("short", estimate_s=1), job("waits", "short", estimate_s=99))
    assert story.state.longest_ready_s() == 100
    story.happens(OrderTasks(1, [2, 0, 1], "as the test likes it"))
    assert story.state.longest_ready_s() == 100
    story.decider = Decider(orders=False)
    story.join(node())
    story.runs_through("long", "short", "waits")
    assert story.state.longest_ready_s() == 0


def test_the_scaler_plays_what_is_left_in_that_order() -> None:
    story = Story(job("a", estimate_s=9), job("b", estimate_s=5), job("c", estimate_s=1))
    before = Bulks(story.state, [0, 1, 2])
    assert before.fits(story.state) and before.rank == [9, 5, 1]
    story.happens(OrderTasks(1, [2, 1, 0], "as the test likes it"))
    assert not before.fits(story.state)
    assert Bulks(story.state, [0, 1, 2]).rank == [1, 5, 9]


def test_no_order_is_sought_among_very_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(*families(), on=[node(cores=8)])
    monkeypatch.setattr(decide, "MOST_ORDERED", 67)
    story.decides()
    assert orders(story) == []


def test_somebody_elses_packer_orders_by_itself() -> None:
    story = Story(*families(), on=[node(cores=8)])
    story.decider = Decider(lambda plan: best_fit(plan))
    story.decides()
    assert orders(story) == [] and story.state.running


def test_the_throttle_counts_as_fewer_cores() -> None:
    story = Story(*families(), on=[node(cores=100)], limits=Limits(throttle=8))
    story.decides()
    assert len(orders(story)) == 1


def test_explain_tells_of_the_order() -> None:
    story = Story(*families(), on=[node(cores=8)])
    story.decides()
    [order] = orders(story)
    later = next(
        task for task in order.tasks if not story.state.tasks[task].parents and task not in story.state.running
    )
    place = story.state.queue_of(later).ready()
    assert not any("order" in line for line in explain(story.state, place[0])), "nobody goes before it"
    assert any("They go in an order" in line and order.why in line for line in explain(story.state, place[-1]))


def test_a_study_that_is_over_leaves_nothing_of_its_order() -> None:
    story = Story(job("a", estimate_s=1), job("b", estimate_s=1), on=[node()])
    story.happens(OrderTasks(1, [1, 0], "as the test likes it"))
    story.runs_through("b", "a")
    assert story.state.ordered
    story.happens(StudyOver(9, 0))
    assert story.state.ordered == {}


def test_in_the_view_of_a_study_its_tasks_bear_its_own_numbers() -> None:
    views = Views()
    told: list[OrderTasks] = []
    for record in (
        StudyAdded(0, "one", [Step("a")], tasks=1),
        TasksAdded(0, 0, [Task("a", 0)]),
        StudyAdded(0, "two", [Step("b")], tasks=2),
        TasksAdded(0, 1, [Task("b0", 1), Task("b1", 1)], 1),
        OrderTasks(2, [2, 1], "as the test likes it"),
        OrderTasks(3, [], "no more"),
    ):
        told += [seen for study, seen in views.split(record) if study == 1 and isinstance(seen, OrderTasks)]
    assert [order.tasks for order in told] == [[1, 0], []]


def test_the_order_follows_from_the_records_alone() -> None:
    story = Story(*families(), on=[node(cores=8)])
    story.decides()
    replayed = State()
    for record in story.records:
        replayed.apply(record)
    assert replayed.ordered == story.state.ordered != {}
    assert [queue.heap for queue in replayed.queues] == [queue.heap for queue in story.state.queues]
    assert Plan(replayed).cores() == 8 and any(isinstance(record, NodesJoined) for record in story.records)
