"""What goes to the runners of the nodes with the next frame, and which node has which attempt?"""

from __future__ import annotations

from msgspec.structs import replace

from cantle.engines.link import Link
from cantle.model.records import Outcome
from cantle.runner.frames import encode
from cantle.runner.messages import Base, BaseOver, Define, End, Forget, Hold, Key, Release, Serve, Start, Sweep


class Mail:
    """What an engine says to the runners of its nodes. Nothing is sent before somebody sends what waits at the links."""

    def __init__(self) -> None:
        self.links: dict[int, Link] = {}
        """By node."""
        self.where: dict[Key, int] = {}
        """On which node each attempt is, from its start's being posted until its end is heard."""
        self.bases: dict[int, Base] = {}
        """Directories and environments that are open; a runner is told of one when something of it comes there."""

    def post(self, node: int, start: Start) -> None:
        """Let the start go to the node's runner with all else of this turn."""
        link = self.links[node]
        base = start.command.base
        if base and base not in link.bases:
            self._introduce(link, node, base)
        link.outgoing.append(encode(start))
        link.running.add(start.key)
        link.unsent.append(start.key)
        self.where[start.key] = node

    def post_serve(self, node: int, serve: Serve) -> bool:
        """The same for what a partition hosts. Whether the node is there."""
        link = self.links.get(node)
        if link is not None:
            link.outgoing.append(encode(serve))
            link.running.add(serve.start.key)
            link.unsent.append(serve.start.key)
            self.where[serve.start.key] = node
        return link is not None

    def tell(self, node: int, message: Hold | Release | Sweep | Define | Forget) -> bool:
        """Say this to the node's runner with all else of this turn. Whether the node is there."""
        link = self.links.get(node)
        if link is not None:
            link.outgoing.append(encode(message))
        return link is not None

    def end(self, key: Key, outcome: Outcome, why: str, grace_s: float) -> None:
        """Have a process ended, if it is still there."""
        node = self.where.get(key)
        if node is not None:
            self.links[node].outgoing.append(encode(End(key, outcome, why, grace_s)))

    def close_base(self, number: int) -> None:
        """All of that base is over."""
        self.bases.pop(number, None)
        for link in self.links.values():
            if number in link.bases:
                link.bases.discard(number)
                link.outgoing.append(encode(BaseOver(number)))

    def keep_unsent(self) -> list[Key]:
        """What was never settled must not begin: its launch may not be written down. Which attempts these are."""
        kept: list[Key] = []
        for link in self.links.values():
            if link.unsent:
                for key in link.unsent:
                    link.running.discard(key)
                    self.where.pop(key, None)
                kept += link.unsent
                link.unsent.clear()
                link.outgoing.clear()
        return kept

    def forget(self, node: int) -> None:
        """The link is over, and with it what runs there."""
        for key in self.links.pop(node).running:
            del self.where[key]

    def _introduce(self, link: Link, node: int, number: int) -> None:
        """Tell the node's runner of a base. Of one that nobody opened the runner says so, for each of its tasks."""
        base = self.bases.get(number)
        if base is not None:
            link.bases.add(number)
            link.outgoing.append(encode(replace(base, packed=f"{base.packed}/{node}")))
