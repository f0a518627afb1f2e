"""How does a pair of commands become an engine in a partition? As a study says under `cantle: {engines: ...}`.

Each command is run by /bin/sh, on the cores of its node that are the partition's. In the commands, and in the variables for
tasks, `{name}` stands for what is known then:

head, worker, retire, env: `{host}` and `{port}`: the head's node and a port that was free there; `{head}`: what the head said
    when it told that it serves, otherwise `host:port`; `{partition}`, `{directory}` (a folder of the engine's own)
head, worker: `{node}`, `{cores}`, `{gpus}`, `{memory_mib}`: the partition's share of the node where it runs
retire: `{node}`: the node that leaves

Braces are doubled where they are meant: `{{`.
"""

from __future__ import annotations

from collections.abc import Mapping

from cantle.engines.hosted.base import Meeting, Program, Site, Station
from cantle.errors import MachineError
from cantle.model.study import EngineCommands

PORT = "port"
NAMES = ("host", "port", "head", "partition", "directory", "node", "cores", "gpus", "memory_mib")


class Commands:
    """An engine that a study brings."""

    def __init__(self, commands: EngineCommands) -> None:
        self.name = commands.name
        self._commands = commands

    def head(self, site: Site) -> Program | None:
        """The head's command, if there is one."""
        said = self._commands
        return self._program(said.head, said.ready, _known(site, site.head, ""), site) if said.head else None

    def worker(self, site: Site, station: Station, address: str) -> Program | None:
        """The worker's."""
        said = self._commands
        if not said.worker:
            return None
        return self._program(said.worker, said.worker_ready, _known(site, station, address), site)

    def retire(self, site: Site, station: Station, address: str) -> Program | None:
        """What is run beside the head before a worker is ended."""
        said = self._commands
        return self._program(said.retire, "", _known(site, station, address), site) if said.retire else None

    def environment(self, site: Site, address: str) -> dict[str, str]:
        """What the study wants in the environment of tasks."""
        known = _known(site, site.head, address)
        return {name: self._filled(text, known) for name, text in self._commands.env.items()}

    def of_process(self, meeting: Meeting) -> dict[str, str]:  # noqa: ARG002
        """Nothing more."""
        return {}

    def _program(self, text: str, ready: str, known: Mapping[str, str], site: Site) -> Program:
        argv = ("/bin/sh", "-c", self._filled(text, known))
        answers = f"{site.host(site.head)}:{site.port}" if ready == PORT else ""
        says = "" if ready == PORT else ready
        return Program(argv, says=says, answers=answers, within_s=self._commands.within_s)

    def _filled(self, text: str, known: Mapping[str, str]) -> str:
        return filled(text, known, self.name)


def filled(text: str, known: Mapping[str, str], name: str) -> str:
    """The text with what is known in its places. Raises MachineError where that cannot be."""
    try:
        return text.format_map(known)
    except KeyError as unknown:
        raise MachineError(f"the engine {name} wants {{{unknown.args[0]}}}; there are {', '.join(known)}") from None
    except (ValueError, IndexError, AttributeError) as problem:
        raise MachineError(f"the engine {name}: {problem}, in {text!r}; double the braces that are meant") from None


def _known(site: Site, station: Station, address: str) -> dict[str, str]:
    host = site.host(site.head)
    return {
        "host": host,
        "port": str(site.port),
        "head": address or f"{host}:{site.port}",
        "partition": site.name,
        "directory": f"{site.run}/{site.directory}",
        "node": station.name,
        "cores": str(station.n_cores),
        "gpus": str(station.n_gpus),
        "memory_mib": str(station.memory_mib),
    }
