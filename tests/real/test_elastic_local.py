"""Logical nodes that come and go on this machine while a run goes on."""

from __future__ import annotations

from pathlib import Path

from growing_rig import Happened, fixed, run

from cantle.allocations.local import LocalAllocation
from cantle.allocations.providers.elastic import ElasticAllocation
from cantle.allocations.providers.local import LocalNodes
from cantle.model.kinds import Kind

CPU = Kind("cpu", 2, most=4)


def none_at_first(*providers: LocalNodes) -> ElasticAllocation:
    """No node but those that come."""
    allocation = ElasticAllocation(None, providers, LocalAllocation(grows=True))
    allocation.prepare()
    return allocation


def test_a_run_that_starts_with_no_node_gets_some_works_on_them_and_gives_them_back(tmp_path: Path) -> None:
    outcome = run(tmp_path / "out", "echo", "1-8", none_at_first(LocalNodes(CPU)), fixed("cpu", 2))
    happened = Happened(tmp_path / "out")
    assert outcome.exit_code == 0
    assert happened.done() == dict.fromkeys(range(8), 1)
    assert [(node.name, node.kind, node.cores) for node in happened.nodes] == [("cpu-1", "cpu", 2), ("cpu-2", "cpu", 2)]
    assert happened.asked() == {"cpu": 2}
