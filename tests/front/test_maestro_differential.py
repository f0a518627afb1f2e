"""Whatever specification one can think of: instances, edges, workspaces and scripts are those of Maestro 1.2.1.

A family of specifications is generated, read by both, and compared letter by letter. What differs on purpose stands in
`DIFFERENCES`, each with a specification that shows it; the family keeps away from those.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from maestro_oracle import instances
from maestro_ours import instances_of, read, write

WORDS = ["red", "green", "blue", "1.5", "a b", "c/d"]


@st.composite
def specifications(draw):
    """A specification within what both understand alike."""
    keys = draw(st.lists(st.sampled_from(["SIZE", "SIZE2", "T", "P_x"]), unique=True, max_size=3))
    count = draw(st.integers(1, 4))
    parameters = {}
    for key in keys:
        values = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
        parameters[key] = {"values": values, "label": draw(st.sampled_from([f"{key}.%%", f"%%{key}", f"{key}-%%x"]))}
    names = [f"L{i}" for i in range(draw(st.integers(0, 3)))]
    variables = {"V": draw(st.sampled_from(WORDS)), "N": draw(st.integers(0, 20)), "F": 0.5}
    uses = [f"$({key}{end})" for key in keys for end in ("", ".label", ".name", ".other")]
    free = ["$(V)", "$(N)", "$(F)", "$(SPECROOT)", "$(hostname)", "${HOME}", "$(UNKNOWN)", *uses]
    labels = {
        # Maestro resolves a label in a label only when it is listed later.
        name: "-".join(
            draw(st.lists(st.sampled_from([*free, *(f"$({n})" for n in names[i + 1 :])]), min_size=1, max_size=2))
        )
        for i, name in enumerate(names)
    }
    words = [*free, *(f"$({name})" for name in names), "$(WORKSPACE)", "$(OUTPUT_PATH)/x", "echo"]
    slurm = draw(st.booleans())
    steps = []
    ancestors: dict[str, set[str]] = {}
    for i in range(draw(st.integers(1, 5))):
        name = f"step{i}"
        awaited = [step["name"] for step in steps if draw(st.integers(0, 2))]
        depends = [draw(st.sampled_from(["{}", "{}", "{}_*", "{}*", "*{}"])).format(parent) for parent in awaited[-3:]]
        parents = {entry.replace("_*", "").replace("*", "") for entry in depends}
        ancestors[name] = parents.union(*(ancestors[parent] for parent in parents))
        texts = [*words, *(f"$({parent}.workspace)/y" for parent in sorted(ancestors[name]) * 3)]
        script = st.lists(st.sampled_from(texts), min_size=1, max_size=5).map(" ".join)
        run = {"cmd": draw(script) + "\n", "depends": depends}
        if draw(st.booleans()):
            run["restart"] = draw(script)
        if slurm and draw(st.booleans()):
            draw_resources(draw, run, keys)
        description = draw(st.sampled_from(["plain", "of two\nlines", *uses]))
        steps.append({"name": name, "description": description, "run": run})
    spec = {
        "description": {"name": "family", "description": "d"},
        "env": {"variables": variables, "labels": labels},
        "study": steps,
    }
    if keys:
        spec["global.parameters"] = parameters
    if slurm:
        spec["batch"] = {"type": "slurm", "host": "h", "bank": "b", "queue": "q"}
        spec["batch"].update(
            draw(st.sampled_from([{}, {"nodes": 2}, {"procs": 4}, {"qos": "low", "reservation": "r"}]))
        )
    return spec


def draw_resources(draw, run, keys):
    """Make a batch job of the step, with launchers."""
    varying = draw(st.sampled_from(keys)) if keys else ""
    run["procs"] = f"$({varying})" if varying and draw(st.booleans()) else draw(st.integers(2, 6))
    if draw(st.booleans()):
        run["nodes"] = draw(st.integers(2, 3))
    if draw(st.booleans()):
        run["cores per task"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        run["gpus"] = draw(st.integers(0, 2))
    if draw(st.booleans()):
        run["walltime"] = draw(
            st.sampled_from(["00:10:00", "30", "1-02:00:00", 0, f"00:0$({varying}):00" if varying else "5:00"])
        )
    if draw(st.booleans()):
        run["exclusive"] = draw(st.sampled_from([True, False, {"allocation": True}]))
    bracket = isinstance(run["procs"], int) and "nodes" in run and draw(st.booleans())
    part = st.sampled_from(["[1n, 1p]", "[1p, 1n]", "[1p]", "[1,1]"])
    lines = [f"$(LAUNCHER){draw(part) if bracket else ''} app" for _ in range(draw(st.integers(0, 2)))]
    run["cmd"] = "\n".join([*lines, run["cmd"]])


@settings(max_examples=200, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(spec=specifications(), hashws=st.booleans())
def test_any_specification_becomes_what_maestro_makes_of_it(spec, hashws):
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), yaml.safe_dump(spec, sort_keys=False))
        out = Path(folder) / "out"
        theirs = instances(path, out, hashws=hashws)
        ours = instances_of(read(path, launcher="slurm" if "batch" in spec else "", hashws=hashws), out)
    assert ours == theirs


def study(cmd="echo", depends=(), more="", top=""):
    """Two steps, `a` and `b`, the second as given."""
    return f"""
description: {{name: s, description: d}}
{top}
study:
- name: a
  description: d
  run: {{cmd: echo}}
- name: b
  description: d
  run:
    cmd: |
      {cmd}
    depends: [{", ".join(depends)}]
    {more}
"""


SLURM = "batch: {type: slurm, host: h, bank: b, queue: q}"

DIFFERENCES = [
    # what, specification, what Maestro's script of b says, or the beginning of what it raises, what ours says
    (
        "a label that uses one listed earlier",
        study("$(L2)", top="env: {variables: {V: 1}, labels: {L1: '$(V)', L2: 'x$(L1)'}}"),
        "x$(L1)",
        "x1",
    ),
    (
        "two workspaces without a blank between",
        study("ls $(a.workspace):$(a.workspace)", ["a"]),
        "Workspace for",
        "ls OUT/a:OUT/a",
    ),
    ("a step's own workspace by its name", study("ls $(b.workspace)"), "Workspace for", "ls OUT/b"),
    (
        "whole and part in one script",
        study("$(LAUNCHER)[1n, 2p] x; $(LAUNCHER) y", more="procs: 4\n    nodes: 2", top=SLURM),
        "srun -n 2 -N 1 x; $(LAUNCHER) y",
        "srun -n 2 -N 1 x; srun -n 4 -N 2 y",
    ),
    (
        "a bracket further on in the line",
        study("$(LAUNCHER)[1n, 2p] x a[3]", more="procs: 4\n    nodes: 2", top=SLURM),
        "srun -n 2 -N 1\n",
        "srun -n 2 -N 1 x a[3]",
    ),
    (
        "a blank in old brackets",
        study("$(LAUNCHER)[1, 2] x", more="procs: 4\n    nodes: 2", top=SLURM),
        "srun -n  2 -N 1 x",
        "srun -n 2 -N 1 x",
    ),
    (
        "varying procs with brackets",
        study("$(LAUNCHER)[2p] x", more="procs: $(V)", top=SLURM + "\nenv: {variables: {V: 4}}"),
        "'>' not supported",
        "srun -n 2 x",
    ),
    ("nodes without procs", study("$(LAUNCHER) x", more="nodes: 2", top=SLURM), "srun -n  -N 2 x", "srun -n 2 -N 2 x"),
    (
        "a walltime beyond its fields",
        study(more='procs: 1\n    walltime: "00:60:00"', top=SLURM),
        "--time=00:60:00",
        "--time=01:00:00",
    ),
    (
        "a walltime without quotes",
        study(more="procs: 1\n    walltime: 10:00:00", top=SLURM),
        "--time=36000",
        "--time=10:00:00",
    ),
    ("a clock among the variables", study("$(T)", top="env: {variables: {T: 1:30:00}}"), "5400", "1:30:00"),
    ("a step's own launcher where nothing is scheduled", study("$(LAUNCHER) x"), "$(LAUNCHER) x", "x\n"),
    ("parameters that are nothing", study(top="global.parameters:"), "'NoneType' object", "echo"),
    (
        "text for a number",
        study("$(LAUNCHER) x", more='procs: "4"', top=SLURM),
        "The value '4' in field run.procs",
        "srun -n 4 x",
    ),
    ("a workspace that is not awaited", study("ls $(a.workspace)"), "Workspace for 'a' is being used", "ls OUT/a"),
]


@pytest.mark.parametrize(("spec", "theirs", "ours"), [d[1:] for d in DIFFERENCES], ids=[d[0] for d in DIFFERENCES])
def test_each_documented_difference_is_one(spec, theirs, ours, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, spec)
    out = tmp_path / "out"

    def filled(text):
        return text.replace("OUT", str(out)).replace("HERE", str(tmp_path))

    try:
        said = str(instances(path, out)["b"].scripts)
    except Exception as error:  # noqa: BLE001 - Maestro raises many kinds, plain ones too
        said = str(error)
    launcher = "slurm" if "slurm" in spec else ""
    script = next(iter(instances_of(read(path, launcher=launcher), out)["b"].scripts.values()))
    assert filled(theirs) in said.replace("\\n", "\n")
    assert filled(ours) in script


def test_a_workspace_that_is_not_awaited_is_awaited_here(tmp_path):
    tasks = read(write(tmp_path, study("ls $(a.workspace)"))).tasks
    assert [task.parents for task in tasks] == [(), (0,)]


def test_steps_may_be_listed_before_what_they_await(tmp_path):
    spec = yaml.safe_load(study("cat $(a.workspace)/x", ["a"]))
    spec["study"].reverse()
    path = write(tmp_path, yaml.safe_dump(spec, sort_keys=False))
    with pytest.raises(ValueError, match="does not exist"):
        instances(path, tmp_path / "out")
    assert [(task.name, task.parents) for task in read(path).tasks] == [("a", ()), ("b", (0,))]
