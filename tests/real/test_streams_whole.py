"""Does a study whose steps have streams run from its file to the last line of output?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster.identity import wait_until
from msgspec.structs import replace

from cantle.allocations.local import LocalAllocation
from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.engines.process import ProcessEngine
from cantle.model.records import Launch, NodeLost, TaskEnded
from cantle.readers.map import build
from cantle.readers.values import from_ranges
from cantle.runtime.conducting import Machine, begin
from cantle.store.journal import read
from cantle.store.layout import Layout

pytestmark = pytest.mark.real

STUDY = """\
description: {name: streams, description: several processes make one task}
study:
  - name: sim
    description: a program that needs no launcher
    run:
      cmd: |
        PYTHON gather.py
      nodes: 2
      streams: 4
      communicates: true
  - name: each
    description: one after another on a core
    run:
      cmd: |
        echo stream $CANTLE_STREAM of $(STREAMS) on $(WIDTH)
        [ $CANTLE_STREAM -ne FAILING ] || { echo no luck >&2; exit 5; }
      depends: [sim]
      streams: 6
      nodes: 2
"""

GATHER = """\
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(address)
    peers = [server.accept()[0] for _ in range(size - 1)]
    total = sum([rank, *(int(peer.recv(10)) for peer in peers)])
    for peer in peers:
        peer.sendall(b"%d" % total)
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    peer.sendall(b"%d" % rank)
    total = int(peer.recv(10))
print("all ranks add up to", total)
"""


def cantle(*words: str, cwd: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "cantle", *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def written(tmp_path: Path, failing: int) -> str:
    (tmp_path / "gather.py").write_text(GATHER)
    text = STUDY.replace("PYTHON gather.py", f"{sys.executable} {tmp_path}/gather.py")
    (tmp_path / "study.yaml").write_text(text.replace("FAILING", str(failing)))
    return "study.yaml"


def test_a_study_with_streams_runs_on_logical_nodes_and_its_output_is_found(tmp_path: Path) -> None:
    code, told = cantle("run", written(tmp_path, failing=-1), "--nodes", "2x2", "-o", "out", cwd=tmp_path)
    assert code == 0, told
    records = list(read(tmp_path / "out/.cantle/journal.jsonl"))
    assert [[place.node for place in record.on] for record in records if isinstance(record, Launch)] == [[0, 1], [0, 1]]
    assert [record.outcome for record in records if isinstance(record, TaskEnded)] == ["done", "done"]
    assert cantle("logs", "out", "sim", cwd=tmp_path) == (
        0,
        "".join(f"==> stream {n} <==\nall ranks add up to 6\n" for n in range(4)),
    )
    assert cantle("logs", "out", "each", "--stream", "4", cwd=tmp_path) == (0, "stream 4 of 6 on 2\n")
    files = {path.name for path in (tmp_path / "out/each").iterdir()}
    assert files == {"each.sh"} | {f"each.{n}.{end}" for n in range(6) for end in ("out", "err")}


def test_what_ranks_printed_that_cantle_starts_itself_is_found(tmp_path: Path) -> None:
    all_have = "touch at.$RANK; until [ -e at.0 ] && [ -e at.1 ] && [ -e at.2 ] && [ -e at.3 ]; do sleep 0.02; done"
    run = "{cmd: 'echo rank $RANK; " + all_have + "; $(LAUNCHER) test $CANTLE_ATTEMPT = 2', nodes: 2, procs: 4}"
    text = f"description: {{name: own, description: d}}\nstudy: [{{name: ring, description: d, run: {run}}}]\n"
    (tmp_path / "study.yaml").write_text(text)
    words = ("--nodes", "2x2", "--launcher", "cantle", "-a", "2", "-o", "out")
    assert cantle("run", "study.yaml", *words, cwd=tmp_path)[0] == 0
    said = "".join(f"==> stream {n} <==\nrank {n}\n" for n in range(4))
    assert cantle("logs", "out", "ring", cwd=tmp_path) == (0, said)
    assert cantle("logs", "out", "ring", "--stream", "2", "--attempt", "1", cwd=tmp_path) == (0, "rank 2\n")


def test_a_stream_that_fails_is_named_and_its_next_attempt_has_files_of_its_own(tmp_path: Path) -> None:
    code, told = cantle("run", written(tmp_path, failing=3), "--nodes", "2x2", "-a", "2", "-o", "out", cwd=tmp_path)
    assert code == 2
    assert "stream 3 of 6 on node2: exit code 5" in told
    assert "no luck" in told
    again = told.partition("run it again: ")[2].splitlines()[0]
    assert again == "cd out/each && env CANTLE_STREAM=3 CANTLE_STREAMS=6 /bin/bash ./each.sh"
    by_hand = subprocess.run(again, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (by_hand.returncode, by_hand.stdout, by_hand.stderr) == (5, "stream 3 of 6 on 2\n", "no luck\n")
    for attempt in ("1", "2"):
        found = cantle("logs", "out", "each", "--stream", "3", "--err", "--attempt", attempt, cwd=tmp_path)
        assert found == (0, "no luck\n")
    assert (tmp_path / "out/each/each.attempt-2.3.err").read_text() == "no luck\n"


def test_when_a_runner_is_killed_the_streams_of_both_nodes_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        "description: {name: s, description: d}\nstudy:\n  - name: wait\n    description: d\n    run:\n"
        "      cmd: |\n        mkdir -p ../seen; echo $CANTLE_RUNNER > ../seen/$CANTLE_ATTEMPT.$CANTLE_STREAM\n"
        "        until [ -e ../go ]; do sleep 0.05; done\n      nodes: 2\n      streams: 4\n      procs: 4\n"
    )
    seen = tmp_path / "out/seen"
    run = subprocess.Popen(
        [sys.executable, "-m", "cantle", "run", "study.yaml", "--nodes", "2x2", "-o", "out"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert wait_until(lambda: len(list(seen.glob("1.*"))) == 4 and (seen / "1.3").read_text(), 120)
    os.kill(int((seen / "1.3").read_text()), signal.SIGKILL)
    assert wait_until(lambda: len(list(seen.glob("2.*"))) == 4, 120)
    (tmp_path / "out/go").touch()
    told = run.communicate(timeout=120)[0].decode()
    assert run.returncode == 0, told
    records = list(read(tmp_path / "out/.cantle/journal.jsonl"))
    assert [record.node for record in records if isinstance(record, NodeLost)] == [1]
    assert [(record.attempt, record.outcome) for record in records if isinstance(record, TaskEnded)] == [(2, "done")]


class Plain(ProcessEngine):
    """An engine that knows nothing of streams."""

    runs_streams = False


def test_an_engine_that_runs_no_streams_says_so_of_the_task_that_has_some(tmp_path: Path) -> None:
    study = build("echo {}", from_ranges(["1-2"]))
    study.steps.append(replace(study.steps[0], streams=3))
    study.tasks[1] = replace(study.tasks[1], step=len(study.steps) - 1)
    conductor = begin(study, Layout(tmp_path / "out"), "map", study.limits)
    machine = Machine(LocalAllocation(), lambda inbox, layout, hide_gpus: Plain(inbox, str(layout.directory)))
    try:
        state = conductor.conduct(machine, Decider()).state
    finally:
        conductor.close()
    assert [phase.name for phase in map(Phase, state.phases)] == ["DONE", "FAILED"]
    assert state.cause_of[1] == "Plain runs no streams, and this task has 3"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["each", "--stream", "6"], "each has the streams 0 to 5, so there is none with number 6"),
        (["each", "--follow"], "each has 6 streams; follow one of them: --stream 0, say"),
    ],
)
def test_what_cannot_be_shown_of_streams_is_said(tmp_path: Path, words: list[str], told: str) -> None:
    assert cantle("run", written(tmp_path, failing=-1), "--nodes", "2x2", "-o", "out", cwd=tmp_path)[0] == 0
    code, answer = cantle("logs", "out", *words, cwd=tmp_path)
    assert code == 1
    assert told in answer
