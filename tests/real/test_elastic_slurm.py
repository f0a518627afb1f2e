"""Nodes from a real Slurm that come and go while a run goes on; and nothing in its queue afterwards, however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until
from growing_rig import Happened, together, waits_for

from cantle.core.state import State
from cantle.model.records import NodeReleased, NodesJoined, RequestAnswered
from cantle.store.journal import read
from cantle.store.layout import Layout

CPU = "cpu: {cores: 2, max: 1, provider: slurm, lasts: 10 min}"
TWO = "cpu: {cores: 2, max: 2, provider: slurm, lasts: 10 min}"
LATER = "cpu: {cores: 2, max: 1, provider: slurm, lasts: 10 min, args: --begin=now+600}"
"""Its jobs wait in the queue."""


class Place:
    """A directory that all nodes see, in which one stands."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        self.cluster = cluster
        self.path = path
        self.out = path / "out"

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A command; the nodes of its run go as soon as they have nothing to do."""
        hasty = ("--scaling", "demand", "--scaling", "idle=0", "--scaling", "cool-down=0") if "--kinds" in words else ()
        return subprocess.Popen(
            [sys.executable, "-m", "cantle", *words, *hasty], cwd=self.path, env=self.cluster.env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def cantle(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.begin(*words)
        said = self.ended(process)
        return subprocess.CompletedProcess(words, process.returncode, said, "")

    def ended(self, process: subprocess.Popen[str]) -> str:
        """What it said, when it is over."""
        said, _ = process.communicate(timeout=PATIENCE_S)
        print(said)
        return said

    def jobs(self) -> list[str]:
        """Our jobs that are not over, by number."""
        asked = ["squeue", "--noheader", "--format=%i %j"]
        return [line.split()[0] for line in self.cluster.slurm(asked).stdout.splitlines() if "cantle-" in line]

    def has_said(self, kind: type) -> bool:
        journal = Layout(self.out).journal
        return journal.exists() and any(isinstance(record, kind) for record in read(journal))

    def state(self) -> State:
        state = State()
        for record in read(Layout(self.out).journal):
            state.apply(record)
        return state

    def left(self) -> list[Path]:
        """What stands on record as something that may have to be taken back."""
        return list(Layout(self.out).elastic.glob("*.json"))


@pytest.fixture
def place(cluster: Cluster, shared_path: Path) -> Place:
    return Place(cluster, shared_path)


def test_nodes_come_as_jobs_work_and_leave_nothing_in_the_queue(place: Place) -> None:
    command = together(place.path, 3) + "sleep 0.2; echo {}"
    done = place.cantle("map", command, "--range", "1-12", "-o", "out", "--kinds", TWO)
    assert done.returncode == 0
    happened = Happened(place.out)
    assert happened.done() == dict.fromkeys(range(12), 1)
    assert happened.asked() == {"cpu": 2}
    assert [node.kind for node in happened.nodes] == ["cpu", "cpu"]
    assert all(node.ends_at for node in happened.nodes), "a node knows when its job ends"
    assert {record.request for record in happened.of(NodesJoined)} == {0}
    assert wait_until(lambda: not place.jobs(), every=0.2)
    assert place.left() == []


def test_a_job_that_waits_is_on_its_way_with_slurms_reason(place: Place) -> None:
    process = place.begin("map", "echo", "--range", "1-2", "-o", "out", "--kinds", LATER)
    try:
        assert wait_until(lambda: place.has_said(RequestAnswered))
        assert wait_until(
            lambda: any("BeginTime" in record.detail for record in Happened(place.out).of(RequestAnswered))
        )
        answers = [r for r in Happened(place.out).of(RequestAnswered) if "BeginTime" in r.detail]
        assert answers[-1].coming == 1 and not answers[-1].refused
        assert len(place.jobs()) == 1
    finally:
        process.send_signal(signal.SIGINT)
        place.ended(process)
    assert process.returncode == 3, "Ctrl-C"
    assert place.jobs() == [], "jobs that waited were canceled before the conductor left"
    assert place.left() == []


def test_a_job_that_slurm_refuses_is_told_in_its_words(place: Place) -> None:
    wrong = "cpu: {cores: 2, max: 1, provider: slurm, queue: nosuch}"
    go = place.path / "go"
    words = ("map", waits_for(go) + "echo {}", "--range", "1-3", "-o", "out", "--kinds", wrong, "--cores", "1")
    process = place.begin(*words)
    try:
        assert wait_until(lambda: place.has_said(RequestAnswered))
    finally:
        go.touch()
        place.ended(process)
    assert process.returncode == 0, "this machine serves as well"
    answer = Happened(place.out).of(RequestAnswered)[0]
    assert answer.refused == 1 and not answer.coming and "invalid partition" in answer.detail.lower()


def test_ctrl_c_while_tasks_run_ends_the_jobs(place: Place) -> None:
    process = place.begin("map", "sleep 600; echo", "--range", "1-2", "-o", "out", "--kinds", CPU)
    try:
        assert wait_until(lambda: place.has_said(NodesJoined))
    finally:
        process.send_signal(signal.SIGINT)
        place.ended(process)
    assert process.returncode == 3
    assert wait_until(lambda: not place.jobs(), every=0.2)
    assert place.left() == []


def killed_before_its_job_began(place: Place) -> None:
    process = place.begin("map", "echo", "--range", "1-2", "-o", "out", "--kinds", LATER)
    try:
        assert wait_until(place.jobs, every=0.2)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        place.ended(process)


def test_killed_before_its_job_began_a_run_is_resumed_and_leaves_none_in_the_queue(place: Place) -> None:
    killed_before_its_job_began(place)
    [job] = place.jobs()
    assert place.left()
    done = place.cantle("resume", "out", "--kinds", CPU)
    assert done.returncode == 0
    assert f"job {job} canceled, left by an earlier conductor" in done.stdout
    happened = Happened(place.out)
    assert happened.done() == {0: 1, 1: 1}
    assert happened.asked() == {"cpu": 2}, "what was asked of the dead conductor is asked anew, once"
    assert wait_until(lambda: not place.jobs(), every=0.2)
    assert place.left() == []


def test_killed_before_its_job_began_a_run_is_canceled_with_its_job(place: Place) -> None:
    killed_before_its_job_began(place)
    done = place.cantle("cancel", "out", "-y")
    assert done.returncode == 0 and "canceled" in done.stdout
    assert place.jobs() == [] and place.left() == []
    assert place.cantle("cancel", "out", "-y").returncode == 1, "now there is nothing to cancel"


def test_killed_while_its_nodes_work_a_run_leaves_jobs_that_end_by_themselves(place: Place) -> None:
    process = place.begin("map", "sleep 600; echo", "--range", "1-2", "-o", "out", "--kinds", CPU, "--silence", "4")
    try:
        assert wait_until(lambda: place.has_said(NodesJoined))
    finally:
        os.kill(process.pid, signal.SIGKILL)
        place.ended(process)
    assert wait_until(lambda: not place.jobs(), every=0.2), "the runner heard no conductor, and its job ended"


def test_a_job_of_several_nodes_gives_a_single_one_back_while_the_other_works(place: Place) -> None:
    block = "cpu: {cores: 1, provider: slurm, lasts: 10 min, block: 2, whole_nodes: true}"
    go = place.path / "go"
    command = "test {} = 1 || exit 0; " + waits_for(go)
    process = place.begin("map", command, "--range", "1-2", "-o", "out", "--kinds", block)
    try:
        assert wait_until(lambda: place.has_said(NodeReleased))
        [job] = place.jobs()
        happened = Happened(place.out)
        [released] = happened.of(NodeReleased)
        node = happened.nodes[released.node]
        held = ["squeue", "--noheader", f"--jobs={job}", "--format=%D"]
        if node.machine == min(node.machine for node in happened.nodes):
            assert place.cluster.slurm(held).stdout.strip() == "2", (
                "Slurm does not let a job go on without its first node"
            )
        else:
            assert wait_until(lambda: place.cluster.slurm(held).stdout.strip() == "1", every=0.2)
    finally:
        go.touch()
        said = place.ended(process)
    assert process.returncode == 0
    assert Happened(place.out).done() == {0: 1, 1: 1}
    assert ("until all of its 2 nodes are given back" in said) == (
        node.machine == min(n.machine for n in happened.nodes)
    )
    assert wait_until(lambda: not place.jobs(), every=0.2)
