"""Do partitions of one name that belong to different studies of one run stay apart?"""

from __future__ import annotations

from test_partitions import Carved

from builders import job, nodes
from cantle.core.explain import explain
from cantle.core.partitions import ALL
from cantle.core.standings import Standing
from cantle.model.records import (
    ElementsAsked,
    Launch,
    PartitionAsked,
    PartitionCancelAsked,
    PartitionDrainAsked,
    PartitionResizeAsked,
    Refuse,
    StudyAdded,
    StudyOver,
    TasksAdded,
)
from cantle.model.resources import Needs
from cantle.model.study import PartitionWish, Slice, Slicing, Step, Task


def enter(story: Carved, task: str, wide: int, *declared: PartitionWish, partition: str = "same") -> int:
    """A study with one task of so many nodes that runs in a partition; its number."""
    number, first = len(story.state.studies), len(story.state.tasks)
    step = Step("step", Needs(nodes=wide), partition=partition)
    story.happens(StudyAdded(story._next(), task, [step], partitions=declared, tasks=1))
    story.happens(TasksAdded(story._next(), first, [Task(task, len(story.state.steps) - 1)], number))
    story.number_of[task] = first
    return number


def two(second: int = 4) -> Carved:
    """Two studies, after the first of the story, whose partition `same` has 2 nodes and so many."""
    story = Carved(job("alone"), on=nodes(8))
    enter(story, "a", 2, PartitionWish("same", 2))
    enter(story, "b", second, PartitionWish("same", second))
    return story


def where(story: Carved, task: str) -> tuple[int, int]:
    """Whose partition the task runs in, and how wide that is."""
    partition = story.state.partitions.all[story.state.running[story.number_of[task]].partition]
    return partition.study, partition.width


def test_each_study_has_the_partition_that_it_declares() -> None:
    story = two()
    made = story.settles()
    assert not [decision for decision in made if isinstance(decision, Refuse)]
    assert (where(story, "a"), where(story, "b")) == ((1, 2), (2, 4))
    assert [(p.study, p.name, p.standing) for p in story.state.partitions.all] == [
        (1, "same", Standing.ACTIVE),
        (2, "same", Standing.ACTIVE),
    ]


def test_what_one_study_does_with_its_partition_leaves_the_other_s_alone() -> None:
    story = two()
    story.settles()
    story.happens(PartitionResizeAsked(story._next(), "same", 3, "me", 1))
    story.happens(PartitionCancelAsked(story._next(), "same", "me", 2))
    story.settles()
    ours, others = story.state.partitions.all[:2]
    assert (ours.width, ours.standing, others.standing) == (3, Standing.ACTIVE, Standing.CANCELED)
    assert story.phase("a").name == "LAUNCHED"
    assert "was canceled by me" in " ".join(explain(story.state, story.number_of["b"]))
    story.happens(PartitionAsked(story._next(), PartitionWish("same", 4), 2, "me"))
    story.settles()
    assert where(story, "b") == (2, 4)


def test_who_asks_for_no_study_in_particular_is_understood_when_one_alone_has_the_name() -> None:
    story = two()
    story.settles()
    story.happens(PartitionDrainAsked(story._next(), "same", "me"))
    assert not any(partition.draining for partition in story.state.partitions.all)
    story.happens(PartitionCancelAsked(story._next(), "same", "me", 1))
    story.settles()
    story.happens(PartitionDrainAsked(story._next(), "same", "me"))
    assert story.state.partitions.all[1].draining


def test_a_partition_for_all_serves_the_studies_that_declare_none_of_its_name() -> None:
    story = two()
    other = enter(story, "c", 1)
    story.settles()
    assert story.phase("c").name == "READY"
    story.happens(PartitionAsked(story._next(), PartitionWish("same", 1), ALL, "me"))
    story.settles()
    assert (where(story, "a"), where(story, "b"), where(story, "c")) == ((1, 2), (2, 4), (ALL, 1))
    of = story.state.partitions
    shared = of.by_name[ALL, "same"]
    assert (of.asked_for(other, "same"), of.asked_for(ALL, "same")) == (shared, shared)
    assert of.asked_for(1, "same") is of.all[0]


def test_a_study_that_declares_a_partition_runs_in_no_other_of_its_name() -> None:
    story = Carved(job("alone"), on=nodes(8))
    story.happens(PartitionAsked(story._next(), PartitionWish("same", 2), ALL, "me"))
    story.settles()
    enter(story, "a", 1, PartitionWish("same", 3))
    story.settles()
    assert where(story, "a") == (1, 3)


def test_a_partition_that_is_made_for_one_study_serves_no_other() -> None:
    story = Carved(job("alone"), on=nodes(8))
    first, second = enter(story, "a", 1, partition="mine"), enter(story, "b", 1, partition="mine")
    story.happens(PartitionAsked(story._next(), PartitionWish("mine", 2), first, "me"))
    story.settles()
    assert (where(story, "a"), story.phase("b").name) == ((first, 2), "READY")
    assert "nobody has made yet" in " ".join(explain(story.state, story.number_of["b"]))
    assert story.state.partitions.asked_for(second, "mine") is None
    for task in ("alone", "a"):
        story.end(task)
    story.happens(StudyOver(story._next(), first))
    assert [d.task for d in story.settles() if isinstance(d, Refuse)] == [story.number_of["b"]]


def test_a_declared_partition_that_can_never_be_is_no_other_study_s_fault() -> None:
    story = two(second=9)
    story.settles()
    assert (story.phase("a").name, story.phase("b").name) == ("LAUNCHED", "FAILED")


def test_two_studies_ask_for_elements_under_one_name() -> None:
    story = Carved(job("alone"), on=nodes(4, 2), slicing=Slicing((Slice(1, 2),)))
    for task in ("a", "b"):
        enter(story, task, 1, PartitionWish("same", 1, elements="1 x 1"))
    launched = [decision for decision in story.settles() if isinstance(decision, Launch) and decision.partition >= 0]
    elements = [story.state.partitions.all[launch.partition] for launch in launched]
    assert sorted((p.study, p.holder, list(p.running)) for p in elements) == [(1, "same", [1]), (2, "same", [2])]
    story.happens(ElementsAsked(story._next(), "same", "2 x 1", "me", 1))
    story.settles()
    held = [p.study for p in story.state.partitions.living.values() if p.holder == "same"]
    assert sorted(held) == [1, 1, 2]
