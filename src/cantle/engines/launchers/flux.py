"""flux run: a job in the Flux instance that we are in, on exactly these hosts."""

from __future__ import annotations

from cantle.engines.launchers.base import Layout, Prefix, Surroundings
from cantle.engines.launchers.stale import scrubbed


class Flux:
    """Flux's, from version 0.49 on."""

    name = "flux"
    programs: tuple[str, ...] = ("flux",)

    def prefix(self, layout: Layout, around: Surroundings, stem: str) -> Prefix:  # noqa: ARG002 - it needs no file
        """One job on exactly these hosts."""
        names = ",".join(host.name for host in layout.hosts)
        words = ["flux", "run", "-N", str(len(layout.hosts)), "-n", str(layout.ranks), "-c", str(layout.cores_each)]
        if layout.gpus and layout.gpus_each:
            words += ["-g", str(layout.gpus_each)]
        elif layout.gpus:
            words.append(f"--gpus-per-node={layout.gpus}")
        words += [f"--requires=hosts:{names}", "-o", "cpu-affinity=per-task", "-o", "gpu-affinity=per-task"]
        if around.mpi:
            words += ["-o", f"mpi={around.mpi}"]
        return Prefix((*words, *around.extra), {}, scrubbed(around.environ))
