"""Whether docs/partitions.md is right about states, keys, options and variables, and whether the studies shown can be read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cantle.core import standings
from cantle.engines import rendezvous
from cantle.model.streams import Share
from cantle.readers import engines, partitions, slicing
from cantle.readers.base import ReadOptions
from cantle.readers.maestro import MaestroReader

HOUSE = Path(__file__).parent.parent
PAGE = (HOUSE / "docs" / "partitions.md").read_text()
REFERENCE = PAGE.partition("## All keys and options")[2]
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = "global.parameters: {N: {values: [1, 2], label: N.%%}}\n"
STUDIES = [
    pytest.param(block, id=f"{name}-{number}")
    for name in ("README.md", "docs/partitions.md", "docs/studies.md")
    for number, block in enumerate(YAML.findall((HOUSE / name).read_text()), 1)
]


def completed(block: str) -> str:
    """A study around what the page shows of one."""
    if block.startswith("run:"):
        block = "study:\n- name: shown\n  description: as shown\n" + re.sub("^", "  ", block, flags=re.MULTILINE)
    elif not block.startswith(("study:", "description:")):
        names = dict.fromkeys(re.findall(r"^        (\w+):(?= *\{(?:retries|depends))", block, re.MULTILINE))
        names |= dict.fromkeys(re.findall(r"^        (\w+):\n +retries", block, re.MULTILINE))
        steps = "".join(
            f"- {{name: {name}, description: a step, run: {{cmd: 'true $(N)'}}}}\n" for name in names or ["any"]
        )
        block = f"{block}study:\n{steps}"
    return "description: {name: shown, description: as shown}\n" + NAMES + block.rstrip() + "\n"


def options_of(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cantle", *words, "--help"], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("block", STUDIES)
def test_a_study_that_a_page_shows_can_be_read(block: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(completed(block))
    study = MaestroReader().read(path, ReadOptions())
    assert study.tasks


def test_the_states_on_the_page_are_those_of_the_table() -> None:
    drawing = [line.strip() for line in (standings.__doc__ or "").splitlines() if "─" in line]
    assert len(drawing) == 2
    for line in drawing:
        assert line in PAGE
    told = re.findall(r"^\| ([A-Z]+(?:, [A-Z]+)*) \|", PAGE, re.MULTILINE)
    assert [name for names in told for name in names.split(", ")] == [each.name for each in standings.Standing]


def test_the_reference_names_every_key_of_partitions_and_slices() -> None:
    for key in (*partitions._KEYS, *slicing.KEYS, *engines.KEYS):
        assert re.search(rf"`{key}: ", REFERENCE) or f"`{key}: SIZE`" in REFERENCE, key


def test_the_variables_on_the_page_are_those_that_are_set() -> None:
    share = Share(0, 0, 0, 0, "0", "", 0, 1)
    for name in rendezvous.variables(share, 1, "here", 1):
        assert f"`{name}`" in PAGE, name
    source = "".join(path.read_text() for path in (HOUSE / "src").rglob("*.py"))
    for name in re.findall(r"`(CANTLE_[A-Z]+)`", PAGE):
        assert f'"{name}"' in source, name


@pytest.mark.real
def test_every_option_of_the_reference_is_one_of_its_commands() -> None:
    rows = [line.split(" | ") for line in REFERENCE.splitlines() if line.startswith("| ")]
    commands: list[tuple[str, ...]] = []
    found = 0
    for where, what, *_ in rows:
        if named := re.findall(r"`([a-z]+(?: [a-z]+)?)", where.strip("| ")):
            commands = [tuple(name.split()) for name in named]
        if "partition drain" in where:
            continue
        for option in re.findall(r"`(--?[a-z-]+)", what):
            for command in commands:
                assert re.search(rf"(?<![\w-]){option}\b", options_of(*command)), (command, option)
                found += 1
    assert found > 30
