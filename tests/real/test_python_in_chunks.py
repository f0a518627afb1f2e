"""Do an executor's maps in chunks give what they would give without, and take as few calls as they say?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import cantle

pytestmark = pytest.mark.real
WAIT_S = 60


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cantle.Pilot]:
    where: Path = tmp_path_factory.mktemp("chunks")
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(where / "state")
    with cantle.open(cores=2, directory=where / "run") as pilot:
        yield pilot
    os.environ.pop("XDG_STATE_HOME")
    if before is not None:
        os.environ["XDG_STATE_HOME"] = before


@cantle.task(priority=3)
def divide(x: int, y: int) -> float:
    return x / y


def test_a_call_takes_as_many_elements_as_it_is_told(pilot: cantle.Pilot) -> None:
    executor = pilot.executor(retries=1)
    before = pilot.tally().get("abs", {}).get("all", 0)
    assert [*executor.map(abs, range(-10, 0), chunksize=4, timeout=WAIT_S)] == [*range(10, 0, -1)]
    assert pilot.tally()["abs"]["all"] - before == 3
    assert [*executor.map(abs, [], chunksize=4)] == []
    assert [*executor.map(abs, iter([-1, -2]), chunksize=100, timeout=WAIT_S)] == [1, 2]


def test_rows_of_several_iterables_go_to_a_task_with_what_it_says_of_its_calls(pilot: cantle.Pilot) -> None:
    found = pilot.executor().map(divide, [2, 4, 9], [1, 2, 3, 4], chunksize=2, timeout=WAIT_S)
    assert [*found] == [2.0, 2.0, 3.0]
    assert pilot.tally()["divide"]["done"] == 2


def test_an_error_in_a_chunk_comes_where_its_chunk_would(pilot: cantle.Pilot) -> None:
    found = pilot.executor().map(divide, [1, 2, 3], [1, 1, 0], chunksize=2, timeout=WAIT_S)
    assert [next(found), next(found)] == [1.0, 2.0]
    with pytest.raises(ZeroDivisionError):
        next(found)


@pytest.mark.parametrize("size", [0, -1])
def test_chunks_have_one_element_at_least(pilot: cantle.Pilot, size: int) -> None:
    with pytest.raises(ValueError, match="chunksize must be >= 1"):
        pilot.executor().map(abs, [1], chunksize=size)
