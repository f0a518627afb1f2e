"""How do the nodes of a graph idle, and what does each way to hold them cost? Runs of a graph in the core, simulated.

The published rows were made by giving each task the fullest node, of the idle ones the lowest numbered; the policies watch
the same schedule with the node used that became idle last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hold_graphs import Error, Graph, estimates, in_order

from cantle.core.decide import Decider
from cantle.core.forecast import Forecast, correction
from cantle.core.holding import Holding
from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.ranks import b_levels
from cantle.core.state import State
from cantle.model.records import Decision, Event, StudyAdded, TaskEnded, TasksAdded, TimePassed
from cantle.model.resources import Needs, Node, indexes
from cantle.model.study import Step, Task
from cantle.runtime.loop import NoLog, turn
from cantle.runtime.simulated import Fate, SimulatedWorld

NODES, CORES = 16, 4
ALMOST_0 = 1e-300
"""An estimate of 0 would mean that nobody knows."""


class Told:
    """What one run of a graph told: which nodes worked when, and what each policy paid."""

    def __init__(
        self, end_s: float, work: dict[int, list[list[float]]], paid: dict[tuple[Error, float], float]
    ) -> None:
        self.end_s = end_s
        self.work = work
        self.paid = paid

    @property
    def busy_s(self) -> float:
        """Node seconds of work."""
        return sum(end - begin for spans in self.work.values() for begin, end in spans)

    @property
    def gaps_s(self) -> list[float]:
        """The gaps between two spells of work of a node."""
        return [b[0] - a[1] for spans in self.work.values() for a, b in pairwise(spans)]

    @property
    def tails_s(self) -> list[float]:
        """How long each node that was used idled at the end of the run."""
        return [self.end_s - spans[-1][1] for spans in self.work.values()]

    def optimum_s(self, start_cost_s: float) -> float:
        """The least that could have been paid for the gaps."""
        return sum(min(gap, start_cost_s) for gap in self.gaps_s)

    def price_s(self, start_cost_s: float, hold_s: float) -> float:
        """Of giving back after a fixed time."""
        held = sum(min(gap, hold_s) for gap in (*self.gaps_s, *self.tails_s))
        return held + start_cost_s * sum(gap > hold_s for gap in self.gaps_s)


class Erring:
    """Estimates that are off, and corrected as the state corrects its own."""

    def __init__(self, told: list[float]) -> None:
        self.told = told
        self.done = 0
        self.told_s = 0.0
        self.took_s = 0.0

    def heard(self, task: int, took_s: float) -> None:
        """The task is over."""
        self.done += 1
        self.told_s += self.told[task]
        self.took_s += took_s

    def __call__(self, task: int) -> float:
        """How long the task should take, as far as one knows by now."""
        return self.told[task] * correction(self.done, self.took_s, self.told_s)


class World(SimulatedWorld):
    """What is a billionth of a second apart happens at once, as it did when the published rows were made."""

    def wait(self) -> list[Event]:
        """Of the next moment."""
        events = super().wait()
        while self._heap and self._heap[0][0] <= events[0].time + 1e-9:
            events += super().wait()
        return events


class Policy:
    """One holding with its forecast, told of what the nodes do."""

    def __init__(self, state: State, start_cost_s: float, expected: Erring, ranks: list[float]) -> None:
        self.state = state
        self.holding: Holding[int] = Holding(start_cost_s)
        self.forecast = Forecast(state, expected, ranks)
        self.wake_up_at = math.inf

    def decide(self, ready: bool) -> float | None:
        """When to ask again, None when that need not be."""
        if ready:
            return None
        held = len(self.holding.held)
        left = self.state.totals[Phase.WAITING] > 0
        verdict = self.holding.decide(
            self.state.now, lambda until: self.forecast.nodes_used(until, held), work_left=left
        )
        self.wake_up_at = math.inf if verdict.wake_up_at is None else verdict.wake_up_at
        return verdict.wake_up_at


def tell(
    graph: Graph, start_costs_s: Sequence[float] = (), errors: Sequence[Error] = (), *, lowest: bool = False
) -> Told:
    """Run the graph once, and let every policy watch. `lowest`: of the idle nodes the lowest numbered is used."""
    graph = in_order(graph)
    cores = sorted({min(cores, CORES) for _, cores, _ in graph})
    steps = [Step(f"{n} cores", Needs(n)) for n in cores]
    rows = [
        Task(f"t{i}", cores.index(min(n, CORES)), parents, max(seconds, ALMOST_0))
        for i, (seconds, n, parents) in enumerate(graph)
    ]
    state = State()
    state.apply(StudyAdded(0.0, "bench", steps))
    for queue in state.queues:
        queue.breadth = 0.0  # the published rows know the longest chain alone, and keep no room
    state.apply(TasksAdded(0.0, 0, rows))
    nodes = [Node(f"n{i}", CORES) for i in range(NODES)]
    world = World(state, [(0.0, nodes)], lambda task, _: Fate(graph[task][0]))
    last_idle: dict[int, float] = {}
    decider = Decider(lines=False, orders=False)
    if not lowest:
        decider.packer = lambda plan: _last_idle_first(plan, last_idle)
    policies = {}
    erring: dict[Error, Erring] = {}
    for error in errors:
        expected = erring[error] = Erring(estimates(graph, error))
        ranks = b_levels(
            [Task("", 0, row.parents, max(e, ALMOST_0)) for row, e in zip(rows, expected.told, strict=True)], 0
        )
        for cost in start_costs_s:
            policies[error, cost] = Policy(state, cost, expected, ranks)
    work: dict[int, list[list[float]]] = {}
    idle = (1 << NODES) - 1
    while not state.finished:
        events = world.wait()
        for event in events:
            if type(event) is TaskEnded:
                for known in erring.values():
                    known.heard(event.task, graph[event.task][0])
        turn(state, world, NoLog(), decider, events)
        idle = _note(state, idle, work, last_idle, policies)
        _ask(state, world, events, policies)
    for spans in work.values():
        if len(spans[-1]) == 1:
            spans[-1].append(state.now)
    return Told(state.now, work, {key: policy.holding.cost.total_s for key, policy in policies.items()})


def _note(
    state: State,
    idle_before: int,
    work: dict[int, list[list[float]]],
    last_idle: dict[int, float],
    policies: dict[tuple[Error, float], Policy],
) -> int:
    idle = state.room.untouched
    changed = idle ^ idle_before
    for node in indexes(~idle & ((1 << NODES) - 1)):
        last_idle[node] = math.inf  # until it is seen idle: who becomes idle within a turn became so last
    for node in indexes(changed):
        if idle >> node & 1:
            if node in work:
                work[node][-1].append(state.now)
                last_idle[node] = state.now
                for policy in policies.values():
                    policy.holding.idle(node, state.now)
        else:
            spans = work.setdefault(node, [])
            if spans and state.now - spans[-1][1] < 1e-9:
                spans[-1].pop()
            else:
                spans.append([state.now])
            for policy in policies.values():
                policy.holding.busy(node, state.now)
    return idle


def _ask(state: State, world: World, events: list[Event], policies: dict[tuple[Error, float], Policy]) -> None:
    happened = any(type(event) is not TimePassed for event in events)
    ready = state.totals[Phase.READY] > 0
    for policy in policies.values():
        if happened or state.now >= policy.wake_up_at:
            at = policy.decide(ready)
            if at is not None:
                world.put(TimePassed(at))


def _last_idle_first(plan: Plan, last_idle: dict[int, float]) -> Iterator[Decision]:
    """As `best_fit`, but of the idle nodes the one that became idle last, and a new one only when there is none."""
    room = plan.room
    used_before = [index for index in indexes(room.untouched) if index in last_idle]
    chosen = sorted(used_before, key=lambda index: (last_idle[index], -index))
    for queue in plan.by_urgency():
        task = queue.head()
        assert task is not None
        needs = queue.shape.needs
        fitting = room.fitting(needs)
        partly = fitting & ~room.untouched
        node = None
        if partly:
            node = next(found for nodes in room.by_cores[needs.cores :] if (found := nodes & partly))
            node = (node & -node).bit_length() - 1
        elif fitting:
            while chosen and not room.untouched >> chosen[-1] & 1:
                chosen.pop()
            node = chosen.pop() if chosen else (fitting & -fitting).bit_length() - 1
        if node is not None:
            yield plan.launch(task, (room.place(node, needs),))
