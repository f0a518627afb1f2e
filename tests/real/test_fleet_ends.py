"""Runners on machines that are taken away after a while: what they leave is done by those that come later."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from test_fleet import STUDY, Fleet, begin

from cantle.model.records import DrainNode, Launch, NodeLost, TaskEnded
from cantle.report.loading import load

__all__ = ["begin"]
pytestmark = pytest.mark.real

HOURS = STUDY.replace("cores per task: 2", 'cores per task: 2, walltime: "01:00:00"')


def test_o22_what_a_runner_could_not_end_in_its_time_the_next_one_does_and_nothing_is_charged(
    begin: Callable[..., Fleet],
) -> None:
    fleet = begin()
    first = fleet.runner("--name", "first", "--cores", "4", "--until", str(time.time() + 20))
    fleet.wait_running(2)
    fleet.wait_for(lambda: any(isinstance(record, DrainNode) for record in fleet.records()))
    fleet.wait_for(lambda: sum(isinstance(record, TaskEnded) for record in fleet.records()) == 2)
    assert {record.outcome for record in fleet.records() if isinstance(record, TaskEnded)} == {"interrupted"}
    first.kill()
    fleet.wait_for(lambda: any(isinstance(record, NodeLost) for record in fleet.records()))
    fleet.runner("--name", "second", "--cores", "4", "--until", str(time.time() + 3600))
    fleet.wait_for(lambda: sum(isinstance(record, Launch) for record in fleet.records()) == 4)
    fleet.go()
    told = fleet.ends()
    assert "node first is drained: its allocation ends" in told
    assert "is lost" not in told, "it went as planned"
    state = load(fleet.directory).state
    assert state.succeeded and not state.losses and not state.faults


def test_o23_what_needs_an_hour_waits_for_a_runner_that_stays_so_long(begin: Callable[..., Fleet]) -> None:
    fleet = begin(study=HOURS)
    fleet.runner("--name", "short", "--cores", "4", "--until", str(time.time() + 1800))
    fleet.wait_told("a runner has joined, short")
    fleet.runner("--name", "long", "--cores", "4", "--until", str(time.time() + 7200))
    fleet.wait_running(2)
    fleet.go()
    fleet.ends()
    nodes = load(fleet.directory).state.room.nodes
    used = {nodes[record.on[0].node].name for record in fleet.records() if isinstance(record, Launch)}
    assert used == {"long"}
