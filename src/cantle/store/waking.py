"""How does the conductor hear of a request the moment it is made?

The kernel tells of files that come into a folder, where it can: on a local disk, from processes of this machine. On a file
server, and from other machines, nobody tells, so whoever uses this still looks at the folder now and then.
"""

from __future__ import annotations

import os
from pathlib import Path

_MOVED_TO = 0x80
"""A file got its name in the folder; requests are written beside and renamed."""


def watch_folder(folder: Path) -> int:
    """A descriptor that becomes readable when a file comes into the folder; -1 where that cannot be had."""
    try:
        from _ctypes import call_function, dlopen, dlsym

        library = dlopen(None, 0)  # type: ignore[arg-type]  # None: this program itself
        fd = int(call_function(dlsym(library, "inotify_init1"), (os.O_CLOEXEC | os.O_NONBLOCK,)))
        if fd < 0:
            return -1
        folder.mkdir(exist_ok=True)
        if int(call_function(dlsym(library, "inotify_add_watch"), (fd, os.fsencode(folder), _MOVED_TO))) < 0:
            os.close(fd)
            return -1
    except (ImportError, OSError):
        return -1
    return fd


def drain(fd: int) -> None:
    """Take what the descriptor has told."""
    try:
        while os.read(fd, 1 << 16):
            pass
    except BlockingIOError:
        pass
