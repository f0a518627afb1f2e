"""What has somebody to say who wants an engine of his own in a partition? The seam `Hosted`.

A partition may host an engine for as long as it lives: a *head* on its first node, *workers* on all of them, either, or
none. Whoever writes one only says which programs these are and by which variables tasks find them. Cantle's runners start
them, on the cores of the partition, tell when they serve, watch them, and end them with the partition and with the run.

`cantle.testing.check_hosted` runs the conformance check on any of them; `docs/extending/hosted-engine.md` is the page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from cantle.model.resources import list_to_mask

WITHIN_S = 60.0
"""So long a program may take until it serves, unless it says otherwise."""


class Station(msgspec.Struct, frozen=True):
    """What the partition has of one of its nodes.

    `node` is the node's number, `name` what people call it, and `machine` where it stands. `cores` and `gpus` are index lists
    of the node. `memory_mib` 0: nobody knows.
    """

    node: int
    name: str
    machine: str
    cores: str
    gpus: str = ""
    memory_mib: int = 0

    @property
    def n_cores(self) -> int:
        """How many cores."""
        return list_to_mask(self.cores).bit_count()

    @property
    def n_gpus(self) -> int:
        """How many GPUs."""
        return list_to_mask(self.gpus).bit_count()


class Papers(msgspec.Struct, frozen=True):
    """By what those know each other who belong to this partition: texts in PEM, of an authority that nobody else has."""

    authority: str
    certificate: str
    key: str


class Site(msgspec.Struct):
    """The partition in which it lives.

    `run` is the run's directory, absolute, and `directory` a folder in it, relative to it, that belongs to this engine alone.
    `port` was free a moment ago where the head is. `one_machine`: all nodes stand on the conductor's, so that nobody need
    listen beyond it. `papers()` makes what they show each other, the same ones at every call; raises CantleError.
    """

    partition: int
    name: str
    run: str
    directory: str
    head: Station
    port: int
    one_machine: bool
    papers: Callable[[], Papers]

    def host(self, station: Station) -> str:
        """Under what name or address others of the partition reach this node."""
        return "127.0.0.1" if self.one_machine else station.machine


class Program(msgspec.Struct, frozen=True):
    """One process. `argv` begins with `PYTHON` of `cantle.runner.messages` for the interpreter on its node.

    `env` is laid over the run's environment. `private` files (path relative to the run's directory -> text) are written
    before, for the user's own eyes. It serves when a line on its stdout begins with `says`, when somebody `answers` there
    (host:port), or at once when neither is given; that must be the case `within_s` seconds after its start.
    """

    argv: tuple[str, ...]
    env: dict[str, str | None] = {}
    private: dict[str, str] = {}
    says: str = ""
    answers: str = ""
    within_s: float = WITHIN_S


class Meeting(msgspec.Struct, frozen=True):
    """One process of a task that runs on several nodes, all at once: where they meet, which of how many it is, and where."""

    host: str
    port: int
    stream: int
    streams: int
    node: int
    nodes: int
    local: int
    beside: int
    task: int
    attempt: int


class Hosted(Protocol):
    """An engine that lives in a partition. Its methods answer from what they are given, wait for nothing, start nothing.

    `address` is what the head said in the line by which it told that it serves, or `host:port` of the site where it said
    nothing. What raises CantleError fails the partition with that text.
    """

    name: str

    def head(self, site: Site) -> Program | None:
        """What runs once, on the partition's first node, before anything else. None: nothing does."""

    def worker(self, site: Site, station: Station, address: str) -> Program | None:
        """What runs on this node, once the head serves. None: nothing does."""

    def retire(self, site: Site, station: Station, address: str) -> Program | None:
        """What runs beside the head before the worker on this node is ended, since the node leaves. Until it is over tasks of
        the partition go on, and the worker is there. None: the worker is told TERM, and that is all.
        """

    def environment(self, site: Site, address: str) -> dict[str, str]:
        """Variables for all tasks of the partition. They stand in the journal: paths of secrets, no secrets."""

    def of_process(self, meeting: Meeting) -> dict[str, str]:
        """Further variables for each process of a task with streams that communicate."""
