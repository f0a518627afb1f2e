"""Does a packer keep the rules, and does it leave nobody waiting for ever? It packs random runs in the simulated world.

def test_my_packer_keeps_the_rules():
    check_packer(my_packer)
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from cantle.core.decide import Decider
from cantle.core.guard import name_of
from cantle.core.invariants import check
from cantle.core.phases import Phase
from cantle.core.plan import Plan, Policy
from cantle.core.state import State
from cantle.errors import CantleBug, PluginError
from cantle.model.records import AnyRecord, Decision, StudyAdded, TasksAdded
from cantle.model.resources import Needs, Node
from cantle.model.study import Limits, Step, Task
from cantle.runtime.loop import NoLog, turn
from cantle.runtime.simulated import Fate, SimulatedWorld

STEP_CPU_S = 5.0
"""A packer that computes for so long between two decisions about a few dozen tasks is in a loop without an end."""
TURNS_PER_TASK = 100
"""A run of so many turns a task does not come to an end: something is launched and stopped over and over."""
IMPOSSIBLE = "impossible"
"""The task that no node can hold."""


def check_packer(packer: Policy, *, seed: int = 0, runs: int = 50) -> None:
    """Check a packer in `runs` random runs; the same seed makes the same runs.

    Tasks, nodes, limits, failures and lost nodes are drawn by chance. Whatever the packer yields has to be possible: a ready
    task's next attempt, on as many nodes as it needs, with exactly its cores and GPUs there, all of them free, within the
    throttle. Each pass and each run comes to an end, and then every task for which there were nodes is done. Loops that
    yield nothing are ended only when this is called in the main thread.
    """
    for number in range(seed, seed + runs):
        state = _CheckedState()
        try:
            _run(packer, state, Random(number))
        except (PluginError, _Endless, CantleBug) as problem:
            fault = str(problem)
            if isinstance(problem, CantleBug):  # the decisions were looked at, so it was no decision
                fault = f"packer {name_of(packer)}: it changed what it may only read; {problem}"
            raise AssertionError(f"{fault} [second {state.now:g} of seed={number}, runs=1]") from problem
        for task, phase in zip(state.tasks, state.phases, strict=True):
            assert phase == Phase.DONE or task.name == IMPOSSIBLE, (
                f"packer {name_of(packer)}: in the end {task.name} is {phase.name.lower()}, although there were nodes for it "
                f"[seed={number}, runs=1]"
            )


class _Endless(BaseException):
    """Not an Exception, so that no `except Exception` in the packer keeps its loop alive."""


class _CheckedState(State):
    def apply(self, record: AnyRecord) -> None:
        super().apply(record)
        check(self)


def _run(packer: Policy, state: State, chance: Random) -> None:
    nodes = _nodes(chance)
    steps, tasks = _study(chance, nodes)
    state.apply(StudyAdded(0.0, "random", steps, limits=Limits(throttle=chance.choice([0, 0, 0, 1, 3]))))
    state.apply(TasksAdded(0.0, 0, tasks))
    fails = [chance.random() < 0.1 for _ in tasks]
    lasting = len(nodes)
    passing = [Node(f"passing{i}", chance.randint(1, 4), chance.choice([0, 1])) for i in range(2)]
    world = SimulatedWorld(
        state,
        [(0.0, nodes), (float(chance.randint(0, 5)), passing)],
        lambda task, attempt: Fate(tasks[task].estimate_s, "failed" if fails[task] and attempt == 1 else "done"),
        start_s=chance.choice([0.0, 0.25]),
        losses=[(float(chance.randint(5, 12)), lasting + i) for i in range(2) if chance.random() < 0.5],
    )
    called = name_of(packer)
    decider = Decider(_Timed(packer, called), called)
    turns = 0
    while not state.finished:
        turn(state, world, NoLog(), decider, world.wait())
        turns += 1
        if turns > TURNS_PER_TASK * len(tasks):
            raise _Endless(f"packer {called}: after {turns} turns {len(tasks)} tasks are still not done")


def _nodes(chance: Random) -> list[Node]:
    """Nodes that are there from the beginning to the end."""
    kinds = [
        Node(
            "", chance.choice([1, 2, 4, 8]), chance.choice([0, 0, 2]), chance.choice([0, 1000]), _licences(chance), kind
        )
        for kind in ("", "big")[: chance.randint(1, 2)]
    ]
    found: list[Node] = []
    for kind in kinds:
        for _ in range(chance.randint(1, 4)):
            found.append(Node(f"n{len(found)}", kind.cores, kind.gpus, kind.memory_mib, kind.named, kind.kind))
    return found


def _licences(chance: Random) -> tuple[tuple[str, int], ...]:
    return chance.choice([(), (), (("licence", 2),)])


def _study(chance: Random, nodes: list[Node]) -> tuple[list[Step], list[Task]]:
    """Tasks that fit on the nodes, except for one that never does; all succeed at the second attempt at the latest."""
    steps = [
        Step(f"step{i}", _needs(chance, nodes), retries=1, priority=chance.choice([0.0, 0.0, 1.0]))
        for i in range(chance.randint(1, 6))
    ]
    tasks = []
    for number in range(chance.randint(1, 40)):
        parents = chance.sample(range(number), min(number, chance.choice([0, 0, 0, 1, 1, 2])))
        tasks.append(
            Task(f"task{number}", chance.randrange(len(steps)), tuple(sorted(parents)), float(chance.randint(1, 9)))
        )
    if chance.random() < 0.3:
        steps.append(Step(IMPOSSIBLE, Needs(cores=1000)))
        tasks.append(Task(IMPOSSIBLE, len(steps) - 1))
    return steps, tasks


def _needs(chance: Random, nodes: list[Node]) -> Needs:
    """Something that fits on the emptied node drawn, and on others like it."""
    node = chance.choice(nodes)
    alike = sum(n.cores == node.cores and n.kind == node.kind for n in nodes)
    return Needs(
        cores=chance.randint(1, node.cores),
        nodes=chance.choice([1, 1, 1, chance.randint(1, alike)]),
        gpus=chance.choice([0, chance.randint(0, node.gpus)]),
        memory_mib=chance.choice([0, chance.randint(0, node.memory_mib)]),
        named=chance.choice([(), tuple((name, 1) for name, _ in node.named)]),
        kind=chance.choice(["", node.kind]),
        whole_nodes=chance.random() < 0.1,
    )


class _Timed:
    """The packer, ended when it computes for too long between two decisions."""

    def __init__(self, packer: Policy, called: str) -> None:
        self._packer = packer
        self._called = called

    def __call__(self, plan: Plan) -> Any:
        found = self._bounded(lambda: self._packer(plan))
        try:
            decisions = iter(found)
        except TypeError:
            return found  # the guard tells what that is
        return self._each(decisions)

    def _each(self, decisions: Iterator[Decision]) -> Iterator[Decision]:
        while True:
            try:
                decision = self._bounded(lambda: next(decisions))
            except StopIteration:
                return
            yield decision

    def _bounded(self, call: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return call()
        # the timer of the process's own computing: a busy machine does not make a packer slow, and no test tool uses it
        before = signal.signal(signal.SIGVTALRM, self._too_long)
        signal.setitimer(signal.ITIMER_VIRTUAL, STEP_CPU_S)
        try:
            return call()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def _too_long(self, _number: int, frame: FrameType | None) -> None:
        place = f" ({Path(frame.f_code.co_filename).name}, line {frame.f_lineno})" if frame else ""
        raise _Endless(f"packer {self._called}: it has computed for {STEP_CPU_S:g} s without a decision{place}")
