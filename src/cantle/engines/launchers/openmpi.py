"""Open MPI's mpirun: a host file with as many slots as there are ranks, and nothing left to its own judgement.

What has no option of the same name in all of its versions is said by variables, in the spelling of each.
"""

from __future__ import annotations

from cantle.engines.launchers import ranks
from cantle.engines.launchers.base import Layout, Prefix, Surroundings
from cantle.engines.launchers.slurm import short
from cantle.engines.launchers.stale import as_partition, scrubbed

SSH_WORDS = "-o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
"""Nobody is there to type a password, and a host that has lost its power closes no connection."""
_SLURM_WORDS = "--overlap --mem=0 --gres=none"
"""Its daemons must not take what the ranks of others need."""


class OpenMpi:
    """Open MPI's, over ssh or, in a job of Slurm's, by its own daemons there."""

    name = "openmpi"

    def __init__(self, program: str = "mpirun") -> None:
        self.programs: tuple[str, ...] = (program,)

    def prefix(self, layout: Layout, around: Surroundings, stem: str) -> Prefix:
        """One mpirun on exactly these hosts."""
        words = [self.programs[0], "-n", str(layout.ranks)]
        if around.as_root:
            words.append("--allow-run-as-root")
        words += ["--bind-to", "none", "--map-by", "slot"]
        env = scrubbed(around.environ)
        in_slurm = around.system == "slurm"
        names = [short(host.name) if in_slurm else host.name for host in layout.hosts]
        files = {f"{stem}.hosts": "".join(
            f"{name} slots={host.ranks}\n" for name, host in zip(names, layout.hosts, strict=True)
        )}  # fmt: skip
        words += ["--hostfile", f"{stem}.hosts"]
        if in_slurm:
            words = [*as_partition(names, [host.ranks for host in layout.hosts], short(layout.begins_on)), *words]
            env |= _both("plm_slurm_args", "plm_slurm_args", _SLURM_WORDS, around)
        elif layout.reaches_out:
            if not around.system:  # other batch systems have a way of their own, which is Open MPI's to know
                env |= {"OMPI_MCA_plm": "rsh", "PRTE_MCA_plm": "ssh"}
            if around.environ.get("OMPI_MCA_plm_rsh_agent", "ssh").rpartition("/")[2].startswith("ssh"):
                env |= _both("plm_rsh_args", "plm_ssh_args", SSH_WORDS, around)
        if layout.reaches_out:
            words += [word for name in around.passed_on for word in ("-x", name)]
        words += around.extra
        if ranks.is_needed(layout):
            files[f"{stem}.ranks"] = ranks.script(layout)
            words += ["/bin/sh", f"{stem}.ranks"]
        return Prefix(tuple(words), files, env)


def _both(old: str, new: str, value: str, around: Surroundings) -> dict[str, str | None]:
    """The parameter in the spelling of version 4 and of version 5, after what the user has set there himself."""
    return {
        name: " ".join(filter(None, (around.environ.get(name, ""), value)))
        for name in (f"OMPI_MCA_{old}", f"PRTE_MCA_{new}")
    }
