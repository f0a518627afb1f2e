"""A study may grow while it runs, beside others: what of the run is its own, and when is it over?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.spans import Spans
from cantle.core.state import State
from cantle.errors import CantleBug
from cantle.model.records import (
    AnyRecord,
    NodesJoined,
    Refuse,
    StepsAdded,
    StopAsked,
    StudyAdded,
    StudyClosed,
    TasksAdded,
)
from cantle.model.resources import Needs, Node
from cantle.model.study import Limits, Step, Task
from cantle.runtime.pilot.jobs import is_over, job_of
from cantle.runtime.pilot.views import Views
from cantle.runtime.simulated import Fate, SimulatedWorld


def applied(state: State, *records: AnyRecord) -> State:
    for record in records:
        state.apply(record)
    return state


def growing(name: str = "calls") -> StudyAdded:
    return StudyAdded(0.0, name, [], grows=True)


def test_a_run_goes_on_while_a_study_may_grow():
    state = applied(State(), growing(), NodesJoined(0.0, [Node("n", 1)]))
    assert not state.finished
    assert not state.succeeded
    assert state.unfinished
    applied(state, StudyClosed(1.0, 0))
    assert state.finished
    assert state.succeeded


def test_a_run_that_is_stopped_waits_for_nothing_more():
    state = applied(State(), growing(), StopAsked(1.0, "enough"))
    assert state.finished


def test_steps_and_tasks_come_as_they_come_and_run():
    state = applied(State(), growing(), StepsAdded(0.0, 0, [Step("f")]), TasksAdded(0.0, 0, [Task("f", 0)]))
    world = SimulatedWorld(state, [(0.0, [Node("n", 2)])], lambda task, attempt: Fate(1.0))
    decider = Decider(lines=False)
    from cantle.runtime.loop import NoLog, turn

    while state.phases[0] != Phase.DONE:
        turn(state, world, NoLog(), decider, world.wait())
    assert not state.finished
    applied(state, StepsAdded(2.0, 0, [Step("g", Needs(cores=2))]), TasksAdded(2.0, 1, [Task("g", 1, (0,))]))
    turn(state, world, NoLog(), decider, [])
    while state.totals[Phase.DONE] != 2:
        turn(state, world, NoLog(), decider, world.wait())
    assert job_of(state, 0).state == "open"
    applied(state, StudyClosed(3.0, 0))
    assert state.finished
    assert is_over(state, state.studies[0])
    assert job_of(state, 0).state == "done"


def test_a_study_that_was_handed_in_whole_still_has_its_tasks_together():
    state = applied(State(), StudyAdded(0.0, "a", [Step("x")], tasks=2), growing(), StepsAdded(0.0, 1, [Step("f")]))
    applied(state, TasksAdded(0.0, 0, [Task("x", 0)]), TasksAdded(0.0, 1, [Task("f", 1)], 1))
    with pytest.raises(CantleBug, match="after those of another"):
        state.apply(TasksAdded(0.0, 2, [Task("x", 0)]))


stretches = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=12)


@given(stretches)
def test_spans_number_both_ways(gaps: list[tuple[int, int]]) -> None:
    spans, mine, at = Spans(), [], 0
    for n, gap in gaps:
        spans.add(at, n)
        mine += range(at, at + n)
        at += n + gap
    assert list(spans) == mine
    assert list(reversed(spans)) == mine[::-1]
    assert len(spans) == len(mine)
    assert [spans.own_number(number) for number in mine] == list(range(len(mine)))
    assert [spans.number(own) for own in range(len(mine))] == mine
    assert [number for number in range(at + 2) if number in spans] == mine
    assert [number for stretch in spans.ranges() for number in stretch] == mine


arrivals = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4), st.booleans()),
    max_size=10,
)


@settings(max_examples=60)
@given(arrivals, st.integers(0, 100))
def test_each_of_two_growing_studies_sees_its_own_run(arrivals: list[tuple[int, list[float], bool]], seed: int) -> None:
    state, views = State(), Views()
    seen: dict[int, State] = {0: State(), 1: State()}

    class Log:
        def write(self, record: AnyRecord) -> None:
            for study, view in views.split(record):
                seen[study].apply(view)

        def flush(self) -> None:
            pass

    log = Log()

    def tell(record: AnyRecord) -> None:
        log.write(record)
        state.apply(record)

    tell(growing("a"))
    tell(growing("b"))
    world = SimulatedWorld(state, [(0.0, [Node("n", 2)])], lambda task, attempt: Fate(0.01), seed=seed, failures=0.2)
    decider = Decider()
    from cantle.runtime.loop import turn

    steps: dict[int, list[int]] = {0: [], 1: []}
    tasks: dict[int, list[int]] = {0: [], 1: []}
    for study, parents, new_step in arrivals:
        if new_step or not steps[study]:
            steps[study].append(len(state.steps))
            tell(StepsAdded(state.now, study, [Step(f"s{len(state.steps)}")]))
        first = len(state.tasks)
        own = tasks[study]
        batch = [
            Task(f"t{first + i}", steps[study][-1], (own[int(share * len(own))],) if own else ())
            for i, share in enumerate(parents)
        ]
        own += range(first, first + len(batch))
        tell(TasksAdded(state.now, first, batch, study))
        turn(state, world, log, decider, world.wait() if world._heap else [])
    tell(StudyClosed(state.now, 0))
    tell(StudyClosed(state.now, 1))
    turn(state, world, log, decider, [])
    while not state.finished:
        turn(state, world, log, decider, world.wait())
    for study, alone in seen.items():
        theirs = state.studies[study].tasks
        assert [task.name for task in alone.tasks] == [state.tasks[task].name for task in theirs]
        assert alone.phases == [state.phases[task] for task in theirs]
        assert [alone.step_of(n).name for n in range(len(alone.tasks))] == [state.step_of(n).name for n in theirs]
        assert alone.finished


def test_what_comes_after_the_failure_that_ends_all_is_skipped():
    first = [
        StudyAdded(0.0, "calls", [Step("f")], limits=Limits(fail_fast=True), grows=True),
        TasksAdded(0.0, 0, [Task("f", 0)]),
    ]
    state = applied(State(), *first, Refuse(1.0, 0, "it is too wide"))
    applied(state, TasksAdded(2.0, 1, [Task("g", 0), Task("h", 0, (1,))]), StudyClosed(2.0, 0))
    assert state.phases == [Phase.FAILED, Phase.SKIPPED, Phase.SKIPPED]
    assert state.cause_of[2] == "f failed, and --fail-fast was given"
    assert state.finished
