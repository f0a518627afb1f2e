"""Which of how many copies of one command is this, as mpirun, mpiexec, srun, jsrun and flux tell it by variables?

The order matters: a process of mpirun's in a Slurm job also has the variables of the step or script that mpirun runs in, which
say rank 0 to everybody. And not every process in a job is one of several copies: a job's script has SLURM_PROCID=0 and
SLURM_NTASKS=4 as well, but no step.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cantle.allocations.batch.hostlists import counts
from cantle.allocations.batch.slurm import in_a_step


class Copy(msgspec.Struct, frozen=True):
    """One copy of several: `rank` of `size`, on its machine `local_rank` of `local_size`.

    `machines`: on how many they are, as far as can be told. `key` is the same for all copies of one launch, and for no other
    launch; "" when the launcher gives none. `pmi_fd` leads to the launcher where that keeps a table for its processes, else -1.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    machines: int
    key: str
    pmi_fd: int = -1


def copy_of(environ: Mapping[str, str]) -> Copy | None:
    """Which copy this process is; None when it is the only one."""
    for look in (_openmpi, _jsrun, _pmi, _flux, _slurm):
        copy = look(environ)
        if copy is not None:
            return copy if copy.size > 1 else None
    return None


def _openmpi(environ: Mapping[str, str]) -> Copy | None:
    if "OMPI_COMM_WORLD_RANK" not in environ or "JSM_NAMESPACE_RANK" in environ:
        return None
    key = f"{environ.get('PMIX_NAMESPACE', '')} {environ.get('OMPI_MCA_orte_hnp_uri', '')}"
    return _copy(
        environ,
        "mpirun",
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        environ.get("OMPI_MCA_orte_num_nodes", ""),
        key.strip(),
    )


def _jsrun(environ: Mapping[str, str]) -> Copy | None:
    return _copy(
        environ,
        "jsrun",
        ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
        ("JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
        "",
        f"{environ.get('LSB_JOBID', '')} {environ.get('PMIX_NAMESPACE', '')}".strip(),
    )


def _pmi(environ: Mapping[str, str]) -> Copy | None:
    fd = environ.get("PMI_FD", "")
    steps = "SLURM_STEP_ID" in environ and "MPI_LOCALRANKID" not in environ  # srun's own, and no mpiexec below it
    return _copy(
        environ,
        "srun" if steps else "mpiexec",
        ("PMI_RANK", "PMI_SIZE") if "PMI_SIZE" in environ else ("PALS_RANKID", "PALS_SIZE"),
        ("SLURM_LOCALID", "") if steps else _local_of_pmi(environ),
        environ.get("SLURM_STEP_NUM_NODES", "") if steps else "",
        _slurm_key(environ) if steps else environ.get("PALS_APID", ""),
        int(fd) if fd.isdigit() else -1,
    )


def _local_of_pmi(environ: Mapping[str, str]) -> tuple[str, str]:
    if "MPI_LOCALRANKID" in environ:
        return "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
    return ("PMI_LOCAL_RANK" if "PMI_LOCAL_RANK" in environ else "PALS_LOCAL_RANKID"), "PMI_LOCAL_SIZE"


def _flux(environ: Mapping[str, str]) -> Copy | None:
    return _copy(
        environ,
        "flux run",
        ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
        ("FLUX_TASK_LOCAL_ID", ""),
        environ.get("FLUX_JOB_NNODES", ""),
        f"{environ.get('FLUX_ENCLOSING_ID', '')} {environ.get('FLUX_JOB_ID', '')}".strip(),
    )


def _slurm(environ: Mapping[str, str]) -> Copy | None:
    if not in_a_step(environ):
        return None
    return _copy(
        environ,
        "srun",
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("SLURM_LOCALID", ""),
        environ.get("SLURM_STEP_NUM_NODES", ""),
        _slurm_key(environ),
    )


def _slurm_key(environ: Mapping[str, str]) -> str:
    parts = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return " ".join(environ.get(name, "") for name in parts).strip()


def _copy(
    environ: Mapping[str, str],
    launcher: str,
    of_all: tuple[str, str],
    of_machine: tuple[str, str],
    machines: str,
    key: str,
    pmi_fd: int = -1,
) -> Copy | None:
    rank, size = (environ.get(name, "") for name in of_all)
    if not (rank.isdigit() and size.isdigit() and int(rank) < int(size)):
        return None
    local_rank, local_size = (environ.get(name, "") for name in of_machine)
    here = int(local_size) if local_size.isdigit() and int(local_size) else _beside(environ, of_machine[0], machines)
    most = 1 + int(size) - here  # if each of the others stands alone
    known = int(machines) if machines.isdigit() and int(machines) else -(-int(size) // here)
    return Copy(
        launcher,
        int(rank),
        int(size),
        int(local_rank) if local_rank.isdigit() else 0,
        here,
        min(known, most),
        key,
        pmi_fd,
    )


def _beside(environ: Mapping[str, str], of_machine: str, machines: str) -> int:
    """How many copies there are on this machine, where no variable says it outright; 1 where none says it at all."""
    if of_machine == "FLUX_TASK_LOCAL_ID" and machines.isdigit() and int(machines):
        return -(-int(environ["FLUX_JOB_SIZE"]) // int(machines))
    node = environ.get("SLURM_NODEID", "")
    try:
        each = counts(environ.get("SLURM_STEP_TASKS_PER_NODE", "") if of_machine == "SLURM_LOCALID" else "")
    except ValueError:
        return 1
    return each[int(node)] if node.isdigit() and int(node) < len(each) else 1
