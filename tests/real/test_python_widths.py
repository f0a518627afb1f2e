"""A call on several nodes knows which they are, and one that may be of several widths how wide it is. (O18)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import cantle

pytestmark = pytest.mark.real


@cantle.task(nodes=2, cores=1)
def pair() -> list[str | None]:
    return [os.environ.get(f"CANTLE_{name}") for name in ("WIDTH", "NODES", "NODELIST")]


@cantle.task(cores=1)
def alone() -> list[str | None]:
    return [os.environ.get(f"CANTLE_{name}") for name in ("WIDTH", "NODES", "NODELIST")]


def test_it_is_told_its_nodes_and_others_are_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with cantle.open(nodes="4x1", directory=tmp_path / "run"):
        pairs = [pair.submit() for _ in range(2)]
        several = [future.result(60) for future in pairs]
        assert [told[:2] for told in several] == [["2", "2"]] * 2
        assert all(len({*(told[2] or "").split(",")} & {"node1", "node2", "node3", "node4"}) == 2 for told in several)
        assert [alone.submit().result(60) for _ in range(2)] == [[None, None, None]] * 2


def test_the_widths_that_are_chosen_are_those_that_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with cantle.open(nodes="4x1", directory=tmp_path / "run") as pilot:
        moldable = alone.with_options(widths=[1, 2, 4], name="moldable")
        told = [moldable.submit().result(60) for _ in range(3)]
        directory = pilot.directory
    from cantle.model.records import Launch
    from cantle.store.journal import read

    widths = [len(record.on) for record in read(directory / ".cantle/journal.jsonl") if isinstance(record, Launch)]
    assert [int(width or 1) for width, _, _ in told] == widths
    assert max(widths) > 1, "one that is alone is made wide"
