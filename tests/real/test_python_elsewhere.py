"""Calls from a Python program on other machines: hosts by ssh, nodes of a real Slurm, Dask on two of them. Nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until
from growing_rig import Happened

from cantle.model.records import NodesJoined
from cantle.store.layout import Layout

BEGINNING = """
import hashlib, json, os, random, socket, sys, time
import cantle

@cantle.task(cores=1)
def where(x, seconds=0.0):
    time.sleep(seconds)
    return socket.gethostname(), x * x

@cantle.task(cores=1)
def meet(place, count):
    open(f"{place}/at-{socket.gethostname()}", "w").close()
    while len([name for name in os.listdir(place) if name.startswith("at-")]) < count:
        time.sleep(0.1)
    return socket.gethostname()

@cantle.task(cores=1)
def large(seed):
    return random.Random(seed).randbytes(6_000_000)

@cantle.task(cores=1)
def digest(data):
    return hashlib.sha256(data).hexdigest()

@cantle.task(cores=1)
def fail():
    raise KeyError(socket.gethostname())

def told(**what):
    print(json.dumps(what), flush=True)

def computes(hosts):
    hosts = set(cantle.gather(meet.map([os.getcwd()] * 8, [hosts] * 8)))
    data = large.submit(7)
    there = cantle.gather([digest.submit(data) for _ in range(4)])
    try:
        fail.submit().result()
    except KeyError as error:
        said = "".join(error.__notes__)
    right = digest(large(7))
    told(hosts=sorted(hosts), squares=[y for _, y in cantle.gather(where.map(range(5)))],
         right=there == [right] * 4 and digest(data.result()) == right, traceback="in fail" in said)
"""


class Program:
    """A program on the head, in a directory that the nodes see."""

    def __init__(self, cluster: Cluster, place: Path, body: str) -> None:
        self.cluster = cluster
        self.place = place
        self.state = place / "state"
        (place / "program.py").write_text(BEGINNING + body)
        self.output = place / "told"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "program.py"], cwd=place, env={**cluster.env, "XDG_STATE_HOME": str(self.state)},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]

    def ends(self, seconds: float = 2 * PATIENCE_S) -> list[dict[str, Any]]:
        """What it told, when it has ended well and its pilot with it."""
        try:
            self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.wait()
            print(self.output.read_text())
        assert self.process.returncode == 0
        assert self.pilots() == [], "its pilot has ended"
        assert jobs(self.cluster) == []
        return self.told()

    def pilots(self) -> list[str]:
        private = self.state / "cantle" / "private"
        return os.listdir(private) if private.exists() else []


def jobs(cluster: Cluster) -> list[str]:
    asked = cluster.slurm(["squeue", "--noheader", "--format=%j"]).stdout
    return [name for name in asked.split() if name.startswith("cantle-")]


def test_calls_run_on_hosts_by_ssh_and_their_results_come_back(tidy_cluster: Cluster, shared_path: Path) -> None:
    body = 'with cantle.open(hosts=["c1:2", "c2:2"], directory="run"): computes(2)'
    program = Program(tidy_cluster, shared_path, body)
    assert program.ends() == [{"hosts": ["c1", "c2"], "squares": [0, 1, 4, 9, 16], "right": True, "traceback": True}]
    assert {node.cores for node in Happened(shared_path / "run").nodes} == {2}


def test_calls_run_on_nodes_of_a_real_slurm_and_their_results_come_back(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    body = """
with cantle.open(slurm={"cores": 2, "max": 2, "lasts": "10 min"}, directory="run") as pilot:
    pilot.scale("slurm", 2)
    while len(pilot.nodes()) < 2:
        time.sleep(0.1)
    told(kinds=[node.kind for node in pilot.nodes()])
    computes(1)
"""
    kinds, computed = Program(tidy_cluster, shared_path, body).ends()
    assert kinds == {"kinds": ["slurm", "slurm"]}
    assert computed.pop("hosts") and computed == {"squares": [0, 1, 4, 9, 16], "right": True, "traceback": True}
    joined = Happened(shared_path / "run").of(NodesJoined)
    assert sum(len(record.nodes) for record in joined) == 2


@pytest.mark.parametrize("where", ['hosts="c[1-2]"', 'slurm={"cores": 1, "max": 2, "lasts": "10 min"}'])
def test_what_a_killed_program_began_elsewhere_ends(tidy_cluster: Cluster, shared_path: Path, where: str) -> None:
    body = f"""
with cantle.open({where}, directory="run"):
    calls = where.map(range(4), [600] * 4)
    time.sleep(600)
"""
    program = Program(tidy_cluster, shared_path, body)
    run = shared_path / "run"
    try:
        assert wait_until(lambda: Layout(run).journal.exists() and Happened(run).of(NodesJoined))
    finally:
        os.kill(program.process.pid, signal.SIGKILL)
        program.process.wait()
    assert wait_until(lambda: not jobs(tidy_cluster), every=0.2)
    assert wait_until(lambda: not any(tidy_cluster.guests(node) for node in tidy_cluster.nodes))


def test_dask_in_a_partition_of_two_hosts_is_reached_by_the_partitions_client(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    body = """
with cantle.open(hosts=["c1:2", "c2:2", "c3:1"], directory="run") as pilot:
    with pilot.partition(width=2, cores=2, engine="dask", name="calc") as part:
        client = part.client()
        client.wait_for_workers(2)
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        hosts = client.gather([client.submit(socket.gethostname, workers=[at], pure=False) for at in workers])
        total = client.submit(sum, client.map(lambda x: x * x, range(100))).result()
        inside = part.submit(lambda: os.environ["DASK_SCHEDULER_ADDRESS"]).result()
        told(hosts=sorted(hosts), total=total, address=client.scheduler.address == inside, nodes=sorted(part.nodes))
    told(outside=where.submit(3).result()[1])
"""
    first, last = Program(tidy_cluster, shared_path, body).ends()
    assert first == {"hosts": ["c1", "c2"], "total": 328350, "address": True, "nodes": ["c1", "c2"]}
    assert last == {"outside": 9}


def test_a_program_is_told_why_no_machine_comes(tidy_cluster: Cluster, shared_path: Path) -> None:
    body = """
try:
    cantle.open(hosts="nosuchhost", directory="none")
except cantle.CantleError as problem:
    told(said=str(problem))
with cantle.open(slurm={"cores": 1, "queue": "nosuchqueue"}, directory="refused"):
    call = where.submit(1)
    while " refused: " not in open("told").read():
        time.sleep(0.1)
    try:
        call.result(0.5)
    except TimeoutError:
        told(waited=True)
    raise SystemExit(0)
"""
    program = Program(tidy_cluster, shared_path, body)
    first, second = program.ends()
    assert "no machine could be had: nosuchhost: ssh: Could not resolve hostname" in first["said"]
    assert second == {"waited": True}
    assert "cantle: 1 node of kind slurm refused: sbatch refuses the job: " in program.output.read_text()
