"""jsrun, LSF's: an explicit resource file says for each rank its host, cores and GPUs.

Hosts are numbers in it: their place in the job's list, from 1, without the node on which the batch script runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from cantle.engines.launchers.base import Layout, Prefix, Surroundings
from cantle.engines.launchers.slurm import short
from cantle.engines.launchers.stale import scrubbed


class Jsrun:
    """LSF's, for jobs under its step manager."""

    name = "jsrun"
    programs: tuple[str, ...] = ("jsrun",)

    def prefix(self, layout: Layout, around: Surroundings, stem: str) -> Prefix:
        """One step with a resource file."""
        numbers = _numbers(around.environ)
        lines = ["cpu_index_using: physical\n", "overlapping_rs: allow\n"]
        rank = 0
        for host in layout.hosts:
            number = numbers.get(short(host.name))
            if number is None:
                raise ValueError(f"jsrun: {host.name} is not among the hosts of this job (LSB_MCPU_HOSTS)")
            for seat in host.seats:
                if not seat.cores:
                    raise ValueError(
                        f"jsrun: the cores of {host.name} have no numbers, because more were declared than exist"
                    )
                parts = [f"host: {number}", f"cpu: {_set(seat.cores)}"]
                if seat.gpus:
                    parts.append(f"gpu: {_set(seat.gpus)}")
                lines.append(f"rank: {rank}: {{ {'; '.join(parts)} }}\n")
                rank += 1
        path = f"{stem}.erf"
        words = ("jsrun", "--erf_input", path, *around.extra)
        return Prefix(words, {path: "".join(lines)}, scrubbed(around.environ))


def _set(items: tuple[int, ...] | tuple[str, ...]) -> str:
    return "{" + ",".join(map(str, items)) + "}"


def _numbers(environ: Mapping[str, str]) -> dict[str, int]:
    """The number of each host of the job. The first entry is the node of the batch script."""
    words = environ.get("LSB_MCPU_HOSTS", "").split()
    return {short(name): number for number, name in enumerate(words[::2]) if number}
