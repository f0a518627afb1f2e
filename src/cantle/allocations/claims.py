"""Which cores of this machine does nobody of us use yet? For those who take fewer than there are.

Two runs that take four of eight cores each had better not take the same four. Each core that is taken has a name in the
kernel, which goes with the process that holds it, however that ends; names are those of one network namespace, so that
containers do not see each other's. A name that somebody else holds costs nothing but the choice.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence


class Claims:
    """Cores that are ours as long as this is open."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, core_ids: Sequence[int], n: int) -> tuple[int, ...]:
        """The first `n` of these that nobody has; () when there are not so many: then none is taken."""
        taken: list[int] = []
        held: list[socket.socket] = []
        for core in core_ids:
            if len(taken) == n:
                break
            name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                name.bind(f"\0cantle/core/{core}")
            except OSError:
                name.close()
                continue
            held.append(name)
            taken.append(core)
        if len(taken) < n:
            for name in held:
                name.close()
            return ()
        self._held += held
        return tuple(taken)

    def close(self) -> None:
        """Others may have them."""
        for name in self._held:
            name.close()
        self._held.clear()
