"""What is told of a pilot on another host, whose door cannot be reached from here."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from rundirs import cantle, demo

from cantle.runtime.pilot.address import make_folder
from cantle.store.layout import Layout
from cantle.store.lock import Holder


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """The directory of one that lives in a batch job, on a node of its own."""
    place = tmp_path / "far"
    demo(place, until=8)
    make_folder(Layout(place))
    there = Holder("c1", 77, time.time(), time.time(), boot="another boot")
    Layout(place).lock.write_bytes(msgspec.json.encode(there) + b"\n")
    return place


def test_its_studies_are_told_from_its_directory(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("jobs", far) == 0
    first, heads, job = capsys.readouterr().out.splitlines()
    assert f"the pilot {far} is up (host c1, pid 77" in first and first.endswith("1 study, 1 not over")
    assert heads.split()[:2] == ["job", "state"] and job.split()[1] == "running"
    assert cantle("jobs", far, "--json") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["state"] == "up"


def test_who_would_give_it_a_study_is_told_from_where_that_can_be_done(
    far: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "s.yaml"
    study.write_text("description: {name: s, description: d}\nstudy: [{name: a, description: d, run: {cmd: 'true'}}]\n")
    assert cantle("submit", study, "--pilot", far, "-o", tmp_path / "out") == 1
    told = capsys.readouterr().err
    assert "is on host c1 (pid 77); ask it from there" in told
    assert "`ssh c1`" in told and "srun --jobid=JOB --overlap --nodelist=c1 cantle ..." in told
