"""Whose run's directory is removed or moved while it is at work hears of that, and nothing goes on for nobody."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cantle
from cantle.errors import PilotGoneError
from cantle.store.layout import Layout

pytestmark = pytest.mark.real

WAIT_S = 60.0
LOOKS_OFTEN = (
    "import cantle.runtime.conducting as conducting\nconducting.HEARTBEAT_S = 0.2\n"
    "from cantle.cli.main import main\nmain()\n"
)


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Begins a run of short tasks in `out`, and waits until one of them is done."""
    processes: list[subprocess.Popen[str]] = []

    def begin(command: str) -> subprocess.Popen[str]:
        words = ["map", command, "--range", "1-60", "-o", "out", "--cores", "1"]
        run = subprocess.Popen(
            [sys.executable, "-c", LOOKS_OFTEN, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(run)
        _until(lambda: (tmp_path / "begun").exists())
        return run

    yield begin
    for process in processes:
        process.kill()
        process.communicate(timeout=WAIT_S)


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _remove(folder: Path) -> None:
    """Also while somebody still writes in it."""

    def gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    _until(gone)


TASK = "touch {folder}/begun; until test -e {folder}/go; do sleep 0.1; done; echo {{}}"


def test_a_run_whose_directory_is_removed_stops_and_says_why(
    tmp_path: Path, begun: Callable[[str], subprocess.Popen[str]]
) -> None:
    run = begun(TASK.format(folder=tmp_path))
    _remove(tmp_path / "out")
    said = run.communicate(timeout=WAIT_S)[0]
    assert run.returncode == 3
    assert f"{tmp_path}/out is not there any more. If it was removed, so are the results" in said
    assert "stopped (its directory was removed, or moved)" in said
    assert "Go on where it ended" not in said, "there is nothing to go on with"
    assert not (tmp_path / "out" / ".cantle").exists()


def test_a_run_whose_directory_is_moved_goes_on_where_it_is_now(
    tmp_path: Path, begun: Callable[[str], subprocess.Popen[str]]
) -> None:
    run = begun(TASK.format(folder=tmp_path))
    (tmp_path / "out").rename(tmp_path / "other")
    assert "stopped (its directory was removed, or moved)" in run.communicate(timeout=WAIT_S)[0]
    (tmp_path / "go").touch()
    resume = [sys.executable, "-m", "cantle", "resume", "other", "--cores", "2"]
    done = subprocess.run(resume, cwd=tmp_path, capture_output=True, text=True, timeout=2 * WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 60 tasks done" in done.stdout + done.stderr


def test_only_a_directory_of_which_all_is_gone_counts_as_gone(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "run").create()
    layout.lock.touch()
    assert not layout.is_gone(), "the journal alone is missing"
    layout.journal.touch()
    layout.lock.unlink()
    assert not layout.is_gone(), "the lock alone is missing"
    layout.journal.unlink()
    assert layout.is_gone()
    shutil.rmtree(layout.directory)
    assert layout.is_gone()
    layout.directory.touch()
    assert layout.is_gone(), "a file has its name"


def test_a_program_that_stays_is_told_when_its_runs_directory_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with cantle.open(cores=1, directory=tmp_path / "run") as pilot:
        assert pilot.submit(abs, -1).result(WAIT_S) == 1
        _remove(tmp_path / "run")
        waits = pilot.submit(time.sleep, 2 * WAIT_S)
        with pytest.raises(PilotGoneError, match=r"/run was removed, or moved, .*, and run the program again"):
            waits.result(WAIT_S)
