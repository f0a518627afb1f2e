"""How does a function come to the modules that its program has loaded anew, in a worker that has imported them before?"""

from __future__ import annotations

import pickle
import sys
from typing import Any

_stamps: dict[str, int] = {}
"""By module, the number of the reload that was done here last."""


class Fresh:
    """A pickled function that goes with these reloads: by module, in their order, a number for each."""

    def __init__(self, stamps: dict[str, int], body: bytes) -> None:
        self._stamps = stamps
        self._body = body

    def __reduce__(self) -> Any:
        return made_fresh, (self._stamps, self._body)


def made_fresh(stamps: dict[str, int], body: bytes) -> Any:
    """What was pickled, after the reloads that were not done here yet. Raises what a module or unpickling raises."""
    from importlib import invalidate_caches, reload

    for name, stamp in stamps.items():
        if _stamps.get(name) != stamp:
            module = sys.modules.get(name)
            if module is not None:  # who imports it later gets what is there now
                invalidate_caches()
                reload(module)
            _stamps[name] = stamp
    return pickle.loads(body)
