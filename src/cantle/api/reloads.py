"""Which modules of one's own has the program loaded anew, after somebody had changed them?

Workers import modules by themselves, and keep them. Who reloads one here, as notebooks do by `%autoreload`, means it for the
calls that follow as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from time import monotonic, time_ns
from typing import Any

_MOST_PAUSE_S = 1e-4
"""So long it is not looked again, at most: a reload takes longer. It bounds what looking costs where there are many modules."""


class Reloads:
    """The modules of this program that did not come with Python or an installed package."""

    def __init__(self) -> None:
        self.stamps: dict[str, int] = {}
        """By name, in the order in which they were loaded anew, for each a number that no other reload has."""
        self._specs: dict[str, Any] = {}
        self._modules = 0
        self._count = 0
        self._again_at = 0.0

    def count(self) -> int:
        """How many reloads there were so far."""
        began = monotonic()
        if began >= self._again_at:
            self._look()
            now = monotonic()
            self._again_at = now + min(10 * (now - began), _MOST_PAUSE_S)
        return self._count

    def _look(self) -> None:
        modules = sys.modules
        if len(modules) != self._modules:
            self._modules = len(modules)
            for name, module in list(modules.items()):
                if name not in self._specs and _is_ones_own(name, attributes := _attributes(module)):
                    self._specs[name] = attributes["__spec__"]
        for name, spec in list(self._specs.items()):  # another thread may look as well
            found = _attributes(modules.get(name)).get("__spec__")
            if found is not spec and found is not None:
                self._specs[name] = found
                self.stamps.pop(name, None)
                self.stamps[name] = time_ns()
                self._count += 1


RELOADS = Reloads()

_NOT_ONES_OWN = ("/site-packages/", "/dist-packages/", os.path.join(os.path.dirname(os.__file__), ""))  # noqa: PTH118, PTH120
_OURS = __name__.partition(".")[0]


def _is_ones_own(name: str, attributes: Mapping[str, Any]) -> bool:
    file = attributes.get("__file__")
    if name == "__main__" or name.partition(".")[0] == _OURS or not isinstance(file, str):
        return False
    return attributes.get("__spec__") is not None and not any(part in file for part in _NOT_ONES_OWN)


def _attributes(module: object) -> Mapping[str, Any]:
    """What the module has. It is not asked itself: one that is loaded when it is needed would be loaded now."""
    try:
        found: Mapping[str, Any] = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return found
