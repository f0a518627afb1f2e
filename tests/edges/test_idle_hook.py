"""The user's command that hears of unused nodes: what it is given, and what becomes of one that fails or hangs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cantle.runtime.idle_hook import IdleHook


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("idle "):
            thread.join(20)
            assert not thread.is_alive()


def test_it_is_told_which_node_and_why(tmp_path: Path) -> None:
    out = tmp_path / "out"
    notes: list[str] = []
    hook = IdleHook(f'echo "$CANTLE_NODE of $CANTLE_KIND: $CANTLE_WHY" >> {out}', notes.append)
    hook.tell("cpu-1", "cpu", "it has had no work for 3 s")
    settle()
    assert out.read_text() == "cpu-1 of cpu: it has had no work for 3 s\n"
    assert not notes


@pytest.mark.parametrize(
    ("command", "patience_s", "why"),
    [
        ("echo no such cloud >&2; exit 3", 20.0, "exit status 3, no such cloud"),
        ("exec sleep 60", 0.2, "longer than 0.2 s"),
    ],
)
def test_a_failure_is_told_once(command: str, patience_s: float, why: str) -> None:
    notes: list[str] = []
    hook = IdleHook(command, notes.append, patience_s)
    hook.tell("cpu-1", "cpu", "")
    settle()
    hook.tell("cpu-2", "cpu", "")
    settle()
    [note] = notes
    assert why in note
    assert "cpu-1" in note
