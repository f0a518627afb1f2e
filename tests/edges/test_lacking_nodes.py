"""What a program is told of nodes that do not come, and whoever begins a daemon of one that ended at once."""

from __future__ import annotations

import os
from pathlib import Path
from time import time

import pytest

from cantle.cli.daemon import Herald, go_on_without_terminal
from cantle.core.state import State
from cantle.errors import MachineError
from cantle.model.kinds import Kind
from cantle.model.records import KindsDeclared, NodesWished, RequestAnswered, RequestNodes
from cantle.runtime.pilot.lacking import WAITS_S, OfNodes


def asked(*answers: tuple[int, int, str], ago_s: float = 0.0, starts_in_s: float = 0.0) -> State:
    """Two nodes of a kind were asked for, that long ago; of the request so many come, so many do not, and why."""
    state, then = State(), time() - ago_s
    state.apply(KindsDeclared(then, [Kind("cpu", 4, most=8, starts_in_s=starts_in_s)]))
    state.apply(RequestNodes(then, "cpu", 2, "a test wants them"))
    for coming, refused, why in answers:
        state.apply(RequestAnswered(then, 0, coming, refused, why))
    return state


def test_each_refusal_is_told_once_with_its_reason() -> None:
    told = OfNodes()
    state = asked((1, 1, "one host is full"))
    assert [note.text for note in told(state)] == ["1 node of kind cpu refused: one host is full"]
    assert told(state) == []
    state.apply(RequestAnswered(time(), 0, 0, 2, "the other one too"))
    assert [note.text for note in told(state)] == [
        "1 node of kind cpu refused: the other one too; it is asked for again in 10 s"
    ]


def test_a_request_that_waits_for_long_is_told_once_with_what_is_said_of_it() -> None:
    told = OfNodes()
    assert told(asked((2, 0, "job 7: pending (Priority)"))) == [], "it was asked for this very moment"
    late = asked((2, 0, "job 7: pending (Priority)"), ago_s=WAITS_S + 1)
    assert [note.text for note in told(late)] == ["still waiting for 2 nodes of kind cpu: job 7: pending (Priority)"]
    assert told(late) == []


def test_a_function_that_cannot_say_how_many_nodes_it_wants_is_told_once() -> None:
    told, state = OfNodes(), State()
    state.apply(KindsDeclared(1.0, [Kind("cpu", 4)]))
    state.apply(NodesWished(2.0, "", None, "mine:wish", problem="it raised KeyError"))
    assert [note.text for note in told(state)] == [
        "mine:wish could not say how many nodes it wants: it raised KeyError"
    ]
    assert told(state) == []


def test_as_long_as_nodes_are_not_late_nothing_is_told() -> None:
    assert OfNodes()(asked((2, 0, "they are starting"), ago_s=WAITS_S + 1, starts_in_s=600.0)) == []
    assert OfNodes()(State()) == []


def test_a_daemon_that_ends_at_once_is_told_of_by_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("from an earlier one\n")

    def life(_herald: Herald) -> int:
        os.write(1, b"no room for me\n")
        return 3

    with pytest.raises(MachineError, match=r"it ended at once; its last words:\nno room for me$"):
        go_on_without_terminal(log, life)
