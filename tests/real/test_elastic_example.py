"""Whether the example that grows and shrinks does so on a real Slurm, and what its page shows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from cluster import Cluster
from cluster.identity import PATIENCE_S, wait_until
from growing_rig import Happened

from cantle.model.records import NodeLost, NodeReleased, NodesJoined, ReleaseNode, RequestAnswered, TaskEnded

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "elastic" / "grow_and_shrink.py"
SAID = """\
one task: 1 node
eight tasks beside each other: 4 nodes
one task again: 1 node
result 56
"""


def jobs(cluster: Cluster) -> list[str]:
    """The names of our jobs that are not over."""
    asked = cluster.slurm(["squeue", "--noheader", "--format=%j"]).stdout
    return [name for name in asked.split() if name.startswith("cantle-")]


def test_the_example_goes_from_one_job_to_four_and_back_on_slurm(tidy_cluster: Cluster, shared_path: Path) -> None:
    shutil.copy(EXAMPLE, shared_path)
    told = shared_path / "told"
    with told.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, EXAMPLE.name, "--slurm"], cwd=shared_path,
            env={**tidy_cluster.env, "XDG_STATE_HOME": str(shared_path / "state")},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    most = 0

    def is_over() -> bool:
        nonlocal most
        most = max(most, len(jobs(tidy_cluster)))
        return process.poll() is not None

    try:
        assert wait_until(is_over, 3 * PATIENCE_S, 0.1), told.read_text()
    finally:
        process.kill()
        process.wait()
    said = told.read_text()
    print(said)
    assert process.returncode == 0
    lines = [line for line in said.splitlines(keepends=True) if not line.startswith("cantle: still waiting for ")]
    assert "".join(lines).startswith(SAID)
    assert most == 4, "a job for each node"
    assert jobs(tidy_cluster) == [], "none is left when the program is over"

    happened = Happened(shared_path / "grown")
    joined = happened.of(NodesJoined)
    assert len(happened.nodes) == 4
    assert {node.kind for node in happened.nodes} == {"cpu"}
    assert all(node.ends_at for node in happened.nodes), "each is in a job that ends some time"
    assert not any(answer.refused for answer in happened.of(RequestAnswered))
    assert joined[0].time < joined[-1].time, "the others came when they were needed"
    last = max(record.time for record in happened.of(TaskEnded))
    before_the_end = [record for record in happened.of(ReleaseNode) if record.time < last]
    assert len(before_the_end) == 3
    given_back = {record.node for record in before_the_end}
    gone = {record.node for record in happened.of(NodeLost) if record.time < last}
    assert gone == given_back, "they had gone while the last task ran"
    taken = {record.node for record in happened.of(NodeReleased) if not record.problem}
    assert taken >= given_back, "Slurm had taken them back"

    page = (shared_path / "grown" / "report.html").read_text()
    assert "Nodes that came and went" in page
    assert "there:cpu" in page and "wanted:cpu" in page, "the chart"
    assert "1 node of kind cpu asked for" in page
