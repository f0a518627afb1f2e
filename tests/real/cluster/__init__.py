"""A cluster on this machine: nodes in namespaces of their own, reached by ssh and held by a real Slurm.

    python tests/real/cluster up        bring one up and keep it; `down` takes it away, `--help` lists the rest
    def test_something(cluster): ...    a test that asks for `cluster` (tests/real/conftest.py) gets one

It needs root, but neither systemd nor a terminal. Everything it is lies in one directory and in names that begin with its own
prefix, so several can stand side by side, and beside whatever else runs here.
"""

from .cluster import Cluster, ClusterError
from .settings import Settings, settings

__all__ = ["Cluster", "ClusterError", "Settings", "settings"]
