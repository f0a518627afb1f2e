"""How would a study go on machines that need not exist? A run in simulated time, and the bound that it is measured against."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cantle.allocations.groups import parse_groups
from cantle.core.bounds import area_core_s, critical_path_s
from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.plan import Policy
from cantle.core.state import State
from cantle.errors import RequestError
from cantle.model.records import AnyRecord, Launch, NodeLost, NodesJoined, StudyAdded, TaskEnded, TasksAdded
from cantle.model.resources import Node
from cantle.model.study import Limits, Study, Task
from cantle.runtime.loop import run
from cantle.runtime.simulated import Fate, SimulatedWorld

_NOTHING_S = 1e-9
"""A duration of nothing; 0 would mean that it is not known."""


class Chances(msgspec.Struct, frozen=True, kw_only=True):
    """What may happen in the simulation, as in `SimulatedWorld`. `losses` are (second, node number)."""

    seed: int = 0
    jitter: float = 0.0
    failures: float = 0.0
    start_delay_s: float = 0.0
    losses: tuple[tuple[float, int], ...] = ()


class Forecast(msgspec.Struct):
    """How it went. Seconds since the start.

    `critical_path_s` and `area_core_s` are of what was done, as long as it really took: no schedule of that on `cores`
    cores could have ended before `bound_s`. `utilisation` is the share of the cores' time in which tasks held them.
    """

    state: State
    end_s: float
    cores: int
    utilisation: float
    critical_path_s: float
    area_core_s: float
    guessed: int
    """Tasks about whose duration the study says nothing."""

    @property
    def bound_s(self) -> float:
        """The longest chain, or the work spread evenly over the cores, whichever is more."""
        return max(self.critical_path_s, self.area_core_s / self.cores if self.cores else 0.0)

    @property
    def ratio(self) -> float | None:
        """How many times the bound it took; None when nothing was done."""
        return self.end_s / self.bound_s if self.bound_s > 1e-6 else None


def forecast(
    study: Study,
    nodes: list[Node],
    limits: Limits,
    chances: Chances,
    default_s: float = 1.0,
    packer: Policy | None = None,
) -> Forecast:
    """Run the study in simulated time. Tasks take as long as they are estimated, `default_s` where nobody says."""
    tasks = [_with_estimate(study, task, default_s) for task in study.tasks]
    guessed = sum(task.estimate_s <= 0 for task in study.tasks)
    state = State()
    state.apply(StudyAdded(0.0, study.name, study.steps, limits=limits))
    state.apply(TasksAdded(0.0, 0, tasks))
    durations = [task.estimate_s for task in tasks]
    world = SimulatedWorld(
        state,
        [(0.0, nodes)],
        lambda task, _attempt: Fate(durations[task]),
        seed=chances.seed,
        start_s=chances.start_delay_s,
        jitter=chances.jitter,
        failures=chances.failures,
        losses=chances.losses,
    )
    meter = _Meter(state)
    if tasks:
        run(state, world, meter, Decider(packer) if packer else Decider())
    done = [_as_it_was(state, number) for number in range(len(tasks))]
    cores = sum(node.cores for node in nodes)
    end = max(state.ended_at, default=0.0)
    return Forecast(
        state,
        end,
        cores,
        meter.busy / meter.there if meter.there else 0.0,
        critical_path_s(done),
        area_core_s(done, study.steps),
        guessed,
    )


def parse_nodes(text: str, study: Study, memory_mib: int | None) -> list[Node]:
    """Nodes from `10x8`, `10x8:2` (GPUs), `2x64,10x8:2@gpu` (kind). Raises RequestError.

    What is not said suffices: without `memory_mib` each node has the memory for all of its cores' tasks, and of named
    resources as well.
    """
    needs = [step.needs for step in study.steps]
    names = sorted({name for need in needs for name, _ in need.named})
    nodes: list[Node] = []
    most = max((need.memory_mib for need in needs), default=0)
    for group in parse_groups(text):
        named = tuple((name, group.cores * max(dict(need.named).get(name, 0) for need in needs)) for name in names)
        memory = most * group.cores if memory_mib is None else memory_mib
        nodes += [
            Node(f"node{number}", group.cores, group.gpus or 0, memory, named, group.kind)
            for number in range(len(nodes), len(nodes) + group.count)
        ]
    return nodes


def parse_losses(texts: Sequence[str], nodes: list[Node]) -> tuple[tuple[float, int], ...]:
    """Losses from `120:3` or `120:node3`: at this second, that node. Raises RequestError."""
    names = {node.name: number for number, node in enumerate(nodes)} | {str(n): n for n in range(len(nodes))}
    losses = []
    for text in texts:
        moment, _, name = text.partition(":")
        try:
            losses.append((float(moment), names[name]))
        except ValueError:
            raise RequestError(f"--lose {text}: write SECOND:NODE, as in 120:3") from None
        except KeyError:
            raise RequestError(f"--lose {text}: there are the nodes 0 to {len(nodes) - 1}") from None
    return tuple(losses)


def _with_estimate(study: Study, task: Task, default_s: float) -> Task:
    if task.estimate_s > 0:
        return task
    limit = study.steps[task.step].walltime_s
    return msgspec.structs.replace(task, estimate_s=max(_NOTHING_S, min(default_s, limit) if limit else default_s))


def _as_it_was(state: State, number: int) -> Task:
    """The task with the duration of its successful attempt as its estimate."""
    took = state.ended_at[number] - state.launched_at[number] if state.phases[number] == Phase.DONE else 0.0
    return msgspec.structs.replace(state.tasks[number], estimate_s=max(_NOTHING_S, took))


class _Meter:
    """Measures how long cores were there and how long tasks held them, in core-seconds. Takes a journal's place."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.busy = 0.0
        self.there = 0.0
        self._cores = 0
        self._held = 0
        self._since = 0.0

    def write(self, record: AnyRecord) -> None:
        """Count what changes with this record, which the state has not taken in yet."""
        state = self.state
        self.until(record.time)
        if isinstance(record, Launch):
            self._held += self._area(record.task)
        elif isinstance(record, TaskEnded):
            launch = state.running.get(record.task)
            if launch is not None and launch.attempt == record.attempt:
                self._held -= self._area(record.task)
        elif isinstance(record, NodesJoined):
            self._cores += sum(node.cores for node in record.nodes)
        elif isinstance(record, NodeLost) and state.room.alive >> record.node & 1:
            self._cores -= state.room.nodes[record.node].cores
            self._held -= sum(map(self._area, state.running_on.get(record.node, ())))

    def flush(self) -> None:
        """Nothing is written anywhere."""

    def until(self, moment: float) -> None:
        """Nothing has changed up to this moment."""
        passed = moment - self._since
        if passed > 0:
            self.there += passed * self._cores
            self.busy += passed * self._held
            self._since = moment

    def _area(self, task: int) -> int:
        return self.state.step_of(task).needs.area
