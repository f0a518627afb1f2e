"""How does torchrun live in a partition? By its meetings alone: nothing of it outlives a task.

A task with `streams: N, communicates: true` on N nodes, whose command is `torchrun ...` (or `python -m torch.distributed.run`),
runs one torchrun on each node, and each of them reads from its environment what it would otherwise be told by options: how
many nodes, which one it is, and where they meet (torchrun takes `PET_NNODES` for `--nnodes`, and so on). The first stream's
process keeps the meeting's store. A plain script that torchrun would start finds `MASTER_ADDR`, `RANK` and so on as always.
"""

from __future__ import annotations

from cantle.engines.hosted.base import Meeting, Program, Site, Station


class Torchrun:
    """Meetings of torchrun."""

    name = "torchrun"

    def head(self, site: Site) -> Program | None:  # noqa: ARG002
        """None: each task has a meeting of its own."""
        return None

    def worker(self, site: Site, station: Station, address: str) -> Program | None:  # noqa: ARG002
        """None."""
        return None

    def retire(self, site: Site, station: Station, address: str) -> Program | None:  # noqa: ARG002
        """Nobody is there."""
        return None

    def environment(self, site: Site, address: str) -> dict[str, str]:  # noqa: ARG002
        """Nothing: where a task meets is known when it starts."""
        return {}

    def of_process(self, meeting: Meeting) -> dict[str, str]:
        """Where this task's torchruns meet, and which of them this is."""
        endpoint = f"{meeting.host}:{meeting.port}"
        rdzv_id = f"{meeting.task}-{meeting.attempt}"
        return {
            "NNODES": str(meeting.streams),
            "RDZV_BACKEND": "c10d",
            "RDZV_ENDPOINT": endpoint,
            "RDZV_ID": rdzv_id,
            "PET_NNODES": str(meeting.streams),
            "PET_NODE_RANK": str(meeting.stream),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": endpoint,
            "PET_RDZV_ID": rdzv_id,
            "PET_RDZV_CONF": f"is_host={int(meeting.stream == 0)}",
        }
