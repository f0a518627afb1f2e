"""Whose task starts next when several studies want the same room?"""

from __future__ import annotations

import pytest

from builders import Job, Story, job, node, nodes
from cantle.core.decide import Decider
from cantle.core.plan import Plan
from cantle.core.reserving import kept_for
from cantle.core.sharing import DECAY_S, Shares
from cantle.core.state import State
from cantle.model.records import (
    Launch,
    PartitionAsked,
    StudyAdded,
    StudyOver,
    TaskEnded,
    TasksAdded,
    TimePassed,
)
from cantle.model.resources import Node
from cantle.model.study import PartitionWish, Step, Task


def enter(story: Story, name: str, *jobs: Job, weight: float = 1.0, priority: float = 0.0) -> int:
    """One more study; its number."""
    state = story.state
    number, first, step = len(state.studies), len(state.tasks), len(state.steps)
    numbers = {j.name: first + i for i, j in enumerate(jobs)}
    kinds = list(dict.fromkeys((j.needs, j.priority) for j in jobs))
    steps = [Step("step", needs, priority=own) for needs, own in kinds]
    story.happens(StudyAdded(story._next(), name, steps, weight=weight, priority=priority))
    rows = [
        Task(j.name, step + kinds.index((j.needs, j.priority)), tuple(numbers[p] for p in j.parents), j.estimate_s)
        for j in jobs
    ]
    story.happens(TasksAdded(story._next(), first, rows, number))
    story.number_of |= numbers
    return number


def flood(letter: str, n: int, estimate_s: float = 0.0, cores: int = 1) -> list[Job]:
    """Many independent tasks."""
    return [job(f"{letter}{i}", estimate_s=estimate_s, cores=cores) for i in range(n)]


def running(story: Story, letter: str) -> int:
    """How many tasks of that flood run."""
    return sum(story.name(task).startswith(letter) for task in story.state.running)


def done(story: Story, name: str, at: float) -> None:
    """The task is done at that time."""
    task = story.number_of[name]
    story.happens(TaskEnded(at, task, story.state.attempts[task], "done"))


def reserved(story: Story) -> str | None:
    """For which task room is kept."""
    task = kept_for(Plan(story.state, memory=story.decider._memory))
    return None if task is None else story.name(task)


# Shares


def test_two_studies_that_come_together_get_half_each() -> None:
    story = Story(*flood("a", 20))
    enter(story, "b", *flood("b", 20))
    story.join(node("n0", 8))
    story.launches()
    assert (running(story, "a"), running(story, "b")) == (4, 4)


@pytest.mark.parametrize(("weight", "priority"), [(3.0, 0.0), (1.5, 1.0), (0.75, 2.0)])
def test_a_share_is_the_weight_times_two_to_the_priority(weight: float, priority: float) -> None:
    story = Story(*flood("a", 20))
    enter(story, "b", *flood("b", 20), weight=weight, priority=priority)
    story.join(node("n0", 8))
    story.launches()
    assert (running(story, "a"), running(story, "b")) == (2, 6)


def test_a_flood_that_was_there_first_gives_way_task_by_task() -> None:
    story = Story(*flood("a", 200), on=[node("n0", 4)])
    assert story.launches() == ["a0", "a1", "a2", "a3"]
    enter(story, "b", *flood("b", 2))
    assert story.launches() == []
    story.end("a0")
    assert story.launches() == ["b0"]
    story.end("a1")
    assert story.launches() == ["b1"]
    story.end("a2")
    assert story.launches() == ["a4"]


def test_cores_count_and_not_tasks() -> None:
    story = Story(*flood("a", 20, cores=3))
    enter(story, "b", *flood("b", 20))
    story.join(node("n0", 12))
    story.launches()
    assert (running(story, "a"), running(story, "b")) == (2, 6)


def test_within_a_study_the_most_urgent_goes_first_and_its_own_priorities_count() -> None:
    story = Story(job("a0"), job("a1", priority=1.0))
    enter(story, "b", job("b0", estimate_s=1.0), job("b1", estimate_s=2.0))
    story.join(node("n0", 4))
    assert story.launches() == ["a1", "b1", "a0", "b0"]


def test_what_an_old_study_had_counts_against_it_for_a_while_and_starves_it_no_longer_than_that() -> None:
    story = Story(*flood("a", 200), on=[node("n0", 4)])
    story.launches()
    story.happens(TimePassed(600.0))
    enter(story, "b", *flood("b", 200))
    story.launches()
    for i in range(4):
        done(story, f"a{i}", 603.0)
    story.launches()
    assert (running(story, "a"), running(story, "b")) == (0, 4)
    done(story, "b0", 603.0 + DECAY_S)
    assert story.launches() == ["a4"]


def test_a_study_that_was_idle_for_an_hour_has_hoarded_nothing_and_owes_nothing() -> None:
    story = Story(*flood("a", 200), on=[node("n0", 4)])
    enter(story, "b", *flood("b", 1))
    story.launches()
    assert running(story, "b") == 1
    done(story, "b0", 10.0)
    story.launches()
    enter(story, "c", *flood("c", 100))
    story.happens(TimePassed(3600.0))
    shares: Shares = story.decider._memory["shares"]
    shares.observe(story.state)
    assert shares.key(story.state, 1) < 1e-9
    assert shares.key(story.state, 1) == pytest.approx(shares.key(story.state, 2))


def test_what_a_study_had_fades() -> None:
    story = Story(*flood("a", 8), on=[node("n0", 4)])
    enter(story, "b", *flood("b", 1))
    shares = Shares()
    story.launches()
    shares.observe(story.state)
    shares.settle(story.state)
    held = story.state.studies[0].slots
    assert shares.key(story.state, 0) == 2 * held
    for name in [story.name(task) for task in list(story.state.running)]:
        done(story, name, story.state.now)
    shares.observe(story.state)
    shares.settle(story.state)
    story.happens(TimePassed(story.state.now + DECAY_S))
    shares.observe(story.state)
    assert shares.key(story.state, 0) == pytest.approx(held / 2.718281828)


def test_a_study_is_charged_for_the_idle_cores_of_its_partitions() -> None:
    story = Story(*flood("a", 20), on=[node("n0", 2), node("n1", 2)])
    number = enter(story, "b", *flood("b", 20))
    story.happens(PartitionAsked(story._next(), PartitionWish("p", 1), study=number))
    for _ in range(3):
        story.decides()
    shares = Shares()
    shares.observe(story.state)
    held = sum(n.cores for p in story.state.partitions.living.values() for n in p.room.nodes.values())
    assert held == 2
    assert shares.key(story.state, number) == 2 * (story.state.studies[number].slots + held)


def test_a_study_that_is_over_competes_no_more() -> None:
    story = Story(job("a"), on=[node("n0", 2)])
    story.runs_through("a")
    enter(story, "b", *flood("b", 3))
    story.happens(StudyOver(story._next(), 0))
    assert story.launches() == ["b0", "b1"]
    assert "shares" not in story.decider._memory


def test_of_equals_the_study_with_the_more_urgent_task_goes_first() -> None:
    story = Story(job("a0"), on=nodes(1))
    enter(story, "b", job("b0"), job("b1", "b0"))
    assert story.launches() == ["b0"]


def test_of_equals_the_study_that_came_first_goes_first() -> None:
    story = Story(*flood("a", 2))
    enter(story, "b", *flood("b", 2))
    enter(story, "c", *flood("c", 2))
    story.join(node("n0", 6))
    assert story.launches() == ["a0", "b0", "c0", "a1", "b1", "c1"]


# Room kept for a gang


def gang_behind_a_stream(*gangs: Job, cores: int = 4) -> Story:
    """A stream of narrow 10 s tasks fills the machine; then another study brings gangs."""
    story = Story(*flood("a", 100, 10.0), on=[node("n0", cores)])
    story.launches()
    enter(story, "b", *gangs)
    return story


def test_a_gang_as_wide_as_the_machine_starts_behind_an_endless_stream() -> None:
    story = gang_behind_a_stream(job("gang", cores=4))
    for i in range(4):
        assert story.launches() == []
        assert reserved(story) in (None, "gang")
        story.end(f"a{i}")
    assert story.launches() == ["gang"]


def test_a_gang_starts_behind_a_stream_of_which_nobody_knows_how_long_its_tasks_take() -> None:
    story = Story(*flood("a", 100), on=[node("n0", 4)])
    story.launches()
    enter(story, "b", job("gang", cores=4))
    for i in range(4):
        assert story.launches() == []
        story.end(f"a{i}")
    assert story.launches() == ["gang"]


def test_two_gangs_as_wide_as_the_machine_start_one_after_the_other_and_the_stream_goes_on_after_them() -> None:
    story = gang_behind_a_stream(job("gang", cores=4))
    enter(story, "c", job("gang2", cores=4))
    for i in range(4):
        story.end(f"a{i}")
        story.decides()
    assert story.phases()["gang"] == "launched"
    assert reserved(story) is None
    story.end("gang")
    assert story.launches() == ["gang2"]
    story.end("gang2")
    assert story.launches() == ["a4", "a5", "a6", "a7"]


def test_a_gang_that_is_canceled_while_the_machine_drains_for_it_frees_the_room_in_the_same_pass() -> None:
    story = gang_behind_a_stream(job("gang", cores=4))
    story.end("a0")
    assert story.launches() == []
    assert reserved(story) == "gang"
    story.cancel("gang")
    assert story.launches() == ["a4"]
    assert reserved(story) is None


def test_a_second_gang_does_not_drain_as_well() -> None:
    story = Story(*flood("a", 100, 5.0), on=[node("n0", 4)])
    story.launches()
    enter(story, "b", job("gang", cores=4, estimate_s=30.0))
    enter(story, "c", job("gang2", cores=4, estimate_s=30.0))
    for i in range(3):
        story.end(f"a{i}")
        assert story.launches() == []
        assert reserved(story) == "gang"
    story.end("a3")
    assert story.launches() == ["gang"]


def test_what_was_kept_is_kept_although_the_others_have_become_poorer_meanwhile() -> None:
    story = gang_behind_a_stream(job("gang", cores=4), job("b0"), cores=4)
    story.end("a0")
    story.decides()
    assert reserved(story) == "gang"
    enter(story, "c", *flood("c", 10))
    story.end("a1")
    assert story.launches() == []
    assert reserved(story) == "gang"


def test_once_the_gang_has_started_nothing_is_kept_for_it() -> None:
    story = gang_behind_a_stream(job("gang", cores=4))
    for i in range(4):
        story.end(f"a{i}")
        story.decides()
    assert story.phases()["gang"] == "launched"
    assert reserved(story) is None


def test_what_takes_the_last_spare_core_beside_a_gang_leaves_none_for_the_next() -> None:
    story = Story(*flood("a", 4, 10.0), on=[node("n0", 5)])
    story.launches()
    enter(story, "b", job("gang", cores=4))
    story.launches()
    enter(story, "c", *flood("long", 3, 90.0))
    assert story.launches() == ["long0"]
    story.end("a0")
    assert story.launches() == []


def test_of_several_short_tasks_behind_a_long_one_the_most_urgent_starts_first() -> None:
    story = Story(*flood("a", 3, 10.0), on=[node("n0", 4)])
    story.launches()
    enter(story, "b", job("gang", cores=4))
    story.launches()
    enter(story, "c", job("long", estimate_s=60.0), job("s1", estimate_s=1.0), job("s2", estimate_s=2.0))
    assert story.launches() == ["s2"]


def test_tasks_that_are_over_before_the_gang_fits_still_start() -> None:
    story = Story(*flood("a", 3, 10.0), on=[node("n0", 4)])
    story.launches()
    enter(story, "b", job("gang", cores=4))
    story.launches()
    enter(story, "c", job("short", estimate_s=1.0), job("long", estimate_s=60.0))
    assert story.launches() == ["short"]


def test_a_backfilled_task_that_takes_longer_than_it_said_delays_the_gang_but_does_not_lose_it_its_place() -> None:
    story = Story(*flood("a", 3, 10.0), on=[node("n0", 4)])
    story.launches()
    enter(story, "b", job("gang", cores=4))
    story.launches()
    enter(story, "c", job("short0", estimate_s=1.0))
    assert story.launches() == ["short0"]
    now = story.state.now
    for i in range(3):
        done(story, f"a{i}", now + 8.0 + i)
        story.decides()
    story.happens(TimePassed(now + 100.0))
    story.decides()
    assert reserved(story) == "gang"
    story.end("short0")
    assert story.launches() == ["gang"]


# Looking ahead


def gang_to_come(parent_s: float = 10.0, stream_s: float = 60.0) -> Story:
    """Two parents of a gang as wide as the machine run beside a stream of long tasks."""
    story = Story(*flood("a", 100, stream_s))
    parents = [job(f"p{i}", estimate_s=parent_s) for i in range(2)]
    enter(story, "b", *parents, job("gang", "p0 p1", cores=6, estimate_s=5.0))
    story.join(node("n0", 6))
    assert sorted(story.launches()) == ["a0", "a1", "a2", "a3", "p0", "p1"]
    return story


def test_when_the_last_parents_of_a_gang_run_room_is_kept_for_it_already() -> None:
    story = gang_to_come()
    story.end("a0")
    assert story.launches() == []
    assert reserved(story) == "gang"
    for name in ("a1", "p0", "a2", "p1"):
        story.end(name)
        assert story.launches() == []
    story.end("a3")
    assert story.launches() == ["gang"]


def test_what_is_over_before_the_gang_becomes_ready_still_starts() -> None:
    story = gang_to_come(parent_s=100.0, stream_s=20.0)
    story.end("a0")
    assert story.launches() == ["a4"]


def test_no_room_is_kept_for_a_gang_whose_parents_have_not_all_begun() -> None:
    story = Story(*flood("a", 100, 60.0))
    enter(story, "b", job("p0", estimate_s=9.0), job("p1", "p0", estimate_s=9.0), job("gang", "p1", cores=4))
    story.join(node("n0", 4))
    story.launches()
    story.end("a0")
    assert story.launches() == ["a3"]
    assert reserved(story) is None


def test_when_the_last_parent_fails_nothing_is_kept_for_the_gang_any_more() -> None:
    story = gang_to_come()
    story.end("a0")
    assert story.launches() == []
    story.end("p0", "failed")
    made = story.launches()
    assert story.phases()["gang"] == "skipped"
    assert len(made) == 2
    assert reserved(story) is None


def test_when_the_last_parent_is_canceled_nothing_is_kept_for_the_gang_any_more() -> None:
    story = gang_to_come()
    story.end("a0")
    assert story.launches() == [] and reserved(story) == "gang"
    story.end("p0", "canceled")
    assert len(story.launches()) == 2
    assert story.phases()["gang"] == "canceled" and reserved(story) is None


def test_when_its_study_adds_what_is_ready_nothing_is_kept_for_a_gang_to_come() -> None:
    story = gang_to_come()
    story.end("a0")
    assert story.launches() == [] and reserved(story) == "gang"
    first, step = len(story.state.tasks), story.state.tasks[story.number_of["p0"]].step
    story.happens(TasksAdded(story._next(), first, [Task("more", step, (), 60.0)], 1))
    assert story.launches() == ["more"]
    assert reserved(story) is None


def test_nothing_is_kept_for_a_gang_when_nobody_knows_when_its_parents_end() -> None:
    story = gang_to_come(parent_s=0.0)
    story.end("a0")
    assert story.launches() == ["a4"]


def test_a_gang_that_a_lost_node_made_impossible_is_refused_and_drains_nothing() -> None:
    story = Story(*flood("a", 100, 10.0), on=nodes(3))
    story.launches()
    enter(story, "b", job("gang", nodes=3))
    story.end("a0")
    assert story.launches() == []
    story.lose("n2")
    made = story.decides()
    assert story.phases()["gang"] == "failed"
    assert any(isinstance(decision, Launch) for decision in made)


# The same journal, the same decisions


def test_the_same_records_lead_to_the_same_decisions() -> None:
    def told() -> list[object]:
        story = gang_to_come()
        for name, at in (("a0", 30.0), ("p0", 31.0), ("a1", 32.0), ("p1", 33.0), ("a2", 34.0)):
            done(story, name, at)
            story.decides()
        return [record for record in story.records if isinstance(record, Launch)]

    assert told() == told()
    assert len(told()) == 6


def test_a_decider_that_is_made_anew_decides_on_from_what_the_state_tells() -> None:
    story = gang_behind_a_stream(job("gang", cores=4))
    story.end("a0")
    assert story.launches() == []
    story.decider = Decider()
    for i in range(1, 4):
        assert story.launches() == []
        story.end(f"a{i}")
    assert story.launches() == ["gang"]


def test_a_plain_run_of_one_study_never_asks_who_has_least() -> None:
    state = State()
    state.apply(StudyAdded(0.0, "a", [Step("step")]))
    state.apply(TasksAdded(0.0, 0, [Task("t", 0)]))
    state.room.add(Node("n0", 1))
    decider = Decider()
    for decision in decider.decide(state):
        state.apply(decision)
    assert "shares" not in decider._memory
    assert list(state.running) == [0]


def test_a_study_whose_tasks_choose_their_widths_shares_like_any_other() -> None:
    """It has a step of widths from 1 to 4, known durations, and as many tasks as the flood beside it."""
    story = Story(*flood("a", 40, 10.0))
    state = story.state
    step, first = len(state.steps), len(state.tasks)
    moldable = Step("moldable", widths=(1, 2, 4), times_s=(10.0, 5.5, 3.0))
    story.happens(StudyAdded(story._next(), "b", [moldable]))
    story.happens(TasksAdded(story._next(), first, [Task(f"b{i}", step, (), 10.0) for i in range(40)], 1))
    story.join(*nodes(8))
    story.launches()
    cores = dict.fromkeys("ab", 0)
    for task, launch in state.running.items():
        cores[story.name(task)[0]] += len(launch.on)
    assert cores == {"a": 4, "b": 4}


def test_nothing_is_remembered_of_a_study_that_is_over() -> None:
    story = Story(*flood("a", 20, 10.0), on=[node("n0", 2)])
    number = enter(story, "b", job("p", estimate_s=5.0), job("gang", "p", cores=2), weight=99.0)
    story.launches()
    story.end("a0")
    story.decides()
    assert ("wide", number) in story.decider._memory
    story.end("p")
    story.cancel("gang")
    story.happens(StudyOver(story._next(), number))
    enter(story, "c", job("c0"))
    story.decides()
    assert ("wide", number) not in story.decider._memory
