"""What the pages for authors of plug-ins show works: each page's files are written into a folder, and tested and run there.

A block that begins with `# NAME` is that file. `$ command` in a block or in the text is run, and has to succeed. What a block
of TOML declares has to lead somewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cantle.plugins import OURS
from cantle.store.layout import Layout

PAGES = sorted((Path(__file__).parent.parent / "docs" / "extending").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w.]+\.\w+)\n")
COMMAND = re.compile(r"(?:^|`)\$ ([^`\n]+)", re.MULTILINE)


@pytest.fixture(params=PAGES, ids=lambda page: page.stem)
def page(request: pytest.FixtureRequest) -> str:
    text: str = request.param.read_text()
    return text


@pytest.fixture
def folder(page: str, tmp_path: Path) -> Path:
    """A folder with the files of the page, where its reader is thought to stand."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for _, block in BLOCK.findall(page):
        if named := FILE.match(block):
            (folder / named[1]).write_text(block)
    return folder


def run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)  # the pages promise that it is not needed
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False
    )
    told = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"{command}\n{told}"
    return told


def test_there_is_a_page_for_each_sort_of_plug_in() -> None:
    assert [page.stem for page in PAGES] == [
        "allocation",
        "batch-system",
        "engine",
        "hosted-engine",
        "launcher",
        "policy",
        "provider",
        "reader",
        "scaler",
    ]


@pytest.mark.real
def test_the_example_passes_its_conformance_check(page: str, folder: Path) -> None:
    assert "**The check**" in page
    assert len(list(folder.glob("test_*.py"))) == 1
    told = run([sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"], folder)
    assert re.search(r"^[1-9]\d* passed", told, re.MULTILINE)


@pytest.mark.real
def test_the_commands_do_what_they_say(page: str, folder: Path) -> None:
    commands = COMMAND.findall(page)
    assert commands
    for command in commands:
        run(["/bin/sh", "-c", command], folder)
    assert Layout(folder / "out").exists()
    assert "done" in run(["cantle", "status", "out"], folder)


def test_every_block_is_a_file_a_declaration_or_commands(page: str) -> None:
    assert page.count("```") == 2 * len(BLOCK.findall(page))
    for language, block in BLOCK.findall(page):
        assert FILE.match(block) or language in ("toml", "console"), block


def test_what_is_declared_leads_somewhere(page: str, folder: Path) -> None:
    [declared] = [tomllib.loads(block) for language, block in BLOCK.findall(page) if language == "toml"]
    [(group, points)] = declared["project"]["entry-points"].items()
    assert group in [f"cantle.{ours}" for ours in OURS]
    for target in points.values():
        module, _, attribute = target.partition(":")
        assert (
            run([sys.executable, "-c", f"from {module} import {attribute} as it; print(callable(it))"], folder)
            == "True\n"
        )
