"""To which attempt does a runner count a process whose parent died, and what if that process is just in `exec`?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from runner_rig import a_long_sleep, rig, running_with, shell, sleeping

from cantle.runner import processes, reaping

AROUND = """
import os, subprocess, types
from cantle.runner import family as family_module, processes
from cantle.runner.family import Attempt, Family
from cantle.runner.spawn import Output

look = processes.environment
leader = subprocess.Popen(["sleep", "300"])
family = Family()
attempt = Attempt((7, 1, 2, 4), leader.pid, Output(), 0.0, 0)
family.add(attempt)
marks = {"RUNNER": os.getpid(), "TASK": 4, "ATTEMPT": 1, "FIRST": 3, "STREAM": 2, "STREAMS": 4}

def left(**others):
    env = {f"CANTLE_{name}": str(value) for name, value in {**marks, **others}.items()}
    process = subprocess.Popen(["sleep", "301"], env=env)
    while not look(process.pid):
        pass
    return process

def lives(process):
    return process.poll() is None

try:
    CASE
finally:
    for pid in processes.children(os.getpid()):
        os.kill(pid, 9)
"""
CASES = {
    "what its environment says": """
    stray = left()
    family.adopt()
    assert attempt.strays == {stray.pid} and lives(stray)
    """,
    "nothing that is over": """
    stray = left(TASK=5)
    family.adopt()
    assert stray.wait(10) == -9 and not attempt.strays
    """,
    "what one look says, though the next would find it in exec": """
    stray = left()
    answers = [look(stray.pid)]
    processes.environment = lambda pid: answers.pop() if answers else None
    family.adopt()
    assert attempt.strays == {stray.pid} and lives(stray)
    """,
    "what a later look says, if it was in exec, and until then nobody can say that its attempt is over": """
    stray = left()
    processes.environment = lambda pid: None
    family.adopt()
    assert lives(stray) and not attempt.strays and family.may_have_more(attempt)
    processes.environment = look
    family.adopt()
    assert attempt.strays == {stray.pid} and lives(stray) and not family.may_have_more(attempt)
    """,
    "what is being ended, and hears it, if it was in exec when the others heard it": """
    stray = left()
    processes.environment = lambda pid: None
    family.adopt()
    attempt.outcome = "canceled"
    assert lives(stray)
    processes.environment = look
    family.adopt()
    assert stray.wait(10) == -15
    """,
    "nothing that is over, if it was in exec": """
    stray = left(TASK=5)
    processes.environment = lambda pid: None
    family.adopt()
    assert lives(stray)
    processes.environment = look
    family.adopt()
    assert stray.wait(10) == -9
    """,
    "any that ran then, if it has no environment": """
    stray = subprocess.Popen(["sleep", "301"], env={})
    while look(stray.pid) != {}:
        pass
    family.adopt()
    assert not family.may_have_more(attempt) and lives(stray)
    leader.kill()
    leader.wait()
    attempt.status, family.alive = 9, 0
    family.drop(attempt)
    assert stray.wait(10) == -9
    """,
    "any that ran then, if it seems to be in exec all the time, and is not looked at for ever": """
    stray = left()
    asked = []
    processes.environment = lambda pid: asked.append(pid)
    clock = [100.0]
    family_module.time = types.SimpleNamespace(monotonic=lambda: clock[0])
    family.adopt()
    family.adopt()
    assert len(asked) == 2
    clock[0] += 3
    family.adopt()
    family.adopt()
    assert len(asked) == 3 and lives(stray)
    leader.kill()
    leader.wait()
    attempt.status, family.alive = 9, 0
    family.drop(attempt)
    assert stray.wait(10) == -9
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_a_stray_is_counted_to(case: str) -> None:
    code = AROUND.replace("    CASE", CASES[case].strip("\n"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.real
def test_a_task_that_left_something_in_exec_is_told_as_over_when_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, seen = processes.environment, list[int]()

    def at_first_in_exec(pid: int) -> dict[bytes, bytes] | None:
        seen.append(pid)
        return look(pid) if seen.count(pid) > 1 else None

    monkeypatch.setattr(processes, "environment", at_first_in_exec)
    monkeypatch.setattr(reaping, "_SWEEP_S", 10_000.0)
    left = a_long_sleep(320)
    with rig(tmp_path) as r:
        r.launch(1, shell("until [ -e never ]; do sleep 0.05; done"))  # it is suspected as well
        r.started(1)
        r.launch(0, shell(f"(setsid {left} &); until [ -e go ]; do sleep 0.05; done"))
        r.wait_for(lambda: len(sleeping(left)) == 1, "it did not begin")
        (tmp_path / "go").touch()
        assert r.ended(0).outcome == "done"
        assert not running_with(left)
        assert not r.ends(1)
