"""How do further nodes come and go on this machine? Logical ones: each is a runner process, there at once or after a while.

They share the machine's cores, and nothing is bound. They are for trying out how a run grows, and for machines that several
people use: what is not wanted any more is given back to them.
"""

from __future__ import annotations

import math
import os
from collections import deque
from time import monotonic, time

from msgspec.structs import replace

from cantle.allocations.local import MOST_NODES
from cantle.errors import MachineError
from cantle.model.kinds import Kind
from cantle.model.resources import Node

from .base import Answers, Asked


class LocalNodes:
    """Logical nodes of one kind, at most as many as one machine is dealt out into.

    They come `after_s` seconds after they were asked for, and stay as long as the kind lasts.

    `fails`: so many requests are refused before the first one is heeded, to try out what becomes of that.
    """

    invites = False

    def __init__(self, kind: Kind, after_s: float = 0.0, fails: int = 0) -> None:
        self.kind = replace(kind, adds=True, removes=True, most=min(kind.bound, MOST_NODES))
        self.undo: dict[str, str] = {}
        self._after_s = after_s
        self._fails = fails
        self._coming: deque[tuple[float, int]] = deque()
        """When the next nodes are there, and for which request; one entry each."""
        self._ends: deque[tuple[float, int, str]] = deque()
        self._made = 0
        self._answers: Answers | None = None

    def add(self, asked: Asked, answers: Answers) -> None:
        """They will be there."""
        if self._fails > 0:
            self._fails -= 1
            raise MachineError("refused, as was asked for")
        self._answers = answers
        due = monotonic() + self._after_s
        self._coming.extend((due, asked.number) for _ in range(asked.count))
        if self._after_s:
            answers.waits(asked.number, "they are starting", time() + self._after_s)

    def withdraw(self, request: int, n: int) -> int:
        """The last of those that are not there yet."""
        mine = [entry for entry in self._coming if entry[1] == request]
        for entry in mine[max(0, len(mine) - n) :]:
            self._coming.remove(entry)
        return min(n, len(mine))

    def remove(self, node: Node, instance: str) -> None:  # noqa: ARG002 - as the seam has it
        """There is nothing to do: its runner ends when it is used no more."""
        self._ends = deque(entry for entry in self._ends if entry[2] != node.name)

    def tend(self) -> float:
        """Let those come that are due, and those go whose time is up."""
        now = monotonic()
        ready: dict[int, list[Node]] = {}
        while self._coming and self._coming[0][0] <= now:
            ready.setdefault(self._coming.popleft()[1], []).append(self._node())
        assert self._answers is not None or not ready
        for request, nodes in ready.items():
            if self._answers is not None:
                self._answers.arrived(request, nodes)
            if self.kind.lasts_s:
                self._ends.extend((now + self.kind.lasts_s, request, node.name) for node in nodes)
        while self._ends and self._ends[0][0] <= now and self._answers is not None:
            _, request, name = self._ends.popleft()
            self._answers.over(request, name, 1, "its time is up")
        due = [queue[0][0] for queue in (self._coming, self._ends) if queue]
        return max(0.0, min(due) - now) if due else math.inf

    def close(self) -> None:
        """Runners end by themselves."""
        self._coming.clear()
        self._ends.clear()

    def _node(self) -> Node:
        self._made += 1
        ends_at = time() + self.kind.lasts_s if self.kind.lasts_s else 0.0
        node = self.kind.node(f"{self.kind.name}-{self._made}", ends_at)
        gpus = tuple(str(number) for number in range(self.kind.gpus))
        return replace(node, machine=os.uname().nodename, gpu_ids=gpus)
