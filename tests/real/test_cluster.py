"""Is the cluster that other tests stand on what they take it for?"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from cluster import Cluster, settings
from cluster.cluster import claim, free_numbers
from cluster.identity import PATIENCE_S, wait_until

FOUR = ["c1", "c2", "c3", "c4"]
COMMAND = [sys.executable, str(Path(__file__).parent / "cluster")]


def hosts_of(lines: str) -> Counter[str]:
    """On which host each rank of the ring program was; all have to be of one world."""
    found: Counter[str] = Counter()
    ranks = [line.replace(",", "").split() for line in lines.splitlines() if line.startswith("rank ")]
    for _, _, _, size, _, host, _, total in ranks:
        assert (int(size), int(total)) == (len(ranks), sum(range(len(ranks)))), lines
        found[host] += 1
    return found


def round_trip(address: str) -> float:
    """Milliseconds that a connection takes: the median of seven."""
    took = []
    for _ in range(7):
        begin = time.monotonic()
        socket.create_connection((address, 22), 10).close()
        took.append((time.monotonic() - begin) * 1000)
    return statistics.median(took)


def test_ssh_reaches_every_node_by_name_and_nodes_reach_each_other(cluster: Cluster) -> None:
    for node in cluster.nodes:
        assert cluster.ssh(node, "hostname").stdout.strip() == node
    assert cluster.ssh("c1", "ssh c2 hostname").stdout.strip() == "c2"
    assert cluster.run_on("c1", ["getent", "hosts", "c3"]).stdout.split() == [cluster.address("c3"), "c3"]


def test_a_node_has_its_own_tmp_and_disk_and_the_shared_directory(cluster: Cluster, shared_path: Path) -> None:
    mark = f"cantle-{os.getpid()}"
    cluster.run_on("c1", ["touch", f"/tmp/{mark}", f"{cluster.disk}/{mark}", f"{shared_path}/{mark}"])
    there = ["sh", "-c", f"ls -d /tmp/{mark} {cluster.disk}/{mark} {shared_path}/{mark} 2>/dev/null || true"]
    assert cluster.run_on("c2", there).stdout.split() == [f"{shared_path}/{mark}"]
    assert not Path(f"/tmp/{mark}").exists()
    assert (shared_path / mark).exists()


def test_a_node_reaches_the_head_and_nothing_outside(cluster: Cluster) -> None:
    with socket.create_server((cluster.head, 0)) as server:
        server.settimeout(PATIENCE_S)
        port = server.getsockname()[1]
        cluster.run_on("c1", ["bash", "-c", f"echo hello >/dev/tcp/head/{port}"])
        other, address = server.accept()
        with other:
            assert (other.recv(99), address[0]) == (b"hello\n", cluster.address("c1"))
    outside = cluster.run_on("c1", ["bash", "-c", ": >/dev/tcp/192.0.2.1/53"], check=False)
    assert "Network is unreachable" in outside.stderr


def test_the_python_under_test_runs_on_a_node(cluster: Cluster) -> None:
    asked = "import cantle, sys; print(cantle.__version__, sys.version_info[:2] >= (3, 11))"
    import cantle

    assert cluster.run_on("c1", [sys.executable, "-c", asked]).stdout.split() == [cantle.__version__, "True"]
    assert cluster.ssh("c1", sys.executable, "-c", f"'{asked}'").stdout.split() == [cantle.__version__, "True"]


def test_srun_reaches_four_nodes_and_sbatch_runs_a_script(cluster: Cluster, shared_path: Path) -> None:
    assert sorted(cluster.slurm(["srun", "-w", "c[1-4]", "-N4", "hostname"]).stdout.split()) == FOUR
    script = "#!/bin/sh\nsrun -N2 -n2 --exact --mem=0 hostname\n"
    options = ["--parsable", "-W", "-N2", "--ntasks-per-node=4", "-t5", "-o", str(shared_path / "out")]
    cluster.slurm(["sbatch", *options], text=script)
    assert len(set((shared_path / "out").read_text().split())) == 2


def test_gpus_of_steps_side_by_side_differ(cluster: Cluster, shared_path: Path) -> None:
    meet = "echo $CUDA_VISIBLE_DEVICES >>gpus; until [ $(wc -l <gpus) -ge 2 ]; do sleep 0.1; done"
    step = f"srun -N1 -n1 --exact --mem=0 --gres=gpu:1 sh -c '{meet}'"
    script = f"#!/bin/sh\n{step} &\n{step} &\nwait\n"
    options = ["-W", "-w", "c2", "-N1", "-n4", "--gres=gpu:2", "-t5", "-D", str(shared_path)]
    cluster.slurm(["sbatch", *options], text=script)
    assert sorted((shared_path / "gpus").read_text().split()) == ["0", "1"]


def test_slurm_ends_what_left_its_session_with_the_step(cluster: Cluster) -> None:
    if not cluster.settings.freezer:
        assert not Path("/sys/fs/cgroup/freezer").exists()  # only with it can Slurm find them
        return
    cluster.slurm(["srun", "-w", "c1", "-N1", "bash", "-c", "setsid sleep 4321 >/dev/null 2>&1 & sleep 0.2"])
    assert wait_until(lambda: not cluster.guests("c1"))


def test_a_c_program_runs_on_four_nodes_by_srun(cluster: Cluster, openmpi_program: Path) -> None:
    # One rank a node: with more, a few of a hundred starts of Debian's OpenMPI die under srun, whatever Cantle does.
    words = ["srun", "--mpi=pmix", "-w", "c[1-4]", "-N4", "-n4", "-t5", str(openmpi_program)]
    done = cluster.run(words, cwd=cluster.shared)
    assert hosts_of(done.stdout) == dict.fromkeys(FOUR, 1), done.stderr


def test_a_c_program_runs_on_four_nodes_by_mpirun_over_ssh(
    cluster: Cluster, openmpi_program: Path, shared_path: Path
) -> None:
    (shared_path / "hosts").write_text("".join(f"{node} slots=2\n" for node in FOUR))
    network = ["--mca", "oob_tcp_if_include", f"{cluster.settings.network}.0/24"]
    words = ["mpirun.openmpi", "--allow-run-as-root", *network, "--hostfile", str(shared_path / "hosts"), "-n", "8"]
    done = cluster.run([*words, str(openmpi_program)], cwd=shared_path)
    assert hosts_of(done.stdout) == dict.fromkeys(FOUR, 2), done.stderr


def test_an_mpi4py_program_runs_on_four_nodes_by_srun(cluster: Cluster, mpi4py_program: Path) -> None:
    words = ["srun", "--mpi=pmix", "-w", "c[1-4]", "-N4", "-n4", "-t5", sys.executable, str(mpi4py_program)]
    done = cluster.slurm(words)
    assert hosts_of(done.stdout) == dict.fromkeys(FOUR, 1), done.stderr


@pytest.mark.parametrize("how", ["power", "crash", "net", "hang"])
def test_a_node_that_something_happened_to_does_not_answer_until_it_is_healed(cluster: Cluster, how: str) -> None:
    with subprocess.Popen([*cluster.entering("c3"), "sleep", "600"]) as inside:
        assert wait_until(lambda: "sleep 600" in cluster.guests("c3").values())
        cluster.kill("c3", how)
        asked = ["ssh", "-o", "ConnectTimeout=1", "c3", "hostname"]
        with pytest.raises((AssertionError, subprocess.TimeoutExpired)):
            assert cluster.run(asked, check=False, timeout=3).returncode == 0
        assert cluster.alive("c3") == (how in ("net", "hang"))
        cluster.heal("c3")
        assert cluster.ssh("c3", "hostname").stdout.strip() == "c3"
        lived = "sleep 600" in cluster.guests("c3").values()
        assert lived == (how in ("net", "hang"))
        if lived:
            assert cluster.mend() == ["c3: sleep 600"]
        assert inside.wait(PATIENCE_S) != 0
    assert cluster.slurm(["srun", "-w", "c3", "hostname"]).stdout.strip() == "c3"


def test_a_node_that_was_dead_has_the_hardware_address_that_its_peers_remember(cluster: Cluster) -> None:
    def remembered() -> str:
        told = cluster.run_on("c1", ["ip", "neighbour", "show", cluster.address("c2")]).stdout
        return told.partition("lladdr ")[2].partition(" ")[0]

    cluster.ssh("c1", "ssh c2 true")
    before = remembered()
    assert before
    cluster.kill("c2", "power")
    cluster.heal("c2")
    said = cluster.run_on("c2", ["ip", "-brief", "link", "show", "eth0"]).stdout
    assert before in said.split()
    cluster.ssh("c1", "ssh c2 true")
    assert remembered() == before


def test_a_connection_outlives_a_cut_that_it_has_not_noticed(cluster: Cluster) -> None:
    echo = "import socket; s = socket.create_connection(('head', int(__import__('sys').argv[1]))); s.sendall(s.recv(9))"
    with socket.create_server((cluster.head, 0)) as server:
        server.settimeout(PATIENCE_S)
        words = [sys.executable, "-c", echo, str(server.getsockname()[1])]
        with cluster.start_on("c2", words) as client, server.accept()[0] as other:
            cluster.kill("c2", "net")
            other.sendall(b"there?")
            other.settimeout(1)
            with pytest.raises(TimeoutError):
                other.recv(9)
            cluster.heal("c2")
            other.settimeout(PATIENCE_S)
            assert other.recv(9) == b"there?"
            assert client.wait(PATIENCE_S) == 0


def test_slurm_is_told_of_a_dead_node_and_takes_it_back(cluster: Cluster) -> None:
    cluster.kill("c4", "power", tell=True)
    assert wait_until(lambda: cluster.slurm_states()["c4"].startswith("down"), every=0.2)
    cluster.heal("c4")
    assert cluster.slurm_states()["c4"] == "idle"


def test_slurmd_alone_can_be_killed_and_started_again(cluster: Cluster) -> None:
    cluster.kill("c1", "slurmd", tell=True)
    assert cluster.ssh("c1", "hostname").stdout.strip() == "c1"
    assert cluster.run_on("c1", ["pidof", "slurmd"], check=False).stdout == ""
    cluster.heal("c1")
    assert cluster.slurm(["srun", "-w", "c1", "hostname"]).stdout.strip() == "c1"


def test_a_further_node_joins_slurm_and_ssh_and_goes(cluster: Cluster) -> None:
    new = cluster.add()
    assert new == f"c{len(cluster.nodes) + 1}"
    assert cluster.ssh(new, "hostname").stdout.strip() == new
    assert cluster.slurm(["srun", "-w", new, "--gres=gpu:1", "hostname"]).stdout.strip() == new
    cluster.remove(new)
    assert new not in cluster.slurm_states()


def test_delay_comes_and_goes_and_keeps_connections(cluster: Cluster) -> None:
    talk = ["ssh", "c2", "read a; echo $a; read b; echo $b"]
    with subprocess.Popen(talk, env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdin and held.stdout
        held.stdin.write(b"before\n")
        held.stdin.flush()
        assert held.stdout.readline() == b"before\n"
        without = round_trip(cluster.address("c2"))
        cluster.shape("c2", delay_ms=150)
        slow = round_trip(cluster.address("c2"))
        held.stdin.write(b"within\n")
        held.stdin.flush()
        assert held.stdout.readline() == b"within\n"
    cluster.shape("c2")
    assert slow >= 300
    assert without < slow / 2
    assert round_trip(cluster.address("c2")) < slow / 2


def test_a_line_that_loses_frames_still_carries_a_stream_whole(cluster: Cluster, shared_path: Path) -> None:
    sent = os.urandom(300_000)
    (shared_path / "sent").write_bytes(sent)
    cluster.shape("c2", delay_ms=5, loss=5)
    got = subprocess.run(
        ["ssh", "c2", f"cat {shared_path}/sent"], capture_output=True, env=cluster.env, check=True, timeout=PATIENCE_S
    )
    assert got.stdout == sent
    cluster.shape("c2", loss=100)
    assert cluster.run(["ssh", "-o", "ConnectTimeout=1", "c2", "true"], check=False).returncode == 255


def test_a_disk_can_be_full_on_one_node_alone(cluster: Cluster) -> None:
    cluster.fill("c1")
    full = cluster.run_on("c1", ["bash", "-c", f"echo x >{cluster.disk}/more"], check=False)
    assert "No space left on device" in full.stderr
    cluster.run_on("c2", ["sh", "-c", f"echo x >{cluster.disk}/more"])
    cluster.empty("c1")
    cluster.run_on("c1", ["sh", "-c", f"echo x >{cluster.disk}/more"])


def test_the_user_of_a_cluster_dies_and_it_goes_down_by_itself(cluster: Cluster, tmp_path: Path) -> None:
    """Twice, so that the second finds nothing of the first; and beside another cluster, which stays."""
    script = (
        "import sys, time; from cluster.guard import Guarded\n"
        "guarded = Guarded(); print(guarded.cluster.settings.number, flush=True); time.sleep(600)\n"
    )
    environment = {**os.environ, "CANTLE_CLUSTER_NODES": "2", "PYTHONPATH": str(Path(__file__).parent)}
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as user:
            assert user.stdout
            number = int(user.stdout.readline())
            other = Cluster(settings(number))
            assert other.settings.number != cluster.settings.number
            assert other.leftovers() != []
            assert claim(number) is None
            user.send_signal(signal.SIGKILL)
        assert wait_until(lambda number=number: (name := claim(number)) and not name.close(), every=0.1)
        assert other.leftovers() == []
    assert cluster.ssh("c1", "hostname").stdout.strip() == "c1"


def test_up_repairs_what_was_killed_together_with_its_guard(cluster: Cluster) -> None:
    taken = cluster.settings.number  # and one that somebody keeps, who holds no claim, is not ours to take down
    number = next(n for n in free_numbers() if n != taken and (name := claim(n)) and not name.close())
    environment = {**os.environ, "CANTLE_CLUSTER_NODES": "2", "CANTLE_CLUSTER": str(number)}

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    other = Cluster(settings(number))
    try:
        assert command("up").returncode == 0
        assert command("on", "c2", "hostname").stdout == "c2\n"
        for line in other.leftovers():
            if line.startswith("process "):
                try:
                    os.kill(int(line.split()[1].rstrip(":")), signal.SIGKILL)
                except ProcessLookupError:  # it went with one before
                    pass
        again = command("up")
        assert (again.returncode, again.stderr) == (0, "")
        assert command("on", "c1", "ssh", "c2", "hostname").stdout == "c2\n"
    finally:
        done = command("down")
    assert (done.returncode, done.stderr) == (0, "")
    assert other.leftovers() == []
