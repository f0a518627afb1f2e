"""Does a view stand in its cell but once, do notebooks offer only what the package is for, and how are their runs called?"""

from __future__ import annotations

import pytest

import cantle
from cantle.api.opening import _program
from cantle.api.views import Shown


class Pilot:
    closed = True

    def __repr__(self) -> str:
        return "<Pilot>"


def test_a_view_shows_itself_when_it_is_made_and_not_once_more() -> None:
    view = Shown(Pilot(), None, 0.1)  # type: ignore[arg-type]
    assert view._ipython_display_() is None
    assert repr(view) == "<View of <Pilot>>"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/lib/ipykernel_launcher.py", "-f", "x.json"], "notebook"),
        (["fit.py"], "fit"),
        (["-c"], "python"),
        ([], "python"),
        (["/lib/package/__main__.py"], "python"),
    ],
)
def test_a_run_is_named_after_what_its_program_is(argv: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", argv)
    assert _program() == name


def test_completion_offers_what_the_package_exports() -> None:
    offered = {name for name in dir(cantle) if not name.startswith("_")}
    assert {"open", "task", "gather", "as_completed", "Pilot", "RemoteError"} <= offered
    assert all(getattr(cantle, name).__module__.startswith("cantle.") for name in offered)
