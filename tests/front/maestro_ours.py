"""What does Cantle make of a specification, in the same words as `maestro_oracle`?"""

from __future__ import annotations

from pathlib import Path

import pytest
from maestro_oracle import Instance

from cantle.errors import StudyError
from cantle.readers.base import ReadOptions
from cantle.readers.maestro import MaestroReader

SPECS = Path(__file__).parent / "specs"


def write(folder: Path, text: str, name: str = "spec.yaml") -> Path:
    """A file with this text."""
    path = folder / name
    path.write_text(text)
    return path


def read(path: Path, **options):
    """The study in this file, read as for a dry run unless said otherwise."""
    return MaestroReader().read(path, ReadOptions(**{"dry": True, **options}))


def instances_of(study, out: Path) -> dict[str, Instance]:
    """All instances by name, with their scripts as for a run in `out`."""
    work = study.work(str(out))
    found = {}
    for number, task in enumerate(study.tasks):
        commands = [work.command(number, 1, False, (), ())]
        if study.steps[task.step].restartable:
            commands.append(work.command(number, 2, True, (), ()))
        found[task.name] = Instance(
            task.workspace,
            frozenset(study.tasks[parent].name for parent in task.parents),
            {Path(command.script_path).name: command.script for command in commands},
            dict(pair.split(":", 1) for pair in task.params.split(";") if pair),
        )
    return found


def problems(folder: Path, text: str, **options):
    """What is wrong with this text as a specification; there must be something."""
    with pytest.raises(StudyError) as caught:
        read(write(folder, text), **options)
    return caught.value.problems


def one_step(run: str = "", top: str = "") -> str:
    """A specification of one step `work`, whose `run` (from line 7 on) and top level are added to."""
    lines = "".join(f"      {line}\n" for line in run.splitlines())
    cmd = "" if "cmd:" in run else "      cmd: echo\n"
    head = "description: {name: s, description: d}\nstudy:\n  - name: work\n    description: d\n    run:\n"
    return f"{head}{cmd}{lines}{top}\n"
