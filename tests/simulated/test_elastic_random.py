"""Whatever the work, the kinds, the provider's whims and the policy: rules that hold in each run."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import Job, job
from tests.simulated.growing_rig import POLICIES, Elastic, elastic

from cantle.core.phases import FINAL
from cantle.core.scaling.settings import Scaling
from cantle.model.kinds import Kind
from cantle.model.records import (
    Launch,
    NodeLost,
    NodesJoined,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    TaskEnded,
    WithdrawRequest,
)
from cantle.model.resources import Node
from cantle.model.study import Limits
from cantle.runtime.simulated_provider import SimulatedProvider

TROUBLE = 40
"""So many requests the provider treats as it likes. One that did so for ever could see to it that no gang ever meets."""


@st.composite
def workflows(draw: st.DrawFn) -> list[Job]:
    jobs: list[Job] = []
    for i in range(draw(st.integers(1, 12))):
        parents = draw(st.sets(st.integers(0, i - 1), max_size=2)) if i else set()
        gpus = draw(st.sampled_from((0, 0, 0, 1)))
        jobs.append(
            job(
                f"t{i}",
                " ".join(f"t{parent}" for parent in sorted(parents)),
                cores=draw(st.integers(1, 3)),
                nodes=draw(st.sampled_from((1, 1, 1, 2, 3))),
                gpus=gpus,
                estimate_s=draw(st.sampled_from((0.0, 1.0, 5.0, 30.0))),
                retries=draw(st.integers(0, 1)),
            )
        )
    return jobs


@st.composite
def kinds(draw: st.DrawFn) -> list[Kind]:
    found = []
    for name in draw(st.sampled_from((["cpu"], ["gpu"], ["cpu", "gpu"], ["small", "cpu", "gpu"]))):
        found.append(
            Kind(
                name,
                {"small": 1, "cpu": 3, "gpu": 4}[name],
                gpus=1 if name == "gpu" else 0,
                least=draw(st.sampled_from((0, 0, 1))),
                most=draw(st.integers(1, 5)),
                starts_in_s=draw(st.sampled_from((0.0, 2.0, 30.0))),
                cost=draw(st.sampled_from((1.0, 3.0))),
                lasts_s=draw(st.sampled_from((0.0, 0.0, 200.0))),
                block=draw(st.sampled_from((1, 1, 2))),
                removes=draw(st.sampled_from((True, True, False))),
                stays_s=draw(st.sampled_from((0.0, 10.0))),
            )
        )
    return found


class Plot(msgspec.Struct):
    """All that a run depends on."""

    jobs: list[Job]
    kinds: list[Kind]
    took: list[float]
    whims: list[int]
    scaling: Scaling
    there: list[Node]
    throttle: int
    takes_back_s: float
    keeps: tuple[str, ...]
    kept: int

    def run(self) -> Elastic:
        """It happens."""
        took = self.took

        def whim(request: int) -> int:
            return self.whims[request % len(self.whims)] if request < TROUBLE else 0

        provider = SimulatedProvider(
            refuses=lambda _kind, request, _count: whim(request),
            starts_in=lambda kind, request: kind.starts_in_s * (1 + whim(request + 1)),
            lives=lambda _kind, request: 70.0 if request % 5 == 4 and request < TROUBLE else 0.0,
            takes_back_s=self.takes_back_s,
            keeps=self.keeps,
        )
        numbers = {each.name: i for i, each in enumerate(self.jobs)}
        return elastic(
            self.jobs,
            self.kinds,
            lambda name: took[numbers[name] % len(took)],
            there=self.there,
            scaling=self.scaling,
            provider=provider,
            limits=Limits(throttle=self.throttle),
            kept=self.kept,
        )


def plots() -> st.SearchStrategy[Plot]:
    scaling = st.builds(
        Scaling,
        st.sets(st.sampled_from(POLICIES), min_size=1, max_size=3).map(lambda found: tuple(sorted(found))),
        idle_s=st.sampled_from((0.0, 1.0, 20.0)),
        cool_down_s=st.sampled_from((0.0, 15.0)),
        stays_s=st.sampled_from((0.0, 5.0)),
        retry_s=st.just(1.0),
    )
    return st.builds(
        Plot,
        workflows(),
        kinds(),
        st.lists(st.sampled_from((0.5, 1.0, 5.0, 40.0)), min_size=1, max_size=5),
        st.lists(st.integers(0, 3), min_size=1, max_size=4),
        scaling,
        st.integers(0, 2).map(lambda n: [Node(f"n{i}", 3, kind="cpu") for i in range(n)]),
        st.sampled_from((0, 0, 2)),
        st.sampled_from((0.0, 1.0)),
        st.sampled_from(((), ("cpu-1",))),
        st.sampled_from((0, 5 << 20)),
    )


@settings(max_examples=150)
@given(plots())
def test_every_run_ends_and_keeps_the_bounds(plot: Plot) -> None:
    found = plot.run()
    state = found.state
    assert all(phase in FINAL for phase in state.phases)
    most = {kind.name: kind.most for kind in state.scaling.kinds.values()} if state.scaling else {}
    up: dict[int, str] = {}
    coming: dict[str, int] = dict.fromkeys(most, 0)
    first: dict[str, int] = {}
    kind_of_request: list[str] = []
    joined = 0
    busy: dict[int, set[int]] = {}
    running: dict[int, list[int]] = {}
    for record in found.records:
        if type(record) is NodesJoined:
            for node in record.nodes:
                up[joined] = node.kind
                joined += 1
            if record.request < 0:
                for node in record.nodes:
                    first[node.kind] = first.get(node.kind, 0) + 1
            else:
                coming[kind_of_request[record.request]] -= len(record.nodes)
        elif type(record) is NodeLost:
            up.pop(record.node, None)
            for task in busy.pop(record.node, set()):  # the attempt is over, on its other nodes too
                for index in running.pop(task, []):
                    busy.get(index, set()).discard(task)
        elif type(record) is RequestNodes:
            kind = state.scaling.kinds[record.kind]  # type: ignore[union-attr]
            kind_of_request.append(record.kind)
            assert record.count % kind.block == 0
            there = sum(name == record.kind for name in up.values())
            assert there + record.count <= max(kind.most, there)
        elif type(record) is Launch:
            running[record.task] = [place.node for place in record.on]
            for place in record.on:
                busy.setdefault(place.node, set()).add(record.task)
        elif type(record) is TaskEnded:
            for index in running.pop(record.task, []):
                busy.get(index, set()).discard(record.task)
        elif type(record) is ReleaseNode:
            assert not busy.get(record.node), "a node with work was given back"
            kind = state.scaling.kinds[up[record.node]]  # type: ignore[union-attr]
            assert kind.removes
    for name, bound in most.items():
        peak = max((record_there for record_there in _peaks(found, name)), default=0)
        assert peak <= max(bound, first.get(name, 0))


def _peaks(found: Elastic, kind: str) -> list[int]:
    """How many nodes of the kind were there, after each record."""
    up: dict[int, str] = {}
    joined, peaks = 0, []
    for record in found.records:
        if type(record) is NodesJoined:
            for node in record.nodes:
                up[joined] = node.kind
                joined += 1
            peaks.append(sum(name == kind for name in up.values()))
        elif type(record) is NodeLost:
            up.pop(record.node, None)
    return peaks


@settings(max_examples=100)
@given(plots())
def test_nodes_are_not_added_and_removed_in_turn_without_a_change_of_demand(plot: Plot) -> None:
    """Between two moments at which something begins, ends, joins, is lost or refused, there are no turns."""
    found = plot.run()
    turns: dict[str, list[str]] = {}
    for record in found.records:
        refused = type(record) is RequestAnswered and record.refused
        if refused or type(record) in (Launch, TaskEnded, NodesJoined, NodeLost):
            turns.clear()
        elif type(record) is RequestNodes:
            turns.setdefault(record.kind, []).append("more")
        elif type(record) is ReleaseNode:
            turns.setdefault(found.state.room.nodes[record.node].kind, []).append("fewer")
        elif type(record) is WithdrawRequest:
            turns.setdefault(found.state.scaling.requests[record.request].kind, []).append("fewer")  # type: ignore[union-attr]
        for each in turns.values():
            changes = sum(one != other for one, other in pairwise(each))
            assert changes <= 1, each
