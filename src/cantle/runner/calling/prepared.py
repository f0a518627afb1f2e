"""What comes before the first call of a function on a worker? What the program says that each worker has to load first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_done: set[tuple[str, str]] = set()
"""Those of this process that can be imported, and so are the same for all functions."""


class Prepared:
    """A function whose first call on a worker comes after one of `initializer`.

    What can be imported is called once in a process. What is pickled by value is called once for each function, since each has
    the values of its own that it and the function refer to.
    """

    def __init__(self, function: Callable[..., Any], initializer: Callable[[], Any]) -> None:
        self._function = function
        self._initializer = initializer
        self._is_done = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function. Raises what the initializer raises, which is called again before the next call then."""
        if not self._is_done:
            self._prepare()
            self._is_done = True
        return self._function(*args, **kwargs)

    def __reduce__(self) -> Any:
        return Prepared, (self._function, self._initializer)

    def _prepare(self) -> None:
        initializer = self._initializer
        name = (getattr(initializer, "__module__", "") or "", getattr(initializer, "__qualname__", ""))
        can_be_imported = getattr(sys.modules.get(name[0]), name[1], None) is initializer
        if can_be_imported and name in _done:
            return
        try:
            initializer()
        except BaseException as error:
            error.add_note(
                "It was raised by the pilot's initializer, before the first call of this function on its worker."
            )
            raise
        if can_be_imported:
            _done.add(name)
