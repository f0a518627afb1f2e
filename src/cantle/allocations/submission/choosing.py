"""Which batch system is the one of this machine?"""

from __future__ import annotations

import os
from shutil import which

from cantle.errors import RequestError

from .flux import Flux
from .lsf import Lsf
from .pbs import Pbs
from .slurm import Slurm

ALL = (Slurm, Flux, Lsf, Pbs)


def system_here() -> str:
    """Its name. Raises RequestError when there is none.

    Inside an instance of Flux it is Flux, also when that stands in a job of Slurm.
    """
    there = [system.name for system in ALL if which(system.submits_by)]
    if "pbs" in there and "SGE_ROOT" in os.environ:
        there.remove("pbs")  # its qsub is another one
    if "flux" in there and os.environ.get("FLUX_URI"):
        return "flux"
    if there:
        return there[0]
    commands = ", ".join(system.submits_by for system in ALL)
    raise RequestError(
        f"there is no batch system here that jobs could be submitted to: none of {commands} is on the PATH. "
        "Log in where jobs are submitted, or run the study here: cantle run"
    )
