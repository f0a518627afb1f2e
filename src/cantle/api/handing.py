"""How does a scaling function of the program's own come to the pilot that it begins? Pickled, as the functions of calls do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cantle.core.scaling.settings import HANDED
from cantle.errors import RequestError
from cantle.runtime.handed import Head, put


class HandedIn:
    """Functions that go to a pilot, by the names under which they do."""

    def __init__(self) -> None:
        self._functions: dict[str, tuple[Head, bytes]] = {}

    def take(self, function: Callable[..., Any]) -> str:
        """The policy that it is from now on. Raises RequestError for a scaler, which decides about each node."""
        from inspect import isgeneratorfunction, unwrap

        from cantle.api.tasks import name_of
        from cantle.runner.calling.code import dumps

        stem = name_of(function)
        if isgeneratorfunction(function):
            raise RequestError(
                f"scaling={stem}: a generator function decides about each node, and runs in the pilot itself: name it by where "
                'it is to be imported from, as in "my_module:function"'
            )
        stem = stem if stem.isidentifier() and not stem.startswith("_") else "function"
        name, number = stem, 1
        while name in self._functions:
            number += 1
            name = f"{stem}_{number}"
        try:
            body = dumps(function)
        except Exception as problem:
            raise RequestError(f"scaling={stem}: it cannot be pickled: {problem}") from problem
        code = getattr(unwrap(function), "__code__", None)
        path = [str(Path(path or ".").absolute()) for path in sys.path]
        head = Head(stem, 0, path)
        if code is not None:
            head = Head(str(Path(code.co_filename).absolute()), code.co_firstlineno, path)
        self._functions[name] = (head, body)
        return f"{HANDED}{name}"

    def put(self, folder: Path) -> bool:
        """Write them down; whether there are any. Raises MachineError."""
        for name, (head, body) in self._functions.items():
            put(folder, name, head, body)
        return bool(self._functions)
