"""Where do events arrive, and how does one thread wait for all of them at once?"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable
from time import CLOCK_BOOTTIME, clock_gettime, time

from cantle.model.records import Event
from cantle.runner import clock

SET_S = 0.5
"""The machine's clock counts as set when it shows so much more or less than it would."""


class SelectInbox:
    """An inbox whose owner waits for descriptors and for events put by other threads or signal handlers.

    Its time goes on from `not_before` if that is later than now: for the run that is taken up again.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        self._base = clock.BASE + max(0.0, not_before - clock.now())
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
        """The time to stamp on events: seconds since the epoch, by a clock that nobody sets (`cantle.runner.clock`)."""
        return self._base + clock_gettime(CLOCK_BOOTTIME)

    def clock_ahead_s(self) -> float:
        """By how much the machine's clock is ahead of that, since somebody has set it; 0 when nobody has."""
        ahead_s = time() - self.now()
        return ahead_s if abs(ahead_s) > SET_S else 0.0

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
