"""Whether docs/python.md is right: its programs print what stands below them, and its table names every option."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cantle
from cantle.api.needs import Options

PAGE = (Path(__file__).parent.parent / "docs" / "python.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.real
@pytest.mark.parametrize("program", range(len(PROGRAMS)))
def test_a_program_on_the_page_prints_what_the_page_says(program: int, tmp_path: Path) -> None:
    source, expected = PROGRAMS[program]
    (tmp_path / "program.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr


def test_every_program_on_the_page_has_its_output() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") >= 4


def test_the_table_names_every_option() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(Options.__annotations__)


def test_each_error_that_the_page_names_can_be_caught_by_the_name_that_it_has_there() -> None:
    named = {name.split(".")[-1] for name in re.findall(r"`(?:cantle\.)?(\w+Error)`", PAGE)}
    ours = named - {"ZeroDivisionError"}
    assert {"CantleError", "DependencyError", "WalltimeError", "RemoteError", "PilotGoneError", "RequestError"} <= ours
    for name in ours:
        assert issubclass(getattr(cantle, name), cantle.CantleError)
