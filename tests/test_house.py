"""The house itself: what is promised in its papers is there, and nothing of one machine has crept in."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cantle
from cantle.cli.main import COMMANDS, command_named

HOUSE = Path(__file__).parent.parent
PROJECT = tomllib.loads((HOUSE / "pyproject.toml").read_text())
MODULES = sorted((HOUSE / "src" / "cantle").rglob("*.py"))
PAPERS = sorted([*HOUSE.glob("*.md"), *(HOUSE / "docs").rglob("*.md")])


def tracked_files() -> list[Path]:
    """All files of the project; where there is no git, all that a fresh copy would hold."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=HOUSE, capture_output=True, check=False)
    if done.returncode == 0:
        return [HOUSE / name for name in os.fsdecode(done.stdout).split("\0") if name and (HOUSE / name).is_file()]
    hidden = re.compile(r"/(\.git|\.venv|\.hypothesis|\.[a-z_]+_cache|__pycache__|demo-out|[^/]+\.egg-info)/")
    return [path for path in HOUSE.rglob("*") if path.is_file() and not hidden.search(f"/{path.relative_to(HOUSE)}/")]


def lines_that_match(pattern: str) -> list[str]:
    found = []
    wanted = re.compile(pattern)
    for path in tracked_files():
        text = path.read_bytes().decode(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if wanted.search(line):
                found.append(f"{path.relative_to(HOUSE)}:{number}: {line.strip()[:120]}")
    return found


def test_no_file_names_paths_of_one_machine() -> None:
    # brackets, so that this line does not find itself
    assert lines_that_match(r"(?<![\w.$})-])/(wor[k]|roo[t]|hom[e]/\w+|User[s]/\w+)/") == []


def test_no_file_names_a_package_registry() -> None:
    assert (
        lines_that_match(r"(?i)pypi[.]org|pythonhoste[d]|artifactor[y]|--(extra-)?index-ur[l]|find-link[s]|devp[i]\b")
        == []
    )


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(path.relative_to(HOUSE)) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_every_folder_of_modules_is_a_package() -> None:
    assert [str(path.parent) for path in MODULES if not (path.parent / "__init__.py").exists()] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOUSE / "src")))
def test_every_module_can_be_imported_alone(path: Path) -> None:
    name = ".".join(path.relative_to(HOUSE / "src").with_suffix("").parts).removesuffix(".__init__")
    assert importlib.import_module(name).__name__ == name


def test_public_names_exist_and_are_explained() -> None:
    for path in MODULES:
        name = ".".join(path.relative_to(HOUSE / "src").with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            assert getattr(module, public).__doc__, f"{name}.{public}"


def test_every_entry_point_leads_somewhere() -> None:
    targets = list(PROJECT["project"]["scripts"].values())
    for group in PROJECT["project"]["entry-points"].values():
        targets += group.values()
    assert targets
    for target in targets:
        module, _, attribute = target.partition(":")
        assert callable(getattr(importlib.import_module(module), attribute)), target


def test_one_version_is_told_everywhere() -> None:
    version = PROJECT["project"]["version"]
    assert cantle.__version__ == version
    headings = re.findall(r"^## (\d+\.\d+\.\d+)", (HOUSE / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == version


def test_constraints_pin_all_that_is_asked_for_and_nothing_else_than_versions() -> None:
    lines = [line for line in (HOUSE / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)] == []
    pinned = {normal(line.partition("==")[0]) for line in lines}
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(item for extra in extras for item in extra)]
    assert {normal(re.split(r"[<>=!~ \[;]", item)[0]) for item in wanted} <= pinned


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def shown_commands() -> list[tuple[str, int, str]]:
    """Each line of a code block in a paper that calls `cantle` or `make`: paper, line, command."""
    found = []
    for paper in PAPERS:
        fenced = False
        for number, line in enumerate(paper.read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif fenced and (match := re.match(r"\s*(?:\$ )?((?:cantle|make) .*)", line)):
                found.append((str(paper.relative_to(HOUSE)), number, match[1]))
    return found


def test_the_readme_shows_commands() -> None:
    assert any(paper == "README.md" and command.startswith("cantle ") for paper, _, command in shown_commands())
    assert any(paper == "README.md" and command.startswith("make ") for paper, _, command in shown_commands())


def test_every_command_in_the_papers_exists() -> None:
    goals = set(re.findall(r"^([a-z]+):", (HOUSE / "Makefile").read_text(), re.MULTILINE))
    for paper, number, line in shown_commands():
        program, word, *_ = line.split()
        known = goals if program == "make" else COMMANDS
        assert word.startswith(("-", "[")) or word in known or "=" in word, f"{paper}:{number}: {line}"


def test_every_option_in_the_papers_exists() -> None:
    for paper, number, line in shown_commands():
        # what stands in quotes is somebody else's command
        program, word, *rest = re.sub(r"'[^']*'", "''", line).partition("#")[0].split()
        if program != "cantle" or word not in COMMANDS:
            continue
        actions = command_named(word).parser()._actions
        for action in list(actions):
            if isinstance(action.choices, dict) and rest and rest[0] in action.choices:
                actions = [*actions, *action.choices[rest[0]]._actions]
        known = {name for action in actions for name in action.option_strings}
        rest = rest[: rest.index("--")] if "--" in rest else rest
        for option in (text for text in rest if re.fullmatch(r"--[a-z][a-z-]*", text)):
            assert option in known | {"--help"}, f"{paper}:{number}: {line}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps_with_an_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cantle", name, "--help"], capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"cantle {name}" in done.stdout.partition("Example")[2]


def test_every_file_that_a_paper_links_to_is_there() -> None:
    for paper in PAPERS:
        for target in re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", paper.read_text()):
            assert (paper.parent / target).exists(), f"{paper.relative_to(HOUSE)}: {target}"


def test_a_forbidden_skip_fails_and_an_allowed_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((HOUSE / "tests" / "conftest.py").read_text())
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "def test_skipping(): pytest.skip('no such machine')\n"
        "@pytest.mark.xfail\n"
        "def test_expected(): assert False\n"
        "def test_fine(): pass\n"
    )
    (tmp_path / "test_b.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    told = {}
    for forbidden in ("", "1"):
        environment = {**os.environ, "CANTLE_NO_SKIP": forbidden}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        told[forbidden] = (done.returncode != 0, done.stdout.splitlines()[-1].partition(" in ")[0])
    assert told[""] == (False, "1 passed, 2 skipped, 1 xfailed")
    assert told["1"][0]
    assert "skipped" not in told["1"][1]
