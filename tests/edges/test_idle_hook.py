"""The user's command that hears of unused nodes: what it is given, and what becomes of one that fails or hangs."""

from __future__ import annotations

import threading
import time
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
        ("sleep 60 & echo $! > $PIDS; wait", 0.5, "longer than 0.5 s"),
    ],
)
def test_a_failure_is_told_once_and_leaves_nothing_that_runs(
    command: str, patience_s: float, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path / "pid"))
    notes: list[str] = []
    hook = IdleHook(command, notes.append, patience_s)
    hook.tell("cpu-1", "cpu", "")
    settle()
    hook.tell("cpu-2", "cpu", "")
    settle()
    [note] = notes
    assert why in note
    assert "cpu-1" in note
    assert not runs(tmp_path / "pid")


def runs(file: Path) -> bool:
    """Whether the process whose number stands in the file is there, and no corpse."""
    if not file.exists() or not file.read_text().strip():
        return False
    try:
        return Path(f"/proc/{file.read_text().strip()}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


def test_what_still_runs_when_the_run_is_over_may_end_and_is_killed_then(tmp_path: Path) -> None:
    notes: list[str] = []
    file, out = tmp_path / "pid", tmp_path / "out"
    brief = IdleHook(f"sleep 0.3; echo told > {out}", notes.append)
    brief.tell("cpu-1", "cpu", "")
    brief.close(60.0)
    assert out.read_text() == "told\n"
    long = IdleHook(f"sleep 60 & echo $! > {file}; wait", notes.append)
    long.tell("cpu-1", "cpu", "")
    while not file.exists() or not file.read_text():
        time.sleep(0.01)
    assert runs(file)
    long.close(0.1)
    settle()
    assert not runs(file)
    long.tell("cpu-2", "cpu", "")
    settle()
    assert "cpu-2" not in "".join(notes), "nothing begins any more"


def test_where_there_may_be_no_more_threads_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    notes: list[str] = []
    hook = IdleHook("true", notes.append)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    hook.tell("cpu-1", "cpu", "")
    hook.close()
    assert notes == ["--on-idle failed for cpu-1: can't start new thread; further failures are not told"]
