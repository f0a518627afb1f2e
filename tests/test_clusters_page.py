"""Whether docs/clusters.md is right about commands, options, keys, exit statuses and the studies and hosts that it shows."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from cantle.allocations.fleet.allocation import SILENCE_S
from cantle.allocations.fleet.member import _SOONER
from cantle.allocations.hosts import source
from cantle.cli import job_request, orchestrating
from cantle.cli.main import command_named
from cantle.core import lifetimes, trouble
from cantle.core.fates import LOSSES_UNTIL_BLAMED
from cantle.engines.launchers import choosing
from cantle.readers import hosts
from cantle.readers.base import ReadOptions
from cantle.readers.maestro import MaestroReader
from cantle.runner.staging import MOST_BYTES

HOUSE = Path(__file__).parent.parent
PAGE = (HOUSE / "docs" / "clusters.md").read_text()
README = (HOUSE / "README.md").read_text().partition("**Many machines")[2].partition("\n**")[0]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
YAML = [text for kind, text in BLOCK.findall(PAGE) if kind == "yaml"]
STUDIES = [pytest.param(text, id=f"{number}") for number, text in enumerate(YAML, 1) if "hosts:" not in text]
[HOSTS] = [text for text in YAML if "hosts:" in text]
SHOWN = [
    line.removeprefix("$ ").partition("#")[0].strip()
    for text in (PAGE, README)
    for kind, block in BLOCK.findall(text)
    if kind in ("console", "sh")
    for line in block.splitlines()
    if (line.startswith("$ ") or kind == "sh") and re.search(r"\bcantle ", line)
]
QUOTED = re.findall(r"`(cantle [a-z][^`]*)`", PAGE)


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser that hears these words after `cantle`, and what is left for it to hear."""
    parser = command_named(words[0]).parser()
    left = words[1:]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and left and left[0] in action.choices:
            return action.choices[left[0]], left[1:]
    return parser, left


def options_of(*words: str) -> set[str]:
    parser, _ = parser_of(list(words))
    return set(parser._option_string_actions)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose heading begins like this."""
    found = []
    for line in PAGE[PAGE.index(f"| {heading}") :].splitlines()[2:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("| ").split(" | ")])
    return found


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("block", STUDIES)
def test_a_study_on_the_page_can_be_read(block: str, tmp_path: Path) -> None:
    if not block.startswith("description:"):
        head = "" if block.startswith("study:") else "study:\n"
        block = f"description: {{name: shown, description: as shown}}\n{head}{block}"
    path = tmp_path / "study.yaml"
    path.write_text(block)
    (tmp_path / "numbers.txt").write_text("1\n")
    study = MaestroReader().read(path, ReadOptions())
    assert study.tasks


def test_the_hosts_on_the_page_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(HOSTS)
    assert set(hosts.hosts_in([path])) == {"big", "node4", "node5"}


def test_the_page_names_every_key_of_hosts_and_no_other() -> None:
    named = [key for cells in rows("key | meaning") for key in re.findall(r"`([a-z]+)`", cells[0])]
    assert sorted(named) == sorted(hosts._KEYS)


def test_the_batch_keys_and_their_options_are_known() -> None:
    options = options_of("orchestrate")
    table = rows("key of `batch`")
    keys = {key.replace(" ", "_") for cells in table for key in re.findall(r"`([a-z_ ]+)`", cells[0])}
    ours = {job_request._SPELLINGS.get(key, key) for key in keys}
    assert {*job_request._TEXTS, *job_request._COUNTS, "walltime", "args"} <= ours
    assert ours <= {
        *job_request._TEXTS,
        *job_request._COUNTS,
        "type",
        "walltime",
        "args",
        "launcher",
        "mpi",
        "launcher_args",
    }
    for cells in table:
        for option in re.findall(r"`(--[a-z-]+)`", cells[1]):
            assert option in options, option


@pytest.mark.parametrize("words", [pytest.param(text, id=text) for text in dict.fromkeys(SHOWN)])
def test_a_command_on_the_page_is_understood(words: str) -> None:
    given = re.split(r" (?:&&|\|\|) ", words)[-1]
    given = given[given.index("cantle ") :].removeprefix("cantle ")
    parser, left = parser_of(shlex.split(given))
    if "--" in left:
        left = left[: left.index("--")]
    parser.parse_args(left)


@pytest.mark.parametrize("words", [pytest.param(text, id=text) for text in dict.fromkeys(QUOTED)])
def test_a_command_within_a_sentence_names_options_of_its_own(words: str) -> None:
    parser, left = parser_of(shlex.split(words)[1:])
    known = parser._option_string_actions
    assert [word for word in left if word.startswith("-") and word not in known] == []


@pytest.mark.parametrize(
    ("title", "commands"),
    [
        ("Hosts, by ssh", ["run"]),
        ("orchestrate: submit, follow, let go", ["orchestrate", "resume"]),
        ("A runner by hand", ["runner", "run"]),
        ("MPI steps", ["run"]),
        ("Who may join", ["run"]),
        ("When things break", ["run", "plan"]),
    ],
)
def test_an_option_that_a_section_explains_is_one_of_its_commands(title: str, commands: list[str]) -> None:
    text = re.sub(BLOCK, "", section(title))
    named = set(re.findall(r"`(--?[a-z][a-z-]*)", text))
    assert named
    known = {option for command in commands for option in options_of(command)}
    assert named <= known


def test_every_option_of_a_runner_that_says_what_a_machine_gives_is_named() -> None:
    text = section("A runner by hand")
    for option in options_of("runner") - {"-h", "--help", "--expected"}:
        assert option in text, option


def test_options_of_the_commands_about_many_machines_are_on_the_page() -> None:
    for option in (
        "-j",
        "-r",
        "--hosts",
        "--this-machine",
        "--listen",
        "--interface",
        "--silence",
        "--ends-in",
        "--drain",
    ):
        assert option in options_of("run"), option
        assert f"`{option}" in PAGE or f"{option} " in PAGE, option
    for option in ("--detach", "--attach", "--until-done", "--most-jobs", "--dry", "--conductor"):
        assert option in options_of("orchestrate"), option
        assert f"`{option}" in PAGE, option


def test_the_exit_statuses_are_those_that_the_commands_tell() -> None:
    told = dict(rows("exit status |"))
    about = " ".join((command_named("run").description or "").split())
    assert list(told) == ["0", "1", "2", "3", "4"]
    for status, there, here in (
        ("0", "all tasks done", "all tasks are done"),
        ("1", "nothing could be run", "nothing could be run"),
        ("2", "some failed", "some failed"),
        ("3", "canceled or stopped", "canceled or stopped"),
        ("4", "stopped since the time of the nodes was up", "the time of the nodes was up"),
    ):
        assert f"{status} {there}" in about, status
        assert told[status].startswith(here), status


def test_the_exit_statuses_of_a_runner_are_those_that_it_tells() -> None:
    about = " ".join((command_named("runner").description or "").split())
    text = " ".join(section("A runner by hand").split())
    for status, there, here in (
        (3, "cannot be reached", "cannot be reached"),
        (4, "it refused this runner", "a refusal"),
        (5, "it was lost", "was lost"),
        (6, "the runner broke", "broke"),
    ):
        assert re.search(rf"\b{status} [^,]*{there}", about), status
        assert re.search(rf"\b{status} [^,.]*{here}", text), status


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    numbers = ["no", "one", "two", "three", "four", "five"]
    again = [f"{seconds:g}" for seconds in source.AGAIN_S]
    assert (
        f"again after {again[0]}, {again[1]} and {again[2]} seconds, at most {numbers[source.MOST_REVIVALS]} times"
        in text
    )
    assert f"after `--silence` ({SILENCE_S:g} s)" in text
    assert _SOONER == 0.75 and "after three quarters of the time" in text
    assert f"lost with its node {numbers[LOSSES_UNTIL_BLAMED]} times" in text
    assert f"comes and goes {numbers[trouble.MOST_FLAPS]} times in a row" in text
    assert lifetimes.MARGIN == 1.2 and "expected duration and a fifth more" in text
    assert f"({lifetimes.DRAIN_S:g} s, or a tenth of their time" in text and lifetimes.DRAIN_SHARE == 0.1
    assert f"`--most-jobs` ({orchestrating.MOST_JOBS})" in text
    assert f"{MOST_BYTES >> 20} MiB an attempt each way" in text


def test_the_launchers_on_the_page_are_those_that_there_are() -> None:
    flavours = [name for cells in rows("where | flavour") for name in re.findall(r"`([a-z]+)`", cells[1])]
    assert sorted(flavours) == sorted(choosing.NAMES)


def test_the_extra_is_declared_and_named_where_it_is_missed() -> None:
    extra = "pip install 'cantle[cluster]'"
    assert extra in PAGE
    assert re.search(r"^cluster = \[", (HOUSE / "pyproject.toml").read_text(), re.MULTILINE)
    assert extra in (HOUSE / "src" / "cantle" / "cli" / "inside.py").read_text()
