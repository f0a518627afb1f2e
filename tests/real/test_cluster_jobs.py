"""Runs inside real jobs, and under real launchers: all nodes are used, and the loss of one is the loss of one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until

from cantle.model.records import AnyRecord, NodeLost, NodesJoined, TaskEnded
from cantle.store.journal import read
from cantle.store.layout import Layout
from cantle.store.lock import holder

CANTLE = f"{sys.executable} -m cantle"
MEET = """
description: {{name: meet, description: each task waits until all are there}}
study:
- name: meet
  description: all at once
  run:
    cmd: |
      hostname > TOP/at-$(N)
      env > TOP/env-$(N)
      until [ $(ls TOP | grep -c ^at-) -ge {n} ]; do sleep 0.1; done
    cores per task: {cores}
global.parameters:
  N: {{values: [{values}], label: N.%%}}
"""
WIDE = """\
- name: wide
  description: on as many nodes as the job has
  run: {cmd: hostname, nodes: 3, depends: [meet_*]}
"""


class Place:
    """A directory with a study of `n` tasks that have to run at the same time, each on `cores`."""

    def __init__(self, top: Path, n: int, cores: int = 1) -> None:
        self.top = top
        text = MEET.format(n=n, cores=cores, values=", ".join(map(str, range(1, n + 1))))
        (top / "study.yaml").write_text(text.replace("TOP", str(top)))

    def submit(self, cluster: Cluster, script: str, *options: str) -> None:
        """Begin to run it as a job."""
        words = ["sbatch", "--time=15", f"--output={self.top}/said", f"--chdir={self.top}", *options]
        cluster.slurm(words, text=f"#!/bin/bash\n{script}\necho $? > ended.new; mv ended.new ended\n")

    def batch(self, cluster: Cluster, script: str, *options: str) -> str:
        """Run it as a job to its end; what it said."""
        self.submit(cluster, script, *options)
        assert wait_until((self.top / "ended").exists), self.said
        assert (self.top / "ended").read_text() == "0\n", self.said
        return self.said

    @property
    def said(self) -> str:
        """What the job said."""
        return (self.top / "said").read_text() if (self.top / "said").exists() else "nothing"

    @property
    def hosts(self) -> Counter[str]:
        """On which hosts how many tasks were."""
        return Counter(path.read_text().strip() for path in self.top.glob("at-*"))

    def records(self) -> list[AnyRecord]:
        return list(read(Layout(self.top / "out").journal))

    def ends(self) -> list[float]:
        found = [record for record in self.records() if isinstance(record, NodesJoined)]
        return [node.ends_at for record in found for node in record.nodes]


def test_a_run_in_a_batch_job_uses_all_its_nodes_and_knows_when_they_go(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    place = Place(shared_path, 3, cores=2)
    script = (
        f"date -d $(squeue --noheader --jobs=$SLURM_JOB_ID --format=%e) +%s > until\n{CANTLE} run study.yaml -o out"
    )
    said = place.batch(tidy_cluster, script, "--nodes=3", "--ntasks-per-node=2", "--mem-per-cpu=100")
    assert len(place.hosts) == 3, said
    until = int((shared_path / "until").read_text())
    assert len(place.ends()) == 3
    assert all(abs(end - until) <= 60 for end in place.ends()), (place.ends(), until)
    for path in shared_path.glob("env-*"):
        names = {line.partition("=")[0] for line in path.read_text().splitlines()}
        assert "SLURM_JOB_ID" in names
        assert not names & {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_STEP_ID"}
    for path in shared_path.glob("env-*"):
        name = next(line for line in path.read_text().splitlines() if line.startswith("SLURMD_NODENAME="))
        assert name.endswith("=" + (shared_path / path.name.replace("env", "at")).read_text().strip())


@pytest.mark.parametrize("how", ["batch", "srun"])
def test_o20_a_job_that_was_granted_one_core_of_each_node_uses_one_where_nothing_confines_it(
    tidy_cluster: Cluster, shared_path: Path, how: str
) -> None:
    """Slurm binds nothing on this cluster: each process sees all cores of the machine."""
    assert len(os.sched_getaffinity(0)) > 1, "this machine has too few cores to tell"
    place = Place(shared_path, 2)
    shape = ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1")
    if how == "batch":
        said = place.batch(tidy_cluster, f"{CANTLE} run study.yaml -o out", *shape)
        assert "1 core of this machine's" in said
    else:
        done = launched(tidy_cluster, place, "srun", *shape, "--time=15")
        assert done.returncode == 0, done.stderr
    nodes = [node for record in place.records() if isinstance(record, NodesJoined) for node in record.nodes]
    assert [(node.cores, node.core_ids) for node in nodes] == [(1, ()), (1, ())]
    assert len(place.hosts) == 2


def test_o16_steps_of_the_job_that_hold_everything_do_not_keep_runners_away(
    cluster: Cluster, shared_path: Path
) -> None:
    place = Place(shared_path, 2, cores=2)
    hog = "srun --nodes=2 --ntasks=8 sh -c 'touch holds-$SLURM_PROCID; exec sleep 800' &"
    all_held = "until [ $(ls | grep -c ^holds-) -eq 8 ]; do sleep 0.1; done"
    script = f"{hog}\n{all_held}\n{CANTLE} run study.yaml -o out && kill %1"
    place.batch(cluster, script, "--nodes=2", "--ntasks-per-node=4")
    assert len(place.hosts) == 2


def test_a_shell_on_a_machine_outside_of_the_job_puts_all_work_inside(tidy_cluster: Cluster, shared_path: Path) -> None:
    place = Place(shared_path, 2, cores=2)
    words = [
        "salloc",
        "--nodes=2",
        "--ntasks-per-node=2",
        "--time=15",
        *CANTLE.split(),
        "run",
        "study.yaml",
        "-o",
        "out",
    ]
    done = subprocess.run(
        words, env=tidy_cluster.env, cwd=shared_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 nodes, of which this machine is none" in done.stdout
    assert len(place.hosts) == 2
    assert os.uname().nodename not in place.hosts


def test_all_components_of_a_heterogeneous_job_serve(tidy_cluster: Cluster, shared_path: Path) -> None:
    place = Place(shared_path, 3, cores=2)
    shapes = ("--nodes=1 --ntasks=2", "hetjob", "--nodes=2 --ntasks-per-node=2")
    script = "".join(f"#SBATCH {shape}\n" for shape in shapes) + f"{CANTLE} run study.yaml -o out"
    place.batch(tidy_cluster, script)
    assert len(place.hosts) == 3


def test_runs_in_steps_of_one_job_keep_to_the_nodes_of_their_steps(tidy_cluster: Cluster, shared_path: Path) -> None:
    for name in ("a", "b"):
        (shared_path / name).mkdir()
        Place(shared_path / name, 2)
    script = "\n".join(
        f"srun --nodes=1 --ntasks=1 --cpus-per-task=2 --exact --mem=0 --relative={n} --chdir={shared_path}/{name} "
        f"{CANTLE} run study.yaml -o out &"
        for n, name in enumerate(("a", "b"))
    )
    Place(shared_path, 1).batch(tidy_cluster, f"{script}\nwait", "--nodes=2", "--ntasks-per-node=2")
    found = [{path.read_text().strip() for path in (shared_path / name).glob("at-*")} for name in ("a", "b")]
    assert [len(hosts) for hosts in found] == [1, 1]
    assert found[0] != found[1]


def test_a_node_that_dies_costs_its_own_attempts_and_no_other_runner(cluster: Cluster, shared_path: Path) -> None:
    place = Place(shared_path, 4, cores=2)
    text = (shared_path / "study.yaml").read_text()
    (shared_path / "study.yaml").write_text(
        text.replace("[ $(ls", f"[ -e {shared_path}/go ]; do sleep 0.1; done # $(ls")
    )
    place.submit(
        cluster, f"{CANTLE} run study.yaml -o out --silence 4", "--nodes=3", "--ntasks-per-node=2", "--no-kill"
    )
    assert wait_until(lambda: len(place.hosts) == 3), place.said
    conducting = next(record.nodes[0].name for record in place.records() if isinstance(record, NodesJoined))
    cluster.kill(max(place.hosts.keys() - {conducting}), tell=True)
    assert wait_until(lambda: any(isinstance(record, NodeLost) for record in place.records())), place.said
    (shared_path / "go").touch()
    assert wait_until((shared_path / "ended").exists), place.said
    assert (shared_path / "ended").read_text() == "0\n", place.said
    ended = [record for record in place.records() if isinstance(record, TaskEnded)]
    assert Counter(record.outcome for record in ended)["done"] == 4
    assert sum(isinstance(record, NodeLost) for record in place.records()) == 1


def test_a_step_that_is_too_wide_since_a_node_died_is_told_with_the_node_that_died(
    cluster: Cluster, shared_path: Path
) -> None:
    place = Place(shared_path, 3, cores=2)
    whole = (shared_path / "study.yaml").read_text().replace("global.parameters", f"{WIDE}global.parameters")
    wait = f"[ -e {shared_path}/go ]; do sleep 0.1; done # $(ls"
    (shared_path / "study.yaml").write_text(whole.replace("[ $(ls", wait))
    place.submit(
        cluster, f"{CANTLE} run study.yaml -o out --silence 4", "--nodes=3", "--ntasks-per-node=2", "--no-kill"
    )
    assert wait_until(lambda: len(place.hosts) == 3), place.said
    conducting = next(record.nodes[0].name for record in place.records() if isinstance(record, NodesJoined))
    killed = max(place.hosts.keys() - {conducting})
    cluster.kill(killed, tell=True)
    assert wait_until(lambda: any(isinstance(record, NodeLost) for record in place.records())), place.said
    (shared_path / "go").touch()
    assert wait_until((shared_path / "ended").exists), place.said
    told = f"1 of the 3 nodes that were there was lost: {killed}, "
    assert told in place.said
    for words in (["status", "out"], ["explain", "out", "wide"]):
        asked = cluster.run([sys.executable, "-m", "cantle", *words], cwd=shared_path, check=False)
        assert told in asked.stdout
    cluster.run([sys.executable, "-m", "cantle", "report", "out"], cwd=shared_path)
    assert told in (shared_path / "out" / "report.html").read_text()


def test_o24_a_node_that_is_gone_already_does_not_keep_the_others_away(cluster: Cluster, shared_path: Path) -> None:
    place = Place(shared_path, 2, cores=2)
    script = f"hostname > begun\nuntil [ -e go ]; do sleep 0.1; done\n{CANTLE} run study.yaml -o out"
    place.submit(cluster, script, "--nodes=3", "--ntasks-per-node=2", "--no-kill")
    assert wait_until(lambda: (shared_path / "begun").exists() and (shared_path / "begun").read_text())
    first = (shared_path / "begun").read_text().strip()
    job = cluster.slurm(["squeue", "--noheader", "--format=%N", "--states=running"]).stdout.strip()
    of_job = cluster.slurm(["scontrol", "show", "hostnames", job]).stdout.split()
    gone = next(name for name in of_job if name != first)
    cluster.kill(gone, tell=True)
    (shared_path / "go").touch()
    assert wait_until((shared_path / "ended").exists), place.said
    assert (shared_path / "ended").read_text() == "0\n", place.said
    assert len(place.hosts) == 2
    assert gone not in place.hosts
    assert f"no runner on {gone}" in place.said


def launched(cluster: Cluster, place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*words, *CANTLE.split(), "run", "study.yaml", "-o", "out"],
        env=cluster.env,
        cwd=place.top,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_srun_starts_copies_of_which_one_conducts(tidy_cluster: Cluster, shared_path: Path) -> None:
    place = Place(shared_path, 2, cores=2)
    done = launched(tidy_cluster, place, "srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--time=15")
    assert done.returncode == 0, done.stderr
    assert len(place.hosts) == 2
    assert done.stdout.count("tasks done") == 1
    assert not list(shared_path.glob(".cantle-meeting*"))


def test_o16_a_step_on_several_nodes_starts_although_the_copies_hold_all_cores(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    place = Place(shared_path, 1)
    (shared_path / "study.yaml").write_text(
        "description: {name: wide, description: one step on two nodes}\n"
        "study:\n"
        "- name: wide\n"
        "  description: a rank on each node\n"
        f"  run: {{cmd: '$(LAUNCHER) hostname > {shared_path}/ranks', nodes: 2, procs: 2}}\n"
    )
    done = launched(tidy_cluster, place, "srun", "--nodes=2", "--ntasks=2", "--cpus-per-task=4", "--time=15")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(set((shared_path / "ranks").read_text().split())) == 2


def test_srun_with_pmi_needs_no_directory_to_meet_in(tidy_cluster: Cluster, shared_path: Path) -> None:
    place = Place(shared_path, 2, cores=2)
    done = launched(
        tidy_cluster, place, "srun", "--mpi=pmi2", "--nodes=2", "--ntasks=2", "--cpus-per-task=2", "--time=15"
    )
    assert done.returncode == 0, done.stderr
    assert len(place.hosts) == 2


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_mpirun_starts_copies_over_ssh(tidy_cluster: Cluster, shared_path: Path, family: str) -> None:
    place = Place(shared_path, 2, cores=2)
    if family == "openmpi":
        (shared_path / "hosts").write_text("c1 slots=2\nc2 slots=2\n")
        network = ("--mca", "oob_tcp_if_include", f"{tidy_cluster.settings.network}.0/24", "-x", "PYTHONPATH")
        words = ("mpirun.openmpi", "--allow-run-as-root", *network, "--hostfile", str(shared_path / "hosts"), "-n", "4")
    else:
        (shared_path / "hosts").write_text("c1:2\nc2:2\n")
        words = ("mpiexec.mpich", "-f", str(shared_path / "hosts"), "-n", "4")
    done = launched(tidy_cluster, place, *words)
    assert done.returncode == 0, done.stderr
    assert place.hosts == {"c1": 1, "c2": 1}
    assert done.stdout.count("tasks done") == 1


def test_a_run_whose_conductor_was_killed_goes_on_from_the_login_node_in_its_job_while_that_lives(
    cluster: Cluster, shared_path: Path
) -> None:
    place = Place(shared_path, 4, cores=2)
    text = (shared_path / "study.yaml").read_text()
    wait = f"[ -e {shared_path}/go ]; do sleep 0.1; done # $(ls"
    (shared_path / "study.yaml").write_text(text.replace("[ $(ls", wait))
    stays = "until [ -e end ]; do sleep 0.1; done"
    place.submit(cluster, f"{CANTLE} run study.yaml -o out\n{stays}", "--nodes=2", "--ntasks-per-node=2")
    assert wait_until(lambda: len(place.hosts) == 2), place.said
    there = holder(Layout(shared_path / "out").lock)
    assert there is not None
    cluster.run_on(there.host, ["kill", "-9", str(there.pid)])
    assert wait_until(lambda: holder(Layout(shared_path / "out").lock) is None)
    for path in shared_path.glob("at-*"):
        path.unlink()
    words = [sys.executable, "-m", "cantle", "resume", "out"]
    again = subprocess.Popen(
        words, cwd=shared_path, env=cluster.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert wait_until(lambda: len(place.hosts) == 2 or again.poll() is not None)
    again.kill()
    told = again.communicate()[0]
    assert "the machine as the run had it: job " in told and "of Slurm, which still runs" in told
    assert os.uname().nodename not in place.hosts
    (shared_path / "end").touch()
    assert wait_until((shared_path / "ended").exists), place.said
    assert wait_until(lambda: not cluster.slurm(["squeue", "--noheader"]).stdout.strip())
    refused = cluster.run(words, cwd=shared_path, check=False)
    assert refused.returncode == 1 and "Say where it shall go on: " in refused.stderr
    (shared_path / "go").touch()
    done = cluster.run([*words, "--this-machine"], cwd=shared_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
