"""What is a program answered that asks for a result which cannot be had at once?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cantle.core.phases import FINAL, Phase
from cantle.engines.calls import Result
from cantle.model.records import ResultsLost
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.pilot import fetching
from cantle.runtime.pilot.fetching import Fetching
from cantle.runtime.pilot.sitting_messages import Fetched


class Line:
    def __init__(self) -> None:
        self.over = False
        self.said: list[Any] = []

    def say(self, messages: list[Any]) -> None:
        self.said += messages


class State:
    def __init__(self) -> None:
        self.phases = {5: Phase.DONE}
        self.attempts = {5: 1}
        self.cause_of: dict[int, str] = {}


class Calls:
    def __init__(self) -> None:
        self.result: Result | None = None
        self.problem = ""
        self.asked = 0

    def result_of(self, task: int) -> Result | None:
        return self.result

    def bring(self, task: int, then: Any) -> None:
        self.asked += 1
        then("" if self.problem or self.result is None else self.result.path, self.problem)


class Rig:
    def __init__(self) -> None:
        self.state, self.calls, self.line, self.inbox = State(), Calls(), Line(), SelectInbox()
        self.fetching = Fetching(self.state, self.calls, self.inbox)  # type: ignore[arg-type]

    def ask(self) -> list[Any]:
        self.fetching.ask(self.line, 2, 5)  # type: ignore[arg-type]
        return self.line.said

    def step(self) -> list[Any]:
        if self.state.phases[5] in FINAL:
            self.fetching.over([5])
        self.fetching.step()
        return self.line.said


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.inbox.close()


@pytest.fixture
def kept(tmp_path: Path) -> Result:
    (tmp_path / "kept").write_bytes(b"value")
    return Result(5, 1, None, 5, 0, str(tmp_path / "kept"))


def test_what_is_here_is_told_at_once(rig: Rig, kept: Result) -> None:
    rig.calls.result = kept
    assert rig.ask() == [Fetched(2, path=kept.path)]
    rig.calls.result = Result(5, 1, b"small", 5, 0)
    assert rig.ask()[1:] == [Fetched(2, b"small")]
    rig.step()
    assert len(rig.line.said) == 2


def test_who_asks_while_it_is_made_again_is_answered_then(rig: Rig, kept: Result) -> None:
    rig.state.phases[5] = Phase.RUNNING
    rig.ask()
    assert rig.step() == []
    rig.state.phases[5], rig.state.attempts[5], rig.calls.result = Phase.DONE, 2, kept
    assert rig.step() == [Fetched(2, path=kept.path)]


def test_a_file_that_is_not_there_is_told_as_lost_and_the_next_one_is_the_answer(
    rig: Rig, kept: Result, tmp_path: Path
) -> None:
    rig.calls.result = Result(5, 1, None, 5, 3, str(tmp_path / "gone"))
    assert rig.ask() == []
    [lost] = rig.inbox.wait(0)
    assert isinstance(lost, ResultsLost)
    assert (lost.tasks, lost.node) == ([5], 3)
    assert rig.step() == []
    rig.state.attempts[5], rig.calls.result = 2, kept
    assert rig.step() == [Fetched(2, path=kept.path)]


def test_what_cannot_be_made_again_is_the_answer_with_its_reason(rig: Rig) -> None:
    rig.calls.problem = "its node is gone"
    rig.ask()
    rig.state.phases[5], rig.state.cause_of[5] = Phase.FAILED, "lost 6 times"
    [fetched] = rig.step()
    assert "lost 6 times" in fetched.problem
    assert rig.step() == [fetched]


def test_what_cannot_be_brought_and_is_not_lost_is_tried_again_and_then_told(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PATIENCE_S", -1.0)
    rig.calls.problem = "no space left"
    rig.ask()
    assert rig.step() == []
    assert rig.step() == [Fetched(2, problem="no space left")]
    assert rig.calls.asked == 2


def test_a_program_that_has_gone_is_answered_no_more(rig: Rig) -> None:
    rig.state.phases[5] = Phase.RUNNING
    rig.ask()
    rig.line.over, rig.state.phases[5] = True, Phase.FAILED
    rig.step()
    rig.line.over = False
    assert rig.step() == []


def test_who_waits_for_what_is_still_made_again_keeps_his_place_and_costs_nothing_meanwhile(
    rig: Rig, kept: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Phases(dict[int, Phase]):
        looks = 0

        def __getitem__(self, task: int) -> Phase:
            self.looks += 1
            return super().__getitem__(task)

    phases = rig.state.phases = Phases(dict.fromkeys(range(1000), Phase.RUNNING))
    rig.state.attempts = dict.fromkeys(range(1000), 1)
    for task in range(1000):
        rig.fetching.ask(rig.line, task, task)  # type: ignore[arg-type]
    phases.looks = 0
    for _ in range(50):
        rig.fetching.step()
    assert phases.looks == 0, "nobody's patience is over, and no task"
    phases[7], rig.calls.result = Phase.DONE, kept
    rig.fetching.over([7, 1007])
    rig.fetching.step()
    assert rig.line.said == [Fetched(7, path=kept.path)]
    assert phases.looks < 10
    monkeypatch.setattr(fetching, "PATIENCE_S", -1.0)
    rig.fetching.step()
    assert len(rig.line.said) == 1, "however long it takes, it is not refused"
    phases[8] = Phase.FAILED
    rig.fetching.step()
    assert "could not be made again" in rig.line.said[1].problem


def test_who_asks_for_what_failed_when_it_was_made_again_is_told_so_in_the_next_turn(rig: Rig) -> None:
    rig.state.phases[5] = Phase.FAILED
    assert rig.ask() == []
    rig.fetching.step()
    [fetched] = rig.line.said
    assert "could not be made again" in fetched.problem
