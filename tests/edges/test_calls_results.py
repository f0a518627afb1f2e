"""Where do results lie, who can read them, and is nothing left of them in the end, however it came?"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from calls_rig import CallRig, Taken
from msgspec.structs import replace
from runner_rig import eventually
from small_disk import small_disk

from cantle.engines.calls import Brought, Result
from cantle.model.records import NodeLost
from cantle.model.resources import Node
from cantle.runner.calling import store as store_module
from cantle.runner.calling import values
from cantle.runner.calling.store import Store, folders

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LARGE = 4 << 20


def make(size: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.arange(size // 8, dtype=np.int64)


def total(array: Any) -> int:
    array[0] = 1  # what is mapped is the reader's own
    return int(array.sum())


def both(array: Any, number: int) -> int:
    return int(array.nbytes) + number


def where(array: Any) -> bool:
    return any("cantle-" in line for line in Path("/proc/self/maps").read_text().split("\n")) and bool(array.size)


def runner_of(r: CallRig, node: int = 0) -> int:
    return int(r.allocation._open[node].pid)  # type: ignore[attr-defined]


def test_small_results_travel_and_large_ones_stay(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        assert r.call(0, make, 800).kept == 0
        assert r.call(1, make, LARGE).kept > LARGE
        assert r.results[0].inline is not None
        assert r.results[1].inline is None
        assert r.results[1].size == Path(r.results[1].path).stat().st_size
        assert r.value(0).sum() == sum(range(100))
        r.value(0)[0] = 5  # also small ones can be written to
        folder = Path(r.results[1].path).parent
    assert not folder.exists()


def test_an_array_is_mapped_by_who_takes_it_and_never_changed_for_others(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, make, LARGE)
        expected = LARGE // 8 * (LARGE // 8 - 1) // 2
        for task in (1, 2):
            assert r.call(task, total, Taken(0)).outcome == "done"
            assert r.value(task) == expected + 1
        r.call(3, where, Taken(0))
        assert r.value(3) is True
        assert r.value(0)[0] == 0


def test_a_result_in_line_is_taken_from_the_worker_before_anybody_has_heard_of_it(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.begin(0, make, LARGE, cores="0")
        r.begin(1, total, Taken(0), cores="0", behind=0, if_done=1)
        assert r.ended(1).outcome == "done"


def test_a_call_that_follows_takes_the_result_although_another_environment_needs_another_worker(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.begin(0, make, LARGE, cores="0")
        r.launch(1, r.command(total, Taken(0), env={"OTHER": "1"}), cores="0", behind=0, if_done=1)
        assert r.ended(1).outcome == "done"


def test_what_is_forgotten_is_removed_and_can_be_taken_no_more(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, make, LARGE)
        path = Path(r.results[0].path)
        r.calls.forget([0])
        end = r.call(1, total, Taken(0))
        assert end.outcome == "unstartable"
        assert "the result of task 0, which it takes, is not there any more" in end.detail
        assert eventually(lambda: not path.exists())
        assert "is forgotten" in r.value(0)


def test_nodes_of_one_machine_share_what_is_kept_also_after_one_of_them_has_gone(tmp_path: Path) -> None:
    nodes = [Node(name, 2, machine="here") for name in ("a", "b", "c")]
    with CallRig(tmp_path, *nodes) as r:
        r.call(0, make, LARGE, node=0)
        r.call(1, total, Taken(0), node=1)
        assert r.results[1].inline is not None
        r.engine.remove_node(0)
        r.engine.remove_node(1)
        assert r.call(2, total, Taken(0), node=2).outcome == "done"
        assert r.value(0)[1] == 1
        folder = Path(r.results[0].path).parent
    assert not folder.exists()


class Carrier:
    """Carries files by copying them."""

    def __init__(self, to: Path, problem: str = "") -> None:
        self.to = to
        self.problem = problem
        self.gone = False
        self.asked: list[tuple[int, int]] = []
        self.forgotten: list[int] = []
        self.missed: list[int] = []
        self.waiting: list[tuple[Result, Brought]] = []
        self.files: list[tuple[str, str, int]] = []
        self.waiting_files: list[tuple[str, str, Brought]] = []

    def fetch(self, result: Result, to: int, then: Brought) -> None:
        self.asked.append((result.task, to))
        self.waiting.append((result, then))

    def bring_file(self, path: str, name: str, to: int, then: Brought) -> None:
        self.files.append((path, name, to))
        self.waiting_files.append((path, name, then))

    def deliver_files(self, folder: Path) -> None:
        for path, name, then in self.waiting_files:
            if not self.problem:
                (folder / name).write_bytes(Path(path).read_bytes())
            then("" if self.problem else str(folder / name), self.problem, self.gone)
        self.waiting_files.clear()

    def deliver(self) -> None:
        for result, then in self.waiting:
            path = self.to / str(result.task)
            path.write_bytes(Path(result.path).read_bytes())
            then("" if self.problem else str(path), self.problem, self.gone)
        self.waiting.clear()

    def lost(self, task: int) -> None:
        self.missed.append(task)

    def forget(self, results: Any) -> None:
        self.forgotten += [result.task for result in results]


@pytest.fixture
def carrier(tmp_path: Path) -> Carrier:
    return Carrier(tmp_path)


APART = (Node("a", 2, machine="a"), Node("b", 2, machine="b"))


def test_what_lies_on_another_machine_is_brought_once_before_the_call(tmp_path: Path, carrier: Carrier) -> None:
    with CallRig(tmp_path, *APART) as r:
        r.calls.transport = carrier
        r.call(0, make, LARGE, node=0)
        r.begin(1, total, Taken(0), node=1, cores="0")
        r.begin(2, str, Taken(1), node=1, cores="0", behind=1, if_done=1)
        r.turn()
        assert not r.ends(1)
        carrier.deliver()
        assert (r.ended(1).outcome, r.ended(2).outcome) == ("done", "done")
        r.call(3, total, Taken(0), node=1)
        assert carrier.asked == [(0, 1)]
        r.calls.forget([0])
        assert carrier.forgotten == [0]


def test_a_call_whose_input_cannot_be_brought_says_why_and_who_follows_it_goes_back(
    tmp_path: Path, carrier: Carrier
) -> None:
    carrier.problem = "the network is down"
    with CallRig(tmp_path, *APART) as r:
        r.calls.transport = carrier
        r.call(0, make, LARGE, node=0)
        r.begin(1, total, Taken(0), node=1, cores="0")
        r.begin(2, len, Taken(1), node=1, cores="0", behind=1, if_done=1)
        carrier.deliver()
        assert "the network is down" in r.ended(1).detail
        assert (r.ended(1).outcome, r.ended(2).outcome) == ("unstartable", "interrupted")


def test_a_call_whose_input_turns_out_to_be_gone_begins_anew_by_nobody_s_fault(
    tmp_path: Path, carrier: Carrier
) -> None:
    carrier.problem, carrier.gone = "a has gone", True
    with CallRig(tmp_path, *APART) as r:
        r.calls.transport = carrier
        r.call(0, make, LARGE, node=0)
        r.begin(1, total, Taken(0), node=1)
        carrier.deliver()
        assert r.ended(1).outcome == "interrupted"
        assert not carrier.missed, "who brings it has told that it is gone"
        r.calls.forget([0])
        assert r.call(2, total, Taken(0), node=1).outcome == "interrupted"
        assert carrier.missed == [0]


def test_what_was_brought_to_another_node_outlives_the_node_where_it_was_made(tmp_path: Path, carrier: Carrier) -> None:
    with CallRig(tmp_path, *APART) as r:
        r.calls.transport = carrier
        r.call(0, make, LARGE, node=0)
        r.begin(1, total, Taken(0), node=1)
        carrier.deliver()
        assert r.ended(1).outcome == "done"
        r.engine.remove_node(0)
        assert r.call(2, total, Taken(0), node=1).outcome == "done"
        assert carrier.asked == [(0, 1)]


def test_a_call_that_waits_for_its_input_can_be_stopped(tmp_path: Path, carrier: Carrier) -> None:
    with CallRig(tmp_path, *APART) as r:
        r.calls.transport = carrier
        r.call(0, make, LARGE, node=0)
        r.begin(1, total, Taken(0), node=1)
        r.stop(1)
        assert r.ended(1).outcome == "canceled"
        carrier.deliver()
        r.turn()
        assert len(r.ends(1)) == 1


def test_who_follows_a_call_that_waits_waits_for_its_own_input_as_well(tmp_path: Path, carrier: Carrier) -> None:
    with CallRig(tmp_path, *APART) as r:
        r.calls.transport = carrier
        for task in (0, 1):
            r.call(task, make, LARGE, node=0)
        r.begin(2, total, Taken(0), node=1, cores="0")
        r.begin(3, both, Taken(1), Taken(2), node=1, cores="0", behind=2, if_done=1)
        assert carrier.asked == [(0, 1), (1, 1)]
        carrier.deliver()
        assert [r.ended(task).outcome for task in (2, 3)] == ["done"] * 2
        assert r.value(3) == r.value(2) + LARGE


class Put:
    """A node that does not see our files, and calls whose arguments lie in a file of ours."""

    def __init__(self, r: CallRig, folder: Path, carrier: Carrier) -> None:
        self.r = r
        self.carrier = r.calls.transport = carrier
        self.file = folder / "put-aside"
        self.there = Path(folders(str(folder), "runners")[0])

    def begin(self, task: int, n: int = LARGE, **how: Any) -> None:
        command = self.r.command(len, bytes(n))
        assert command.call is not None
        self.file.write_bytes(command.call.arguments)
        call = replace(command.call, arguments=b"", file=str(self.file))
        self.r.launch(task, replace(command, call=call), **how)

    def deliver(self) -> None:
        self.r.wait_for(self.there.is_dir, "no runner keeps anything")
        self.carrier.deliver_files(self.there)

    def copies(self) -> list[str]:
        return [path.name for path in self.there.iterdir() if path.name.startswith("-")]


@pytest.fixture
def put(tmp_path: Path, carrier: Carrier) -> Iterator[Put]:
    with CallRig(tmp_path, Node("away", 2, machine="away", apart=True)) as r:
        yield Put(r, tmp_path, carrier)


def test_arguments_in_a_file_are_brought_to_a_node_that_does_not_see_it_once_for_all_calls_under_way(put: Put) -> None:
    for task in range(3):
        put.begin(task)
    put.r.turn()
    assert put.carrier.files == [(str(put.file), "-1-0", 0)]
    assert not put.r.ends(0)
    put.deliver()
    put.file.unlink()
    assert [put.r.ended(task).outcome for task in range(3)] == ["done"] * 3
    assert put.r.value(2) == LARGE
    put.r.wait_for(lambda: put.copies() == [], "the copy stays there")
    put.begin(3)
    put.deliver()
    assert put.r.ended(3).outcome == "done"
    assert [name for _, name, _ in put.carrier.files] == ["-1-0", "-2-0"]


def test_arguments_that_cannot_be_brought_are_told_of(put: Put) -> None:
    put.carrier.problem = "the network is down"
    put.begin(0)
    put.deliver()
    assert put.r.ended(0).outcome == "unstartable"
    assert put.r.ended(0).detail == "its arguments cannot be brought here: the network is down"
    put.carrier.problem = ""
    put.begin(1)
    put.deliver()
    assert put.r.ended(1).outcome == "done", "it is tried again"


def test_a_call_that_waits_for_its_arguments_can_be_stopped_and_what_comes_for_it_is_removed(put: Put) -> None:
    put.begin(0)
    put.r.stop(0)
    assert put.r.ended(0).outcome == "canceled"
    put.deliver()
    put.r.wait_for(lambda: put.copies() == [], "the copy stays there")
    assert len(put.r.ends(0)) == 1


@pytest.mark.parametrize("full", [True, False])
def test_where_memory_is_full_or_cannot_be_had_results_lie_in_the_run_s_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with small_disk(tmp_path / "memory", 1 << 20) as disk:
        is_real = os.path.ismount(disk.path)
        monkeypatch.setattr(store_module, "MEMORY", str(disk.path if full and is_real else tmp_path / "none"))
        with CallRig(run) as r:
            r.call(0, make, LARGE)
            path = Path(r.results[0].path)
            assert path.is_relative_to(run / "runners")
            assert r.call(1, total, Taken(0)).outcome == "done"
    assert not path.exists()


def test_a_result_for_which_there_is_no_room_fails_its_call_and_says_where_it_looked(tmp_path: Path) -> None:
    def greedy(size: int) -> bytes:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        return b"x" * size

    with CallRig(tmp_path) as r:
        end = r.call(0, greedy, LARGE)
        assert end.outcome == "failed"
        assert "its result of 4.0 MiB can be kept neither in /dev/shm/cantle-" in end.detail
        assert str(tmp_path) in end.detail
        folder, spare = folders(str(tmp_path), "runners")
        assert [name for place in (folder, spare) if os.path.isdir(place) for name in os.listdir(place)] == ["owner"]


def test_what_a_killed_runner_kept_goes_with_its_run(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, make, LARGE)
        path = Path(r.results[0].path)
        os.kill(runner_of(r), signal.SIGKILL)
        r.wait_for(lambda: any(isinstance(event, NodeLost) for event in r.events), "no loss was told")
        assert r.calls.result_of(0) is None
        assert path.exists()
    assert not path.parent.exists()


def test_what_killed_runners_of_other_runs_left_goes_when_a_runner_begins_to_keep(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        left = Store(str(tmp_path / "other"), "runners")
        left.put("1-1", b"x")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    folder = Path(folders(str(tmp_path / "other"), "runners")[0])
    assert (folder / "1-1").exists()
    living = Store(str(tmp_path / "living"), "runners")
    living.put("1-1", b"x")
    assert not folder.exists()
    again = Store(str(tmp_path / "mine"), "runners")
    assert Path(living.path("1-1")).exists()
    living.close()
    again.close()
    assert not Path(living.folder).exists()


def test_the_last_runner_to_leave_removes_the_folder(tmp_path: Path) -> None:
    first, second = Store(str(tmp_path), "runners"), Store(str(tmp_path), "runners")
    first.put("1-1", b"x")
    first.close()
    assert Path(second.path("1-1")).read_bytes() == b"x"
    second.close()
    assert not Path(second.folder).exists()


@pytest.mark.parametrize("value", [None, 5, "text", [1, {"a": (2, 3)}], b"x" * 100_000, {"deep": [b"y" * 50_000] * 3}])
def test_values_are_the_same_after_packing(value: object) -> None:
    data = b"".join(bytes(part) for part in values.pack(value))
    assert values.unpack(data) == value
    assert values.unpack(memoryview(bytearray(data))) == value


def test_every_buffer_of_a_kept_result_lies_at_a_multiple_of_64_bytes(tmp_path: Path) -> None:
    arrays = [np.arange(n, dtype=np.int8) for n in (1, 70_001, 3, 64, 0)]
    path = tmp_path / "kept"
    path.write_bytes(b"".join(bytes(part) for part in values.pack(arrays)))
    found = values.unpack(values.read_kept(str(path)))
    for array, original in zip(found, arrays, strict=True):
        assert (array == original).all()
        assert not array.size or array.ctypes.data % 64 == 0


def test_a_worker_that_is_killed_while_it_keeps_a_result_leaves_nothing_of_it(tmp_path: Path) -> None:
    def half(folder: str) -> None:
        Path(folder, "0-1").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    with CallRig(tmp_path) as r:
        folder = folders(str(tmp_path), "runners")[0]
        assert r.call(0, half, folder).outcome == "failed"
        assert not Path(folder, "0-1").exists()


def test_a_runner_whose_conductor_is_killed_leaves_no_result_behind(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        r = CallRig(tmp_path)
        r.call(0, make, LARGE)
        (tmp_path / "new").write_text(r.results[0].path)
        (tmp_path / "new").rename(tmp_path / "told")
        time.sleep(60)
        os._exit(1)
    assert eventually((tmp_path / "told").exists)
    path = Path((tmp_path / "told").read_text())
    assert path.exists()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert eventually(lambda: not path.parent.exists())
