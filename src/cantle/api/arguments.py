"""Where do arguments lie that are too large to be sent along with their call?"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from cantle.errors import MachineError
from cantle.store.failures import in_words
from cantle.store.layout import Layout


class Aside:
    """Files in the run's directory, one for each content; each is removed when no call needs it any more."""

    LEAST: ClassVar = 1 << 20
    """Bytes from which on arguments are put aside."""

    def __init__(self, directory: Path) -> None:
        self._folder = Layout(directory).arguments
        self._users: Counter[str] = Counter()
        self._files: dict[int, str] = {}
        self._let_go_early: set[int] = set()
        """Calls that were told to need nothing any more before it was told which file is theirs."""
        self._lock = threading.Lock()

    def put(self, arguments: bytes) -> str:
        """The file that holds them for a call that is about to be handed in. Raises MachineError."""
        from hashlib import blake2b

        path = self._folder / blake2b(arguments, digest_size=16).hexdigest()
        with self._lock:
            if not self._users[str(path)]:
                try:
                    self._folder.mkdir(mode=0o700, exist_ok=True)
                    path.write_bytes(arguments)
                except OSError as error:
                    raise MachineError(f"cannot put arguments aside in {path}: {in_words(error)}") from error
            self._users[str(path)] += 1
        return str(path)

    def take(self, path: str, call: int) -> None:
        """It is the call of this number that needs the file."""
        with self._lock:
            if call not in self._let_go_early:
                self._files[call] = path
                return
            self._let_go_early.remove(call)
        self.drop(path)

    def let_go(self, calls: Iterable[int]) -> None:
        """These calls need theirs no more."""
        for call in calls:
            with self._lock:
                path = self._files.pop(call, "")
                if not path:
                    self._let_go_early.add(call)
            if path:
                self.drop(path)

    def drop(self, path: str) -> None:
        """One call less needs the file."""
        with self._lock:
            self._users[path] -= 1
            if self._users[path] <= 0:
                del self._users[path]
                Path(path).unlink(missing_ok=True)

    def close(self) -> None:
        """No call needs any of them."""
        from shutil import rmtree

        rmtree(self._folder, ignore_errors=True)


def heaviest(values: Iterable[tuple[str, Any]]) -> str:
    """The largest of these named values, in words; "" when none can be told."""
    from cantle.runner.calling.code import dumps

    most, found = 0, ""
    for name, value in values:
        try:
            size = len(dumps(value))
        except Exception:  # noqa: BLE001 - whatever pickling raises
            continue
        if size > most:
            most, found = size, f"{name}, {_a(value)} of {size / 1e6:,.0f} MB"
    return found


def unpicklable_among(values: Iterable[tuple[str, Any]]) -> str:
    """Which of these named values cannot be pickled, with what it is; "" when each of them can."""
    from cantle.runner.calling.code import dumps

    for name, value in values:
        try:
            dumps(value)
        except Exception:  # noqa: BLE001 - whatever pickling raises
            return f"{name}, {_a(value)}"
    return ""


def _a(value: Any) -> str:
    kind = type(value).__qualname__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def unpicklable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Which of the arguments cannot be pickled by itself, with what it is; "" when each of them can."""
    from cantle.api.futures import Future
    from cantle.runner.calling.values import pack_call

    named = [*((f"Argument {n}", value) for n, value in enumerate(args, 1)), *kwargs.items()]
    for name, value in named:
        try:
            pack_call((value,), {}, lambda each: 0 if isinstance(each, Future) else None)
        except Exception:  # noqa: BLE001 - whatever pickling raises
            return f"{name if name.startswith('Argument ') else f'The argument {name}'}, a {type(value).__qualname__},"
    return ""
