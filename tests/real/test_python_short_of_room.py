"""What becomes of a program's calls when disk or memory run out: the program is told what is short, and where."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import cantle

pytestmark = pytest.mark.real


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place], check=False).returncode
    ):
        pytest.skip("a small disk cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_program_whose_directory_is_full_is_told_so(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    journal = small_disk / "run" / ".cantle" / "journal.jsonl"
    told = rf"cannot write {journal}: no space is left on its disk\. Make room, and run the program again"
    with pytest.raises(cantle.PilotGoneError, match=told), cantle.open(cores=1, directory=small_disk / "run") as pilot:
        for _ in range(20):
            cantle.gather([pilot.submit(abs, -number) for number in range(1000)], timeout=60)


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cantle.Pilot]:
    place = tmp_path_factory.mktemp("short")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        with cantle.open(cores=1, directory=place / "run") as pilot:
            yield pilot


def test_a_result_for_which_there_is_no_memory_twice_is_no_matter_of_pickling(pilot: cantle.Pilot) -> None:
    class Wide:
        def __reduce__(self) -> str:
            raise MemoryError

    with pytest.raises(MemoryError, match=r"what it returned, a .*Wide, finds no room in memory"):
        pilot.submit(Wide).result(60)


def test_a_worker_that_somebody_ends_says_by_what(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RemoteError, match=r"died while it ran: exit code 143 \(128 \+ SIGTERM\)"):
        pilot.submit(lambda: os.kill(os.getpid(), signal.SIGTERM)).result(60)
    assert pilot.submit(abs, -1).result(60) == 1
