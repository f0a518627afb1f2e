"""`stage:` in a step: which files are brought to where it runs, and back."""

from __future__ import annotations

import pytest
from maestro_ours import problems, read, write

from cantle.model.resources import Node, Place
from cantle.model.study import Stage

TWO = """\
description: {name: s, description: d}
env: {variables: {DATA: data}}
study:
  - name: a
    description: d
    run: {cmd: "touch x", stage: {out: [x]}}
  - name: b
    description: d
    run:
      cmd: "cat in.$(P)"
      depends: [a]
      stage: {in: ["$(a.workspace)/x", "$(DATA)/in.$(P)", /opt/tool], out: ["*.$(P)"]}
global.parameters:
  P: {values: [1, 2], label: P.%%}
"""


def one(stage: str, more: str = "") -> str:
    return f"""\
description: {{name: s, description: d}}
study:
  - name: a
    description: d
    run:
      cmd: "true"
      stage: {stage}
      {more}
"""


def test_files_are_found_from_the_study_and_put_where_the_step_expects_them(tmp_path):
    study = read(write(tmp_path, TWO))
    assert all(step.needs.staged for step in study.steps)
    run = tmp_path / "run"
    work = study.work(str(run))
    names = [task.name for task in study.tasks]
    command = work.command(names.index("b_P.1"), 1, False, (Place(0, "0"),), (Node("n", 1),))
    assert command.stage == Stage(
        (
            (f"{run}/a/x", "a/"),
            (f"{tmp_path}/data/in.1", "b/P.1/"),
            ("/opt/tool", "b/P.1/"),
        ),
        ("*.1",),
    )


def test_a_step_that_stages_nothing_says_nothing(tmp_path):
    study = read(write(tmp_path, one("{}").replace("      stage: {}\n", "")))
    assert not study.steps[0].needs.staged
    command = study.work(str(tmp_path)).command(0, 1, False, (Place(0, "0"),), (Node("n", 1),))
    assert command.stage is None


def test_a_step_that_needs_no_files_may_say_so(tmp_path):
    assert read(write(tmp_path, one("{}"))).steps[0].needs.staged


@pytest.mark.parametrize(
    ("stage", "more", "key", "told"),
    [
        ("[x]", "", "stage", "must be a mapping, not a list"),
        ("{inn: [x]}", "", "stage.inn", "did you mean 'in'?"),
        ("{in: x}", "", "stage.in", "must be a list, not text"),
        ("{out: [[x]]}", "", "stage.out[0]", "must be the name of a file"),
        ("{out: [/x]}", "", "stage.out[0]", "outside of the step's workspace"),
        ("{out: [../x]}", "", "stage.out[0]", "outside of the step's workspace"),
        ("{out: [x]}", "nodes: 2", "stage", "on one node alone"),
        ("{out: [x]}", "streams: 2", "stage", "on one node alone"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(tmp_path, stage, more, key, told):
    found = problems(tmp_path, one(stage, more))
    assert any(problem.key == f"study[0].run.{key}" and told in str(problem) for problem in found), found


LOCAL = """\
description: {name: s, description: d}
study:
  - name: a
    description: d
    run: {cmd: "touch out.$(P)", local: ["out.$(P)", /scratch/x]}
global.parameters:
  P: {values: [1, 2], label: P.%%}
"""


def test_a_step_may_say_which_files_stay_on_its_node(tmp_path):
    study = read(write(tmp_path, LOCAL))
    step = study.steps[study.tasks[0].step]
    assert step.local == ("out.1", "/scratch/x")
    assert step.needs.staged, "it may run where others see none of its files"
    command = study.work(str(tmp_path)).command(1, 1, False, (Place(0, "0"),), (Node("n", 1),))
    assert command.stage == Stage(local=("out.2", "/scratch/x"))


@pytest.mark.parametrize(
    ("local", "key", "told"),
    [("x", "local", "must be a list"), ("[{}]", "local[0]", "name of a file"), ("['*.txt']", "local[0]", "one file")],
)
def test_what_is_wrong_with_local_files_is_told(tmp_path, local, key, told):
    found = problems(tmp_path, one("{}", f"local: {local}"))
    assert any(key in str(problem) and told in str(problem) for problem in found), found
