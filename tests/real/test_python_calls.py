"""Do whole runs of Python calls come out right: graphs, chains, retries, workers and runners that are killed?"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from cantle.allocations.local import LocalAllocation
from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.engines.calls import Result
from cantle.engines.process import ProcessEngine
from cantle.model.records import AnyRecord, Launch, NodeLost, TaskEnded
from cantle.model.resources import Node, Place
from cantle.model.study import Call, Command, Limits, Step, Study, Task
from cantle.runner.calling import crew, values
from cantle.runner.calling.store import folders
from cantle.runtime.conducting import Machine, begin
from cantle.store.journal import read
from cantle.store.layout import Layout

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Of:
    """Stands in arguments for the result of the task of that number."""

    def __init__(self, task: int) -> None:
        self.task = task


def number_of(value: Any) -> int | None:
    return value.task if isinstance(value, Of) else None


class Program:
    """A study of calls, written as a list of functions with their arguments; run by a conductor like any other."""

    def __init__(self, directory: Path, *, retries: int = 0) -> None:
        self.directory = directory
        self.step = Step("call", retries=retries)
        self.tasks: list[Task] = []
        self.commands: list[Command] = []
        self.bodies: dict[str, bytes] = {}
        self._digests: dict[Callable[..., Any], str] = {}
        self.results: dict[int, Result] = {}
        self.failures: list[Result] = []
        self.state = State()

    def add(self, function: Callable[..., Any], *args: Any) -> Of:
        if function not in self._digests:
            digest, body = values.pack_function(function)
            self._digests[function], self.bodies[digest] = digest, body
        arguments, takes = values.pack_call(args, {}, number_of)
        self.commands.append(Command(call=Call(self._digests[function], arguments, takes)))
        self.tasks.append(Task(f"call.{len(self.tasks)}", 0, tuple(sorted(takes))))
        return Of(len(self.tasks) - 1)

    def prepare(self, directory: str) -> None:
        pass

    def command(
        self, task: int, attempt: int, restart: bool, on: tuple[Place, ...], nodes: tuple[Node, ...]
    ) -> Command:
        return self.commands[task]

    def run(self, *nodes: Node, observers: Sequence[Callable[[State], None]] = ()) -> int:
        def engine(inbox: Any, layout: Layout, hide_gpus: bool) -> ProcessEngine:
            made = ProcessEngine(inbox, str(layout.directory), home="nodes", hide_gpus=hide_gpus, grace_s=1.0)
            for digest, body in self.bodies.items():
                made.calls.define(digest, body)
            made.calls.sink = self._take
            return made

        study = Study("calls", [self.step], self.tasks, lambda _: self)
        conductor = begin(study, Layout(self.directory / "run"), "calls", Limits())
        try:
            machine = Machine(LocalAllocation(nodes=nodes or (Node("here", 2),)), engine)
            outcome = conductor.conduct(machine, Decider(), observers)
        finally:
            conductor.close()
        self.state = outcome.state
        return outcome.exit_code

    def _take(self, result: Result) -> None:
        if result.failed:
            self.failures.append(result)
        else:
            self.results[result.task] = result

    def value(self, of: Of) -> Any:
        inline = self.results[of.task].inline
        assert inline is not None
        return values.unpack(inline)

    def records(self) -> list[AnyRecord]:
        return list(read(self.directory / "run/.cantle/journal.jsonl"))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def add(*numbers: Any) -> Any:
    return sum(numbers)


def blob(n: int) -> bytes:
    return b"surely-no-journal-holds-this" * n


def once_more(mark: str, times: int) -> int:
    """Fails so many times, then returns how often it was called."""
    with open(mark, "a") as file:
        file.write("x")
    called = os.stat(mark).st_size
    if called <= times:
        raise ConnectionError(f"call {called}")
    return called


def test_results_flow_along_a_graph_and_the_journal_holds_none_of_them(program: Program) -> None:
    source = program.add(blob, 5000)
    lengths = [program.add(len, source) for _ in range(40)]
    sums = [program.add(add, *lengths[i : i + 8]) for i in range(0, 40, 8)]
    last = program.add(add, *sums)
    assert program.run() == 0
    assert program.value(last) == 40 * len(blob(5000))
    assert program.results[source.task].inline is None
    ends = {record.task: record for record in program.records() if isinstance(record, TaskEnded)}
    assert ends[source.task].kept > len(blob(5000))
    assert ends[last.task].kept == 0
    assert b"surely-no-journal" not in (program.directory / "run/.cantle/journal.jsonl").read_bytes()


def test_thousands_of_small_calls_stand_in_line_and_each_runs_once(program: Program) -> None:
    ran = [program.add(add, n, 1) for n in range(3000)]
    assert program.run() == 0
    assert [program.value(one) for one in ran] == list(range(1, 3001))
    ends = [record for record in program.records() if isinstance(record, TaskEnded)]
    assert Counter(end.task for end in ends if end.outcome != "interrupted") == Counter(range(3000))
    assert sum(isinstance(record, Launch) and record.behind is not None for record in program.records()) > 1500


def test_a_chain_goes_on_in_its_worker_without_asking(program: Program) -> None:
    last = program.add(add, 1)
    for _ in range(400):
        last = program.add(add, last, 1)
    assert program.run() == 0
    assert program.value(last) == 401
    assert sum(isinstance(record, Launch) and bool(record.if_done) for record in program.records()) > 200


def test_a_long_call_among_short_ones_lets_nobody_wait_behind_it(program: Program, tmp_path: Path) -> None:
    """What stands in line behind a call that turns out to be long is launched elsewhere."""
    for n in range(200):
        program.add(add, n)
    go = tmp_path / "go"

    def until_go(path: str) -> float:
        while not os.path.exists(path):
            time.sleep(0.02)
        return time.time()

    long = program.add(until_go, str(go))
    short = [program.add(time.time) for _ in range(300)]

    def when_all_others_are_over(state: State) -> None:
        if state.totals[4] >= 499:  # one of them may stand behind it, if it was there before anybody knew
            go.touch()

    assert program.run(observers=[when_all_others_are_over]) == 0
    over_late = sum(program.value(one) > program.value(long) for one in short)
    assert over_late <= 1


def test_a_call_is_retried_as_its_step_says_and_its_followers_wait(tmp_path: Path) -> None:
    program = Program(tmp_path, retries=3)
    flaky = [program.add(once_more, str(tmp_path / f"mark{n}"), n % 3) for n in range(30)]
    total = program.add(add, *flaky)
    assert program.run() == 0
    assert program.value(total) == sum(n % 3 + 1 for n in range(30))
    assert len(program.failures) == sum(n % 3 for n in range(30))
    assert "call 1" in str(values.unpack_error(program.failures[0].inline or b""))


def test_a_call_that_fails_for_good_skips_what_takes_its_result_and_nothing_else(program: Program) -> None:
    bad = program.add(divmod, 1, 0)
    program.add(add, program.add(add, bad, 1), 1)
    good = program.add(add, program.add(add, 1, 1), 1)
    assert program.run() == 2
    assert program.value(good) == 3
    assert sorted(program.results) == [good.task - 1, good.task]


def test_calls_survive_workers_that_are_killed_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are done in the end, with the right results, and no attempt is told twice."""
    monkeypatch.setattr(crew, "_MOST_STILLBORN", 1000)  # on a busy machine several are killed before they are up
    program = Program(tmp_path, retries=50)
    ran = []
    for n in range(600):
        ran.append(program.add(add, n, 1) if n % 3 else program.add(add, ran[n - 1], 1) if n else program.add(add, 0))
    over = threading.Event()
    done = [0]

    def kill_some() -> None:
        """One after another, and none before something was done since: on a slow machine nothing would ever be."""
        dice = random.Random(5)
        before = 0
        while not over.is_set():
            time.sleep(dice.uniform(0.01, 0.08))
            if done[0] == before:
                continue
            before = done[0]
            workers = _workers_of(str(tmp_path))
            if workers:
                try:
                    os.kill(dice.choice(workers), signal.SIGKILL)
                except ProcessLookupError:
                    pass

    killer = threading.Thread(target=kill_some)
    killer.start()
    try:
        assert program.run(observers=[lambda state: done.__setitem__(0, state.totals[4])]) == 0, program.state.cause_of
    finally:
        over.set()
        killer.join()
    expected: list[int] = []
    for n in range(600):
        expected.append(n + 1 if n % 3 else expected[n - 1] + 1 if n else 0)
    assert [program.value(one) for one in ran] == expected
    told = Counter((record.task, record.attempt) for record in program.records() if isinstance(record, TaskEnded))
    assert set(told.values()) == {1}


def test_a_killed_runner_costs_its_calls_an_attempt_and_nothing_more(tmp_path: Path) -> None:
    program = Program(tmp_path)
    naps = [program.add(lambda n: time.sleep(0.02) or n, n) for n in range(100)]
    killed: list[int] = []

    def kill_a_runner(state: State) -> None:
        if not killed and state.totals[4] > 10 and (workers := _workers_of(str(tmp_path))):
            runner = int(Path(f"/proc/{workers[0]}/stat").read_text().rpartition(")")[2].split()[1])
            killed.append(runner)
            os.kill(runner, signal.SIGKILL)

    assert program.run(Node("a", 2), Node("b", 2), observers=[kill_a_runner]) == 0
    assert killed
    assert any(isinstance(record, NodeLost) for record in program.records())
    assert [program.value(nap) for nap in naps] == list(range(100))
    assert not _workers_of(str(tmp_path))
    in_memory = Path(folders(str(tmp_path / "run"), "nodes")[0])
    assert not list(in_memory.parent.glob(f"{in_memory.name}*")), "others may keep results meanwhile, and remove them"


def _workers_of(run: str) -> list[int]:
    """The function workers of a run below this directory."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                if b"calling.worker" in words and run.encode() in words:
                    found.append(int(name))
            except OSError:
                continue
    return found
