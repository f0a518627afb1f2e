"""Python calls on machines that share neither files nor memory: results are fetched, moved, lost and made again. O11, D1."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from msgspec.structs import replace
from tests.real.test_python_calls import Program

from cantle.allocations.fleet import letter as letters
from cantle.allocations.fleet.allocation import FleetAllocation
from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.engines.process import ProcessEngine
from cantle.model.records import Launch, MoveResults, ResultsMoved, TaskEnded
from cantle.model.resources import Needs
from cantle.model.study import Limits, Step, Study
from cantle.runner.calling import values
from cantle.runtime.conducting import Machine, begin
from cantle.store.layout import Layout

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs mounts of its own"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIZE = 9_000_000


def large(seed: int) -> bytes:
    import random

    return random.Random(seed).randbytes(SIZE)


def digest(data: bytes, *_: Any) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def slowly(data: bytes, go: str) -> str:
    until(go)
    return digest(data)


def until(path: str) -> bool:
    while not os.path.exists(path):
        time.sleep(0.02)
    return True


RIGHT = digest(large(7))


class Fleet(Program):
    """The program runs on runners with files and memory of their own, which are started when the run has begun."""

    def __init__(self, top: Path) -> None:
        super().__init__(top / "place")
        self.directory.mkdir()
        self.top = top
        self.step = Step("call", Needs(kind="away", staged=True))
        self.runners: dict[str, subprocess.Popen[bytes]] = {}
        self.fetched: dict[int, tuple[Any, str]] = {}
        self.engine: ProcessEngine | None = None
        self.cores = 1

    def start(self, name: str) -> None:
        letter = self.top / "letter"
        letters.write(letter, letters.read(Layout(self.directory / "run").fleet / letters.FILE))
        node = f"--kind away --cores {self.cores} --name {name} --machine {name}"
        words = f"{sys.executable} -m cantle runner --connect {letter} {node}"
        mounts = f"mount -t tmpfs tmpfs {self.directory} && mount -t tmpfs tmpfs /dev/shm && cd / && exec {words}"
        self.runners[name] = subprocess.Popen(["unshare", "--mount", "sh", "-c", mounts], stdin=subprocess.DEVNULL)

    def conduct(self, script: Callable[[State], None], decider: Decider | None = None) -> State:
        layout = Layout(self.directory / "run")
        allocation = FleetAllocation([], open_ended=True, silence_s=20.0)
        allocation.house(layout.directory, layout.fleet)

        def engine(inbox: Any, layout: Layout, hide_gpus: bool) -> ProcessEngine:
            made = self.engine = ProcessEngine(inbox, str(layout.directory), home=".cantle/nodes", grace_s=1.0)
            for name, body in self.bodies.items():
                made.calls.define(name, body)
            made.calls.sink = self._take
            return made

        conductor = begin(Study("calls", [self.step], self.tasks, lambda _: self), layout, "calls", Limits())
        try:
            outcome = conductor.conduct(Machine(allocation, engine), decider or Decider(), [script])
        finally:
            conductor.close()
        assert outcome.exit_code == 0, outcome.state.cause_of
        return outcome.state

    def records(self) -> list[Any]:
        from cantle.store.journal import read

        return list(read(Layout(self.directory / "run").journal))

    def launches(self, task: int) -> int:
        return sum(isinstance(r, Launch) and r.task == task for r in self.records())


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    for process in made.runners.values():
        process.kill()
        process.wait()


def both_there(fleet: Fleet, state: State) -> bool:
    """Start two runners as soon as they can come; whether they are there."""
    if not fleet.runners and (Layout(fleet.directory / "run").fleet / letters.FILE).exists():
        fleet.start("one")
        fleet.start("two")
    return len(state.room.nodes) >= 2


def name_of_holder(state: State, task: int) -> str:
    return state.room.nodes[state.ran_on[task]].name


def test_a_result_is_fetched_by_the_machine_that_takes_it_and_by_who_asks_for_it(fleet: Fleet) -> None:
    source = fleet.add(large, 7)
    go = fleet.top / "go"
    first, second = (fleet.add(slowly, source, str(go)) for _ in range(2))
    asked: list[int] = []

    def script(state: State) -> None:
        both_there(fleet, state)
        if not asked and state.phases[source.task] == Phase.DONE:
            asked.append(source.task)
            assert fleet.engine is not None
            fleet.engine.calls.fetch(source.task, lambda data, problem: fleet.fetched.update({0: (data, problem)}))
        if first.task in state.running and second.task in state.running:  # each on a machine: they have one core each
            go.touch()

    state = fleet.conduct(script)
    assert (fleet.value(first), fleet.value(second)) == (RIGHT, RIGHT)
    assert state.ran_on[first.task] != state.ran_on[second.task], "both machines took it"
    [moved] = [r for r in fleet.records() if isinstance(r, ResultsMoved)]
    assert moved.tasks == [source.task] and not moved.problem
    data, problem = fleet.fetched[0]
    assert not problem and digest(values.unpack(data)) == RIGHT
    assert [fleet.launches(task) for task in range(3)] == [1, 1, 1]


def test_o11_when_the_runner_with_the_only_copy_is_killed_its_call_runs_once_more(fleet: Fleet) -> None:
    fleet.cores = 2
    source, gate = fleet.add(large, 7), fleet.add(until, str(fleet.top / "go"))
    last = fleet.add(digest, source, gate)
    killed: list[str] = []

    def script(state: State) -> None:
        if not both_there(fleet, state):
            return
        if not killed and state.phases[source.task] == Phase.DONE:
            killed.append(name_of_holder(state, source.task))
            os.kill(fleet.runners[killed[0]].pid, signal.SIGKILL)
        elif killed and state.attempts[source.task] == 2:
            (fleet.top / "go").touch()

    state = fleet.conduct(script)
    assert fleet.value(last) == RIGHT
    assert fleet.launches(source.task) == 2 and fleet.launches(last.task) == 1
    assert state.keeping is not None and state.keeping.again[source.task][0] == 1
    ends = [r for r in fleet.records() if isinstance(r, TaskEnded) and r.task == source.task]
    assert all(r.outcome == "done" and r.kept > SIZE for r in ends)


def test_o11_what_is_moved_outlives_the_runner_where_it_was_made_and_nothing_runs_twice(fleet: Fleet) -> None:
    fleet.cores = 2
    source, gate = fleet.add(large, 7), fleet.add(until, str(fleet.top / "go"))
    last = fleet.add(digest, source, gate)
    done: list[str] = []

    class Mover(Decider):
        """Moves the result to the other node as soon as it is there."""

        def decide(self, state: State) -> Iterator[Any]:
            yield from super().decide(state)
            if not done and state.phases[source.task] == Phase.DONE and len(state.room.nodes) == 2:
                done.append("asked")
                node = state.ran_on[source.task]
                yield MoveResults(state.now, [source.task], node, 1 - node, "the node shall go")

    def script(state: State) -> None:
        both_there(fleet, state)
        keeping = state.keeping
        if done == ["asked"] and keeping is not None and keeping.nodes_with(source.task).bit_count() == 2:
            done.append("killed")
            os.kill(fleet.runners[name_of_holder(state, source.task)].pid, signal.SIGKILL)
        elif len(done) == 2 and state.room.alive.bit_count() == 1:
            (fleet.top / "go").touch()

    fleet.conduct(script, Mover())
    assert fleet.value(last) == RIGHT
    assert fleet.launches(source.task) == 1


def test_arguments_that_lie_in_a_file_come_to_runners_that_do_not_see_it(fleet: Fleet) -> None:
    content = large(7)
    calls = [fleet.add(digest, content, number) for number in range(4)]
    file = fleet.directory / "put-aside"
    for call in calls:
        command = fleet.commands[call.task]
        assert command.call is not None
        file.write_bytes(command.call.arguments)
        fleet.commands[call.task] = replace(command, call=replace(command.call, arguments=b"", file=str(file)))
    fleet.conduct(lambda state: both_there(fleet, state) and None)
    assert [fleet.value(call) for call in calls] == [RIGHT] * 4
    assert [fleet.launches(call.task) for call in calls] == [1] * 4
