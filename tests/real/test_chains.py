"""Do real chains of short tasks end as they should when one fails, when they are stopped, and when the conductor is killed?"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from cantle.model.records import AnyRecord, Launch, TaskEnded
from cantle.store.journal import read

pytestmark = pytest.mark.real

CANTLE = [sys.executable, "-m", "cantle"]


def study(directory: Path, n: int, *, bad: int = -1) -> None:
    """A chain of n steps that write their numbers to `ran`; the bad one fails."""
    steps = []
    for i in range(n):
        command = f"echo {i} >> {directory}/ran" + ("; exit 7" if i == bad else "")
        depends = f", depends: [s{i - 1}]" if i else ""
        steps.append(f"  - {{name: s{i}, description: one of a chain, run: {{cmd: '{command}'{depends}}}}}")
    text = ["description: {name: chain, description: short steps in a row}", "study:", *steps]
    (directory / "chain.yaml").write_text("\n".join(text) + "\n")


def cantle(*words: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*CANTLE, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def records(directory: Path, out: str = "out") -> list[AnyRecord]:
    return list(read(directory / out / ".cantle/journal.jsonl"))


def in_line(found: list[AnyRecord]) -> int:
    return sum(isinstance(record, Launch) and bool(record.if_done) for record in found)


def ran(directory: Path) -> list[int]:
    return [int(line) for line in (directory / "ran").read_text().split()]


def test_a_chain_with_a_failure_in_its_middle_ends_there(tmp_path: Path) -> None:
    study(tmp_path, 60, bad=40)
    for attempt in range(10):  # where others use the machine, too, even these tasks may take longer than a moment
        (tmp_path / "ran").unlink(missing_ok=True)
        run = cantle("run", "chain.yaml", "-q", "-o", f"out{attempt}", cwd=tmp_path)
        told = run.communicate(timeout=200)[0].decode()
        found = records(tmp_path, f"out{attempt}")
        assert run.returncode == 2, told
        assert ran(tmp_path) == list(range(41))
        ends = Counter(record.outcome for record in found if isinstance(record, TaskEnded))
        assert (ends["done"], ends["failed"]) == (40, 1)
        skipped = [record for record in found if isinstance(record, Launch) and record.task > 40]
        assert len(skipped) == ends["interrupted"] and all(record.attempt == 1 for record in skipped)
        if skipped:
            break
    assert in_line(found) and skipped, "some stood in line behind the one that failed"
    status = subprocess.run(
        [*CANTLE, "status", f"out{attempt}"], cwd=tmp_path, capture_output=True, text=True, check=False
    ).stdout
    assert "40 done" in status and "1 failed" in status and "19 skipped" in status


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_chain_that_is_broken_off_and_resumed_does_each_task_once(how: signal.Signals, tmp_path: Path) -> None:
    n = 600
    study(tmp_path, n)
    conductor = cantle("run", "chain.yaml", "-q", "-o", "out", cwd=tmp_path)
    stop = time.monotonic() + 60
    while not (tmp_path / "ran").exists() or len(ran(tmp_path)) < 100:
        assert time.monotonic() < stop and conductor.poll() is None
        time.sleep(0.005)
    conductor.send_signal(how)
    conductor.communicate(timeout=200)
    again = cantle("resume", "out", "-q", cwd=tmp_path)
    told = again.communicate(timeout=120)[0].decode()
    assert again.returncode == 0, told

    attempts: Counter[int] = Counter()
    done: dict[int, int] = {}
    for record in records(tmp_path):
        if isinstance(record, Launch):
            assert record.task not in done, "a finished task was launched again"
            attempts[record.task] += 1
        elif isinstance(record, TaskEnded) and record.outcome == "done":
            assert record.task == len(done), "each ends after the one before"
            done[record.task] = record.attempt
    assert len(done) == n
    times = Counter(ran(tmp_path))
    assert set(times) == set(range(n))
    assert all(times[task] <= attempts[task] for task in range(n))
    assert sum(times.values()) <= n + 2, "at most what ran when it was broken off did its work twice"
