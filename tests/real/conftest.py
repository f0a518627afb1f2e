"""What tests of whole runs can ask for: a cluster, a directory that all its nodes see, programs that use MPI."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("ordeal")

from cluster import Cluster  # noqa: E402
from cluster.cluster import unavailable  # noqa: E402
from cluster.guard import Guarded  # noqa: E402
from cluster.scene import outputs, scene  # noqa: E402

_PROGRAMS = Path(__file__).parent / "cluster" / "programs"
_PATIENCE_S = 900
"""For a test on a cluster, which waits for many things, each of them patiently (`cluster.identity.PATIENCE_S`)."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs a cluster of namespaces, and so root (tests/real/cluster)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "standing_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("cluster")
            item.add_marker("real")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_PATIENCE_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test on a cluster that fails shows what the cluster looked like then: it cannot be asked afterwards."""
    report = yield
    around = getattr(item, "funcargs", {})
    if report.failed and call.when == "call" and "standing_cluster" in around:
        report.sections.append(("cluster", scene(around["standing_cluster"])))
        if "shared_path" in around:
            report.sections.append(("output of jobs", outputs(around["shared_path"])))
    return report


@pytest.fixture(scope="session")
def standing_cluster() -> Iterator[Cluster]:
    """The cluster of this session of tests: brought up for the first that asks, down at the end, however that comes.

    Ask for `cluster` unless you need it for longer than one test.
    """
    if why := unavailable():
        pytest.skip(why)
    guarded = Guarded()
    yield guarded.cluster
    assert guarded.close() == [], "the cluster left something behind"


@pytest.fixture
def cluster(standing_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with all nodes as they should be. What the test breaks is mended after it; what runs there then is killed."""
    yield standing_cluster
    standing_cluster.mend()


@pytest.fixture
def tidy_cluster(standing_cluster: Cluster) -> Iterator[Cluster]:
    """As `cluster`; and the test fails if it leaves a process on a node."""
    yield standing_cluster
    standing_cluster.settle()
    assert standing_cluster.mend() == [], "processes were left on the nodes"


@pytest.fixture
def shared_path(standing_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of this test's own that all nodes see; `tmp_path` is not one."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:40]
    place = standing_cluster.shared / name
    number = 0
    while place.exists():
        number += 1
        place = standing_cluster.shared / f"{name}-{number}"
    place.mkdir()
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def openmpi_program(standing_cluster: Cluster) -> Path:
    """A C program of OpenMPI's: `rank R of N on HOST, sum S` from each rank. Its argument: seconds to stay after that."""
    program = standing_cluster.shared / "ring"
    if not program.exists():
        built = ["mpicc.openmpi", "-O1", "-o", str(program), str(_PROGRAMS / "ring.c")]
        subprocess.run(built, check=True, capture_output=True, text=True, env=standing_cluster.env)
    return program


@pytest.fixture(scope="session")
def mpi4py_program(standing_cluster: Cluster) -> Path:
    """The same in Python, with mpi4py: to be run by `sys.executable`."""
    pytest.importorskip("mpi4py")
    program = standing_cluster.shared / "ring.py"
    shutil.copyfile(_PROGRAMS / "ring.py", program)
    return program
