"""Hosts of a pool that come and go by ssh while a run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until
from growing_rig import Happened, together, waits_for

from cantle.model.records import NodeReleased, NodesJoined, RequestAnswered
from cantle.store.journal import read
from cantle.store.layout import Layout

POOL = "lab: {cores: 2, max: 2, hosts: 'c[1-3]'}"


def begin(cluster: Cluster, path: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cantle", *words, "--scaling", "demand", "--scaling", "idle=0", "--scaling", "cool-down=0"],
        cwd=path,
        env=cluster.env, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=PATIENCE_S)
    print(said)
    return said


def has_said(out: Path, kind: type) -> bool:
    journal = Layout(out).journal
    return journal.exists() and any(isinstance(record, kind) for record in read(journal))


def refusals(out: Path) -> list[RequestAnswered]:
    answers = Happened(out).of(RequestAnswered) if Layout(out).journal.exists() else []
    return [answer for answer in answers if answer.refused]


def runners(cluster: Cluster, host: str) -> int:
    """How many runners of ours are there on the host."""
    found = cluster.run_on(host, ["pgrep", "-fc", "[c]antle runner"], check=False).stdout.strip()
    return int(found or 0)


def test_hosts_of_a_pool_work_and_one_that_is_given_back_keeps_nothing(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    go = shared_path / "go"
    command = together(shared_path, 3) + "test {} = 1 || exit 0; " + waits_for(go)
    process = begin(tidy_cluster, shared_path, "map", command, "--range", "1-6", "-o", "out", "--kinds", POOL)
    out = shared_path / "out"
    try:
        assert wait_until(lambda: has_said(out, NodeReleased))
        happened = Happened(out)
        [released] = happened.of(NodeReleased)
        name = happened.nodes[released.node].name
        assert not released.problem
        assert wait_until(lambda: runners(tidy_cluster, name) == 0), "its runner is gone while the run goes on"
    finally:
        go.touch()
        ended(process)
    assert process.returncode == 0
    happened = Happened(out)
    assert happened.done() == dict.fromkeys(range(6), 1)
    assert [(node.name, node.kind, node.cores) for node in sorted(happened.nodes, key=lambda node: node.name)] == [
        ("c1", "lab", 2),
        ("c2", "lab", 2),
    ]


def test_a_host_of_a_pool_that_cannot_be_had_is_refused_by_name(tidy_cluster: Cluster, shared_path: Path) -> None:
    pool = "lab: {cores: 1, hosts: 'c1,nosuchhost'}"
    go = shared_path / "go"
    command = waits_for(go) + "echo {}"
    process = begin(tidy_cluster, shared_path, "map", command, "--range", "1-2", "-o", "out", "--kinds", pool)
    try:
        assert wait_until(lambda: refusals(shared_path / "out"))
    finally:
        go.touch()
        ended(process)
    assert process.returncode == 0, "the one that is there did all"
    first = refusals(shared_path / "out")[0]
    assert first.refused == 1 and first.detail.startswith("nosuchhost: ssh: Could not resolve")


def test_when_its_conductor_is_killed_the_runners_of_a_pool_end(tidy_cluster: Cluster, shared_path: Path) -> None:
    process = begin(tidy_cluster, shared_path, "map", "sleep 999; echo", "--range", "1-4", "-o", "out", "--kinds", POOL)
    try:
        assert wait_until(lambda: has_said(shared_path / "out", NodesJoined))
    finally:
        os.kill(process.pid, signal.SIGKILL)
        ended(process)
    assert wait_until(lambda: not any(runners(tidy_cluster, host) for host in ("c1", "c2")))
