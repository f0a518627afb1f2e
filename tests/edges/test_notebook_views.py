"""Does a view that is the last thing of a cell stand there but once, and do notebooks offer only what the package is for?"""

from __future__ import annotations

import cantle
from cantle.api.views import Shown


class Pilot:
    closed = True

    def __repr__(self) -> str:
        return "<Pilot>"


def test_a_view_shows_itself_when_it_is_made_and_not_once_more() -> None:
    view = Shown(Pilot(), None, 0.1)  # type: ignore[arg-type]
    assert view._ipython_display_() is None
    assert repr(view) == "<View of <Pilot>>"


def test_completion_offers_what_the_package_exports() -> None:
    offered = {name for name in dir(cantle) if not name.startswith("_")}
    assert {"open", "task", "gather", "as_completed", "Pilot", "RemoteError"} <= offered
    assert all(getattr(cantle, name).__module__.startswith("cantle.") for name in offered)
