"""What of this machine may we use? Its affinity mask, its control group's limits, and the GPUs that were left to us.

Read from files only: no vendor tool is started, which would cost more than a small run.
"""

# Paths stay text: pathlib costs start-up time, and an object per path.
# ruff: noqa: PTH208

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

import msgspec

from cantle.model.resources import count

_GPU_LISTS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""In this order: on AMD the first of them filters before the others count."""
_GRANTED = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""What a batch system says where it leaves the vendor's variables alone."""


class Machine(msgspec.Struct, frozen=True):
    """What was found. `notes` are sentences about every number that is not the machine's own."""

    cores: int
    core_ids: tuple[int, ...]
    memory_mib: int
    gpu_ids: tuple[str, ...]
    notes: tuple[str, ...]


def look(
    root: str,
    environ: Mapping[str, str],
    affinity: Collection[int],
    physical: bool = False,
    granted: int = 0,
    declared: int = 0,
) -> Machine:
    """Look at the machine whose /proc and /sys lie under `root` ("" for the real one).

    `physical` takes one of each core's hardware threads. `granted`: so many cores a batch system gave us here, 0 when it does
    not say. That counts where it has not confined us to them. `declared`: so many will be taken whatever is here, 0 when
    nobody has said how many; then those are that are found.
    """
    notes: list[str] = []
    ids = tuple(sorted(affinity))
    online = _online(root) or len(ids)
    if len(ids) < online:
        notes.append(f"the affinity mask leaves {len(ids)} of this machine's {count(online, 'core')}")
    if physical:
        all_ids, ids = ids, _one_per_core(root, ids)
        notes.append(f"{count(len(ids), 'physical core')} of {count(len(all_ids), 'logical core')} taken")
    cores = len(ids)
    quota = _cpu_quota(root)
    if quota and quota < cores:
        # A share of time on any core, not certain cores: bound to the first ones, we would meet our neighbours there.
        notes.append(
            f"the control group grants the time of {quota:g} of {count(cores, 'core')}: no task is bound to a core"
        )
        cores = max(1, int(quota))
        ids = ()
    if 0 < granted < cores and len(affinity) >= online:
        # Some of the cores are ours, the others perhaps another job's, and nobody says which.
        notes.append(
            f"{count(granted, 'core')} of this machine's {cores} {'was' if granted == 1 else 'were'} granted, but we are not "
            "confined to certain ones: no task is bound to a core"
        )
        cores = granted
        ids = ()
    slurm, taken = environ.get("SLURM_CPUS_ON_NODE", ""), declared or cores
    if slurm.isdigit() and int(slurm) != taken:
        why = (
            f"{count(declared, 'core')} {'was' if declared == 1 else 'were'} declared"
            if declared
            else f"{cores} can be used"
        )
        notes.append(f"Slurm says {count(int(slurm), 'CPU')} on this node, but {why}: taking {taken}")
    total = _memory_total(root)
    limit = _memory_limit(root)
    memory = total
    if limit and (limit < total or not total):
        memory = limit
        notes.append(f"the control group grants {limit} MiB of this machine's {total} MiB of memory")
    return Machine(cores, ids, memory, _gpus(root, environ), tuple(notes))


def _gpus(root: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    for name in (*_GPU_LISTS, *_GRANTED):
        if name in environ:
            return _listed(environ[name])
    nvidia = sorted(int(name[6:]) for name in _names(f"{root}/dev") if name.startswith("nvidia") and name[6:].isdigit())
    if nvidia and _names(f"{root}/proc/driver/nvidia/gpus"):
        return tuple(map(str, range(len(nvidia))))  # the vendor counts what the container was given, from 0
    found = 0
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    for node in _names(nodes):
        properties = _text(f"{nodes}/{node}/properties").split("\n")
        found += any(line.startswith("simd_count ") and line != "simd_count 0" for line in properties)
    return tuple(map(str, range(found)))


def _listed(text: str) -> tuple[str, ...]:
    """The names in a vendor's list. As the vendors do: the first invalid one ends it."""
    names: list[str] = []
    for name in map(str.strip, text.split(",")):
        if not name or name.startswith("-") or name in ("none", "void", "NoDevFiles") or name in names:
            break
        names.append(name)
    return tuple(names)


def _online(root: str) -> int:
    """How many cores the machine has."""
    total = 0
    for part in _text(f"{root}/sys/devices/system/cpu/online").strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            total += int(last or first) - int(first) + 1
    return total


def _one_per_core(root: str, ids: tuple[int, ...]) -> tuple[int, ...]:
    seen: set[str] = set()
    chosen = []
    for core in ids:
        siblings = _text(f"{root}/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").strip() or str(core)
        if siblings not in seen:
            seen.add(siblings)
            chosen.append(core)
    return tuple(chosen)


def _memory_total(root: str) -> int:
    for line in _text(f"{root}/proc/meminfo").split("\n"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def _cpu_quota(root: str) -> float:
    """In cores; 0 when nothing bounds it."""
    least = 0.0
    for folder in _groups(root, "cpu"):
        quota, _, period = _text(f"{folder}/cpu.max").strip().partition(" ")
        if not quota:
            quota, period = (_text(f"{folder}/cpu.cfs_{part}_us").strip() for part in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period):
            granted = int(quota) / int(period)
            least = min(least, granted) if least else granted
    return least


def _memory_limit(root: str) -> int:
    """In MiB; 0 when nothing bounds it."""
    least = 0
    for folder in _groups(root, "memory"):
        text = (_text(f"{folder}/memory.max") or _text(f"{folder}/memory.limit_in_bytes")).strip()
        if text.isdigit():
            limit = int(text) >> 20
            least = min(least, limit) if least else limit
    return least


def _groups(root: str, controller: str) -> list[str]:
    """The folders of this process's control group and of all above it, in either version of control groups."""
    own: dict[str, str] = {}
    for line in _text(f"{root}/proc/self/cgroup").split("\n"):
        _, _, rest = line.partition(":")
        names, found_path, path = rest.partition(":")
        for name in names.split(",") if found_path else ():
            own[name] = path
    found = []
    for line in _text(f"{root}/proc/self/mountinfo").split("\n"):
        fields, _, kind = line.partition(" - ")
        parts, kinds = fields.split(), kind.split()
        if len(parts) < 5 or len(kinds) < 3:
            continue
        if kinds[0] == "cgroup2":
            path = own.get("", "/")
        elif kinds[0] == "cgroup" and controller in kinds[2].split(","):
            path = own.get(controller, "/")
        else:
            continue
        top, inside = root + parts[4], _below(path, parts[3])
        while inside:
            found.append(f"{top}/{inside}")
            inside = inside.rpartition("/")[0]
        found.append(top)
    return found


def _below(path: str, mounted: str) -> str:
    """Where a group's path is under a mount that may show only a part of the tree (as in containers)."""
    if mounted != "/" and (path + "/").startswith(mounted + "/"):
        path = path[len(mounted) :]
    return path.strip("/")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
