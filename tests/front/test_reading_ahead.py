"""Does a study that was parsed ahead, in a child, read as if it had not been?"""

from __future__ import annotations

import os
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


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_study_parsed_ahead_is_the_same_study(file: Path) -> None:
    plainly = MaestroReader().read(file, ReadOptions())
    before = children()
    ahead.begin(file)
    assert children() > before, "a child parses"
    quickly = MaestroReader().read(file, ReadOptions())
    assert children() == before, "it has been waited for"
    for field in ("name", "steps", "tasks", "keep", "digest", "source", "limits", "warnings"):
        assert getattr(quickly, field) == getattr(plainly, field), field


def test_every_kind_of_value_keeps_its_line_and_source(file: Path) -> None:
    ahead.begin(file)
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
    ahead.begin(file)
    with pytest.raises(StudyError) as caught:
        MaestroReader().read(file, ReadOptions())
    assert f"{file}:2" in str(caught.value)


def test_dates_and_other_text_are_parsed_where_they_are_needed(tmp_path: Path) -> None:
    file = tmp_path / "date.yaml"
    file.write_text(STUDY + "when: 2024-01-01\n")
    ahead.begin(file)
    assert len(MaestroReader().read(file, ReadOptions()).tasks) == 3
    ahead.begin(file)
    file.write_text(STUDY.replace("[1, 2]", "[1, 2, 3]"))
    assert len(MaestroReader().read(file, ReadOptions()).tasks) == 4, "the file has changed since"
