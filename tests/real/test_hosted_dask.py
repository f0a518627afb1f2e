"""A real Dask cluster in a partition of a real run: tasks compute with it, it is resized, it dies, and nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from hosted_rig import Calc, processes, said, until
from test_going_partitions import GoingRun

from cantle.model.records import (
    Launch,
    PartitionFailed,
    PartitionStarted,
    PartitionTold,
    ShrinkPartition,
    TaskEnded,
    WorkersRetired,
)

pytestmark = [pytest.mark.real, pytest.mark.slow]

BEGINNING = """
import socket
from distributed import Client
client = Client()
def workers():
    return {worker["name"]: address for address, worker in client.scheduler_info(n_workers=-1)["workers"].items()}
"""


def begun(tmp_path: Path, driver: str, nodes: str = "2x2") -> GoingRun:
    return Calc(tmp_path, "dask", BEGINNING + driver).begin(nodes)


def programs(directory: Path, role: str = "") -> list[int]:
    """The processes of Dask that belong to the run there, all of them or those with this role."""

    def is_ours(line: bytes, _environ: bytes) -> bool:
        words = line.decode(errors="replace").split("\0")
        ours = "cantle.engines.hosted.dask_program" in words and any(word.startswith(f"{directory}/") for word in words)
        return ours and role in ("", *words)

    return processes(is_ours)


def ended_well(run: GoingRun) -> None:
    assert run.process.wait(60) == 0, run.told.read_text()
    assert programs(run.directory) == []


def test_a_step_computes_on_all_nodes_of_its_partition_with_no_more_than_client(tmp_path: Path) -> None:
    run = begun(
        tmp_path,
        """
client.wait_for_workers(2)
total = sum(client.gather(client.map(lambda x: x * x, range(100))))
threads = sorted(client.nthreads().values())
say("result", (total, sorted(workers()), threads, client.scheduler.address.split(":")[0], os.environ["CANTLE_PARTITION"]))
""",
    )
    assert said(tmp_path, "result") == str((328350, ["node1", "node2"], [2, 2], "tls", "calc"))
    ended_well(run)
    (started,) = [record for record in run.records() if isinstance(record, PartitionStarted)]
    assert started.address.startswith("tls://127.0.0.1:")


def test_a_stranger_without_the_partitions_papers_is_not_let_in(tmp_path: Path) -> None:
    run = begun(tmp_path, 'say("at", client.scheduler.address); until(lambda: os.path.exists(f"{top}/go"))')
    address = said(tmp_path, "at")
    from distributed import Client
    from distributed.security import Security

    for foreign in (address.replace("tls", "tcp"), address):
        security = Security.temporary() if foreign.startswith("tls") else None
        with pytest.raises(Exception, match=r"(?i)timed out|ssl|tls|closed|certificate|encryption required"):
            Client(foreign, security=security, timeout=2)
    (tmp_path / "go").touch()
    ended_well(run)


def test_made_narrower_it_keeps_what_the_leaving_worker_alone_had_and_wider_it_has_a_worker_more(
    tmp_path: Path,
) -> None:
    run = begun(
        tmp_path,
        """
client.wait_for_workers(2)
kept = client.submit(lambda: list(range(1000)), workers=[workers()["node2"]], pure=False)
kept.result()
say("made")
until(lambda: sorted(workers()) == ["node1"])
say("narrow", len(kept.result()))
until(lambda: len(workers()) == 3)
say("wide", sorted(workers()))
""",
        "3x2",
    )
    said(tmp_path, "made")
    assert run.partition("resize", "calc", "1", "--wait").returncode == 0
    assert said(tmp_path, "narrow") == "1000"
    assert run.partition("resize", "calc", "3").returncode == 0
    assert said(tmp_path, "wide") == str(["node1", "node2", "node3"])
    ended_well(run)
    kinds = [type(record) for record in run.records()]
    assert kinds.index(WorkersRetired) < kinds.index(ShrinkPartition)
    assert not [record for record in run.records() if isinstance(record, PartitionTold)]


def test_a_worker_that_is_killed_is_replaced_and_the_step_goes_on(tmp_path: Path) -> None:
    run = begun(
        tmp_path,
        """
client.wait_for_workers(2)
before = set(workers().values())
say("before")
until(lambda: len(workers()) == 2 and set(workers().values()) != before)
say("after", sum(client.gather(client.map(lambda x: x, range(10)))))
""",
    )
    said(tmp_path, "before")
    os.kill(programs(run.directory, "worker")[0], signal.SIGKILL)
    assert said(tmp_path, "after") == "45"
    ended_well(run)
    (told,) = [record for record in run.records() if isinstance(record, PartitionTold)]
    assert "its dask worker on node" in told.what
    assert "killed by SIGKILL" in told.what


def test_a_scheduler_that_is_killed_fails_its_partition_and_not_the_run(tmp_path: Path) -> None:
    run = begun(
        tmp_path,
        """
say(f"attempt{attempt}")
until(lambda: os.path.exists(f"{top}/go") and attempt != "1")
say("sum", client.submit(sum, [1, 2]).result())
""",
    )
    said(tmp_path, "attempt1")
    (tmp_path / "go").touch()
    os.kill(programs(run.directory, "head")[0], signal.SIGKILL)
    assert said(tmp_path, "sum") == "3"
    ended_well(run)
    records = run.records()
    (failed,) = [record for record in records if isinstance(record, PartitionFailed)]
    assert "its dask head on node1 died: killed by SIGKILL" in failed.reason
    assert [record.outcome for record in records if isinstance(record, TaskEnded)] == ["interrupted", "done"]
    assert len([record for record in records if isinstance(record, Launch)]) == 2


def test_nothing_of_it_is_left_when_the_conductor_is_killed_and_who_resumes_gets_a_new_one(tmp_path: Path) -> None:
    run = begun(tmp_path, 'say("here"); until(lambda: os.path.exists(f"{top}/go")); client.submit(sum, [1]).result()')
    said(tmp_path, "here")
    assert len(programs(run.directory)) == 3
    run.process.kill()
    run.process.wait()
    until(lambda: programs(run.directory) == [])
    (tmp_path / "go").touch()
    words = [sys.executable, "-m", "cantle", "resume", "out", "--nodes", "2x2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record.task for record in run.records() if isinstance(record, TaskEnded) and record.outcome == "done"] == [
        0
    ]
    assert all(record.task == 0 for record in run.records() if isinstance(record, TaskEnded))
    assert programs(run.directory) == []


def test_an_engine_for_a_partition_asked_for_from_a_shell_and_one_that_nobody_knows(tmp_path: Path) -> None:
    run = begun(tmp_path, 'say("here"); until(lambda: os.path.exists(f"{top}/go"))', "3x2")
    said(tmp_path, "here")
    made = run.partition("create", "mine", "--engine", "dask", "--wait")
    assert made.stdout == "mine: ACTIVE on node3\n"
    refused = run.partition("create", "oops", "--engine", "dusk")
    assert refused.returncode == 1
    assert "no hosted engine is called 'dusk'; there are dask, ray, torchrun" in refused.stderr
    assert run.partition("drain", "mine").returncode == 0
    until(lambda: len(programs(run.directory)) == 3)
    (tmp_path / "go").touch()
    ended_well(run)


def test_on_two_machines_it_answers_on_their_addresses_with_papers(tidy_cluster: Cluster, shared_path: Path) -> None:
    Calc(
        shared_path,
        "dask",
        BEGINNING
        + """
client.wait_for_workers(2)
hosts = client.gather([client.submit(socket.gethostname, workers=[at], pure=False) for at in workers().values()])
say("hosts", " ".join([client.scheduler.address, *sorted(hosts)]))
""",
    ).write()
    words = [sys.executable, "-m", "cantle", "run", "study.yaml", "-o", "out", "-j", "c1:2", "c2:2"]
    done = subprocess.run(words, cwd=shared_path, env=tidy_cluster.env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    address, *hosts = said(shared_path, "hosts").split()
    assert hosts == ["c1", "c2"]
    host = address.removeprefix("tls://").rpartition(":")[0]
    assert host in (tidy_cluster.address("c1"), tidy_cluster.address("c2"))
