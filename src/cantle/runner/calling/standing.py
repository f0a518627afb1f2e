"""What of its process does a call find as it was at first, whatever an earlier call did to it?

Where it stands, the rights that its new files get, its timer, and its standard streams. All else that a call changes, as the
state of modules and the environment, the next one finds changed: it may be meant.
"""

from __future__ import annotations

import os
from signal import ITIMER_REAL, setitimer

from .speech import Speech


class Standing:
    """This process, as it was when this was made."""

    def __init__(self) -> None:
        self._home = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._mask = os.umask(0)
        os.umask(self._mask)
        self._speech = Speech()

    def begin(self) -> None:
        """Stand where the first call stood."""
        try:
            os.fchdir(self._home)
        except OSError:  # an earlier call closed whatever is open
            pass
        os.umask(self._mask)

    def end(self) -> tuple[int, int]:
        """Where the output of the call that is over ends, once all of it is written. Its alarm meets no other call."""
        setitimer(ITIMER_REAL, 0)
        return self._speech.flushed()
