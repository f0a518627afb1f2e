"""How does another thread wake who waits for descriptors, also when it comes too late or too often?"""

from __future__ import annotations

import os
from threading import Lock


class Bell:
    """A descriptor that is readable once somebody has rung, until it is hushed."""

    def __init__(self) -> None:
        self.fd, self._ring = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._ringing = Lock()
        """Whoever rings must not meet a descriptor that has become somebody else's meanwhile."""

    def ring(self) -> None:
        """Make it readable. From any thread, also when it is closed."""
        with self._ringing:
            try:
                os.write(self._ring, b"\0")
            except OSError:  # it has rung often enough, or all is over
                pass

    def hush(self) -> None:
        """It has been heard."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Nobody listens any more."""
        with self._ringing:
            if self.fd >= 0:
                os.close(self.fd)
                os.close(self._ring)
            self.fd = self._ring = -1
