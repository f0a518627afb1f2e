"""What do a node's runner and its conductor say to each other?

Frames (`cantle.runner.frames`) of messages. Down go `Setup`, then `Start`, `End` and `Ack`, and where several studies share
the node `Base` before the first start of each, `BaseOver` after its last; before the first call of a function `Define`. Up
come `Started` and `Ended`,
numbered so that the conductor can say which results it has written down, and `Leaving` when the runner gives up by itself.
What has not been acknowledged when the conductor disappears, the runner leaves in a spool file for the one that resumes.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cantle.model.records import Outcome
from cantle.model.study import Command

RUN = b"CANTLE_RUN"
"""The variable that tells every process of a run which run that is: its directory."""

Key: TypeAlias = tuple[int, ...]
"""A task's number and its attempt; where an attempt is several processes, also which of how many this is."""


class Setup(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """First message: what holds for all attempts on this node.

    `directory` is the run's (absolute): relative paths of commands start there, and those of this message. `env` is the
    environment that tasks inherit, in bytes because not every environment is valid text. `core_ids` and `gpu_ids` are
    those of the node. `hide_gpus`: tasks that asked for no GPU shall see none. `spool` is the file for
    results that nobody acknowledged, `lock` a file that the runner keeps locked (fcntl) while it lives, `packed` the
    prefix of the files for packed output. `grace_s` lies between TERM and KILL.
    """

    directory: str
    env: dict[bytes, bytes]
    core_ids: tuple[int, ...] = ()
    gpu_ids: tuple[str, ...] = ()
    hide_gpus: bool = False
    spool: str = ""
    lock: str = ""
    packed: str = "packed"
    grace_s: float = 5.0


class Staged(msgspec.Struct, frozen=True, array_like=True):
    """What comes with an attempt, and what it leaves.

    `files` are (path relative to the run's directory, mode, content). `out` are names in its working directory, perhaps with
    wildcards, that must be there when it is done. `back`: their contents come with its end, and so does what it printed.
    `local` files must be there as well, and stay; with its end comes how large those are that no other machine sees.
    """

    files: tuple[tuple[str, int, bytes], ...] = ()
    out: tuple[str, ...] = ()
    back: bool = False
    local: tuple[str, ...] = ()


class Start(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """Run this attempt. `cores` and `gpus` are index lists of the node; `walltime_s` and `memory_mib` 0: no bound.

    With `after` it begins in the place of that attempt, once that one has ended, and only if it is done; otherwise it ends
    at once, as interrupted. `given`, of a call: of tasks whose results it takes, (number, the result, or the path where it
    lies); what is not given was made here by who it follows.
    """

    key: Key
    command: Command
    cores: str
    gpus: str = ""
    walltime_s: float = 0.0
    memory_mib: int = 0
    after: Key | None = None
    stage: Staged | None = None
    given: tuple[tuple[int, bytes, str], ...] = ()


class End(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End this attempt: TERM, grace, KILL, to all of its processes. `grace_s` below 0: the node's own."""

    key: Key
    outcome: Outcome
    detail: str = ""
    grace_s: float = -1.0


class Ack(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """All results up to this number are written down, but for those of attempts of which other parts are not over.

    `but` lists those of them that no earlier `Ack` covered, `over` those that an earlier one listed and that are done with.
    """

    number: int
    but: tuple[int, ...] = ()
    over: tuple[int, ...] = ()


class Base(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """From now on commands with this `base` number start in a directory and environment of their own.

    Fields as in `Setup`, for that base alone. The tasks of a base are told their numbers counted from `first`.
    """

    number: int
    directory: str
    env: dict[bytes, bytes]
    hide_gpus: bool = False
    packed: str = "packed"
    first: int = 0


class BaseOver(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """No more commands with this base will come; all that came are over."""

    number: int


class Hold(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """This node has a share of a partition from now on; the answer is `Held`."""

    partition: int
    name: str


class Release(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """This node has no share of the partition any more."""

    partition: int


class Held(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The share of the partition is held here: its attempts may come."""

    partition: int


class Sweep(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The attempt's launch is over: end what is left of it on this node, whoever started it. The answer is `Swept`."""

    key: Key
    base: int = 0


class Swept(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nothing of the attempt is left on this node; so many processes had to be ended for that."""

    key: Key
    ended: int = 0


class Said(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What an attempt that launches by a foreign program has written to stderr: the beginning and the end of it.

    `over`: the attempt has failed, and its end follows. `waits` names its launcher if that runs and has begun no rank yet.
    """

    key: Key
    text: str
    over: bool = False
    waits: str = ""


class Serve(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Run something that is no task, for as long as a partition lives, beside the tasks that have its cores.

    The first number of its key is below 0. It serves when a line on its stdout begins with `says`, when somebody `answers`
    there (host:port), or, when neither is given, at once: then `Serving` tells it. `private` files (path relative to the
    run's directory -> text) are written before, for the user's own eyes. Where its command begins with `PYTHON`, that is the
    runner's own interpreter, with its modules.
    """

    start: Start
    says: str = ""
    answers: str = ""
    private: dict[str, str] = {}


PYTHON = "{python}"


class Serving(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What was to serve does. `text` is the rest of the line that says so."""

    key: Key
    text: str = ""


class Started(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """The attempt's process runs. Of an attempt that ended before this could be told, `Ended` tells it."""

    key: Key
    time: float
    pid: int


class Ended(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """The attempt is over. Fields as in `cantle.model.records.TaskEnded`; `files` as in `Staged`.

    Of a call, `result` is what it returned, or raised; a large one lies in the file `path`, with so many bytes `kept`.
    """

    number: int
    key: Key
    time: float
    outcome: Outcome
    exit_code: int = 0
    signal: int = 0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    detail: str = ""
    output: str = ""
    started: float = 0.0
    pid: int = 0
    files: tuple[tuple[str, int, bytes], ...] = ()
    result: bytes = b""
    kept: int = 0
    path: str = ""


class Define(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A pickled function that calls may name by its digest from now on."""

    digest: str
    body: bytes


class Forget(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nobody needs the results of these attempts any more."""

    keys: tuple[Key, ...]


class Leaving(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The runner ends, and not because its conductor told it to. All of its attempts are over."""

    reason: str


Down: TypeAlias = Setup | Start | End | Ack | Base | BaseOver | Hold | Release | Sweep | Serve | Define | Forget
Up: TypeAlias = Started | Ended | Leaving | Held | Swept | Said | Serving
