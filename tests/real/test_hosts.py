"""Runs on hosts that ssh reaches, for real: every node of the cluster is one."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until

from cantle.model.records import NodeLost
from cantle.store.journal import read
from cantle.store.layout import Layout

STUDY = """\
description: {{name: hosts, description: where tasks run}}
study:
  - name: a
    description: d
    run: {{cmd: "{cmd}"}}
global.parameters:
  X: {{values: {values}, label: X.%%}}
"""


MEET = """\
cd "$1" && touch "here-$CANTLE_TASK-$CANTLE_ATTEMPT"
while set -- here-*; [ $# -lt {n} ]; do sleep 0.1; done
"""


def study(place: Path, cmd: str, tasks: int) -> str:
    """A study of so many tasks. In its command `MEET` waits until all of them run at once, `GO` for `go`."""
    meeting = place / "meeting"
    meeting.mkdir(exist_ok=True)
    (place / "meet.sh").write_text(MEET.format(n=tasks))
    cmd = cmd.replace("MEET", f"sh {place}/meet.sh {meeting}")
    cmd = cmd.replace("GO", f"until [ -e {place}/go ]; do sleep 0.1; done")
    path = place / "study.yaml"
    path.write_text(STUDY.format(cmd=f"{cmd}; true $(X)", values=list(range(tasks))))
    return str(path)


def cantle(cluster: Cluster, place: Path, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return cluster.run(
        [sys.executable, "-m", "cantle", *words], cwd=place, timeout=2 * PATIENCE_S, check=False, **options
    )


def go(place: Path) -> None:
    (place / "go").touch()


def here(place: Path, attempt: int = 1) -> int:
    """How many tasks have come to the meeting in this attempt."""
    return len(list((place / "meeting").glob(f"here-*-{attempt}")))


def lost_nodes(place: Path) -> int:
    journal = Layout(place / "out").journal
    return sum(isinstance(record, NodeLost) for record in read(journal)) if journal.exists() else 0


@contextmanager
def begun(cluster: Cluster, place: Path, *words: str, told: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """What it says goes to the file `told`, if there is one, else to `communicate`."""
    output = told.open("w") if told else subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-m", "cantle", *words],
        cwd=place,
        env=cluster.env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, output):
            if stream is not None and not isinstance(stream, int):
                stream.close()


def output(place: Path) -> list[str]:
    return [line for path in place.glob("out/a/*/*.out") for line in path.read_text().splitlines()]


def our_runners(cluster: Cluster, nodes: Sequence[str]) -> list[str]:
    return [words for node in nodes for words in cluster.guests(node).values() if "cantle" in words or "sleep" in words]


def test_tasks_run_here_and_on_hosts_with_as_many_cores_as_were_said(tidy_cluster, shared_path):
    file = study(shared_path, "MEET; hostname", 8)
    done = cantle(tidy_cluster, shared_path, "run", file, "-o", "out", "-j", "2", "c1:2", "c[2-3]:2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(output(shared_path)) == {os.uname().nodename: 2, "c1": 2, "c2": 2, "c3": 2}
    assert wait_until(lambda: not our_runners(tidy_cluster, ["c1", "c2", "c3"]))


def test_a_host_that_cannot_be_had_is_named_with_the_words_of_ssh_and_the_others_do_the_work(cluster, shared_path):
    cluster.kill("c2", "net")
    told = shared_path / "told"
    file = study(shared_path, "hostname; GO", 4)
    hosts = ("c1:1", "c2:4", "nobody-knows:2")
    with begun(cluster, shared_path, "run", file, "-o", "out", "-j", *hosts, told=told) as process:
        said = told.read_text
        assert wait_until(lambda: "nobody-knows: ssh: Could not resolve hostname nobody-knows" in said()), said()
        assert wait_until(lambda: "c2: ssh: connect to host" in said()), said()
        go(shared_path)
        assert process.wait(PATIENCE_S) == 0, said()
    assert set(output(shared_path)) == {"c1"}
    assert len(output(shared_path)) == 4


def test_a_host_file_and_an_alias_with_set_up(cluster, shared_path):
    (shared_path / "hosts.yml").write_text(
        "hosts: {fast: {address: c1, cores: 3, kind: quick, setup: ['export GREETING=hello'], env: {NAME: world}}}"
    )
    (shared_path / "nodes").write_text("fast\nc2 slots=1\n")
    file = study(shared_path, "MEET; echo $GREETING $NAME on $(hostname)", 4)
    done = cantle(cluster, shared_path, "run", file, "-o", "out", "-j", "@nodes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(output(shared_path)) == {"hello world on c1": 3, "on c2": 1}


def test_a_set_up_command_that_fails_on_a_host_is_told(cluster, shared_path):
    (shared_path / "hosts.yml").write_text("hosts: {c1: {setup: ['cd /nowhere/at/all']}}")
    done = cantle(cluster, shared_path, "run", study(shared_path, "hostname", 1), "-o", "out", "-j", "c1:1", "-q")
    assert done.returncode == 3
    assert "no machine could be had: c1: the set-up command `cd /nowhere/at/all` failed" in done.stdout + done.stderr
    again = cantle(cluster, shared_path, "resume", "out")
    assert "c1: the set-up command `cd /nowhere/at/all` failed with status 1" in again.stdout, again.stdout


def test_runners_end_when_the_conductor_is_killed_and_the_rest_is_done_by_resume(tidy_cluster, shared_path):
    file = study(shared_path, "date >> $(WORKSPACE)/../../times; GO; MEET; hostname", 4)
    with begun(tidy_cluster, shared_path, "run", file, "-o", "out", "-j", "c1:2", "c2:2") as process:
        assert wait_until((shared_path / "out" / "times").exists)
        process.kill()
        process.communicate()
        assert wait_until(lambda: not our_runners(tidy_cluster, ["c1", "c2"]))
        go(shared_path)
        again = cantle(tidy_cluster, shared_path, "resume", "out")
        assert again.returncode == 0, again.stdout + again.stderr
        assert "as the run had it: -j c1:2 c2:2" in again.stderr
        assert Counter(output(shared_path)) == {"c1": 2, "c2": 2}


def test_killing_the_ssh_client_costs_that_hosts_attempts_alone_and_it_is_started_again(tidy_cluster, shared_path):
    file = study(shared_path, "MEET; GO; hostname", 4)
    with begun(tidy_cluster, shared_path, "run", file, "-o", "out", "-j", "c1:2", "c2:2") as process:
        assert wait_until(lambda: here(shared_path) == 4)
        clients = [pid for pid, words in children_of(process.pid) if "ssh" in words and " c1 exec" in words]
        assert len(clients) == 1
        os.kill(clients[0], signal.SIGKILL)
        assert wait_until(lambda: here(shared_path, 2) == 2), "the two that ran there begin again there"
        go(shared_path)
        told, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, told
        assert "a node is lost: c1" in told
        assert Counter(output(shared_path)) == {"c1": 2, "c2": 2}
        assert "its runner ended" not in told
        assert wait_until(lambda: not our_runners(tidy_cluster, ["c1", "c2"]))


def children_of(pid: int) -> list[tuple[int, str]]:
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [(int(line.split()[0]), line) for line in listed.stdout.splitlines()]


def test_a_host_whose_power_goes_costs_its_attempts_and_no_more(cluster, shared_path):
    file = study(shared_path, "MEET; GO; hostname", 4)
    with begun(cluster, shared_path, "run", file, "-o", "out", "-j", "c1:2", "c2:2", "--silence", "4") as process:
        assert wait_until(lambda: here(shared_path) == 4)
        cluster.kill("c1", "power")
        assert wait_until(lambda: lost_nodes(shared_path))
        go(shared_path)
        told, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, told
        assert "c1" in told
        assert len(output(shared_path)) == 4


def test_the_only_host_is_cut_off_and_comes_back_and_the_run_goes_on_there(tidy_cluster, shared_path):
    file = study(shared_path, "MEET; GO; hostname", 2)
    with begun(tidy_cluster, shared_path, "run", file, "-o", "out", "-j", "c1:2", "--silence", "4") as process:
        assert wait_until(lambda: here(shared_path) == 2)
        tidy_cluster.kill("c1", "net")
        assert wait_until(lambda: lost_nodes(shared_path))
        tidy_cluster.heal("c1")
        go(shared_path)
        told, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told
    assert "a node is lost: c1" in told
    assert output(shared_path) == ["c1", "c1"]
    assert wait_until(lambda: not our_runners(tidy_cluster, ["c1"]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_whole_run_elsewhere_ends_with_the_command_here(tidy_cluster, shared_path, number):
    file = study(shared_path, "sleep 600", 1)
    with begun(tidy_cluster, shared_path, "run", file, "-r", "c1", "-j", "1") as process:
        assert wait_until(lambda: any("sleep 600" in words for words in tidy_cluster.guests("c1").values()))
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == (3 if number == signal.SIGINT else -9)
        assert wait_until(lambda: not our_runners(tidy_cluster, ["c1"]))
        tidy_cluster.ssh("c1", "rm -rf cantle")


def test_ctrl_c_in_a_terminal_reaches_a_run_elsewhere(tidy_cluster, shared_path):
    file = study(shared_path, "sleep 600", 1)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cantle", "run", file, "-r", "c1", "-j", "1"],
        cwd=shared_path,
        env=tidy_cluster.env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    told = bytearray()
    reading = threading.Thread(target=_read_all, args=(ours, told), daemon=True)
    reading.start()
    try:
        assert wait_until(lambda: any("sleep 600" in words for words in tidy_cluster.guests("c1").values()))
        os.write(ours, b"\x03")
        assert process.wait(PATIENCE_S) == 3
    finally:
        process.kill()
        process.wait()
        reading.join(10)
        os.close(ours)
    assert b"signal SIGINT" in told and b"lies on c1 in" in told
    assert wait_until(lambda: not our_runners(tidy_cluster, ["c1"]))
    tidy_cluster.ssh("c1", "rm -rf cantle")


def _read_all(fd: int, told: bytearray) -> None:
    try:
        while data := os.read(fd, 4096):
            told += data
    except OSError:  # the terminal's other end is closed
        pass


def test_a_whole_run_elsewhere_uses_the_hosts_that_are_known_there(cluster, shared_path):
    config = shared_path / "config" / "cantle"
    config.mkdir(parents=True)
    (config / "hosts.yml").write_text("hosts: {mate: {address: c2, cores: 2}}")
    (shared_path / "hosts.yml").write_text(
        f"hosts: {{far: {{address: c1, directory: {shared_path}/there, env: {{XDG_CONFIG_HOME: {shared_path}/config}}}}}}"
    )
    file = study(shared_path, "MEET; hostname", 3)
    done = cantle(cluster, shared_path, "run", file, "-r", "far", "-j", "1", "mate", "-o", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    (there,) = (shared_path / "there").iterdir()
    assert Counter(output(there)) == {"c1": 1, "c2": 2}
    assert f"lies on far in {there}" in done.stderr


def test_a_host_that_stands_still_is_given_up_within_a_bound(cluster, shared_path):
    cluster.kill("c1", "hang")
    start = time.monotonic()
    done = cantle(cluster, shared_path, "run", study(shared_path, "hostname", 1), "-o", "out", "-j", "c1:1")
    assert done.returncode == 3
    assert time.monotonic() - start < PATIENCE_S
    assert "c1: " in done.stdout


STAGED = """\
description: {name: staged, description: a run whose directory the hosts do not see}
study:
  - name: make
    description: d
    run:
      cmd: "{ cat in.txt; hostname; } > made.$(X); echo printed"
      stage: {in: [in.txt], out: ["made.*"]}
  - name: use
    description: d
    run:
      depends: [make]
      cmd: "tr a-z A-Z < $(make.workspace)/made.$(X) > used"
      stage: {in: ["$(make.workspace)/made.*"], out: [used]}
global.parameters:
  X: {values: [1, 2, 3, 4], label: X.%%}
"""


def test_hosts_without_the_shared_files_get_what_is_staged_and_give_it_back(tidy_cluster, tmp_path):
    # What lies in /tmp every node has to itself.
    (tmp_path / "study.yaml").write_text(STAGED)
    (tmp_path / "in.txt").write_text("input\n")
    done = cantle(tidy_cluster, tmp_path, "run", "study.yaml", "-o", "out", "-j", "c1:2", "c2:2")
    assert done.returncode == 0, done.stdout + done.stderr
    # Whoever comes first may do all of it before the other one is there.
    assert " does not see the run's directory: it takes steps alone that say what to `stage`" in done.stdout
    used = [path.read_text() for path in sorted(tmp_path.glob("out/use/*/used"))]
    assert len(used) == 4
    assert set(used) <= {"INPUT\nC1\n", "INPUT\nC2\n"}
    assert [path.read_text() for path in tmp_path.glob("out/make/*/*.out")] == ["printed\n"] * 4
    assert wait_until(lambda: not our_runners(tidy_cluster, ["c1", "c2"]))
    for node in ("c1", "c2"):  # nothing stays there
        assert tidy_cluster.run_on(node, ["sh", "-c", f"ls -d {tmp_path} 2>/dev/null || true"]).stdout == ""


def test_what_is_not_staged_cannot_run_on_a_host_without_the_shared_files(cluster, tmp_path):
    done = cantle(cluster, tmp_path, "run", study(tmp_path, "true", 1), "-o", "out", "-j", "c1:2")
    assert done.returncode == 2
    assert "does not see the run's directory, and nothing is said of what to `stage`" in done.stdout


def test_a_pilot_holds_hosts_for_several_studies(tidy_cluster, shared_path):
    file = study(shared_path, "MEET; hostname", 2)
    up = cantle(tidy_cluster, shared_path, "up", "onhosts", "--dir", str(shared_path / "pilot"), "-j", "c[1-2]:1")
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        done = cantle(tidy_cluster, shared_path, "run", file, "--pilot", "onhosts", "-o", "out")
        assert done.returncode == 0, done.stdout + done.stderr
        assert Counter(output(shared_path)) == {"c1": 1, "c2": 1}
    finally:
        cantle(tidy_cluster, shared_path, "down", "onhosts")
    assert wait_until(lambda: not our_runners(tidy_cluster, ["c1", "c2"]))
