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


BOUNDED = """
import errno, os

place, write = PLACE, os.write

def size(path):
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0

def is_there(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(place)
    except OSError:
        return False

def bounded(fd, data):
    if is_there(fd):
        left = 300 * 1024 - sum(size(os.path.join(at, name)) for at, _, names in os.walk(place) for name in names)
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = data[:left]
    return write(fd, data)

os.write = bounded
"""


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real one, where we may mount; otherwise system calls of all that is begun from here answer as on such a disk."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(place)]
    if not subprocess.run(mount, capture_output=True, check=False).returncode:
        yield place
        subprocess.run(["umount", "-l", place], check=True)
        return
    (tmp_path / "sitecustomize.py").write_text(BOUNDED.replace("PLACE", repr(f"{place}/")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    yield place


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


def test_o26_a_call_that_kills_its_process_fails_with_the_signal_and_its_place_is_free(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RemoteError, match=r"died while it ran: killed by SIGKILL"):
        pilot.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result(60)
    assert pilot.submit(abs, -1).result(60) == 1


def test_a_worker_that_somebody_ends_says_by_what(pilot: cantle.Pilot) -> None:
    with pytest.raises(cantle.RemoteError, match=r"died while it ran: exit code 143 \(128 \+ SIGTERM\)"):
        pilot.submit(lambda: os.kill(os.getpid(), signal.SIGTERM)).result(60)
    assert pilot.submit(abs, -1).result(60) == 1
