"""How long does a pilot know how to make a program's calls again, and when does it give up on a result?"""

from __future__ import annotations

from typing import Any

import pytest

from builders import Story, job, node
from cantle.core.phases import Phase
from cantle.errors import RequestError
from cantle.model.records import NodeLost, ResultsForgotten
from cantle.runtime.pilot.program_work import ProgramWork
from cantle.runtime.pilot.sitting_messages import NewTask
from cantle.runtime.pilot.sittings import all_have_taken

CHAIN = (job("a"), job("b", "a"), job("c", "b"))
TWO = tuple(node(f"n{i}", machine=f"m{i}") for i in range(2))


class Program(Story):
    """Calls a, b and c, each of which takes what the one before has made."""

    def __init__(self) -> None:
        super().__init__(*CHAIN, on=TWO)
        self.work = ProgramWork()
        for own, name in enumerate("abc"):
            self.work.calls[own] = (NewTask(name, 0, "f", file=f"/arguments/{name}"), ())

    def done(self, name: str, kept: int) -> None:
        self.decides()
        self.end(name, kept=kept)
        self.work.over(self.number_of[name], kept > 0)

    def forget(self, name: str) -> None:
        self.happens(ResultsForgotten(self._next(), [self.number_of[name]]))

    def tended(self) -> str:
        """Which calls are still known afterwards."""
        self.work.forget_unneeded(self.state, self.state.studies[0])
        return "".join("abc"[own] for own in sorted(self.work.calls))


def test_a_call_whose_small_result_is_here_need_not_be_made_again() -> None:
    program = Program()
    program.done("a", kept=0)
    assert program.tended() == "bc"
    assert program.work.let_go == [0]
    with pytest.raises(RequestError, match="not there any more"):
        program.work.command(0, 1, False, (), ())


def test_calls_are_known_as_long_as_they_or_those_who_took_them_may_have_to_be_made_again() -> None:
    program = Program()
    program.done("a", kept=100)
    assert program.tended() == "abc"
    program.done("b", kept=100)
    program.forget("a")
    assert program.tended() == "abc", "where b is lost, a has to be made again for it"
    program.done("c", kept=0)
    assert program.tended() == "ab", "b is wanted"
    assert program.work.let_go == [2]
    program.forget("b")
    assert program.tended() == ""
    assert program.work.let_go == [2, 1, 0]


def test_what_is_just_made_again_is_known() -> None:
    program = Program()
    program.done("a", kept=100)
    place = program.state.ran_on[0]
    program.happens(NodeLost(program._next(), place, "gone"))
    program.forget("a")
    assert program.state.attempts[0] == 1
    assert program.tended() == "abc"


def test_a_result_that_thousands_take_costs_little_whenever_one_of_them_is_over() -> None:
    class Phases(list[Phase]):
        looks = 0

        def __getitem__(self, task: Any) -> Any:
            self.looks += 1
            return super().__getitem__(task)

    story = Story(job("a"), *(job(f"b{i}", "a") for i in range(1000)), on=TWO)
    phases = story.state.phases = Phases([Phase.DONE, *[Phase.READY] * 1000])
    for task in range(1, 1001):
        phases[task] = Phase.DONE
        assert all_have_taken(story.state, 0) == (task == 1000)
    assert phases.looks < 3000, "three at each end, and all once"
