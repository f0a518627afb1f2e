"""Runners in processes of their own, over real connections with real certificates: joining, serving, and what becomes of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cantle.allocations.fleet import letter as letters
from cantle.allocations.fleet.certificates import make_identities
from cantle.allocations.fleet.trust import context_of
from cantle.model.records import AnyRecord, Launch, NodeLost, NodesJoined, TaskEnded
from cantle.report.loading import load
from cantle.runner.processes import children
from cantle.store.journal import read
from cantle.store.layout import Layout

pytestmark = pytest.mark.real

CANTLE = [sys.executable, "-m", "cantle"]
STUDY = """
description: {name: fleet, description: tasks that end when somebody makes a file}
study:
- name: work
  description: waits
  run: {cmd: "echo $$ > TOP/pid-$(N); until [ -e TOP/go-$(N) ]; do sleep 0.02; done", cores per task: 2}
global.parameters:
  N: {values: [1, 2], label: N.%%}
"""


class Fleet:
    """A run that takes runners, and the runners that were started for it."""

    def __init__(self, top: Path, *options: str, study: str = STUDY) -> None:
        self.top = top
        self.directory = top / "out"
        self.layout = Layout(self.directory)
        (top / "study.yaml").write_text(study.replace("TOP", str(top)))
        self.told = top / "told"
        self.runners: list[subprocess.Popen[str]] = []
        self.options = options
        self.start("run", "study.yaml", "-o", "out")

    def start(self, *words: str) -> None:
        with self.told.open("w") as told:
            self.process = subprocess.Popen(
                [*CANTLE, *words, "--listen", "--cores", "1", *self.options], cwd=self.top, stdout=told, stderr=told
            )
        self.wait_for(lambda: (self.layout.fleet / letters.FILE).exists())

    def runner(self, *options: str, where: str = "", env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        self.runners.append(
            subprocess.Popen(
                [*CANTLE, "runner", "--connect", where or str(self.directory), "--kind", "away", *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=env,
            )
        )
        return self.runners[-1]

    def records(self) -> list[AnyRecord]:
        return list(read(self.layout.journal))

    def wait_for(self, happened: Callable[[], bool], timeout_s: float = 120.0) -> None:
        stop = time.monotonic() + timeout_s
        while not happened():
            assert time.monotonic() < stop, f"it has not happened: {self.told.read_text()} {self.records()[-8:]}"
            assert self.process.poll() is None, self.told.read_text()
            time.sleep(0.02)

    def wait_running(self, n: int) -> None:
        self.wait_for(lambda: all((self.top / f"pid-{i}").exists() for i in range(1, n + 1)))

    def wait_told(self, words: str) -> None:
        self.wait_for(lambda: words in self.told.read_text())

    def pids(self) -> list[int]:
        return [int(path.read_text()) for path in sorted(self.top.glob("pid-*"))]

    def go(self) -> None:
        for n in (1, 2):
            (self.top / f"go-{n}").touch()

    def ends(self, code: int = 0) -> str:
        assert self.process.wait(60) == code, self.told.read_text()
        return self.told.read_text()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    fleets: list[Fleet] = []

    def make(*options: str, study: str = STUDY) -> Fleet:
        fleets.append(Fleet(tmp_path, *options, study=study))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.go()
        for process in (*fleet.runners, fleet.process):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids: list[int], timeout_s: float = 60.0) -> None:
    stop = time.monotonic() + timeout_s
    while any(map(alive, pids)):
        assert time.monotonic() < stop, f"still there: {[pid for pid in pids if alive(pid)]}"
        time.sleep(0.02)


def test_runners_join_by_hand_at_any_time_serve_and_leave_with_the_run(begin: Callable[..., Fleet]) -> None:
    fleet = begin()
    first = fleet.runner("--name", "first", "--cores", "2")
    fleet.wait_running(1)
    second = fleet.runner("--name", "second", "--cores", "2", "--gpus", "1", "--machine", "elsewhere")
    fleet.wait_running(2)
    fleet.go()
    told = fleet.ends()
    assert [runner.wait(60) for runner in (first, second)] == [0, 0]
    state = load(fleet.directory).state
    assert [(n.name, n.cores, n.gpus, n.machine) for n in list(state.room.nodes.values())[1:]] == [
        ("first", 2, 0, os.uname().nodename),
        ("second", 2, 1, "elsewhere"),
    ]
    assert {r.on[0].node for r in fleet.records() if isinstance(r, Launch)} == {1, 2}
    assert "a runner has joined, first: 2 cores" in told
    assert not (fleet.layout.fleet / letters.FILE).exists(), "the key is of no use any more, and gone"


def test_keys_are_never_where_others_could_read_them(begin: Callable[..., Fleet]) -> None:
    fleet = begin()
    runner = fleet.runner("--cores", "2")
    fleet.wait_running(1)
    letter = letters.read(fleet.layout.fleet / letters.FILE)
    secret = letter.identity.key.splitlines()[1]
    for process in (fleet.process, runner):
        for place in ("cmdline", "environ"):
            assert secret.encode() not in Path(f"/proc/{process.pid}/{place}").read_bytes()
    assert (fleet.layout.fleet / letters.FILE).stat().st_mode & 0o777 == 0o600
    assert fleet.layout.fleet.stat().st_mode & 0o777 == 0o700
    for path in fleet.directory.rglob("*"):
        if path.is_file() and path.name != letters.FILE:
            assert secret.encode() not in path.read_bytes(), path


def knock_without_tls(host: str, port: int) -> None:
    """Somebody who speaks no TLS gets no answer."""
    with socket.create_connection((host, port), timeout=200) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.settimeout(60)
        try:
            assert b"HTTP" not in plain.recv(4096)
        except OSError:
            pass


def test_a_stranger_is_refused_and_told_of(begin: Callable[..., Fleet]) -> None:
    fleet = begin()
    letter = letters.read(fleet.layout.fleet / letters.FILE)
    host, _, port = letter.addresses[-1].removeprefix("tls://").rpartition(":")
    knock_without_tls(host, int(port))
    fleet.wait_told("no certificate of this run")
    own = make_identities(letter.run)[1]  # one who makes certificates for himself, in the right name
    context = context_of(own)
    context.verify_mode = ssl.CERT_NONE
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        socket.create_connection((host, int(port)), timeout=200) as raw,
        context.wrap_socket(raw) as wrapped,
    ):
        wrapped.sendall(b"hello")
        assert wrapped.recv(1) != b""
        raise ConnectionError
    fleet.wait_for(lambda: fleet.told.read_text().count("no certificate of this run") >= 2)
    assert "SSL Error" not in fleet.told.read_text()  # what libraries say of it themselves
    assert not [r for r in fleet.records() if isinstance(r, NodesJoined) and r.nodes[0].kind == "away"]


def test_yesterdays_runner_is_refused(begin: Callable[..., Fleet], tmp_path: Path) -> None:
    fleet = begin()
    letter = letters.read(fleet.layout.fleet / letters.FILE)
    old = tmp_path / "old-letter"
    letters.write(old, letters.Letter(**{**_fields(letter), "identity": make_identities(letter.run)[1]}))
    runner = fleet.runner("--cores", "2", where=str(old))
    told = runner.communicate(timeout=200)[0]
    assert runner.returncode == 3 and "the conductor of another run" in told, told
    assert told.count("tls://") == len(letter.addresses), "each address that was tried is named"


def _fields(letter: letters.Letter) -> dict[str, object]:
    return {name: getattr(letter, name) for name in letter.__struct_fields__}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_cannot_read_the_letter(begin: Callable[..., Fleet]) -> None:
    fleet = begin()
    letter = fleet.layout.fleet / letters.FILE
    other = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", str(letter)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert other.returncode != 0 and "Permission denied" in other.stderr
    letter.chmod(0o644)
    runner = fleet.runner()
    assert "can be read by others" in runner.communicate(timeout=120)[0] and runner.returncode == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "another"}, "belongs to the run another"),
        ({"probe": "/nowhere/probe"}, "does not see the run's directory"),
        ({"probe_text": "x"}, ""),
    ],
)
def test_a_runner_that_does_not_fit_is_refused_with_the_reason(
    begin: Callable[..., Fleet], tmp_path: Path, change: dict[str, str], words: str
) -> None:
    fleet = begin()
    letter = letters.read(fleet.layout.fleet / letters.FILE)
    changed = tmp_path / "changed"
    letters.write(changed, letters.Letter(**{**_fields(letter), **change}))
    runner = fleet.runner("--cores", "2", where=str(changed))
    if not words:  # what the runner was told of the probe does not matter; it says what it sees
        fleet.wait_running(1)
        return
    told = runner.communicate(timeout=200)[0]
    assert runner.returncode == 4 and words in told, told
    fleet.wait_told(words)


def test_a_killed_runner_costs_its_attempts_and_nothing_else(begin: Callable[..., Fleet]) -> None:
    fleet = begin()
    fleet.runner("--name", "first", "--cores", "2")
    fleet.wait_running(1)
    [victim] = fleet.pids()
    (fleet.top / "pid-1").unlink()
    fleet.runners[0].kill()
    wait_gone([victim])
    fleet.runner("--name", "second", "--cores", "4")
    fleet.wait_running(2)
    fleet.go()
    fleet.ends()
    records = fleet.records()
    [lost] = [r for r in records if isinstance(r, NodeLost)]
    assert "first" in lost.reason
    assert [r.outcome for r in records if isinstance(r, TaskEnded)] == ["done", "done"]
    assert sorted((r.task, r.attempt) for r in records if isinstance(r, Launch)) == [(0, 1), (0, 2), (1, 1)]


@pytest.mark.parametrize("whole", [True, False], ids=["as a whole", "but for the process that has the tasks"])
def test_a_frozen_runner_is_lost_within_its_bound_and_ends_what_it_ran_when_it_thaws(
    begin: Callable[..., Fleet], whole: bool
) -> None:
    fleet = begin("--silence", "6")
    fleet.runner("--name", "first", "--cores", "2")
    fleet.wait_running(1)
    [victim] = fleet.pids()
    (fleet.top / "pid-1").unlink()
    frozen = time.time()
    pids = [fleet.runners[0].pid, *(children(fleet.runners[0].pid) if whole else ())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    fleet.runner("--name", "second", "--cores", "4")
    fleet.wait_running(2)
    [lost] = [r for r in fleet.records() if isinstance(r, NodeLost)]
    assert "no sign of life for 6 s" in lost.reason and lost.time - frozen < 60
    if whole:
        assert alive(victim), "nobody could end it so far"
    else:
        wait_gone([victim])
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    wait_gone([victim])
    assert fleet.runners[0].wait(60) == 5
    fleet.go()
    fleet.ends()
    assert [r.outcome for r in fleet.records() if isinstance(r, TaskEnded)] == ["done", "done"]


def test_when_the_conductor_is_killed_the_runners_end_their_tasks_and_the_run_can_be_resumed(
    begin: Callable[..., Fleet],
) -> None:
    fleet = begin("--silence", "6")
    fleet.runner("--cores", "4")
    fleet.wait_running(2)
    pids = fleet.pids()
    fleet.process.kill()
    fleet.process.wait()
    wait_gone(pids)
    assert fleet.runners[0].wait(60) == 5
    for path in fleet.top.glob("pid-*"):
        path.unlink()
    (fleet.layout.fleet / letters.FILE).unlink()
    fleet.start("resume", "out")
    fleet.runner("--cores", "4")
    fleet.wait_running(2)
    fleet.go()
    assert "all 2 tasks done" in fleet.ends()


def test_a_frozen_conductor_loses_its_runners_and_goes_on_with_others_when_it_thaws(
    begin: Callable[..., Fleet],
) -> None:
    fleet = begin("--silence", "6")
    fleet.runner("--name", "first", "--cores", "4")
    fleet.wait_running(2)
    pids = fleet.pids()
    fleet.process.send_signal(signal.SIGSTOP)
    assert fleet.runners[0].wait(60) == 5
    wait_gone(pids)
    for path in fleet.top.glob("pid-*"):
        path.unlink()
    fleet.process.send_signal(signal.SIGCONT)
    fleet.runner("--name", "second", "--cores", "4")
    fleet.wait_running(2)
    fleet.go()
    fleet.ends()
    assert [r.outcome for r in fleet.records() if isinstance(r, TaskEnded)] == ["done", "done"]


def test_a_runner_that_gets_its_letter_over_stdin_ends_with_it(begin: Callable[..., Fleet]) -> None:
    fleet = begin()
    letter = letters.read(fleet.layout.fleet / letters.FILE)
    runner = subprocess.Popen(
        [*CANTLE, "runner", "--connect", "-", "--cores", "2", "--kind", "away"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert runner.stdin is not None
    runner.stdin.write(letters.encode(letter))
    runner.stdin.flush()
    fleet.wait_running(1)
    pids = fleet.pids()
    runner.stdin.close()
    wait_gone(pids)
    assert runner.wait(60) == 5
    assert runner.stdout is not None
    runner.stdout.close()
    fleet.wait_told("whoever started the runner has gone")


def test_the_interface_can_be_chosen(begin: Callable[..., Fleet]) -> None:
    fleet = begin("--interface", "lo")
    letter = letters.read(fleet.layout.fleet / letters.FILE)
    assert len(letter.addresses) == 1 and re.fullmatch(r"tls://127\.0\.0\.1:\d+", letter.addresses[0])
    port = int(letter.addresses[0].rpartition(":")[2])
    listening = Path("/proc/net/tcp").read_text()
    assert f"0100007F:{port:04X}" in listening and f"00000000:{port:04X}" not in listening
    wrong = subprocess.run(
        [*CANTLE, "run", "study.yaml", "-o", "other", "--listen", "--interface", "wrong0"],
        cwd=fleet.top,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert wrong.returncode == 1 and "no interface of this name" in wrong.stderr and "lo" in wrong.stderr
    assert json.dumps(letter.addresses)


def test_nothing_but_the_fleets_two_ports_is_opened_and_neither_takes_a_stranger(begin: Callable[..., Fleet]) -> None:
    fleet = begin()
    letter = letters.read(fleet.layout.fleet / letters.FILE)
    sockets = {os.readlink(fd) for fd in Path(f"/proc/{fleet.process.pid}/fd").iterdir() if fd.is_symlink()}
    inodes = {name[8:-1] for name in sockets if name.startswith("socket:[")}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].rpartition(":")[2], 16))
    assert len(ports) == 2 and int(letter.addresses[0].rpartition(":")[2]) in ports
    for number, port in enumerate(sorted(ports), 1):
        knock_without_tls("127.0.0.1", port)
        fleet.wait_for(lambda n=number: fleet.told.read_text().count("no certificate of this run") == n)
