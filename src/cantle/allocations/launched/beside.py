"""Which copies of one launch share this machine, and which cores have they between them?

A launcher's daemon is the parent of all its processes on a machine. It often binds each to cores of its own, which one copy
that serves for all must have together: those of its daemon, or of all its siblings.
"""

from __future__ import annotations

import os
import time

from cantle.allocations.awaiting import can_be_read
from cantle.runner import processes

from .copies import Copy

_DAEMONS = ("orted", "prted", "prterun", "mpirun", "mpiexec", "hydra_pmi_proxy", "mpiexec.hydra", "mpiexec.mpich")
"""Launchers whose processes on a machine have no cores but those that it has itself."""
_LOCAL_RANKS = (
    b"OMPI_COMM_WORLD_LOCAL_RANK",
    b"MPI_LOCALRANKID",
    b"JSM_NAMESPACE_LOCAL_RANK",
    b"FLUX_TASK_LOCAL_ID",
    b"SLURM_LOCALID",
)
_SIBLINGS_S = 2.0


def widen(copy: Copy) -> set[int]:
    """Let this process use the cores of all copies here. Returns what it may use now."""
    own = os.sched_getaffinity(0)
    wanted = set(own)
    parent = os.getppid()
    if _program(parent) in _DAEMONS:
        wanted |= _affinity(parent)
    elif copy.local_size > 1:
        stop = time.monotonic() + _SIBLINGS_S
        while len(siblings := _siblings()) < copy.local_size - 1 and time.monotonic() < stop:
            time.sleep(0.01)  # the launcher is still starting them
        for pid in siblings.values():
            wanted |= _affinity(pid)
    if wanted != own:
        try:
            os.sched_setaffinity(0, wanted)
        except OSError:  # each is confined to its own
            pass
    return os.sched_getaffinity(0)


def await_first() -> bool:
    """Wait until the copy that serves for this machine has ended. False when it cannot be found."""
    stop = time.monotonic() + _SIBLINGS_S
    while (pid := _siblings().get(0)) is None:
        if time.monotonic() > stop:
            return False
        time.sleep(0.05)
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # it has ended already
        return True
    try:
        can_be_read(fd, None)
    finally:
        os.close(fd)
    return True


def _siblings() -> dict[int, int]:
    """The other copies on this machine: their processes by their local ranks."""
    found: dict[int, int] = {}
    for pid in processes.children(os.getppid()):
        if pid == os.getpid():
            continue
        ranks = [values[0] for name in _LOCAL_RANKS if (values := processes.variables(pid, name))]
        if ranks and ranks[0].isdigit():
            found[int(ranks[0])] = pid
    return found


def _affinity(pid: int) -> set[int]:
    try:
        return os.sched_getaffinity(pid)
    except OSError:
        return set()


def _program(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
