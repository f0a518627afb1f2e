"""What is a batch job, as far as a run inside it is concerned; and what does each batch system have to know?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

OVER = "the job is over"
"""What a starter says may mean this: then there is no use in trying again."""


class Host(msgspec.Struct, frozen=True):
    """One node of a job. `cores` and `memory_mib` are what the system granted there; 0: it does not say.

    `group` numbers the component of a heterogeneous job; others have only group 0.
    """

    name: str
    cores: int = 0
    memory_mib: int = 0
    group: int = 0


class Job(msgspec.Struct, frozen=True):
    """The job that this process runs in. `notes` are sentences about what the environment leaves unclear."""

    system: str
    number: str
    hosts: tuple[Host, ...]
    notes: tuple[str, ...] = ()


class Start(msgspec.Struct, frozen=True):
    """One process of the system's starter, which brings up a runner on each of these hosts."""

    hosts: tuple[Host, ...]
    words: tuple[str, ...]


Invite = Callable[[Sequence[str]], list[str]]
"""From options of `cantle runner` to the words that start it."""

Ask = Callable[[Sequence[str]], str]
"""Run a client of the batch system and return what it printed; "" when it failed, is not there or took too long."""


class System(Protocol):
    """One batch system. `sayings` are pieces of what its starter says, each with what that means for the user.

    `noise`: lines with one of these pieces say nothing about a failure.
    """

    name: str
    sayings: Sequence[tuple[str, str]]
    noise: Sequence[str]

    def job(self, environ: Mapping[str, str], ask: Ask) -> Job | None:
        """The job of which this environment is a part, None if of none. Raises ValueError when it cannot be understood."""

    def seconds_left(self, job: Job, environ: Mapping[str, str], ask: Ask, now: float) -> float | None:
        """How long the job still lasts, None when it has no end or nobody knows it."""

    def starts(self, hosts: Sequence[Host], job: Job, invite: Invite, environ: Mapping[str, str]) -> list[Start]:
        """How a runner is brought up on each of these hosts; each start states all of its arguments."""


def alike(hosts: Sequence[Host]) -> list[tuple[Host, ...]]:
    """The hosts in groups of which all members were granted the same, in the order of their first members."""
    groups: dict[tuple[int, int, int], list[Host]] = {}
    for host in hosts:
        groups.setdefault((host.group, host.cores, host.memory_mib), []).append(host)
    return [tuple(group) for group in groups.values()]


def numbers_of(text: str) -> dict[str, int]:
    """How often each line of a machine file names which host, in the order of their first lines."""
    found: dict[str, int] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        found[line.split()[0]] = found.get(line.split()[0], 0) + 1
    return found


def clock_seconds(text: str) -> float | None:
    """Seconds of `1-02:03:04`, `02:03:04`, `03:04` (minutes, seconds) or `90`; None when it is no time."""
    days, dash, rest = text.strip().rpartition("-")
    parts = rest.split(":")
    if len(parts) > 3 or not all(part.isdigit() for part in parts) or (dash and not days.isdigit()):
        return None
    if dash:  # with days, hours come first
        parts += ["0"] * (3 - len(parts))
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds + (int(days) if dash else 0) * 86400)
