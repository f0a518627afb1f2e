"""How is taken back what an earlier conductor has left, where functions of the user's have to do it?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cantle.allocations.providers.custom import PATIENCE_S
from cantle.allocations.providers.leftovers import take_back
from cantle.runtime.apart.functions import Functions


def take_back_apart(folder: Path, note: Callable[[str], None]) -> int:
    """As `leftovers.take_back`: functions run in a process of their own, and each call is bounded."""
    functions = Functions()
    functions.enlist()
    try:
        return take_back(folder, note, lambda name: functions.ending(name, PATIENCE_S))
    finally:
        functions.close()
