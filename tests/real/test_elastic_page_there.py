"""The commands of docs/elastic.md that need a batch system or other hosts do there what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until
from growing_rig import Happened

PAGE = (Path(__file__).parent.parent.parent / "docs" / "elastic.md").read_text()
SHELL = re.findall(r"^```sh\n(cantle .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_there_is_one_for_jobs_and_one_for_hosts() -> None:
    assert sorted(re.findall(r"provider: slurm|hosts:", " ".join(SHELL))) == ["hosts:", "provider: slurm"]


@pytest.mark.parametrize("command", SHELL)
def test_it_runs_on_machines_that_come_and_leaves_nothing(
    tidy_cluster: Cluster, shared_path: Path, tmp_path: Path, command: str
) -> None:
    tool = tmp_path / "cantle"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cantle "$@"\n')
    tool.chmod(0o755)
    env = {**tidy_cluster.env, "PATH": f"{tmp_path}:{tidy_cluster.env['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=shared_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    happened = Happened(shared_path / command.partition(" -o ")[2].split()[0])
    assert happened.done() == dict.fromkeys(range(8), 1)
    assert {node.cores for node in happened.nodes} == {2}
    assert {node.machine for node in happened.nodes} <= set(tidy_cluster.nodes)
    assert wait_until(lambda: not tidy_cluster.slurm(["squeue", "--noheader"]).stdout.strip())
