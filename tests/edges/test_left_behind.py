"""Which processes does whoever comes after a killed runner end? Those of its own run alone, and of runners that are gone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cantle.engines.remains import end_orphans, end_strays
from cantle.runner import processes
from cantle.runner.messages import RUN

pytestmark = pytest.mark.real

Leave = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def leave() -> Iterator[Leave]:
    """Leaves a process with these variables behind."""
    left: list[subprocess.Popen[bytes]] = []

    def begin(run: Path | None, runner: int | str) -> subprocess.Popen[bytes]:
        env = {b"CANTLE_RUNNER": str(runner).encode(), **({RUN: os.fsencode(run)} if run is not None else {})}
        left.append(subprocess.Popen(["/bin/sleep", "300"], env=env))
        while processes.variables(left[-1].pid, b"CANTLE_RUNNER") != (str(runner).encode(),):
            pass  # it is still in `exec`
        return left[-1]

    yield begin
    for process in left:
        process.kill()
        process.wait()


@pytest.fixture
def dead() -> int:
    """The number of a process that is not there any more."""
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    return gone.pid


def test_orphans_are_what_dead_runners_of_this_very_run_left(tmp_path: Path, leave: Leave, dead: int) -> None:
    orphan = leave(tmp_path, dead)
    others = [
        leave(tmp_path, os.getpid()),
        leave(tmp_path, "none"),
        leave(tmp_path / "other", dead),
        leave(None, dead),
    ]
    assert end_orphans(str(tmp_path)) == 1
    assert orphan.wait(10) == -9
    assert [other.poll() for other in others] == [None] * 4


def test_strays_are_all_that_is_left_of_a_run(tmp_path: Path, leave: Leave, dead: int) -> None:
    strays = [leave(tmp_path, dead), leave(tmp_path, os.getpid())]
    others = [leave(tmp_path / "other", dead), leave(None, dead)]
    assert end_strays(str(tmp_path)) == 2
    assert [stray.wait(10) for stray in strays] == [-9, -9]
    assert [other.poll() for other in others] == [None, None]
