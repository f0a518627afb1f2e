"""The table of phases: complete, as it is drawn, and strict."""

from __future__ import annotations

import re
from itertools import product

import pytest

from cantle.core import phases
from cantle.core.phases import ACTIVE, FINAL, OVER, TABLE, UNSTARTED, UNSUCCESSFUL, Cause, Phase, following
from cantle.errors import CantleBug

DRAWN = phases.__doc__ or ""


@pytest.mark.parametrize(("phase", "cause"), list(product(Phase, Cause)))
def test_each_way_is_either_in_the_table_or_a_bug_that_names_it(phase: Phase, cause: Cause) -> None:
    if cause in TABLE[phase]:
        assert following(phase, cause) == TABLE[phase][cause]
    else:
        with pytest.raises(CantleBug, match=f"{phase.name} cannot {cause.name.lower().replace('_', ' ')}"):
            following(phase, cause)


def test_every_phase_is_active_unstarted_or_final_and_only_one_of_them() -> None:
    assert sorted([*ACTIVE, *UNSTARTED, *FINAL]) == sorted(Phase)
    assert UNSUCCESSFUL | {Phase.DONE} == FINAL
    assert FINAL - {Phase.CANCELED} == OVER


def test_every_phase_can_be_reached_and_every_cause_leads_somewhere() -> None:
    found = {Phase.WAITING}
    for _ in Phase:
        found |= {after for phase in found for after in TABLE[phase].values()}
    assert found == set(Phase)
    assert {cause for ways in TABLE.values() for cause in ways} == set(Cause)


def test_what_is_over_stays_so_but_for_reviving_and_redoing() -> None:
    for phase in UNSUCCESSFUL:
        assert TABLE[phase] == {Cause.REVIVE: Phase.WAITING}
    assert TABLE[Phase.DONE] == {Cause.REDO: Phase.WAITING}


def words(text: str) -> set[str]:
    return {word.strip() for word in text.split(",")}


def test_the_drawing_shows_each_cause_and_the_arrows_of_the_table() -> None:
    line = next(line for line in DRAWN.splitlines() if line.lstrip().startswith("WAITING"))
    steps = re.findall(r"(?=\b([A-Z]+) ─(\w+)→ ([A-Z]+))", line)
    assert steps == [
        ("WAITING", "unblock", "READY"),
        ("READY", "launch", "LAUNCHED"),
        ("LAUNCHED", "start", "RUNNING"),
    ]
    for before, cause, after in steps:
        assert TABLE[Phase[before]][Cause[cause.upper()]] == Phase[after]
    ends = re.findall(r"└─ ([a-z, ]+) → ([A-Z, ]+)", DRAWN)
    for sources, (causes, afters) in zip((ACTIVE, UNSTARTED), ends, strict=True):
        drawn = dict(zip(causes.split(", "), afters.strip().split(", "), strict=True))
        for source in sources:
            in_table = {c.name.lower().replace("_", " "): p.name for c, p in TABLE[source].items() if p in FINAL}
            assert in_table == drawn
    for source in ACTIVE:
        assert TABLE[source][Cause.SEND_BACK] == Phase.READY
    ahead = {(p, c, after) for p in Phase for c, after in TABLE[p].items() if c in (Cause.LINE_UP, Cause.DEFER)}
    assert ahead == {
        (Phase.WAITING, Cause.LINE_UP, Phase.LAUNCHED),
        (Phase.LAUNCHED, Cause.DEFER, Phase.WAITING),
    }
    assert "─ line up ─" in DRAWN and "─ defer ─" in DRAWN
    assert "send back" in DRAWN and "`revive`" in DRAWN and "`redo`" in DRAWN
