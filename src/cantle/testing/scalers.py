"""Does a scaling policy keep the rules, and does each run on its nodes come to an end? Random runs in the simulated world.

def test_my_policy_keeps_the_rules():
    check_scaler(my_policy)
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isgeneratorfunction
from random import Random
from typing import Any

from msgspec.structs import replace

from cantle.core.decide import Decider
from cantle.core.guard import name_of
from cantle.core.invariants import check
from cantle.core.phases import FINAL, Phase
from cantle.core.scaling.settings import Scaling
from cantle.core.scaling.snapshot import snapshot, wishes_in
from cantle.core.state import State
from cantle.errors import CantleBug, PluginError, said_by
from cantle.model.kinds import Kind
from cantle.model.records import AnyRecord, KindsDeclared, NodesAwaited, NodesWished, StudyAdded, TasksAdded
from cantle.model.resources import Needs, Node
from cantle.model.study import Step, Task
from cantle.runtime.loop import NoLog, turn
from cantle.runtime.simulated import Fate, SimulatedWorld
from cantle.runtime.simulated_provider import SimulatedProvider

ASKED_EVERY_S = 2.0
"""A function is asked so often, in simulated time."""
TURNS_PER_TASK = 300
"""A run of so many turns a task does not come to an end."""
CHANGES_PER_TASK = 20
"""Who asks for nodes, withdraws requests and gives nodes back so often goes round in circles."""


def check_scaler(policy: Callable[..., Any], *, seed: int = 0, runs: int = 30) -> None:
    """Check a scaling policy in `runs` random runs; the same seed makes the same runs.

    `policy` is a function of a snapshot that returns wishes, or a generator function of a plan that yields decisions. Tasks,
    kinds, delays and refusals are drawn by chance. It has to return or yield what makes sense, raise nothing, and change
    nothing itself; it may not ask and take back without end. Each run comes to an end, and then every task is done.
    """
    for number in range(seed, seed + runs):
        state = _CheckedState()
        again = f"[second {{:g}} of seed={number}, runs=1]"
        try:
            _run(policy, state, Random(number))
        except (PluginError, CantleBug, _Endless) as problem:
            raise AssertionError(f"{_called(policy)}: {problem} {again.format(state.now)}") from problem
        for task, phase in zip(state.tasks, state.phases, strict=True):
            assert phase == Phase.DONE, (
                f"{_called(policy)}: in the end {task.name} is {phase.name.lower()}, although there could be nodes for it "
                + again.format(state.now)
            )


class _Endless(Exception):
    """The run does not come to an end."""


class _CheckedState(State):
    def apply(self, record: AnyRecord) -> None:
        super().apply(record)
        check(self)


def _called(policy: Callable[..., Any]) -> str:
    return f"scaling policy {name_of(policy)}"


def _run(policy: Callable[..., Any], state: State, chance: Random) -> None:
    kinds = _kinds(chance)
    steps, tasks = _study(chance, kinds)
    state.apply(StudyAdded(0.0, "random", steps))
    state.apply(TasksAdded(0.0, 0, tasks))
    slow, refusing = chance.choice([0.5, 1.0, 3.0]), chance.choice([0, 0, 3])
    provider = SimulatedProvider(
        refuses=lambda _kind, request, count: count if refusing and request % refusing == 1 else 0,
        starts_in=lambda kind, _request: kind.starts_in_s * slow,
    )
    there = [Node("here", 2)] if chance.random() < 0.3 else []
    world = SimulatedWorld(
        state,
        [(0.0, there)] if there else [],
        lambda task, _attempt: Fate(tasks[task].estimate_s or 5.0),
        provider=provider,
    )
    world.put(NodesAwaited(0.0, len(there)))
    world.put(KindsDeclared(0.0, kinds))
    name = "checked:policy"
    settings = Scaling(policies=(name,), idle_s=2.0, cool_down_s=2.0, retry_s=1.0)
    decider = Decider()
    decider.scaling = settings
    function = None
    if isgeneratorfunction(policy) or isgeneratorfunction(type(policy).__call__):
        decider.scalers = {name: policy}
    else:
        function = _Function(policy, name, settings, world)
    turns = 0
    while not state.finished:
        turn(state, world, NoLog(), decider, world.wait())
        turns += 1
        if function is not None:
            function(state)
        if turns > TURNS_PER_TASK * len(tasks):
            raise _Endless(f"after {turns} turns {len(tasks)} tasks are still not done")
        ledger = state.scaling
        if ledger is not None and len(ledger.requests) > CHANGES_PER_TASK * len(tasks):
            raise _Endless(f"it has asked for nodes {len(ledger.requests)} times for {len(tasks)} tasks")


class _Function:
    """Asks a function of a snapshot now and then, and hands on what it wishes."""

    def __init__(self, function: Callable[..., Any], name: str, settings: Scaling, world: SimulatedWorld) -> None:
        self._function = function
        self._name = name
        self._settings = settings
        self._world = world
        self._next = 0.0
        self._ended = 0
        self._wished: set[str] = set()

    def __call__(self, state: State) -> None:
        ledger = state.scaling
        if ledger is None or state.now < self._next or state.finished:
            return
        self._next = state.now + ASKED_EVERY_S
        seen = snapshot(state, self._settings, state.now, self._ended)
        self._ended = sum(state.totals[phase] for phase in FINAL)
        try:
            wishes = wishes_in(self._function(seen), dict(ledger.kinds))
        except PluginError:
            raise
        except Exception as problem:
            raise PluginError(f"it raised {said_by(problem)}") from problem
        for kind in sorted(self._wished - {wish.kind for wish in wishes}):
            self._world.put(NodesWished(state.now, kind, None, self._name))
        self._wished = {wish.kind for wish in wishes}
        for wish in wishes:
            self._world.put(NodesWished(state.now, wish.kind, wish.count, self._name, wish.why))


def _kinds(chance: Random) -> list[Kind]:
    """One or two kinds; each could hold something of any size that tasks have."""
    cpu = Kind("cpu", chance.choice([2, 4]), most=chance.randint(2, 6), starts_in_s=chance.choice([0.0, 3.0, 30.0]))
    gpu = replace(cpu, name="gpu", gpus=2, cost=3.0, most=chance.randint(1, 3), stays_s=chance.choice([0.0, 10.0]))
    return [cpu, gpu] if chance.random() < 0.5 else [cpu]


def _study(chance: Random, kinds: list[Kind]) -> tuple[list[Step], list[Task]]:
    """Tasks that fit on the kinds."""
    steps = [
        Step(
            f"step{i}",
            Needs(
                cores=chance.randint(1, 2),
                nodes=chance.choice([1, 1, 1, 2]),
                gpus=0,
            ),
        )
        for i in range(chance.randint(1, 4))
    ]
    if len(kinds) > 1:
        steps.append(Step("learn", Needs(gpus=1)))
    tasks = []
    for number in range(chance.randint(1, 30)):
        parents = chance.sample(range(number), min(number, chance.choice([0, 0, 0, 1, 1, 2])))
        estimate_s = chance.choice([0.0, float(chance.randint(1, 20))])
        tasks.append(Task(f"task{number}", chance.randrange(len(steps)), tuple(sorted(parents)), estimate_s))
    return steps, tasks
