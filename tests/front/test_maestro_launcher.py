"""What `$(LAUNCHER)` becomes: every form, every flavour, and nothing at all where one process needs no MPI."""

from __future__ import annotations

import os

import pytest
from maestro_ours import one_step, problems, read, write

from cantle.errors import RequestError, StudyError
from cantle.readers import launcher
from cantle.readers.launcher import Part, complaints, flavour_of_version, parse_part, substitute
from cantle.readers.settings import Settings

STEP = Settings(procs=8, nodes=2, cores_per_task=3)


def script(folder, run, flavour="mpich", **options):
    study = read(write(folder, one_step(run)), launcher=flavour, **options)
    return study.work("/run").command(0, 1, False, (), ()).script.split("\n\n", 1)[1].rstrip("\n")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("2n, 4p", Part(4, 2)),
        ("4p,2n", Part(4, 2)),
        ("4p", Part(4, 0)),
        ("2, 4", Part(4, 2)),
        (" 2n ,4p ", Part(4, 2)),
    ],
)
def test_a_part_is_written_in_five_ways(text, part):
    assert parse_part(text) == part


@pytest.mark.parametrize("text", ["", "2n", "x", "2p, 3p", "1n, 2n, 4p", "4", "0p", "-1p", "2n 4p"])
def test_anything_else_is_no_part(text):
    with pytest.raises(ValueError, match=r"\["):
        parse_part(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(LAUNCHER) app", "mpiexec -n 8 app"),
        ("$(LAUNCHER)[2n, 4p] app", "mpiexec -n 4 app"),
        ("$(LAUNCHER)[4p] app a[3]", "mpiexec -n 4 app a[3]"),
        ("$(LAUNCHER)[1, 2] app", "mpiexec -n 2 app"),
        ("$(LAUNCHER)[4p] a & $(LAUNCHER)[4p] b; $(LAUNCHER) c", "mpiexec -n 4 a & mpiexec -n 4 b; mpiexec -n 8 c"),
        ("$(LAUNCHER)[1p] app", "app"),
        ("time $(LAUNCHER)[1n,1p]\tapp", "time app"),
        ("$(LAUNCHER)[1p]  app", " app"),
        ("echo $(LAUNCHERS) [4p]", "echo $(LAUNCHERS) [4p]"),
    ],
)
def test_every_form_on_one_machine(text, expected):
    assert substitute(text, STEP, launcher.mpich(), {}) == expected


def test_flavours_of_batch_systems_write_what_maestro_writes():
    jobs = Settings(procs=8, nodes=2, gpus=1, cpus_per_rs=4, tasks_per_rs=2, rs_per_node=2, bind="none", bind_gpus="g")
    assert launcher.srun(Part(8, 2), STEP, {}) == "srun -n 8 -N 2 -c 3"
    assert launcher.srun(Part(1, 0), Settings(), {}) == "srun -n 1"
    assert launcher.jsrun(Part(8, 2), Settings(), {}) == "jsrun --nrs 8 -b rs -a 1 -r 1 -c 1"
    assert launcher.jsrun(Part(8, 2), jobs, {}) == "jsrun --nrs 8 -b none -g 1 -B g -a 2 -r 2 -c 4"


@pytest.mark.filterwarnings("ignore:The 'warn' method:DeprecationWarning")
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("args", [{}, {"mpi": "spectrum", "verbose": None}])
@pytest.mark.parametrize("launcher_args", [{}, {"setattr": {"system.a": {"b": True}}, "t": {"x": 1}}])
def test_flux_is_told_what_maestro_tells_it(exclusive, args, launcher_args):
    from maestro_oracle import FluxFactory

    interface = FluxFactory.get_interface(FluxFactory.latest)
    keys = {"cores per task": 3, "gpus": 2, "exclusive": exclusive}
    theirs = interface.parallelize(
        8, nodes=2, addtl_args=dict(args), launcher_args=interface.normalize_additional_args(launcher_args), **keys
    )
    settings = Settings(procs=8, nodes=2, cores_per_task=3, gpus=2, exclusive_launcher=exclusive)
    ours = launcher.flux(Part(8, 2), settings, {"args": args, "launcher_args": launcher_args})
    assert sorted(ours.split()) == sorted(theirs.split())
    assert ours.split()[:6] == theirs.split()[:6]


@pytest.mark.parametrize(
    ("version", "as_root", "expected"),
    [
        ("mpiexec (OpenRTE) 4.1.4", False, "run -n 2 --bind-to none --oversubscribe"),
        ("mpirun (Open MPI) 4.1.4", True, "run -n 2 --allow-run-as-root --bind-to none --oversubscribe"),
        ("mpirun (Open MPI) 5.0.3", False, "run -n 2 --bind-to none --map-by :OVERSUBSCRIBE"),
        ("prterun (PRRTE) 3.0.2", False, "run -n 2 --bind-to none --map-by :OVERSUBSCRIBE"),
        ("HYDRA build details:\n    Version: 4.1.2", True, "run -n 2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.10", False, "run -n 2"),
    ],
)
def test_the_flavour_of_a_machine_is_told_by_its_version(version, as_root, expected):
    assert flavour_of_version("run", version, as_root)(Part(2, 0), STEP, {}) == expected


def fake(folder, name, says):
    path = folder / name
    path.write_text(f"#!/bin/sh\necho called >> {folder}/calls\necho '{says}'\n")
    path.chmod(0o755)


RUN = "procs: 4\ncmd: $(LAUNCHER) app"


def test_what_the_machine_has_is_asked_once_and_only_when_needed(tmp_path, monkeypatch):
    fake(tmp_path, "mpirun", "mpirun (Open MPI) 4.1.4")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(launcher, "PROGRAMS", ("no-such-mpiexec", "mpirun"))
    root = "--allow-run-as-root " if os.geteuid() == 0 else ""
    for run in ("procs: 4", "cmd: $(LAUNCHER) app", "procs: 4\ncmd: $(LAUNCHER)[1p] app"):
        script(tmp_path, run, "", dry=False)
    assert not (tmp_path / "calls").exists()
    assert script(tmp_path, RUN, "", dry=True) == "mpiexec -n 4 app"
    assert not (tmp_path / "calls").exists()
    text = f"mpirun -n 4 {root}--bind-to none --oversubscribe app"
    assert script(tmp_path, RUN, "", dry=False) == text
    assert (tmp_path / "calls").read_text() == "called\n"


def test_a_machine_without_mpi_says_which_step_wants_it_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = problems(tmp_path, one_step(RUN), dry=False)
    assert [(problem.line, problem.key) for problem in found] == [(3, "study[0].run")]
    assert "starts 4 processes" in found[0].what
    assert "no mpiexec and no mpirun" in found[0].what
    assert "install Open MPI or MPICH" in found[0].mend


def test_one_process_needs_no_mpi(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert script(tmp_path, "procs: 1\ncmd: $(LAUNCHER) app", "", dry=False) == "app"


def test_an_unknown_flavour_is_a_wrong_request(tmp_path):
    with pytest.raises(RequestError, match="known are openmpi, mpich, srun"):
        script(tmp_path, RUN, "mpichx")


@pytest.mark.parametrize(
    ("cmd", "what"),
    [
        ("$(LAUNCHER)[3p] a; $(LAUNCHER)[3p] b", "add up to 6 procs, but the step has 4"),
        ("$(LAUNCHER)[3n, 1p] a", "add up to 3 nodes, but the step has 2"),
        ("$(LAUNCHER)[2n] a", "must say how many processes"),
        ("$(LAUNCHER)[all] a", "is no part of a step"),
        ("$(LAUNCHER)[$(NO)p] a", "is no part of a step"),
    ],
)
@pytest.mark.parametrize("key", ["cmd", "restart"])
def test_parts_that_do_not_fit_are_told_when_the_study_is_read(cmd, what, key, tmp_path):
    other = "restart: x" if key == "cmd" else "cmd: x"
    found = problems(tmp_path, one_step(f'procs: 4\nnodes: 2\n{key}: "{cmd}"\n{other}'))
    assert [problem.key for problem in found] == [f"study[0].run.{key}"]
    assert what in found[0].what


def test_a_part_of_a_step_without_procs_does_not_fit(tmp_path):
    with pytest.raises(StudyError, match="add up to 2 procs, but the step has 1"):
        script(tmp_path, "cmd: $(LAUNCHER)[2p] a")


def test_parts_may_vary_and_are_checked_for_each_combination(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 2, 4], label: P.%%}"
    text = one_step('procs: 4\ncmd: "$(LAUNCHER)[$(P)p] a; $(LAUNCHER)[2p] b"', top)
    found = problems(tmp_path, text)
    assert ["add up to 6 procs" in problem.what for problem in found] == [True]
    work = read(write(tmp_path, text.replace("procs: 4", "procs: 6")), launcher="mpich").work("/run")
    bodies = [work.command(i, 1, False, (), ()).script.split("\n\n")[1].strip() for i in range(3)]
    assert bodies == ["a; mpiexec -n 2 b", "mpiexec -n 2 a; mpiexec -n 2 b", "mpiexec -n 4 a; mpiexec -n 2 b"]


def test_complaints_are_none_where_all_fits():
    assert complaints(["1n, 4p", "1n, 4p"], STEP) == []
    assert complaints(["8n, 4p"], Settings(procs=8)) == []


def test_the_launcher_of_a_batch_system_that_is_not_here_is_refused_before_anything_begins(
    tmp_path, monkeypatch, capsys
):
    from cantle.cli.main import main

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    path = write(tmp_path, one_step("cmd: $(LAUNCHER) hostname\nprocs: 2"))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "-o", str(tmp_path / "out"), "--launcher", "lsf"])
    assert ended.value.code == 1
    assert "--launcher jsrun: there is no jsrun on this machine" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
