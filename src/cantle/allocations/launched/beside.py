"""Which copies of one launch share this machine, and which cores have they between them?

A launcher's daemon is the parent of all its processes on a machine, or of the scripts around them. It often binds each to cores
of its own, which one copy that serves for all must have together: those of its daemon, or of all its siblings.
"""

from __future__ import annotations

import os
import time

from cantle.allocations.awaiting import can_be_read
from cantle.runner import processes

from .copies import Copy

_DAEMONS = ("orted", "prted", "prterun", "mpirun", "mpiexec", "hydra_pmi_proxy", "mpiexec.hydra", "mpiexec.mpich")
"""Launchers whose processes on a machine have no cores but those that it has itself."""
_OTHERS = ("slurmstepd", "flux-shell")
_LOCAL_RANKS = (
    b"OMPI_COMM_WORLD_LOCAL_RANK",
    b"MPI_LOCALRANKID",
    b"PMI_LOCAL_RANK",
    b"PALS_LOCAL_RANKID",
    b"JSM_NAMESPACE_LOCAL_RANK",
    b"FLUX_TASK_LOCAL_ID",
    b"SLURM_LOCALID",
)
_LATE_S = 60.0
"""So long the last copy may come after the first, on a machine that is slow."""
_OVER_S = 2.0
"""A first copy of which nothing is to be seen for so long has ended, if its launcher has no child that may become one."""


def widen(copy: Copy) -> set[int]:
    """Let this process use the cores of all copies here. Returns what it may use now.

    It waits for those that its launcher is still starting, unless not even its own process is to be seen among them.
    """
    own = os.sched_getaffinity(0)
    wanted = set(own)
    launcher = _launcher()
    if _program(launcher) in _DAEMONS:
        wanted |= _affinity(launcher)
    elif copy.local_size > 1:
        stop = time.monotonic() + _LATE_S
        while 0 < len(copies := _copies(launcher)[0]) < copy.local_size and time.monotonic() < stop:
            time.sleep(0.01)
        for pid in copies.values():
            wanted |= _affinity(pid)
    if wanted != own:
        try:
            os.sched_setaffinity(0, wanted)
        except OSError:  # each is confined to its own
            pass
    return os.sched_getaffinity(0)


def await_first() -> bool:
    """Wait until the copy that serves for this machine has ended. False when it cannot be found, or has ended before."""
    launcher = _launcher()
    begun = time.monotonic()
    while (pid := (found := _copies(launcher))[0].get(0)) is None:
        if time.monotonic() > begun + (_LATE_S if found[1] else _OVER_S):
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


def _launcher() -> int:
    """Who started the copies on this machine: our parent, or that of the scripts around us, which have our rank as well."""
    name = _rank_name()
    own = os.environb.get(name)
    pid = os.getppid()
    while _program(pid) not in (*_DAEMONS, *_OTHERS) and own is not None and processes.variables(pid, name) == (own,):
        above = processes.identity(pid)
        if above is None:
            break
        pid = above.parent
    return pid


def _copies(launcher: int) -> tuple[dict[int, int], bool]:
    """The copies on this machine, us among them: their processes by their local ranks; and whether there may come more."""
    name = _rank_name()
    found: dict[int, int] = {}
    more = False
    for pid in processes.children(launcher):
        who = processes.identity(pid)
        if who is None or who.state in "ZX":
            continue
        rank = processes.variables(pid, name)
        if rank is not None and rank[0].isdigit():
            found[int(rank[0])] = pid
        else:
            more = True  # it is not yet what it shall be, as far as one can see
    return found, more


def _rank_name() -> bytes:
    """The variable by which our launcher tells its processes their local ranks."""
    return next((name for name in _LOCAL_RANKS if name in os.environb), _LOCAL_RANKS[-1])


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
