"""May a launch of before hang on in its batch system, since a node of it has gone?

Slurm keeps a step of which a node has died until it has noticed that, often five minutes later: neither the end of its srun nor
`scancel` changes it (tried with 22.05). For so long nobody else gets the step's cores on the nodes that are left, but who says
that he overlaps. A process conducts in one job, so what it has seen holds for all launches that it begins.
"""

from __future__ import annotations

_seen: set[str] = set()


def launch_lost_a_node(node: str) -> None:
    """A launch ran on the node of this name, and the node has gone."""
    _seen.add(node)


def may_hang_on() -> bool:
    """Whether that has happened to any."""
    return bool(_seen)


def forget() -> None:
    """Nothing of that is true any more."""
    _seen.clear()
