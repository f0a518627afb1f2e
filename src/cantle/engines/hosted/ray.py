"""How does Ray live in a partition? A head on its first node, which works as well, and a worker on each of the others.

Ports are free ones, there is no dashboard, and Ray's own token is asked for: who may speak to a Ray cluster may run anything
as its owner. What it keeps in files lies in the machine's own directory for such things under a name short enough for its
sockets, and is removed when it ends. `ray.init()` in a task needs no arguments.
"""

from __future__ import annotations

import hashlib

from cantle.engines.hosted.base import Meeting, Program, Site, Station
from cantle.runner.messages import PYTHON

READY = "cantle: the ray node serves"
_PROGRAM = (PYTHON, "-m", "cantle.engines.hosted.ray_program")
_TOKEN = "token"
_WITHIN_S = 120.0
_OBJECTS = 0.3
"""Of the share's memory so much is for objects, as Ray does it with a whole machine."""
_LEAST_OBJECTS_MIB = 80
"""Ray refuses less."""


class Ray:
    """Ray."""

    name = "ray"

    def head(self, site: Site) -> Program:
        """Ray's head with the first node's share."""
        return self._program(site, "head", site.head, str(site.port))

    def worker(self, site: Site, station: Station, address: str) -> Program | None:
        """Ray on another node; on the first the head works."""
        return None if station.node == site.head.node else self._program(site, "worker", station, address)

    def retire(self, site: Site, station: Station, address: str) -> Program:
        """The head gives the node nothing more, and what runs there has some time."""
        return Program((*_PROGRAM, "retire", address, station.name), env={**_variables(site)})

    def environment(self, site: Site, address: str) -> dict[str, str]:
        """By these `ray.init()` finds the head and is let in."""
        return {"RAY_ADDRESS": address, **_variables(site)}

    def of_process(self, meeting: Meeting) -> dict[str, str]:  # noqa: ARG002
        """Nothing more."""
        return {}

    def _program(self, site: Site, role: str, station: Station, where: str) -> Program:
        objects_mib = max(_LEAST_OBJECTS_MIB, int(station.memory_mib * _OBJECTS)) if station.memory_mib else 0
        words = (
            role,
            where,
            station.name,
            site.host(station),
            folder_name(site.run, site.partition, station.name),
            str(station.n_cores),
            str(station.n_gpus),
            str(station.memory_mib),
            str(objects_mib),
        )
        token = hashlib.sha256(site.papers().key.encode()).hexdigest()
        private = {f"{site.directory}/{_TOKEN}": token}
        env: dict[str, str | None] = {**_variables(site), "RAY_ADDRESS": None}
        return Program((*_PROGRAM, *words), env, private, says=READY, within_s=_WITHIN_S)


def _variables(site: Site) -> dict[str, str]:
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": f"{site.run}/{site.directory}/{_TOKEN}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def folder_name(run: str, partition: int, node: str) -> str:
    """The same for the same node of the same partition of a run: what one that was killed left is removed by the next."""
    mark = f"{run}\0{partition}\0{node}"
    return f"cantle-ray-{hashlib.sha256(mark.encode()).hexdigest()[:10]}"
