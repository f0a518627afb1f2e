"""Hosts of a pool that come and go by ssh while a run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from cluster import Cluster
from cluster.identity import wait_until
from growing_rig import Happened

from cantle.model.records import NodeReleased, NodesJoined, RequestAnswered
from cantle.store.journal import read
from cantle.store.layout import Layout

CONDUCTOR = str(Path(__file__).with_name("growing_conductor.py"))
POOL = "lab: {cores: 2, hosts: 'c[1-3]'}"


def begin(cluster: Cluster, path: Path, grows: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, CONDUCTOR, *words], cwd=path, env={**cluster.env, "GROWS": grows}, text=True,
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=90)
    print(said)
    return said


def has_said(out: Path, kind: type) -> bool:
    journal = Layout(out).journal
    return journal.exists() and any(isinstance(record, kind) for record in read(journal))


def runners(cluster: Cluster, host: str) -> int:
    """How many runners of ours are there on the host."""
    found = cluster.run_on(host, ["pgrep", "-fc", "[c]antle runner"], check=False).stdout.strip()
    return int(found or 0)


def test_hosts_of_a_pool_work_and_one_that_is_given_back_keeps_nothing(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    command = "test {} = 1 && sleep 6 || sleep 0.2"
    process = begin(tidy_cluster, shared_path, "lab:2", "map", command, "--range", "1-6", "-o", "out", "--kinds", POOL)
    out = shared_path / "out"
    try:
        assert wait_until(lambda: has_said(out, NodeReleased), 60)
        happened = Happened(out)
        [released] = happened.of(NodeReleased)
        name = happened.nodes[released.node].name
        assert not released.problem
        assert wait_until(lambda: runners(tidy_cluster, name) == 0, 10), "its runner is gone while the run goes on"
    finally:
        ended(process)
    assert process.returncode == 0
    happened = Happened(out)
    assert happened.done() == {task: 1 for task in range(6)}
    assert [(node.name, node.kind, node.cores) for node in sorted(happened.nodes, key=lambda node: node.name)] == [
        ("c1", "lab", 2),
        ("c2", "lab", 2),
    ]


def test_a_pool_has_no_more_nodes_than_hosts_and_one_that_is_down_is_refused_by_name(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    pool = "lab: {cores: 2, hosts: 'c1,nosuchhost'}"
    process = begin(
        tidy_cluster, shared_path, "lab:3", "map", "sleep 3; echo", "--range", "1-2", "-o", "out", "--kinds", pool
    )
    ended(process)
    assert process.returncode == 0, "the one that is there did all"
    answers = Happened(shared_path / "out").of(RequestAnswered)
    assert answers[-1].refused == 2
    told = " ".join(answer.detail for answer in answers)
    assert "all 2 hosts of the pool are in use" in told and "nosuchhost" in told


def test_when_its_conductor_is_killed_the_runners_of_a_pool_end(tidy_cluster: Cluster, shared_path: Path) -> None:
    process = begin(
        tidy_cluster, shared_path, "lab:2", "map", "sleep 99; echo", "--range", "1-4", "-o", "out", "--kinds", POOL
    )
    try:
        assert wait_until(lambda: has_said(shared_path / "out", NodesJoined), 60)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        ended(process)
    assert wait_until(lambda: not any(runners(tidy_cluster, host) for host in ("c1", "c2")), 30)
