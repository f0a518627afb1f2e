"""What is known of a host on which a runner shall be started? The user's words about it, from `-j` and from hosts.yml."""

from __future__ import annotations

from typing import Literal

import msgspec

Environment = Literal["inherit", "clean", "login"]
"""With which environment tasks begin.

inherit   that of the shell in which the run was begun
clean     nothing but HOME, USER, LOGNAME, SHELL and a plain PATH
login     what a login shell on the host has
"""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """One host.

    `name` is what the user calls it, and its node's name. `address` is what ssh is given ("": this machine, without ssh).
    Numbers that are None are what the runner finds there. `modules`, `source` and `setup` are done in this order in one
    shell before the runner begins: modules to load, files to source, commands. `env` comes after them. `copy` are files of
    the conductor's machine that are put into `directory` first. `python` "": the conductor's, or the host's own.
    `container` are words that stand before the runner's command.
    """

    name: str
    address: str = ""
    cores: int | None = None
    gpus: int | None = None
    memory_mib: int | None = None
    kind: str = ""
    machine: str = ""
    named: tuple[tuple[str, int], ...] = ()
    modules: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    env: dict[str, str] = {}
    environment: Environment = "inherit"
    copy: tuple[str, ...] = ()
    directory: str = ""
    python: str = ""
    container: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """The set-up's commands in their order, as they are told when one fails."""
        return (
            *(f"module load {module}" for module in self.modules),
            *(f"source {file}" for file in self.source),
            *self.setup,
        )

    @property
    def shapes_environment(self) -> bool:
        """Whether tasks on it begin with another environment than the conductor's."""
        return bool(self.steps or self.env or self.environment != "inherit")

    @property
    def is_plain(self) -> bool:
        """Whether nothing is said of it but its cores."""
        given = (self.gpus is not None, self.memory_mib is not None, self.kind, self.machine, self.named)
        return not (
            any(given) or self.shapes_environment or self.copy or self.directory or self.python or self.container
        )

    def options(self) -> list[str]:
        """The options of `cantle runner` that say what is prescribed."""
        words = ["--name", self.name]
        for option, number in (("--cores", self.cores), ("--gpus", self.gpus)):
            if number is not None:
                words += [option, str(number)]
        if self.memory_mib is not None:
            words += ["--memory", f"{self.memory_mib}MiB"]
        for option, text in (("--kind", self.kind), ("--machine", self.machine)):
            if text:
                words += [option, text]
        for name, number in self.named:
            words += ["--resource", f"{name}={number}"]
        return [*words, "--own-env"] if self.shapes_environment else words
