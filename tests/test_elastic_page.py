"""Whether docs/elastic.md is right: its commands run, and its tables name the keys, policies, bounds and fields there are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cantle.cli.elastic import _SETTINGS
from cantle.core.again import MOST_AGAIN
from cantle.core.moving import MOVES_MIB_PER_S
from cantle.core.scaling.ledger import MOST_REFUSALS
from cantle.core.scaling.naming import NAMES, is_built_in, require_known
from cantle.core.scaling.settings import Scaling
from cantle.core.scaling.snapshot import MOST_ENDS, KindNow, ReadyNow, Snapshot
from cantle.model.kinds import Kind
from cantle.model.resources import Needs
from cantle.readers.base import ReadOptions
from cantle.readers.kinds import _OF_KIND, _OF_PROVIDER, _PROVIDERS, kinds_in
from cantle.readers.maestro import MaestroReader
from cantle.readers.quantities import duration_s
from cantle.report.loading import Condition, load
from cantle.runtime.scaling_functions import ANSWERS_WITHIN_S, ASKED_EVERY_S, MOST_PAUSE_S

PAGE = (Path(__file__).parent.parent / "docs" / "elastic.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w.]+\.\w+)\n")
BLOCKS = BLOCK.findall(PAGE)
COMMANDS = [line[2:] for kind, text in BLOCKS if kind == "console" for line in text.splitlines() if line[:2] == "$ "]
STUDIES = [text for kind, text in BLOCKS if kind == "yaml"]


def section(title: str) -> str:
    found = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


POLICIES = section("Policies")


def first_cells(heading: str) -> list[str]:
    """What stands in code in the first cells of the table with this heading."""
    rows = PAGE[PAGE.index(f"| {heading}") :].partition("\n\n")[0].splitlines()[2:]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the page; paths may have spaces in them, and more."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for _, block in BLOCKS:
        if named := FILE.match(block):
            (folder / named[1]).write_text(block)
    return folder


@pytest.mark.real
@pytest.mark.parametrize("command", [each for each in COMMANDS if not each.startswith("cantle report")])
def test_a_command_of_the_page_runs_to_a_good_end(command: str, folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode(errors="replace")
    out = folder / command.partition(" -o ")[2].split()[0]
    run = load(out)
    assert run.condition == Condition.DONE
    assert run.state.scaling is not None
    assert run.state.scaling.requests, "nodes were asked for"
    assert not [request for request in run.state.scaling.requests if request.refused]
    reported = [each for each in COMMANDS if each == f"cantle report {out.name}"]
    for each in reported:
        subprocess.run(
            ["/bin/sh", "-c", each], cwd=folder, env=environment, check=True, capture_output=True, timeout=200
        )
        assert "Nodes that came and went" in (out / "report.html").read_text()
    if "--scaling pairs:pairs" in command:
        whys = [request.why for request in run.state.scaling.requests]
        assert any(why.endswith("tasks are ready or run") for why in whys), whys


def test_the_page_reports_on_one_of_its_runs() -> None:
    assert "cantle report out" in COMMANDS
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize("study", STUDIES)
def test_the_studies_of_the_page_can_be_read(study: str, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(study)
    assert MaestroReader().read(tmp_path / "study.yaml", ReadOptions()).tasks


def test_the_main_job_comes_first_and_figures_last() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE)[-1] == "What it saves"
    assert PAGE.index("$ cantle map") < 300


def test_every_key_of_a_kind_is_named() -> None:
    assert set(first_cells("key")) - {"resources: {licence: 2}"} == set(_OF_KIND)


def test_every_provider_is_named_and_each_of_their_keys() -> None:
    assert set(first_cells("provider")) == set(_PROVIDERS)
    text = section("Who brings them")
    for keys in _OF_PROVIDER.values():
        for key in keys:
            assert re.search(rf"`{key}[:`]|\b{key}:", PAGE), key
    assert MOST_REFUSALS == 5 and "five times in a row" in text


def test_every_policy_is_named_and_everything_named_is_one() -> None:
    listed = POLICIES.partition("or a function of your own")[0].partition("policies: ")[2]
    named = re.findall(r"`([a-z][a-z0-9:-]*)`", listed)
    require_known(named)
    assert {word.partition(":")[0] for word in named} == set(NAMES)
    assert all(is_built_in(word) for word in named)
    assert first_cells("policy") == [*dict.fromkeys(named)]


def test_every_bound_is_named_with_its_default() -> None:
    named = dict(re.findall(r"`([a-z-]+)=(\d\w*)`", POLICIES))
    assert {key: duration_s(text) for key, text in named.items()} == {
        key: getattr(Scaling(), field) for key, field in _SETTINGS.items()
    }


def test_every_field_of_the_snapshot_is_in_its_table_and_no_other() -> None:
    assert sorted(first_cells("of the run")) == sorted(field.name for field in msgspec.structs.fields(Snapshot))
    assert sorted(first_cells("of a kind")) == sorted(field.name for field in msgspec.structs.fields(KindNow))
    assert sorted(first_cells("of what is ready")) == sorted(field.name for field in msgspec.structs.fields(ReadyNow))
    shown = re.search(r"as it was declared: (.*), \.\.\.", PAGE)
    assert shown and set(re.findall(r"`(\w+)`", shown[1])) <= set(Kind.__struct_fields__)
    shown = re.search(r"^\| `needs` \| (.*), \.\.\.", PAGE, re.MULTILINE)
    assert shown and set(re.findall(r"`(\w+)`", shown[1])) <= set(Needs.__struct_fields__)


def test_the_numbers_of_the_text_are_those_of_the_code() -> None:
    function = section("A function of your own")
    assert ASKED_EVERY_S == 2 and "every two seconds at most" in function
    assert f"has not returned for {ANSWERS_WITHIN_S:g} s" in function
    assert MOST_PAUSE_S == 60 and "each time\nlater, up to a minute" in function
    assert MOST_ENDS == 100 and "the first hundred" in function
    assert MOVES_MIB_PER_S == 100 and "100 MB/s" in PAGE
    assert MOST_AGAIN == 5 and "five times at most" in PAGE


def test_the_kinds_that_are_shown_can_be_read() -> None:
    shown = re.findall(r"--kinds '([^']+)'", PAGE)
    assert len(shown) >= 7
    for text in shown:
        assert kinds_in(text, "the page")[0].kind.name in ("cpu", "lab")


def test_what_is_shown_of_cantle_node_is_what_there_is() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "cantle", "node", "--help"], capture_output=True, text=True, check=True
    )
    actions = re.search(r"\{([a-z,]+)\}|^ {4}(list)\b", told.stdout, re.MULTILINE)
    assert actions is not None
    shown = set(re.findall(r"`cantle node (\w+) ", section("Nodes by hand")))
    assert shown == {"drain", "resume", "remove", "add", "want"}
    for action in shown:
        assert re.search(rf"^ +{action}\b", told.stdout, re.MULTILINE), action
