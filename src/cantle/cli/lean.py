"""How is less loaded than others ask for? Imported first of all, since what was loaded cannot be spared any more.

Some modules that everything here stands on load others for the sake of one function that no run of ours calls, or because
they happen to be installed. Together these take a quarter of a one-task run. They are kept away while their users are
loaded, by stand-ins that do the one thing, and can be loaded by anybody afterwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def _load(name: str, without: str, **functions: Callable[..., Any]) -> None:
    """Load a module; whatever it asks of the module `without` is answered by these functions, or not there."""
    if name in sys.modules or without in sys.modules:
        __import__(name)
        return
    stand_in: ModuleType | None = None
    if functions:
        stand_in = ModuleType(without)
        vars(stand_in).update(functions)
    sys.modules[without] = stand_in  # type: ignore[assignment]  # None: not installed
    try:
        __import__(name)
    finally:
        del sys.modules[without]


def _quote_from_bytes(*args: Any, **kwargs: Any) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(*args, **kwargs)


_load("uuid", without="platform", system=lambda: os.uname().sysname)
_load("pathlib", without="urllib.parse", quote_from_bytes=_quote_from_bytes)
_load("argparse", without="gettext", gettext=str, ngettext=lambda one, many, n: one if n == 1 else many)
_load("msgspec", without="typing_extensions")
