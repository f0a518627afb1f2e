"""What a study says of engines in its partitions: read, and wrong in every way with its line and a mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from cantle.errors import StudyError
from cantle.model.study import EngineCommands, Study
from cantle.readers.base import ReadOptions
from cantle.readers.maestro import MaestroReader

STUDY = """\
description: {name: calc, description: engines}
study:
- {name: ask, description: asks, run: {cmd: ask, partition: calc}}
cantle:
"""


def read(tmp_path: Path, own: str) -> Study:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY + own)
    return MaestroReader().read(path, ReadOptions())


def test_an_engine_of_commands_and_the_partition_that_wants_it(tmp_path: Path) -> None:
    study = read(
        tmp_path,
        """\
  partitions:
    calc: {nodes: 2, engine: mydb}
  engines:
    mydb:
      head: "mydb serve --port {port}"
      worker: "mydb join {head}"
      ready: listening
      env: {MYDB: "{head}", N: 3}
      within: 2 min
""",
    )
    assert study.partitions[0].engine == "mydb"
    assert study.engines == (
        EngineCommands(
            "mydb",
            "mydb serve --port {port}",
            "mydb join {head}",
            "listening",
            env={"MYDB": "{head}", "N": "3"},
            within_s=120.0,
        ),
    )


@pytest.mark.parametrize(
    ("own", "line", "said"),
    [
        ("  partitions:\n    calc: {engine: dusk}\n", 6, "no hosted engine is called 'dusk'"),
        ("  partitions:\n    calc: {engine: dusk}\n", 6, "dask"),
        ("  partitions:\n    calc: {engine: [dask]}\n", 6, "must be a name, not a list"),
        ("  engines:\n    mydb: {ready: port}\n", 6, "has no command"),
        ("  engines:\n    mydb: {head: serve, wroker: join}\n", 6, "wroker"),
        ("  engines:\n    mydb: {head: 'serve {prot}'}\n", 6, "wants {prot}"),
        ("  engines:\n    mydb: {head: 'serve ${'}\n", 6, "double the braces"),
        ("  engines:\n    mydb: {worker: join, worker_ready: port}\n", 6, "is the head's"),
        ("  engines:\n    mydb: {head: serve, within: soon}\n", 6, "must be a time"),
        ("  engines:\n    mydb: {head: serve, env: {A: [1]}}\n", 6, "must be text or a number"),
        ("  engines:\n    mydb: {head: [serve]}\n", 6, "must be text, not a list"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, own: str, line: int, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        read(tmp_path, own)
    assert any(problem.line == line for problem in caught.value.problems)
    assert said in str(caught.value)
