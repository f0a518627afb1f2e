"""Which programs does a cluster need, and how do they get onto this machine? By apt, when we are root and it is there."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

# Command, the Debian package that has it, and what it is for.
_NEEDED = (
    ("slurmctld", "slurmctld", "Slurm"),
    ("slurmd", "slurmd", "Slurm"),
    ("srun", "slurm-client", "Slurm"),
    ("munged", "munge", "Slurm"),
    ("sshd", "openssh-server", "ssh"),
    ("ssh", "openssh-client", "ssh"),
    ("mpirun.openmpi", "openmpi-bin", "MPI"),
    ("mpicc.openmpi", "libopenmpi-dev", "MPI"),
    ("mpiexec.hydra", "mpich", "MPI"),
    ("ip", "iproute2", "networks"),
    ("ethtool", "ethtool", "networks"),
    ("unshare", "util-linux", "nodes"),
    ("nsenter", "util-linux", "nodes"),
    ("cc", "gcc", "MPI"),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NO_SERVICES = Path("/usr/sbin/policy-rc.d")
_PATIENCE = 600
"""Seconds for another apt to end."""


def missing() -> list[tuple[str, str, str]]:
    """Those that are not here."""
    path = f"{os.environ.get('PATH', '')}:{_PATH}"
    return [needed for needed in _NEEDED if not shutil.which(needed[0], path=path)]


def install() -> str:
    """Get what is missing. Returns why not all of it is there now, or "". Quick when there is nothing to do."""
    if not missing():
        return ""
    packages = sorted({package for _, package, _ in missing()})
    advice = f"install {' '.join(packages)}"
    if os.geteuid():
        return f"only root may {advice}"
    if not shutil.which("apt-get"):
        return f"there is no apt-get here; {advice} in this system's own way"
    print(f"cluster: apt-get {advice}", file=sys.stderr)
    with open("/var/lock/cantle-cluster-apt", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        why = _by_apt(packages)
    if left := missing():
        return f"apt-get could not {advice}: {why}\nStill missing: {', '.join(command for command, _, _ in left)}"
    return ""


def _by_apt(packages: list[str]) -> str:
    # No service shall start: ports, sockets and the system's own configuration are not ours.
    made = not _NO_SERVICES.exists()
    if made:
        _NO_SERVICES.write_text("#!/bin/sh\nexit 101\n")
        _NO_SERVICES.chmod(0o755)
    try:
        told = _apt("install", "-y", "--no-install-recommends", *packages)
        if told:  # the lists may be old, or not there at all
            _updated()
            told = _apt("install", "-y", "--no-install-recommends", *packages)
        return told
    finally:
        if made:
            _NO_SERVICES.unlink(missing_ok=True)


def _updated() -> None:
    """The lock on the lists is not one that apt waits for."""
    deadline = time.monotonic() + _PATIENCE
    while (told := _apt("update")) and "lock" in told and time.monotonic() < deadline:
        time.sleep(5)


def _apt(*words: str) -> str:
    """What went wrong, in apt's last words; "" if nothing did."""
    done = subprocess.run(
        ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={_PATIENCE}", *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=3 * _PATIENCE,
    )
    return "" if done.returncode == 0 else "\n".join(done.stdout.splitlines()[-8:]) or f"exit {done.returncode}"
