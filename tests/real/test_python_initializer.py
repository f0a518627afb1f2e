"""What a program has each worker load first is there before its calls. (D10)"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cantle

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def loader(place: Path) -> tuple[Callable[[], None], Callable[[int], Any]]:
    """An initializer that leaves a line each time, and a function that wants what it loads."""
    loaded: dict[str, int] = {}

    def load() -> None:
        with place.open("a") as file:
            file.write(f"{os.getpid()}\n")
        loaded["factor"] = 7

    def times(number: int) -> tuple[int, int]:
        return loaded["factor"] * number, os.getpid()

    return load, times


def test_it_is_called_once_on_each_worker_before_the_first_call(tmp_path: Path) -> None:
    load, times = loader(tmp_path / "loads")
    with cantle.open(cores=2, directory=tmp_path / "run", initializer=load) as pilot:
        results = cantle.gather([pilot.submit(times, n) for n in range(20)])
    assert [value for value, _ in results] == [7 * n for n in range(20)]
    loads = (tmp_path / "loads").read_text().split()
    assert sorted(loads) == sorted({str(worker) for _, worker in results})


def test_one_that_can_be_imported_is_called_once_for_all_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loads_first.py").write_text(
        "import os\n"
        f"def load():\n    with open({str(tmp_path / 'loads')!r}, 'a') as file:\n        file.write('x')\n"
        "def here(): return os.getpid()\n"
        "def there(): return os.getpid()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import loads_first  # type: ignore[import-not-found]

    with cantle.open(cores=1, directory=tmp_path / "run", initializer=loads_first.load) as pilot:
        first = pilot.submit(loads_first.here).result(60)
        assert pilot.submit(loads_first.there).result(60) == first
    assert (tmp_path / "loads").read_text() == "x"
    del sys.modules["loads_first"]


def test_one_that_raises_fails_the_call_with_its_error_and_is_tried_again(tmp_path: Path) -> None:
    go = tmp_path / "go"

    def load() -> None:
        if not go.exists():
            raise FileNotFoundError("there are no weights")

    with cantle.open(cores=1, directory=tmp_path / "run", initializer=load) as pilot:
        failed = pilot.submit(abs, -1)
        with pytest.raises(FileNotFoundError, match="there are no weights"):
            failed.result(60)
        error = failed.exception()
        assert error is not None and "the pilot's initializer" in "".join(error.__notes__)
        go.touch()
        assert pilot.submit(abs, -2).result(60) == 2


def test_it_serves_executors_too(tmp_path: Path) -> None:
    load, times = loader(tmp_path / "loads")
    with cantle.open(cores=1, directory=tmp_path / "run", initializer=load) as pilot, pilot.executor() as executor:
        assert [value for value, _ in executor.map(times, [1, 2])] == [7, 14]


def test_what_is_no_function_is_told_before_anything_begins(tmp_path: Path) -> None:
    with pytest.raises(cantle.RequestError, match="initializer='load' is no function"):
        cantle.open(cores=1, directory=tmp_path / "run", initializer="load")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
