"""Which launcher starts the ranks of this launch? The one that was named, or that which belongs to its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cantle.engines.launchers.base import Launcher

NAMES = ("srun", "openmpi", "mpich", "flux", "jsrun", "cantle")
ALSO_CALLED = {"slurm": "srun", "lsf": "jsrun", "intelmpi": "mpich", "hydra": "mpich", "mpirun": "openmpi"}
_PROGRAMS = {
    "openmpi": ("mpirun.openmpi", "mpirun"),
    "mpich": ("mpiexec.mpich", "mpiexec.hydra", "mpiexec"),
}
"""Where several MPIs are installed, the plain name is only one of them."""
_OF_SYSTEM = {"slurm": "srun", "flux": "flux", "jsm": "jsrun"}


def system_of(environ: Mapping[str, str], preferred: str = "") -> tuple[str, str]:
    """The batch system in whose job these variables are, and the job's name: ("", "") for none.

    One may run within another: the innermost counts, unless `preferred` names one of them.
    """
    found = {}
    if environ.get("FLUX_URI"):
        found["flux"] = environ.get("FLUX_JOB_ID", "")
    if environ.get("SLURM_JOB_ID"):
        found["slurm"] = environ["SLURM_JOB_ID"]
    if environ.get("LSB_JOBID"):
        found["jsm" if "JSM_JSRUN_PATH" in environ or "JSM_ROOT" in environ else "lsf"] = environ["LSB_JOBID"]
    if environ.get("PBS_JOBID"):
        found["pbs"] = environ["PBS_JOBID"]
    if environ.get("PE_HOSTFILE") and environ.get("JOB_ID"):
        found["sge"] = environ["JOB_ID"]
    for name in (preferred, *found):
        if name in found:
            return name, found[name]
    return "", ""


def name_for(system: str) -> str:
    """The launcher that belongs into a job of this batch system; "" where it has none of its own."""
    return _OF_SYSTEM.get(system, "")


def launcher_named(name: str, which: Callable[[str], str | None]) -> Launcher:
    """The launcher of this name, of ours. `which` finds programs. Raises KeyError for a name that is not ours."""
    name = ALSO_CALLED.get(name, name)
    if name in _PROGRAMS:
        candidates = _PROGRAMS[name]
        program = next((each for each in candidates if which(each)), candidates[-1])
        from cantle.engines.launchers.mpich import Mpich
        from cantle.engines.launchers.openmpi import OpenMpi

        return OpenMpi(program) if name == "openmpi" else Mpich(program)
    if name == "srun":
        from cantle.engines.launchers.slurm import Srun

        return Srun()
    if name == "flux":
        from cantle.engines.launchers.flux import Flux

        return Flux()
    if name == "jsrun":
        from cantle.engines.launchers.jsrun import Jsrun

        return Jsrun()
    if name == "cantle":
        from cantle.engines.launchers.own import Own

        return Own()
    if name == "found":
        from cantle.engines.launchers.found import Found

        return Found()
    raise KeyError(name)


_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG", "LC_ALL")
_TUNING = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "UCX_", "NCCL_", "FI_", "PSM2_", "HWLOC_", "MPI4PY_")
_MARKS = ("CANTLE_RUN", "CANTLE_TASK", "CANTLE_ATTEMPT")


def passed_on(environ: Mapping[str, str], own: Mapping[str, str | None]) -> tuple[str, ...]:
    """Names of the variables that ranks on other hosts need, where the launcher passes on none by itself.

    Those of the task (`own`), those that tell whose processes they are, and those that say where programs and libraries are.
    """
    names = [name for name in environ if name in _PASSED_ON or name.startswith(_TUNING)]
    names += [name for name, value in own.items() if value is not None and not name.startswith("CANTLE_")]
    names += [name for name in own if name.startswith("CANTLE_")]
    gone = {name for name, value in own.items() if value is None}
    return (*_MARKS, *sorted({*names} - gone - {*_MARKS}))


def extra_words(batch: Mapping[str, Any]) -> tuple[str, ...]:
    """What the study's `batch` block adds to each launch: a text or a list of words under `launcher_args`."""
    said = batch.get("launcher_args")
    if isinstance(said, str):
        import shlex

        return tuple(shlex.split(said))
    if isinstance(said, Sequence):
        return tuple(map(str, said))
    return ()
