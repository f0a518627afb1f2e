"""What does `$(LAUNCHER)` become at the moment of a launch, when its nodes are known?

On this machine alone it is what it is without nodes: the machine's own mpiexec, or nothing for a single process. Elsewhere it
names exactly the nodes, ranks, cores and GPUs of the attempt, by the launcher that the user named, or that belongs to the
batch job in which we are, or that the first node has.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cantle.errors import MachineError
from cantle.model.resources import Node, Place

from .launcher import NAME, USE, Flavour, Part, flavour_of_machine, parse_part, substitute
from .settings import Settings

if TYPE_CHECKING:
    from cantle.engines.launchers.base import Launcher, Layout, Surroundings

OWN = "cantle"
NAMES = ("openmpi", "mpich", "srun", "slurm", "jsrun", "lsf", "flux", OWN)
_KINDS = ("openmpi", "mpich", "intelmpi")


class Launched:
    """A script with its launchers replaced, and what belongs to them: see `cantle.model.study.Command`."""

    __slots__ = ("env", "files", "launches", "launches_here", "ranks", "script")

    def __init__(self, script: str = "", ranks: int = 0) -> None:
        self.script = script
        self.ranks = ranks
        self.env: dict[str, str | None] = {}
        self.files: dict[str, str] = {}
        self.launches = False
        self.launches_here = True


class Launching:
    """For one study. `flavour` is what the machine has, or Maestro's of the name that was given; None: not looked for yet.

    `named`: the launcher that the user or the study named, "" for none.
    """

    def __init__(self, flavour: Flavour | None, batch: Mapping[str, Any], named: str = "") -> None:
        self._flavour = flavour
        self._batch = batch
        self._named = named
        self._host = os.uname().nodename
        self._launchers: dict[str, Launcher] = {}

    def put_into(
        self,
        script: str,
        settings: Settings,
        places: tuple[Place, ...],
        nodes: tuple[Node, ...],
        stem: str,
        env: Mapping[str, str | None],
        orphans: bool = False,
    ) -> Launched:
        """The script for these places (none: as Maestro writes it). Its files are called `stem` and an ending.

        `env` are the step's own variables. `orphans`: a launch of before may hang on in the batch system, since a node of it
        has gone. Raises MachineError when there is nothing to start it with.
        """
        if self._named == OWN and settings.ranks > 1 and not settings.streams:
            return Launched(substitute(script, settings, _nothing, self._batch), ranks=settings.ranks)
        if NAME not in script:
            return Launched(script)
        if not places or settings.streams:
            return Launched(self._as_maestro(script, settings))
        name, around = self._surroundings(env, orphans)
        here = {node.machine or node.name for node in nodes} == {self._host}
        if here and not around.system and name in ("", *NAMES):
            return self._on_this_machine(script, settings, places, nodes, stem)
        return self._across(name or "found", around, script, settings, places, nodes, stem)

    def _surroundings(self, env: Mapping[str, str | None], orphans: bool) -> tuple[str, Surroundings]:
        """The launcher by its name ("": whichever the first node has), and among what its words are spoken."""
        from cantle.engines.launchers import choosing
        from cantle.engines.launchers.base import Surroundings

        environ = os.environ
        kind = str(self._batch.get("type", ""))
        system, job = choosing.system_of(environ, {"lsf": "jsm"}.get(kind, kind))
        mpi = str(self._batch.get("mpi") or "")
        name = self._named or choosing.name_for(system) or (mpi if mpi in _KINDS else "")
        extra = choosing.extra_words(self._batch)
        if name == "flux":
            from .launcher import flux_words

            if not extra:
                extra = tuple(
                    word
                    for group in (self._batch.get("launcher_args"), {"o": self._batch.get("args")})
                    for option in flux_words(group)
                    for word in option.split(" ", 1)
                )
        around = Surroundings(
            system,
            job,
            environ,
            mpi,
            extra,
            choosing.passed_on(environ, env),
            as_root=os.geteuid() == 0,
            orphans=orphans,
        )
        return name, around

    def _across(
        self,
        name: str,
        around: Surroundings,
        script: str,
        settings: Settings,
        places: tuple[Place, ...],
        nodes: tuple[Node, ...],
        stem: str,
    ) -> Launched:
        from cantle.engines.launchers.layout import Table

        if name in ("srun", "slurm") and not around.mpi:
            from msgspec.structs import replace

            around = replace(around, mpi=self._plugin())
        launcher = self._launcher(name)
        table = Table(places, nodes, _cores_each(settings), settings.gpus_per_task, settings.memory_mib)
        first = nodes[0].machine or nodes[0].name
        result = Launched()

        def words(layout: Layout) -> str:
            hosts = layout.hosts
            if layout.ranks == 1 and not self._named and hosts[0].name == first:
                return ""
            number = f"-{len(result.files)}" if result.files else ""
            prefix = launcher.prefix(layout, around, f"{stem}{number}")
            result.files.update(prefix.files)
            result.env.update(prefix.env)
            result.launches = True
            result.launches_here = result.launches_here and hosts[0].name == first
            return shlex.join(prefix.words)

        def replacement(match: re.Match[str]) -> str:
            if match[1] is None:
                prefix = words(table.whole(settings.ranks))
            else:
                try:
                    part = parse_part(match[1])
                except ValueError:
                    return match[0]
                prefix = words(table.part(part.procs, part.nodes))
            return prefix + match[2] if prefix else ""

        try:
            result.script = re.sub(USE, replacement, script)
        except ValueError as error:
            raise MachineError(str(error)) from None
        return result

    def _on_this_machine(
        self, script: str, settings: Settings, places: tuple[Place, ...], nodes: tuple[Node, ...], stem: str
    ) -> Launched:
        """The machine's own words. Ranks that want GPUs for themselves get them by a script before the program."""
        text = self._as_maestro(script, settings)
        if not settings.gpus_per_task or text == script:
            return Launched(text)
        from cantle.engines.launchers import ranks
        from cantle.engines.launchers.layout import Table

        table = Table(places, nodes, _cores_each(settings), settings.gpus_per_task)
        result = Launched()
        plain = self._flavour_here()

        def with_gpus(part: Part, own: Settings, batch: Mapping[str, Any]) -> str:
            prefix = plain(part, own, batch)
            whole = part.procs == settings.ranks
            layout = table.whole(part.procs) if whole else table.part(part.procs, 0)
            path = f"{stem}{f'-{len(result.files)}' if result.files else ''}.ranks"
            result.files[path] = ranks.script(layout)
            return " ".join(filter(None, (prefix, shlex.join(("/bin/sh", path)))))

        result.script = substitute(script, settings, with_gpus, self._batch)
        return result

    def _as_maestro(self, script: str, settings: Settings) -> str:
        return substitute(script, settings, self._flavour_here(), self._batch)

    def _flavour_here(self) -> Flavour:
        if self._flavour is None:
            self._flavour = flavour_of_machine()
        if self._flavour is None:
            raise MachineError(
                "several processes are to be started by $(LAUNCHER), but there is no mpiexec and no mpirun here: "
                "install Open MPI or MPICH, load its module, or say --launcher"
            )
        return self._flavour

    def _launcher(self, name: str) -> Launcher:
        if name not in self._launchers:
            self._launchers[name] = launcher_called(name)
        return self._launchers[name]

    def _plugin(self) -> str:
        """By what ranks under srun find each other, where the study does not say it."""
        from cantle.engines.launchers.probing import plugin_for

        return plugin_for(_kind_here())


def launcher_called(name: str) -> Launcher:
    """The launcher of this name, ours or somebody else's. Raises RequestError for one that nobody knows."""
    import shutil

    from cantle.engines.launchers.choosing import launcher_named

    try:
        return launcher_named(name, shutil.which)
    except KeyError:
        from cantle.plugins import made

        launcher: Launcher = made("launchers", name)
        return launcher


def _kind_here() -> str:
    """Which MPI this machine has: openmpi, mpich, or "" for none."""
    flavour = flavour_of_machine()
    if flavour is None:
        return ""
    return "openmpi" if "--bind-to" in flavour(Part(2, 0), Settings(), {}) else "mpich"


def _cores_each(settings: Settings) -> int:
    return settings.cores_per_task or settings.cpus_per_rs or 1


def _nothing(_part: Part, _settings: Settings, _batch: Mapping[str, Any]) -> str:
    return ""
