"""What holds again for a run that somebody goes on with: on the machine where it was, on another one, and in its job."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest
from msgspec.structs import replace

from cantle.allocations.batch.reentering import environment_of
from cantle.cli.before import as_before
from cantle.cli.command import Parser
from cantle.cli.machine import machine_options
from cantle.errors import RequestError
from cantle.model.records import RunResumed, RunStarted, StudyAdded
from cantle.runtime.whereabouts import job_around
from cantle.store.journal import Journal
from cantle.store.layout import Layout

HERE = os.uname().nodename
KINDS = "cpu: {cores: 2, max: 4, provider: slurm}"
SAID = [
    "--cores",
    "3",
    "-j",
    "c1:2",
    "--kinds",
    KINDS,
    "--scaling",
    "idle=2s",
    "--on-idle",
    "echo hello",
    "--memory",
    "2GB",
]
JOB_91 = (
    "JobId=91 JobName=night JobState=RUNNING Reason=None NodeList=c[1-3] BatchHost=c1 NumNodes=3 NumCPUs=5 "
    "TRES=cpu=5,node=3   Nodes=c[1-2] CPU_IDs=0-1 Mem=2000 GRES=  Nodes=c3 CPU_IDs=3 Mem=1000 GRES= MinCPUsNode=1 "
    "WorkDir=/a/b Power="
)


def begun(folder: Path, *conductors: RunStarted | RunResumed, study: str = "/where/study.yaml") -> Layout:
    """The directory of a run that had these conductors, each after the one before was killed."""
    layout = Layout(folder / "run").create()
    with Journal.open_new(layout.journal) as journal:
        journal.write(conductors[0])
        journal.write(StudyAdded(0.0, "n", [], source=study))
        for conductor in conductors[1:]:
            journal.write(conductor)
    return layout


def started(host: str, *words: str, job: str = "") -> RunStarted:
    return RunStarted(0.0, "n-1", "0", host, 1, ("cantle", "run", "study.yaml", *words), job)


def again(host: str, *words: str, job: str = "") -> RunResumed:
    return RunResumed(1.0, host, 2, argv=("cantle", "resume", "run", *words), job=job)


def resumed(layout: Layout, *words: str) -> Namespace:
    """What counts for `cantle resume` with these words here."""
    parser = Parser(add_help=False)
    machine_options(parser)
    asked = parser.parse_args(list(words))
    as_before(layout, asked)
    return asked


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `scontrol show job` prints lies in this file; what is put into the environment is taken out again."""
    file = tmp_path / "told"
    file.write_text(JOB_91 + "\n")
    stand_in = tmp_path / "bin" / "scontrol"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/asked\ncat {file}\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    for name in ("JOB_ID", "JOB_NODELIST", "NODELIST", "JOB_NUM_NODES", "NNODES", "JOB_CPUS_PER_NODE", "MEM_PER_NODE"):
        monkeypatch.setenv(f"SLURM_{name}", "")
        monkeypatch.delenv(f"SLURM_{name}")
    return file


def test_on_the_same_machine_all_of_it_holds_again(tmp_path: Path) -> None:
    found = resumed(begun(tmp_path, started(HERE, *SAID)))
    assert (found.cores, found.kinds, found.scaling, found.on_idle) == (3, KINDS, ["idle=2s"], "echo hello")
    assert found.memory is not None


def test_on_another_machine_hosts_and_kinds_hold_and_nothing_holds_of_the_first_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise tasks that only such nodes can hold would fail."""
    found = resumed(begun(tmp_path, started("login2", *SAID)))
    assert (found.kinds, found.scaling, found.on_idle) == (KINDS, ["idle=2s"], "echo hello")
    assert (found.cores, found.places, found.memory) == (None, ["c1:2"], None)
    told = capsys.readouterr().err
    assert "the machine as the run had it: -j c1:2 --kinds" in told and "--cores" not in told
    assert found.study_file == Path("/where/study.yaml")


@pytest.mark.parametrize("host", [HERE, "login2"])
def test_files_are_found_from_another_directory_as_well(tmp_path: Path, host: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("k.yaml", "hosts", "h.yml", "study.yaml"):
        (home / name).touch()
    words = ("-j", "@hosts", "c1:2", "--kinds", "k.yaml", "--hosts", "h.yml")
    layout = begun(tmp_path, replace(started(host, *words), cwd=str(home)), study="study.yaml")
    found = resumed(layout)
    assert (found.places, found.kinds) == ([f"@{home}/hosts", "c1:2"], f"{home}/k.yaml")
    assert (found.hosts, found.study_file) == (home / "h.yml", home / "study.yaml")


def test_a_study_that_is_there_no_more_is_looked_for_in_the_run(tmp_path: Path) -> None:
    layout = begun(tmp_path, replace(started(HERE), cwd=str(tmp_path)), study="study.yaml")
    copy = layout.directory / "study.yaml"
    assert resumed(layout).study_file == tmp_path / "study.yaml"
    copy.touch()
    assert resumed(layout).study_file == copy


def test_the_cores_of_another_machine_are_left_out_and_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = resumed(begun(tmp_path, started("login2", "-j", "4", "c1:2", "@hosts")))
    assert found.places == ["c1:2", "@hosts"]
    assert "All of this machine" not in capsys.readouterr().err
    found = resumed(begun(tmp_path / "other", started("login2", "--nodes", "8x4")))
    assert (found.places, found.nodes) == ([], None)
    told = capsys.readouterr().err
    assert "on host login2 the run had --nodes 8x4: that does not hold here. All of this machine is used" in told


def test_what_is_said_now_counts(tmp_path: Path) -> None:
    layout = begun(tmp_path, started("login2", *SAID))
    found = resumed(layout, "--kinds", "gpu: {cores: 1}", "--scaling", "demand")
    assert (found.kinds, found.scaling, found.places) == ("gpu: {cores: 1}", ["demand"], [])


def test_what_was_said_last_counts_before_what_was_said_first(tmp_path: Path) -> None:
    layout = begun(tmp_path, started(HERE, "--cores", "2", "--memory", "2GB"), again(HERE, "-j", "c1:2"), again(HERE))
    found = resumed(layout)
    assert (found.places, found.cores) == (["c1:2"], None)
    assert found.memory is not None, "of that nothing else was said"


def test_a_run_whose_job_still_runs_goes_on_in_it(
    slurm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = resumed(begun(tmp_path, started("c1", "-j", "*:1", job="Slurm 91")))
    assert found.places == ["*:1"]
    assert os.environ["SLURM_JOB_NODELIST"] == "c1,c2,c3" and os.environ["SLURM_JOB_ID"] == "91"
    assert "as the run had it: job 91 of Slurm, which still runs -j *:1" in capsys.readouterr().err
    assert (tmp_path / "asked").read_text() == "show job --details --oneliner 91\n"


def test_what_it_was_told_of_the_nodes_of_its_job_holds_again_there(slurm: Path, tmp_path: Path) -> None:
    found = resumed(begun(tmp_path, started("c1", "--cores", "1", "--memory", "1GB", job="Slurm 91"), again("c2")))
    assert found.cores == 1 and found.memory is not None


@pytest.mark.parametrize(
    ("told", "job", "why"),
    [
        (JOB_91.replace("RUNNING", "COMPLETED"), "Slurm 91", "job 91 of Slurm, which does not run any more"),
        ("", "Slurm 91", "job 91 of Slurm, which does not run any more"),
        (f"{JOB_91}\n{JOB_91}", "Slurm 91", "job 91 of Slurm, which does not run any more"),
        (JOB_91, "PBS 91.server", "job 91.server of PBS, which cannot be entered from here"),
        (JOB_91, "SGE", "a job of SGE, which cannot be entered from here"),
    ],
)
def test_one_whose_job_cannot_be_entered_is_not_run_on_a_login_node_and_it_is_told_what_to_give(
    slurm: Path, tmp_path: Path, told: str, job: str, why: str
) -> None:
    slurm.write_text(told)
    layout = begun(tmp_path, started("c1", job=job))
    with pytest.raises(RequestError, match=why) as found:
        resumed(layout)
    for option in ("cantle orchestrate ", "-j HOST:CORES", "--kinds", "--this-machine", "in a new one"):
        assert option in str(found.value)
    assert resumed(layout, "--this-machine").places == []
    assert resumed(layout, "-j", "2").places == ["2"]


def test_in_a_job_the_nodes_are_that_jobs(slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "92")
    assert resumed(begun(tmp_path, started("login2", "-j", "c1:2"), again("c1", job="Slurm 91"))).places == []
    assert os.environ["SLURM_JOB_ID"] == "92"


def test_one_that_took_a_single_machine_of_its_job_is_not_led_back(slurm: Path, tmp_path: Path) -> None:
    assert resumed(begun(tmp_path, started("c1", "--nodes", "2x1", job="Slurm 91"))).places == []
    assert "SLURM_JOB_ID" not in os.environ


def test_a_job_is_entered_with_what_it_was_granted(slurm: Path) -> None:
    assert environment_of("Slurm 91") == {
        "SLURM_JOB_ID": "91",
        "SLURM_JOB_NODELIST": "c1,c2,c3",
        "SLURM_NODELIST": "c1,c2,c3",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_NNODES": "3",
        "SLURM_JOB_CPUS_PER_NODE": "2,2,1",
        "SLURM_MEM_PER_NODE": "1000",
    }


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({"SLURM_JOB_ID": "91"}, "Slurm 91"),
        ({"PBS_JOBID": "91.server"}, "PBS 91.server"),
        ({"PE_HOSTFILE": "/x", "JOB_ID": "7"}, "SGE 7"),
        ({"FLUX_URI": "local:///x"}, "Flux"),
        ({"SLURM_JOB_ID": "91", "CANTLE_RUN": "/run"}, ""),
        ({}, ""),
    ],
)
def test_the_job_in_which_a_conductor_stands_has_a_name(
    environ: dict[str, str], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert job_around() == job
