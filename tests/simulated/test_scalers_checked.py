"""Scaling policies that break a rule are found by the conformance check, and those that come with Cantle's pages keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cantle.core.plan import Plan
from cantle.core.scaling.settings import Scaling
from cantle.core.scaling.snapshot import Snapshot, Wish
from cantle.errors import PluginError
from cantle.model.records import Decision, ReleaseNode, RequestNodes, WithdrawRequest
from cantle.model.resources import indexes
from cantle.runtime.scaling_functions import functions_of, scalers_of
from cantle.testing import check_scaler


def two(_run: Snapshot) -> dict[str, int]:
    return {"cpu": 2}


def as_many_as_may_be(plan: Plan) -> Iterator[Decision]:
    ledger = plan.state.scaling
    assert ledger is not None
    for kind in ledger.kinds.values():
        if n := int(ledger.headroom(kind)):
            yield RequestNodes(plan.state.now, kind.name, n, "all there can be")


class OnceOnly:
    """A scaler that is an object."""

    def __call__(self, plan: Plan) -> Iterator[Decision]:
        yield from as_many_as_may_be(plan)


def raises(_run: Snapshot) -> dict[str, int]:
    raise ValueError("no idea")


def breaks(plan: Plan) -> Iterator[Decision]:
    yield from as_many_as_may_be(plan)
    raise ValueError("no idea")


def asks_for_what_is_not_there(plan: Plan) -> Iterator[Decision]:
    yield RequestNodes(plan.state.now, "tpu", 1, "who knows")


def gives_back_what_works(plan: Plan) -> Iterator[Decision]:
    yield from as_many_as_may_be(plan)
    for node in indexes(plan.state.room.alive):
        if plan.state.running_on.get(node):
            yield ReleaseNode(plan.state.now, node, "away with it")


def changes_the_state(plan: Plan) -> Iterator[Decision]:
    yield from as_many_as_may_be(plan)
    plan.state.version += 1


def yields_nonsense(_plan: Plan) -> Iterator[Any]:
    yield "more"


def goes_round_in_circles(plan: Plan) -> Iterator[Decision]:
    ledger = plan.state.scaling
    assert ledger is not None
    for request in list(ledger.open.values()):
        yield WithdrawRequest(plan.state.now, request.number, request.coming, "or not")
    yield RequestNodes(plan.state.now, "cpu", 1, "more")


@pytest.mark.parametrize("policy", [two, as_many_as_may_be, OnceOnly(), lambda _run: None])
def test_what_keeps_the_rules_passes(policy: Callable[..., Any]) -> None:
    check_scaler(policy, runs=15)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (raises, "it raised ValueError: no idea"),
        (lambda _run: "five", "it returned 'five'"),
        (lambda _run: [Wish("tpu", 1)], "kind 'tpu'; there are cpu"),
        (breaks, "it raised ValueError: no idea"),
        (asks_for_what_is_not_there, "asked for nodes of kind 'tpu'; declared are cpu"),
        (gives_back_what_works, "gave back node .*, on which .* runs"),
        (changes_the_state, "it changed the state itself"),
        (yields_nonsense, "'more', which is no decision of a scaler"),
    ],
)
def test_what_breaks_one_is_named_with_the_run_that_shows_it(policy: Callable[..., Any], said: str) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)scaling policy .*{said}.*of seed=\d+, runs=1\]"):
        check_scaler(policy)


HERE = "test_scalers_checked"


def test_a_function_and_a_scaler_are_told_apart_by_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])
    settings = Scaling(policies=("demand", f"{HERE}:two", f"{HERE}:as_many_as_may_be"))
    assert list(scalers_of(settings)) == [f"{HERE}:as_many_as_may_be"]
    assert [each.name for each in functions_of(settings, lambda _event: None, lambda: 0.0)] == [f"{HERE}:two"]
    with pytest.raises(PluginError, match="nothing"):
        scalers_of(Scaling(policies=(f"{HERE}:nothing",)))
