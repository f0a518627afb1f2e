"""A process that has so many files open that what it opens next has a number above 1023, where `select` fails."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

MOST = 1200


@contextmanager
def all_numbers_taken() -> Iterator[None]:
    """Up to 1023; there may be more than before meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= MOST
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MOST), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while taken[-1] < 1023:
            taken.append(os.dup(taken[0]))
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
