"""Logical nodes that come and go on this machine while a run goes on; what peers get wrong there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from growing_rig import Happened, fixed, run, together

from cantle.allocations.local import LocalAllocation
from cantle.allocations.providers.elastic import ElasticAllocation
from cantle.allocations.providers.local import LocalNodes
from cantle.core.plan import Plan
from cantle.model.kinds import Kind
from cantle.model.records import (
    Decision,
    Launch,
    NodeLost,
    NodeReleased,
    NodesJoined,
    Refuse,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    TaskEnded,
)

CPU = Kind("cpu", 2, most=4)


def none_at_first(*providers: LocalNodes, others: tuple[Kind, ...] = ()) -> ElasticAllocation:
    """No node but those that come."""
    allocation = ElasticAllocation(None, providers, LocalAllocation(grows=True), others=others)
    allocation.prepare()
    return allocation


def cantle(out: Path, *words: str, code: int = 0) -> Happened:
    """A run by the command line, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "cantle", *words, "-o", str(out)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == code
    return Happened(out)


def test_a_run_that_starts_with_no_node_gets_some_works_on_them_and_gives_them_back(tmp_path: Path) -> None:
    outcome = run(tmp_path / "out", "echo", "1-8", none_at_first(LocalNodes(CPU)), fixed("cpu", 2))
    happened = Happened(tmp_path / "out")
    assert outcome.exit_code == 0
    assert happened.done() == dict.fromkeys(range(8), 1)
    assert [(node.name, node.kind, node.cores) for node in happened.nodes] == [("cpu-1", "cpu", 2), ("cpu-2", "cpu", 2)]
    assert happened.asked() == {"cpu": 2}


def test_a_node_that_went_unplanned_is_no_more_brought_back_by_itself(tmp_path: Path) -> None:
    """Whether another one shall come is the policy's to decide; what ran there runs elsewhere."""
    is_told = f"until grep -q NodeLost {tmp_path}/out/.cantle/journal.jsonl; do sleep 0.05; done"
    command = "test {} = 1 && test ! -e killed && touch killed && kill -9 $CANTLE_RUNNER; " + is_told
    os.chdir(tmp_path)
    outcome = run(tmp_path / "out", command, "1-4", none_at_first(LocalNodes(CPU)), fixed("cpu", 2))
    happened = Happened(tmp_path / "out")
    assert outcome.exit_code == 0
    assert happened.done() == dict.fromkeys(range(4), 1)
    assert len(happened.nodes) == 2 and len([r for r in happened.of(NodeLost) if r.reason != "it was given back"]) == 1


def test_a_kind_that_lasts_ends_its_nodes_by_itself(tmp_path: Path) -> None:
    short = LocalNodes(Kind("cpu", 1, lasts_s=1.0))
    long = LocalNodes(Kind("long", 1))
    allocation = none_at_first(short, long)

    def both(plan: Plan) -> Iterator[Decision]:
        if plan.state.scaling and not plan.state.scaling.requests:
            yield RequestNodes(plan.state.now, "cpu", 1, "it will end")
            yield RequestNodes(plan.state.now, "long", 1, "it stays")

    outcome = run(tmp_path / "out", "sleep 1.5; echo", "1-2", allocation, both)
    happened = Happened(tmp_path / "out")
    assert outcome.exit_code == 0 and happened.done() == {0: 1, 1: 1}
    assert [record.outcome for record in happened.of(TaskEnded) if record.outcome != "done"] in ([], ["interrupted"])
    assert "cpu" in {happened.nodes[record.node].kind for record in happened.of(NodeLost)}


def test_what_comes_and_goes_by_the_command_line(tmp_path: Path) -> None:
    kinds = "cpu: {cores: 2, max: 3, provider: local}"
    command = together(tmp_path, 5) + "echo {}"
    happened = cantle(tmp_path / "out", "map", command, "--range", "1-12", "--kinds", kinds)
    assert happened.done() == dict.fromkeys(range(12), 1)
    assert happened.asked()["cpu"] == 3 == len(happened.nodes)


def test_O03_a_kind_that_cannot_help_is_never_asked(tmp_path: Path) -> None:
    kinds = "{small: {cores: 1, max: 5, provider: local}, big: {cores: 4, max: 5, provider: local}}"
    happened = cantle(tmp_path / "out", "map", "sleep 0.3; echo {}", "--range", "1-3", "--cores", "4", "--kinds", kinds)
    assert happened.done() == dict.fromkeys(range(3), 1)
    study = tmp_path / "study.yaml"
    study.write_text(
        "description: {name: wide, description: d}\n"
        "study:\n  - {name: wide, description: d, run: {cmd: sleep 0.3, procs: 1, cores per task: 4}}\n"
        "global.parameters:\n  N: {values: [1, 2, 3], label: N.%%}\n"
    )
    text = study.read_text().replace("cmd: sleep 0.3", 'cmd: "sleep 0.3 # $(N)"')
    study.write_text(text)
    happened = cantle(tmp_path / "wide", "run", str(study), "--kinds", kinds)
    assert happened.done() == dict.fromkeys(range(3), 1)
    assert happened.asked()["small"] == 0 and 1 <= happened.asked()["big"] <= 3
    only_small = "small: {cores: 1, max: 5, provider: local}"
    happened = cantle(tmp_path / "never", "run", str(study), "--kinds", only_small, code=2)
    assert not happened.of(RequestNodes)
    assert all("needs 4 cores" in record.why and "small" in record.why for record in happened.of(Refuse))
    assert len(happened.of(Refuse)) == 3


def test_O04_what_takes_longer_than_any_node_lasts_asks_for_none_and_says_so(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "description: {name: long, description: d}\n"
        'study:\n  - {name: long, description: d, run: {cmd: "true", walltime: "00:01:00"}}\n'
    )
    kinds = "cpu: {cores: 1, max: 5, provider: local, lasts: 10 s}"
    happened = cantle(tmp_path / "out", "run", str(study), "--kinds", kinds, code=2)
    assert not happened.of(RequestNodes)
    [refused] = happened.of(Refuse)
    assert "for 60 s" in refused.why and "a node of kind cpu lasts 10 s" in refused.why
    told = subprocess.run(
        [sys.executable, "-m", "cantle", "explain", str(tmp_path / "out"), "long"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert refused.why in told.stdout


def test_O05_what_is_starting_has_no_idle_time(tmp_path: Path) -> None:
    kinds = "cpu: {cores: 1, max: 3, provider: local, after: 2 s}"
    words = ("--scaling", "idle=0.5", "--scaling", "cool-down=0")
    happened = cantle(tmp_path / "out", "map", "sleep 1; echo {}", "--range", "1-6", "--kinds", kinds, *words)
    assert happened.done() == dict.fromkeys(range(6), 1)
    assert happened.asked() == {"cpu": 3}
    first_use = {}
    for record in happened.of(Launch):
        first_use.setdefault(record.on[0].node, record.time)
    for record in happened.of(ReleaseNode):
        assert first_use[record.node] < record.time, "no node goes before it was of use"


def test_O06_in_the_tail_of_a_run_nodes_without_work_go_at_once(tmp_path: Path) -> None:
    kinds = "cpu: {cores: 1, max: 8, provider: local}"
    journal = tmp_path / "out/.cantle/journal.jsonl"
    tail = f"until [ $(grep -c NodeReleased {journal}) -ge 7 ]; do sleep 0.1; done"  # it would never end otherwise
    command = together(tmp_path, 8) + f"test {{}} != 1 || {tail}"
    happened = cantle(tmp_path / "out", "map", command, "--range", "1-8", "--kinds", kinds)
    assert happened.done() == dict.fromkeys(range(8), 1)
    assert len(happened.nodes) == 8
    assert {record.problem for record in happened.of(NodeReleased)} == {""}


def test_O10_a_node_that_comes_late_gets_work_at_once_and_its_share(tmp_path: Path) -> None:
    """Tasks are bound to a node when a slot is free, not before."""
    provider = LocalNodes(Kind("cpu", 1), after_s=0.0)
    others = LocalNodes(Kind("late", 1), after_s=1.0)
    are_there = f"until grep -q late-3 {tmp_path}/out/.cantle/journal.jsonl; do sleep 0.05; done; sleep 0.4; echo"

    def staggered(plan: Plan) -> Iterator[Decision]:
        if plan.state.scaling and not plan.state.scaling.requests:
            yield RequestNodes(plan.state.now, "cpu", 1, "first")
            yield RequestNodes(plan.state.now, "late", 3, "a second later")

    run(tmp_path / "out", are_there, "1-24", none_at_first(provider, others), staggered)
    happened = Happened(tmp_path / "out")
    joined = [at for at, record in enumerate(happened.records) if isinstance(record, NodesJoined) for _ in record.nodes]
    launches: dict[int, list[int]] = {}
    for at, record in enumerate(happened.records):
        if isinstance(record, Launch):
            launches.setdefault(record.on[0].node, []).append(at)
    for node in (1, 2, 3):
        turn = happened.records[joined[node] : launches[node][0]]
        decided = [isinstance(record, Decision) for record in turn]
        assert decided == sorted(decided), "in the very turn in which it joined: nothing happens between decisions"
    counts = [len(each) for each in launches.values()]
    assert sum(counts) == 24 and max(counts) <= 2 * min(counts)


def test_D6_a_kind_whose_provider_can_do_neither_is_known_and_never_asked(tmp_path: Path) -> None:
    kinds = "{cpu: {cores: 2, max: 2, provider: local}, iron: {cores: 64}}"
    happened = cantle(tmp_path / "out", "map", "echo {}", "--range", "1-4", "--kinds", kinds)
    assert happened.done() == dict.fromkeys(range(4), 1)
    assert happened.asked()["iron"] == 0 and {node.kind for node in happened.nodes} == {"cpu"}


def test_killed_a_run_is_resumed_on_new_nodes_and_no_task_runs_twice(tmp_path: Path) -> None:
    kinds = "cpu: {cores: 1, max: 2, provider: local}"
    out = tmp_path / "out"
    words = [
        sys.executable,
        "-m",
        "cantle",
        "map",
        f"until [ {{}} = 1 ] || [ -e {tmp_path}/go ]; do sleep 0.05; done; echo {{}}",
        "--range",
        "1-10",
        "-o",
        str(out),
        "--kinds",
        kinds,
    ]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (out.exists() and (out / ".cantle/journal.jsonl").exists() and Happened(out).done()):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (tmp_path / "go").touch()
    done = subprocess.run(
        [sys.executable, "-m", "cantle", "resume", str(out)], capture_output=True, text=True, timeout=240, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "--kinds" in done.stderr, "the kinds are as the run had them"
    happened = Happened(out)
    assert happened.done() == dict.fromkeys(range(10), 1)
    requests = happened.of(RequestNodes)
    assert sum(record.count for record in requests) >= 3
    assert {record.request for record in happened.of(RequestAnswered)} <= set(range(len(requests)))


def test_somebody_adds_a_node_by_hand_and_sees_it_come(tmp_path: Path) -> None:
    kinds = "cpu: {cores: 1, max: 3, provider: local, after: 10}"  # long enough to be looked at on its way
    out = tmp_path / "out"
    command = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo {{}}"
    words = ["map", command, "--range", "1-3", "-o", str(out), "--kinds", kinds, "--scaling", "fixed:1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cantle", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        asked = [sys.executable, "-m", "cantle", "node", *words]
        return subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)

    try:
        until = time.monotonic() + 120
        while not ((out / ".cantle/journal.jsonl").exists() and Happened(out).of(NodesJoined)):
            assert time.monotonic() < until
            time.sleep(0.05)
        done = ask("add", str(out), "cpu")
        assert done.returncode == 0 and "is to have 2 nodes of kind cpu" in done.stdout
        assert "1 node of kind cpu on the way" in ask("list", str(out)).stdout
        assert "there may be 3 nodes of kind cpu at most" in ask("add", str(out), "cpu", "2").stderr
        assert "no kind of node is called 'gpu'; there are cpu" in ask("add", str(out), "gpu").stderr
        while len(Happened(out).nodes) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        table = ask("list", str(out)).stdout
        assert "KIND" in table and "cpu-2" in table and "on the way" not in table
    finally:
        (tmp_path / "go").touch()
        process.wait(120)
    assert process.returncode == 0
    assert Happened(out).asked() == {"cpu": 2}
