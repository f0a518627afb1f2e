"""Partitions of a run that goes on, asked for from another shell, on logical nodes with runners of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cantle.model.records import AnyRecord, Launch, NodeLost, PartitionStarted, TaskEnded, TaskStarted
from cantle.report.loading import load
from cantle.store.journal import read
from cantle.store.layout import Layout

pytestmark = pytest.mark.real

CANTLE = [sys.executable, "-m", "cantle"]
STUDY = """
description: {name: held, description: tasks that end when somebody makes a file}
study:
- name: work
  description: waits
  run: {cmd: "until [ -e TOP/go-$(N) ]; do sleep 0.02; done; echo $CANTLE_PARTITION"}
global.parameters:
  N: {values: [1, 2, 3], label: N.%%}
"""


class GoingRun:
    """A run whose tasks end when they are told to."""

    def __init__(self, top: Path, study: str, nodes: str, quiet: bool = True) -> None:
        self.top = top
        self.directory = top / "out"
        (top / "study.yaml").write_text(study.replace("TOP", str(top)))
        self.told = top / "told"
        with self.told.open("w") as told:
            command = [*CANTLE, "run", "study.yaml", "-o", "out", "--nodes", nodes, *(["-q"] if quiet else [])]
            self.process = subprocess.Popen(command, cwd=top, stdout=told, stderr=told)

    def records(self) -> list[AnyRecord]:
        try:
            return list(read(Layout(self.directory).journal))
        except Exception:  # noqa: BLE001 - it may not be there yet
            return []

    def until(self, happened: Callable[[list[AnyRecord]], bool], timeout_s: float = 120.0) -> list[AnyRecord]:
        stop = time.monotonic() + timeout_s
        while time.monotonic() < stop:
            records = self.records()
            if happened(records):
                return records
            assert self.process.poll() is None, self.told.read_text()
            time.sleep(0.02)
        raise AssertionError(f"it has not happened: {self.records()[-10:]}")

    def until_running(self, n: int) -> None:
        self.until(lambda _: Layout(self.directory).exists() and len(load(self.directory).state.running) == n)

    def go(self, *numbers: int) -> None:
        for number in numbers:
            (self.top / f"go-{number}").touch()

    def partition(self, *words: str) -> subprocess.CompletedProcess[str]:
        action, *rest = words
        return subprocess.run(
            [*CANTLE, "partition", action, str(self.directory), *rest], capture_output=True, text=True, timeout=200
        )

    def listed(self) -> list[dict[str, object]]:
        told = self.partition("list", "--json")
        assert told.returncode == 0, told.stderr
        return [json.loads(line) for line in told.stdout.splitlines()]


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Callable[..., GoingRun]]:
    begun: list[GoingRun] = []

    def begin(study: str = STUDY, nodes: str = "4x1", quiet: bool = True) -> GoingRun:
        begun.append(GoingRun(tmp_path, study, nodes, quiet))
        return begun[-1]

    yield begin
    for run in begun:
        run.process.kill()
        run.process.wait()


def test_a_partition_is_made_resized_and_drained_while_others_run(going: Callable[..., GoingRun]) -> None:
    run = going()
    run.until_running(3)
    made = run.partition("create", "side", "--nodes", "1", "--wait")
    assert (made.returncode, made.stdout) == (0, "side: ACTIVE on node4\n"), made.stderr
    run.go(1)
    assert run.until(lambda records: sum(type(r) is TaskEnded for r in records) == 1)
    assert run.partition("resize", "side", "2", "--wait").returncode == 0
    (facts,) = run.listed()
    assert (facts["state"], facts["width"], len(facts["nodes"])) == ("ACTIVE", 2, 2)  # type: ignore[arg-type]
    never = run.partition("resize", "side", "99", "--wait")
    assert (never.returncode, "side wants 99 nodes" in never.stderr) == (1, True), never.stderr
    assert run.partition("drain", "side").returncode == 0
    run.until(lambda _: run.listed()[0]["state"] == "DONE")
    run.go(2, 3)
    assert run.process.wait(120) == 0


def test_what_is_asked_wrongly_is_told_with_what_there_is(going: Callable[..., GoingRun]) -> None:
    run = going()
    run.until_running(3)
    assert run.partition("create", "side").returncode == 0
    twice = run.partition("create", "side")
    assert (twice.returncode, "already" in twice.stderr) == (1, True)
    missing = run.partition("drain", "other")
    assert "no partition of held is called 'other'; there are side" in missing.stderr
    never = run.partition("create", "wide", "--nodes", "9", "--wait")
    assert never.returncode == 1
    assert "wants 9 nodes" in never.stdout
    assert run.partition("create", "x", "--gpus", "1").returncode == 1
    run.go(1, 2, 3)
    assert run.process.wait(120) == 0
    assert "is over" in run.partition("create", "late").stderr


def test_sizes_and_names_that_cannot_be_are_told_at_once(going: Callable[..., GoingRun]) -> None:
    run = going()
    run.until_running(3)
    assert run.partition("create", "side", "--wait").returncode == 0
    wide = run.partition("resize", "side", "99")
    assert (wide.returncode, "wants 99 nodes" in wide.stderr) == (1, True)
    for name in ("", "../x", "a b"):
        told = run.partition("create", name)
        assert (told.returncode, "cannot be the name of a partition" in told.stderr) == (64, True)
    below = run.partition("resize", "side", "--", "-2")
    assert (below.returncode, "\0" in below.stderr, "-2 is below 1" in below.stderr) == (64, False, True)
    status = subprocess.run([*CANTLE, "status", str(run.directory), "--json"], capture_output=True, text=True)
    assert json.loads(status.stdout)["cores_in_use"] == 3
    run.go(1, 2, 3)
    assert run.process.wait(120) == 0


def test_a_killed_run_goes_on_with_the_nodes_that_it_had(going: Callable[..., GoingRun]) -> None:
    run = going()
    run.until_running(3)
    run.partition("create", "side", "--wait")
    run.process.kill()
    run.process.wait()
    told = run.partition("list")
    assert "the conductor of held is dead" in told.stderr
    run.go(1, 2, 3)
    again = subprocess.run([*CANTLE, "resume", str(run.directory)], capture_output=True, text=True, timeout=200)
    assert again.returncode == 0, again.stderr
    assert "the machine as the run had it: --nodes 4x1" in again.stderr
    assert "4 nodes with 4 cores" in again.stdout
    other = subprocess.run(
        [*CANTLE, "resume", str(run.directory), "--cores", "2"], capture_output=True, text=True, timeout=200
    )
    assert "as the run had it" not in other.stderr


def test_partitions_are_told_in_a_table_and_end_with_the_run(going: Callable[..., GoingRun]) -> None:
    run = going()
    run.until_running(3)
    assert run.partition("list").stdout == "held has no partitions\n"
    run.partition("create", "side", "--wait")
    heading, row = run.partition("list").stdout.splitlines()
    assert heading.split() == ["NAME", "STATE", "NODES", "CORES", "RUNNING", "WHERE", "WHY"]
    assert row.split()[:6] == ["side", "ACTIVE", "1/1", "1", "0", "node4"]
    run.go(1, 2, 3)
    assert run.process.wait(120) == 0
    assert run.listed()[0]["state"] == "DONE"


def test_a_killed_runner_costs_a_partition_its_node_and_another_takes_its_place(going: Callable[..., GoingRun]) -> None:
    run = going(nodes="5x1")
    run.until_running(3)
    assert run.partition("create", "side", "--nodes", "2", "--wait").returncode == 0
    before = run.listed()[0]["nodes"]
    runners = [int(pid) for pid in _children(run.process.pid) for pid in (pid, *_children(int(pid))) if _is_idle(pid)]
    for pid in runners:
        os.kill(int(pid), signal.SIGKILL)
    run.until(lambda records: any(isinstance(r, NodeLost) for r in records))
    run.until(lambda _: run.listed()[0]["state"] == "FAILED" or len(run.listed()[0]["nodes"]) == 2)  # type: ignore[arg-type]
    assert before
    run.go(1, 2, 3)
    assert run.process.wait(120) == 0
    ended = [r for r in run.records() if isinstance(r, TaskEnded) and r.outcome == "done"]
    assert len(ended) == 3


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def _is_idle(pid: str | int) -> bool:
    """A runner (it leads a session of its own) that runs nothing."""
    return (
        os.getsid(int(pid)) == int(pid)
        and not _children(int(pid))
        and "cantle" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    )


def test_the_agent_stands_within_moments_of_the_request(going: Callable[..., GoingRun]) -> None:
    run = going()
    run.until_running(3)
    run.partition("create", "side", "--wait")
    records = run.records()
    assert [r.partition for r in records if isinstance(r, PartitionStarted)] == [0]
    assert all(r.partition == -1 for r in records if isinstance(r, Launch))
    run.go(1, 2, 3)
    assert run.process.wait(120) == 0


def test_a_lost_node_is_told_of_on_the_terminal(going: Callable[..., GoingRun]) -> None:
    run = going(nodes="5x1", quiet=False)
    run.until_running(3)
    run.until(lambda _: any(map(_is_idle, _children(run.process.pid))))
    run.until(lambda records: sum(isinstance(r, TaskStarted) for r in records) == 3)
    for pid in filter(_is_idle, _children(run.process.pid)):
        os.kill(int(pid), signal.SIGKILL)
    run.until(lambda records: any(isinstance(r, NodeLost) for r in records))
    run.go(1, 2, 3)
    assert run.process.wait(120) == 0
    assert "a node is lost: " in run.told.read_text()


def test_a_plan_names_a_packer_that_computes_for_ever(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def dreams(plan):\n    while True:\n        pass\n    yield\n")
    (tmp_path / "study.yaml").write_text(STUDY)
    shorter = "import cantle.runtime.patience as p, sys; p.bounded.__defaults__ = (0.2, 'packer'); "
    code = shorter + "from cantle.cli.main import main; main()"
    told = subprocess.run(
        [sys.executable, "-c", code, "plan", "study.yaml", "--nodes", "2x1", "--packer", "mine:dreams"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert told.returncode == 1
    assert "packer mine:dreams: it has computed for 0.2 s without a decision" in told.stderr
