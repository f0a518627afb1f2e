"""An engine that lives in a partition, on real runners: when it serves, who dies, what leaves, and that nothing stays."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_rig import a_long_sleep, eventually, is_alive, rig, running_with, shell

from cantle.engines.hosted.base import Papers, Site, Station
from cantle.engines.hosted.commands import Commands
from cantle.engines.hosted.torchrun import Torchrun
from cantle.model.records import (
    Launch,
    NodeLost,
    PartitionEnded,
    PartitionFailed,
    PartitionStarted,
    PartitionTold,
    WorkersRetired,
)
from cantle.model.resources import Node, Place
from cantle.model.streams import Streams
from cantle.model.study import EngineCommands
from cantle.plugins import find
from cantle.testing import check_hosted

HERE = os.uname().nodename
SERVES = "echo $$ >>{directory}/pids; "


class Housed:
    """A rig of two nodes of two cores, in which partition 0 is on the first and, if `wide`, on both."""

    def __init__(self, tmp_path: Path, hosted: Any, wide: bool = True) -> None:
        self.place = tmp_path / "runners" / "hosted" / "0"
        self.rig = rig(tmp_path, Node("n0", 2, machine=HERE), Node("n1", 2, machine=HERE))
        self.engine: Any = self.rig.engine
        stations = [Station(0, "n0", HERE, "0-1", memory_mib=100), Station(1, "n1", HERE, "0-1", memory_mib=100)]
        self.stations = stations
        self.engine.open_hosting_partition(0, "calc", hosted, stations[: 1 + wide], lambda: Papers("a", "c", "k"))
        self.engine.flush()

    def events(self, kind: type) -> list[Any]:
        return [event for event in self.rig.events if isinstance(event, kind)]

    def until(self, kind: type, n: int = 1) -> Any:
        self.rig.wait_for(lambda: len(self.events(kind)) >= n, f"no {kind.__name__} came")
        return self.events(kind)[n - 1]

    def pids(self) -> list[int]:
        """Of all that has begun and said so."""
        file = self.place / "pids"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def until_begun(self, n: int) -> list[int]:
        self.rig.wait_for(lambda: len(self.pids()) >= n, f"{n} did not begin: {self.pids()}")
        return self.pids()


@pytest.fixture
def sleep() -> str:
    return a_long_sleep(900)


@pytest.fixture
def housed(tmp_path: Path, sleep: str) -> Iterator[Any]:
    """Makes such a rig from commands; at the end nothing of any of them may be left."""
    made = []

    def make(wide: bool = True, **commands: Any) -> Housed:
        made.append(Housed(tmp_path, Commands(EngineCommands("mydb", **commands)), wide))
        return made[-1]

    yield make
    for each in made:
        each.rig.close()
    assert running_with(sleep) == []


def a_head(sleep: str) -> dict[str, str]:
    return {"head": SERVES + f"echo listening at here:77; exec {sleep}", "ready": "listening at"}


def a_pair(sleep: str) -> dict[str, str]:
    return {**a_head(sleep), "worker": SERVES + f"echo {{head}} {{node}} {{cores}} {{memory_mib}}; exec {sleep}"}


def test_a_partition_starts_when_head_and_workers_serve_and_tells_where_and_by_which_variables(
    housed: Any, sleep: str
) -> None:
    house = housed(**a_pair(sleep), env={"MYDB": "{head}", "MYDB_WHERE": "{directory}"})
    started = house.until(PartitionStarted)
    assert started.address == "here:77"
    assert dict(started.env) == {"MYDB": "here:77", "MYDB_WHERE": str(house.place)}
    assert len(house.until_begun(3)) == 3
    told = [path.read_text() for path in sorted(house.place.glob("worker-*.out"))]
    assert sorted(told) == ["here:77 n0 2 100\n", "here:77 n1 2 100\n"]
    house.engine.close_partition(0)
    house.until(PartitionEnded)
    assert not any(is_alive(pid) for pid in house.pids())


def test_nothing_starts_before_the_head_serves_and_a_head_that_never_does_fails_with_its_last_words(
    housed: Any, sleep: str
) -> None:
    said = f"echo I wait for the licence >&2; exec {sleep}"
    house = housed(head=SERVES + said, ready="listening", worker=SERVES + sleep, within_s=3.0)
    failed = house.until(PartitionFailed)
    assert "its mydb head on n0 did not come up: " in failed.reason
    assert "did not serve within 3 s" in failed.reason
    assert "I wait for the licence" in failed.reason
    assert len(house.pids()) == 1
    assert not house.events(PartitionStarted)


def test_of_a_head_that_cannot_even_be_started_its_node_is_told_once(housed: Any, tmp_path: Path) -> None:
    (tmp_path / "runners").mkdir()
    (tmp_path / "runners" / "hosted").write_text("in the way")
    reason = housed(head="exec true", ready="x").until(PartitionFailed).reason
    assert reason.startswith("its mydb head on n0 did not come up: opening the files for its output: ")
    assert reason.count("n0") == 1


def test_a_port_that_answers_tells_that_the_head_serves(housed: Any) -> None:
    house = housed(wide=False, head="exec python3 -m http.server {port} --bind {host}")
    address = house.until(PartitionStarted).address
    host, _, port = address.partition(":")
    assert host == "127.0.0.1"
    assert int(port) > 1000


def test_a_head_that_dies_fails_the_partition_when_nothing_of_it_is_left(housed: Any, sleep: str) -> None:
    head = SERVES + f"echo listening; trap 'echo out of space >&2; exit 3' USR1; {sleep} & wait"
    house = housed(head=head, ready="listening", worker=a_pair(sleep)["worker"])
    house.until(PartitionStarted)
    pids = house.until_begun(3)
    os.kill(pids[0], signal.SIGUSR1)
    failed = house.until(PartitionFailed)
    assert "its mydb head on n0 died: exit code 3" in failed.reason
    assert "out of space" in failed.reason
    assert not any(is_alive(pid) for pid in pids)


def test_a_worker_that_dies_is_replaced_twice_and_the_third_time_the_partition_fails(housed: Any, sleep: str) -> None:
    house = housed(wide=False, **a_pair(sleep))
    house.until(PartitionStarted)
    for number in (1, 2):
        os.kill(house.until_begun(1 + number)[number], signal.SIGKILL)
        told = house.until(PartitionTold, number)
        assert "its mydb worker on n0 " in told.what
        assert "SIGKILL" in told.what
        assert " and is replaced: " in told.what
    os.kill(house.until_begun(4)[3], signal.SIGKILL)
    reason = house.until(PartitionFailed).reason
    assert " for the 3rd time in 10 minutes: killed by SIGKILL" in reason
    assert len(house.pids()) == 4


def test_a_worker_is_let_go_before_its_node_leaves_and_the_others_stay(housed: Any, sleep: str) -> None:
    worker = "echo $$ >{directory}/worker-{node}; " + f"exec {sleep}"
    retire = "kill -0 $(cat {directory}/worker-{node}) && echo {node} {head} >{directory}/moved"
    house = housed(**a_head(sleep), worker=worker, retire=retire)
    house.until(PartitionStarted)
    house.rig.wait_for(lambda: (house.place / "worker-n1").exists(), "no worker")
    house.engine.retire_workers(0, (1,))
    house.engine.flush()
    assert house.until(WorkersRetired).leaving == (1,)
    assert (house.place / "moved").read_text() == "n1 here:77\n"  # and the worker was there then
    assert not is_alive(int((house.place / "worker-n1").read_text()))
    assert is_alive(int((house.place / "worker-n0").read_text()))
    assert not house.events(PartitionTold)


def test_a_worker_that_cannot_be_let_go_in_order_leaves_all_the_same_and_that_is_told(housed: Any, sleep: str) -> None:
    house = housed(**a_pair(sleep), retire="echo nobody takes them >&2; exit 9")
    house.until(PartitionStarted)
    house.engine.retire_workers(0, (1,))
    house.engine.flush()
    house.until(WorkersRetired)
    assert "nobody takes them" in house.until(PartitionTold).what


def test_a_node_where_nothing_of_it_is_leaves_at_once(housed: Any, sleep: str) -> None:
    house = housed(**a_head(sleep))
    house.until(PartitionStarted)
    house.engine.retire_workers(0, (1,))
    assert house.until(WorkersRetired).leaving == (1,)


def test_a_node_more_is_a_worker_more(housed: Any, sleep: str) -> None:
    house = housed(wide=False, **a_pair(sleep))
    house.until(PartitionStarted)
    assert len(house.until_begun(2)) == 2
    house.engine.resize_partition(0, (1,), ())
    house.engine.grow_hosting(0, house.stations[1:])
    house.engine.flush()
    house.until_begun(3)
    assert list(house.place.glob("worker-n1.*"))


def test_tasks_begin_on_the_cores_where_it_lives(housed: Any, sleep: str) -> None:
    house = housed(**a_pair(sleep))
    house.until(PartitionStarted)
    house.rig.launch(0, shell("true"), cores="0-1")
    assert house.rig.ended(0).outcome == "done"


def test_what_it_left_behind_with_sessions_of_its_own_ends_with_it(housed: Any, sleep: str) -> None:
    house = housed(wide=False, head=f"(setsid {sleep} &) ; echo listening; exec {sleep}", ready="listening")
    house.until(PartitionStarted)
    assert eventually(lambda: len(running_with(sleep)) >= 2)
    house.engine.close_partition(0)
    house.until(PartitionEnded)
    assert eventually(lambda: running_with(sleep) == [])


def test_when_the_runner_of_the_head_is_killed_the_partition_fails_and_its_processes_go(
    housed: Any, sleep: str
) -> None:
    house = housed(**a_pair(sleep))
    house.until(PartitionStarted)
    house.until_begun(3)
    os.kill(house.rig.allocation._open[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
    house.until(NodeLost)
    assert house.until(PartitionFailed).reason == "the node of its mydb head is gone: n0"
    assert eventually(lambda: running_with(sleep) == [])


def test_a_command_that_wants_what_nobody_knows_fails_the_partition_and_says_what_there_is(housed: Any) -> None:
    house = housed(head="serve --on {prot}")
    assert "the engine mydb wants {prot}; there are host, port, head" in house.until(PartitionFailed).reason


@pytest.mark.parametrize("name", ["dask", "ray", "torchrun", "mydb"])
def test_ours_keep_the_promises_of_the_seam(name: str) -> None:
    if name == "mydb":
        check_hosted(Commands(EngineCommands(name, "serve {port}", "join {head} {node}", env={"MYDB": "{head}"})))
    else:
        check_hosted(find("hosted_engines", name)())


def test_the_check_finds_a_secret_that_others_could_read() -> None:
    class Open(Torchrun):
        def environment(self, site: Site, address: str) -> dict[str, str]:
            return {"TOKEN": site.papers().key}

    with pytest.raises(AssertionError, match="TOKEN stands in the journal"):
        check_hosted(Open())


def test_private_files_are_for_the_user_alone(tmp_path: Path) -> None:
    from cantle.engines.hosted.dask import Dask

    house = Housed(tmp_path, Dask(), wide=False)
    house.rig.wait_for(lambda: (house.place / "key.pem").exists(), "no key")
    try:
        assert (house.place / "key.pem").stat().st_mode & 0o777 == 0o600
        assert house.place.stat().st_mode & 0o777 == 0o700
    finally:
        house.rig.close()


def test_each_torchrun_of_a_task_is_told_of_the_meeting_by_its_own_variables(tmp_path: Path) -> None:
    house = Housed(tmp_path, Torchrun())
    house.until(PartitionStarted)
    on = (Place(0, "0"), Place(1, "0"))
    launch = Launch(house.rig.inbox.now(), 0, 1, on, partition=0)
    script = (
        'echo "$NNODES $PET_NNODES $PET_NODE_RANK $PET_RDZV_BACKEND $PET_RDZV_CONF $PET_RDZV_ENDPOINT $MASTER_PORT"'
    )
    house.engine.launch(launch, shell(script, "out/each"), streams=Streams(2, 1, together=True))
    house.engine.flush()
    try:
        assert house.rig.ended(0).outcome == "done"
        told = sorted(path.read_text().split() for path in (tmp_path / "out").glob("*.out"))
        assert [words[:5] for words in told] == [
            ["2", "2", "0", "c10d", "is_host=1"],
            ["2", "2", "1", "c10d", "is_host=0"],
        ]
        assert {words[5] for words in told} == {f"127.0.0.1:{told[0][6]}"}
    finally:
        house.rig.close()


MEETS = """
import os, socket, time
host, _, port = os.environ["PET_RDZV_ENDPOINT"].rpartition(":")
nodes, rank = int(os.environ["PET_NNODES"]), os.environ["PET_NODE_RANK"]
if os.environ["PET_RDZV_CONF"] == "is_host=1":
    with socket.create_server((host, int(port))) as store:
        others = [store.accept()[0] for _ in range(nodes - 1)]
        ranks = sorted([rank, *(other.recv(9).decode() for other in others)])
        for other in others:
            other.sendall(" ".join(ranks).encode())
        print(*ranks)
else:
    while True:
        try:
            store = socket.create_connection((host, int(port)))
            break
        except OSError:
            time.sleep(0.02)
    store.sendall(rank.encode())
    print(store.recv(99).decode())
"""


def test_what_meets_as_torchrun_does_meets(tmp_path: Path) -> None:
    """A stand-in for torchrun: the host keeps a store on the endpoint, the others join it there."""
    (tmp_path / "meets.py").write_text(MEETS)
    house = Housed(tmp_path, Torchrun())
    house.until(PartitionStarted)
    launch = Launch(house.rig.inbox.now(), 0, 1, (Place(0, "0"), Place(1, "0")), partition=0)
    command = shell(f"exec {sys.executable} {tmp_path}/meets.py", "out/each")
    house.engine.launch(launch, command, walltime_s=120.0, streams=Streams(2, 1, together=True))
    house.engine.flush()
    try:
        assert house.rig.ended(0).outcome == "done"
        assert [path.read_text() for path in (tmp_path / "out").glob("*.out")] == ["0 1\n", "0 1\n"]
    finally:
        house.rig.close()
