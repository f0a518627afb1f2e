"""Which file systems are mounted where on this machine? The kernel tells; none of them is asked, as one may hang."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable


def mounts() -> dict[str, str]:
    """By the folder where it is mounted, of which kind the file system is; nothing where that cannot be known."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return mounts_in(file.read().splitlines())
    except OSError:
        return {}


def mounts_in(lines: Iterable[str]) -> dict[str, str]:
    """The same by lines as in /proc/self/mountinfo. Of several at one place the last hides the others."""
    found = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.count(" ") > 4:
            point = before.split(" ")[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
            found[point] = after.partition(" ")[0]
    return found


def nearest_above(folder: str, places: Container[str]) -> str:
    """This absolute folder or the next one above it that is among the places, "/" when none is. By its name alone."""
    while folder != "/" and folder not in places:
        folder = os.path.dirname(folder)  # noqa: PTH120
    return folder
