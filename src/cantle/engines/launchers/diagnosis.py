"""Why do the ranks of a launch not begin, or why did they not get far? From what srun, mpirun and ssh say, in words that help.

Of all that they write, the lines that tell are few and known. What is not known is left alone: then the last lines of the
task's output say what there is to say.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec.structs import replace

from cantle.model.records import TaskEnded


class _Sign(NamedTuple):
    """What is written, what it means ({0}, {1} are the pattern's groups), and what takes it back when it follows.

    `node`: it tells of a node that failed, so that the task is not to blame.
    """

    pattern: str
    means: str
    unless: str = ""
    node: bool = False


_SIGNS = (
    _Sign(
        r"[Nn]ode failure on (\S+)|(?:due to|because of) node failure|NODE FAIL",
        "Slurm says that a node of the step failed ({0})",
        node=True,
    ),
    _Sign(
        r"ORTE has lost communication with a remote daemon|lost connection to (?:its )?(?:HNP|daemon)",
        "Open MPI lost the daemon on one of the nodes",
        node=True,
    ),
    _Sign(
        r"step creation temporarily disabled, retrying \(([^)]*)\)",
        "Slurm does not start the step yet ({0}): other steps of the job hold the cores, memory or GPUs that it needs on its "
        "nodes. `squeue -s` shows them; what is not meant to hold any is started with --overlap --mem=0. One that lost a node "
        "stays until Slurm has noticed that",
        unless=r"Step created for",
    ),
    _Sign(
        r"Unable to create step for job \S+: (.+)",
        "Slurm refuses the step ({0}): what the step asks for must fit into what the job was given on its nodes",
    ),
    _Sign(
        r"SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU,? and SLURM_MEM_PER_NODE are mutually exclusive",
        "two of Slurm's variables for memory contradict each other: one of them is set by the step's own environment or script",
    ),
    _Sign(
        r"(?:cannot find|[Ii]nvalid|[Cc]ouldn't find).{0,40}mpi.{0,20}(?:plugin|type)|Invalid MPI type '?([^',\s]*)",
        "Slurm has no such plug-in for MPI here: `srun --mpi=list` shows those that it has, `batch: {{mpi: ...}}` names one",
    ),
    _Sign(
        r"OMPI was not built with SLURM's PMI support|PMI2_Init failed",
        "the program's MPI does not work with the plug-in by which srun started it: name another by `batch: {{mpi: ...}}`, or "
        "take mpirun by `batch: {{launcher: openmpi}}`",
    ),
    _Sign(
        r"ssh: Could not resolve hostname (\S+): (.+)",
        "the first node of the launch cannot find the host {0} ({1}): nodes must know each other by these names",
    ),
    _Sign(
        r"ssh: connect to host (\S+) port \d+: (.+)",
        "the first node of the launch cannot reach {0} by ssh ({1})",
    ),
    _Sign(
        r"Host key verification failed",
        "ssh between the nodes does not know the other's host key: add the nodes' keys to known_hosts on each of them",
    ),
    _Sign(
        r"Permission denied \(([^)]*)\)",
        "ssh between the nodes is not let in ({0}): it must work from node to node without a password",
    ),
    _Sign(
        r"Timeout, server (\S+) not responding|Connection to (\S+) closed by remote host",
        "the connection to a node of the launch broke ({0})",
    ),
    _Sign(
        r"(?:orted|prted|hydra_pmi_proxy|hydra_bstrap_proxy|pmi_proxy):? (?:command not found|not found|No such file)",
        "the launcher's own daemon is not found on another node: the MPI must be installed there at the same place, and in the "
        "PATH of a shell that nobody logs into",
    ),
    _Sign(
        r"There are not enough slots available|All nodes which are allocated for this job are already filled",
        "Open MPI counts fewer slots than ranks",
    ),
    _Sign(
        r"ORTE was unable to reliably start one or more daemons|PRTE was unable to reliably start",
        "Open MPI could not start its daemon on another node: try `ssh NODE orted --version` from the first node",
    ),
)


def diagnosis(text: str) -> str:
    """What these words of a launcher mean, as a phrase; "" when nothing in them is known to tell of trouble."""
    sign, found = _first(text)
    if sign is None or found is None:
        return ""
    groups = [group for group in found.groups() if group] or [_line(text, found.start())]
    return sign.means.format(*(group.strip(" .") for group in groups), "")


def of_silence(launcher: str) -> str:
    """What it means that this launcher runs, has begun no rank, and has said nothing known about it; "" for no launcher."""
    if launcher == "srun":
        return (
            "srun waits for Slurm to start the step: most often other steps of the job hold the cores, memory or GPUs that it "
            "needs on its nodes. `squeue -s` shows them; what is not meant to hold any is started with --overlap --mem=0. One "
            "that lost a node stays until Slurm has noticed that"
        )
    if launcher:
        return f"{launcher} has begun no rank yet: most often because another node does not answer it"
    return ""


def tells_of_a_node(text: str) -> bool:
    """Whether these words, or what `diagnosis` made of them, say that a node failed."""
    return any(sign.node and (re.search(sign.pattern, text) or _is_meant(sign, text)) for sign in _SIGNS)


def with_diagnosis(ended: TaskEnded, why: str) -> TaskEnded:
    """The end of an attempt, with what its launcher said before all else; not its own fault when a node failed."""
    detail = f"{why}\n{ended.detail}" if ended.detail else why
    if ended.outcome == "failed" and tells_of_a_node(why):
        return replace(ended, outcome="lost", detail=detail)
    return replace(ended, detail=detail)


def _first(text: str) -> tuple[_Sign | None, re.Match[str] | None]:
    for sign in _SIGNS:
        found = max(re.finditer(sign.pattern, text), key=lambda match: match.start(), default=None)
        if found is not None and not (sign.unless and re.search(sign.unless, text[found.end() :])):
            return sign, found
    return None, None


def _is_meant(sign: _Sign, text: str) -> bool:
    return text.startswith(sign.means.partition("{")[0])


def _line(text: str, at: int) -> str:
    """The line in which this position is."""
    return text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0].strip()[:200]
