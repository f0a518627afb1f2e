"""How does what waits at the links reach the runners, also those that do not take it at once? Nobody is waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cantle.engines.link import Link
from cantle.model.seams import Inbox

if TYPE_CHECKING:
    from cantle.engines.outlet import Outlet


class Sending:
    """Sends over these links, which are by node. `gone` is called with the node of a runner that takes nothing any more.

    What such a runner said before may still be on its way: whoever is called reads that, up to the end of the channel.
    """

    def __init__(self, inbox: Inbox, links: dict[int, Link], gone: Callable[[int], None]) -> None:
        self._inbox = inbox
        self._links = links
        self._gone = gone
        self._outlet: Outlet | None = None
        """There once a runner has not taken everything at once."""

    def send(self, index: int, link: Link) -> None:
        """Send what waits for this node."""
        try:
            link.send()
        except OSError:
            self._gone(index)
            return
        if link.channel.backlog:
            if self._outlet is None:
                from cantle.engines.outlet import Outlet

                self._outlet = Outlet(self._inbox, self._go_on)
            self._outlet.wait_for(index, link.channel.write_fd)

    def send_all(self) -> None:
        """Send what waits, wherever something does."""
        for index, link in list(self._links.items()):
            if link.outgoing:
                self.send(index, link)

    def stop(self, index: int) -> None:
        """Nothing more goes to this node."""
        if self._outlet is not None:
            self._outlet.leave(index)

    def wait(self, seconds: float, hear: Callable[[int], None], others: Mapping[int, Callable[[], None]]) -> None:
        """Go on sending for so long, until a runner says something: `hear` is called with the node of each that does.

        Of `others`, descriptors that are read elsewhere, is called what belongs to one that can be read.
        """
        import select

        poll = select.poll()
        by_fd = {link.channel.fileno(): index for index, link in self._links.items() if link.held is None}
        for fd in (*by_fd, *others):
            poll.register(fd, select.POLLIN)
        if self._outlet is not None:
            poll.register(self._outlet.fd, select.POLLIN)
        for fd, _ in poll.poll(seconds * 1000):
            if fd in by_fd:
                hear(by_fd[fd])
            elif fd in others:
                others[fd]()
            elif self._outlet is not None:
                self._outlet.turn()

    def close(self) -> None:
        """Wait for no runner any more."""
        if self._outlet is not None:
            self._outlet.close()

    def _go_on(self, index: int) -> None:
        """A runner takes more of what was sent to it. What was gathered since then waits until all is written down."""
        link = self._links[index]
        try:
            link.channel.send(b"")
        except OSError:
            self.stop(index)
            self._gone(index)
            return
        if not link.channel.backlog:
            self.stop(index)
