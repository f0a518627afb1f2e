"""Which variables of the job's script, or of a launcher, would mislead what is started from here?

Slurm and the launchers of MPI tell a process its place by variables, and read many of the same ones as defaults for the next
start. Below a run they describe a place that is not the task's: an inner srun would start the shape of the outer job, and an
MPI program would look for a launcher that knows nothing of it. What says which job this is stays, and what the user set.
"""

from __future__ import annotations

from collections.abc import Mapping

_OF_SLURM = ("SLURM_", "SRUN_")
_KEPT = (
    "SLURM_JOB_",
    "SLURM_JOBID",
    "SLURM_ARRAY_",
    "SLURM_HET_",
    "SLURM_NODELIST",
    "SLURM_NNODES",
    "SLURM_CLUSTER_NAME",
    "SLURM_CLUSTERS",
    "SLURM_CONF",
    "SLURM_JWT",
    "SLURM_RESTART_COUNT",
    "SLURM_SUBMIT_",
    "SLURM_WORKING_CLUSTER",
    "SLURM_TASKS_PER_NODE",
    "SLURM_DEBUG",
    "SLURM_TIME_FORMAT",
    "SLURM_PMIX_",
)
"""Of these the last are how a user, or a site, tunes Slurm's PMIx."""
_OF_ONE_NODE = ("SLURM_JOB_GPUS", "SLURM_PMIX_MAPPING_SERV")

_OF_LAUNCHERS = (
    "OMPI_COMM_WORLD_",
    "OMPI_APP_CTX_",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_FILE_LOCATION",
    "OMPI_FIRST_RANKS",
    "OMPI_NUM_APP_CTX",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_mpi_oversubscribe",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
    "PRTE_LAUNCHED",
    "PRTE_MCA_ess",
    "PRTE_MCA_prte_",
    "PMI_",
    "PMI2_",
    "PMIX_",
    "PALS_",
    "HYDI_",
    "HYDRA_PROXY",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
    "JSM_",
    "FLUX_TASK_",
    "FLUX_JOB_",
    "FLUX_PMI_",
    "FLUX_KVS_NAMESPACE",
)
_BY_MPIRUN = ("OMPI_MCA_plm", "OMPI_MCA_pmix", "OMPI_MCA_routed")
"""mpirun sets them for its own processes; where it is not above us, they are the user's choice."""

_CARRIED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG", "LC_ALL")


def cleaned(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what describes a place in the outer job or launch."""
    under_mpirun = "OMPI_COMM_WORLD_RANK" in environ
    found = {name: value for name, value in environ.items() if not _misleads(name, under_mpirun)}
    # Open MPI's mpirun will not start in a job without it, and takes it for slots.
    for name in environ:
        if name.startswith("SLURM_TASKS_PER_NODE"):
            found[name] = environ.get(name.replace("TASKS_PER_NODE", "JOB_CPUS_PER_NODE"), environ[name])
    return found


def carried(environ: Mapping[str, str]) -> list[str]:
    """Words before a command that give it what it needs of our environment, for starters that pass on none."""
    return ["env", *(f"{name}={environ[name]}" for name in _CARRIED if name in environ)]


def _misleads(name: str, under_mpirun: bool) -> bool:
    if name.startswith(_OF_SLURM):
        return name in _OF_ONE_NODE or not name.startswith(_KEPT)
    return name.startswith(_OF_LAUNCHERS) or (under_mpirun and name in _BY_MPIRUN)
