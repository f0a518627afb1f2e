"""Random runs: a study, nodes, fates and mishaps, told in the simulated world and checked while they are told.

A `Plot` is what hypothesis draws; `tell` runs it to its end. A `Witness` follows the records with books of its own, which
know nothing of the state's, and objects to whatever must never happen.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from hypothesis import strategies as st

from builders import CheckedState, Job, study_records
from cantle.core.decide import Decider
from cantle.core.lifetimes import needs_s
from cantle.core.phases import OVER, Phase
from cantle.core.queues import KNOWN_AFTER, LONGEST_LINE, MOMENT_S
from cantle.core.state import State
from cantle.model.records import (
    AnyRecord,
    CancelAsked,
    Event,
    Launch,
    LimitsChanged,
    NodeDrainAsked,
    NodeLost,
    NodeResumeAsked,
    NodesJoined,
    Outcome,
    Refuse,
    RunResumed,
    StopAsked,
    StudyChanged,
    TaskEnded,
    TaskStarted,
)
from cantle.model.resources import Needs, Node, Place, indexes, list_to_mask
from cantle.model.study import Limits, PartitionWish, Slicing
from cantle.runtime.loop import NoLog, turn
from cantle.runtime.simulated import Fate, SimulatedWorld

PATIENCE = 5
"""From this attempt on every attempt succeeds, so that each plot has an end."""

FORERUNNERS = KNOWN_AFTER + 2
"""So many tasks of a quick plot go before, so that it is known how short they are."""

BAD: tuple[Outcome, ...] = ("failed", "timeout", "memory", "lost", "interrupted", "canceled", "unstartable")


class Plot(msgspec.Struct, frozen=True):
    """All that decides how a run goes."""

    jobs: list[Job]
    nodes: list[tuple[float, list[Node]]]
    fates: list[Fate]
    limits: Limits = Limits()
    mishaps: list[Event] = []
    start_s: float = 0.0
    tell_starts_after_s: float = float("inf")
    partitions: tuple[PartitionWish, ...] = ()
    slicing: Slicing | None = None
    agent_s: float = 0.0

    def opening(self) -> list[AnyRecord]:
        """How the run begins, before anything happens."""
        return study_records(self.jobs, self.limits, partitions=self.partitions, slicing=self.slicing)

    def fate(self, task: int, attempt: int) -> Fate:
        """What becomes of this attempt: one of the drawn fates."""
        fate = self.fates[(task * 7 + attempt * 3) % len(self.fates)]
        return fate if attempt < PATIENCE else Fate(min(fate.duration_s, 1.0))


class QuickPlot(Plot, frozen=True):
    """A plot of tasks that are over in a moment, which the first of them give to know."""

    def fate(self, task: int, attempt: int) -> Fate:
        """The first tasks have good fates, the others those that were drawn."""
        return Fate(0.001) if task < FORERUNNERS else super().fate(task, attempt)


class Witness(CheckedState):
    """A state whose records are checked against books kept apart from it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: set[int] = set()
        self.attempts_begun: set[tuple[int, int]] = set()
        self.under_way: dict[int, Launch] = {}
        self.in_turn: dict[tuple[Place, ...], list[int]] = {}
        self.stopped = False
        self.failed_fast = False

    def apply(self, record: AnyRecord) -> None:
        """Object to what must never happen, then apply."""
        if isinstance(record, Launch):
            self._object_to_launch(record)
            self.attempts_begun.add((record.task, record.attempt))
            self.under_way[record.task] = record
            self.in_turn.setdefault(record.on, []).append(record.task)
        elif isinstance(record, TaskEnded):
            launch = self.under_way.get(record.task)
            if launch is not None and launch.attempt == record.attempt:
                del self.under_way[record.task]
                if record.started or record.outcome in ("done", "failed", "timeout", "memory"):
                    assert self._had_its_parents(record.task), "began before its parents were done"
                if record.outcome == "done":
                    assert record.task not in self.done, "done twice"
                    self.done.add(record.task)
        elif isinstance(record, TaskStarted):
            launch = self.under_way.get(record.task)
            if launch is not None and launch.attempt == record.attempt:
                assert self._had_its_parents(record.task), "began before its parents were done"
        elif isinstance(record, NodeLost):
            for task, launch in list(self.under_way.items()):
                if any(place.node == record.node for place in launch.on):
                    del self.under_way[task]
        elif isinstance(record, RunResumed):
            self.under_way.clear()
            self.stopped = False
        elif isinstance(record, StopAsked):
            self.stopped = True
        elif isinstance(record, Refuse):
            assert record.task not in self.under_way and record.task not in self.done
            assert not self.awaited, "nothing is called impossible while nodes are awaited"
        super().apply(record)
        for takers in self.in_turn.values():
            takers[:] = [task for task in takers if task in self.under_way]
        if self._may_undo(record):
            self.done = {task for task in self.done if self.phases[task] == Phase.DONE}
        assert set(self.under_way) == set(self.running)
        assert self.done == {task for task, phase in enumerate(self.phases) if phase == Phase.DONE}

    def _had_its_parents(self, task: int) -> bool:
        return self.done.issuperset(self.tasks[task].parents)

    def _may_undo(self, record: AnyRecord) -> bool:
        """Whether what was done may have to be done again after that."""
        return isinstance(record, StudyChanged)

    def _object_to_launch(self, launch: Launch) -> None:
        task = launch.task
        row = self.tasks[task]
        assert not self.stopped, "launched after the stop"
        study = self.study_of(task)
        assert not study.failing, "launched after the failure that ends all"
        assert task not in self.under_way and task not in self.done
        assert (task, launch.attempt) not in self.attempts_begun, "one attempt launched twice"
        assert launch.attempt == 1 + max((a for t, a in self.attempts_begun if t == task), default=0)
        ahead = self.under_way.get(launch.behind) if launch.if_done and launch.behind is not None else None
        if ahead is not None:
            assert ahead.attempt == launch.if_done and self.in_turn[launch.on][-1] == ahead.task, (
                "right behind its parent"
            )
            assert ahead.task in row.parents and ahead.task not in row.after
        assert self.done.issuperset(set(row.parents) - ({ahead.task} if ahead is not None else set()))
        assert all(self.phases[p] in OVER for p in row.after)
        throttle = study.limits.throttle
        assert not throttle or sum(self.study_of(other) is study for other in self.under_way) < throttle
        self._object_to_places(launch)
        for place in launch.on:
            assert place.node not in self.drained, "launched on a drained node"
            if self.lifetimes is not None:  # what a moldable task gains from more nodes, whoever launches it knows
                until = launch.time + needs_s(self, task, 0.0 if self.step_of(task).widths else None)
                assert until <= self.lifetimes.leaves.get(place.node, until) + 1e-6, "foreseen to outlast its node"

    def _object_to_places(self, launch: Launch) -> None:
        needs = self.step_of(launch.task).needs
        if launch.behind is not None:
            ahead = self.under_way[launch.behind]
            assert ahead.on == launch.on and self.step_of(ahead.task).needs == needs, "who stands in line fits there"
            assert len(self.in_turn[launch.on]) <= LONGEST_LINE
            return
        widths = self.step_of(launch.task).widths or (needs.nodes,)
        assert len({place.node for place in launch.on}) == len(launch.on) and len(launch.on) in widths
        for place in launch.on:
            node = self.room.nodes[place.node]
            here = [
                (self.step_of(t).needs, other)
                for t, begun in self.under_way.items()
                for other in begun.on
                if other.node == place.node and self.in_turn[begun.on][0] == t
            ]
            cores = [i for _, other in here for i in indexes(list_to_mask(other.cores))]
            gpus = [i for _, other in here for i in indexes(list_to_mask(other.gpus))]
            mine = indexes(list_to_mask(place.cores))
            assert len(mine) >= needs.cores and not set(mine) & set(cores) and max(mine) < node.cores
            my_gpus = indexes(list_to_mask(place.gpus))
            assert len(my_gpus) >= needs.gpus and not set(my_gpus) & set(gpus)
            assert all(i < node.gpus for i in my_gpus)
            assert needs.memory_mib + sum(n.memory_mib for n, _ in here) <= node.memory_mib or not needs.memory_mib
            assert not (needs.whole_nodes and here) and not any(n.whole_nodes for n, _ in here)
            assert needs.kind in ("", node.kind)


def begin(plot: Plot) -> Witness:
    """The run with its study, before anything happens."""
    state = Witness()
    for record in plot.opening():
        state.apply(record)
    return state


def world_of(plot: Plot, state: State, mishaps: Iterable[Event] = (), nodes_at: float | None = None) -> SimulatedWorld:
    """The world in which the plot takes place; with `nodes_at`, all nodes come up then."""
    groups = groups_of(plot, nodes_at)
    world = SimulatedWorld(state, groups, plot.fate, start_s=plot.start_s, grace_s=0.5)
    world.tell_starts_after_s = plot.tell_starts_after_s
    for event in mishaps:
        world.put(event)
    return world


def groups_of(plot: Plot, nodes_at: float | None = None) -> list[tuple[float, list[Node]]]:
    """The plot's nodes; with `nodes_at`, all of them come up then, to stay."""
    if nodes_at is None:
        return plot.nodes
    return [(nodes_at, [msgspec.structs.replace(n, ends_at=0.0) for _, group in plot.nodes for n in group])]


def go_on(state: State, world: SimulatedWorld, decider: Decider | None = None) -> None:
    """Turn the loop to the end, in far more turns than any plot needs at most."""
    decider = decider or Decider()
    for _ in range(2000):
        if state.finished:
            return
        turn(state, world, NoLog(), decider, world.wait())
    raise AssertionError(f"no end in sight: {state.totals}")


def tell(plot: Plot) -> Witness:
    """The whole story."""
    state = begin(plot)
    go_on(state, world_of(plot, state, plot.mishaps))
    return state


def resume(plot: Plot, state: State, retry: bool = True) -> None:
    """Another conductor goes on with the run, on the same nodes, undisturbed, to the end."""
    state.apply(RunResumed(state.now, "host", 2, retry))
    go_on(state, world_of(plot, state, nodes_at=state.now))


# What hypothesis draws

seconds = st.integers(0, 12).map(lambda n: n / 4)
fates = st.lists(
    st.builds(Fate, seconds, st.sampled_from(("done",) * 14 + BAD)),
    min_size=1,
    max_size=8,
)
good_fates = st.lists(st.builds(Fate, seconds), min_size=1, max_size=8)


@st.composite
def needs(draw: st.DrawFn) -> Needs:
    return Needs(
        draw(st.sampled_from([1, 1, 1, 2, 3])),
        draw(st.sampled_from([1, 1, 1, 1, 2])),
        draw(st.sampled_from([0, 0, 0, 1, 2])),
        draw(st.sampled_from([0, 0, 0, 3, 5])),
        draw(st.sampled_from([(), (), (), (("licence", 1),)])),
        draw(st.sampled_from(["", "", "", "big"])),
        draw(st.sampled_from([False] * 5 + [True])),
    )


@st.composite
def jobs(draw: st.DrawFn, most: int = 10) -> list[Job]:
    found = []
    choices = draw(st.sampled_from([[()], [()], [(), (1, 2), (1, 3), (2, 3)]]))
    for i in range(draw(st.integers(1, most))):
        before = [f"t{n}" for n in range(i)]
        some = st.lists(st.sampled_from(before), max_size=3, unique=True) if before else st.just([])
        found.append(
            Job(
                f"t{i}",
                tuple(draw(some)),
                tuple(draw(some)) if draw(st.integers(0, 2)) == 0 else (),
                draw(needs()),
                draw(seconds),
                draw(st.sampled_from([0, 0, 1, 2])),
                draw(st.booleans()),
                draw(st.sampled_from([0.0, 0.0, 1.0])),
                draw(st.sampled_from([0.0, 0.0, 2.0])),
                widths=draw(st.sampled_from(choices)),
            )
        )
    return found


@st.composite
def some_nodes(draw: st.DrawFn) -> list[Node]:
    return [
        Node(
            f"n{i}",
            draw(st.integers(1, 4)),
            draw(st.sampled_from([0, 1, 2])),
            draw(st.sampled_from([0, 4, 8])),
            draw(st.sampled_from([(), (("licence", 2),)])),
            draw(st.sampled_from(["", "big"])),
        )
        for i in range(draw(st.integers(1, 3)))
    ]


LARGE = [Node(f"large{i}", 4, 2, 16, (("licence", 2),), "big") for i in range(3)]
"""Three nodes on which every job that is drawn can run."""


@st.composite
def mishaps(draw: st.DrawFn, tasks: int, nodes: int) -> Event:
    time = draw(seconds) + draw(st.integers(0, 8))
    kind = draw(
        st.sampled_from(["lose", "lose", "lose", "join", "cancel", "cancel all", "stop", "stop at once", "limits"])
    )
    if kind == "lose":
        return NodeLost(time, draw(st.integers(0, nodes)), "mishap")
    if kind == "join":
        return NodesJoined(time, draw(some_nodes()))
    if kind == "cancel":
        return CancelAsked(time, draw(st.lists(st.integers(0, tasks - 1), min_size=1, max_size=3)), "me")
    if kind == "cancel all":
        return CancelAsked(time)
    if kind == "limits":
        return LimitsChanged(time, draw(limits()))
    return StopAsked(time, "enough", kind == "stop at once")


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    return Limits(
        draw(st.sampled_from([0, 0, 1, 3])),
        draw(st.sampled_from([0, 1, 2])),
        draw(st.sampled_from([False, False, False, True])),
    )


@st.composite
def plots(draw: st.DrawFn) -> Plot:
    """Anything may go wrong."""
    the_jobs = draw(jobs())
    groups = draw(st.lists(st.tuples(seconds, some_nodes()), min_size=1, max_size=3))
    if draw(st.booleans()):
        groups.append((draw(seconds), LARGE))
    number = sum(len(group) for _, group in groups)
    mishap = mishaps(len(the_jobs), number)
    return Plot(
        the_jobs,
        groups,
        draw(fates),
        draw(limits()),
        sorted(draw(st.lists(mishap, max_size=5)), key=lambda event: event.time),
        draw(st.sampled_from([0.0, 0.25])),
    )


@st.composite
def survivable_plots(draw: st.DrawFn) -> Plot:
    """Anything may go wrong, but there is a node for each job, and who is tried often enough succeeds."""
    plot = draw(plots())
    return msgspec.structs.replace(plot, nodes=[*plot.nodes, (0.0, LARGE)])


@st.composite
def quick_plots(draw: st.DrawFn, may_go_wrong: bool = True) -> Plot:
    """Chains and nets of tasks that are over in a moment, most of a kind. Anything may go wrong, or nothing but the tasks."""
    the_jobs = [Job(f"t{i}") for i in range(FORERUNNERS)]
    for i in range(FORERUNNERS, FORERUNNERS + draw(st.integers(2, 14))):
        nearest = (f"t{i - 1}",) if draw(st.integers(0, 5)) else ()
        others = [f"t{n}" for n in range(i - 1)]
        some = st.lists(st.sampled_from(others), max_size=2, unique=True)
        parents = nearest + (tuple(draw(some)) if draw(st.integers(0, 3)) == 0 else ())
        after = tuple(name for name in draw(some) if name not in parents) if draw(st.integers(0, 5)) == 0 else ()
        the_jobs.append(
            Job(
                f"t{i}",
                parents,
                after,
                Needs(draw(st.sampled_from([1, 1, 1, 1, 2]))),
                draw(st.sampled_from([0.0, 0.0, 0.0, 0.0, 1.0])),
                draw(st.sampled_from([0, 0, 1])) if may_go_wrong else 0,
                may_go_wrong and draw(st.booleans()),
            )
        )
    scale = draw(st.sampled_from([0.001, 0.002, 0.01]))
    drawn = [Fate(fate.duration_s * scale, fate.outcome) for fate in draw(fates)]
    if draw(st.integers(0, 3)) == 0:
        drawn.append(Fate(1.0))
    the_nodes = draw(st.sampled_from([LARGE, [Node("small", 2)], [Node("a", 2), Node("b", 3)]]))
    few = draw(st.lists(mishaps(len(the_jobs), len(the_nodes)), max_size=3)) if may_go_wrong else []
    return QuickPlot(
        the_jobs,
        [(0.0, the_nodes)],
        drawn,
        draw(limits()) if may_go_wrong else Limits(),
        sorted((msgspec.structs.replace(e, time=e.time * scale * 2) for e in few), key=lambda event: event.time),
        0.0,
        draw(st.sampled_from([MOMENT_S, float("inf")])),
    )


@st.composite
def survivable_quick_plots(draw: st.DrawFn) -> Plot:
    """The same, with a node for each job, whatever is lost."""
    plot = draw(quick_plots())
    return msgspec.structs.replace(plot, nodes=[*plot.nodes, (0.0, LARGE)])


@st.composite
def mortal(draw: st.DrawFn, base: st.SearchStrategy[Plot]) -> Plot:
    """A plot in which some nodes have an end, and somebody drains some for a while."""
    plot = draw(base)
    lives = st.sampled_from([0.0, 0.0, 0.5, 2.0, 4.0, 10.0])
    groups = [
        (at, [msgspec.structs.replace(n, ends_at=at + life if (life := draw(lives)) else 0.0) for n in group])
        for at, group in plot.nodes
    ]
    names = sorted({n.name for _, group in plot.nodes for n in group})
    acts: list[Event] = []
    for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)):
        time = draw(seconds)
        acts += [NodeDrainAsked(time, name, "me"), NodeResumeAsked(time + draw(seconds), name, "me")]
    events = sorted([*plot.mishaps, *acts], key=lambda event: event.time)
    return msgspec.structs.replace(plot, nodes=groups, mishaps=events)
