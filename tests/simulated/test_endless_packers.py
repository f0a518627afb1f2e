"""A packer that never comes back is interrupted and named."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from builders import job, node, study_records
from cantle.core.decide import Decider
from cantle.core.packing import best_fit
from cantle.core.plan import Plan
from cantle.core.state import State
from cantle.errors import PluginError
from cantle.model.records import Decision, NodesJoined
from cantle.runtime.patience import bounded


def begun() -> State:
    state = State()
    for record in study_records([job("a")]):
        state.apply(record)
    state.apply(NodesJoined(0.0, [node()]))
    return state


def dreams(plan: Plan) -> Iterator[Decision]:
    while True:
        len(plan.state.tasks)
    yield  # type: ignore[unreachable]


def dreams_before_it_begins(plan: Plan) -> Iterator[Decision]:
    while plan.state.tasks:
        pass
    return iter(())


@pytest.mark.parametrize("packer", [dreams, dreams_before_it_begins])
def test_a_packer_that_computes_for_ever_is_interrupted_and_named(packer: object) -> None:
    decider = Decider(bounded(packer, "mine:dreams", seconds=0.05), "mine:dreams")  # type: ignore[arg-type]
    with pytest.raises(PluginError, match=r"packer mine:dreams: it has computed for 0\.05 s without a decision"):
        list(decider.decide(begun()))


def test_one_that_decides_is_left_alone_and_ours_is_not_even_watched() -> None:
    def thinks(plan: Plan) -> Iterator[Decision]:
        yield from best_fit(plan)

    state = begun()
    made = []
    for decision in Decider(bounded(thinks, "mine:thinks")).decide(state):
        state.apply(decision)
        made.append(decision)
    assert len(made) == 1
    assert bounded(best_fit, "best-fit") is best_fit


def test_outside_the_main_thread_it_is_not_watched_but_works() -> None:
    def thinks(plan: Plan) -> Iterator[Decision]:
        yield from best_fit(plan)

    found: list[Decision] = []
    state = begun()

    def pack() -> None:
        for decision in bounded(thinks, "mine:thinks")(Plan(state)):
            state.apply(decision)
            found.append(decision)

    thread = threading.Thread(target=pack)
    thread.start()
    thread.join()
    assert len(found) == 1
