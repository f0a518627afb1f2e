"""What does a job do that brings nodes? It starts a runner on each of them, and ends when they do.

A run that is over has taken its letter away: then there is nothing to do. One whose conductor was killed has not; its runners
find that nobody answers, and end by themselves.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cantle.allocations.hosts.setting_up import MODULES
from cantle.errors import RequestError
from cantle.model.kinds import Kind

from .base import Asked

_INSTANCE = {"slurm": "$SLURM_JOB_ID", "pbs": "$PBS_JOBID", "lsf": "$LSB_JOBID", "flux": "$FLUX_JOB_ID"}
"""Where a job of each batch system finds its own name."""
_OTHER = "INSTANCE"


def text_of(asked: Asked, kind: Kind, system: str, nodes: int, setup: Sequence[str] = ()) -> str:
    """The script. `setup`: commands that come before each runner.

    Raises RequestError for several nodes on a batch system of which it is not known how each is reached.
    """
    assert asked.invitation is not None
    lines = [
        "#!/bin/bash",
        f"# {nodes} of the nodes of kind {kind.name} for the run in {asked.directory}",
        f"cd {shlex.quote(asked.directory)} || exit 1",
        f"test -s {shlex.quote(asked.invitation.file)} || exit 0  # the run is over",
    ]
    if kind.lasts_s:
        lines.append(f"until=$(( $(date +%s) + {-(-int(kind.lasts_s) // 60) * 60} ))")
        lines.append("export until=${SLURM_JOB_END_TIME:-$until}")
    words = asked.invitation.answering(asked.number, _OTHER).command(*_options(kind))
    runner = shlex.join(words).replace(f":{_OTHER}", f':"{_INSTANCE.get(system, "$JOB_ID")}"')
    if kind.lasts_s:
        runner += ' --until "$until"'
    begin = [f"exec {runner}"]
    if setup:
        begin = [*_done_first(setup), f"{begin[0]} --own-env"]
        runner = f"/bin/bash -c {shlex.quote(chr(10).join(begin))}"
    if nodes == 1:
        return "\n".join([*lines, *begin, ""])
    if system != "slurm":
        raise RequestError(f"a job of {system} brings one node of kind {kind.name} at a time: leave `block` out")
    # A step for each node: one that leaves does not take the others along, and the job can shrink by it.
    step = (
        "srun --nodes=1 --ntasks=1 --nodelist=$node --overlap --mem=0 --cpu-bind=none --mpi=none --input=none --export=ALL"
        f" {runner} &"
    )
    return "\n".join(
        [
            *lines,
            'for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do',
            f"    {step}",
            "done",
            "wait",
            "",
        ]
    )


def _done_first(setup: Sequence[str]) -> list[str]:
    """Each command in the shell that becomes the runner, until one fails: then its words are the job's last ones."""
    lines = []
    if any(command.split()[:1] in (["module"], ["ml"]) for command in setup):  # only login shells know it by themselves
        lines.append(
            f"type module >/dev/null 2>&1 || for cantle_file in {' '.join(MODULES)}; do "
            '[ -r "$cantle_file" ] && . "$cantle_file" </dev/null && break; done'
        )
    for command in setup:
        told = shlex.quote(f"the set-up command `{command}` failed with status")
        lines.append(f"eval {shlex.quote(command)} </dev/null || {{ echo {told} $? >&2; exit 96; }}")
    return lines


def _options(kind: Kind) -> list[str]:
    words = ["--kind", kind.name, "--cores", str(kind.cores), "--gpus", str(kind.gpus)]
    if kind.memory_mib:
        words += ["--memory", f"{kind.memory_mib}MiB"]
    for name, number in kind.named:
        words += ["--resource", f"{name}={number}"]
    return words
