"""Which words start a program of several ranks? The seam that every launcher fills.

A launcher is told exactly where each rank belongs (`Layout`) and in what surroundings the words will be spoken, and answers
with words that go before the program's own, files that these words name, and changes to the environment. It starts nothing
itself and looks at nothing: the same questions get the same answer. What it writes says everything explicitly, so that
nothing depends on what variables of somebody else's launch happen to be set.

`cantle.testing.check_launcher` runs the conformance check on any launcher.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class Seat(msgspec.Struct, frozen=True):
    """Where one rank belongs on its host: the operating system's numbers of its cores, and the vendor's names of its GPUs.

    Without cores it is not bound.
    """

    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()


class Host(msgspec.Struct, frozen=True):
    """A machine of the launch, by the name under which the others reach it, and its ranks in order."""

    name: str
    seats: tuple[Seat, ...]

    @property
    def ranks(self) -> int:
        """How many ranks it has."""
        return len(self.seats)


class Layout(msgspec.Struct, frozen=True):
    """Where the ranks of one launch belong: on these hosts, in rank order.

    It begins on the host `begins_on` ("": the first of them), which has no ranks of it where a script launches in parts.

    `gpus_each` 0: the ranks of a host share its `gpus`, a number for each host. `memory_mib` is for each host, 0 when nobody
    said. `bound`: the cores of a seat are not all that its host has, so that a rank must be kept on them.
    """

    hosts: tuple[Host, ...]
    cores_each: int = 1
    gpus_each: int = 0
    gpus: int = 0
    memory_mib: int = 0
    bound: bool = False
    begins_on: str = ""

    @property
    def ranks(self) -> int:
        """All ranks."""
        return sum(host.ranks for host in self.hosts)

    @property
    def reaches_out(self) -> bool:
        """Whether ranks are started on other hosts than that on which the launch begins."""
        return len(self.hosts) > 1 or self.begins_on not in ("", self.hosts[0].name)

    @property
    def even(self) -> int:
        """How many ranks each host has; 0 when they differ."""
        counts = {host.ranks for host in self.hosts}
        return counts.pop() if len(counts) == 1 else 0


class Surroundings(msgspec.Struct, frozen=True):
    """Among what the words are spoken.

    `system` is the batch system in whose job the hosts are ("" for none) and `job` the job's name there. `environ` are the
    conductor's variables. `mpi` is what the study says of the program's MPI, `extra` are words that it adds. `passed_on` names
    the variables that ranks on other hosts must be given. `as_root`: the tasks run as root.

    `orphans`: the batch system may still count launches of before as running, though the cores that this layout names are
    nobody's. Slurm keeps a step of which a node has died until it has noticed that, often five minutes later: neither the end
    of its srun nor `scancel` changes it (tried with 22.05). For so long nobody else gets the step's cores on the nodes that are
    left, but who says that he overlaps.
    """

    system: str = ""
    job: str = ""
    environ: Mapping[str, str] = {}
    mpi: str = ""
    extra: tuple[str, ...] = ()
    passed_on: tuple[str, ...] = ()
    as_root: bool = False
    orphans: bool = False


class Prefix(msgspec.Struct, frozen=True):
    """What starts a launch: words before the program's, files (path to text), and variables of the task (None: removed)."""

    words: tuple[str, ...]
    files: dict[str, str] = {}
    env: dict[str, str | None] = {}


class Launcher(Protocol):
    """One way to start a program of several ranks.

    `programs` are what it runs, for messages and for finding out whether it is there.
    """

    name: str
    programs: tuple[str, ...]

    def prefix(self, layout: Layout, around: Surroundings, stem: str) -> Prefix:
        """The words that start a program with this layout. Its files are called `stem` and an ending.

        Raises ValueError with a sentence when such a layout cannot be started in these surroundings.
        """
