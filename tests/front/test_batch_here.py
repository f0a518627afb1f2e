"""Who runs a study here that asks for batch jobs is told what would submit one, unless he has said where it is to run. (M4)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rundirs import cantle

STUDY = (
    "description: {{name: one, description: x}}\n{}study:\n    - {{name: a, description: x, run: {{cmd: 'true'}}}}\n"
)


@pytest.fixture(autouse=True)
def login_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine from which jobs of Slurm can be submitted."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "PBS_", "FLUX_", "LSB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)


def told(batch: str, *words: str, capfd: pytest.CaptureFixture[str]) -> str:
    Path("one.yaml").write_text(STUDY.format(batch))
    assert cantle("run", "one.yaml", "-o", "out", "-y", "-q", *words) == 0
    return capfd.readouterr().err


def test_it_is_told_once_and_the_run_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert told("batch: {type: slurm, queue: short}\n", capfd=capfd) == (
        "cantle: `batch` asks for jobs of slurm, and this run submits none: it uses this machine. "
        "In a job it runs by cantle orchestrate one.yaml\n"
    )


@pytest.mark.parametrize("batch", ["", "batch: {type: local}\n", "batch: {type: flux}\n", "batch: {queue: short}\n"])
def test_nothing_is_told_of_what_cannot_be_submitted_here(batch: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert "orchestrate" not in told(batch, capfd=capfd)


@pytest.mark.parametrize("words", [("--cores", "1"), ("--nodes", "1x1"), ("-j", "1"), ("--this-machine",)])
def test_nor_is_anything_to_who_has_said_where_it_is_to_run(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert "orchestrate" not in told("batch: {type: slurm}\n", *words, capfd=capfd)


def test_nor_inside_of_a_job(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    here = os.uname().nodename
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": here, "SLURM_JOB_CPUS_PER_NODE": "1"}.items():
        monkeypatch.setenv(name, value)
    assert "orchestrate" not in told("batch: {type: slurm}\n", capfd=capfd)
