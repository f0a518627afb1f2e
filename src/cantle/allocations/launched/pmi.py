"""How do the copies meet where the launcher keeps a table for its processes? Over the descriptor that mpiexec gave each.

Lines of `key=value` words, a request and its answer: the first version of the process management interface, which the MPICH
family's mpiexec speaks, and srun with --mpi=pmi2. What the first copy puts into the table before the barrier, the others find
behind it; no file has to be seen by anybody.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from time import monotonic

import msgspec

from cantle.allocations.awaiting import can_be_read
from cantle.errors import MachineError

from .meetings import Word

_KEY = "cantle-word"


class PmiMeeting:
    """A meeting by the launcher's table. Each copy of the launch must take part, and only once."""

    def __init__(self, fd: int, command: Sequence[str]) -> None:
        self._fd = fd
        self._command = tuple(command)
        self._rest = b""
        self._done = False

    @property
    def places(self) -> str:
        """Where it is, for messages."""
        return "the launcher's table"

    def tell(self, word: Word) -> None:
        """Put it into the table, and wait until all have come."""
        if self._done:
            return
        self._done = True
        table = self._begin(60.0)
        value = base64.urlsafe_b64encode(msgspec.json.encode(word)).decode()
        # Values may hold 1,024 bytes; a path in a deep directory is longer when it is encoded.
        pieces = [value[i : i + 900] for i in range(0, len(value), 900)]
        for number, piece in enumerate(pieces):
            self._ask(f"cmd=put kvsname={table} key={_KEY}-{number} value={piece}", 60.0)
        self._ask(f"cmd=put kvsname={table} key={_KEY} value={len(pieces)}", 60.0)
        self._ask("cmd=barrier_in", None)
        self._ask("cmd=finalize", 60.0)

    def hear(self, patience_s: float) -> Word | None:
        """Wait at the barrier, and look the word up behind it."""
        try:
            table = self._begin(60.0)
            self._ask("cmd=barrier_in", patience_s)
            n = int(self._ask(f"cmd=get kvsname={table} key={_KEY}", 60.0)["value"])
            value = "".join(
                self._ask(f"cmd=get kvsname={table} key={_KEY}-{number}", 60.0)["value"] for number in range(n)
            )
            self._ask("cmd=finalize", 60.0)
            return msgspec.json.decode(base64.urlsafe_b64decode(value), type=Word)
        except (TimeoutError, MachineError, KeyError, ValueError, RecursionError):
            return None

    def close(self, all_came: bool) -> None:  # noqa: ARG002 - behind the barrier all have come
        """Without a word before it, the others still wait at the barrier: tell them that it is over."""
        try:
            self.tell(Word(self._command, over=True))
        except (TimeoutError, MachineError):
            pass

    def _begin(self, patience_s: float) -> str:
        """Introduce ourselves; the name of the launch's table."""
        said = self._ask("cmd=init pmi_version=1 pmi_subversion=1", patience_s)
        if said.get("rc", "0") != "0":
            raise MachineError("the launcher speaks another version of the process management interface")
        return self._ask("cmd=get_my_kvsname", patience_s)["kvsname"]

    def _ask(self, line: str, patience_s: float | None) -> dict[str, str]:
        """Send a request, and wait for its answer."""
        stop = None if patience_s is None else monotonic() + patience_s
        try:
            os.write(self._fd, line.encode() + b"\n")
            while b"\n" not in self._rest:
                left = None if stop is None else max(0.0, stop - monotonic())
                if not can_be_read(self._fd, left):
                    raise TimeoutError
                data = os.read(self._fd, 65536)
                if not data:
                    raise MachineError("the launcher has gone")
                self._rest += data
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise MachineError(f"the launcher cannot be reached: {error.strerror}") from error
        answer, _, self._rest = self._rest.partition(b"\n")
        return dict(word.partition("=")[::2] for word in answer.decode(errors="replace").split() if "=" in word)
