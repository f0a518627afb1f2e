"""Runs that take fewer cores than a machine has do not take the same ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cantle.allocations.claims import Claims
from cantle.allocations.groups import parse_groups
from cantle.allocations.local import LocalAllocation
from cantle.allocations.machine import Machine
from cantle.model.records import NodesJoined
from cantle.model.resources import Node
from cantle.runtime.inbox import SelectInbox

CORES = (910_001, 910_002, 910_003, 910_004)
"""Of no machine: whatever else runs here does not meddle."""


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine under us."""
    found = Machine(len(CORES), CORES, 1000, (), ())
    monkeypatch.setattr("cantle.allocations.local.look", lambda *_: found)


def nodes_of(allocation: LocalAllocation) -> list[Node]:
    inbox = SelectInbox()
    allocation.open(inbox)
    (joined,) = (event for event in inbox.wait(0) if isinstance(event, NodesJoined))
    inbox.close()
    return list(joined.nodes)


def test_runs_of_fewer_cores_than_there_are_get_different_ones() -> None:
    first, second = LocalAllocation(cores=1), LocalAllocation(groups=parse_groups("2x1"))
    assert [node.core_ids for node in nodes_of(first)] == [CORES[:1]]
    assert [node.core_ids for node in nodes_of(second)] == [CORES[1:2], CORES[2:3]]
    first.close()
    third = LocalAllocation(cores=2)
    assert third.this_machine().core_ids == (CORES[0], CORES[3])
    second.close()
    third.close()


def test_who_finds_too_few_that_are_free_is_not_bound_and_takes_none() -> None:
    first, second, third = LocalAllocation(cores=3), LocalAllocation(cores=2), LocalAllocation(cores=1)
    assert first.this_machine().core_ids == CORES[:3]
    node = second.this_machine()
    assert (node.cores, node.core_ids) == (2, ())
    assert third.this_machine().core_ids == CORES[3:]
    for allocation in (first, second, third):
        allocation.close()


def test_who_takes_the_whole_machine_asks_nobody() -> None:
    part, whole = LocalAllocation(cores=3), LocalAllocation()
    assert part.this_machine().core_ids == CORES[:3]
    assert whole.this_machine().core_ids == CORES
    part.close()
    whole.close()


def test_what_a_killed_process_had_is_free_again() -> None:
    code = f"""
import sys
from cantle.allocations.claims import Claims
claims = Claims()
print(claims.take({CORES}, 3), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline().split() == str(CORES[:3]).encode().split()
        ours = Claims()
        assert ours.take(CORES, 2) == ()
        assert ours.take(CORES, 1) == CORES[3:]
        other.kill()
        other.wait()
        assert ours.take(CORES, 2) == CORES[:2]
        ours.close()
