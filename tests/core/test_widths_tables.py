"""Times by width: what is measured, declared or fitted becomes a table in which times fall and areas grow."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cantle.core.widths.tables import SERIAL_SHARE, amdahl, fit, table

seconds = st.floats(0.01, 1000.0)
widths = st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True).map(sorted)


@given(widths, st.dictionaries(st.integers(1, 40), seconds, max_size=6), st.integers(1, 50))
def test_times_fall_areas_grow_and_every_step_wider_buys_less(
    widths: list[int], known: dict[int, float], most: int
) -> None:
    made = table(widths, known, most)
    assert made.widths[0] == widths[0]
    assert set(made.widths) <= set(widths)
    assert made.widths[-1] <= max(most, widths[0])
    worth = []
    for level in range(len(made.widths) - 1):
        spent = made.areas[level + 1] - made.areas[level]
        saved = made.times[level] - made.times[level + 1]
        assert saved > 0 and spent >= -1e-9 * made.areas[level]
        worth.append(spent / saved)
    assert all(a <= b * (1 + 1e-6) + 1e-9 for a, b in pairwise(worth))


def test_what_was_declared_stands_in_the_table_as_it_is() -> None:
    made = table([1, 2, 4], {1: 480.0, 2: 300.0, 4: 180.0}, 8)
    assert (made.widths, made.times) == ((1, 2, 4), (480.0, 300.0, 180.0))
    assert made.areas == [480.0, 600.0, 720.0]


def test_a_width_that_is_no_faster_is_left_out() -> None:
    assert table([1, 2, 4], {1: 10.0, 2: 10.0, 4: 6.0}, 8).widths == (1, 4)
    assert table([1, 2, 4], {1: 10.0, 2: 6.0, 4: 7.0}, 8).widths == (1, 2)


def test_a_width_that_pays_less_than_the_next_one_is_left_out() -> None:
    assert table([1, 2, 3], {1: 12.0, 2: 11.0, 3: 5.0}, 8).widths == (1, 3)


def test_faster_than_ideal_counts_as_ideal_so_that_the_narrow_width_stays_a_choice() -> None:
    made = table([1, 2], {1: 10.0, 2: 4.0}, 8)
    assert (made.widths, made.times) == ((1, 2), (10.0, 5.0))


def test_widths_beyond_the_nodes_that_there_are_are_left_out() -> None:
    assert table([1, 2, 4, 8], {1: 8.0}, 5).widths == (1, 2, 4)
    assert table([4, 8], {4: 3.0}, 2).widths == (4,), "it can never run; whoever refuses it still finds its least width"


def test_two_measured_widths_tell_the_others() -> None:
    law = amdahl(100.0, 0.2, [1, 2, 4, 8])
    made = table([1, 2, 4, 8], {1: law.times[0], 4: law.times[2]}, 8)
    assert made.times == pytest.approx(law.times)


def test_one_measured_width_is_taken_with_a_tenth_of_the_work_serial() -> None:
    made = table([1, 2, 4], {2: 55.0}, 8)
    assert made.times == pytest.approx((100.0, 55.0, 32.5)) and SERIAL_SHARE == 0.1


def test_with_nothing_known_a_task_lasts_as_long_as_one_is_told_to_suppose() -> None:
    assert table([2, 4], {}, 8, otherwise_s=11.0).times == pytest.approx((11.0, 6.5))
    assert table([2], {2: 0.0}, 8, otherwise_s=3.0).times == (3.0,), "0 means that nobody knows"


def test_neither_part_of_the_law_is_negative() -> None:
    assert fit({1: 10.0, 2: 10.0}) == pytest.approx((10.0, 0.0))
    flat, shared = fit({1: 10.0, 2: 20.0})
    assert 10.0 <= flat <= 20.0 and shared == 0.0, "wider was slower: it does not share at all"
    flat, shared = fit({1: 16.0, 2: 6.0, 4: 3.0})
    assert flat == 0.0 and 10.0 < shared < 16.0, "faster than ideal: nothing of it is serial"


def test_nothing_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="nothing to fit"):
        fit({})
