"""What is wrong with a specification is told: all of it at once, where it stands, and what would help."""

from __future__ import annotations

import pytest
import yaml
from maestro_ours import SPECS, one_step, problems, read, write

from cantle.errors import RequestError, StudyError


def the_one(found):
    assert len(found) == 1, found
    return found[0]


def changed(name, change):
    """A specification of ours, changed by a function of the parsed document."""
    document = yaml.safe_load((SPECS / f"{name}.yaml").read_text())
    change(document)
    return yaml.safe_dump(document, sort_keys=False)


def test_an_unknown_key_at_the_top_is_ignored_with_a_note(tmp_path):
    study = read(write(tmp_path, one_step(top="merlin: {samples: 1}\nbathc: {type: slurm}")))
    assert len(study.warnings) == 2
    assert "Merlin extension" in study.warnings[0]
    assert "did you mean 'batch'?" in study.warnings[1]


@pytest.mark.parametrize(
    ("right", "wrong", "key"), [("study:", "stduy:", "study"), ("description:", "descripton:", "description")]
)
def test_a_key_that_is_missing_since_it_is_misspelt_is_pointed_at(right, wrong, key, tmp_path):
    text = one_step()
    line = 1 + text.split("\n").index(next(line for line in text.split("\n") if line.startswith(right)))
    problem = the_one(problems(tmp_path, text.replace(right, wrong, 1)))
    assert problem.key == key
    assert problem.mend == f"is '{wrong[:-1]}' in line {line} meant to be it?"


@pytest.mark.parametrize(
    ("run", "key", "mend"),
    [
        ("proc: 2", "study[0].run.proc", "did you mean 'procs'?"),
        ("cores_per_task: 2", "study[0].run.cores_per_task", "did you mean 'cores per task'?"),
        ("max_retries: 2", "study[0].run.max_retries", "a Merlin extension; Cantle's key is `retries`"),
        ("task_queue: q", "study[0].run.task_queue", "a Merlin extension"),
        ("zzz: 1", "study[0].run.zzz", "known are cmd, "),
    ],
)
def test_an_unknown_key_of_run_is_an_error_that_says_which_one_was_meant(run, key, mend, tmp_path):
    problem = the_one(problems(tmp_path, one_step(run)))
    assert (problem.line, problem.key) == (7, key)
    assert problem.mend.startswith(mend)
    assert problem.file.endswith("spec.yaml")


def test_a_key_of_run_that_stands_beside_it_is_told_to_move(tmp_path):
    text = one_step().replace("    run:", "    procs: 2\n    run:")
    problem = the_one(problems(tmp_path, text))
    assert (problem.key, problem.mend) == ("study[0].procs", "it belongs under `run`")


def test_all_problems_of_a_file_are_told_at_once_by_line(tmp_path):
    text = """
description: {name: s}
env: {variables: {A: true, B: [1], C: ""}, label: {}}
batch: {type: slrum}
study:
  - name: one
    run: {cmd: "", proc: 2, procs: many, depends: [tow]}
  - description: d
    run: {nodes: 0, cmd: x}
global.parameters:
  P: {values: [1, 2], label: P.%%}
  Q: {values: [1], label: Q.%%, name: q}
"""
    found = problems(tmp_path, text)
    assert [problem.line for problem in found] == sorted(problem.line for problem in found)
    assert {problem.key for problem in found} >= {
        "description.description",
        "env.variables.A",
        "env.variables.B",
        "env.variables.C",
        "env.label",
        "batch.type",
        "study[0].description",
        "study[0].run.cmd",
        "study[0].run.proc",
        "study[0].run.procs",
        "study[0].run.depends[0]",
        "study[1].name",
        "global.parameters",
        "global.parameters.Q.name",
    }
    assert all(problem.what for problem in found)


def test_a_step_name_used_twice_is_an_error_with_both_lines(tmp_path):
    text = one_step(top="  - name: work\n    description: again\n    run: {cmd: echo}")
    problem = the_one(problems(tmp_path, text))
    assert (problem.line, problem.key) == (7, "study[1].name")
    assert "line 3" in problem.what


def test_a_dependency_on_a_step_that_does_not_exist_names_the_one_that_was_meant(tmp_path):
    def rename(document):
        document["study"][1]["name"] = "run-all"

    problem = the_one(
        [p for p in problems(tmp_path, changed("shock-sweep", rename)) if p.key == "study[2].run.depends[0]"]
    )
    assert problem.what == "there is no step 'run'"
    assert problem.mend == "did you mean 'run-all'?"


def test_a_step_listed_later_is_accepted(tmp_path):
    study = read(write(tmp_path, changed("shock-sweep", lambda document: document["study"].reverse())))
    assert len(study.tasks) == 23
    assert sum(len(task.parents) for task in study.tasks) == 126
    assert all(parent < i for i, task in enumerate(study.tasks) for parent in task.parents)


CIRCLE = """
description: {name: s, description: d}
study:
  - {name: a, description: d, run: {cmd: x, depends: [c]}}
  - {name: b, description: d, run: {cmd: x, depends: [a]}}
  - {name: c, description: d, run: {cmd: x, depends: [b_*]}}
"""


def test_a_circle_is_told_with_the_whole_way_round_file_and_line_O32(tmp_path):
    problem = the_one(problems(tmp_path, CIRCLE))
    assert "a -> b -> c -> a" in problem.what
    assert (problem.line, problem.key) == (4, "study[0].run.depends[0]")
    assert "b in line 5" in problem.mend
    assert str(problem).startswith(str(tmp_path / "spec.yaml:4"))


def test_a_step_that_awaits_itself_is_a_circle_O32(tmp_path):
    problem = the_one(problems(tmp_path, one_step("depends: [work]")))
    assert "work -> work" in problem.what


def test_a_circle_by_way_of_a_workspace_is_told_as_one(tmp_path):
    text = CIRCLE.replace("{cmd: x, depends: [c]}", "{cmd: ls $(c.workspace)}")
    problem = the_one(problems(tmp_path, text))
    assert "a -> b -> c -> a" in problem.what
    assert "$(c.workspace)" in problem.mend


def test_a_workspace_of_no_step_is_an_error(tmp_path):
    problem = the_one(problems(tmp_path, one_step("cmd: ls $(wrok.workspace)")))
    assert problem.what == "$(wrok.workspace): there is no step 'wrok'"
    assert problem.mend == "did you mean 'work'?"


def test_lists_of_different_length_are_an_error_with_each_length(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 2], label: P.%%}\n  Q: {values: [1], label: Q.%%}"
    problem = the_one(problems(tmp_path, one_step("cmd: echo $(P) $(Q)", top)))
    assert "P has 2, Q has 1" in problem.what


def test_an_empty_list_of_values_is_an_error(tmp_path):
    top = "global.parameters:\n  P: {values: [], label: P.%%}"
    problem = the_one(problems(tmp_path, one_step("cmd: echo $(P)", top)))
    assert (problem.line, problem.key) == (8, "global.parameters.P.values")


def test_a_parameter_without_a_label_is_labelled_by_its_name(tmp_path):
    study = read(write(tmp_path, one_step("cmd: echo $(P)", "global.parameters:\n  P: {values: [1, 2]}")))
    assert [task.name for task in study.tasks] == ["work_P.1", "work_P.2"]


def test_labels_may_be_a_list(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 2], label: [low, high-%%]}"
    study = read(write(tmp_path, one_step("cmd: echo $(P) $(P.label)", top)))
    assert [task.name for task in study.tasks] == ["work_low", "work_high-2"]
    assert study.work("/run").command(1, 1, False, (), ()).script.endswith("\necho 2 high-2\n")


def test_a_list_of_labels_is_as_long_as_the_values(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 2], label: [low]}"
    assert "1 labels for 2 values" in the_one(problems(tmp_path, one_step("cmd: echo $(P)", top))).what


def test_equal_labels_for_different_values_are_an_error_that_names_both(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 2], label: same}"
    problem = the_one(problems(tmp_path, one_step("cmd: echo $(P)", top)))
    assert problem.key == "global.parameters.P.label"
    assert problem.line == 8
    assert "'1' and '2' of P have the same label 'same'" in problem.what


def test_equal_labels_for_equal_values_are_one_run(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 1, 2], label: P.%%}"
    assert [task.name for task in read(write(tmp_path, one_step("cmd: echo $(P)", top))).tasks] == [
        "work_P.1",
        "work_P.2",
    ]


def test_equal_labels_of_a_parameter_that_nobody_uses_do_no_harm(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 2], label: same}"
    assert len(read(write(tmp_path, one_step(top=top))).tasks) == 1


def test_labels_that_would_share_a_directory_are_an_error_without_hashws(tmp_path):
    text = one_step("cmd: echo $(P)", "global.parameters:\n  P: {values: [a/b, ab], label: P.%%}")
    problem = the_one(problems(tmp_path, text))
    assert "'a/b' and 'ab' of P would share the directory 'P.ab'" in problem.what
    workspaces = [task.workspace for task in read(write(tmp_path, text), hashws=True).tasks]
    assert workspaces == ["work/work_instance_0", "work/work_instance_1"]


def test_labels_of_equal_values_that_would_share_a_directory_are_an_error_too(tmp_path):
    top = "global.parameters:\n  P: {values: [1, 1], label: [a/b, ab]}"
    problem = the_one(problems(tmp_path, one_step("cmd: echo $(P)", top)))
    assert problem.what == "combinations 1 and 2 would share the directory 'ab'"


def test_each_step_whose_instances_have_names_too_long_for_a_file_is_told(tmp_path):
    long = "w" * 150
    step = f"  - {{name: {long}, description: d, run: {{cmd: echo $(P)}}}}"
    top = f"{step}\nglobal.parameters:\n  P: {{values: [{'x' * 80}], label: P.%%}}"
    problem = the_one(problems(tmp_path, one_step("cmd: echo $(P)", top)))
    assert f"the labels of '{long}' make a name too long for a file" in problem.what


def test_names_too_long_for_a_file_are_an_error_without_hashws(tmp_path):
    text = one_step("cmd: echo $(P)", f"global.parameters:\n  P: {{values: [{'x' * 250}], label: P.%%}}")
    assert "too long for a file" in the_one(problems(tmp_path, text)).what
    assert len(read(write(tmp_path, text), hashws=True).tasks) == 1


@pytest.mark.parametrize("name", ["..", ".", "é", ".cantle"])
def test_a_step_whose_directory_would_be_none_of_its_own_is_an_error(name, tmp_path):
    problem = the_one(problems(tmp_path, one_step().replace("name: work", f"name: {name}")))
    assert problem.key == "study[0].name"


def test_steps_whose_instances_have_the_same_name_are_an_error(tmp_path):
    top = "  - {name: work_P.1, description: d, run: {cmd: echo}}\nglobal.parameters:\n  P: {values: [1], label: P.%%}"
    problem = the_one(problems(tmp_path, one_step("cmd: echo $(P)", top)))
    assert "'work' and 'work_P.1' both have an instance 'work_P.1'" in problem.what


def test_decimal_text_is_accepted_for_a_number(tmp_path):
    study = read(write(tmp_path, one_step('procs: "4"\ncores per task: "2"')))
    assert study.steps[0].needs.cores == 8


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "true", "[1]", "~", '""', "$(NO)", "2x"])
def test_what_is_no_number_is_an_error_for_a_number(value, tmp_path):
    problem = the_one(problems(tmp_path, one_step(f"procs: {value}")))
    assert (problem.line, problem.key) == (7, "study[0].run.procs")


def test_a_varying_number_that_is_none_is_an_error_with_its_origin(tmp_path):
    top = "global.parameters:\n  P: {values: [1, two], label: P.%%}"
    problem = the_one(problems(tmp_path, one_step("procs: $(P)", top)))
    assert problem.what == "must be a whole number, not 'two'"
    assert problem.mend == "it comes from $(P)"


@pytest.mark.parametrize("value", ["true", "[1, 2]", "{a: 1}", '""', "~"])
@pytest.mark.parametrize("name", ["X", "OUTPUT_PATH"])
def test_a_variable_is_text_or_a_number(value, name, tmp_path):
    problem = the_one(problems(tmp_path, one_step(top=f"env: {{variables: {{{name}: {value}}}}}")))
    assert problem.key == f"env.variables.{name}"


@pytest.mark.parametrize(
    "top", ["global.parameters:", "env:", "env: {variables: }", "batch:", "cantle:", "env: {labels: }"]
)
def test_a_block_with_nothing_in_it_is_empty(top, tmp_path):
    assert [task.name for task in read(write(tmp_path, one_step(top=top))).tasks] == ["work"]


@pytest.mark.parametrize("top", ["env: 1", "batch: [a]", "cantle: x", "global.parameters: [P]"])
def test_a_block_of_the_wrong_kind_is_an_error(top, tmp_path):
    assert "must be a mapping" in the_one(problems(tmp_path, one_step(top=top))).what


def test_tokens_in_a_dependency_path_are_replaced_and_then_it_is_looked_for(tmp_path):
    top = f"env:\n  variables: {{ROOT: {tmp_path}}}\n  dependencies: {{paths: [{{name: D, path: $(ROOT)/data}}]}}"
    text = one_step("cmd: ls $(D)", top)
    problem = the_one(problems(tmp_path, text, dry=False))
    assert problem.key == "env.dependencies.paths[0].path"
    assert f"{tmp_path}/data is not there" in problem.what
    (tmp_path / "data").mkdir()
    study = read(write(tmp_path, text), dry=False)
    assert study.work("/run").command(0, 1, False, (), ()).script.endswith(f"ls {tmp_path}/data\n")


def test_a_missing_path_does_not_matter_to_a_dry_run(tmp_path):
    top = "env: {dependencies: {paths: [{name: D, path: /no/such/place}]}}"
    assert len(read(write(tmp_path, one_step("cmd: ls $(D)", top))).tasks) == 1


def test_an_unquoted_walltime_is_what_it_looks_like(tmp_path):
    study = read(write(tmp_path, one_step("walltime: 10:00:00\nprocs: 1", "batch: {type: slurm}")))
    assert study.steps[0].walltime_s == 36000
    assert "#SBATCH --time=10:00:00\n" in study.work("/run").command(0, 1, False, (), ()).script
    assert study.warnings == []


def test_a_walltime_that_is_a_number_is_minutes_with_a_warning(tmp_path):
    study = read(write(tmp_path, one_step("walltime: 36000\nprocs: 1", "batch: {type: slurm}")))
    assert study.steps[0].walltime_s == 36000 * 60
    assert "#SBATCH --time=36000\n" in study.work("/run").command(0, 1, False, (), ()).script
    assert "means minutes" in study.warnings[0]
    assert "600:00:00" in study.warnings[0]


def test_a_walltime_beyond_its_fields_is_carried_over(tmp_path):
    study = read(write(tmp_path, one_step('walltime: "00:60:00"\nprocs: 1', "batch: {type: slurm}")))
    assert study.steps[0].walltime_s == 3600
    assert "#SBATCH --time=01:00:00\n" in study.work("/run").command(0, 1, False, (), ()).script


@pytest.mark.parametrize("value", ["soon", '"1:2:3:4"', "true", "[1]"])
def test_a_walltime_that_is_none_is_an_error(value, tmp_path):
    assert the_one(problems(tmp_path, one_step(f"walltime: {value}"))).key == "study[0].run.walltime"


def test_names_of_the_environment_are_unique(tmp_path):
    top = """
env:
  variables: {A: 1}
  labels: {A: x$(B)}
  dependencies:
    paths: [{name: A, path: .}]
    git: [{name: SPECROOT, path: ., url: here}]
"""
    found = problems(tmp_path, one_step(top=top))
    assert [problem.key for problem in found] == [
        "env.labels.A",
        "env.dependencies.paths[0].name",
        "env.dependencies.git[0].name",
    ]
    assert "taken by line 9" in found[0].what


def test_labels_that_lead_back_to_themselves_are_an_error(tmp_path):
    top = "env: {variables: {V: 1}, labels: {A: x$(B), B: y$(C), C: z$(A), D: $(A)}}"
    problem = the_one(problems(tmp_path, one_step("cmd: echo $(D)", top)))
    assert "A -> B -> C -> A" in problem.what


def test_a_dependency_says_what_it_has_to_and_no_more(tmp_path):
    top = """
env:
  dependencies:
    paths: [{name: A}, {name: B, path: ., url: x}]
    git: [{name: C, path: .}, {name: D, path: ., url: x, tag: t, branch: b}]
    svn: []
"""
    keys = [problem.key for problem in problems(tmp_path, one_step(top=top))]
    assert keys == [
        "env.dependencies.paths[0].path",
        "env.dependencies.paths[1].url",
        "env.dependencies.git[0].url",
        "env.dependencies.git[1]",
        "env.dependencies.svn",
    ]


def test_a_key_that_stands_twice_is_an_error(tmp_path):
    problem = the_one(problems(tmp_path, one_step("cmd: one\ncmd: two")))
    assert (problem.line, problem.key, problem.what) == (7, "study[0].run.cmd", "this key stands twice")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "the file is empty"),
        ("- a\n- b\n", 1, "the file is a list, not a mapping"),
        ("description:\n\tname: x\n", 2, "not YAML"),
        ("description: {name: x\nstudy: []\n", 2, "not YAML"),
        ("a: 1\nb: @no\n", 2, "not YAML"),
        ("a: 1\nb: \x01\n", 2, "not YAML: the character '\\x01'"),
        ("a: [1, 2\n", 1, "not YAML"),
        ("a: 1\nb: &x [*x]\n", 2, "contains itself"),
        ("a: !!python/object:os.system x\n", 1, "cannot read 'x'"),
    ],
)
def test_what_is_no_study_at_all_is_told_with_its_line(text, line, what, tmp_path):
    found = [problem for problem in problems(tmp_path, text) if what in problem.what]
    assert [problem.line for problem in found] == [line]


def test_a_file_that_is_not_utf8_is_told_with_its_line(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_bytes(one_step().encode() + b"# caf\xe9\n")
    with pytest.raises(StudyError, match=r"spec.yaml:8: is not UTF-8 text"):
        read(path)


def test_a_file_that_is_not_there_is_a_wrong_request(tmp_path):
    with pytest.raises(RequestError, match="No such file"):
        read(tmp_path / "no.yaml")


NEGATIVE = {
    "a dependency of the same name": ("docking", lambda d: d["env"]["variables"].update(TARGETS="x")),
    "a variable that is nothing": ("greeting-and-farewell", lambda d: d["env"]["variables"].update(OUTPUT_PATH=None)),
    "a key of run that nobody knows": ("shock-sweep", lambda d: d["study"][0]["run"].update(speed=9)),
    "a parameter with a further key": ("chain", lambda d: d["global.parameters"]["N"].update(order="up")),
    "no step at all": ("greeting", lambda d: d.pop("study")),
    "a list without steps": ("greeting", lambda d: d.update(study=[])),
    "a step without a description": ("greeting", lambda d: d["study"][0].pop("description")),
    "a step without run": ("greeting", lambda d: d["study"][0].pop("run")),
    "a study without a description": ("greeting", lambda d: d.pop("description")),
    "a variable that is a mapping": ("shock-line", lambda d: d["env"]["variables"].update(SIZE={"low": 1})),
    "a step with a shell": ("greeting", lambda d: d["study"][0]["run"].update(shell="/bin/sh")),
    "a priority that is none": ("greeting", lambda d: d["study"][0]["run"].update(priority="soon")),
    "depends that is one word": ("chain", lambda d: d["study"][1]["run"].update(depends="first")),
    "depends that says a step twice": ("chain", lambda d: d["study"][1]["run"].update(depends=["first", "first"])),
}  # fmt: skip


@pytest.mark.parametrize("name", NEGATIVE)
def test_what_maestro_refuses_is_refused_here(name, tmp_path):
    from maestro_oracle import instances

    spec, change = NEGATIVE[name]
    text = changed(spec, change)
    with pytest.raises(Exception, match=r".+"):
        instances(write(tmp_path, text), tmp_path / "out")
    assert len(problems(tmp_path, text)) == 1


def test_a_token_that_looks_much_like_a_known_name_is_a_warning(tmp_path):
    study = read(SPECS / "shock-sweep.yaml", pgen=str(SPECS / "product_generator.py"))
    assert any("$(ITERATIONS)" in warning and "ITER" in warning for warning in study.warnings)
    assert not any("MPICXX" in warning for warning in study.warnings)


def test_unknown_tokens_stay_as_they_are(tmp_path):
    study = read(write(tmp_path, one_step("cmd: make CXX=$(MPICXX) -j $(nproc) > $(date +%F)")))
    assert (
        study.work("/run")
        .command(0, 1, False, (), ())
        .script.endswith("make CXX=$(MPICXX) -j $(nproc) > $(date +%F)\n")
    )


HUGE = "1" * 400


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (f"procs: {HUGE}", "is far too large: it must be at most 1,000,000,000"),
        ("nodes: 1000000001", "is 1,000,000,001, but must be at most 1,000,000,000"),
        (f"resources: {{licence: {HUGE}}}", "is far too large: it must be at most 1,000,000,000"),
        (f"memory: {HUGE}", "must be '4 GB' or '512 MiB', not"),
        (f"estimate: {HUGE} s", "must be '90 s', '5 min' or '1:30:00', not"),
        ("estimate: .nan", "must be '90 s', '5 min' or '1:30:00', not"),
        (f"walltime: {HUGE}", "must be a walltime, '01:30:00' say, not"),
        ("walltime: .nan", "must be a walltime, '01:30:00' say, not"),
        ("priority: .inf", "must be a number or one of held"),
        ("priority: .nan", "must be a number or one of held"),
        (f"priority: {HUGE}", "must be a number or one of held"),
    ],
)
def test_a_number_that_the_journal_could_not_tell_again_is_an_error(run, what, tmp_path):
    problem = the_one(problems(tmp_path, one_step(run)))
    assert problem.line == 7 and problem.what.startswith(what)


def test_a_launcher_that_nobody_knows_is_told_with_its_line(tmp_path):
    for name, what in (("nosuch", "'nosuch' is not known"), ("no.such:Thing", "launcher no.such:Thing: ")):
        problem = the_one(problems(tmp_path, one_step(top=f"batch: {{type: local, launcher: '{name}'}}")))
        assert (problem.line, problem.key) == (7, "batch.launcher") and problem.what.startswith(what)
        with pytest.raises(RequestError, match="--launcher"):
            read(write(tmp_path, one_step()), launcher=name)
