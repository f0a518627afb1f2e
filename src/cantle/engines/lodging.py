"""How does somebody else's engine come to live in a partition: where, and who starts and ends its processes?"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cantle.engines.agents import Agents
from cantle.engines.hosted.base import Hosted, Papers, Site, Station
from cantle.engines.hosted.hosting import Hosting
from cantle.model.records import Outcome
from cantle.model.resources import Node
from cantle.model.seams import Inbox
from cantle.runner.messages import Key, Serve


class Surroundings(NamedTuple):
    """The engine that runs the processes: its run's directory and its own folder there, all of its nodes, and what it does."""

    directory: str
    home: str
    nodes: list[Node]
    inbox: Inbox
    post: Callable[[int, Serve], bool]
    end: Callable[[Key, Outcome, str, float], None]


def lodge(
    agents: Agents,
    partition: int,
    name: str,
    hosted: Hosted,
    stations: Sequence[Station],
    papers: Callable[[], Papers],
    surroundings: Surroundings,
) -> None:
    """Start the agent of a partition on these nodes, and in it this engine."""
    directory, home, nodes, inbox, post, end = surroundings
    here = os.uname().nodename
    all_here = all((node.machine or node.name) == here for node in nodes)
    site = Site(partition, name, directory, f"{home}/hosted/{partition}", stations[0], 0, all_here, papers)
    hosting = Hosting(
        hosted,
        site,
        stations,
        post=post,
        end=lambda key, why, grace_s: end(key, "interrupted", why, grace_s),
        put=inbox.put,
        over=agents.over,
        now=inbox.now,
    )
    agents.open(partition, name, [station.node for station in stations], hosting)
