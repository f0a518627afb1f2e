"""srun: one step of the job for each launch, with everything said.

`--exact` takes the launch's own cores and no others, so that several launches share a node, each on its own. Memory and GPUs
would be taken whole by the first of them when nothing is said, and the next would wait: so both are always said.

Where another step holds our cores and always will, the step overlaps with it and has each rank bound to its own. Such a step
takes the whole of the job's nodes: of one that is given fewer cores Slurm chooses which, and refuses a binding to others.

The program sees the launch's nodes for those of the job, in Slurm's order. Slurm's PMIx (22.05) reads the same variable: it
takes the step's first node for the job's first one, and sends there what the step's own nodes then wait for in MPI_Init.
"""

from __future__ import annotations

import re

from cantle.engines.launchers.base import Layout, Prefix, Surroundings
from cantle.engines.launchers.stale import scrubbed

_PLUGINS = {"openmpi": "pmix", "mpich": "pmi2", "intelmpi": "pmi2", "none": "none"}
"""By which of Slurm's plug-ins ranks of these find each other."""
_GPU_LISTS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


class Srun:
    """Slurm's."""

    name = "srun"
    programs: tuple[str, ...] = ("srun",)

    def prefix(self, layout: Layout, around: Surroundings, stem: str) -> Prefix:
        """One step on exactly these nodes."""
        names = [short(host.name) for host in layout.hosts]
        words: list[str] = ["srun"]
        files = {}
        changes: list[str] = []
        if around.job:
            words.append(f"--jobid={around.job}")
            changes.append(f"SLURM_JOB_NODELIST={','.join(sorted(names, key=_as_slurm_sorts))}")
        words += [f"--nodes={len(names)}", f"--ntasks={layout.ranks}"]
        if layout.even:
            words += [f"--ntasks-per-node={layout.even}", f"--nodelist={','.join(names)}", "--distribution=block"]
        else:
            path = f"{stem}.hosts"
            files[path] = "".join(f"{name}\n" * host.ranks for name, host in zip(names, layout.hosts, strict=True))
            words.append("--distribution=arbitrary")
            changes.append(f"SLURM_HOSTFILE={path}")
        overlaps = _beside_a_step(around) or (around.orphans and not layout.gpus)  # two would be given the same GPUs
        each = f"SLURM_CPUS_PER_TASK={layout.cores_each}"
        words += ("--overlap", "--whole") if overlaps else (f"--cpus-per-task={layout.cores_each}", "--exact")
        words.append(f"--mem={layout.memory_mib}")
        if layout.gpus and layout.gpus_each:
            words.append(f"--gpus-per-task={layout.gpus_each}")
        else:
            words.append(f"--gres=gpu:{layout.gpus}" if layout.gpus else "--gres=none")
        if layout.gpus:  # Slurm tells each rank of its own; ours are those of the first node alone
            changes = [*(word for name in _GPU_LISTS for word in ("-u", name)), *changes]
        words += [f"--export=ALL,{each}" if overlaps else "--export=ALL", "--kill-on-bad-exit=1", "--no-kill=off"]
        if overlaps:
            words.append(_binding(layout))
        plugin = _PLUGINS.get(around.mpi, around.mpi) or _preferred(around)
        if plugin:
            words.append(f"--mpi={plugin}")
        before = ("env", *changes) if changes else ()
        return Prefix((*before, *words, *around.extra), files, scrubbed(around.environ))


def short(name: str) -> str:
    """A host's name as Slurm has it: without its domain. An address stays as it is."""
    return name if name.replace(".", "").isdecimal() else name.partition(".")[0]


def _as_slurm_sorts(name: str) -> list[tuple[str, int]]:
    """By its letters and by what its digits count: node9 before node10."""
    return [(letters, int(digits or -1)) for letters, digits in re.findall(r"(\D*)(\d*)", name)]


def _beside_a_step(around: Surroundings) -> bool:
    """Whether the run itself is a step of the job, or stands beside a launcher's: such a step holds all of its nodes' cores."""
    step = around.environ.get("SLURM_STEP_ID", "")
    outer = step.isdigit() and int(step) < 0xFFFFFFF0  # above are the job's script and shells
    return outer or "OMPI_COMM_WORLD_RANK" in around.environ or "MPI_LOCALRANKID" in around.environ


def _binding(layout: Layout) -> str:
    """Steps that overlap are given the same cores by Slurm, so ours are named; it takes one list for all hosts."""
    lists = {tuple(seat.cores for seat in host.seats) for host in layout.hosts}
    if layout.bound and len(lists) == 1:
        masks = [hex(sum(1 << core for core in cores)) for cores in lists.pop()]
        return f"--cpu-bind=mask_cpu:{','.join(masks)}"
    return "--cpu-bind=none"


def _preferred(around: Surroundings) -> str:
    """What the user's own environment says, unless it is that of a step, where it only tells how the step was started."""
    environ = around.environ
    return "" if environ.get("SLURM_STEP_ID", "").isdigit() else environ.get("SLURM_MPI_TYPE", "")
