"""Small builders that let tests of the core read as sentences.

A `Story` is a state with the records that made it; tasks and nodes go by their names. It checks the invariants after each
record, so every test that tells a story tests them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from cantle.core.decide import Decider
from cantle.core.invariants import check
from cantle.core.phases import Phase
from cantle.core.queues import KNOWN_AFTER
from cantle.core.room import Room
from cantle.core.state import State
from cantle.model.records import (
    AnyRecord,
    CancelAsked,
    Decision,
    Launch,
    LimitsChanged,
    NodeLost,
    NodesAwaited,
    NodesJoined,
    Outcome,
    RunResumed,
    RunStarted,
    Stop,
    StopAsked,
    StudyAdded,
    StudyChanged,
    TaskEnded,
    TasksAdded,
    TaskStarted,
)
from cantle.model.resources import Needs, Node
from cantle.model.study import Limits, PartitionWish, Slicing, Step, Task

NO_LIMITS = Limits()


class Job(msgspec.Struct, frozen=True):
    """A task together with a step of its own; parents go by name."""

    name: str
    parents: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    needs: Needs = Needs()
    estimate_s: float = 0.0
    retries: int = 0
    restartable: bool = False
    priority: float = 0.0
    walltime_s: float = 0.0
    partition: str = ""
    widths: tuple[int, ...] = ()
    streams: int = 0
    local: tuple[str, ...] = ()


def job(name: str, parents: str = "", after: str = "", **rest: Any) -> Job:
    """`job("c", "a b", cores=2)`: c has the parents a and b and needs two cores. Needs may be given one by one."""
    of_needs = {key: rest.pop(key) for key in list(rest) if key in Needs.__struct_fields__}
    needs = Needs(**of_needs) if of_needs else rest.pop("needs", Needs())
    return Job(name, tuple(parents.split()), tuple(after.split()), needs, **rest)


def node(name: str = "n0", cores: int = 1, **rest: Any) -> Node:
    """A node."""
    return Node(name, cores, **rest)


def nodes(n: int, cores: int = 1, **rest: Any) -> list[Node]:
    """n alike nodes, n0, n1 …"""
    return [Node(f"n{i}", cores, **rest) for i in range(n)]


def step_of(job: Job) -> Step:
    """The step of its own."""
    return Step(
        "step",  # one row for people
        msgspec.structs.replace(job.needs, nodes=job.widths[0]) if job.widths else job.needs,
        "",
        job.walltime_s,
        job.retries,
        restartable=job.restartable,
        priority=job.priority,
        partition=job.partition,
        widths=job.widths,
        streams=job.streams,
        local=job.local,
    )


def study_records(
    jobs: Sequence[Job],
    limits: Limits = NO_LIMITS,
    time: float = 0.0,
    partitions: tuple[PartitionWish, ...] = (),
    slicing: Slicing | None = None,
) -> list[AnyRecord]:
    """The records by which a study of these jobs enters a run that has none yet. Steps that are alike are one."""
    numbers = {j.name: i for i, j in enumerate(jobs)}
    steps: dict[Step, int] = {}
    tasks = []
    for j in jobs:
        step = step_of(j)
        index = steps.setdefault(step, len(steps))
        parents = tuple(numbers[p] for p in j.parents)
        tasks.append(Task(j.name, index, parents, j.estimate_s, tuple(numbers[p] for p in j.after)))
    return [
        RunStarted(time, "run", "0", "host", 1),
        StudyAdded(time, "study", list(steps), limits=limits, partitions=partitions, slicing=slicing),
        TasksAdded(time, 0, tasks),
    ]


class CheckedState(State):
    """A state that keeps its records, and checks its invariants after each."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[AnyRecord] = []

    def apply(self, record: AnyRecord) -> None:
        """Apply, keep, check."""
        super().apply(record)
        self.records.append(record)
        check(self)


class Story:
    """A run told record by record. Time passes by one second with each event."""

    def __init__(
        self,
        *jobs: Job,
        on: Iterable[Node] = (),
        limits: Limits = NO_LIMITS,
        partitions: tuple[PartitionWish, ...] = (),
        slicing: Slicing | None = None,
    ) -> None:
        self.state = CheckedState()
        self.decider = Decider()
        self.number_of = {j.name: i for i, j in enumerate(jobs)}
        for record in study_records(jobs, limits, partitions=partitions, slicing=slicing):
            self.state.apply(record)
        joining = list(on)
        if joining:
            self.join(*joining)

    @property
    def records(self) -> list[AnyRecord]:
        """All that has happened and was decided."""
        return self.state.records

    # What happens

    def happens(self, record: AnyRecord) -> None:
        """Apply it."""
        self.state.apply(record)

    def _next(self) -> float:
        return self.state.now + 1.0

    def join(self, *joining: Node) -> None:
        """Nodes come up."""
        self.happens(NodesJoined(self._next(), list(joining)))

    def await_nodes(self, n: int) -> None:
        """Nodes are on their way."""
        self.happens(NodesAwaited(self._next(), n))

    def lose(self, name: str, reason: str = "gone") -> None:
        """The last node of that name goes away."""
        index = max(i for i, n in self.state.room.nodes.items() if n.name == name)
        self.happens(NodeLost(self._next(), index, reason))

    def start(self, name: str, attempt: int = 0, pid: int = 1) -> None:
        """The process of the current attempt (or of that one) runs."""
        task = self.number_of[name]
        self.happens(TaskStarted(self._next(), task, attempt or self.state.attempts[task], pid))

    def end(self, name: str, outcome: Outcome = "done", attempt: int = 0, detail: str = "", kept: int = 0) -> None:
        """The current attempt (or that one) ends; so many bytes that it made live on its node."""
        task = self.number_of[name]
        attempt = attempt or self.state.attempts[task]
        self.happens(TaskEnded(self._next(), task, attempt, outcome, detail=detail, kept=kept))

    def cancel(self, *names: str, by: str = "") -> None:
        """Somebody cancels these tasks; everything when none is named."""
        self.happens(CancelAsked(self._next(), [self.number_of[n] for n in names] or None, by))

    def stop(self, reason: str = "Ctrl-C", at_once: bool = False) -> None:
        """The run is to be stopped."""
        self.happens(StopAsked(self._next(), reason, at_once))

    def limit(self, limits: Limits) -> None:
        """The bounds change."""
        self.happens(LimitsChanged(self._next(), limits))

    def resume(self, retry: bool = True, on: Iterable[Node] = ()) -> None:
        """Another conductor takes over; its nodes join."""
        self.happens(RunResumed(self._next(), "host", 2, retry))
        joining = list(on)
        if joining:
            self.join(*joining)

    def change(self, *names: str) -> None:
        """The commands of these tasks changed."""
        self.happens(StudyChanged(self._next(), "other", [self.number_of[n] for n in names]))

    # What is decided

    def decides(self) -> list[Decision]:
        """One pass; its decisions are applied."""
        made = []
        for decision in self.decider.decide(self.state):
            self.state.apply(decision)
            made.append(decision)
        return made

    def launches(self) -> list[str]:
        """One pass; the names of those it launches, in that order. Nothing but launches may be decided."""
        made = self.decides()
        assert all(type(d) is Launch for d in made), made
        return [self.name(d.task) for d in made]

    def runs_through(self, *names: str) -> None:
        """Each in turn is launched, starts and succeeds."""
        for name in names:
            assert name in self.launches()
            self.start(name)
            self.end(name)

    # What is true

    def name(self, task: int) -> str:
        """The task's name."""
        return self.state.tasks[task].name

    def phase(self, name: str) -> Phase:
        """Where the task stands."""
        return self.state.phases[self.number_of[name]]

    def phases(self) -> dict[str, str]:
        """Where all stand, by name, in small letters."""
        return {name: self.state.phases[task].name.lower() for name, task in self.number_of.items()}

    def cause(self, name: str) -> str:
        """Why the task ended as it did."""
        return self.state.cause_of.get(self.number_of[name], "")

    def attempt(self, name: str) -> int:
        """How many attempts were begun."""
        return self.state.attempts[self.number_of[name]]

    def launch_of(self, name: str) -> Launch:
        """The launch of the attempt that is under way."""
        return self.state.running[self.number_of[name]]


FIRST = " ".join(f"w{i}" for i in range(KNOWN_AFTER))
"""The tasks by which it becomes known that their kind is short."""


class QuickStory(Story):
    """A story in which time passes by a millisecond. It begins when all of FIRST are done."""

    def __init__(self, *jobs: Job, on: Node | None = None, **rest: Any) -> None:
        super().__init__(*(job(name) for name in FIRST.split()), *jobs, on=[on or node()], **rest)
        while self.state.totals[Phase.DONE] < KNOWN_AFTER:
            self.decides()
            for task in list(self.state.running):
                self.end(self.name(task))

    def _next(self) -> float:
        return self.state.now + 0.001

    def end(self, name: str, outcome: Outcome = "done", attempt: int = 0, detail: str = "") -> None:
        """The attempt ends a millisecond after it began."""
        task = self.number_of[name]
        number = attempt or self.state.attempts[task]
        self.happens(TaskEnded(self._next(), task, number, outcome, detail=detail, started=self.state.now))

    def ends(self, outcome: Outcome, *names: str) -> None:
        """They end together, in that order."""
        now = self._next()
        for name in names:
            task = self.number_of[name]
            self.happens(TaskEnded(now, task, self.state.attempts[task], outcome))

    def rest(self) -> dict[str, str]:
        """The phases of all but FIRST."""
        return {name: phase for name, phase in self.phases().items() if not name.startswith("w")}

    def runs_on(self) -> None:
        """All that runs succeeds, until nothing is left."""
        while not self.state.finished:
            for decision in self.decides():
                if type(decision) is Stop:
                    self.happens(TaskEnded(self._next(), decision.task, decision.attempt, decision.outcome))
            for task in list(self.state.running)[:1]:
                self.end(self.name(task))


def chain(*names: str, **rest: Any) -> list[Job]:
    """The first stands on FIRST, each other one on the one before."""
    return [job(name, names[i - 1] if i else FIRST, **rest) for i, name in enumerate(names)]


_LAZY = {"records", "queued", "queues", "studies", "living", "room", "news", "partitions", "lines", "keeping"}


def snapshot(state: State) -> dict[str, Any]:
    """All that is publicly known, in a form that can be compared.

    Of a queue it is what stands in it and how, since tasks that left otherwise than by the head are swept out lazily.
    """
    known = {k: v for k, v in vars(state).items() if k not in _LAZY and not k.startswith("_")}
    known = {
        k: list(v.items()) if isinstance(v, dict) else list(v) if isinstance(v, list) else v for k, v in known.items()
    }
    known["counts"] = [list(row) for row in state.counts]
    known["children"] = [list(found) if found else found for found in state.children]
    known["running_on"] = {n: list(tasks) for n, tasks in state.running_on.items()}
    known["restart_next"] = set(state.restart_next)
    for name in ("pids", "ran_on", "launched_at", "ended_at"):
        known[name] = list(known[name])
    if state.keeping is not None:
        known["keeping"] = (list(state.keeping.results.items()), list(state.keeping.again.items()))
    known["queues"] = [(queue.shape, queue.ready(), list(queue.short_lines)) for queue in state.queues]
    known["lines"] = [(task, line.owner, list(line.waiting)) for task, line in state.lines.items()]
    known["studies"] = [
        (s.added, list(s.step_numbers), list(s.tasks), s.grows, s.limits, s.in_progress, s.failing)
        for s in state.studies
    ]
    known["living"] = list(state.living)
    known["homes"] = {home: list(queues) for home, queues in state.homes.items()}
    known["partitions"] = [
        [_copied(getattr(partition, name)) for name in partition.__slots__ if name != "room"] + [_room(partition.room)]
        for partition in state.partitions.all
    ]
    known["room"] = _room(state.room)
    known["trouble"], known["lifetimes"] = deepcopy(state.trouble), deepcopy(state.lifetimes)
    if state.scaling is not None:
        known["scaling"] = {
            k: list(v.items()) if isinstance(v, dict) else deepcopy(v) for k, v in vars(state.scaling).items()
        }
    known["observed"] = [(n, list(seen.moves), dict(seen.means)) for n, seen in state.observed.items()]
    return known


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, dict) else value


def _room(room: Room) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for k, v in vars(room).items():
        if isinstance(v, dict):
            known[k] = {i: _copied(x) if not isinstance(x, dict) else dict(x) for i, x in v.items()}
        else:
            known[k] = list(v) if isinstance(v, list) else v
    return known
