"""What does a cluster look like at this moment? For who has to understand why a test on it failed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from .cluster import Cluster


def scene(cluster: Cluster) -> str:
    """Its nodes and jobs as Slurm sees them, what its controller said last, and what runs on each node for how long."""
    parts = [_told(cluster, "sinfo", "-N", "-o", "%N %T %C %E"), _told(cluster, "squeue", "-o", "%i %j %T %M %r %N")]
    for node in cluster.nodes:
        if not cluster.alive(node):
            parts.append(f"{node}: does not run")
        elif guests := cluster.guests(node):
            parts.append(f"{node}:\n" + "\n".join(f"  {_process(pid, line)}" for pid, line in guests.items()))
    log = cluster.settings.state / "log" / "slurmctld.log"
    if log.exists():
        parts.append("\n".join(log.read_text(errors="replace").splitlines()[-25:]))
    return "\n\n".join(part for part in parts if part)


def outputs(place: Path) -> str:
    """The last lines of each file that a job wrote in this directory."""
    told = []
    for file in sorted(place.glob("*.out")):
        if file.is_file():
            told.append(f"{file.name}:\n" + "\n".join(file.read_text(errors="replace").splitlines()[-40:]))
    return "\n\n".join(told)


def _told(cluster: Cluster, *argv: str) -> str:
    done = cluster.slurm(argv, check=False)
    return (done.stdout + done.stderr).strip()


def _process(pid: int, line: str) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        waits = Path(f"/proc/{pid}/wchan").read_text().strip("0")
    except OSError:
        return f"{pid} (just gone) {line[:160]}"
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return f"{pid} {fields[0]} {age:.0f} s {waits} {line[:160]}"
