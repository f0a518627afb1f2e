"""Which processes of an attempt are on this node although no runner of ours started them here, and how are they ended?

A launcher's daemons start ranks on nodes where the attempt has no process of its own. When the launch is over, killed or cut
off, some of them may stay: they are told by the variables that every task is given. With them go the daemons of launchers
that are their parents and would otherwise wait for ever for a launch that is gone.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import time
from signal import SIGKILL

from . import processes
from .family import send
from .messages import RUN

_DAEMONS = frozenset({"orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy", "pmi_proxy"})
_LAUNCHERS = frozenset(
    {
        "srun",
        "mpirun",
        "mpiexec",
        "orterun",
        "prterun",
        "mpiexec.hydra",
        "mpiexec.mpich",
        "mpirun.openmpi",
        "jsrun",
        "flux",
    }
)
_HELPERS = _DAEMONS | _LAUNCHERS | {"ssh", "rsh", "qrsh", "blaunch", "pbs_tmrsh"}
_LOOKS = 20
_PAUSE_S = 0.01


def end_strangers(run: bytes, task: int, attempt: int) -> int:
    """KILL what is left of this attempt on this node, and wait for a moment until it is gone. How many there were.

    `run` is the directory by which its processes know their run. What a runner here started itself is not touched.
    """
    wanted = (run, b"%d" % task, b"%d" % attempt)
    ours = {os.getpid(), *processes.descendants(os.getpid())}
    ended: set[int] = set()
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        left = _marked(wanted, ours)
        if not left:
            break
        for pid in left:
            daemon = _daemon_above(pid)
            send(pid, SIGKILL)
            if daemon and daemon not in ours:
                send(daemon, SIGKILL)
        ended.update(left)
    return len(ended)


def launcher_without_ranks(run: bytes, task: int, attempt: int, members: list[int]) -> str:
    """The launcher that runs among these processes of an attempt while no rank of it is on this node; "" for none."""
    names = {pid: _name(pid) for pid in members}
    waiting = next((name for name in names.values() if name in _LAUNCHERS), "")
    if not waiting:
        return ""
    for pid, name in names.items():
        if name in _LAUNCHERS and any(_name(below) not in _HELPERS for below in processes.descendants(pid)):
            return ""
    ours = {os.getpid(), *processes.descendants(os.getpid())}
    return "" if _marked((run, b"%d" % task, b"%d" % attempt), ours) else waiting


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _marked(wanted: tuple[bytes, ...], ours: set[int]) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in ours:
            marks = processes.variables(int(name), RUN, b"CANTLE_TASK", b"CANTLE_ATTEMPT")
            if marks == wanted and not _is_dead(int(name)):
                found.append(int(name))
    return found


def _is_dead(pid: int) -> bool:
    who = processes.identity(pid)
    return who is None or who.state in "ZX"


def _daemon_above(pid: int) -> int:
    """The launcher's daemon that started this process; 0 when something else did."""
    who = processes.identity(pid)
    if who is None or who.parent <= 1:
        return 0
    return who.parent if _name(who.parent) in _DAEMONS else 0
