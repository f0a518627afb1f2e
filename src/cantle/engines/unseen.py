"""Is a file of the run not there, or is it only not seen from here yet?

Over a network file system a machine may believe for a while that there is no such file, since it has looked before another
machine wrote it. To list the folder asks the server. A disk of this machine's own tells the truth at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, sleep

from cantle.engines.mounts import mounts, nearest_above

SEEN_WITHIN_S = 35.0
"""So long a file of the run is looked for: a little longer than file systems of that kind keep a folder in mind, mostly."""
_PAUSES_S = (0.05, 1.0)
_OVER_A_NETWORK = (
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "ocfs2", "orangefs", "panfs",
    "pvfs2", "smb", "virtiofs",
)  # fmt: skip


def await_sight(path: Path, directory: str, found: Callable[[], bool]) -> None:
    """Wait until `found`, for a file of the run in `directory`, if that is on a network file system; for others not at all.

    Raises FileNotFoundError when it was not seen in time.
    """
    if found() or not path.is_relative_to(directory) or not is_over_a_network(directory):
        return
    began, pause = monotonic(), _PAUSES_S[0]
    while (waited := monotonic() - began) < SEEN_WITHIN_S:
        _ask_the_server(path, directory)
        if found():
            return
        sleep(min(pause, SEEN_WITHIN_S - waited))
        pause = min(2 * pause, _PAUSES_S[1])
    raise FileNotFoundError(
        errno.ENOENT, f"not seen from {os.uname().nodename} within {SEEN_WITHIN_S:g} s, if it is there", str(path)
    )


def is_over_a_network(directory: str) -> bool:
    """Whether other machines may write there, and this one see it later."""
    return kind_of_mount(mounts(), os.path.realpath(directory)).startswith(_OVER_A_NETWORK)


def kind_of_mount(mounted: Mapping[str, str], directory: str) -> str:
    """Of which kind the file system is on which the directory is; "" when that is not known."""
    return mounted.get(nearest_above(directory, mounted), "")


def _ask_the_server(path: Path, directory: str) -> None:
    """List all folders on the way, from the run's own on."""
    folders = [folder for folder in (path, *path.parents) if folder.is_relative_to(directory)]
    for folder in reversed(folders[1:]):
        try:
            os.listdir(folder)  # noqa: PTH208 - all of it, now
        except OSError:  # those below it will be asked for next time
            return
