"""Does a result that memory has no room for lie on the disk, before the kernel ends processes for want of memory?"""

from __future__ import annotations

import sys
from pathlib import Path

import cloudpickle
import pytest
from calls_rig import CallRig, Taken

from cantle.runner.calling.room import has_room_for

cloudpickle.register_pickle_by_value(sys.modules[__name__])

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size", "said", "has_room"),
    [
        (GIB, "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n", True),
        (3 * GIB, "MemTotal: 16777216 kB\nMemAvailable: 4194304 kB\n", True),
        (3 * GIB + 1024, "MemTotal: 16777216 kB\nMemAvailable: 4194304 kB\n", False),
        (GIB, "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n", False),
        (1 << 20, "MemTotal: 2097152 kB\nMemAvailable: 0 kB\n", True),
        (GIB, "MemTotal: 2097152 kB\n", True),
        (GIB, "nothing of the kind", True),
    ],
)
def test_a_large_result_is_kept_in_memory_as_long_as_a_sixteenth_is_left(
    size: int, said: str, has_room: bool, tmp_path: Path
) -> None:
    (tmp_path / "meminfo").write_text(said)
    assert has_room_for(size, str(tmp_path / "meminfo")) == has_room


def test_where_nobody_tells_how_much_memory_there_is_results_are_kept_there() -> None:
    assert has_room_for(GIB, "/no/such/file")


def be_short_of_memory() -> None:
    from cantle.runner.calling import worker

    worker.has_room_for = lambda size: False  # type: ignore[attr-defined]


def make() -> bytes:
    return b"x" * (1 << 20)


@pytest.mark.real
def test_what_memory_has_no_room_for_lies_in_the_runs_folder_and_is_taken_from_there(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, make)
        r.call(1, be_short_of_memory)
        end = r.call(2, make)
        assert end.outcome == "done", end.detail
        in_memory, on_disk = (r.results[task].path for task in (0, 2))
        assert on_disk.startswith(str(tmp_path)) and not in_memory.startswith(str(tmp_path))
        r.call(3, len, Taken(2))
        assert r.value(3) == 1 << 20
