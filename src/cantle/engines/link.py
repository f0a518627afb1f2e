"""What is known of one node on which an engine runs attempts: how it is spoken with, what waits to be sent, what runs there?"""

from __future__ import annotations

from cantle.model.resources import Node
from cantle.model.seams import Channel
from cantle.runner.frames import Frames, frame
from cantle.runner.messages import Key, Up


class Link:
    """One node: the channel to its runner, what waits to be sent there, and what runs there."""

    __slots__ = (
        "acknowledged",
        "bases",
        "channel",
        "frames",
        "held",
        "node",
        "outgoing",
        "received",
        "running",
        "unsent",
    )

    def __init__(self, node: Node, channel: Channel) -> None:
        self.node = node
        self.channel = channel
        self.frames: Frames[Up] = Frames(Up)
        self.outgoing: list[bytes] = []
        self.running: set[Key] = set()
        self.received = 0
        self.unsent: list[Key] = []
        self.acknowledged = 0
        self.bases: set[int] = set()
        self.held: list[Up | str] | None = None
        """While files are taken in that came with an end: what the runner had said after it. No more is heard meanwhile."""

    def send(self) -> None:
        """Send what waits. Raises OSError when the runner has gone."""
        data = frame(self.outgoing) if self.outgoing else b""
        self.outgoing.clear()
        self.unsent.clear()
        self.channel.send(data)
