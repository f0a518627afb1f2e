"""Random runs in which nodes are carved: partitions, slices, widths, and people who ask for some and take others away.

What waits for a person waits for ever. So when nothing more would happen, the person of these plots makes again what somebody
took away and tasks still want, and takes away what holds nodes only because somebody asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from hypothesis import strategies as st
from plots import LARGE, Plot, Witness, go_on, groups_of, mishaps, plots

from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.model.records import (
    Event,
    Launch,
    PartitionAsked,
    PartitionCancelAsked,
    PartitionDrainAsked,
    PartitionFailed,
    PartitionResizeAsked,
    RunResumed,
)
from cantle.model.study import PartitionWish, Slice, Slicing
from cantle.runtime.simulated import SimulatedWorld

NAMES = ("p0", "p1", "p2")
MOST_ACTS = 60
"""So often the person does something before the run is called endless."""


class CarvedWitness(Witness):
    """Objects as well when a task runs in another partition than in its own."""

    def _object_to_places(self, launch: Launch) -> None:
        super()._object_to_places(launch)
        wanted = self.step_of(launch.task).partition
        if launch.partition < 0:
            assert not wanted and not self.is_sliced(self.queue_of(launch.task).shape), "runs outside"
            return
        partition = self.partitions.all[launch.partition]
        assert partition.serves
        if partition.element is None:
            assert partition.name == wanted
        else:
            assert wanted == partition.holder and len(launch.on) == partition.width
        assert {place.node for place in launch.on} <= set(partition.nodes())


class CarvedWorld(SimulatedWorld):
    """A world with a person in it, and with agents that may break."""

    acts = 0

    def wait(self) -> list[Event]:
        """What happens next; when nothing would, what the person does."""
        if not self._heap:
            self._act()
        known = len(self.state.partitions.all)
        return [e for e in super().wait() if not isinstance(e, PartitionFailed) or e.partition < known]

    def _act(self) -> None:
        self.acts += 1
        if self.acts <= MOST_ACTS and not self.state.stopping:
            self._do_something(self.state.now + 0.25)

    def _do_something(self, now: float) -> bool:
        """Put into the world what the person does next. Whether there was anything."""
        return self._make_again(now) or self._take_away(now)

    def _make_again(self, now: float) -> bool:
        state, of = self.state, self.state.partitions
        living = {partition.name for partition in of.by_name.values()}
        for name in sorted({*(name for _, name in of.withheld), *(p.name for p in of.all if p.by)}):
            if name not in living and any(state.queues[n].head() is not None for n in state.homes.get(name, ())):
                declared = [wish for study in state.studies for wish in study.added.partitions if wish.name == name]
                last = next((p for p in reversed(of.all) if p.name == name and p.by == "me"), None)
                if not declared or (last is not None and last.standing == Standing.FAILED):
                    declared = [PartitionWish(name)]  # after losses there may not be as many nodes as were declared
                self.put(PartitionAsked(now, declared[0], by="me"))
                return True
        return False

    def _take_away(self, now: float) -> bool:
        for partition in self.state.partitions.living.values():
            if partition.by and not partition.over:
                self.put(PartitionDrainAsked(now, partition.name, "me", partition.study))
                return True
        return False


@st.composite
def wishes(draw: st.DrawFn, name: str) -> PartitionWish:
    cores = draw(st.sampled_from([0, 0, 1, 2, 3]))
    return PartitionWish(
        name,
        draw(st.integers(1, 4)),
        cores,
        draw(st.sampled_from([0, 1])) if cores else 0,
        kind=draw(st.sampled_from(["", "", "", "big"])),
        layout=draw(st.sampled_from(["any", "any", "contiguous", "spread"])),
    )


@st.composite
def slicings(draw: st.DrawFn) -> Slicing | None:
    if draw(st.booleans()):
        return None
    one = st.builds(Slice, st.integers(1, 3), st.integers(1, 2), st.sampled_from([0, 0, 1, 2]))
    return Slicing(tuple(draw(st.lists(one, min_size=1, max_size=3))), 0, draw(st.sampled_from([0, 0, 1, 2])))


@st.composite
def acts(draw: st.DrawFn) -> Event:
    """What somebody asks about partitions, or an agent that breaks."""
    time = draw(st.integers(0, 40)) / 4
    name = draw(st.sampled_from(NAMES))
    kind = draw(st.sampled_from(["ask", "resize", "resize", "drain", "cancel", "fail", "fail"]))
    if kind == "ask":
        return PartitionAsked(time, draw(wishes(name)), by="you")
    if kind == "resize":
        return PartitionResizeAsked(time, name, draw(st.integers(1, 4)), "you")
    if kind == "drain":
        return PartitionDrainAsked(time, name, "you")
    if kind == "cancel":
        return PartitionCancelAsked(time, name, "you")
    return PartitionFailed(time, draw(st.integers(0, 5)), "it broke")


@st.composite
def carved_plots(draw: st.DrawFn, survivable: bool = False) -> Plot:
    """Anything may go wrong, with the nodes, with the tasks and with what is carved out of the nodes."""
    plot = draw(plots())
    homes = draw(st.sampled_from([("",), ("", "p0"), ("", "p0", "p0", "p1"), ("p0", "p1", "p2")]))
    jobs = [msgspec.structs.replace(job, partition=draw(st.sampled_from(homes))) for job in plot.jobs]
    declared = tuple(draw(wishes(name)) for name in NAMES if draw(st.integers(0, 5)))
    number = sum(len(group) for _, group in plot.nodes)
    mishap = acts() | acts() | mishaps(len(jobs), number)
    nodes = plot.nodes
    if survivable:
        declared = tuple(PartitionWish(name, 3) for name in NAMES)
        # Large ones alone: a partition that may have any nodes could have others, on which its tasks can never run.
        nodes = [*((at, LARGE) for at, _ in nodes), (0.0, LARGE)]
    return msgspec.structs.replace(
        plot,
        jobs=jobs,
        nodes=nodes,
        partitions=declared,
        slicing=draw(slicings()) if not survivable else None,
        mishaps=sorted(draw(st.lists(mishap, max_size=6)), key=lambda event: event.time),
        agent_s=draw(st.sampled_from([0.0, 0.0, 0.25])),
    )


def carved_world_of(
    plot: Plot, state: State, mishaps: Iterable[Event] = (), nodes_at: float | None = None
) -> CarvedWorld:
    """The world in which the plot takes place; with `nodes_at`, all nodes come up then."""
    groups = groups_of(plot, nodes_at)
    world = CarvedWorld(state, groups, plot.fate, start_s=plot.start_s, grace_s=0.5, agent_s=plot.agent_s)
    for event in mishaps:
        world.put(event)
    return world


def tell_carved(plot: Plot) -> CarvedWitness:
    """The whole story."""
    state = CarvedWitness()
    for record in plot.opening():
        state.apply(record)
    go_on(state, carved_world_of(plot, state, plot.mishaps))
    return state


def resume_carved(plot: Plot, state: State, retry: bool = True) -> None:
    """Another conductor goes on with the run, on the same nodes, undisturbed, to the end."""
    state.apply(RunResumed(state.now, "host", 2, retry, len(state.partitions.all)))
    go_on(state, carved_world_of(plot, state, nodes_at=state.now))
