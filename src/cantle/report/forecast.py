"""How would a study go on machines that need not exist? A run in simulated time, and the bound that it is measured against."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cantle.allocations.groups import parse_groups
from cantle.core.decide import Decider
from cantle.core.packing import best_fit
from cantle.core.plan import Policy
from cantle.core.state import State
from cantle.errors import RequestError
from cantle.model.records import StudyAdded, TasksAdded
from cantle.model.resources import Node
from cantle.model.study import Limits, Study
from cantle.report.durations import Durations, durations_of
from cantle.report.recorder import Recorder
from cantle.report.timeline import Timeline, bounds_of
from cantle.runtime.loop import run
from cantle.runtime.simulated import Fate, SimulatedWorld


class Chances(msgspec.Struct, frozen=True, kw_only=True):
    """What may happen in the simulation, as in `SimulatedWorld`. `losses` are (second, node number)."""

    seed: int = 0
    jitter: float = 0.0
    failures: float = 0.0
    start_delay_s: float = 0.0
    losses: tuple[tuple[float, int], ...] = ()


class Forecast(msgspec.Struct):
    """How it went. Seconds since the start.

    `critical_path_s` and `area_core_s` are of what was done, as long as it really took, each task on the width that is best
    for the one or the other: no schedule of that on `cores` cores could have ended before `bound_s`. `utilisation` is the
    share of the cores' time in which tasks held them.
    """

    state: State
    end_s: float
    cores: int
    utilisation: float
    critical_path_s: float
    area_core_s: float
    guessed: int
    """Tasks about whose duration the study says nothing."""
    timeline: Timeline

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
    durations: Durations | None = None,
) -> Forecast:
    """Run the study in simulated time. Tasks take `durations`: by default as estimated, `default_s` where nobody says."""
    expected = durations or durations_of(study, default_s)
    tasks = [
        msgspec.structs.replace(task, estimate_s=seconds)
        for task, seconds in zip(study.tasks, expected.seconds, strict=True)
    ]
    state = State()
    state.apply(
        StudyAdded(0.0, study.name, study.steps, limits=limits, slicing=study.slicing, partitions=study.partitions)
    )
    state.apply(TasksAdded(0.0, 0, tasks))

    def fate(task: int, _attempt: int) -> Fate:
        """What is left of it: who is restarted when his time is up goes on where he was."""
        seconds = expected.at(tasks, task, len(state.running[task].on))
        return Fate(max(0.0, seconds - state.restarts.get(task, 0) * state.step_of(task).walltime_s))

    world = SimulatedWorld(
        state,
        [(0.0, nodes)],
        fate,
        seed=chances.seed,
        start_s=chances.start_delay_s,
        jitter=chances.jitter,
        failures=chances.failures,
        losses=chances.losses,
    )
    recorder = Recorder(state)
    if tasks:
        run(state, world, recorder, Decider(packer or best_fit, lines=False))
    end = max(state.ended_at, default=0.0)
    timeline = recorder.finish(end)
    cores = sum(node.cores for node in nodes)
    chain, area = bounds_of(timeline, expected.factors)
    return Forecast(state, end, cores, timeline.utilisation, chain, area, expected.assumed, timeline)


def parse_nodes(text: str, study: Study, memory_mib: int | None) -> list[Node]:
    """Nodes from `10x8`, `10x8:2` (GPUs), `2x64+10x8:2@gpu` (kind; a comma joins as well). Raises RequestError.

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


def ending(nodes: list[Node], ends_in_s: float | None) -> list[Node]:
    """The same nodes, held for so many seconds only; None: for ever."""
    return nodes if not ends_in_s else [msgspec.structs.replace(node, ends_at=ends_in_s) for node in nodes]


def parse_losses(texts: Sequence[str], nodes: list[Node]) -> tuple[tuple[float, int], ...]:
    """Losses from `120:3` or `120:node3`: at this second, that node. Raises RequestError."""
    names = {node.name: number for number, node in enumerate(nodes)} | {str(n): n for n in range(len(nodes))}
    losses = []
    for text in texts:
        moment, _, name = text.partition(":")
        try:
            if not 0 <= float(moment) < float("inf"):
                raise ValueError
            losses.append((float(moment), names[name]))
        except ValueError:
            raise RequestError(f"--lose {text}: write SECOND:NODE, as in 120:3") from None
        except KeyError:
            raise RequestError(f"--lose {text}: there are the nodes 0 to {len(nodes) - 1}") from None
    return tuple(losses)
