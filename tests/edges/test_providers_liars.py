"""A provider that breaks the rules, or breaks, is at fault by its name: its requests are answered, and the run goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cantle.allocations.local import LocalAllocation
from cantle.allocations.providers import checking, desk
from cantle.allocations.providers.base import Answers, Asked
from cantle.allocations.providers.elastic import ElasticAllocation
from cantle.errors import PluginError
from cantle.model.kinds import Kind
from cantle.model.records import Event, RequestAnswered
from cantle.model.resources import Node
from cantle.runtime.inbox import SelectInbox

CPU = Kind("cpu", 1)
WAIT_S = 60.0


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("not even that")


class Liar:
    """Does in `add` what the test says, and in `tend` whatever `tends` does."""

    invites = False

    def __init__(self, does: Callable[[Answers, Asked], Any], tends: Callable[[], float] = lambda: math.inf) -> None:
        self.kind = CPU
        self.undo: dict[str, str] = {}
        self._does = does
        self._tends = tends

    def add(self, asked: Asked, answers: Answers) -> None:
        self._does(answers, asked)

    def withdraw(self, request: int, n: int) -> int:
        return n

    def remove(self, node: Node, instance: str) -> None:
        pass

    def tend(self) -> float:
        return self._tends()

    def close(self) -> None:
        pass


class Rig:
    def __init__(self, provider: Liar, folder: Path) -> None:
        self.inbox = SelectInbox()
        self.allocation = ElasticAllocation(None, [provider], LocalAllocation(grows=True))
        self.allocation.house(folder, folder / "fleet")
        self.allocation.open(self.inbox)
        self.events: list[Event] = []

    def answer(self) -> RequestAnswered:
        """What became of the request, once none of its nodes is on its way any more."""
        self.allocation.request(0, "cpu", 2)
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            self.events += self.inbox.wait(0.05)
            for event in self.events:
                if isinstance(event, RequestAnswered) and not event.coming:
                    return event
        raise AssertionError(f"it was never answered: {self.events}")


@pytest.fixture
def of(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(does: Callable[[Answers, Asked], Any], tends: Callable[[], float] = lambda: math.inf) -> Rig:
        made.append(Rig(Liar(does, tends), tmp_path))
        return made[-1]

    yield make
    for rig in made:
        rig.allocation.close()
        rig.inbox.close()


def _exit(_answers: Answers, _asked: Asked) -> None:
    raise SystemExit(3)


def _speechless(_answers: Answers, _asked: Asked) -> None:
    raise Speechless


ODD: Any = 3.5
BAD_NODE = Node("a", -3, kind="cpu")
ELSEWHERE = Node("a", 1, kind="gpu")
GOOD = Node("a", 1, kind="cpu")


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (_exit, "SystemExit: 3"),
        (_speechless, "Speechless: its text cannot be told: str() raised ValueError"),
        (lambda answers, asked: answers.refused(asked.number, -3, "no"), "n is -3, which is no number of nodes"),
        (lambda answers, asked: answers.refused(asked.number, True, "no"), "n is True, which is no number of nodes"),
        (lambda answers, asked: answers.refused(asked.number, ODD, "no"), "n is 3.5, which is no number of nodes"),
        (lambda answers, asked: answers.refused(asked.number, 2, ODD), "why is 3.5, which is no text"),
        (lambda answers, asked: answers.refused(7, 2, "no"), "there is no request 7 for nodes of kind cpu"),
        (lambda answers, asked: answers.refused(True, 2, "no"), "there is no request True for nodes of kind cpu"),
        (lambda answers, asked: answers.waits(asked.number, "soon", math.nan), "expected_at is nan, which is no time"),
        (lambda answers, asked: answers.handed_out(asked.number, "a\nb"), r"'a\nb' cannot be the name of anything"),
        (lambda answers, asked: answers.arrived(asked.number, []), "arrived() was told of no nodes"),
        (lambda answers, asked: answers.arrived(asked.number, [ODD]), "3.5 is no cantle.model.resources.Node"),
        (lambda answers, asked: answers.arrived(asked.number, [BAD_NODE]), "the node a (-3 cores) cannot be"),
        (lambda answers, asked: answers.arrived(asked.number, [ELSEWHERE]), "the node a is of kind gpu, and cpu was"),
        (lambda answers, asked: answers.arrived(asked.number, [GOOD, GOOD]), "there is a node a already"),
        (lambda answers, asked: answers.note(ODD), "note is 3.5, which is no text"),
    ],
)
def test_what_it_may_not_say_is_its_fault_and_its_nodes_do_not_come(
    does: Callable[[Answers, Asked], Any], said: str, of: Callable[..., Rig]
) -> None:
    answer = of(does).answer()
    assert answer.refused == 2
    assert answer.detail.startswith(f"its provider broke: {said}")


def _ends(_kind: Kind) -> None:
    raise SystemExit(4)


class Other(Liar):
    def __init__(self, _kind: Kind) -> None:
        super().__init__(lambda _answers, _asked: None)
        self.kind = Kind("gpu", 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_ends, "it cannot be made for kind cpu: SystemExit: 4"),
        (5, "it cannot be made for kind cpu: TypeError: 'int' object is not callable"),
        (lambda _kind: None, "None is no provider: it has no kind, invites, undo, add, withdraw, remove, tend, close"),
        (Other, "its `kind` is gpu, and not the cpu that it was given"),
    ],
)
def test_what_is_no_provider_is_told_by_its_name_before_anything_begins(make: Any, said: str) -> None:
    with pytest.raises(PluginError) as told:
        checking.provider("theirs:it", make, CPU)
    assert str(told.value) == f"provider theirs:it: {said}"


def test_a_reason_that_cannot_be_written_down_is_told_all_the_same(of: Callable[..., Rig]) -> None:
    answer = of(lambda answers, asked: answers.refused(asked.number, 2, "full\udc80\nup")).answer()
    assert answer.detail == r"full\udc80 up"


def test_who_breaks_again_and_again_while_it_tends_its_nodes_is_given_up_and_those_on_their_way_do_not_come(
    of: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "MOST_FAULTS", 2)

    def tends() -> float:
        raise SystemExit("enough")

    rig = of(lambda answers, asked: None, tends)
    answer = rig.answer()
    assert (answer.refused, answer.detail) == (2, "its provider broke: SystemExit: enough, 2 times in a row")
    assert rig.allocation.notes == ["kind cpu: its provider broke: SystemExit: enough"]
    rig.allocation.request(1, "cpu", 1)
    [later] = [event for event in rig.inbox.wait(1.0) if isinstance(event, RequestAnswered)]
    assert (later.request, later.refused) == (1, 1)
