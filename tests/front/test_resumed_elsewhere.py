"""What holds again for a run that somebody goes on with: on the machine where it began, and on another one."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from cantle.cli.command import Parser
from cantle.cli.machine import as_before, machine_options
from cantle.model.records import RunStarted, StudyAdded
from cantle.store.journal import Journal
from cantle.store.layout import Layout

KINDS = "cpu: {cores: 2, max: 4, provider: slurm}"
SAID = [
    "--cores",
    "3",
    "-j",
    "c1:2",
    "--kinds",
    KINDS,
    "--scaling",
    "idle=2s",
    "--on-idle",
    "echo hello",
    "--memory",
    "2GB",
]


def resumed(folder: Path, host: str, *words: str) -> Namespace:
    """What counts for `cantle resume` with these words here, of a run that began on that host with all of `SAID`."""
    layout = Layout(folder).create()
    with Journal.open_new(layout.journal) as journal:
        journal.write(RunStarted(0.0, "n-1", "0", host, 1, ["cantle", "run", "study.yaml", *SAID]))
        journal.write(StudyAdded(0.0, "n", [], source="/where/study.yaml"))
    parser = Parser(add_help=False)
    machine_options(parser)
    asked = parser.parse_args(list(words))
    as_before(layout, asked)
    return asked


def test_on_the_same_machine_all_of_it_holds_again(tmp_path: Path) -> None:
    found = resumed(tmp_path / "run", os.uname().nodename)
    assert (found.cores, found.kinds, found.scaling, found.on_idle) == (3, KINDS, ["idle=2s"], "echo hello")
    assert found.memory is not None


def test_on_another_machine_nodes_can_be_had_as_before_and_nothing_holds_of_the_first_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise tasks that only such nodes can hold would fail."""
    found = resumed(tmp_path / "run", "login2")
    assert (found.kinds, found.scaling, found.on_idle) == (KINDS, ["idle=2s"], "echo hello")
    assert (found.cores, found.places, found.memory) == (None, [], None)
    told = capsys.readouterr().err
    assert "the machine as the run had it: --kinds" in told and "--cores" not in told and "-j" not in told
    assert found.study_file == Path("/where/study.yaml")


def test_what_is_said_now_counts(tmp_path: Path) -> None:
    found = resumed(tmp_path / "run", "login2", "--kinds", "gpu: {cores: 1}", "--scaling", "demand")
    assert (found.kinds, found.scaling) == ("gpu: {cores: 1}", ["demand"])
