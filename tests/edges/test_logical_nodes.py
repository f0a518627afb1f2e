"""Can one machine be several nodes, each with a runner of its own, and does nothing of them stay?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runner_rig import a_long_sleep, eventually, is_alive, output, packed, running_with

from cantle.allocations.dealing import deal
from cantle.allocations.forge import Forge
from cantle.allocations.groups import Group, parse_groups
from cantle.allocations.local import LocalAllocation
from cantle.allocations.machine import Machine
from cantle.engines.process import ProcessEngine
from cantle.errors import RequestError
from cantle.model.records import NodeLost, NodesJoined
from cantle.runner import processes
from cantle.store.journal import read
from cantle.testing import Rig, check_allocation

CANTLE = [sys.executable, "-m", "cantle"]


def machine(cores: int, gpus: int = 0, memory_mib: int = 1000, bound: bool = True) -> Machine:
    ids = tuple(range(10, 10 + cores)) if bound else ()
    return Machine(cores, ids, memory_mib, tuple(f"gpu{n}" for n in range(gpus)), ())


def test_groups_are_counts_of_cores_with_gpus_and_a_kind() -> None:
    assert parse_groups("8x4") == [Group(8, 4)]
    assert parse_groups("2x64:4@fat, 10x8:0,16") == [Group(2, 64, 4, "fat"), Group(10, 8, 0), Group(1, 16)]


@pytest.mark.parametrize("text", ["", "x4", "8x", "8x0", "8x4:", "8 of 4", "8x4@", "0x4", "8x4;2x2"])
def test_what_is_no_group_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="as in 10x8"):
        parse_groups(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [("100000x4", "100,000 are more than the 1,000 into which one machine"), ("1x1000000", "no node may")],
)
def test_more_than_a_machine_can_bear_is_refused_before_anything_begins(text: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        LocalAllocation(groups=parse_groups(text))


def test_cores_that_suffice_are_dealt_out_and_no_two_nodes_share_one() -> None:
    nodes, notes = deal(machine(8), "here", parse_groups("2x3,2x1"))
    assert [(node.name, node.cores, node.core_ids) for node in nodes] == [
        ("node1", 3, (10, 11, 12)),
        ("node2", 3, (13, 14, 15)),
        ("node3", 1, (16,)),
        ("node4", 1, (17,)),
    ]
    assert {node.machine for node in nodes} == {"here"}
    assert notes == []


def test_more_cores_than_there_are_make_unbound_nodes_and_that_is_said() -> None:
    nodes, notes = deal(machine(8), "here", parse_groups("8x4"))
    assert [(node.cores, node.core_ids) for node in nodes] == [(4, ())] * 8
    assert notes == ["32 cores declared on 8 nodes where 8 can be used: tasks are not bound to cores"]


def test_where_a_control_group_forbids_binding_nodes_are_not_bound_and_nothing_is_said() -> None:
    nodes, notes = deal(machine(4, bound=False), "here", parse_groups("2x2"))
    assert [node.core_ids for node in nodes] == [(), ()]
    assert notes == []


def test_memory_is_dealt_out_by_cores_unless_each_node_has_its_own() -> None:
    nodes, _ = deal(machine(8), "here", parse_groups("1x6,2x1"))
    assert [node.memory_mib for node in nodes] == [750, 125, 125]
    nodes, _ = deal(machine(8), "here", parse_groups("1x6,2x1"), memory_mib=400)
    assert [node.memory_mib for node in nodes] == [400, 400, 400]


def test_gpus_are_dealt_out_equally_and_the_first_nodes_have_what_is_over() -> None:
    nodes, notes = deal(machine(8, gpus=5), "here", parse_groups("3x1"))
    assert [node.gpu_ids for node in nodes] == [("gpu0", "gpu1"), ("gpu2", "gpu3"), ("gpu4",)]
    assert notes == []


def test_gpus_that_a_group_asks_for_are_its_own_and_the_others_share_the_rest() -> None:
    nodes, notes = deal(machine(8, gpus=4), "here", parse_groups("2x1,1x1:2,1x1:0"))
    assert [(node.gpus, node.gpu_ids) for node in nodes] == [
        (1, ("gpu0",)),
        (1, ("gpu1",)),
        (2, ("gpu2", "gpu3")),
        (0, ()),
    ]
    assert notes == []


def test_more_gpus_than_can_be_seen_are_numbered_through_and_that_is_said() -> None:
    nodes, notes = deal(machine(8, gpus=1), "here", parse_groups("2x1:2"))
    assert [node.gpu_ids for node in nodes] == [("0", "1"), ("2", "3")]
    assert notes == ["4 GPUs declared where 1 can be seen"]


def test_named_things_are_dealt_out_so_that_together_they_are_not_more() -> None:
    nodes, notes = deal(machine(8), "here", parse_groups("4x2"), named=(("licence", 6),))
    assert [node.named for node in nodes] == [(("licence", n),) for n in (2, 2, 1, 1)]
    assert notes == ["6 licence dealt out to 4 nodes: 1 or 2 each"]


def test_groups_and_cores_exclude_each_other() -> None:
    with pytest.raises(RequestError, match="groups of nodes say"):
        LocalAllocation(cores=2, groups=[Group(2, 1)])


@pytest.mark.real
def test_an_allocation_of_several_nodes_keeps_the_promises_of_its_seam() -> None:
    def made() -> LocalAllocation:
        allocation = LocalAllocation(groups=[Group(3, 2)])
        allocation.prepare()
        return allocation

    check_allocation(made)


@pytest.mark.real
def test_a_forged_runner_is_our_child_and_leaves_with_its_channel() -> None:
    processes.become_subreaper()
    forge = Forge()
    channels = [forge.runner() for _ in range(5)]
    pids = [channel.pid for channel in reversed(channels)]
    assert len(set(pids)) == 5
    assert {who.parent for pid in pids if (who := processes.identity(pid))} == {os.getpid()}
    for channel in channels:
        channel.close()
    assert not any(map(is_alive, pids))
    with pytest.raises(ChildProcessError):
        os.waitpid(pids[0], os.WNOHANG)
    forge.close()


@pytest.mark.real
def test_without_its_forge_an_allocation_forks_by_itself() -> None:
    before = set(processes.children(os.getpid()))
    allocation = LocalAllocation(groups=[Group(3, 1)])
    allocation.prepare()
    first = allocation.connect(nodes_of(allocation)[0])
    (forge,) = set(processes.children(os.getpid())) - before - {first.pid}
    os.kill(forge, signal.SIGKILL)
    assert eventually(lambda: not is_alive(forge))
    second = allocation.connect(nodes_of(allocation)[1])
    assert is_alive(second.pid)
    allocation.close()
    assert set(processes.children(os.getpid())) <= before


def nodes_of(allocation: LocalAllocation) -> list[object]:
    from cantle.runtime.inbox import SelectInbox

    inbox = SelectInbox()
    allocation.open(inbox)
    events = inbox.wait(0)
    inbox.close()
    return [node for event in events if isinstance(event, NodesJoined) for node in event.nodes]


def logical(tmp_path: Path, text: str, grace_s: float = 1.0) -> Rig:
    def made() -> LocalAllocation:
        allocation = LocalAllocation(groups=parse_groups(text))
        allocation.prepare()
        return allocation

    return Rig(lambda inbox, directory: ProcessEngine(inbox, directory, grace_s=grace_s), made, tmp_path)


@pytest.mark.real
def test_each_node_has_a_runner_of_its_own_and_tasks_are_bound_to_its_cores(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    show = (
        sys.executable,
        "-c",
        "import os; print(os.environ['CANTLE_RUNNER'], *sorted(os.sched_getaffinity(0)))",
    )
    with logical(tmp_path, f"{len(cores)}x1") as r:
        for index in range(len(cores)):
            r.launch(index, packed(*show), node=index, cores="0")
        told = [output(tmp_path, r.ended(index).output)[0].decode().split() for index in range(len(cores))]
    assert len({runner for runner, *_ in told}) == len(cores)
    if not any("control group" in note for note in r.allocation.notes):
        assert [[int(core) for core in bound] for _, *bound in told] == [[core] for core in cores]


@pytest.mark.real
def test_a_killed_runner_takes_its_tasks_with_it_and_its_node_comes_back(tmp_path: Path) -> None:
    sleeps = [a_long_sleep(3001), a_long_sleep(3002)]
    with logical(tmp_path, "2x4") as r:
        for index, sleep in enumerate(sleeps):
            r.launch(index, packed(*sleep.split()), node=index)
            r.started(index)
        runner = int(processes.variables(running_with(sleeps[1])[0], b"CANTLE_RUNNER")[0])  # type: ignore[index]
        os.kill(runner, signal.SIGKILL)
        r.wait_for(lambda: any(isinstance(e, NodeLost) and e.node == 1 for e in r.events), "no loss was told")
        assert eventually(lambda: not running_with(sleeps[1]))
        assert running_with(sleeps[0]), "the other node is not concerned"
        r.allocation.lost(r.nodes[1])
        r.wait_for(lambda: sum(isinstance(e, NodesJoined) for e in r.events) == 2, "the node did not come back")
        again = r.events[-1] if isinstance(r.events[-1], NodesJoined) else r.events[-2]
        assert [node.name for node in again.nodes] == ["node2"]  # type: ignore[union-attr]
        r.engine.add_node(2, r.nodes[1], r.allocation.connect(r.nodes[1]))
        r.launch(2, packed("/bin/true"), node=2)
        assert r.ended(2).outcome == "done"


@pytest.mark.real
def test_what_cannot_be_started_names_its_node_where_there_are_several(tmp_path: Path) -> None:
    with logical(tmp_path, "2x4") as r:
        r.launch(0, packed("/no/such/program"), node=1)
        assert r.ended(0).detail.startswith("on node2: starting /no/such/program: ")
    (tmp_path / "one").mkdir()
    with logical(tmp_path / "one", "1x4") as r:
        r.launch(0, packed("/no/such/program"), node=0)
        assert r.ended(0).detail.startswith("starting /no/such/program: ")


def start(*words: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*CANTLE, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def of_run(directory: Path) -> list[int]:
    """The processes that work for a run: its tasks by their mark, all else of it by its command line."""
    mark = (os.fsencode(directory),)
    tasks = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in tasks if processes.variables(pid, b"CANTLE_RUN") == mark] + running_with(str(directory))


@pytest.mark.real
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_on_eight_nodes_leaves_no_process_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    out = tmp_path / "out"
    sleep = a_long_sleep(3003)
    run = start("map", sleep + " # {}", "--range", "1-32", "--nodes", "8x4", "-o", str(out), cwd=tmp_path)
    assert eventually(lambda: len(of_run(out)) >= 32 + 10, 120), "tasks, eight runners, the forge and the conductor"
    assert running_with(sleep)
    os.killpg(run.pid, how)
    told = run.communicate(timeout=120)[0].decode()
    assert run.returncode == (-9 if how == signal.SIGKILL else 3), told
    assert eventually(lambda: not running_with(sleep) and not of_run(out)), of_run(out)


@pytest.mark.real
def test_map_and_resume_take_nodes_and_the_journal_knows_them(tmp_path: Path) -> None:
    done = run("map", "test -e go || exit 1 # {}", "--range", "1-6", "--nodes", "3x2@small", "-o", "out", cwd=tmp_path)
    assert done[0] == 2, done[1]
    (tmp_path / "go").touch()
    done = run("resume", "out", "--nodes", "1x1@small,1x2:1@fat", cwd=tmp_path)
    assert done[0] == 0, done[1]
    joined = [e for e in read(tmp_path / "out/.cantle/journal.jsonl") if isinstance(e, NodesJoined)]
    assert [[(n.name, n.cores, n.kind) for n in event.nodes] for event in joined] == [
        [("node1", 2, "small"), ("node2", 2, "small"), ("node3", 2, "small")],
        [("node1", 1, "small"), ("node2", 2, "fat")],
    ]


def test_none_of_this_machine_is_refused_where_nobody_else_serves(tmp_path: Path) -> None:
    code, told = run("map", "true", "1", "--cores", "0", "-o", "out", cwd=tmp_path)
    assert (code, "then nothing would serve" in told) == (1, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.real
def test_what_of_the_slices_does_not_come_out_even_on_the_nodes_is_said_with_the_arithmetic(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        "description: {name: s, description: d}\ncantle: {slices: [1 x 3, 1 x 2]}\n"
        "study:\n- {name: a, description: d, run: {cmd: 'true', nodes: 3}}\n"
    )
    code, told = run("run", "study.yaml", "--nodes", "4x2", "-o", "out", cwd=tmp_path)
    assert code == 0, told
    assert "slices: 1 x 3: 4 nodes are 1 element of 3, and 1 node to spare: 1 * 3 = 3" in told
    assert "slices: 1 x 2" not in told, "four nodes are two elements of two"


def test_nodes_and_cores_together_are_refused_before_anything_is_begun(tmp_path: Path) -> None:
    code, told = run("map", "true", "1", "--nodes", "2x2", "--cores", "4", "-o", "out", cwd=tmp_path)
    assert (code, "exclude each other" in told) == (1, True)
    assert not (tmp_path / "out").exists()


def run(*words: str, cwd: Path) -> tuple[int, str]:
    done = subprocess.run(
        [*CANTLE, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False
    )
    return done.returncode, done.stdout.decode()
