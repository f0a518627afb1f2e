"""What may a program hand in, and what does it mean in the run's numbers?"""

from __future__ import annotations

import pytest

from cantle.core.studies import StudyState
from cantle.model.records import StudyAdded
from cantle.model.resources import Needs
from cantle.model.study import Step, Task
from cantle.runtime.pilot.growing import Breach, Known, check_calls, check_steps, numbers_of, rows_of
from cantle.runtime.pilot.sitting_messages import NewTask, NewTasks

KNOWN = {"f"}


@pytest.fixture
def study() -> StudyState:
    """It has two steps, and three calls, of which another study's tasks stand in between."""
    made = StudyState(StudyAdded(0.0, "calls", [], "/somewhere", reader="python", grows=True))
    made.step_numbers.add(4, 2)
    made.tasks.add(10, 2)
    made.tasks.add(20, 1)
    return made


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (NewTasks(2, [NewTask("a", 0, "f")]), "from number 2 on, but 3 are known"),
        (NewTasks(4, [NewTask("a", 0, "f")]), "from number 4 on, but 3 are known"),
        (NewTasks(3, [NewTask("a", 2, "f")]), "is of step 2, and 2 are known"),
        (NewTasks(3, [NewTask("a", -1, "f")]), "is of step -1"),
        (NewTasks(3, [NewTask("a", 0, "g")]), "a function that was not handed in: 'g'"),
        (NewTasks(3, [NewTask("a", 0, "f", parents=(3,))]), "waits for call 3"),
        (NewTasks(3, [NewTask("a", 0, "f"), NewTask("b", 0, "f", after=(-1,))]), r"call 4 \(b\) waits for call -1"),
        (NewTasks(3, [NewTask("a", 0, "f", parents=(1,), takes=(0,))]), "not among its parents"),
        (NewTasks(3, [NewTask("a", 0, "f", takes=(9,))]), "not among its parents"),
        (NewTasks(3, [NewTask("a", 0, "f", estimate_s=float("nan"))]), "nan seconds"),
    ],
)
def test_calls_that_do_not_fit_are_told_apart(study: StudyState, message: NewTasks, why: str) -> None:
    with pytest.raises(Breach, match=why):
        check_calls(study, message, KNOWN)


def test_calls_that_fit_stand_in_the_runs_numbers(study: StudyState) -> None:
    calls = [NewTask("a", 1, "f", parents=(1, 2), takes=(2,)), NewTask("b", 0, "f", parents=(3,), after=(0,))]
    check_calls(study, NewTasks(3, calls), KNOWN)
    known: dict[int, Known] = {}
    rows = rows_of(calls, 30, study.tasks, study.step_numbers.number, known)
    assert rows == [Task("a", 5, (11, 20)), Task("b", 4, (30,), after=(10,))]
    assert known == {3: (calls[0], (20,)), 4: (calls[1], ())}


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Step("s", Needs(cores=-1)), "cores -1"),
        (Step("s", Needs(named=(("licence", -2),))), "licence -2"),
        (Step("s", Needs(nodes=0)), "0 nodes"),
        (Step("s", retries=-1), "retries -1"),
        (Step("s", widths=(2, 1)), "widths"),
        (Step("s", Needs(nodes=2), widths=(1, 2)), "widths"),
        (Step("s", widths=(1, 2), times_s=(3.0,)), "1 times for 2 widths"),
        (Step("s", priority=float("inf")), "priority of inf"),
        (Step("s", walltime_s=-1.0), "walltime of -1"),
    ],
)
def test_steps_that_no_node_could_ever_serve_are_told_apart(study: StudyState, step: Step, why: str) -> None:
    check_steps(study, [Step("good", Needs(nodes=2), widths=(2, 4), times_s=(4.0, 2.0))])
    with pytest.raises(Breach, match=why):
        check_steps(study, [Step("good"), step])


def test_who_has_said_that_it_leaves_hands_in_no_more(study: StudyState) -> None:
    study.grows = False
    with pytest.raises(Breach, match="after it said that it leaves"):
        check_steps(study, [Step("more")])
    with pytest.raises(Breach, match="after it said that it leaves"):
        check_calls(study, NewTasks(3, [NewTask("a", 0, "f")]), KNOWN)


def test_calls_that_are_spoken_of_have_to_be_known(study: StudyState) -> None:
    assert numbers_of(study, [0, 2]) == [10, 20]
    with pytest.raises(Breach, match="speaks of call 3, and 3 are known"):
        numbers_of(study, [1, 3])
