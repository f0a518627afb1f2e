"""`cantle simulate` and `plan` on nodes that are held for a while only, and the table of nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rundirs import cantle

from builders import Story, job, node
from cantle.model.records import NodeDrainAsked
from cantle.report.nodes import node_line, node_objects, node_table
from cantle.report.wording import time_of_day

STUDY = """\
description: {name: walls, description: tasks of two lengths}
study:
- name: long
  description: long
  run: {cmd: "sleep 50", estimate: 50 s}
- name: short
  description: short
  run: {cmd: "sleep 5; echo $(N)", estimate: 5 s}
global.parameters:
  N: {values: [1, 2, 3], label: N.%%}
"""


@pytest.fixture
def study(tmp_path: Path) -> str:
    (tmp_path / "study.yaml").write_text(STUDY)
    return str(tmp_path / "study.yaml")


def test_simulate_says_what_can_be_done_while_the_nodes_are_held(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cantle("simulate", study, "--cores", "1", "--ends-in", "30s") == 2
    told = capsys.readouterr().out
    assert "  tasks         3 done, 1 ready\n" in told
    assert (
        "  stopped       the allocation is over for what is left: long needs 50 s, and node0, the last to go," in told
    )


def test_simulate_on_nodes_that_are_held_long_enough_ends_as_ever(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cantle("simulate", study, "--cores", "1", "--ends-in", "2min", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["end_s"] == 65.0
    assert told["stopped"] == ""


def test_plan_recommends_only_what_is_done_in_time(study: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("plan", study, "--nodes", "1x1,2x1", "--ends-in", "66s") == 0
    told = capsys.readouterr().out
    assert "time is up" in next(line for line in told.splitlines() if line.strip().startswith("1x1"))
    assert "Recommended: 2x1" in told
    assert cantle("plan", study, "--nodes", "1x1,2x1", "--ends-in", "20s") == 2
    assert "none of them: the time is up before all is done" in capsys.readouterr().out


def test_the_table_of_nodes_shows_how_each_stands_what_runs_there_and_what_time_is_left() -> None:
    story = Story(
        *[job(f"t{i}") for i in range(6)],
        on=[node("n0", 2, ends_at=1000.0), node("n1", 2), node("n2", 4, kind="big")],
    )
    story.decides()
    story.lose("n2", "n2: its runner is gone")
    story.happens(NodeDrainAsked(story.state.now, "n1", "ann"))
    story.await_nodes(2)
    lines = list(node_table(story.state, 400.0))
    assert [line.split() for line in lines[:3]] == [
        ["NAME", "STATE", "CORES", "RUNNING", "LEFT", "WHY"],
        ["n0", "used", "2/2", *_running(story, 0), "10", "min", "00", "s", "-"],
        ["n1", "drained", "2/2", *_running(story, 1), "-", "drained", "by", "ann"],
    ]
    at = time_of_day(story.state.lost_nodes[2].at)
    assert lines[3:] == ["1 node has gone", f"n2 was lost at {at}: its runner is gone", "2 nodes are on the way"]
    assert node_line(story.state, 1) == "n1 is drained: drained by ann, 2 tasks still running there"
    found = list(node_objects(story.state))
    assert [(each["name"], each["state"], each["ends_at"]) for each in found] == [
        ("n0", "used", 1000.0),
        ("n1", "drained", None),
        ("n2", "gone", None),
    ]


def test_of_many_nodes_that_were_lost_the_last_are_told() -> None:
    story = Story(job("t"), on=[node(f"n{i}") for i in range(9)])
    for index in range(8):
        story.lose(f"n{index}")
    lines = list(node_table(story.state, 400.0))
    assert lines[2:4] == ["8 nodes have gone", "of the 8 that were lost the last 5:"]
    assert [line.split()[0] for line in lines[4:]] == ["n3", "n4", "n5", "n6", "n7"]


def _running(story: Story, index: int) -> list[str]:
    return ", ".join(story.name(task) for task in story.state.running_on[index]).split()
