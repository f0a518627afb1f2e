"""Why a want gets nothing: said with the arithmetic."""

from __future__ import annotations

import pytest
from slices_rig import Rig

from cantle.core.unmet import impossible, why_never, why_waiting
from cantle.core.wants import Want
from cantle.model.slicing import choices_of

NO_SLICE = "no slice has elements of 75 nodes (there are 20, 100 and 400)"
TOO_WIDE = "an element of 400 nodes needs as many, and 399 are there"


def want(text: str) -> Want:
    return Want(1, 0.0, choices_of(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 x 75", f"wants 1 x 75; {NO_SLICE}"),
        ("1 x 400", f"wants 1 x 400; {TOO_WIDE}"),
        ("1 x 400 or 2 x 75", f"wants 1 x 400 or 2 x 75; {TOO_WIDE}; {NO_SLICE}"),
        ("1 x 400 or 2 x 100", ""),
        ("0 x 75", ""),
    ],
)
def test_a_want_is_hopeless_only_when_all_its_widths_are(text: str, why: str) -> None:
    rig = Rig(399, 12, "3 x 400, 2 x 100, 1 x 20", cap=6)
    assert why_never(rig.ledger, want(text)) == why


def test_of_a_want_that_is_partly_hopeless_the_rest_is_granted_and_the_reason_told() -> None:
    rig = Rig(399, 12, "3 x 400, 2 x 100", cap=5)
    rig.ask(1, "1 x 400 + 2 x 100")
    rig.turn()
    assert rig.held(1) == {100: 2}
    assert impossible(rig.ledger, want("1 x 400 + 2 x 100")) == [
        "an element of 400 nodes needs as many, and 399 are there"
    ]


def test_what_more_nodes_could_make_possible_waits_but_not_what_no_slice_has() -> None:
    rig = Rig(3, 1, "1 x 4")
    assert why_never(rig.ledger, want("1 x 4"), more_nodes=True) == ""
    assert "no slice has" in why_never(rig.ledger, want("1 x 5"), more_nodes=True)
    rig.ask(1, "1 x 4")
    rig.turn()
    assert why_waiting(rig.broker, 1, more_nodes=True).endswith("it waits for nodes to come")
    assert "3 are there" in why_waiting(rig.broker, 1)


def test_nodes_without_the_cores_for_the_share_do_not_count() -> None:
    rig = Rig(3, 4, "1 x 4 / 4")
    rig.add(2)
    assert why_never(rig.ledger, want("1 x 4")).endswith("needs as many, and 3 with the cores for it are there")


def test_who_waits_is_told_for_what() -> None:
    rig = Rig(4, 2, "1 x 4, 1 x 2, 1 x 1", cap=2, patience_s=10.0)
    rig.ask(1, "2 x 2")
    rig.ask(2, "4 x 1")
    rig.turn()
    assert why_waiting(rig.broker, 1) == why_waiting(rig.broker, 9) == ""
    rig.ask(3, "1 x 4")
    rig.ask(4, "1 x 2 or 1 x 1")
    rig.turn()
    assert why_waiting(rig.broker, 3) == (
        "wants 1 x 4; holds nothing; 2 copies may be active at once, which 1 x 2, 1 x 1 are"
    )
    assert why_waiting(rig.broker, 4) == "wants 1 x 2 or 1 x 1; holds nothing; all 2 elements of 2 are taken"
    rig.ask(1, "3 x 2")
    assert why_waiting(rig.broker, 1).startswith("wants 3 x 2; holds 2 x 2; ")


def test_who_makes_room_for_whom_is_told() -> None:
    rig = Rig(4, 1, "1 x 4, 1 x 1", cap=1, patience_s=10.0)
    rig.ask(1, "4 x 1")
    rig.turn()
    rig.ask(2, "1 x 4")
    rig.ask(3, "1 x 1")
    rig.turn()
    rig.later(10.0)
    assert why_waiting(rig.broker, 2).endswith("a copy of 1 gets empty for it, 4 elements still at work")
    rig.broker.withdraw(2)
    rig.turn()
    assert why_waiting(rig.broker, 3).endswith("job 1 gives up an element of 1 when a task ends on it")


def test_an_only_element_and_an_only_copy_are_told_as_such() -> None:
    rig = Rig(4, 1, "1 x 4, 1 x 2", cap=1)
    rig.ask(1, "1 x 4")
    rig.turn()
    rig.ask(2, "1 x 4")
    rig.ask(3, "1 x 2")
    rig.turn()
    assert why_waiting(rig.broker, 2).endswith("; the only element of 4 is taken")
    assert why_waiting(rig.broker, 3).endswith("; 1 copy may be active at once, which 1 x 4 is")


def test_what_closes_what_others_hold_and_who_comes_first_are_told() -> None:
    rig = Rig(4, 1, "1 x 4, 1 x 1", cap=1, slow=True)
    rig.ask(1, "1 x 1")
    rig.turn()
    rig.ask(1, "")
    rig.park(rig.of(1)[0])
    rig.ask(2, "1 x 4")
    rig.turn()
    assert why_waiting(rig.broker, 2).endswith("elements that nobody uses are being closed for it")

    rig = Rig(4, 2, "1 x 2", cap=1)
    rig.taken_outside(1, 0b1)
    rig.ask(1, "2 x 2")
    rig.turn()
    assert why_waiting(rig.broker, 1).endswith("1 element of 2 could be its own, but other work has the cores")

    rig = Rig(4, 3, "1 x 4 / 2, 1 x 2 / 2, 1 x 1 / 1", cap=3, patience_s=10.0)
    rig.ask(1, "2 x 2")
    rig.turn()
    rig.ask(2, "1 x 4")
    rig.turn()
    assert why_waiting(rig.broker, 2).endswith(
        "no 4 nodes have the cores for another element of 4: other work has them"
    )
    rig.later(10.0)
    rig.ask(3, "1 x 1")
    rig.turn()
    assert why_waiting(rig.broker, 3).endswith("no copy becomes active before job 2 has one, which has waited longer")
