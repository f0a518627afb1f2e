"""However long is what a call raises, does it fail the call alone, as the error that it was?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from calls_rig import CallRig

from cantle.errors import RemoteError
from cantle.runner.calling import values, wire

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LONG = 200_000


class Grid(Exception):
    """Takes other arguments than those that it hands on, and carries a text of its own."""

    def __init__(self, shape: tuple[int, int], log: str) -> None:
        super().__init__(f"no grid of {shape}: {log}")
        self.log = log


def there(depth: int) -> int:
    return back(depth + 1)


def back(depth: int) -> int:
    """Two that call each other: Python folds no line of such a traceback."""
    return there(depth + 1)


def fail(error: BaseException) -> None:
    raise error


def raises_a_grid() -> None:
    raise Grid((2, 3), "x" * LONG)


@pytest.mark.parametrize(
    ("function", "args", "kind", "begins"),
    [
        (there, (0,), RecursionError, "maximum recursion depth"),
        (fail, (ValueError("x" * LONG),), ValueError, "xxx"),
        (fail, (ValueError("é" * LONG),), ValueError, "ééé"),
        (fail, (ValueError("\U0001f30d" * LONG),), ValueError, "\U0001f30d"),
        (fail, (ValueError("\udc80" * LONG),), ValueError, ""),
        (raises_a_grid, (), Grid, "no grid of (2, 3): xxx"),
        (fail, (ValueError(bytes(LONG)),), RemoteError, "ValueError: b'"),
    ],
)
def test_a_long_error_fails_its_call_alone_and_is_of_its_own_class(
    tmp_path: Path, function: Any, args: Any, kind: type[BaseException], begins: str
) -> None:
    with CallRig(tmp_path) as r:
        assert r.call(0, function, *args).outcome == "failed"
        error = r.error(0)
        assert r.call(1, abs, -1).outcome == "done", "the node is still there"
    assert type(error) is kind
    assert str(error).startswith(begins)
    assert "characters are left out here" in error.__notes__[0] + str(error)


def test_what_is_told_of_an_error_fits_into_a_datagram_with_room_for_the_rest() -> None:
    longest = 0
    for text in ("x", "é", "\U0001f30d", "\udc80"):
        for error in (
            ValueError(text * LONG),
            ValueError(bytes(LONG)),
            Grid((1, 2), text * LONG),
            ValueError(fail, sys),
        ):
            longest = max(longest, len(values.pack_error(error, text * LONG)))
    assert values.INLINE_BYTES // 4 < longest <= values.INLINE_BYTES <= wire.MOST_BYTES // 2


def test_of_a_long_text_the_middle_is_left_out_and_of_a_short_one_nothing() -> None:
    assert values.shortened("ab\ncd", 5) == "ab\ncd"
    told = values.shortened("first " + "x" * 1000 + " last", 100)
    assert told.startswith("first xxx")
    assert told.endswith("xxx last")
    assert "\n[... 911 characters are left out here ...]\n" in told
