"""Does a run over several machines survive what happens to them? On the cluster; each with what is lost, and what is left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from cluster import Cluster
from ordeal import Ordeal, ordeal

from cantle.model.records import DrainNode, NodeLost

NODES = ("c1:2", "c2:2", "c3:2")
AT_ONCE = 6
TASKS = 9
NEVER_SILENT = ("--silence", "900")
"""What is missed within the time of a test is then missed by more than its silence."""


def process_on(run: Ordeal, node: str, words: str, last: bool = False) -> int:
    """The first (or last) process there whose command line holds these words, as this machine counts."""
    found = sorted(pid for pid, line in run.cluster.guests(node).items() if words in line)
    assert found, f"no {words} on {node}"
    return found[-1 if last else 0]


@pytest.mark.parametrize("which", ["member", "spawner"])
def test_a_killed_runner_costs_the_attempts_on_its_node_alone(
    tidy_cluster: Cluster, shared_path: Path, which: str
) -> None:
    """Either of its two processes: the one that talks to the conductor, or its child, which starts the tasks."""
    with ordeal(tidy_cluster, shared_path, NODES, TASKS, *NEVER_SILENT) as run:
        run.until_begun(AT_ONCE)
        there = run.begun("c2")
        assert len(there) == 2
        os.kill(process_on(run, "c2", "cantle runner", last=which == "spawner"), signal.SIGKILL)
        run.until(lambda: run.lost_nodes() == ["c2"])
        run.go()
        run.ends()
        run.nothing_was_lost_but(there)
        run.nothing_is_left()
        assert not run.finished() & there


@pytest.mark.parametrize("how", ["power", "crash"])
def test_a_dead_node_costs_the_attempts_on_it_alone(tidy_cluster: Cluster, shared_path: Path, how: str) -> None:
    with ordeal(tidy_cluster, shared_path, NODES, TASKS, "--silence", "4") as run:
        run.until_begun(AT_ONCE)
        there = run.begun("c3")
        assert len(there) == 2
        tidy_cluster.kill("c3", how)
        run.until(lambda: run.lost_nodes() == ["c3"])
        run.go()
        run.ends()
        run.nothing_was_lost_but(there)
        run.nothing_is_left()


def test_a_network_that_is_cut_for_five_seconds_costs_nothing(tidy_cluster: Cluster, shared_path: Path) -> None:
    with ordeal(tidy_cluster, shared_path, NODES, TASKS) as run:
        run.until_begun(AT_ONCE)
        tidy_cluster.kill("c2", "net")
        cut = time.monotonic()
        run.go()  # what ends on the node meanwhile is told afterwards
        run.until(lambda: len(run.finished("c2")) >= 2)
        time.sleep(max(0.0, cut + 5 - time.monotonic()))
        tidy_cluster.heal("c2")
        run.ends()
        assert run.lost_nodes() == []
        run.nothing_was_lost_but(set())
        run.nothing_is_left()


@pytest.mark.parametrize(
    ("silence", "cut_s"),
    [pytest.param(20, 30, id="30 s"), pytest.param(4, 24, id="120 s, all of it five times as fast")],
)
def test_a_network_that_is_cut_for_longer_costs_the_attempts_beyond_it(
    tidy_cluster: Cluster, shared_path: Path, silence: int, cut_s: int
) -> None:
    with ordeal(tidy_cluster, shared_path, NODES, TASKS, "--silence", str(silence)) as run:
        run.until_begun(AT_ONCE)
        there = run.begun("c2")
        assert len(there) == 2
        tidy_cluster.kill("c2", "net")
        cut = time.monotonic()
        run.until(lambda: run.lost_nodes() == ["c2"])
        (lost,) = [record.time for record in run.records() if isinstance(record, NodeLost)]
        assert not any(str(shared_path) in line for line in run.left_on("c2"))
        assert run.last_alive(there) < lost, (
            "they have ended here before they begin elsewhere, though nobody can say so"
        )
        run.go()
        run.until(lambda: {task for task, _ in run.ended("done")} >= {task for task, _ in there})
        time.sleep(max(0.0, cut + cut_s - time.monotonic()))
        tidy_cluster.heal("c2")
        run.ends()
        run.nothing_was_lost_but(there)
        run.nothing_is_left()


def test_a_frozen_node_is_given_up_and_what_it_says_later_is_dropped(tidy_cluster: Cluster, shared_path: Path) -> None:
    with ordeal(tidy_cluster, shared_path, NODES, TASKS, "--silence", "4", pause=1) as run:
        run.until_begun(AT_ONCE)
        there = run.begun("c3")
        assert len(there) == 2
        tidy_cluster.kill("c3", "hang")
        run.until(lambda: run.lost_nodes() == ["c3"])
        run.go()
        tidy_cluster.heal("c3")  # its two tasks may end now, and its runner would tell so
        run.ends()
        run.nothing_was_lost_but(there)
        run.nothing_is_left()


def test_a_bad_line_costs_nothing(tidy_cluster: Cluster, shared_path: Path) -> None:
    """A tenth of a second of delay in each direction, and a frame in twenty lost: from the first connection on."""
    tidy_cluster.shape("c2", delay_ms=100, loss=5)
    third = f"[ $(grep -c '^begin .* c2$' {shared_path}/ledger) -gt 2 ]"
    wait = f'[ "$(hostname)" = c2 ] || until {third}; do sleep 0.1; done'  # so that its line is needed, however bad
    with ordeal(tidy_cluster, shared_path, NODES, 40, pause=0.5, then=wait) as run:
        run.until(lambda: len(run.begun("c2")) == 2)
        run.go()
        run.ends()
        assert run.lost_nodes() == []
        run.nothing_was_lost_but(set())
        assert len(run.finished("c2")) > 2
        run.nothing_is_left()


def test_a_killed_conductor_takes_all_tasks_with_it_and_resume_does_the_rest(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    with ordeal(tidy_cluster, shared_path, NODES, TASKS, *NEVER_SILENT) as run:
        run.until_begun(AT_ONCE)
        os.killpg(run.conductor.pid, signal.SIGKILL)
        run.conductor.wait()
        run.nothing_is_left()
        assert not run.finished()
        interrupted = run.begun()
        run.go()
        run.resume()
        run.ends()
        assert sorted(task for task, _ in run.ended("done")) == list(range(TASKS))
        assert not run.finished() & interrupted
        assert len(run.finished()) == TASKS
        run.nothing_is_left()


def test_a_conductor_whose_machine_dies_is_missed_within_the_bound(tidy_cluster: Cluster, shared_path: Path) -> None:
    """No farewell reaches the nodes: all their cables are out when it is killed, with its ssh."""
    with ordeal(tidy_cluster, shared_path, NODES, TASKS, "--silence", "4") as run:
        run.until_begun(AT_ONCE)
        for node in ("c1", "c2", "c3"):
            tidy_cluster.kill(node, "net")
        cut = time.time()
        for pid in run.left_here():
            os.kill(pid, signal.SIGKILL)
        run.conductor.wait()
        run.nothing_is_left()
        assert run.last_alive(run.begun()) < cut + 20, "sooner than by a connection that times out"
        assert not run.finished()


def test_hosts_that_cannot_be_reached_are_named_and_the_others_do_the_work(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    tidy_cluster.kill("c5", "power")
    with ordeal(tidy_cluster, shared_path, ("c1:2", "c5:2", "c77:2", "c2:2"), TASKS) as run:
        run.until_begun(4)  # nobody waits for the others
        told = run.told.read_text
        run.until(lambda: "c77: ssh: Could not resolve" in told() and "c5: ssh: connect to host" in told())
        run.go()
        run.ends()
        run.nothing_was_lost_but(set())
        run.nothing_is_left()


def test_a_full_disk_under_its_tmpdir_keeps_no_runner_away(tidy_cluster: Cluster, shared_path: Path) -> None:
    """It finds another place for what it has to write; its tasks see the directory that its host has."""
    tidy_cluster.fill("c2")
    setup = f"export TMPDIR={tidy_cluster.disk}"
    (shared_path / "hosts.yml").write_text(f"hosts: {{c2: {{setup: ['{setup}']}}}}\n")
    tell = f"echo $TMPDIR >>{shared_path}/tmpdir-$(hostname)"
    with ordeal(tidy_cluster, shared_path, NODES, TASKS, "--hosts", "hosts.yml", then=tell) as run:
        run.until_begun(AT_ONCE)
        run.go()
        run.ends()
        run.nothing_was_lost_but(set())
        assert len(run.finished("c2")) >= 2
        assert set((shared_path / "tmpdir-c2").read_text().split()) == {str(tidy_cluster.disk)}
        run.nothing_is_left()


def test_a_disk_that_fills_costs_what_fails_there_and_the_node_is_left(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    """The disk on which tasks write: theirs fail, as they do nowhere else, and are done elsewhere."""
    full = shared_path / "full"
    wait = f"[ $1 -lt {2 * AT_ONCE} ] || until [ -e {full} ]; do sleep 0.1; done"  # it fills amid the work
    write = f"head -c 9999 /dev/zero >{tidy_cluster.disk}/$$ || exit 1"
    with ordeal(tidy_cluster, shared_path, NODES, 60, "--attempts", "2", pause=0.3, then=f"{wait}; {write}") as run:
        run.go()
        run.until(lambda: len(run.ended("done")) >= AT_ONCE)
        tidy_cluster.fill("c2")
        full.touch()
        run.ends()
        assert sorted(task for task, _ in run.ended("done")) == list(range(60))
        failed = run.ended("failed")
        assert failed
        assert failed <= run.launched_on("c2")
        assert any(isinstance(record, DrainNode) and run.nodes()[record.node] == "c2" for record in run.records())
        run.nothing_is_left()
