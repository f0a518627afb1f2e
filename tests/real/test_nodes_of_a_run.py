"""Nodes of a run that goes on: drained and used again from another shell, and emptied before their time is up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_going_partitions import GoingRun
from test_pilot import Here, study, until

from cantle.model.records import DrainNode, EndRun, Launch, NodeDrainAsked, ReleaseNode, TaskEnded
from cantle.report.loading import load
from cantle.store.journal import read
from cantle.store.layout import Layout
from cantle.store.lock import holder

pytestmark = pytest.mark.real

CANTLE = [sys.executable, "-m", "cantle"]
HELD = """
description: {name: held, description: tasks that end when somebody makes a file}
study:
- name: work
  description: waits
  run: {cmd: "until [ -e TOP/go-$(N) ]; do sleep 0.02; done"}
global.parameters:
  N: {values: [1, 2, 3, 4], label: N.%%}
"""
LONG = """
description: {name: walls, description: two that fit and two that do not}
study:
- name: short
  description: fits
  run: {cmd: "echo done", estimate: 1 s}
- name: long
  description: does not
  run: {cmd: "sleep 600; echo $(N)", walltime: "01:00:00"}
- name: unknown
  description: nobody knows
  run: {cmd: "trap 'echo ended; exit 1' TERM; sleep 600 & wait"}
global.parameters:
  N: {values: [1, 2], label: N.%%}
"""


def node(run: GoingRun, action: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CANTLE, "node", action, str(run.directory), *words], capture_output=True, text=True, timeout=200
    )


@pytest.fixture
def held(tmp_path: Path) -> GoingRun:
    return GoingRun(tmp_path, HELD, "2x1")


def names(run: GoingRun) -> list[str]:
    return [json.loads(line)["name"] for line in node(run, "list", "--json").stdout.splitlines()]


def test_a_node_is_drained_and_used_again_from_another_shell(held: GoingRun) -> None:
    held.until_running(2)
    first, second = names(held)
    told = node(held, "drain", first)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"{first} is drained: drained by ")
    assert "1 task still running there" in told.stdout
    held.go(1, 2)
    held.until_running(1)
    assert load(held.directory).state.running_on[1], "on the other one it goes on"
    listed = node(held, "list").stdout.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [[first, "drained"], [second, "used"]]
    again = node(held, "resume", first)
    assert again.stdout == f"{first} is used\n"
    held.until_running(2)
    held.go(3, 4)
    assert held.process.wait(120) == 0
    asked = [record for record in held.records() if isinstance(record, NodeDrainAsked)]
    assert [record.node for record in asked] == [first]


def test_of_a_run_that_is_over_those_nodes_are_told_that_it_had(held: GoingRun) -> None:
    held.until_running(2)
    first, second = names(held)
    held.go(1, 2, 3, 4)
    assert held.process.wait(120) == 0
    told = node(held, "list").stdout.splitlines()
    assert told[0].startswith("held: done after")
    assert told[1] == "These are the nodes that it had:"
    assert told[2].split() == ["NAME", "CORES", "DONE", "JOINED", "STAYED", "WHY", "IT", "WENT"]
    done = {line.split()[0]: int(line.split()[2]) for line in told[3:]}
    assert list(done) == [first, second]
    assert sum(done.values()) == 4 and min(done.values()) >= 1
    found = [json.loads(line) for line in node(held, "list", "--json").stdout.splitlines()]
    assert sum(stay["done"] for stay in found) == 4
    assert {stay["state"] for stay in found} == {"gone"}
    assert all(stay["joined_at"] <= stay["left_at"] for stay in found)


def test_a_node_that_there_is_not_cannot_be_drained(held: GoingRun) -> None:
    held.until_running(2)
    told = node(held, "drain", "elsewhere")
    assert told.returncode == 1
    assert "no node of held is called 'elsewhere'" in told.stderr
    held.go(1, 2, 3, 4)
    assert held.process.wait(120) == 0
    assert "there is nothing to drain" in node(held, "drain", names(held)[0]).stderr


def run_walls(top: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (top / "study.yaml").write_text(LONG)
    command = [*CANTLE, *words, "--cores", "2", "--ends-in", "12s", "--drain", "4s"]
    return subprocess.run(command, cwd=top, capture_output=True, text=True, timeout=120, env=dict(os.environ))


def test_before_the_machines_time_is_up_it_is_emptied_and_the_run_ends_in_order_to_be_resumed(tmp_path: Path) -> None:
    told = run_walls(tmp_path, "run", "study.yaml", "-o", "out")
    assert told.returncode == 4, told.stdout + told.stderr
    assert "stopped (the allocation is over)" in told.stdout
    assert "Go on where it ended: cantle resume out" in told.stdout
    records = list(read(Layout(tmp_path / "out").journal))
    assert isinstance(records[-1], EndRun), "the journal is complete"
    assert [record.cause for record in records if isinstance(record, DrainNode)] == ["ends"]
    state = load(tmp_path / "out").state
    launched = {state.tasks[record.task].name for record in records if isinstance(record, Launch)}
    assert launched == {"short", "unknown"}, "what needs an hour is not begun"
    ends = {state.tasks[record.task].name: record.outcome for record in records if isinstance(record, TaskEnded)}
    assert ends == {"short": "done", "unknown": "interrupted"}
    wait = subprocess.run([*CANTLE, "wait", "out"], cwd=tmp_path, capture_output=True, timeout=200)
    assert wait.returncode == 4

    again = run_walls(tmp_path, "resume", "out")
    assert again.returncode == 3, "nothing of what is left could be begun in as little time"
    assert "the allocation is over for what is left: unknown needs" in again.stdout


def test_a_pilot_ends_in_order_before_its_time_is_up_and_the_next_one_goes_on_with_its_studies(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.does("up", "--cores", "2", "--ends-in", "24s", "--drain", "6s")
    try:
        here.does(
            "submit",
            here.write("u.yaml", study("u", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done", 3)),
            "-o",
            "out",
        )
        assert "the allocation is over" in here.does("wait", "out", code=4) + here.does("status", "out")
        ends = [record for record in here.journal("out") if isinstance(record, TaskEnded)]
        assert {record.outcome for record in ends} == {"interrupted"}
        until(lambda: not holder(here.pilot() / ".cantle/conductor.lock"))
        here.does("up", "--cores", "2")
        (tmp_path / "go").touch()
        here.does("wait", "out")
    finally:
        here.end()
    state = load(tmp_path / "out").state
    assert state.succeeded and not state.losses


def test_a_node_that_came_is_given_back_from_another_shell_and_one_that_was_here_cannot_be(tmp_path: Path) -> None:
    kinds = ["--kinds", "cpu: {cores: 1, max: 1, provider: local}", "--scaling", "fixed:1"]
    words = [*CANTLE, "map", f"until [ -e {tmp_path}/go-{{}} ]; do sleep 0.02; done", "--range", "1-3", "-o", "out"]
    run = subprocess.Popen([*words, "--cores", "1", *kinds], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    out = tmp_path / "out"
    try:
        until(lambda: Layout(out).journal.exists() and len(load(out).state.running) == 2)
        state = load(out).state
        [came] = [node.name for node in state.room.nodes.values() if node.kind == "cpu"]
        [here] = [node.name for node in state.room.nodes.values() if node.kind != "cpu"]
        refused = subprocess.run([*CANTLE, "node", "remove", out, here], capture_output=True, text=True, timeout=200)
        assert refused.returncode != 0
        assert f"{here} cannot be given back: it is not of a kind that was declared" in refused.stderr
        told = subprocess.run([*CANTLE, "node", "remove", out, came], capture_output=True, text=True, timeout=200)
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith(f"{came} is drained: taken away by ")
        for n in (1, 2, 3):
            (tmp_path / f"go-{n}").touch()
        assert run.wait(60) == 0
    finally:
        run.kill()
        run.communicate()
    [released, *_] = [record for record in read(Layout(out).journal) if isinstance(record, ReleaseNode)]
    assert released.why.startswith("it is taken away by ") and released.why.endswith(", and empty")
