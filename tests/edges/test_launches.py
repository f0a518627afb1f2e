"""Attempts that start their ranks by a foreign program: what is left of them, what that program says, nodes that go."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from runner_rig import a_long_sleep, eventually, is_alive, rig, running_with, shell

from cantle.core.explain import explain
from cantle.core.state import State
from cantle.engines.launchers.diagnosis import diagnosis, tells_of_a_node
from cantle.model.records import (
    Launch,
    NodeLost,
    NodesJoined,
    RunStarted,
    StudyAdded,
    TaskEnded,
    TaskHindered,
    TasksAdded,
    TaskStarted,
)
from cantle.model.resources import Node, Place
from cantle.model.study import Command, Step, Task
from cantle.runner import heeding
from cantle.testing import Rig

TWO = (Node("a", 2), Node("b", 2))
ON_BOTH = (Place(0, "0"), Place(1, "0"))


def launching(script: str, **more: object) -> Command:
    return shell(script, launches=True, **more)


def hindrances(it: Rig) -> list[str]:
    """What kept launches from beginning, as it was told."""
    return [event.why for event in it.events if isinstance(event, TaskHindered)]


def a_rank_elsewhere(directory: Path, sleep: str, task: int = 1, attempt: int = 1) -> subprocess.Popen[bytes]:
    """A process that no runner started, as a launcher's daemon would start one for this attempt."""
    marks = {"CANTLE_RUN": str(directory), "CANTLE_TASK": str(task), "CANTLE_ATTEMPT": str(attempt)}
    return subprocess.Popen(sleep.split(), env={**os.environ, **marks}, start_new_session=True)


# What is left


@pytest.mark.parametrize("ends", ["exit 0", "exit 3", "kill -9 $$"])
def test_ranks_that_outlive_their_launch_are_ended_on_all_nodes(ends, tmp_path):
    with rig(tmp_path, *TWO) as it, a_rank_elsewhere(tmp_path, a_long_sleep(300)) as stray:
        it.launch(1, launching(ends), on=ON_BOTH)
        it.ended(1)
        assert stray.wait(10) == -signal.SIGKILL


def test_ranks_of_other_attempts_tasks_and_runs_stay(tmp_path):
    with rig(tmp_path, *TWO) as it:
        others = [
            a_rank_elsewhere(tmp_path, a_long_sleep(300), attempt=2),
            a_rank_elsewhere(tmp_path, a_long_sleep(300), task=2),
            a_rank_elsewhere(tmp_path / "other", a_long_sleep(300)),
        ]
        try:
            it.launch(1, launching("exit 0"), on=ON_BOTH)
            assert it.ended(1).outcome == "done"
            assert [other.poll() for other in others] == [None] * 3
        finally:
            for other in others:
                other.kill()
                other.wait()


def test_a_launch_on_one_node_is_cleared_up_as_well(tmp_path):
    with rig(tmp_path) as it, a_rank_elsewhere(tmp_path, a_long_sleep(300)) as stray:
        it.launch(1, launching("exit 0"))
        it.ended(1)
        assert stray.wait(10) == -signal.SIGKILL


def test_a_stopped_launch_is_over_when_nothing_of_it_is_left(tmp_path):
    with rig(tmp_path, *TWO) as it, a_rank_elsewhere(tmp_path, a_long_sleep(300)) as stray:
        it.launch(1, launching(a_long_sleep(300)), on=ON_BOTH)
        it.started(1)
        it.stop(1)
        assert it.ended(1).outcome == "canceled"
        assert stray.wait(10) == -signal.SIGKILL


def test_closing_tells_the_end_of_a_launch(tmp_path):
    it = rig(tmp_path, *TWO)
    sleep = a_long_sleep(300)
    it.launch(1, launching(sleep), on=ON_BOTH)
    it.started(1)
    it.close()
    assert [end.outcome for end in it.ends(1)] == ["interrupted"]
    assert not running_with(sleep)


def runners() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def test_a_launch_whose_other_node_goes_is_ended_and_lost_whatever_it_says(tmp_path):
    with rig(tmp_path, *TWO) as it:
        before = runners()
        it.launch(1, launching("trap 'exit 0' TERM; " + a_long_sleep(300)), on=ON_BOTH)
        pid = it.started(1).pid
        os.kill(before[-1], signal.SIGKILL)
        it.wait_for(lambda: any(isinstance(event, NodeLost) for event in it.events), "the loss was not told")
        assert it.ends(1) == []
        assert eventually(lambda: not is_alive(pid))


def test_what_a_launcher_reports_counts_only_once_all_nodes_are_heard_of(tmp_path):
    """srun exits with 0 while its node dies: success is not believed before the node has answered."""
    with rig(tmp_path, *TWO) as it:
        second = runners()[-1]
        os.kill(second, signal.SIGSTOP)
        try:
            it.launch(1, launching("exit 0"), on=ON_BOTH)
            stop = time.monotonic() + 1.5
            while time.monotonic() < stop:
                it.turn()
            assert it.ends(1) == []
        finally:
            os.kill(second, signal.SIGKILL)
        it.wait_for(lambda: any(isinstance(event, NodeLost) for event in it.events), "the loss was not told")
        assert it.ends(1) == []


def test_a_launch_may_follow_a_task_that_must_succeed(tmp_path):
    with rig(tmp_path) as it:
        it.launch(1, shell("exit 1"), cores="0")
        it.launch(2, launching("exit 0"), cores="0", behind=1, if_done=1)
        assert it.ended(2).outcome == "interrupted"


# What it says


def test_what_srun_says_reaches_the_failure(tmp_path):
    with rig(tmp_path) as it:
        says = "srun: error: Unable to create step for job 7: More processors requested than permitted"
        lines = "; ".join(f"echo line {n} >&2" for n in range(40))
        it.launch(1, launching(f"echo '{says}' >&2; {lines}; exit 1"))
        detail = it.ended(1).detail
        assert detail.startswith("Slurm refuses the step (More processors requested than permitted)")
        assert "exit code 1" in detail
        assert "line 39" in detail


def test_a_failing_node_is_not_the_tasks_fault(tmp_path):
    with rig(tmp_path) as it:
        it.launch(1, launching("echo 'srun: error: Node failure on node2' >&2; exit 137"))
        end = it.ended(1)
        assert end.outcome == "lost"
        assert end.detail.startswith("Slurm says that a node of the step failed (node2)")


def test_a_launch_that_does_not_begin_is_told_and_that_it_begins_after_all(tmp_path, monkeypatch):
    monkeypatch.setattr(heeding, "_FIRST_S", 0.1)
    waits = "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)"
    until = "until [ -e {} ]; do sleep 0.05; done"
    created = "echo 'srun: Step created for job 7' >&2"
    with rig(tmp_path) as it:
        it.launch(1, launching(f"echo '{waits}' >&2; {until.format('granted')}; {created}; {until.format('heard')}"))
        for n, file in enumerate(("granted", "heard"), 1):
            it.wait_for(lambda n=n: len(hindrances(it)) == n, "it was not told")
            (tmp_path / file).touch()
        assert it.ended(1).outcome == "done"
    begin, end = hindrances(it)
    assert begin.startswith("Slurm does not start the step yet (Requested nodes are busy)")
    assert end == ""


def test_a_launcher_that_waits_in_silence_is_told_and_that_it_has_begun(tmp_path, monkeypatch):
    """srun says nothing until Slurm has answered."""
    monkeypatch.setattr(heeding, "_FIRST_S", 0.1)
    srun = tmp_path / "srun"
    for name in ("granted", "heard"):  # to wait for who writes there takes no process of its own
        os.mkfifo(tmp_path / name)
    srun.write_text(f"#!/bin/bash\nread < {tmp_path}/granted\nsleep 300 &\nread < {tmp_path}/heard\nkill $!\n")
    srun.chmod(0o755)
    with rig(tmp_path) as it:
        it.launch(1, launching(f"{srun}; exit 0", launches_here=True))
        for n, file in enumerate(("granted", "heard"), 1):
            it.wait_for(lambda n=n: len(hindrances(it)) == n, "it was not told")
            (tmp_path / file).write_text("\n")
        assert it.ended(1).outcome == "done"
    begin, end = hindrances(it)
    assert begin.startswith("srun waits for Slurm to start the step")
    assert end == ""


def test_a_launcher_whose_ranks_are_elsewhere_is_not_taken_for_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(heeding, "_FIRST_S", 0.1)
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/bash\nread -t 1.5 <> <(:)\n")
    srun.chmod(0o755)
    with rig(tmp_path) as it:
        it.launch(1, launching(f"{srun}; exit 0"))
        it.ended(1)
        assert hindrances(it) == []


def test_output_that_tells_of_no_trouble_is_told_to_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(heeding, "_FIRST_S", 0.1)
    with rig(tmp_path) as it:
        it.launch(1, launching("echo 'all is well' >&2; sleep 1"))
        it.ended(1)
        assert hindrances(it) == []


@pytest.mark.parametrize(
    ("says", "means"),
    [
        ("srun: error: Node failure on n2", "a node of the step failed (n2)"),
        ("srun: Job 1 step creation temporarily disabled, retrying (Busy)", "does not start the step yet (Busy)"),
        ("srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.", "contradict"),
        ("srun: error: looking at all files\nsrun: error: cannot find mpi plugin for mpi/pmi9", "no such plug-in for MPI"),
        ("direct launched using srun, but\nOMPI was not built with SLURM's PMI support", "take mpirun"),
        ("ssh: Could not resolve hostname n9: Temporary failure in name resolution", "cannot find the host n9"),
        ("ssh: connect to host n3 port 22: No route to host", "cannot reach n3 by ssh (No route to host)"),
        ("Host key verification failed.\n-----\nORTE was unable to reliably start one or more daemons.", "host key"),
        ("root@n2: Permission denied (publickey).", "without a password"),
        ("Timeout, server n3 not responding.", "the connection to a node of the launch broke (n3)"),
        ("bash: line 1: orted: command not found\nORTE was unable to reliably start one", "daemon is not found"),
        ("There are not enough slots available in the system", "fewer slots"),
        ("ORTE was unable to reliably start one or more daemons.", "orted --version"),
        ("", ""),
        ("Segmentation fault", ""),
    ],
)  # fmt: skip
def test_what_launchers_say_is_understood(says, means):
    found = diagnosis(f"a line before\n{says}\na line after")
    assert means in found
    assert bool(found) == bool(means)


def test_whose_fault_it_is_can_be_told_of_what_was_made_of_it():
    assert tells_of_a_node(diagnosis("srun: error: Node failure on n2"))
    assert tells_of_a_node(diagnosis("ORTE has lost communication with a remote daemon."))
    assert not tells_of_a_node(diagnosis("ssh: connect to host n3 port 22: No route to host"))


def test_explain_says_why_the_ranks_do_not_begin():
    state = State()
    for record in (
        RunStarted(0.0, "r", "0", "h", 1),
        StudyAdded(0.0, "s", [Step("mpi")], tasks=1),
        TasksAdded(0.0, 0, [Task("mpi", 0)]),
        NodesJoined(0.0, [Node("a", 1)]),
        Launch(1.0, 0, 1, (Place(0, "0"),)),
        TaskStarted(2.0, 0, 1),
        TaskHindered(7.0, 0, 1, "Slurm does not start the step yet"),
    ):
        state.apply(record)
    assert "It has not begun: Slurm does not start the step yet." in explain(state, 0)[0]
    state.apply(TaskHindered(8.0, 0, 1))
    assert "have not begun" not in explain(state, 0)[0]
    state.apply(TaskHindered(9.0, 0, 1, "again"))
    state.apply(TaskHindered(9.0, 0, 2, "of another attempt"))
    assert state.hindered == {0: "again"}
    state.apply(TaskEnded(10.0, 0, 1, "done"))
    assert state.hindered == {}


def test_files_of_a_launch_are_written_where_it_begins(tmp_path):
    path = tmp_path / "step" / "step.launch.hosts"
    with rig(tmp_path) as it:
        it.launch(1, shell(f"cat {path}", files={str(path): "n1 slots=2\n"}))
        assert it.ended(1).outcome == "done"
    assert path.read_text() == "n1 slots=2\n"


def test_cantles_own_launcher_starts_all_ranks_with_what_they_need_to_meet(tmp_path):
    script = 'echo "$RANK of $WORLD_SIZE on $LOCAL_RANK at $MASTER_ADDR" >> ranks; sleep 0.2'
    with rig(tmp_path, *TWO) as it:
        on = (Place(0, "0-1"), Place(1, "0-1"))
        it.launch(1, shell(script, ranks=4, cores_each=1), on=on)
        assert it.ended(1).outcome == "done"
    lines = sorted((tmp_path / "ranks").read_text().splitlines())
    assert [line.split(" at ")[0] for line in lines] == ["0 of 4 on 0", "1 of 4 on 1", "2 of 4 on 0", "3 of 4 on 1"]
