"""Does a study that was parsed ahead, in a child, read as if it had not been?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cantle.errors import StudyError
from cantle.readers import ahead
from cantle.readers.base import ReadOptions
from cantle.readers.findings import Findings
from cantle.readers.maestro import MaestroReader
from cantle.readers.yaml_nodes import parse

STUDY = """description: {name: s, description: d}
env: {variables: {A: 1.5, B: "text"}}
study:
- name: a
  description: d
  run: {cmd: "echo $(A) $(P)", walltime: 10:00:00}
- {name: b, description: d, run: {cmd: "echo b", depends: [a_*]}}
global.parameters: {P: {values: [1, 2], label: P.%%}}
unknown: {when: [~, yes, 1_000]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def parse_in_a_child(file: Path) -> None:
    errand = ahead.errand(file)
    assert errand is not None
    pid = os.fork()
    if pid == 0:
        try:
            errand()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_a_study_parsed_ahead_is_the_same_study(file: Path) -> None:
    plainly = MaestroReader().read(file, ReadOptions())
    parse_in_a_child(file)
    yaml = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "yaml"}
    quickly = MaestroReader().read(file, ReadOptions())
    assert "yaml" not in sys.modules, "the parent has not parsed it again"
    sys.modules.update(yaml)
    for field in ("name", "steps", "tasks", "keep", "digest", "source", "limits", "warnings"):
        assert getattr(quickly, field) == getattr(plainly, field), field


def test_every_kind_of_value_keeps_its_line_and_source(file: Path) -> None:
    parse_in_a_child(file)
    findings = Findings(str(file))
    quickly = ahead.parsed(file.read_bytes(), findings)
    plainly = parse(STUDY, Findings(str(file)))
    assert quickly is not None
    assert plainly is not None

    def told(item: object) -> object:
        value = item.value  # type: ignore[attr-defined]
        if isinstance(value, dict):
            value = {key: told(entry) for key, entry in value.items()}
        elif isinstance(value, list):
            value = [told(entry) for entry in value]
        return value, item.line, item.text, item.lines  # type: ignore[attr-defined]

    assert told(quickly) == told(plainly)


def test_what_is_wrong_is_told_with_its_place_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("description: {name: s\nstudy: [")
    parse_in_a_child(file)
    with pytest.raises(StudyError) as caught:
        MaestroReader().read(file, ReadOptions())
    assert f"{file}:2" in str(caught.value)


def test_dates_and_other_text_are_parsed_where_they_are_needed(tmp_path: Path) -> None:
    file = tmp_path / "date.yaml"
    file.write_text(STUDY + "when: 2024-01-01\n")
    parse_in_a_child(file)
    assert len(MaestroReader().read(file, ReadOptions()).tasks) == 3
    parse_in_a_child(file)
    file.write_text(STUDY.replace("[1, 2]", "[1, 2, 3]"))
    assert len(MaestroReader().read(file, ReadOptions()).tasks) == 4, "the file has changed since"


def test_a_child_that_dies_or_never_was_costs_nothing_but_time(file: Path) -> None:
    assert ahead.errand(file.with_name("missing.yaml")) is None
    assert ahead.errand(file) is not None
    assert len(MaestroReader().read(file, ReadOptions()).tasks) == 3, "nobody did the errand"
    parse_in_a_child(file)
    assert ahead.parsed(b"something else", Findings("")) is None
    assert ahead.parsed(file.read_bytes(), Findings("")) is None, "an answer is taken once"
