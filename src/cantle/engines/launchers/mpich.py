"""Hydra, the mpiexec of MPICH, Intel MPI and MVAPICH: a machine file that says how many ranks each host has."""

from __future__ import annotations

from cantle.engines.launchers import ranks
from cantle.engines.launchers.base import Layout, Prefix, Surroundings
from cantle.engines.launchers.openmpi import SSH_WORDS
from cantle.engines.launchers.slurm import short
from cantle.engines.launchers.stale import as_partition, scrubbed


class Mpich:
    """Hydra, over ssh or, in a job of Slurm's, by its own proxies there."""

    name = "mpich"

    def __init__(self, program: str = "mpiexec") -> None:
        self.programs: tuple[str, ...] = (program,)

    def prefix(self, layout: Layout, around: Surroundings, stem: str) -> Prefix:
        """One mpiexec on exactly these hosts."""
        in_slurm = around.system == "slurm"
        names = [short(host.name) if in_slurm else host.name for host in layout.hosts]
        path = f"{stem}.machines"
        files = {path: "".join(f"{name}:{host.ranks}\n" for name, host in zip(names, layout.hosts, strict=True))}
        words = [self.programs[0], "-n", str(layout.ranks), "-machinefile", path]
        env = scrubbed(around.environ)
        if in_slurm:
            words += ["-bootstrap", "slurm"]
            words = [*as_partition(names, [host.ranks for host in layout.hosts], short(layout.begins_on)), *words]
            # Its proxies must not take what the ranks of others need; srun reads these.
            env |= {"SLURM_OVERLAP": "1", "SLURM_MEM_PER_NODE": "0", "SLURM_GRES": "none"}
        else:
            if not around.system:  # other batch systems have a way of their own, which is Hydra's to know
                words += ["-bootstrap", "ssh"]
            if layout.reaches_out:
                for name in ("HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"):
                    env[name] = " ".join(filter(None, (around.environ.get(name, ""), SSH_WORDS)))
        words += around.extra
        if ranks.is_needed(layout):
            files[f"{stem}.ranks"] = ranks.script(layout)
            words += ["/bin/sh", f"{stem}.ranks"]
        return Prefix(tuple(words), files, env)
