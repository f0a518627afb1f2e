"""Whole runs inside a batch job and under a launcher: srun is a script that starts runners here, mpirun only its variables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cantle.model.records import NodeLost, NodesJoined
from cantle.store.journal import read
from cantle.store.layout import Layout

pytestmark = pytest.mark.real

CANTLE = [sys.executable, "-m", "cantle"]
STUDY = """
description: {name: spread, description: tasks that need all nodes at once}
study:
- name: meet
  description: waits until its fellow is there as well
  run:
    cmd: |
      env > env
      touch $(OUTPUT_PATH)/here-$(N)
      until [ -e $(OUTPUT_PATH)/here-1 ] && [ -e $(OUTPUT_PATH)/here-2 ]; do sleep 0.02; done
global.parameters:
  N: {values: [1, 2], label: N.%%}
"""
SRUN = """#!/bin/bash
printf '%s\\n' "$*" >> {top}/calls
while [ "$1" != {python} ]; do shift; done
SLURMD_NODENAME=other exec "$@" --cores 1
"""
OWN = os.uname().nodename


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "study.yaml").write_text(STUDY)
    programs = tmp_path / "bin"
    programs.mkdir()
    srun = programs / "srun"
    srun.write_text(SRUN.format(top=tmp_path, python=sys.executable))
    srun.chmod(0o755)
    squeue = programs / "squeue"
    squeue.write_text("#!/bin/sh\necho 30:00\n")
    squeue.chmod(0o755)
    return tmp_path


def clean() -> dict[str, str]:
    """Our environment, as if the tests themselves were in no job."""
    ours = ("SLURM", "OMPI", "PMI", "FLUX", "PBS", "LSB")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def in_slurm(top: Path, **more: str) -> dict[str, str]:
    return {
        **clean(),
        "PATH": f"{top}/bin:{os.environ['PATH']}",
        "SLURM_JOB_ID": "24",
        "SLURM_JOB_NODELIST": f"{OWN},other",
        "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
        "SLURM_NTASKS": "4",
        "SLURM_PROCID": "0",
        "SLURM_MEM_PER_CPU": "100",
        **more,
    }


def run(top: Path, env: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CANTLE, "run", "study.yaml", "-o", "out", "--json", *options],
        cwd=top,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def last(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def nodes(top: Path) -> list[tuple[str, int, float]]:
    found = [record for record in read(Layout(top / "out").journal) if isinstance(record, NodesJoined)]
    return [(node.name, node.cores, node.ends_at) for record in found for node in record.nodes]


def test_a_run_inside_a_job_of_two_nodes_uses_both_without_any_option(top: Path) -> None:
    begun = time.time()
    done = run(top, in_slurm(top), "--cores", "1")
    assert done.returncode == 0, done.stderr
    assert last(done)["counts"] == {"done": 2}
    (call,) = (top / "calls").read_text().splitlines()
    assert "--jobid 24 --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=other --overlap" in call
    ends = [end for _, _, end in nodes(top)]
    assert len(ends) == 2
    assert all(abs(end - begun - 1800) < 60 for end in ends)
    assert "inside job 24 of Slurm: 2 nodes" in done.stdout


def test_o12_o40_tasks_see_the_job_and_nothing_of_its_shape(top: Path) -> None:
    done = run(top, in_slurm(top), "--cores", "1")
    assert done.returncode == 0, done.stderr
    for path in (top / "out").glob("meet/*/env"):
        names = {line.partition("=")[0] for line in path.read_text().splitlines()}
        assert "SLURM_JOB_ID" in names
        assert not names & {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_MEM_PER_CPU"}
    assert len(list((top / "out").glob("meet/*/env"))) == 2


def test_this_machine_alone_is_used_when_that_is_asked_for(top: Path) -> None:
    done = run(top, in_slurm(top), "--this-machine", "--cores", "2")
    assert done.returncode == 0, done.stderr
    assert not (top / "calls").exists()
    assert [(name, cores) for name, cores, _ in nodes(top)] == [(OWN, 2)]


def test_a_run_within_a_task_has_what_the_task_has_and_not_the_whole_job(top: Path) -> None:
    done = run(top, in_slurm(top, CANTLE_RUN="/somewhere"), "--cores", "2")
    assert done.returncode == 0, done.stderr
    assert not (top / "calls").exists()
    assert len(nodes(top)) == 1


def test_a_star_says_how_many_cores_of_each_node_and_a_number_how_many_here(top: Path) -> None:
    srun = top / "bin" / "srun"
    srun.write_text(srun.read_text().replace(" --cores 1", ""))
    done = run(top, in_slurm(top), "-j", "1", "*:3")
    assert done.returncode == 0, done.stderr
    assert sorted(cores for _, cores, _ in nodes(top)) == [1, 3]
    assert (top / "calls").read_text().endswith(" --cores 3\n")


def test_a_number_alone_stands_for_this_machine_alone(top: Path) -> None:
    done = run(top, in_slurm(top), "-j", "2")
    assert done.returncode == 0, done.stderr
    assert not (top / "calls").exists()


def test_a_star_outside_of_any_job_is_refused(top: Path) -> None:
    done = run(top, clean(), "-j", "1", "*:3")
    assert done.returncode == 1
    assert "this run is in none" in done.stderr


def test_o16_a_job_whose_other_node_cannot_be_had_says_why_and_goes_on(top: Path) -> None:
    (top / "bin" / "srun").write_text("#!/bin/sh\necho 'srun: error: Invalid job id specified' >&2; exit 1\n")
    study = (top / "study.yaml").read_text().replace("values: [1, 2]", "values: [1, 1]").replace("here-2", "here-1")
    nobody = """'"NodesAwaited".*"count":0'"""  # which is told with the reason
    told = f"until grep -q {nobody} $(OUTPUT_PATH)/.cantle/journal.jsonl; do sleep 0.05; done"
    (top / "study.yaml").write_text(study.replace("env > env", f"env > env; {told}"))
    done = run(top, in_slurm(top))
    assert done.returncode == 0, done.stderr
    assert "no runner on other: srun ended (exit status 1). The job is over" in done.stdout
    assert "Invalid job id specified" in done.stdout


def test_a_runner_that_is_killed_is_started_again_by_srun(top: Path) -> None:
    (top / "study.yaml").write_text(
        STUDY.replace(
            "touch", 'case $CANTLE_ATTEMPT in 1) echo $PPID > "$(OUTPUT_PATH)/runner-$(N)"; sleep 600;; esac; touch'
        )
    )
    process = subprocess.Popen(
        [*CANTLE, "run", "study.yaml", "-o", "out", "--json", "--cores", "1"],
        cwd=top,
        env=in_slurm(top),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: len([path for path in (top / "out").glob("runner-*") if path.read_text()]) == 2)
        for path in (top / "out").glob("runner-*"):
            os.kill(int(path.read_text()), signal.SIGKILL)
        out, _ = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 0, out
    assert len((top / "calls").read_text().splitlines()) == 2
    lost = [record for record in read(Layout(top / "out").journal) if isinstance(record, NodeLost)]
    assert len(lost) == 2


def test_a_run_that_ends_before_anybody_could_join_does_not_wait_for_that(top: Path) -> None:
    (top / "study.yaml").write_text(STUDY.replace("&& [", "|| ["))
    (top / "bin" / "srun").write_text("#!/bin/sh\nexec sleep 600\n")
    done = run(top, in_slurm(top))  # which takes two minutes at most, and a runner may take three to join
    assert done.returncode == 0, done.stderr


def of_other_systems(top: Path, system: str) -> tuple[dict[str, str], str]:
    """The environment of a job on this host and one called `other`, and the program that starts runners there."""
    hosts = top / "hosts"
    if system == "PBS":
        hosts.write_text(f"{OWN}\nother\n")
        return {"PBS_JOBID": "7.server", "PBS_NODEFILE": str(hosts)}, "pbs_tmrsh"
    if system == "SGE":
        hosts.write_text(f"{OWN} 1 all.q UNDEFINED\nother 1 all.q UNDEFINED\n")
        return {"JOB_ID": "7", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": str(hosts)}, "qrsh"
    if system == "LSF":
        return {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": f"{OWN} 1 other 1"}, "blaunch"
    return {"FLUX_URI": "local:///run/flux", "FLUX_ENCLOSING_ID": "f7"}, "flux"


@pytest.mark.parametrize("system", ["PBS", "SGE", "LSF", "Flux"])
def test_jobs_of_other_systems_get_their_runners_by_their_own_starters(top: Path, system: str) -> None:
    variables, program = of_other_systems(top, system)
    starter = top / "bin" / program
    answers = {"getattr": f"{OWN},other", "timeleft": "600"} if system == "Flux" else {}
    starter.write_text(
        "#!/bin/bash\n"
        + "".join(f'case "$*" in *{word}*) echo {answer}; exit;; esac\n' for word, answer in answers.items())
        + SRUN.format(top=top, python=sys.executable).partition("\n")[2]
    )
    starter.chmod(0o755)
    env = {**clean(), **variables, "PATH": f"{top}/bin:{os.environ['PATH']}"}
    done = run(top, env, "--cores", "1")
    assert done.returncode == 0, done.stderr
    assert f"of {system}: 2 nodes" in done.stdout
    assert len(nodes(top)) == 2
    (call,) = (top / "calls").read_text().splitlines()
    assert " -m cantle runner --connect " in call


def until(so: Callable[[], object], seconds: float = 120.0) -> None:
    stop = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < stop, "it did not come about"
        time.sleep(0.05)


def copies(
    top: Path, n: int, machines: int, *options: str, command: Callable[[int], str] = lambda _: "study.yaml"
) -> list[Any]:
    """So many copies as mpirun would start them, one after another on so many machines (which are all this one)."""
    found = []
    for rank in range(n):
        local = rank // machines
        env = {
            **clean(),
            "HOME": str(top),
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(n),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(n // machines),
            "OMPI_MCA_orte_num_nodes": str(machines),
            "OMPI_MCA_orte_hnp_uri": str(top),
        }
        words = [*CANTLE, "run", command(rank), "-o", "out", "--json", *options]
        found.append(
            subprocess.Popen(words, cwd=top, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    return found


def ends(processes: list[Any]) -> list[tuple[int, str, str]]:
    try:
        told = [process.communicate(timeout=100) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *each) for process, each in zip(processes, told, strict=True)]


def test_of_two_copies_the_first_conducts_and_the_other_serves(top: Path) -> None:
    (first, other) = ends(copies(top, 2, 2, "-j", "1", "*:2"))
    assert first[0] == 0, first
    assert other == (0, "", "")
    assert json.loads(first[1].splitlines()[-1])["counts"] == {"done": 2}
    assert sorted(cores for _, cores, _ in nodes(top)) == [1, 2]
    assert list(top.glob(".cantle-meeting*")) == []
    for path in (top / "out").glob("meet/*/env"):
        assert "OMPI_COMM_WORLD_RANK" not in path.read_text()


def test_further_copies_on_a_machine_serve_by_waiting(top: Path) -> None:
    found = ends(copies(top, 4, 2, "--cores", "1"))
    assert [code for code, _, _ in found] == [0, 0, 0, 0], found
    assert len(nodes(top)) == 2


def test_copies_end_with_a_conductor_that_never_began(top: Path) -> None:
    (top / "study.yaml").write_text("study: 7\n")
    (first, other) = ends(copies(top, 2, 2))
    assert first[0] == 1
    assert other[0] == 0, other


def test_copies_with_different_words_are_no_one_run(top: Path) -> None:
    (top / "study-1.yaml").write_text(STUDY)
    found = copies(top, 2, 2, "--cores", "2", command=lambda rank: "study.yaml" if rank == 0 else "study-1.yaml")
    first, other = ends(found)
    assert first[0] == 0
    assert other[0] == 64
    assert "called with other words than the first copy" in other[2]
    assert "--this-machine" in other[2]


def test_copies_of_a_pilot_stay_in_the_foreground(top: Path) -> None:
    env = {**clean(), "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    done = subprocess.run([*CANTLE, "up", "pilot"], cwd=top, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "give --foreground" in done.stderr


def test_only_the_first_copy_writes_the_scripts_of_a_dry_run(top: Path) -> None:
    first, other = ends(copies(top, 2, 2, "--dry"))
    assert "scripts written" in first[1]
    assert other == (0, "", "")
