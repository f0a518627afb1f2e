"""Who takes a cluster down when its user has gone, however he went? A process that waits for a pipe to close."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

from .cluster import Cluster, ClusterError, claim, free_numbers
from .settings import CHOSEN, settings


class Guarded:
    """A cluster that is up for as long as this process lives, at the most."""

    def __init__(self) -> None:
        """Bring one up. ClusterError if none can be had."""
        self._name, self.cluster = _claimed()
        self._kept = (self.cluster.settings.state / "kept").exists()
        self._guard: subprocess.Popen[bytes] | None = None
        if not self._kept:
            here = Path(__file__).parent
            self._guard = subprocess.Popen(
                [sys.executable, str(here), "guard", str(self.cluster.settings.number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[self._name.fileno()],
                start_new_session=True,
            )
            self.cluster.down()  # what somebody left who was killed together with his guard
        try:
            self.cluster.up()
        except BaseException:
            self.close()
            raise

    def close(self) -> list[str]:
        """Take it down, unless the user keeps it. Returns what is left of it, in words."""
        self._name.close()
        if not self._guard:
            return []
        told, _ = self._guard.communicate()
        return [line for line in told.decode().splitlines() if line]


def _claimed() -> tuple[socket.socket, Cluster]:
    numbers = [int(CHOSEN)] if CHOSEN else free_numbers()
    for number in numbers:
        if name := claim(number):
            return name, Cluster(settings(number))
    raise ClusterError(f"cluster {CHOSEN} is in use by another process" if CHOSEN else "all clusters are in use")


def guard(cluster: Cluster) -> None:
    """Wait until our user is gone, then take the cluster down and say what is left."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    cluster.down()
    print("\n".join(cluster.leftovers()), flush=True)
