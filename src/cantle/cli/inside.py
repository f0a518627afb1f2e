"""Are we inside a batch job, or one of several copies that a launcher started? Then the nodes of that are ours to use.

Nothing of this is loaded by a run that is neither.
"""

from __future__ import annotations

import os
from time import time
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from cantle.errors import MachineError, RequestError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence

    from cantle.allocations.batch.job import Host, Job, System
    from cantle.allocations.fleet.source import Source


class Around(NamedTuple):
    """What surrounds this process.

    `here`: whether this machine is one of the nodes, None when that is as the user's words have it. `sources` bring the others.
    `granted` says what the system gave us on this machine, and `everywhere` how many cores of each node the user wants.
    `at_most`: so many cores of this machine the system granted, which counts where nothing confines us; 0: it does not say.
    `ends_at()` says when all of it is taken away, 0 when nobody knows; it may take some seconds. `environ` is what tasks
    inherit. `notes` are for the user.
    """

    here: bool | None
    sources: list[Source]
    granted: Host | None
    everywhere: int | None
    ends_at: Callable[[], float]
    environ: dict[str, str]
    notes: list[str]
    at_most: int = 0

    @property
    def name(self) -> str:
        """What this machine is called there; "" where nobody calls it anything."""
        return self.granted.name if self.granted is not None else ""

    def on_this_machine(self, asked: Namespace, memory_mib: int | None) -> tuple[int | None, int | None]:
        """How many cores and how much memory of this machine are used; None: what its own look finds."""
        if asked.nodes:
            return asked.cores, memory_mib
        cores: int | None = asked.cores
        if cores is None:
            cores = self.everywhere or (self.granted.cores if self.granted else 0) or None
        if memory_mib is None and self.granted is not None:
            memory_mib = self.granted.memory_mib or None
        return cores, memory_mib


def around(asked: Namespace) -> Around | None:
    """What surrounds us, None when nothing does. Raises RequestError when the environment makes no sense."""
    environ = dict(os.environ)
    found = _job(environ)
    if found is None and asked.launch is None:
        return None
    from cantle.allocations.batch.stale import cleaned
    from cantle.allocations.hosts.words import places_of

    places = places_of(asked.places)
    everywhere = places.everywhere or None
    ends_at = _Asked(found, environ, time() + asked.ends_in if asked.ends_in else 0.0)
    if asked.launch is not None:
        sources: list[Source] = [asked.launch.source] if asked.launch.copy.machines > 1 else []
        _require_packages(sources)
        at_most = granted_here(environ)
        return Around(True, sources, None, everywhere, ends_at, cleaned(environ), [], at_most)
    assert found is not None
    system, job = found
    own, others = _apart(job, environ)
    at_most = 0
    if own is not None and system.name in ("Slurm", "Flux"):
        # Mostly they confine what they start, and what we may use says it better than a number.
        at_most, own = own.cores, replace(own, cores=0)
    if asked.this_machine or asked.nodes or (asked.places and places.everywhere is None):
        return Around(None, [], own, None, ends_at, cleaned(environ), [], at_most)
    from cantle.allocations.batch.source import BatchSource

    sources = [BatchSource(system, job, others, environ, ends_at, _options(asked, everywhere))] if others else []
    _require_packages(sources)
    return Around(own is not None, sources, own, everywhere, ends_at, cleaned(environ), [_told(job, own)], at_most)


def _require_packages(sources: Sequence[Source]) -> None:
    from importlib.util import find_spec

    if sources and find_spec("distributed") is None:
        raise MachineError(
            "the other nodes need the package distributed: pip install 'cantle[cluster]'. To use this machine alone: "
            "--this-machine"
        )


def _job(environ: dict[str, str]) -> tuple[System, Job] | None:
    from cantle.allocations.batch.systems import job_of

    try:
        return job_of(environ)
    except ValueError as problem:
        raise RequestError(f"{problem}. To use this machine alone: --this-machine") from None


def _apart(job: Job, environ: dict[str, str]) -> tuple[Host | None, list[Host]]:
    """The host that is this machine, None if it is no node of the job, and the others."""
    from cantle.allocations.batch.systems import names_here, short

    names = names_here(environ)
    own = next((host for host in job.hosts if host.name in names or short(host.name) in names), None)
    return own, [host for host in job.hosts if host is not own]


def _told(job: Job, own: Host | None) -> str:
    n = len(job.hosts)
    where = "" if own is not None else ", of which this machine is none"
    return f"inside job {job.number} of {job.system}: {n:,} {'node' if n == 1 else 'nodes'}{where}"


def granted_here(environ: Mapping[str, str]) -> int:
    """How many cores of the machine under us Slurm granted, in whose jobs nothing may confine us to them; 0 outside of one.

    Read from the environment alone: a thousand copies of one command may ask at once.
    """
    from cantle.allocations.batch.slurm import Slurm

    try:
        job = Slurm().job(environ, lambda _: "")
    except ValueError:  # whoever needs the job's hosts tells of it
        return 0
    own = None if job is None else _apart(job, dict(environ))[0]
    return 0 if own is None else own.cores


def options_for_others(asked: Namespace) -> list[str]:
    """What the user said of each machine, as options of the runners of those that are not the first."""
    from cantle.allocations.hosts.words import places_of

    return _options(asked, places_of(asked.places).everywhere)


def _options(asked: Namespace, everywhere: int | None) -> list[str]:
    """What the user said of each node, for the runners of the others."""
    words: list[str] = []
    cores = everywhere or asked.cores or None
    for option, number in (("--cores", cores), ("--gpus", asked.gpus)):
        if number is not None:
            words += [option, str(number)]
    if asked.memory is not None:
        words += ["--memory", f"{asked.memory:g}MiB"]
    return words


class _Asked:
    """When it all ends: the batch system is asked once, by whoever wants to know first; the user may say so as well."""

    def __init__(self, found: tuple[System, Job] | None, environ: dict[str, str], at_latest: float) -> None:
        from threading import Lock

        self._found, self._environ, self._at_latest = found, environ, at_latest
        self._lock = Lock()
        self._answer: float | None = None

    def __call__(self) -> float:
        """Seconds since the epoch, 0 when nobody knows."""
        with self._lock:
            if self._answer is None:
                known = [end for end in (self._at_latest, self._of_job()) if end]
                self._answer = min(known, default=0.0)
            return self._answer

    def _of_job(self) -> float:
        from cantle.allocations.batch.systems import asker

        if self._found is None:
            return 0.0
        system, job = self._found
        now = time()
        left = system.seconds_left(job, self._environ, asker(self._environ), now)
        return 0.0 if left is None else now + left
