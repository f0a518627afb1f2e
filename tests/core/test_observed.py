"""What a run saw of its moldable steps, and what a later run makes of it."""

from __future__ import annotations

import pytest

from cantle.core.observed import Observed
from cantle.core.widths.expected import Expected
from cantle.model.study import Step, Task


def saw(*facts: tuple[str, int, float, float]) -> Observed:
    """Of a step: nodes, seconds, estimate."""
    seen = Observed()
    for name, width, seconds, estimate in facts:
        seen.took(Step(name), Task("t", 0, (), estimate), width, seconds)
    return seen


def test_means_are_kept_by_step_width_and_whether_there_was_an_estimate() -> None:
    seen = saw(("a", 1, 10.0, 0.0), ("a", 1, 14.0, 0.0), ("a", 2, 7.0, 0.0), ("a", 1, 30.0, 20.0))
    assert seen.means == {("a", 1, False): (2, 12.0), ("a", 2, False): (1, 7.0), ("a", 1, True): (1, 1.5)}


def test_what_is_declared_and_what_is_seen_are_weighed_by_how_often_it_was_seen() -> None:
    step = Step("a", widths=(1, 2), times_s=(10.0, 6.0))
    one = Expected(saw(("a", 2, 18.0 * 0.75, 20.0)), 1.0).table(0, step, Task("t", 0, (), 10.0), 8)
    assert one.times == (10.0, pytest.approx((8 * 6.0 + 6.75) / 9))
    many = Expected(saw(*[("a", 2, 9.0, 10.0)] * 72), 1.0).table(0, step, Task("t", 0, (), 10.0), 8)
    assert many.times == (10.0, pytest.approx((8 * 6.0 + 72 * 9.0) / 80))


def test_a_rigid_task_of_unknown_duration_takes_as_long_as_others_usually_do() -> None:
    expected = Expected(Observed(), 33.0)
    assert expected.table(0, Step("r"), Task("t", 0), 8).times == (33.0,)
    assert not expected.knows(Step("r"), Task("t", 0))
    assert expected.knows(Step("r"), Task("t", 0, (), 5.0))
    assert expected.knows(Step("r", widths=(1, 2), times_s=(0.0, 3.0)), Task("t", 0))
    assert Expected(saw(("r", 2, 1.0, 0.0)), 1.0).knows(Step("r"), Task("t", 0))
