"""Do several studies in one run stay apart: canceled, failing, over, each by itself?"""

from __future__ import annotations

import pytest

from builders import NO_LIMITS, QuickStory, Story, job, node, nodes, snapshot
from cantle.core.mend import fill_gaps
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.errors import CantleBug
from cantle.model.records import CancelAsked, Refuse, StudyAdded, StudyOver, TasksAdded
from cantle.model.study import Limits, Step, Task


def enter(
    story: Story, name: str, *tasks: str, limits: Limits = NO_LIMITS, priority: float = 0.0, promised: int = 0
) -> int:
    """A study of independent one-core tasks enters; its number."""
    number, first = len(story.state.studies), len(story.state.tasks)
    story.happens(StudyAdded(story._next(), name, [Step("step")], limits=limits, priority=priority, tasks=promised))
    step = len(story.state.steps) - 1
    story.happens(TasksAdded(story._next(), first, [Task(task, step) for task in tasks], number))
    story.number_of |= {task: first + i for i, task in enumerate(tasks)}
    return number


def test_canceling_one_study_leaves_the_other_alone() -> None:
    story = Story(job("a"), job("b"), on=nodes(3))
    other = enter(story, "other", "x", "y")
    assert story.launches() == ["a", "x", "b"]
    story.happens(CancelAsked(story._next(), None, "me", other))
    assert [(d.task, d.outcome) for d in story.decides()] == [(story.number_of["x"], "canceled")]  # type: ignore[union-attr]
    story.end("x", "canceled")
    assert story.phases() == {"a": "launched", "b": "launched", "x": "canceled", "y": "canceled"}


def test_fail_fast_of_one_study_leaves_the_other_alone() -> None:
    story = Story(job("a"), job("b"), on=nodes(1))
    enter(story, "other", "x", "y", limits=Limits(fail_fast=True), priority=1)
    assert story.launches() == ["x"]
    story.end("x", "failed")
    assert story.phases() == {"a": "ready", "b": "ready", "x": "failed", "y": "skipped"}


def test_the_priority_of_a_study_is_added_to_that_of_its_steps() -> None:
    story = Story(job("a", priority=2), job("b"), on=nodes(1))
    enter(story, "other", "x", priority=1)
    for name in ("a", "x", "b"):
        story.runs_through(name)


def test_of_a_study_that_is_over_only_phases_stay_known_and_its_queues_serve_the_next() -> None:
    story = Story(job("a"), job("b", "a"), job("c", cores=2), on=nodes(1))
    story.decides()
    story.end("a")
    story.runs_through("b")
    assert story.phases()["c"] == "failed"
    queues = len(story.state.queues)
    story.happens(StudyOver(story._next(), 0))
    state = story.state
    assert [task.name for task in state.tasks] == ["", "", ""]
    assert not any(state.children) and not state.cause_of and not state.ended
    assert state.phases == [Phase.DONE, Phase.DONE, Phase.FAILED]
    number = enter(story, "next", "x")
    assert len(state.queues) == queues
    assert state.queue_of(3).shape.study == number
    story.runs_through("x")
    assert state.finished


def test_what_can_never_run_in_a_study_that_is_over_is_not_looked_at_again() -> None:
    story = Story(job("wide", cores=5), on=nodes(1))
    assert [type(decision) for decision in story.decides()] == [Refuse]
    story.happens(StudyOver(story._next(), 0))
    enter(story, "next", "x")
    story.runs_through("x")


def test_a_study_that_never_entered_whole_is_not_waited_for_once_it_is_over() -> None:
    story = Story(on=nodes(1))
    number = enter(story, "broken", "x", promised=10)
    assert not story.state.finished
    story.happens(CancelAsked(story._next(), None, "the pilot", number))
    assert not story.state.finished
    story.happens(StudyOver(story._next(), number))
    assert story.state.finished


def test_a_study_with_unfinished_tasks_cannot_be_called_over() -> None:
    story = Story(job("a"), on=nodes(1))
    with pytest.raises(CantleBug, match="called over"):
        story.happens(StudyOver(story._next(), 0))


def test_tasks_of_a_study_cannot_come_after_those_of_another() -> None:
    story = Story(job("a"), on=nodes(1))
    enter(story, "other", "x")
    with pytest.raises(CantleBug, match="after those of another"):
        story.happens(TasksAdded(story._next(), 2, [Task("late", 0)], 0))


def test_a_damaged_journal_makes_a_study_over_whatever_is_missing_before() -> None:
    story = Story(job("a"), job("b"), job("c", "b"), on=nodes(1))
    story.launches()
    over = StudyOver(story._next(), 0)
    for missing in fill_gaps(story.state, over):
        story.happens(missing)
    story.happens(over)
    assert set(story.phases().values()) == {"failed", "skipped"}


def test_the_same_records_make_the_same_queues() -> None:
    story = Story(job("a"), job("c", memory_mib=0), on=nodes(1))
    story.runs_through("a", "c")
    story.happens(StudyOver(story._next(), 0))
    enter(story, "next", "x")
    again = State()
    for record in story.records:
        again.apply(record)
    assert snapshot(again) == snapshot(story.state)


def in_hand(story: Story) -> str:
    """The first of those that run whose turn it is."""
    return next(story.name(task) for task in story.state.running if not story.state.stands_in_line(task))


def test_a_small_study_has_its_turn_while_short_tasks_of_a_flood_stand_in_line() -> None:
    story = QuickStory(*(job(f"t{i}") for i in range(100)))
    assert len(story.launches()) > 1, "the others of the flood stand in line"
    enter(story, "small", "x")
    launched: list[str] = []
    while "x" not in launched:
        story.end(in_hand(story))
        launched += story.launches()
        assert len(launched) < 50, "the place went from one of the flood to the next"


def test_the_study_that_has_least_stands_in_line_where_several_have_short_tasks() -> None:
    story = QuickStory(*(job(f"t{i}") for i in range(40)), on=node(cores=2))
    story.launches()
    enter(story, "other", *(f"x{i}" for i in range(40)))
    ended: list[str] = []
    while len(ended) < 40:
        ended.append(in_hand(story))
        story.end(ended[-1])
        story.launches()
    assert 10 <= sum(name.startswith("x") for name in ended) <= 30
