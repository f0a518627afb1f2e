"""What instances run: names of files, scripts that work under a real shell, and what must be fetched before."""

from __future__ import annotations

import os
import stat
import subprocess

import pytest
from maestro_ours import SPECS, one_step, read, write

from cantle.errors import MachineError, StudyError


def run(study, directory):
    """Run all tasks in order, as the runner does: the script in its workspace, by its shell. Their output, by name."""
    work = study.work(str(directory))
    said = {}
    for number, task in enumerate(study.tasks):
        command = work.command(number, 1, False, (), ())
        cwd = directory / command.cwd
        cwd.mkdir(parents=True, exist_ok=True)
        path = directory / command.script_path
        path.write_text(command.script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        env = {**os.environ, **{key: value for key, value in command.env.items() if value is not None}}
        result = subprocess.run(
            [*command.shell, str(path)], cwd=cwd, env=env, capture_output=True, text=True, timeout=200
        )
        assert result.returncode == 0, (task.name, result.stderr)
        said[task.name] = result.stdout
    return said


def test_scripts_run_under_a_real_shell_and_find_each_other(tmp_path):
    spec = (SPECS / "shock-sweep.yaml").read_text()
    spec = spec.replace("$(build.workspace)/code/shock", "cat $(build.workspace)/code/origin && echo").replace(
        " -p", ""
    )
    run(read(write(tmp_path, spec)), tmp_path / "run")
    folder = tmp_path / "run"
    text = "s/^CXX = $(MPICXX)/CXX = $(SERCXX)/\n"
    assert (folder / "build/code/edit.sed").read_text() == text
    assert (folder / "run/ITER.10.SIZE.20/SIZE.20.ITER.10.log").read_text() == "-s 20 -i 10\n"
    assert len((folder / "look/all.txt").read_text().splitlines()) == 10
    assert (folder / "look-by-size/SIZE.30/size.txt").read_text().split() == [f"ITER.{i}.SIZE.30" for i in (10, 20, 30)]
    assert (folder / "look-by-trial/TRIAL.7/trial.txt").read_text() == f"trial 7 of {folder}/run\n"


def test_a_batch_script_runs_here_too_because_its_header_is_comments(tmp_path):
    spec = (SPECS / "greet-and-part-slurm.yaml").read_text()
    said = run(read(write(tmp_path, spec)), tmp_path / "run")
    assert said["part_BYE.Adieu.WHO.Ada"] == "Good morning, Ada\n"
    assert (tmp_path / "run/part/BYE.So_long.WHO.Edith/part_BYE.So_long.WHO.Edith.slurm.sh").exists()


def test_another_shell_with_arguments_is_used(tmp_path):
    top = "batch: {type: local, shell: /usr/bin/env python3 -B}"
    text = one_step(
        'cmd: |\n  import sys\n  print(sys.flags.dont_write_bytecode, "$(V)")', f"env: {{variables: {{V: 7}}}}\n{top}"
    )
    study = read(write(tmp_path, text))
    assert run(study, tmp_path / "run") == {"work": "1 7\n"}
    command = study.work("/run").command(0, 1, False, (), ())
    assert command.shell == ("/usr/bin/env", "python3", "-B")
    assert command.script.startswith("#!/usr/bin/env python3 -B\n\n")


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("local", ".sh"), ("slurm", ".slurm.sh"), ("lsf", ".lsf.sh"), ("flux", ".flux.sh"), ("local_pool", ".sh")],
)
def test_files_are_named_as_maestro_names_them(kind, ending, tmp_path):
    top = f"batch: {{type: {kind}}}\nglobal.parameters:\n  P: {{values: [a b/c], label: P.%%}}"
    work = read(write(tmp_path, one_step("cmd: echo $(P)\nrestart: echo again", top))).work("/run")
    first, again = (work.command(0, attempt, attempt > 1, (), ()) for attempt in (1, 2))
    assert first.cwd == "work/P.a_bc"
    assert first.output_stem == again.output_stem == "work/P.a_bc/work_P.a_bc"
    assert first.script_path == f"work/P.a_bc/work_P.a_bc{ending}"
    assert again.script_path == f"work/P.a_bc/work_P.a_bc.restart{ending}"
    assert first.script.endswith("echo a b/c\n")
    assert again.script.endswith("echo again\n")


def test_a_step_without_a_restart_script_runs_its_own_again(tmp_path):
    study = read(write(tmp_path, one_step()))
    work = study.work("/run")
    assert work.command(0, 2, True, (), ()) == work.command(0, 1, False, (), ())
    assert not study.steps[0].restartable


def test_scripts_may_lie_in_a_temporary_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    work = read(SPECS / "chain.yaml", usetmp=True).work("/run")
    paths = [work.command(i, 1, False, (), ()).script_path for i in range(4)]
    assert len({os.path.dirname(path) for path in paths}) == 1
    assert paths[0].startswith(f"{tmp_path}/cantle-")
    assert paths[0].endswith("/first_N.1.sh")
    assert work.command(0, 1, False, (), ()).cwd == "first/N.1"
    assert read(SPECS / "chain.yaml", usetmp=True).work("/run").command(0, 1, False, (), ()).script_path == paths[0]
    assert read(SPECS / "chain.yaml", usetmp=True).work("/other").command(0, 1, False, (), ()).script_path != paths[0]
    assert stat.S_IMODE(os.stat(os.path.dirname(paths[0])).st_mode) == 0o700


def test_a_temporary_folder_that_somebody_else_has_made_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = os.path.dirname(
        read(SPECS / "chain.yaml", usetmp=True).work("/run").command(0, 1, False, (), ()).script_path
    )
    os.rmdir(folder)
    os.symlink("/", folder)
    with pytest.raises(MachineError, match="belongs to somebody else"):
        read(SPECS / "chain.yaml", usetmp=True).work("/run").command(0, 1, False, (), ())


def test_a_hundred_thousand_instances_share_what_they_can(tmp_path):
    values = ",".join(map(str, range(20000)))
    top = f"""
  - {{name: after, description: d, run: {{cmd: "ls $(job.workspace)", depends: [job]}}}}
  - {{name: all, description: d, run: {{cmd: "ls $(after.workspace)", depends: [after_*]}}}}
global.parameters:
  P: {{values: [{values}], label: P.%%}}
"""
    study = read(write(tmp_path, one_step("cmd: echo $(P)\nprocs: 2", top).replace("name: work", "name: job")))
    assert len(study.tasks) == 40001
    assert len(study.steps) == 3
    assert study.tasks[20005].params is study.tasks[5].params
    assert study.tasks[20005].parents == (5,)
    assert study.tasks[-1].parents == tuple(range(20000, 40000))
    assert study.work("/run").command(33333, 1, False, (), ()).script == "#!/bin/bash\n\nls /run/job/P.13333\n"


def git(*arguments, cwd):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, env=environment, check=True, capture_output=True, timeout=200
    )


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "origin"
    folder.mkdir()
    git("init", cwd=folder)
    for number in (1, 2):
        (folder / "version").write_text(f"{number}\n")
        git("add", "version", cwd=folder)
        git("commit", "-m", f"{number}", cwd=folder)
        git("tag", f"v{number}", cwd=folder)
    return folder


def depending(folder, ref="", path="$(OUTPUT_PATH)/src"):
    return f"""
env:
  variables: {{WHERE: {folder}}}
  dependencies:
    git: [{{name: CODE, path: {path}, url: $(WHERE){ref}}}]
"""


def test_repositories_are_cloned_before_the_launch_and_not_when_read(repository, tmp_path):
    path = write(tmp_path, one_step("cmd: cat $(CODE)/version", depending(repository, ", tag: v1")))
    study = read(path, dry=False)
    directory = tmp_path / "run"
    work = study.work(str(directory))
    assert not directory.exists()
    work.prepare(str(directory))
    assert run(study, directory) == {"work": "1\n"}
    assert sorted(os.listdir(directory / "src")) == ["CODE"]


def test_a_clone_that_is_there_is_used_again_when_the_run_is_resumed(repository, tmp_path):
    study = read(write(tmp_path, one_step("cmd: cat $(CODE)/version", depending(repository))))
    work = study.work(str(tmp_path / "run"))
    work.prepare(str(tmp_path / "run"))
    (tmp_path / "run/src/CODE/version").write_text("mine\n")
    work.prepare(str(tmp_path / "run"))
    assert run(study, tmp_path / "run") == {"work": "mine\n"}


@pytest.mark.parametrize(
    ("ref", "what"),
    [(", branch: nowhere", "cannot fetch CODE"), (", hash: 0123456", "cannot fetch CODE"), ("/none", "does not exist")],
)
def test_a_repository_that_cannot_be_fetched_is_told_and_leaves_nothing(ref, what, repository, tmp_path):
    work = read(write(tmp_path, one_step("cmd: x", depending(repository, ref)))).work(str(tmp_path / "run"))
    with pytest.raises(StudyError) as caught:
        work.prepare(str(tmp_path / "run"))
    (problem,) = caught.value.problems
    assert problem.key == "env.dependencies.git[0]"
    assert what in problem.what
    assert os.listdir(tmp_path / "run/src") == []


def test_what_lies_where_a_repository_should_go_is_not_touched(repository, tmp_path):
    (tmp_path / "run/src/CODE").mkdir(parents=True)
    (tmp_path / "run/src/CODE/mine").write_text("x")
    work = read(write(tmp_path, one_step("cmd: x", depending(repository)))).work(str(tmp_path / "run"))
    with pytest.raises(StudyError, match="is there already, and is no clone of"):
        work.prepare(str(tmp_path / "run"))
    assert (tmp_path / "run/src/CODE/mine").read_text() == "x"


def test_paths_within_the_run_are_looked_for_when_it_starts(tmp_path):
    top = "env: {dependencies: {paths: [{name: D, path: $(OUTPUT_PATH)/data}]}}"
    work = read(write(tmp_path, one_step("cmd: ls $(D)", top)), dry=False).work(str(tmp_path / "run"))
    with pytest.raises(StudyError, match="run/data is not there"):
        work.prepare(str(tmp_path / "run"))
    (tmp_path / "run/data").mkdir(parents=True)
    work.prepare(str(tmp_path / "run"))
    assert work.command(0, 1, False, (), ()).script.endswith(f"ls {tmp_path}/run/data\n")


def test_readers_recognise_studies_by_name_or_by_what_stands_at_the_top(tmp_path):
    from cantle.readers.maestro import MaestroReader

    reader = MaestroReader()
    assert reader.name == "maestro"
    assert reader.recognises(tmp_path / "x.yaml")
    assert reader.recognises(tmp_path / "x.YML")
    assert reader.recognises(write(tmp_path, "# a study\nstudy:\n  - x\n", "study"))
    assert not reader.recognises(write(tmp_path, '{"study": 1}', "x.json"))
    assert not reader.recognises(tmp_path / "nothing")
