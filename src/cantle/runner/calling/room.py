"""Is there enough memory for a result to be kept there, beside the processes that use it?"""

from __future__ import annotations

_SMALL = 64 << 20
"""What is smaller, in bytes, is not asked about."""
_LEFT = 16
"""A part of the machine's memory that is left to others: a sixteenth."""


def has_room_for(size: int, told_by: str = "/proc/meminfo") -> bool:
    """Whether so many bytes more can lie in memory without the kernel ending processes for want of it; also if nobody can tell.

    Who writes a file into memory is not refused when memory runs out: processes are killed.
    """
    if size < _SMALL:
        return True
    try:
        with open(told_by, "rb") as file:
            said = dict(line.split(b":", 1) for line in file if b":" in line)
        all_kib, free_kib = (int(said[name].split()[0]) for name in (b"MemTotal", b"MemAvailable"))
    except (OSError, KeyError, ValueError, IndexError):
        return True
    return size / 1024 <= free_kib - all_kib / _LEFT
