"""Files that steps leave on their nodes, on nodes apart with disks and memory of their own: lost, and moved. O11, D1."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.test_fleet import CANTLE, Fleet

from cantle.allocations.fleet import letter as letters
from cantle.model.records import AnyRecord, Launch, NodeLost, NodesJoined, ResultsMoved

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs mounts of its own"),
]

STUDY = """
description: {name: apart, description: a file that only its node sees}
study:
- name: makes
  description: five megabytes
  run: {cmd: "seq 1 800000 > out.bin; echo made >> TOP/shared/made", kind: away, local: [out.bin]}
- name: waits
  description: until somebody says so
  run: {cmd: "until [ -e TOP/shared/go ]; do sleep 0.02; done"}
- name: takes
  description: where the file is
  run:
    cmd: "sha256sum < $(makes.workspace)/out.bin > TOP/shared/sum.new; mv TOP/shared/sum.new TOP/shared/sum"
    kind: away
    stage: {out: []}
    depends: [makes, waits]
"""
RIGHT = hashlib.sha256("".join(f"{n}\n" for n in range(1, 800001)).encode()).hexdigest()


class Apart(Fleet):
    """A run in a folder that its runners do not see: each has an empty one there, and a memory of its own."""

    def __init__(self, top: Path) -> None:
        self.shared = top / "shared"
        (top / "place").mkdir(parents=True)
        self.shared.mkdir()
        super().__init__(top / "place", study=STUDY.replace("TOP", str(top)))
        self.letter = top / "letter"
        letters.write(self.letter, letters.read(self.layout.fleet / letters.FILE))

    def start_apart(self, name: str) -> subprocess.Popen[str]:
        mounts = f"mount -t tmpfs tmpfs {self.top} && mount -t tmpfs tmpfs /dev/shm && cd / && exec "
        words = " ".join([*CANTLE, "runner", "--connect", str(self.letter)])
        options = f" --kind away --cores 1 --name {name} --machine {name}"
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", mounts + words + options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.runners.append(process)
        self.wait_for(lambda: any(node.name == name for node in self.nodes()))
        return process

    def nodes(self) -> list[object]:
        return [node for r in self.records() if isinstance(r, NodesJoined) for node in r.nodes]

    def launches(self, task: int) -> list[Launch]:
        return [r for r in self.records() if isinstance(r, Launch) and r.task == task]

    def happened(self, kind: type[AnyRecord]) -> bool:
        return any(isinstance(r, kind) for r in self.records())

    def made(self) -> int:
        path = self.shared / "made"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def go(self) -> None:
        (self.shared / "go").touch()

    def sum(self) -> str:
        return (self.shared / "sum").read_text().split()[0]


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    fleet = Apart(tmp_path)
    yield fleet
    fleet.go()
    for process in (*fleet.runners, fleet.process):
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_o11_when_the_node_with_the_only_copy_is_killed_the_producer_runs_once_more(apart: Apart) -> None:
    holder = apart.start_apart("one")
    apart.wait_for(lambda: apart.made() == 1)
    apart.start_apart("two")
    holder.send_signal(signal.SIGKILL)
    apart.wait_for(lambda: apart.happened(NodeLost) and apart.made() == 2)
    apart.go()
    apart.wait_for((apart.shared / "sum").exists)
    assert apart.sum() == RIGHT
    apart.runners[1].send_signal(signal.SIGTERM)
    assert [len(apart.launches(task)) for task in range(3)] == [2, 1, 1]


def test_o11_what_a_drained_node_has_alone_is_moved_to_where_it_is_taken_and_the_producer_ran_once(
    apart: Apart,
) -> None:
    apart.start_apart("one")
    apart.wait_for(lambda: apart.made() == 1)
    apart.start_apart("two")
    subprocess.run([*CANTLE, "node", "drain", str(apart.directory), "one"], check=True, capture_output=True)
    apart.go()
    apart.wait_for((apart.shared / "sum").exists)
    assert apart.sum() == RIGHT
    assert [len(apart.launches(task)) for task in range(3)] == [1, 1, 1]
    [moved] = [r for r in apart.records() if isinstance(r, ResultsMoved)]
    assert not moved.problem
    assert apart.launches(2)[0].on[0].node == moved.to != moved.node == apart.launches(0)[0].on[0].node
