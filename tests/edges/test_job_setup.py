"""What a kind says under `setup` is done on each node of a job before its runner begins there. (D10)"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from providers_rig import asked

from cantle.allocations.providers.job_script import text_of
from cantle.model.kinds import Kind

CPU = Kind("cpu", 2)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with stand-ins: runners tell their words and what was exported; srun does what stands after its options."""
    programs = {
        "python3": 'echo "$MARK|$@"',
        "scontrol": "echo n1 n2",
        "srun": 'while [ "${1#--}" != "$1" ]; do case $1 in --nodelist=*) export NODE=${1#*=};; esac; shift; done; "$@"',
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "letter").write_text("a letter")
    return tmp_path


def done(job: Path, nodes: int, *setup: str, kind: Kind = CPU) -> subprocess.CompletedProcess[str]:
    script = text_of(asked(job, nodes), kind, "slurm", nodes, setup)
    env = {"PATH": f"{job / 'bin'}:/usr/bin:/bin", "SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n[1-2]", "NODE": "n1"}
    return subprocess.run(["/bin/bash"], input=script, env=env, capture_output=True, text=True, check=False)


def test_what_commands_export_the_runner_has_and_passes_on_to_tasks(job: Path) -> None:
    it = done(job, 1, 'MARK="it\'s"', 'export MARK="$MARK here"; cat')
    mark, words = it.stdout.strip().split("|")
    assert mark == "it's here", it.stderr
    assert words.startswith("-m cantle runner --connect") and words.endswith("--own-env")


def test_without_any_the_runner_begins_as_ever(job: Path) -> None:
    assert done(job, 1).stdout.strip().endswith("--gpus 0")


def test_they_are_done_on_each_node_of_a_block_with_all_that_the_script_knows(job: Path) -> None:
    it = done(job, 2, "export MARK=$NODE", kind=replace(CPU, lasts_s=600.0))
    told = sorted(line.split("|") for line in it.stdout.splitlines())
    assert [mark for mark, _ in told] == ["n1", "n2"], it.stderr
    for _, words in told:
        assert "--request 0:9 " in words
        assert words.split("--until ")[1].split()[0].isdigit() and words.endswith("--own-env")


def test_where_one_fails_no_runner_begins_and_its_words_are_the_last(job: Path) -> None:
    it = done(job, 1, "true", "sh -c 'exit 3'", "export MARK=never")
    assert (it.returncode, it.stdout) == (96, "")
    assert it.stderr.strip().splitlines()[-1] == "the set-up command `sh -c 'exit 3'` failed with status 3"


def test_modules_are_looked_for_where_only_login_shells_know_them(job: Path) -> None:
    (job / "init").mkdir()
    (job / "init" / "bash").write_text('module() { export MARK="$* by init"; }\n')
    script = text_of(asked(job, 1), CPU, "slurm", 1, ["module load gcc"])
    env = {"PATH": f"{job / 'bin'}:/usr/bin:/bin", "MODULESHOME": str(job)}
    it = subprocess.run(["/bin/bash"], input=script, env=env, capture_output=True, text=True, check=False)
    assert it.stdout.startswith("load gcc by init|"), it.stderr
    assert "MODULESHOME" not in text_of(asked(job, 1), CPU, "slurm", 1, ["export A=1"])
