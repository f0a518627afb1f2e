"""A pilot in a batch job takes studies from the host on which people sit, and ends when it is told so from there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until

STUDY = """\
description: {name: survey, description: d}
study:
  - name: where
    description: d
    run: {cmd: "uname -n; : $(N); until [ -e TOP/go ]; do sleep 0.1; done"}
global.parameters:
  N: {values: [1, 2, 3, 4], label: N.%%}
"""


class Place:
    """A directory that all nodes see, in which one stands on the head, with a pilot `night` in a job of two nodes."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        self.cluster = cluster
        self.path = path
        self.state = path / "state"
        (path / "study.yaml").write_text(STUDY.replace("TOP", str(path)))
        script = (
            f"#!/bin/bash\nexport XDG_STATE_HOME={self.state}\nexec {sys.executable} -m cantle up night --foreground\n"
        )
        words = ["sbatch", "--parsable", "--nodes=2", "--cpus-per-task=2", "--time=15", f"--output={path}/said"]
        self.job = cluster.slurm([*words, f"--chdir={path}"], text=script).stdout.strip()
        assert wait_until(lambda: self.cantle("jobs", "night").returncode == 0), (path / "said").read_text()

    def cantle(self, *words: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
        argv = ["env", f"XDG_STATE_HOME={self.state}", sys.executable, "-m", "cantle", *words]
        done = self.cluster.run(argv, cwd=self.path, timeout=PATIENCE_S, check=False)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done


@pytest.fixture
def place(cluster: Cluster, shared_path: Path) -> Place:
    return Place(cluster, shared_path)


def test_studies_are_given_to_it_and_it_is_taken_down_from_the_login_node(place: Place) -> None:
    place.cantle("submit", "study.yaml", "--pilot", "night", "-o", "out", code=0)
    assert wait_until(lambda: "running" in place.cantle("jobs", "night").stdout)
    going = subprocess.Popen(
        ["env", f"XDG_STATE_HOME={place.state}", sys.executable, "-m", "cantle", "down", "night"],
        cwd=place.path, env=place.cluster.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert wait_until(lambda: "ends when all studies are over" in place.cantle("jobs", "night").stdout)
    refused = place.cantle("submit", "study.yaml", "--pilot", "night", "-o", "late", code=1)
    assert "takes in no more studies" in refused.stderr and not (place.path / "late").exists()
    (place.path / "go").touch()
    assert "the pilot night is down" in going.communicate(timeout=PATIENCE_S)[0]
    place.cantle("wait", "out", code=0)
    ran = {host for n in range(1, 5) for host in place.cantle("logs", "out", f"where_N.{n}").stdout.split()}
    assert len(ran) == 2 and ran <= {"c1", "c2", "c3", "c4", "c5"}
    assert wait_until(lambda: place.cluster.job_state(place.job) == "COMPLETED")


def test_a_study_that_its_host_does_not_see_is_refused_with_where_it_would_be_seen(
    place: Place, tmp_path: Path
) -> None:
    refused = place.cantle("submit", "study.yaml", "--pilot", "night", "-o", str(tmp_path / "out"), code=1)
    assert (
        "is not seen on host c" in refused.stderr and "with -o name a directory that both hosts see" in refused.stderr
    )
    place.cantle("down", "night", "--now", code=0)
    assert wait_until(lambda: place.cluster.job_state(place.job) == "COMPLETED")


def test_one_whose_job_is_canceled_while_it_is_asked_is_not_waited_for(place: Place) -> None:
    place.cantle("submit", "study.yaml", "--pilot", "night", "-o", "out", code=0)
    place.cluster.slurm(["scancel", place.job])
    assert wait_until(lambda: place.cantle("submit", "study.yaml", "--pilot", "night", "-o", "late").returncode == 1)
    told = place.cantle("submit", "study.yaml", "--pilot", "night", "-o", "late", code=1).stderr
    assert "night is not up; go on with it: cantle up night" in told or "going down" in told, told
    assert wait_until(lambda: "is not up" in place.cantle("jobs", "night").stdout)
    for words in (["up", "night"], ["resume", "out"]):
        refused = place.cantle(*words, code=1).stderr
        assert f"was in job {place.job} of Slurm, which does not run any more" in refused
        assert "Say where it shall go on: " in refused
        assert "taken out of the pilot" not in refused
