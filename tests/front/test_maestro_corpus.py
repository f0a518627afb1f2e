"""The golden numbers of the compatibility corpus, on specifications of the same structure, against Maestro itself too."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
import yaml
from maestro_oracle import instances
from maestro_ours import SPECS, instances_of, read

LAUNCHER = {"slurm": "slurm", "lsf": "lsf", "flux": "flux", "local": ""}


class Golden(NamedTuple):
    spec: str
    steps: int
    parameters: int
    combinations: int
    instances: int
    edges: int
    funnels: int
    restarts: int
    scheduled: int
    batch: str
    pgen: str = ""


GOLDEN = [
    Golden("greeting", 1, 0, 0, 1, 0, 0, 0, 0, "local"),
    Golden("greeting-and-farewell", 2, 0, 0, 2, 1, 0, 0, 0, "local"),
    Golden("greet-each", 1, 1, 4, 4, 0, 0, 0, 0, "local"),
    Golden("greet-each-in-own-words", 1, 2, 4, 4, 0, 0, 0, 0, "local"),
    Golden("greet-each-in-own-words-flux", 1, 2, 4, 4, 0, 0, 0, 0, "flux"),
    Golden("greet-and-part", 2, 2, 4, 8, 4, 0, 0, 0, "local"),
    Golden("greet-and-part-slurm", 2, 2, 4, 8, 4, 0, 0, 8, "slurm"),
    Golden("greet-and-part-flux", 2, 2, 4, 8, 4, 0, 0, 8, "flux"),
    Golden("shock-sweep", 5, 3, 9, 23, 126, 3, 0, 0, "local"),
    Golden("shock-line", 5, 0, 0, 5, 4, 0, 0, 0, "local"),
    Golden("shock-batch-slurm", 2, 2, 9, 10, 9, 0, 0, 9, "slurm"),
    Golden("shock-batch-flux", 2, 2, 9, 10, 9, 0, 0, 9, "flux"),
    Golden("shock-three-flux", 2, 2, 3, 4, 3, 0, 0, 3, "flux"),
    Golden("shock-batch-lsf", 2, 5, 3, 4, 3, 0, 0, 4, "lsf"),
    Golden("launchers", 6, 0, 0, 6, 0, 0, 0, 6, "slurm"),
    Golden("table", 1, 0, 0, 1, 0, 0, 0, 0, "local"),
    Golden("shock-sweep", 5, 3, 9, 23, 126, 3, 0, 0, "local", "sweep_generator.py"),
    Golden("shock-sweep", 5, 3, 9, 17, 42, 3, 0, 0, "local", "product_generator.py"),
    Golden("shock-sweep", 5, 1, 1, 5, 4, 3, 0, 0, "local", "single_generator.py"),
    Golden("docking", 5, 0, 0, 5, 4, 0, 4, 4, "slurm"),
    Golden("levels", 3, 4, 3, 7, 6, 0, 0, 0, "local"),
    Golden("levels-slurm", 3, 4, 3, 7, 6, 0, 0, 3, "slurm"),
    Golden("levels-that-ask", 3, 4, 3, 7, 6, 0, 0, 3, "slurm"),
    Golden("funnel-line", 6, 0, 0, 6, 5, 4, 0, 0, "local"),
    Golden("pilot-local", 2, 2, 4, 8, 4, 0, 0, 0, "local"),
    Golden("pilot-half-scheduled", 2, 2, 4, 8, 4, 0, 0, 4, "local"),
    Golden("melt-local", 1, 3, 2, 2, 0, 0, 0, 2, "local"),
    Golden("melt-flux", 1, 3, 2, 2, 0, 0, 0, 2, "flux"),
    Golden("chain", 2, 1, 2, 4, 2, 0, 0, 0, "local"),
    Golden("beyond-a-funnel", 3, 1, 2, 5, 4, 1, 0, 0, "local"),
]


@pytest.mark.parametrize(
    "golden", GOLDEN, ids=lambda golden: f"{golden.spec}{'+' + golden.pgen if golden.pgen else ''}"
)
def test_the_expansion_has_the_golden_numbers(golden):
    document = yaml.safe_load((SPECS / f"{golden.spec}.yaml").read_text())
    pgen = str(SPECS / golden.pgen) if golden.pgen else ""
    study = read(SPECS / f"{golden.spec}.yaml", pgen=pgen)
    per_task = [study.steps[task.step] for task in study.tasks]
    keys = {pair.split(":")[0] for task in study.tasks for pair in task.params.split(";") if pair}
    assert len({step.name for step in study.steps}) == golden.steps == len(document["study"])
    assert len(study.tasks) == golden.instances
    assert sum(len(task.parents) for task in study.tasks) == golden.edges
    assert sum("*" in name for step in document["study"] for name in step["run"].get("depends", [])) == golden.funnels
    assert sum(step.restartable for step in per_task) == golden.restarts
    assert sum(step.ranks > 0 for step in per_task) == golden.scheduled
    assert document.get("batch", {}).get("type", "local") == golden.batch
    if not golden.pgen:
        values = [len(parameter["values"]) for parameter in document.get("global.parameters", {}).values()]
        assert (len(values), max(values, default=0)) == (golden.parameters, golden.combinations)
        assert len(keys) <= golden.parameters


# Lines that Maestro writes for flux and Cantle does not: its own version, and an option without a value.
_INFO = re.compile(r"^#MAESTRO-INFO.*\n|^#\n|^#flux: --bank=\n", re.MULTILINE)


@pytest.mark.parametrize(
    "golden", GOLDEN, ids=lambda golden: f"{golden.spec}{'+' + golden.pgen if golden.pgen else ''}"
)
@pytest.mark.parametrize("hashws", [False, True], ids=["labels", "hashws"])
def test_instances_edges_workspaces_and_scripts_are_those_of_maestro(golden, hashws, tmp_path):
    pgen = SPECS / golden.pgen if golden.pgen else None
    path = SPECS / f"{golden.spec}.yaml"
    theirs = instances(path, tmp_path, pgen, hashws=hashws)
    study = read(path, pgen=str(pgen or ""), launcher=LAUNCHER[golden.batch], hashws=hashws)
    ours = instances_of(study, tmp_path)
    assert ours.keys() == theirs.keys()
    for name, their in theirs.items():
        our = ours[name]
        assert our.workspace == their.workspace, name
        assert our.parents == their.parents, name
        assert our.params == their.params, name
        assert our.scripts == {file: _INFO.sub("", script) for file, script in their.scripts.items()}, name


def test_numbers_with_leading_zeros_are_what_yaml_makes_of_them():
    study = read(SPECS / "levels.yaml")
    assert "inner_CASE.0.LEVEL.1.OUTER.0.SEED.7" in [task.name for task in study.tasks]
