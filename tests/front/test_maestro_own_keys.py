"""What a step asks for: Maestro's resource keys as needs, and the keys that are Cantle's own."""

from __future__ import annotations

import math

import pytest
from maestro_ours import SPECS, one_step, problems, read, write

from cantle.model.resources import Needs
from cantle.model.study import Limits


def step(folder, run, top="", **options):
    (only,) = read(write(folder, one_step(run, top)), **options).steps
    return only


@pytest.mark.parametrize(
    ("run", "needs", "ranks"),
    [
        ("", Needs(), 0),
        ("cores per task: 4", Needs(cores=4), 0),
        ("gpus: 1", Needs(gpus=1), 0),
        ("procs: 3", Needs(cores=3), 3),
        ("procs: 3\ncores per task: 2", Needs(cores=6), 3),
        ("procs: 3\ncores per task: 2\nnodes: 2", Needs(cores=4, nodes=2), 3),
        ("procs: 5\nnodes: 2", Needs(cores=3, nodes=2), 5),
        ("nodes: 2", Needs(cores=1, nodes=2), 2),
        ("nodes: 2\ncores per task: 8", Needs(cores=8, nodes=2), 2),
        ("procs: 4\ncpus per rs: 5", Needs(cores=20), 4),
        ("procs: 2\ngpus: 4", Needs(cores=2, gpus=4), 2),
        ("procs: 2\nexclusive: true", Needs(cores=2, whole_nodes=True), 2),
        ("procs: 2\nexclusive: {allocation: true, launcher: false}", Needs(cores=2, whole_nodes=True), 2),
        ("procs: 2\nexclusive: {launcher: true}", Needs(cores=2), 2),
        ("memory: 512 MiB", Needs(memory_mib=512), 0),
        ("memory: 4 GB", Needs(memory_mib=math.ceil(4e9 / 2**20)), 0),
        ("memory: 100", Needs(memory_mib=100), 0),
        ("kind: gpu", Needs(kind="gpu"), 0),
        ("kind: big\ngpus: 1\nprocs: 2", Needs(cores=2, gpus=1, kind="big"), 2),
        ("resources: {licence: 2, disk: 1}", Needs(named=(("disk", 1), ("licence", 2))), 0),
    ],
)
def test_resource_keys_become_needs(run, needs, ranks, tmp_path):
    only = step(tmp_path, run)
    assert only.needs == needs
    assert only.ranks == ranks


def test_resources_that_vary_make_variants_of_one_step():
    study = read(SPECS / "levels-that-ask.yaml")
    inner = [(step.needs.cores, step.walltime_s, step.ranks) for step in study.steps if step.name == "inner"]
    assert inner == [(1, 60.0, 1), (2, 120.0, 2), (4, 240.0, 4)]
    assert [study.steps[task.step].name for task in study.tasks].count("inner") == 3


def test_combinations_that_ask_for_the_same_share_a_variant(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 2, 1, 2], label: P.%%}\n  Q: {values: [a, b, c, d], label: Q.%%}"
    study = read(write(tmp_path, one_step("cmd: echo $(Q)\nprocs: $(P)", top)))
    assert [task.step for task in study.tasks] == [0, 1, 0, 1]


def test_labels_and_names_serve_in_settings_too(tmp_path):
    top = 'global.parameters:\n  P: {values: [a, b], label: ["2", "3"]}'
    assert [step.ranks for step in read(write(tmp_path, one_step("procs: $(P.label)", top))).steps] == [2, 3]


@pytest.mark.parametrize("word", ["low", "LOW", "Low"])
def test_priorities_go_from_held_to_expedited_with_nothing_in_the_middle(word, tmp_path):
    low = step(tmp_path, f"priority: {word}").priority
    assert step(tmp_path, "priority: held").priority < step(tmp_path, "priority: minimal").priority < low < 0
    assert step(tmp_path, "").priority == step(tmp_path, "priority: medium").priority == 0
    assert step(tmp_path, "priority: 0.5").priority == 0
    assert 0 < step(tmp_path, "priority: HIGH").priority < step(tmp_path, "priority: Expedited").priority
    assert step(tmp_path, "priority: 100").priority > step(tmp_path, "priority: 1").priority > 0
    assert step(tmp_path, "priority: -1").priority < step(tmp_path, "priority: 0").priority < 0


def test_a_held_step_is_told_to_come_last(tmp_path):
    assert "comes last" in read(write(tmp_path, one_step("priority: held"))).warnings[0]


def test_attempts_are_for_steps_that_say_nothing_of_retries(tmp_path):
    assert step(tmp_path, "", attempts=4).retries == 3
    assert step(tmp_path, "retries: 0", attempts=4).retries == 0
    assert step(tmp_path, "retries: 2").retries == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("90 s", 90), ("5 min", 300), ("1:30:00", 5400), ("12", 12), ("0.5", 0.5)]
)
def test_estimates_are_durations(text, seconds, tmp_path):
    assert read(write(tmp_path, one_step(f"estimate: {text}"))).tasks[0].estimate_s == seconds


def test_estimates_may_vary(tmp_path):
    top = "global.parameters:\n  T: {values: [10, 20], label: T.%%}"
    study = read(write(tmp_path, one_step("estimate: $(T) min", top)))
    assert [task.estimate_s for task in study.tasks] == [600, 1200]
    assert len(study.steps) == 1


DIAMOND = """
description: {name: s, description: d}
study:
  - {name: a, description: d, run: {cmd: echo $(P)}}
  - {name: b, description: d, run: {cmd: echo}}
  - name: c
    description: d
    run:
      cmd: echo
      depends: %s
global.parameters:
  P: {values: [1, 2], label: P.%%%%}
"""


@pytest.mark.parametrize(
    ("depends", "parents", "after"),
    [
        ("[{step: a_*, condition: all-completed}, b]", (2,), (0, 1)),
        ("[{step: b, condition: all-completed}, a_*]", (0, 1), (2,)),
        ("[{step: b, condition: all-succeeded}, {step: a_*}]", (0, 1, 2), ()),
        ("{steps: [a_*, b], condition: all-completed}", (), (0, 1, 2)),
        ("{steps: [a_*, b]}", (0, 1, 2), ()),
        ("{step: b, condition: all-completed}", (), (2,)),
        ("[b, {step: b_*, condition: all-completed}]", (2,), ()),
        ("[{step: a_*}, {step: b_*, condition: all-completed}, b]", (0, 1, 2), ()),
        ("[]", (), ()),
    ],
)
def test_a_step_awaits_success_or_only_the_end(depends, parents, after, tmp_path):
    task = read(write(tmp_path, DIAMOND % depends)).tasks[-1]
    assert (task.name, task.parents, task.after) == ("c", parents, after)


def test_conditions_hold_for_each_combination(tmp_path):
    study = read(
        write(tmp_path, DIAMOND % "[{step: a, condition: all-completed}, {step: b, condition: all-completed}]")
    )
    assert [(task.parents, task.after) for task in study.tasks[-2:]] == [((), (0, 2)), ((), (1, 2))]
    study = read(
        write(tmp_path, DIAMOND % "[{step: a, condition: all-completed}, a_*, {step: b, condition: all-completed}]")
    )
    assert [(task.parents, task.after) for task in study.tasks[-2:]] == [((0, 1), (2,))] * 2


@pytest.mark.parametrize(
    ("depends", "key", "what"),
    [
        ("[{step: b, condition: all-done}]", "study[2].run.depends[0].condition", "is no condition"),
        ("[{condition: all-completed}]", "study[2].run.depends[0].step", "is missing"),
        ("[{step: b, when: all-completed}]", "study[2].run.depends[0].when", "is not known here"),
        ("{condition: all-completed}", "study[2].run.depends.steps", "is missing"),
        ("[{step: x, condition: all-completed}]", "study[2].run.depends[0].step", "there is no step 'x'"),
        ("[[b]]", "study[2].run.depends[0]", "must be the name of a step"),
        ("b", "study[2].run.depends", "must be a list of steps"),
    ],
)
def test_a_wrong_condition_is_told(depends, key, what, tmp_path):
    (problem,) = problems(tmp_path, DIAMOND % depends)
    assert problem.key == key
    assert what in problem.what


def test_the_environment_of_a_step_keeps_the_text_of_the_file_and_knows_all_tokens(tmp_path):
    run = "env: {A: 1.10, B: true, C: ~, D: $(V)-$(P), E: $(WORKSPACE)/x, F: 010}"
    top = "env: {variables: {V: v}}\nglobal.parameters:\n  P: {values: [1, 2], label: P.%%}"
    study = read(write(tmp_path, one_step(run, top).replace("name: work", "name: job")))
    env = study.work("/run").command(1, 1, False, (), ()).env
    assert env == {"A": "1.10", "B": "true", "C": None, "D": "v-2", "E": "/run/job/P.2/x", "F": "010"}


def test_a_workspace_named_in_the_environment_is_awaited(tmp_path):
    text = DIAMOND % "[]" + "cantle: {steps: {c: {env: {FROM: $(a.workspace)}}}}"
    study = read(write(tmp_path, text))
    assert [(task.name, task.parents) for task in study.tasks[-2:]] == [("c_P.1", (0,)), ("c_P.2", (1,))]
    assert study.work("/run").command(4, 1, False, (), ()).env == {"FROM": "/run/a/P.2"}


def test_own_keys_may_stand_apart_so_that_maestro_reads_the_file_too(tmp_path):
    from maestro_oracle import instances

    text = (
        DIAMOND % "[b]"
        + """
cantle:
  throttle: 3
  rlimit: 0
  fail_fast: true
  steps:
    c:
      retries: 2
      priority: 7
      memory: 1 GiB
      estimate: 1 min
      resources: {licence: 1}
      env: {X: 1}
      depends: [{step: b, condition: all-completed}, a_*]
"""
    )
    path = write(tmp_path, text)
    study = read(path)
    task, last = study.tasks[-1], study.steps[-1]
    assert (task.parents, task.after, task.estimate_s) == ((0, 1), (2,), 60)
    assert (last.retries, last.priority, last.needs) == (2, 6.5, Needs(memory_mib=1024, named=(("licence", 1),)))
    assert study.work("/run").command(3, 1, False, (), ()).env == {"X": "1"}
    assert study.limits == Limits(throttle=3, rlimit=0, fail_fast=True)
    assert "c" in instances(path, tmp_path / "out")


def test_what_is_unknown_in_cantles_block_is_an_error(tmp_path):
    top = """
cantle:
  throtle: 3
  rlimit: many
  fail_fast: 1
  steps:
    wrok: {retries: 1}
    work: {procs: 2, retry: 1}
"""
    found = {problem.key: problem.mend for problem in problems(tmp_path, one_step(top=top))}
    assert found.keys() == {
        "cantle.throtle",
        "cantle.rlimit",
        "cantle.fail_fast",
        "cantle.steps.wrok",
        "cantle.steps.work.procs",
        "cantle.steps.work.retry",
    }
    assert found["cantle.throtle"] == "did you mean 'throttle'?"
    assert found["cantle.steps.wrok"] == "did you mean 'work'?"
    assert found["cantle.steps.work.procs"].startswith("known are retries, depends")


@pytest.mark.parametrize(
    "run",
    [
        "memory: much",
        "memory: -1",
        "estimate: soon",
        "retries: -1",
        "resources: {x: 0}",
        "resources: [x]",
        "priority: soon",
        "env: [A]",
        "env: {A: [1]}",
        'env: {"A=B": 1}',
        "exclusive: maybe",
        "exclusive: {node: true}",
        "nested: 1",
        "bind: 1",
        "restart: 1",
        'restart: ""',
    ],
)
def test_a_setting_of_the_wrong_kind_is_told_with_its_line(run, tmp_path):
    (problem,) = problems(tmp_path, one_step(run))
    assert problem.line == 7
    assert problem.key.startswith(f"study[0].run.{run.split(':')[0]}")


def test_the_parent_of_runs_is_what_output_path_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/house/of/someone")

    def parent(path):
        return read(
            write(tmp_path, one_step(top=f"env: {{variables: {{BASE: b, OUTPUT_PATH: {path}}}}}"))
        ).output_parent

    assert parent("./out") == str(tmp_path / "out")
    assert parent("/abs/$(BASE)") == "/abs/b"
    assert parent("~/studies") == "/house/of/someone/studies"
    assert read(write(tmp_path, one_step())).output_parent == ""


def test_an_output_path_that_names_itself_is_an_error(tmp_path):
    top = "env: {variables: {OUTPUT_PATH: $(OUTPUT_PATH)/x}}"
    assert [problem.key for problem in problems(tmp_path, one_step(top=top))] == ["env.variables.OUTPUT_PATH"]
