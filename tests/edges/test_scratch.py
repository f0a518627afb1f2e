"""What Dask writes goes with its process, also when that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cantle.allocations.fleet import scratch
from cantle.allocations.fleet.scratch import Scratch, remove_abandoned

HOLDER = """
import sys
from cantle.allocations.fleet.scratch import Scratch
with Scratch() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for temporary files that nobody else uses, and in which no folder is too young."""
    monkeypatch.setattr(scratch, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(scratch, "_YOUNG_S", 0.0)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def holder() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_of_one_that_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "cantle-scratch-other").mkdir()  # without a lock nobody knows whose it is
    (killed, left), (living, held) = holder(), holder()
    (left / "dask-scratch-space").mkdir()
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    remove_abandoned()
    assert not left.exists()
    assert held.is_dir()
    living.communicate("")
    assert [each.name for each in tmp_path.iterdir()] == ["cantle-scratch-other"]


def test_a_folder_is_left_alone_while_it_is_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process, folder = holder()
    process.kill()
    process.communicate()
    monkeypatch.setattr(scratch, "_YOUNG_S", 60.0)
    remove_abandoned()
    assert folder.is_dir()
    monkeypatch.setattr(scratch, "_YOUNG_S", 0.0)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    remove_abandoned()
    assert folder.is_dir(), "it is somebody else's"


def test_it_is_gone_at_the_end() -> None:
    with Scratch() as folder:
        assert Path(folder).is_dir()
        remove_abandoned()
        assert Path(folder).is_dir()
    assert not Path(folder).exists()
