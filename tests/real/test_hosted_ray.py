"""A real Ray cluster in a partition of a real run: it computes, is resized, dies, and nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from hosted_rig import Calc, processes, said, until
from test_going_partitions import GoingRun

from cantle.engines.hosted import ray
from cantle.model.records import PartitionFailed, PartitionStarted, PartitionTold, TaskEnded

if find_spec("ray") is None:  # importing it would make this process, and with it all runners, large
    pytest.skip("ray is not installed", allow_module_level=True)
pytestmark = [pytest.mark.real, pytest.mark.slow]

BEGINNING = """
import ray
ray.init(log_to_driver=False)
def nodes():
    return sorted(node["NodeName"] for node in ray.nodes() if node["Alive"])
def ids():
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
@ray.remote
def square(x):
    return x * x
"""
SUM = "sum(ray.get([square.remote(x) for x in range(20)]))"


def begun(tmp_path: Path, driver: str, nodes: str = "2x2") -> GoingRun:
    return Calc(tmp_path, "ray", BEGINNING + driver).begin(nodes)


def of_run(directory: Path, *words: str) -> list[int]:
    """The processes whose environment names the run, and whose command line has all these words."""
    mark = f"CANTLE_RUN={directory}\0".encode()
    return processes(lambda line, environ: mark in environ and all(word.encode() in line for word in words))


def folders(run: GoingRun) -> list[Path]:
    """Where Ray keeps its files on the nodes of the run's partition, as far as they are there."""
    names = [ray.folder_name(str(run.directory), 0, f"node{n}") for n in (1, 2, 3)]
    return [path for name in names if (path := Path(tempfile.gettempdir()) / name).exists()]


def ended_well(run: GoingRun) -> None:
    assert run.process.wait(60) == 0, run.told.read_text()
    until(lambda: of_run(run.directory) == [])
    assert folders(run) == []


def test_a_step_computes_with_no_more_than_init_and_a_wider_partition_has_a_node_more_and_then_less(
    tmp_path: Path,
) -> None:
    run = begun(
        tmp_path,
        f"""
until(lambda: nodes() == ["node1", "node2"])
say("sum", ({SUM}, ray.cluster_resources()["CPU"]))
until(lambda: nodes() == ["node1", "node2", "node3"])
say("wide")
until(lambda: nodes() == ["node1"])
say("narrow", {SUM})
""",
        "3x2",
    )
    assert said(tmp_path, "sum", run) == str((2470, 4.0))
    assert len(folders(run)) == 2
    assert run.partition("resize", "calc", "3").returncode == 0
    said(tmp_path, "wide", run)
    assert run.partition("resize", "calc", "1", "--wait").returncode == 0
    assert said(tmp_path, "narrow", run) == "2470"
    ended_well(run)
    assert [record for record in run.records() if isinstance(record, PartitionTold)] == []
    assert len([record for record in run.records() if isinstance(record, PartitionStarted)]) == 1


def test_a_killed_worker_is_replaced_and_a_killed_head_fails_its_partition_and_not_the_run(tmp_path: Path) -> None:
    run = begun(
        tmp_path,
        f"""
until(lambda: len(nodes()) == 2)
first = ids()
say("begun" + attempt)
if attempt == "1":
    until(lambda: not ids() <= first)
    say("again")
    time.sleep(600)
say("sum", {SUM})
""",
    )
    said(tmp_path, "begun1", run)
    os.kill(of_run(run.directory, "raylet/raylet", "--node-name=node2")[0], signal.SIGKILL)
    said(tmp_path, "again", run)
    os.kill(of_run(run.directory, "gcs_server")[0], signal.SIGKILL)
    assert said(tmp_path, "sum", run) == "2470"
    ended_well(run)
    records = run.records()
    (told,) = [record for record in records if isinstance(record, PartitionTold)]
    assert "its ray worker on node2 died and is replaced: exit code 1" in told.what
    (failed,) = [record for record in records if isinstance(record, PartitionFailed)]
    assert "its ray head on node1 died: exit code 1" in failed.reason
    assert [record.outcome for record in records if isinstance(record, TaskEnded)] == ["interrupted", "done"]


def test_who_has_not_the_token_is_not_let_in_and_nothing_is_left_when_the_conductor_is_killed(tmp_path: Path) -> None:
    run = begun(tmp_path, 'say("at", os.environ["RAY_ADDRESS"]); time.sleep(600)')
    address = said(tmp_path, "at", run)
    script = f"from ray._raylet import GcsClient; print(GcsClient(address={address!r}).get_all_node_info())"
    env = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    stranger = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert stranger.returncode != 0
    assert "auth" in stranger.stderr.lower()
    run.process.kill()
    run.process.wait()
    until(lambda: of_run(run.directory) == [])
