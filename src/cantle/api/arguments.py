"""Where do arguments lie that are too large to be sent along with their call?"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cantle.errors import MachineError
from cantle.store.failures import in_words
from cantle.store.layout import Layout

if TYPE_CHECKING:
    from cantle.api.futures import Future


class Aside:
    """Files in the run's directory, one for each content; each is removed when no call needs it any more."""

    LEAST: ClassVar = 1 << 20
    """Bytes from which on arguments are put aside."""

    def __init__(self, directory: Path) -> None:
        self._folder = Layout(directory).own / "arguments"
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()

    def put(self, arguments: bytes, future: Future[Any]) -> str:
        """The file that holds them until the future is over. Raises MachineError."""
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
        future.add_done_callback(lambda _: self._let_go(path))
        return str(path)

    def _let_go(self, path: Path) -> None:
        with self._lock:
            self._users[str(path)] -= 1
            if not self._users[str(path)]:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """No call needs any of them."""
        from shutil import rmtree

        rmtree(self._folder, ignore_errors=True)
