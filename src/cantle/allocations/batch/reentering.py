"""Is a job in which a run was still there, and with what environment is it entered from outside? Slurm alone lets one in."""

from __future__ import annotations

import re

from .hostlists import expand
from .systems import asker

_FIELD = re.compile(r"(?:^|\s)([A-Za-z_:/]+)=(\S*)")


def environment_of(job: str) -> dict[str, str] | None:
    """What `salloc` would set for this job, named as in `Slurm 91`; None when it does not run, or cannot be entered.

    A heterogeneous job cannot.
    """
    import os

    system, _, number = job.partition(" ")
    if system != "Slurm" or not number.isdigit():
        return None
    told = asker(os.environ)(("scontrol", "show", "job", "--details", "--oneliner", number)).splitlines()
    return _environment(number, told[0]) if len([line for line in told if line.strip()]) == 1 else None


def _environment(number: str, told: str) -> dict[str, str] | None:
    fields = _FIELD.findall(told)
    if dict(fields).get("JobState") != "RUNNING" or any(name == "HetJobId" for name, _ in fields):
        return None
    cores: dict[str, int] = {}
    memory: dict[str, int] = {}
    group: list[str] = []
    for name, value in fields:
        if name == "Nodes":
            group = expand(value)
        elif name == "CPU_IDs":
            cores |= dict.fromkeys(group, _how_many(value))
        elif name == "Mem" and value.isdigit():
            memory |= dict.fromkeys(group, int(value))
    names = expand(dict(fields).get("NodeList", ""))
    if not names or set(names) != set(cores):
        return None
    listed = ",".join(names)
    found = {
        "SLURM_JOB_ID": number,
        "SLURM_JOB_NODELIST": listed,
        "SLURM_NODELIST": listed,
        "SLURM_JOB_NUM_NODES": str(len(names)),
        "SLURM_NNODES": str(len(names)),
        "SLURM_JOB_CPUS_PER_NODE": ",".join(str(cores[name]) for name in names),
    }
    if least := min(memory.values(), default=0):
        found["SLURM_MEM_PER_NODE"] = str(least)
    return found


def _how_many(ids: str) -> int:
    """Of `0-3,8` five."""
    total = 0
    for part in filter(None, ids.split(",")):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
