"""A funnel may keep parameters apart: then it waits for those instances alone that have the same values of them."""

from __future__ import annotations

import subprocess

import pytest
from maestro_ours import problems, read, write

SWEEP = """
description: {name: s, description: d}
study:
  - {name: sim, description: d, run: {cmd: "echo $(SIZE) $(SEED)"}}
  - {name: prep, description: d, run: {cmd: echo}}
  - name: mean
    description: d
    run:
      cmd: %s
      depends: %s
global.parameters:
  SIZE: {values: [10, 10, 20, 20], label: SIZE.%%%%}
  SEED: {values: [1, 2, 1, 2], label: SEED.%%%%}
"""


def waits(folder, depends: str, cmd: str = "echo") -> dict[str, set[str]]:
    """For each instance of `mean`: for whom it waits."""
    study = read(write(folder, SWEEP % (cmd, depends)))
    tasks = study.tasks
    return {
        task.name: {tasks[each].name for each in (*task.parents, *task.after)}
        for task in tasks
        if task.name.startswith("mean")
    }


ALL = {"sim_SEED.1.SIZE.10", "sim_SEED.2.SIZE.10", "sim_SEED.1.SIZE.20", "sim_SEED.2.SIZE.20"}
OF_10, OF_20 = ({name for name in ALL if size in name} for size in ("SIZE.10", "SIZE.20"))


def test_without_it_a_funnel_waits_for_all(tmp_path):
    assert waits(tmp_path, "[sim_*]") == {"mean": ALL}


@pytest.mark.parametrize("same", ["SIZE", "[SIZE]", "[SIZE, SIZE]"])
def test_there_is_one_for_each_value_and_it_waits_for_those_of_that_value(tmp_path, same):
    assert waits(tmp_path, f"[{{step: sim_*, same: {same}}}]") == {"mean_SIZE.10": OF_10, "mean_SIZE.20": OF_20}


def test_beside_it_the_step_waits_for_others_as_ever(tmp_path):
    found = waits(tmp_path, "[prep, {step: sim_*, same: [SIZE]}]")
    assert found == {"mean_SIZE.10": {"prep", *OF_10}, "mean_SIZE.20": {"prep", *OF_20}}
    own = waits(tmp_path, "[sim, {step: prep_*}]")
    assert len(own) == 4 and all(len(each) == 2 for each in own.values())


def test_a_step_that_varies_with_more_waits_once_for_each_of_its_own_combinations(tmp_path):
    found = waits(tmp_path, "[{step: sim_*, same: [SIZE]}]", "echo $(SEED)")
    assert found == {
        "mean_SEED.1.SIZE.10": OF_10,
        "mean_SEED.2.SIZE.10": OF_10,
        "mean_SEED.1.SIZE.20": OF_20,
        "mean_SEED.2.SIZE.20": OF_20,
    }


def test_all_parameters_kept_apart_are_the_own_combination(tmp_path):
    found = waits(tmp_path, "[{step: sim_*, same: [SIZE, SEED]}]")
    assert found == {name.replace("sim", "mean"): {name} for name in ALL}


def test_it_may_wait_for_the_end_alone_and_for_several_steps(tmp_path):
    text = SWEEP % ("echo", "{steps: [sim_*], condition: all-completed, same: SEED}")
    first, second = read(write(tmp_path, text)).tasks[-2:]
    assert (first.parents, first.after) == ((), (0, 2)) and (second.parents, second.after) == ((), (1, 3))


def test_what_follows_such_a_step_is_expanded_as_it_is(tmp_path):
    text = SWEEP % ("echo", "[{step: sim_*, same: [SIZE]}]")
    last = "  - {name: last, description: d, run: {cmd: echo, depends: [mean]}}\nglobal.parameters:"
    tasks = read(write(tmp_path, text.replace("global.parameters:", last))).tasks
    assert [(task.name, task.parents) for task in tasks[-2:]] == [("last_SIZE.10", (5,)), ("last_SIZE.20", (6,))]


def test_it_may_stand_apart_so_that_maestro_reads_the_file_too(tmp_path):
    text = SWEEP % ("echo", "[sim_*]") + "cantle: {steps: {mean: {depends: [{step: sim_*, same: [SIZE]}]}}}\n"
    tasks = read(write(tmp_path, text)).tasks
    assert [(task.name, task.parents) for task in tasks[-2:]] == [("mean_SIZE.10", (0, 1)), ("mean_SIZE.20", (2, 3))]


def test_the_workspaces_of_what_is_awaited_are_named_one_after_another(tmp_path):
    text = SWEEP % ('for d in $(sim.workspaces); do basename "$d"; done', "[{step: sim_*, same: [SIZE]}]")
    study = read(write(tmp_path, text))
    script = study.work(str(tmp_path / "my runs")).command(5, 1, False, (), ()).script
    said = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "SEED.1.SIZE.10\nSEED.2.SIZE.10\n"


@pytest.mark.parametrize(
    ("depends", "listed"),
    [("[sim_*]", ["10/1", "10/2", "20/1", "20/2"]), ("[sim]", ["10/1"]), ("[]", ["10/1"])],
)
def test_so_are_those_of_any_step_that_is_awaited(tmp_path, depends, listed):
    study = read(write(tmp_path, SWEEP % ("echo $(sim.workspaces)", depends)))
    number = next(i for i, task in enumerate(study.tasks) if task.name.startswith("mean"))
    last = study.work("/run").command(number, 1, False, (), ()).script.splitlines()[-1]
    folders = ["/run/sim/SEED.{1}.SIZE.{0}".format(*each.split("/")) for each in listed]
    assert last.split() == ["echo", *folders]


@pytest.mark.parametrize(
    ("depends", "key", "what", "mend"),
    [
        ("[{step: sim, same: [SIZE]}]", "study[2].run.depends[0].step", "'sim' is no funnel", "write sim_*"),
        ("[{step: sim_*, same: [SIZ]}]", "study[2].run.depends[0].same", "there is no parameter 'SIZ'", "'SIZE'"),
        ("[{step: prep_*, same: SIZE}]", "study[2].run.depends[0].same", "prep does not vary with SIZE", "leave"),
        ("[{step: sim_*, same: [{}]}]", "study[2].run.depends[0].same", "must name parameters", "same: [SIZE]"),
        ("[{step: sim_*, same: 3}]", "study[2].run.depends[0].same", "must name parameters", "same: [SIZE]"),
        ("[{step: sim_*, sane: [SIZE]}]", "study[2].run.depends[0].sane", "is not known here", "same"),
    ],
)
def test_what_cannot_be_kept_apart_is_told_with_its_line(tmp_path, depends, key, what, mend):
    (problem,) = problems(tmp_path, SWEEP % ("echo", depends))
    assert (problem.key, problem.line) == (key, 10)
    assert what in problem.what and mend in problem.mend
