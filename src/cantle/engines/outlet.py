"""Who goes on sending where the other side did not take everything, as soon as it takes more?

The descriptors of such channels are waited for together; so one that stays full costs nothing, however many there are.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from cantle.model.seams import Inbox


class Outlet:
    """Channels that are full, by their node. `go_on` is called in the loop's thread with a node that takes more."""

    def __init__(self, inbox: Inbox, go_on: Callable[[int], None]) -> None:
        self._inbox = inbox
        self._go_on = go_on
        self._poll = select.epoll()
        self._by_fd: dict[int, int] = {}
        self._fds: dict[int, int] = {}
        inbox.watch(self.fd, self.turn)

    @property
    def fd(self) -> int:
        """It can be read when `turn` has something to do."""
        return self._poll.fileno()

    def wait_for(self, node: int, fd: int) -> None:
        """The node's channel is full; it takes more when this descriptor can be written."""
        if node not in self._fds:
            self._fds[node] = fd
            self._by_fd[fd] = node
            self._poll.register(fd, select.EPOLLOUT)

    def leave(self, node: int) -> None:
        """It is empty, or about to be closed."""
        fd = self._fds.pop(node, None)
        if fd is not None:
            del self._by_fd[fd]
            self._poll.unregister(fd)

    def turn(self) -> None:
        """Let those go on that take more now."""
        for fd, _ in self._poll.poll(0):
            node = self._by_fd.get(fd)
            if node is not None:
                self._go_on(node)

    def close(self) -> None:
        """Wait for nobody any more."""
        self._inbox.unwatch(self.fd)
        self._poll.close()
