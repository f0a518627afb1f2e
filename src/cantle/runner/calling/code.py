"""How are functions and classes of the user's own script pickled? By cloudpickle, with the names of the files they stand in.

cloudpickle leaves these names out, and a traceback would show neither file nor line of what went wrong.
"""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeAlias

from cloudpickle import Pickler

PlaceOf: TypeAlias = Callable[[Any], "int | None"]

_reduced: Callable[[CodeType], tuple[Any, ...]] = Pickler.dispatch_table[CodeType]


def _with_its_file(code: CodeType) -> tuple[Any, ...]:
    make, arguments = _reduced(code)
    return make, tuple(code.co_filename if argument == "<dynamic-code>" else argument for argument in arguments)


class _Filed(Pickler):  # type: ignore[misc]
    dispatch_table = ChainMap({CodeType: _with_its_file}, Pickler.dispatch_table)


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
