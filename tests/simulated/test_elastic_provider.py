"""The simulated world brings nodes that were asked for, and takes back what is given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.builders import Job, job, study_records

from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.scaling.seam import Scaler
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import AnyRecord, Decision, KindsDeclared, ReleaseNode, RequestNodes, WithdrawRequest
from cantle.model.resources import Node
from cantle.runtime.loop import run
from cantle.runtime.simulated import Fate, SimulatedWorld
from cantle.runtime.simulated_provider import SimulatedProvider

CPU = Kind("cpu", 1, starts_in_s=30.0)


class Kept:
    """A log in memory."""

    def __init__(self) -> None:
        self.records: list[AnyRecord] = []

    def write(self, record: AnyRecord) -> None:
        """Keep it."""
        self.records.append(record)

    def flush(self) -> None:
        """Nothing to do."""


def simulated(jobs: list[Job], kind: Kind, scaler: Scaler, there: list[Node], **how: object) -> tuple[State, Kept]:
    state, log = State(), Kept()
    for record in study_records(jobs):
        state.apply(record)
    world = SimulatedWorld(state, [(0.0, there)], lambda _t, _a: Fate(100.0), provider=SimulatedProvider(**how))  # type: ignore[arg-type]
    world.put(KindsDeclared(0.0, [kind]))
    decider = Decider()
    decider.scaler = scaler
    run(state, world, log, decider)
    return state, log


def once(*decisions: Callable[[float], Decision]) -> Scaler:
    """One pass after the other each of these, at a time of its own."""
    left = list(decisions)

    def scaler(plan: Plan) -> Iterator[Decision]:
        while left:
            yield left.pop(0)(plan.state.now)

    return scaler


def test_nodes_come_when_their_kind_says_and_none_is_waited_for_at_the_end() -> None:
    scaler = once(lambda now: RequestNodes(now, "cpu", 2, "two"), lambda now: RequestNodes(now, "cpu", 1, "late"))
    late = {0: 30.0, 1: 500.0}
    state, _ = simulated([job("a"), job("b")], CPU, scaler, [], starts_in=lambda _kind, request: late[request])
    assert state.now == 130.0 and state.totals[Phase.DONE] == 2 and state.scaling is not None
    assert state.scaling.coming() == 1


def test_what_is_withdrawn_does_not_come_and_what_is_refused_neither() -> None:
    scaler = once(lambda now: RequestNodes(now, "cpu", 5, "five"), lambda now: WithdrawRequest(now, 0, 2, "two fewer"))
    state, _ = simulated([job("a"), job("b")], CPU, scaler, [], refuses=lambda _kind, _request, _count: 1)
    assert state.room.alive.bit_count() == 2


def test_nodes_end_are_lost_or_given_back_each_once() -> None:
    lasting = Kind("cpu", 1, lasts_s=150.0)
    jobs = [job("a"), job("b", "a"), job("c", "b")]
    scaler = once(lambda now: RequestNodes(now, "cpu", 1, "one"), lambda now: ReleaseNode(now, 0, "not needed"))
    state, log = simulated(
        jobs, lasting, scaler, [Node("here", 1), Node("there", 1)], lives=lambda _kind, _request: 40.0
    )
    lost = [(record.node, record.time) for record in log.records if type(record).__name__ == "NodeLost"]
    assert lost == [(0, 0.0), (2, 40.0)] and state.totals[Phase.DONE] == 3
