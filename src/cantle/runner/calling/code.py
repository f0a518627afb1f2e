"""How are functions and classes of the user's own script pickled? By cloudpickle, with the names of the files they stand in.

cloudpickle leaves these names out, and a traceback would show neither file nor line of what went wrong. Nor does it know
functions with an `lru_cache` around them: each worker makes itself a cache of its own.
"""

from __future__ import annotations

import io
import sys
from collections import ChainMap
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias

from cloudpickle import Pickler

PlaceOf: TypeAlias = Callable[[Any], "int | None"]

_reduced: Callable[[CodeType], tuple[Any, ...]] = Pickler.dispatch_table[CodeType]


def _with_its_file(code: CodeType) -> tuple[Any, ...]:
    make, arguments = _reduced(code)
    return make, tuple(code.co_filename if argument == "<dynamic-code>" else argument for argument in arguments)


def _with_a_cache(cached: Any) -> str | tuple[Any, ...]:
    found: Any = sys.modules.get(cached.__module__) if cached.__module__ != "__main__" else None
    for name in cached.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is cached:  # it can be imported
        return str(cached.__qualname__)
    return _cached_anew, (cached.__wrapped__, cached.cache_parameters(), vars(cached))


def _cached_anew(function: Callable[..., Any], how: dict[str, Any], attributes: dict[str, Any]) -> Any:
    made = lru_cache(**how)(function)
    vars(made).update(attributes)
    return made


class _Filed(Pickler):  # type: ignore[misc]
    dispatch_table = ChainMap({CodeType: _with_its_file, type(lru_cache(len)): _with_a_cache}, Pickler.dispatch_table)


class _Placing(_Filed):
    place_of: PlaceOf

    def persistent_id(self, obj: Any) -> int | None:
        return self.place_of(obj)


def dumps(value: object, protocol: int = 5, buffer_callback: Callable[[Any], object] | None = None) -> bytes:
    """The value pickled. Raises what pickling it raises."""
    file = io.BytesIO()
    _Filed(file, protocol, buffer_callback).dump(value)
    return file.getvalue()


def dump_placing(file: io.BytesIO, value: object, place_of: PlaceOf) -> None:
    """Pickle the value with persistent numbers for what has a place. Raises what pickling it raises."""
    pickler = _Placing(file, 5)
    pickler.place_of = place_of
    pickler.dump(value)
