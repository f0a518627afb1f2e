"""Does a program whose calls failed hear of that, when it asks for none of their results and leaves as if all were well?"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import cantle

pytestmark = pytest.mark.real
WAIT_S = 60


@pytest.fixture(autouse=True)
def a_state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@cantle.task
def divide(x: int) -> float:
    return 1 / x


def test_what_failed_and_nobody_asked_for_is_told_at_the_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with cantle.open(cores=1, directory=tmp_path / "run"):
        divide.submit(0)
        divide.submit(1)
    said = capfd.readouterr().err
    assert said == (
        "cantle: 1 call failed, and nobody asked for its result: divide-1: ZeroDivisionError: division by zero; "
        f"see: cantle status {tmp_path}/run\n"
    )


def test_of_several_the_first_is_told_and_how_many_there_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with cantle.open(cores=1, directory=tmp_path / "run") as pilot:
        failed = [pilot.submit(os.stat, f"/no/such/{n}") for n in range(3)]
        late = cantle.task(walltime=0.2)(time.sleep).submit(WAIT_S)
        cantle.wait([*failed, late], timeout=WAIT_S)
    said = capfd.readouterr().err
    assert "4 calls failed, and nobody asked for their results; the first: stat-1: FileNotFoundError" in said


def test_what_somebody_asked_for_is_told_no_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with cantle.open(cores=1, directory=tmp_path / "run") as pilot:
        failed = [divide.submit(0) for _ in range(3)]
        assert isinstance(failed[0].exception(WAIT_S), ZeroDivisionError)
        assert len(cantle.gather(failed[1:], return_exceptions=True, timeout=WAIT_S)) == 2
        with pytest.raises(ZeroDivisionError):
            pilot.submit(divide.function, 0).result(WAIT_S)
        needs = divide.submit(divide.submit(0))
        with pytest.raises(cantle.DependencyError):
            needs.result(WAIT_S)
    assert capfd.readouterr().err == ""


def test_who_leaves_by_an_error_has_that_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), cantle.open(cores=1, directory=tmp_path / "run"):
        cantle.wait([divide.submit(0)], timeout=WAIT_S)
        raise KeyError
    assert "nobody asked" not in capfd.readouterr().err


def test_who_gathers_as_asyncio_does_is_told_how(tmp_path: Path) -> None:
    with cantle.open(cores=1, directory=tmp_path / "run") as pilot:
        futures = [pilot.submit(abs, n) for n in range(2)]
        with pytest.raises(TypeError, match=r"takes one list of futures, as in cantle\.gather\(\[a, b\]\)"):
            cantle.gather(*futures)  # type: ignore[call-overload]
