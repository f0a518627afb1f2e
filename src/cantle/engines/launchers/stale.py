"""Which variables of somebody else's launch must not reach ours? They would contradict what ours says, and win.

What tells which job we are in stays: without it nothing could be started there. What a user sets to tune his MPI stays, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

_SLURM = (
    "CPUS_PER_GPU CPUS_PER_TASK CPU_BIND CPU_BIND_LIST CPU_BIND_TYPE CPU_BIND_VERBOSE CPU_FREQ_REQ CORE_SPEC DISTRIBUTION "
    "DIST_LLLP DIST_PLANESIZE EXACT EXCLUSIVE EXPORT_ENV GPUS GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK GPU_BIND GRES "
    "GRES_FLAGS GTIDS HINT HOSTFILE LABELIO LAUNCH_NODE_IPADDR LOCALID MEM_BIND MEM_BIND_LIST MEM_BIND_PREFER MEM_BIND_TYPE "
    "MEM_BIND_VERBOSE MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE MPI_TYPE MULTI_PROG NODEID NO_KILL NPROCS NTASKS NTASKS_PER_CORE "
    "NTASKS_PER_GPU NTASKS_PER_NODE NTASKS_PER_SOCKET NTASKS_PER_TRES OVERCOMMIT OVERLAP PMIXP_ABORT_AGENT_PORT "
    "PMIX_MAPPING_SERV PRIO_PROCESS PROCID RELATIVE REQ_SWITCH RESV_PORTS SPREAD_JOB SRUN_COMM_HOST SRUN_COMM_PORT STEPID "
    "STEP_GPUS STEP_ID STEP_LAUNCHER_PORT STEP_NODELIST STEP_NUM_NODES STEP_NUM_TASKS STEP_RESV_PORTS STEP_TASKS_PER_NODE "
    "STEP_TRES_PER_TASK TASK_PID THREADS_PER_CORE THREAD_SPEC TRES_BIND TRES_PER_TASK UNBUFFEREDIO USE_MIN_NODES WAIT4SWITCH "
    "WHOLE WORKING_DIR"
)
_OTHERS = (
    "PMI_FD PMI_RANK PMI_SIZE PMI_ID PMI_PORT PMI_JOBID PMI_SPAWNED PMI_APPNUM PMI_CONTROL_PORT PMI_CONTROL_FD PMI2_FD "
    "PMI_LOCAL_RANK PMI_LOCAL_SIZE PMI_UNIVERSE_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS HYDI_CONTROL_FD HYDRA_CONTROL_FD "
    "PMIX_RANK PMIX_NAMESPACE PMIX_ID PMIX_HOSTNAME PMIX_VERSION PMIX_SERVER_TMPDIR PMIX_SYSTEM_TMPDIR PMIX_SECURITY_MODE "
    "PMIX_GDS_MODULE PMIX_BFROP_BUFFER_TYPE PMIX_DSTORE_21_BASE_PATH PMIX_DSTORE_ESH_BASE_PATH PMIX_SERVER_URI "
    "PMIX_SERVER_URI2 PMIX_SERVER_URI21 PMIX_SERVER_URI3 PMIX_SERVER_URI4 PMIX_SERVER_URI41 "
    "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE "
    "OMPI_COMM_WORLD_NODE_RANK OMPI_UNIVERSE_SIZE OMPI_APP_CTX_NUM_PROCS OMPI_NUM_APP_CTX OMPI_FIRST_RANKS OMPI_COMMAND "
    "OMPI_ARGV OMPI_FILE_LOCATION OMPI_MCA_ess OMPI_MCA_pmix OMPI_MCA_initial_wdir OMPI_MCA_mpi_oversubscribe "
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint FLUX_TASK_RANK FLUX_TASK_LOCAL_ID FLUX_JOB_SIZE FLUX_JOB_NNODES FLUX_JOB_ID "
    "FLUX_KVS_NAMESPACE FLUX_PROXY_REMOTE JSM_NAMESPACE_RANK JSM_NAMESPACE_SIZE JSM_NAMESPACE_LOCAL_RANK "
    "JSM_NAMESPACE_LOCAL_SIZE PALS_RANKID PALS_LOCAL_RANKID PALS_SIZE PALS_NODEID PALS_APID"
)
_PREFIXES = (
    "SLURM_CPU_BIND",
    "SLURM_STEP_",
    "SLURM_PMIXP_",
    "OMPI_MCA_orte_",
    "OMPI_COMM_WORLD_",
    "PMIX_SERVER_",
    "PMI_",
)
_SIZES = ("SLURM_NNODES", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE")


def scrubbed(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Changes to the environment of a task that launches ranks: stale variables are removed.

    Known ones also where the conductor has none, because a task may inherit those of its node's runner.
    """
    found = dict(_known())
    found.update((name, None) for name in environ if name.startswith(_PREFIXES))
    return found


def as_partition(names: list[str], ranks: list[int], begins_on: str) -> tuple[str, ...]:
    """Words before a program that reads Slurm's variables: it sees the launch's nodes, with so many ranks on each.

    The node where it begins is always the first of them: Open MPI takes the first to be the one on which it runs.
    """
    if begins_on not in ("", *names):
        names, ranks = [begins_on, *names], [1, *ranks]
    values = (str(len(names)), ",".join(names), ",".join(names), str(len(names)), compressed(ranks))
    return ("env", *(f"{name}={value}" for name, value in zip(_SIZES, values, strict=True)))


def compressed(ranks: list[int]) -> str:
    """As Slurm writes them: `4(x2),2`."""
    parts: list[list[int]] = []
    for n in ranks:
        if parts and parts[-1][0] == n:
            parts[-1][1] += 1
        else:
            parts.append([n, 1])
    return ",".join(f"{n}(x{times})" if times > 1 else str(n) for n, times in parts)


@lru_cache(maxsize=1)
def _known() -> dict[str, str | None]:
    return dict.fromkeys([*(f"SLURM_{name}" for name in _SLURM.split()), *_OTHERS.split()])
