"""Where do events arrive, and how does one thread wait for all of them at once?"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable
from time import time

from cantle.model.records import Event


class SelectInbox:
    """An inbox whose owner waits for descriptors and for events put by other threads or signal handlers."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._poll = select.epoll()  # its cost does not rise with the number of runners
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._waiting = False
        self.watch(self._wake_read, self._drain)

    @property
    def wake_fd(self) -> int:
        """A byte written here ends the wait: for `signal.set_wakeup_fd`."""
        return self._wake_write

    def put(self, event: Event) -> None:
        """Hand over an event. From any thread or signal handler."""
        self._events.append(event)
        if self._waiting:
            self.wake()

    def wake(self) -> None:
        """End the wait."""
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # full of wake-ups already

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` from `wait` whenever the descriptor can be read or has ended."""
        self._callbacks[fd] = on_readable
        try:
            self._poll.register(fd, select.EPOLLIN)
        except FileExistsError:  # it is watched already
            pass

    def unwatch(self, fd: int) -> None:
        """Stop watching the descriptor, before it is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def now(self) -> float:
        """Seconds since the epoch."""
        return time()

    def wait(self, timeout_s: float) -> list[Event]:
        """The events that have arrived; waits up to `timeout_s` for the first of them."""
        self._waiting = True
        try:
            ready = self._poll.poll(0 if self._events else timeout_s)
        finally:
            self._waiting = False
        for fd, _ in ready:
            callback = self._callbacks.get(fd)
            if callback is not None:
                callback()
        arrived = self._events
        return [arrived.popleft() for _ in range(len(arrived))]

    def close(self) -> None:
        """Let go of the descriptors."""
        self._poll.close()
        for fd in (self._wake_read, self._wake_write):
            os.close(fd)

    def _drain(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass
