"""Does this machine offer what it may, say what it holds back, and start and end runners?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runner_rig import eventually, is_alive

from cantle.allocations.groups import Group
from cantle.allocations.local import LocalAllocation
from cantle.allocations.machine import look
from cantle.cli import serving
from cantle.cli.serving import RUNNER
from cantle.errors import RequestError
from cantle.model.records import Event, NodesAwaited, NodesJoined
from cantle.model.resources import Node
from cantle.runtime.inbox import SelectInbox
from cantle.testing import check_allocation


@pytest.mark.real
def test_the_local_allocation_keeps_the_promises_of_its_seam() -> None:
    check_allocation(LocalAllocation)


def machine(root: Path, **files: str) -> str:
    """A machine of four cores in files; `__` in a name is a slash."""
    standard = {
        "sys__devices__system__cpu__online": "0-3\n",
        "proc__meminfo": "MemTotal:       8388608 kB\nMemFree: 1 kB\n",
        "proc__self__cgroup": "0::/job\n",
        "proc__self__mountinfo": "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    }
    for name, text in {**standard, **files}.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_a_whole_machine_needs_no_notes(tmp_path: Path) -> None:
    found = look(machine(tmp_path), {}, {0, 1, 2, 3})
    assert (found.cores, found.core_ids, found.memory_mib, found.gpu_ids, found.notes) == (
        4,
        (0, 1, 2, 3),
        8192,
        (),
        (),
    )


def test_o20_the_affinity_mask_counts_and_both_numbers_are_said(tmp_path: Path) -> None:
    found = look(machine(tmp_path), {"SLURM_CPUS_ON_NODE": "2"}, {2})
    assert (found.cores, found.core_ids) == (1, (2,))
    assert "the affinity mask leaves 1 of this machine's 4 cores" in found.notes
    assert "Slurm says 2 CPUs on this node, but 1 can be used: taking 1" in found.notes


def test_what_was_declared_is_taken_and_only_what_differs_from_it_is_said(tmp_path: Path) -> None:
    root, all_four = machine(tmp_path), {0, 1, 2, 3}
    for declared in (2, 4, 8):
        assert look(root, {"SLURM_CPUS_ON_NODE": str(declared)}, all_four, declared=declared).notes == ()
    (note,) = look(root, {"SLURM_CPUS_ON_NODE": "4"}, all_four, declared=2).notes
    assert note == "Slurm says 4 CPUs on this node, but 2 cores were declared: taking 2"


@pytest.mark.parametrize("declared", [{"cores": 999}, {"groups": [Group(3, 333)]}])
def test_a_node_of_slurm_that_has_fewer_cores_than_were_declared_is_told_once(
    declared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "999")
    allocation = LocalAllocation(**declared)
    inbox = SelectInbox()
    allocation.open(inbox)
    allocation.close()
    inbox.close()
    (note,) = [note for note in allocation.notes if "core" in note and "affinity" not in note]
    assert note.startswith("999 cores declared ") and note.endswith("can be used: tasks are not bound to cores")


def test_o20_what_was_granted_counts_where_nothing_confines_us_to_it(tmp_path: Path) -> None:
    root = machine(tmp_path)
    free = look(root, {"SLURM_CPUS_ON_NODE": "3"}, {0, 1, 2, 3}, granted=3)
    assert (free.cores, free.core_ids) == (3, ())
    (note,) = free.notes
    assert note.startswith("3 cores of this machine's 4 were granted, but we are not confined to certain ones")
    confined = look(root, {}, {1, 2}, granted=1)  # two hardware threads of one core, say
    assert (confined.cores, confined.core_ids) == (2, (1, 2))
    assert not any("granted" in note for note in confined.notes)
    for enough in (0, 4, 72):
        assert look(root, {}, {0, 1, 2, 3}, granted=enough) == look(root, {}, {0, 1, 2, 3})


@pytest.mark.real
def test_o20_a_runner_that_is_told_what_was_granted_offers_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(os.cpu_count() or 1)))
    parse = RUNNER.parser().parse_args
    for words, cores in ((["--granted", "1"], 1), (["--granted", "1", "--cores", "2"], 2)):
        here, node = serving._node(parse(["--connect", "-", *words]))
        here.close()
        assert (node.cores, node.core_ids) == (cores, ()), here.notes


@pytest.mark.real
def test_o20_under_taskset_one_core_is_offered() -> None:
    core = min(os.sched_getaffinity(0))
    code = (
        "from cantle.allocations.local import LocalAllocation as L; from cantle.runtime.inbox import SelectInbox as I\n"
        "for cores in (None, 2):\n i = I(); a = L(cores=cores); a.open(i); n = i.wait(0)[1].nodes[0]\n"
        " print(n.cores, n.core_ids, a.notes)"
    )
    out = subprocess.run(
        ["taskset", "-c", str(core), sys.executable, "-c", code],
        env={**os.environ, "SLURM_CPUS_ON_NODE": "2"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    assert out[0].startswith(f"1 ({core},)")
    assert "affinity mask leaves 1" in out[0]
    assert "Slurm says 2" in out[0]
    assert out[1].startswith("2 () ")


def test_hardware_threads_count_once_when_asked(tmp_path: Path) -> None:
    threads = {
        f"sys__devices__system__cpu__cpu{n}__topology__thread_siblings_list": f"{n % 2},{n % 2 + 2}\n" for n in range(4)
    }
    found = look(machine(tmp_path, **threads), {}, {0, 1, 2, 3}, physical=True)
    assert (found.cores, found.core_ids) == (2, (0, 1))
    assert found.notes == ("2 physical cores of 4 logical cores taken",)


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        (
            {"sys__fs__cgroup__job__cpu.max": "250000 100000\n", "sys__fs__cgroup__job__memory.max": "1073741824\n"},
            2,
            1024,
        ),
        ({"sys__fs__cgroup__cpu.max": "50000 100000\n", "sys__fs__cgroup__job__cpu.max": "max 100000\n"}, 1, 8192),
        (
            {
                "proc__self__cgroup": "4:memory:/a/b\n2:cpu,cpuacct:/a/b\n0::/\n",
                "proc__self__mountinfo": "1 2 0:1 /a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                "3 2 0:2 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n",
                "sys__fs__cgroup__cpu__b__cpu.cfs_quota_us": "300000\n",
                "sys__fs__cgroup__cpu__b__cpu.cfs_period_us": "100000\n",
                "sys__fs__cgroup__memory__a__memory.limit_in_bytes": "2147483648\n",
                "sys__fs__cgroup__memory__a__b__memory.limit_in_bytes": "9223372036854771712\n",
            },
            3,
            2048,
        ),
    ],
)
def test_limits_of_the_control_group_count_in_both_versions(
    tmp_path: Path, files: dict[str, str], cores: int, memory: int
) -> None:
    found = look(machine(tmp_path, **files), {}, {0, 1, 2, 3})
    assert (found.cores, found.core_ids, found.memory_mib) == (cores, (), memory)
    assert any("the control group grants the time of" in note for note in found.notes)


@pytest.mark.parametrize(
    ("environ", "files", "ids"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, {}, ("2", "3")),
        ({"CUDA_VISIBLE_DEVICES": ""}, {"dev__nvidia0": "", "proc__driver__nvidia__gpus__a__x": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, {}, ("0",)),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {}, ()),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1f, MIG-7"}, {}, ("GPU-1f", "MIG-7")),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "0,1"}, {}, ("4", "5")),
        ({"ZE_AFFINITY_MASK": "0.0,0.1"}, {}, ("0.0", "0.1")),
        ({"SLURM_JOB_GPUS": "1,3"}, {}, ("1", "3")),
        ({"SLURM_JOB_GPUS": "1,3", "SLURM_STEP_GPUS": "3", "CUDA_VISIBLE_DEVICES": "0"}, {}, ("0",)),
        (
            {},
            {"dev__nvidia0": "", "dev__nvidia1": "", "dev__nvidiactl": "", "proc__driver__nvidia__gpus__a__x": ""},
            ("0", "1"),
        ),
        (
            {},
            {f"sys__class__kfd__kfd__topology__nodes__{n}__properties": f"a 1\nsimd_count {n * 4}\n" for n in range(3)},
            ("0", "1"),
        ),
    ],
)
def test_o19_gpus_are_the_inherited_ones_or_else_those_of_the_drivers(
    tmp_path: Path, environ: dict[str, str], files: dict[str, str], ids: tuple[str, ...]
) -> None:
    assert look(machine(tmp_path, **files), environ, {0}).gpu_ids == ids


def opened(allocation: LocalAllocation) -> Node:
    inbox = SelectInbox()
    allocation.open(inbox)
    events = inbox.wait(0)
    inbox.close()
    assert [type(event) for event in events] == [NodesAwaited, NodesJoined, NodesAwaited]
    (node,) = events[1].nodes  # type: ignore[union-attr]
    return node


def test_more_cores_than_there_are_make_logical_ones_and_that_is_said() -> None:
    allocation = LocalAllocation(cores=500, gpus=3, memory_mib=1000)
    node = opened(allocation)
    assert (node.cores, node.core_ids, node.gpus, node.gpu_ids, node.memory_mib) == (500, (), 3, ("0", "1", "2"), 1000)
    assert any("500 cores declared" in note for note in allocation.notes)


@pytest.mark.parametrize("wrong", [{"cores": 0}, {"gpus": -1}, {"memory_mib": 0}])
def test_what_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="at least"):
        LocalAllocation(**wrong)  # type: ignore[arg-type]


@pytest.mark.real
def test_runners_end_with_their_channels_and_hold_nothing_of_ours() -> None:
    read, write = os.pipe()
    allocation = LocalAllocation(nodes=[Node("a", 1), Node("b", 1)])
    allocation.prepare()
    one, two = allocation.connect(Node("a", 1)), allocation.connect(Node("b", 1))
    os.close(write)
    assert eventually(lambda: os.path.exists(f"/proc/{two.pid}/fd"))
    assert os.read(read, 1) == b"", "a runner that held our pipe would keep us waiting here"
    os.close(read)
    one.close()
    assert not is_alive(one.pid)
    assert is_alive(two.pid)
    allocation.close()
    assert not is_alive(two.pid)
    with pytest.raises(ChildProcessError):
        os.waitpid(two.pid, os.WNOHANG)


def test_a_node_whose_runner_dies_again_and_again_is_brought_back_so_often_within_an_hour() -> None:
    clock = [0.0]
    events: list[Event] = []
    inbox = SelectInbox()
    inbox.now = lambda: clock[0]  # type: ignore[method-assign]
    inbox.put = events.append  # type: ignore[method-assign]
    node = Node("here", 1)
    allocation = LocalAllocation(nodes=[node])
    allocation.open(inbox)
    events.clear()
    back = []
    for clock[0] in (0.0, 60.0, 120.0, 180.0, 240.0, 300.0, 3000.0, 3630.0, 3640.0):
        allocation.lost(node)
        back.append(any(isinstance(event, NodesJoined) for event in events))
        events.clear()
    inbox.close()
    assert back == [True] * 5 + [False, False, True, False]
