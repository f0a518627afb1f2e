"""A study that was kept is the same study again, wherever and whenever it is reopened."""

from __future__ import annotations

import shutil

import pytest
from maestro_ours import SPECS, one_step, read, write

from cantle.readers.base import ReadOptions
from cantle.readers.maestro import MaestroReader


def keep(study, folder):
    folder.mkdir()
    for name, content in study.keep.items():
        (folder / name).write_bytes(content)
    return folder


def everything(study):
    work = study.work("/the/run")
    commands = [work.command(i, 1, restart, (), ()) for i, task in enumerate(study.tasks) for restart in (False, True)]
    return study.digest, study.name, study.steps, study.tasks, commands, study.limits, study.output_parent, study.keep


@pytest.mark.parametrize("spec", [path.stem for path in SPECS.glob("*.yaml")])
@pytest.mark.parametrize(
    "options", [{}, {"hashws": True, "attempts": 3, "launcher": "mpich"}], ids=["plain", "options"]
)
def test_every_study_is_the_same_when_reopened(spec, options, tmp_path, monkeypatch):
    monkeypatch.chdir(SPECS)
    study = MaestroReader().read(SPECS / f"{spec}.yaml", ReadOptions(**{"launcher": "slurm", **options}))
    monkeypatch.chdir(tmp_path)
    again = MaestroReader().reopen(keep(study, tmp_path / "kept"))
    assert everything(again) == everything(study)


def test_the_generator_is_not_run_again(tmp_path):
    text = """import random
from maestrowf.datastructures.core import ParameterGenerator
def get_custom_generator(env, **kwargs):
    p = ParameterGenerator()
    p.add_parameter("P", [random.random() for _ in range(5)])
    return p
"""
    pgen = write(tmp_path, text, "pgen.py")
    path = write(tmp_path, one_step("cmd: echo $(P)"))
    study = read(path, pgen=str(pgen))
    pgen.unlink()
    path.unlink()
    assert everything(MaestroReader().reopen(keep(study, tmp_path / "kept"))) == everything(study)


def test_relative_paths_and_the_place_of_the_file_stay_what_they_were(tmp_path, monkeypatch):
    top = "env: {variables: {OUTPUT_PATH: studies}, dependencies: {paths: [{name: D, path: data}]}}"
    (tmp_path / "here" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    study = read(write(tmp_path, one_step("cmd: echo $(D) $(SPECROOT)", top)), dry=False)
    monkeypatch.chdir("/")
    shutil.rmtree(tmp_path / "here")
    again = MaestroReader().reopen(keep(study, tmp_path / "kept"))
    assert everything(again) == everything(study)
    assert again.work("/run").command(0, 1, False, (), ()).script.endswith(f"echo {tmp_path}/here/data {tmp_path}\n")
    assert again.output_parent == str(tmp_path / "here" / "studies")


def test_the_digest_follows_whatever_changes_tasks_or_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    top = "env: {dependencies: {paths: [{name: D, path: data}]}}"
    path = write(tmp_path, one_step("cmd: echo $(D)", top))
    digests = {read(path).digest, read(path, hashws=True).digest, read(path, attempts=2).digest}
    (tmp_path / "elsewhere").mkdir()
    digests.add(read(write(tmp_path / "elsewhere", path.read_text())).digest)
    monkeypatch.chdir(tmp_path / "elsewhere")
    digests.add(read(path).digest)
    path.write_text(path.read_text().replace("echo", "printf"))
    digests.add(read(path).digest)
    assert len(digests) == 6


def test_the_digest_is_the_same_for_the_same_study(tmp_path):
    path = write(tmp_path, one_step("cmd: echo"))
    assert read(path).digest == read(path).digest == read(path, dry=False).digest
