"""What is asked of a batch system, and how does a job stand there? Values, the same for every batch system."""

from __future__ import annotations

from enum import Enum

import msgspec


class JobWanted(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One batch job. Paths are absolute and seen by all nodes.

    `script` is run by the first of `nodes` nodes, in `directory`; what it prints is appended to `output`. `walltime_s` in
    seconds, 0 takes what the queue gives. `cores` and `gpus` and `memory_mib` are for each node; 0 cores means whole nodes,
    which nobody shares. `outlives_nodes`: the loss of a node shall not end the job. `once`: the batch system shall not run it
    again by itself when it had to end it, since another job goes on. `extra` are further words of the batch
    system's own, as its submit command takes them. Empty text: nothing is said, the batch system decides.
    """

    name: str
    script: str
    output: str
    directory: str
    nodes: int = 1
    walltime_s: float = 0.0
    cores: int = 0
    gpus: int = 0
    memory_mib: int = 0
    queue: str = ""
    account: str = ""
    reservation: str = ""
    qos: str = ""
    constraint: str = ""
    outlives_nodes: bool = False
    extra: tuple[str, ...] = ()
    once: bool = False

    @property
    def walltime_min(self) -> int:
        """Whole minutes, rounded up: what all batch systems take."""
        return -(-int(self.walltime_s) // 60)


class Stage(Enum):
    """How far a job has come."""

    PENDING = "pending"
    RUNNING = "running"
    OVER = "over"
    UNKNOWN = "unknown"


class Standing(msgspec.Struct, frozen=True):
    """How a job stands. `word` and `reason` are the batch system's own; `starts_at` is what it expects, in seconds since the
    epoch (0: it does not say). `canceled`: somebody ended it, not its time, its work or its nodes. `never`: as it is asked for
    it cannot start.
    """

    stage: Stage
    word: str = ""
    reason: str = ""
    starts_at: float = 0.0
    canceled: bool = False
    never: bool = False

    def __str__(self) -> str:
        text = self.word.lower().replace("_", " ") or self.stage.value
        return f"{text} ({self.reason})" if self.reason else text


class Offer(msgspec.Struct, frozen=True):
    """What a queue has: the least that its nodes have in common, how many there are, and the longest job (0: no bound)."""

    nodes: int
    cores: int
    gpus: int = 0
    limit_s: float = 0.0
