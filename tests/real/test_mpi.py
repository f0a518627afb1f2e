"""Steps of several nodes, for real: MPI programs by srun in a job and by mpirun over ssh, side by side, and when nodes die."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until

from cantle.model.records import Launch, NodeLost, TaskEnded
from cantle.store.journal import read
from cantle.store.layout import Layout

FOUR = ("c1", "c2", "c3", "c4")
BTL = {"OMPI_MCA_btl": "self,tcp"}
"""Shared memory between two ranks of a node is not reliable under srun on this cluster."""
OVER = ("COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL")
STAYS = "$([ $CANTLE_ATTEMPT -gt 1 ] || echo 999)"
"""To the ring program: its first attempt stays until something happens to it."""
STEP = """\
  - name: {name}
    description: d
    run:
      nodes: {nodes}
      procs: {procs}
      cmd: |
        {cmd}
"""
CORES = """\
import os, sys, time
from pathlib import Path
mine = Path(sys.argv[1]) / f"{os.environ['CANTLE_TASK']}-{os.uname().nodename}"
mine.write_text(" ".join(map(str, sorted(os.sched_getaffinity(0)))))
stop = time.monotonic() + 180
while len(list(mine.parent.iterdir())) < 4 and time.monotonic() < stop:
    time.sleep(0.05)
sys.exit(len(list(mine.parent.iterdir())) < 4)
"""


def study(place: Path, *steps: str) -> str:
    path = place / "study.yaml"
    path.write_text("description: {name: mpi, description: d}\nstudy:\n" + "".join(steps))
    return str(path)


def step(name: str, nodes: int, procs: int, cmd: str) -> str:
    return STEP.format(name=name, nodes=nodes, procs=procs, cmd=cmd)


def over_ssh(cluster: Cluster, place: Path, file: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "cantle", "run", file, "-o", "out", *words]
    env = {**cluster.env, **BTL}
    return subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)


def begun_over_ssh(cluster: Cluster, place: Path, file: str, *hosts: str) -> subprocess.Popen[str]:
    """The run on these hosts, not waited for."""
    words = [sys.executable, "-m", "cantle", "run", file, "-o", "out", "--silence", "4", "-j", *hosts]
    pipe, env = subprocess.PIPE, {**cluster.env, **BTL}
    return subprocess.Popen(words, cwd=place, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def handed_in(
    cluster: Cluster, place: Path, words: str, *more: str, nodes: int, before: str = "", after: str = ""
) -> str:
    """A job on so many whole nodes that runs `cantle run` with these words; its number. `more` are options of sbatch."""
    script = (
        f"#!/bin/bash\nexport OMPI_MCA_btl=self,tcp\ncd {place}\n{before}\n"
        f"{sys.executable} -m cantle run {words} 2>&1\n{after}\n"
    )
    options = [f"-N{nodes}", "--exclusive", "-t15", "--no-kill", "-o", str(place / "job.out"), "--parsable"]
    return cluster.slurm(["sbatch", *options, *more], text=script).stdout.strip()


def in_a_job(
    cluster: Cluster, place: Path, file: str, nodes: int, before: str = "", gpus: int = 0
) -> subprocess.CompletedProcess[str]:
    """The run inside a job on so many whole nodes, waited for; its output is that of the script."""
    more = [f"--gres=gpu:{gpus}"] if gpus else []
    job = handed_in(cluster, place, f"{file} -o out", *more, nodes=nodes, before=before)
    assert wait_until(lambda: cluster.job_state(job) in OVER, 2 * PATIENCE_S, 0.2)
    code = 0 if cluster.job_state(job) == "COMPLETED" else 1
    return subprocess.CompletedProcess([], code, (place / "job.out").read_text(), "")


def hosts_of(place: Path, name: str) -> Counter[str]:
    """On which host each rank of the ring program was; all have to be of one world."""
    (file,) = (place / "out" / name).glob("*.out")
    ranks = [line.replace(",", "").split() for line in file.read_text().splitlines() if line.startswith("rank ")]
    for _, _, _, size, _, _, _, total in ranks:
        assert (int(size), int(total)) == (len(ranks), sum(range(len(ranks)))), ranks
    return Counter(rank[5] for rank in ranks)


def records(place: Path, kind: type) -> list:
    return [record for record in read(Layout(place / "out").journal) if isinstance(record, kind)]


def programs(openmpi_program: Path, mpi4py_program: Path) -> list[str]:
    """Steps of 8 ranks on 4 nodes: C, Python, and two launches side by side, on two of the nodes each."""
    python = f"$(LAUNCHER) {sys.executable} {mpi4py_program}"
    half = f"$(LAUNCHER)[2n, 4p] {openmpi_program}"
    return [
        step("c", 4, 8, f"$(LAUNCHER) {openmpi_program}"),
        step("py", 4, 8, python),
        step("parts", 4, 8, f"{half} > a & {half} > b & wait; sort a; sort b"),
    ]


def all_ran(place: Path) -> None:
    assert hosts_of(place, "c") == hosts_of(place, "py") == dict.fromkeys(FOUR, 2)
    halves = [
        Counter(line.split()[5] for line in (place / "out" / "parts" / half).read_text().splitlines()) for half in "ab"
    ]
    assert [sorted(half.values()) for half in halves] == [[2, 2], [2, 2]]
    assert {host.rstrip(",") for half in halves for host in half} == {*FOUR}


def test_programs_in_c_and_python_run_on_four_nodes_by_srun(tidy_cluster, shared_path, openmpi_program, mpi4py_program):
    file = study(shared_path, *programs(openmpi_program, mpi4py_program))
    done = in_a_job(tidy_cluster, shared_path, file, 4)
    assert done.returncode == 0, done.stdout
    all_ran(shared_path)
    assert "--ntasks-per-node=2" in (shared_path / "out" / "c" / "c.sh").read_text()


def test_programs_in_c_and_python_run_on_four_nodes_by_mpirun(
    tidy_cluster, shared_path, openmpi_program, mpi4py_program
):
    file = study(shared_path, *programs(openmpi_program, mpi4py_program))
    done = over_ssh(tidy_cluster, shared_path, file, "-j", *(f"{node}:2" for node in FOUR))
    assert done.returncode == 0, done.stdout + done.stderr
    all_ran(shared_path)


def test_mpirun_inside_a_job_starts_its_ranks_by_slurm_where_they_belong(
    tidy_cluster, shared_path, openmpi_program, mpi4py_program
):
    file = study(shared_path, *programs(openmpi_program, mpi4py_program))
    done = in_a_job(tidy_cluster, shared_path, f"{file} --launcher openmpi", 4)
    assert done.returncode == 0, done.stdout
    all_ran(shared_path)


def test_launches_side_by_side_on_the_same_nodes_have_cores_of_their_own_O14(tidy_cluster, shared_path):
    """Two launches, each on one core of either node, at the same time: each waits for the other's ranks."""
    (shared_path / "meeting").mkdir()
    (shared_path / "cores.py").write_text(CORES)
    cmd = f"$(LAUNCHER) {sys.executable} {shared_path}/cores.py {shared_path}/meeting"
    file = study(shared_path, step("a", 2, 2, cmd), step("b", 2, 2, cmd))
    done = over_ssh(tidy_cluster, shared_path, file, "-j", "c1:2", "c2:2")
    assert done.returncode == 0, done.stdout + done.stderr
    cores = {path.name: path.read_text().split() for path in (shared_path / "meeting").iterdir()}
    for node in ("c1", "c2"):
        assert [len(cores[f"{task}-{node}"]) for task in (0, 1)] == [1, 1]
        assert cores[f"0-{node}"] != cores[f"1-{node}"]


def test_steps_of_srun_side_by_side_on_the_same_nodes_do_not_wait_for_each_other_O16(tidy_cluster, shared_path):
    (shared_path / "meeting").mkdir()
    (shared_path / "cores.py").write_text(CORES)
    cmd = f"$(LAUNCHER) {sys.executable} {shared_path}/cores.py {shared_path}/meeting"
    file = study(shared_path, step("a", 2, 2, cmd), step("b", 2, 2, cmd))
    done = in_a_job(tidy_cluster, shared_path, file, 2)
    assert done.returncode == 0, done.stdout


def test_each_rank_under_srun_sees_a_gpu_of_its_own_O19(tidy_cluster, shared_path):
    says = "$(LAUNCHER) sh -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES'"
    file = study(shared_path, step("g", 2, 4, says).replace("procs:", "gpus per task: 1\n      procs:"))
    done = in_a_job(tidy_cluster, shared_path, file, 2, gpus=2)
    assert done.returncode == 0, done.stdout
    (out,) = (shared_path / "out" / "g").glob("*.out")
    seen = [line.split() for line in out.read_text().splitlines()]
    assert sorted(seen) == sorted([node, gpu] for node in {node for node, _ in seen} for gpu in "01")
    assert len(seen) == 4


def a_launch_runs(place: Path, name: str) -> bool:
    for path in (place / "out" / name).glob("*.out"):
        try:
            if "rank 0" in path.read_text():
                return True
        except FileNotFoundError:  # it has been given its lasting name since it was found
            continue
    return False


def lose_a_node_of_the_launch(cluster: Cluster, place: Path, job: str) -> tuple[str, list[str]]:
    """Once the launch of step c runs, a node of it that is not the job's first loses power. The first one, and those used."""
    assert wait_until(lambda: a_launch_runs(place, "c"))
    head = cluster.slurm(["squeue", "-h", "-j", job, "-o", "%B"]).stdout.strip()
    used = re.search(r"--nodelist=(\S+)", (place / "out" / "c" / "c.sh").read_text())[1].split(",")
    cluster.kill(next(node for node in used if node != head), "power")
    return head, used


def test_a_launch_whose_node_loses_power_is_done_again_on_the_others(tidy_cluster, shared_path, openmpi_program):
    """mpirun would wait for the dead node for ever."""
    file = study(shared_path, step("c", 2, 2, f"$(LAUNCHER) {openmpi_program} {STAYS}"))
    process = begun_over_ssh(tidy_cluster, shared_path, file, "c1:1", "c2:1", "c3:1")
    assert wait_until(lambda: a_launch_runs(shared_path, "c"))
    hosts = (shared_path / "out" / "c" / "c.launch.hosts").read_text().split()[::2]
    tidy_cluster.kill(hosts[1], "power")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    assert [end.outcome for end in records(shared_path, TaskEnded)] == ["done"]
    assert len(records(shared_path, Launch)) == 2
    assert len(records(shared_path, NodeLost)) == 1
    survivors = [node for node in ("c1", "c2", "c3") if node != hosts[1]]
    assert wait_until(lambda: not [w for node in survivors for w in tidy_cluster.guests(node).values() if "ring" in w])


def test_a_launch_whose_first_node_loses_power_leaves_nothing_on_the_other(tidy_cluster, shared_path, openmpi_program):
    file = study(shared_path, step("c", 2, 2, f"$(LAUNCHER) {openmpi_program} 600"))
    process = begun_over_ssh(tidy_cluster, shared_path, file, "c1:1", "c2:1")
    try:
        assert wait_until(lambda: a_launch_runs(shared_path, "c"))
        hosts = (shared_path / "out" / "c" / "c.launch.hosts").read_text().split()[::2]
        tidy_cluster.kill(hosts[0], "power")
        assert wait_until(lambda: not [w for w in tidy_cluster.guests(hosts[1]).values() if "ring" in w])
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_a_step_whose_node_fails_under_srun_is_done_again(tidy_cluster, shared_path, openmpi_program):
    """srun reports it late, and in some settings as success: what counts is that the node's runner is gone."""
    file = study(shared_path, step("c", 2, 2, f"$(LAUNCHER) {openmpi_program} {STAYS}"))
    job = handed_in(tidy_cluster, shared_path, f"{file} -o out --silence 4", nodes=3)
    lose_a_node_of_the_launch(tidy_cluster, shared_path, job)
    assert wait_until(lambda: tidy_cluster.job_state(job) in OVER, 2 * PATIENCE_S, 0.2)
    assert tidy_cluster.job_state(job) == "COMPLETED", (shared_path / "job.out").read_text()
    ends = records(shared_path, TaskEnded)
    assert ends[-1].outcome == "done"
    assert {end.outcome for end in ends} <= {"done", "lost"}
    assert len(records(shared_path, Launch)) >= 2


def test_a_step_that_slurm_still_counts_on_a_dead_node_keeps_nobody_waiting(tidy_cluster, shared_path, openmpi_program):
    """Slurm notices after minutes that the node is dead, and until then its step has all cores of the other node as well."""
    file = study(shared_path, step("c", 2, 8, f"$(LAUNCHER) {openmpi_program} {STAYS}"))
    tidy_cluster.notice_after(1000)
    try:
        words, after = f"{file} -o out -j '*:4' --silence 4", "squeue -s -j $SLURM_JOB_ID > steps"
        job = handed_in(tidy_cluster, shared_path, words, nodes=3, after=after)
        head, used = lose_a_node_of_the_launch(tidy_cluster, shared_path, job)
        assert head in used  # otherwise nothing of the lost step is left
        assert wait_until((shared_path / "steps").exists), (shared_path / "job.out").read_text()
    finally:
        tidy_cluster.notice_after()
    assert [end.outcome for end in records(shared_path, TaskEnded)] == ["done"]
    assert len(records(shared_path, Launch)) == 2
    assert re.search(rf"^ *{job}\.\d+ ", (shared_path / "steps").read_text(), re.MULTILINE), "the step did not hang on"
    assert "--overlap --whole" in (shared_path / "out" / "c" / "c.sh").read_text()


def test_a_step_that_slurm_does_not_start_is_explained_O16(cluster, shared_path, openmpi_program):
    """Somebody else's step holds all cores of the nodes until it has been told."""
    file = study(shared_path, step("c", 2, 2, f"$(LAUNCHER) {openmpi_program}"))
    told = "until grep -q 'c has not begun' job.out; do sleep 0.2; done"
    holds = f'srun --exact --mem=0 -N2 -n2 --ntasks-per-node=1 -c4 sh -c "touch holds-\\$SLURM_PROCID; {told}" &'
    hog = f"{holds}\nuntil [ -e holds-0 ] && [ -e holds-1 ]; do sleep 0.1; done"
    done = in_a_job(cluster, shared_path, file, 2, hog)
    assert done.returncode == 0, done.stdout
    assert "c has not begun: srun waits for Slurm to start the step" in done.stdout
    assert "`squeue -s` shows them" in done.stdout
    assert hosts_of(shared_path, "c") == {"c1": 1, "c2": 1}
