"""How large is a cluster, and where does it live? Every answer can be given in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "CANTLE_CLUSTER_"

# Read once, on import: within a test, names that begin with CANTLE_ are taken out of the environment.
_GIVEN = {name.removeprefix(_PREFIX): text for name, text in os.environ.items() if name.startswith(_PREFIX)}
CHOSEN = os.environ.get("CANTLE_CLUSTER", "")
"""The number of the cluster that the user wants, if any; else the first that nobody uses is taken."""

SIDE_BY_SIDE = 16
"""So many clusters can stand on one machine."""


def _number(name: str, default: int) -> int:
    text = _GIVEN.get(name, "")
    if text and not text.isdigit():
        raise ValueError(f"{_PREFIX}{name}={text}: a whole number is wanted")
    return int(text or default)


@dataclass(frozen=True)
class Settings:
    """One cluster's. Memory in MiB, times in seconds."""

    number: int
    nodes: int
    cores: int
    gpus: int
    memory: int
    disk: int
    """Size of each node's own small disk."""
    network: str
    """The first three octets; node n is .n, the head .254."""
    state: Path
    """Not under /tmp, /run or /dev/shm: those are each node's own."""
    controller_port: int
    slurmd_timeout: int
    kill_wait: int
    freezer: bool
    """Slurm tracks processes by control group, so that it also finds those that left their session."""

    @property
    def bridge(self) -> str:
        return f"cn{self.number}"

    @property
    def head(self) -> str:
        return f"{self.network}.254"

    def address(self, node: str) -> str:
        return f"{self.network}.{index(node)}"

    def link(self, node: str) -> str:
        """The head's end of a node's cable."""
        return f"cn{self.number}v{index(node)}"

    def tap(self, node: str) -> str:
        """The plug that takes the cable's place on the bridge while its frames go through a relay."""
        return f"cn{self.number}t{index(node)}"

    def node_directory(self, node: str) -> Path:
        return self.state / "nodes" / node

    def freezer_group(self, node: str) -> Path:
        return Path(f"/sys/fs/cgroup/freezer/cantle-cluster-{self.number}-{node}")


def index(node: str) -> int:
    """The number in a node's name: 3 for c3. ValueError if it is no node's name."""
    digits = node.removeprefix("c")
    if node[:1] != "c" or not digits.isdigit() or not 1 <= int(digits) <= 250:
        raise ValueError(f"nodes are named c1 to c250, not {node!r}")
    return int(digits)


def settings(number: int) -> Settings:
    """Of the cluster of this number, 0 to `SIDE_BY_SIDE` - 1."""
    return Settings(
        number=number,
        nodes=_number("NODES", 5),
        cores=_number("CORES", 4),
        gpus=_number("GPUS", 2),
        memory=_number("MEMORY", 4000),
        disk=_number("DISK", 16),
        network=f"{_GIVEN.get('NETWORK', '10.78')}.{number}",
        state=Path(_GIVEN.get("STATE", "/var/lib/cantle-cluster")) / str(number),
        controller_port=_number("PORT", 17800) + number,
        slurmd_timeout=_number("SLURMD_TIMEOUT", 9),
        kill_wait=_number("KILL_WAIT", 5),
        freezer=bool(_number("FREEZER", int(os.access("/sys/fs/cgroup/freezer/cgroup.procs", os.W_OK)))),
    )
