"""Whose run's directory is removed or moved while it is at work hears of that, and nothing goes on for nobody."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cantle
from cantle.cli.watching import wait_for
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


@contextmanager
def _begun(folder: Path, command: str, *how: str) -> Iterator[subprocess.Popen[str]]:
    """A run of one task in `out`, of which the first part is over."""
    words = [sys.executable, "-m", "cantle", "map", command, "--range", "1-1", "-o", "out", *how]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        _until(lambda: (folder / "begun").exists())
        yield run


LAST = "touch {folder}/begun; until test -e {folder}/go; do sleep 0.05; done; sleep 0.2"


@pytest.mark.parametrize("how", [[], ["--json"], ["-q"]])
def test_a_run_that_is_over_before_it_could_hear_of_that_looks_once_more(tmp_path: Path, how: list[str]) -> None:
    with _begun(tmp_path, LAST.format(folder=tmp_path), *how) as run:
        (tmp_path / "out").rename(tmp_path / "other")
        (tmp_path / "go").touch()
        said = run.communicate(timeout=WAIT_S)[0]
    assert run.returncode == 3, said
    assert how == ["-q"] or f"{tmp_path}/out is not there any more. If it was removed, so are the results" in said
    assert ('"exit":3' if how == ["--json"] else "but what they left is not in out any more") in said
    assert not (tmp_path / "out").exists()
    status = subprocess.run(
        [sys.executable, "-m", "cantle", "wait", "other"], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S
    )
    assert status.returncode == 0, "where it is now all is done"


def test_what_failed_in_a_run_that_was_taken_away_is_not_to_be_gone_on_with_there(tmp_path: Path) -> None:
    failing = f"{LAST}; exit 5".format(folder=tmp_path)
    with _begun(tmp_path, failing) as run:
        _remove(tmp_path / "out")
        (tmp_path / "go").touch()
        said = run.communicate(timeout=WAIT_S)[0]
    assert run.returncode == 2
    assert "/out is not there any more" in said and "Go on where it ended" not in said


def test_a_run_in_whose_place_another_one_was_begun_does_not_say_that_all_is_there(tmp_path: Path) -> None:
    with _begun(tmp_path, LAST.format(folder=tmp_path)) as run:
        (tmp_path / "out").rename(tmp_path / "other")
        another = [sys.executable, "-m", "cantle", "map", "true", "--range", "1-2", "-o", "out"]
        assert subprocess.run(another, cwd=tmp_path, capture_output=True, timeout=WAIT_S).returncode == 0
        written = (tmp_path / "out" / "status.csv").read_bytes()
        (tmp_path / "go").touch()
        said = run.communicate(timeout=WAIT_S)[0]
    assert run.returncode == 3, said
    assert "is not what this run has written: it was removed, or replaced" in said
    assert (tmp_path / "out" / "status.csv").read_bytes() == written, "it is the other run's"


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


def test_whose_directory_at_a_pilot_is_removed_is_told_there_and_by_who_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    command = LAST.format(folder=tmp_path)
    (tmp_path / "study.yaml").write_text(
        f"description: {{name: gone, description: x}}\nstudy: [{{name: a, description: d, run: {{cmd: '{command}'}}}}]\n"
    )

    def cantle_(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cantle", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(process: subprocess.Popen[str]) -> str:
        return process.communicate(timeout=WAIT_S)[0]

    said(cantle_("up", str(tmp_path / "pilot"), "--nodes", "1x1"))
    try:
        said(cantle_("submit", "study.yaml", "--pilot", str(tmp_path / "pilot"), "-o", "out"))
        _until(lambda: (tmp_path / "begun").exists())
        gone = f"{tmp_path}/out is not there any more. If it was removed, so are the results"
        sleep = time.sleep

        def remove_while_it_waits(seconds: float) -> None:
            monkeypatch.setattr(time, "sleep", sleep)
            _remove(tmp_path / "out")

        monkeypatch.setattr(time, "sleep", remove_while_it_waits)
        assert wait_for(tmp_path / "out", WAIT_S) == 1
        assert gone in capsys.readouterr().err
        (tmp_path / "go").touch()
        _until(lambda: gone in (tmp_path / "pilot" / "pilot.log").read_text())
    finally:
        assert "is down" in said(cantle_("down", str(tmp_path / "pilot")))


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
