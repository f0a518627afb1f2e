"""What must be asked of Slurm before its srun can be told everything? By which plug-in ranks find each other.

Where the site has a default, that counts. Where it has none, ranks started without a word would each believe to be alone, and
succeed: so the plug-in is chosen by the MPI that is there, if Slurm has it.
"""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache

_PATIENCE_S = 10.0
_WISHES = {"openmpi": ("pmix", "pmi2"), "mpich": ("pmi2", "pmix")}


@lru_cache(maxsize=4)
def plugin_for(mpi: str) -> str:
    """Which of srun's plug-ins serves this MPI (openmpi or mpich) here; "" when Slurm's default does, or nothing is known."""
    default = re.search(r"^MpiDefault\s*=\s*(\S+)", _said("scontrol", "show", "config"), re.MULTILINE)
    if default is None or default[1] != "none":
        return ""
    there = _said("srun", "--mpi=list").replace(",", " ").split()
    return next((wish for wish in _WISHES.get(mpi, ()) if wish in there), "")


def _said(*argv: str) -> str:
    try:
        result = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr
