"""What did the user write, once a reader has turned it into tasks?

A study has two halves. The *plan half* (`Step`, `Task`) is what the core schedules by; it goes into the journal, so that
status, resume, report and replay need nothing else. The *work half* (`Commands`) says what a task turns into when it is
launched. It is rendered at launch, one task at a time, so that a hundred thousand queued tasks hold no hundred thousand
scripts; a resumed run makes it again from the copy of the study that lies in the run's directory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from .resources import Needs, Node, Place

OF_A_PROGRAM = "python"
"""What stands in the place of a reader's name where a program makes the calls, which nobody else can make again."""
MOST_STREAMS = 1_000_000
"""So many streams a step may have: of each one is known where it runs, by the conductor and by the runner of its node."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """What tasks of one kind have in common.

    Where parameters vary the settings of a step (`procs: $(P)`), a reader gives one `Step` for each variant, all with the
    same `name`; people see one row per name.

    `walltime_s` 0 means no limit. `retries` counts further attempts after a failure that is the task's own fault.
    `restartable`: there is a restart command, used after a walltime timeout, up to the run's `rlimit`. `ranks` and
    `cores_per_rank` describe an MPI step (0: not one). `priority` is the user's: higher goes first.

    `widths`: a moldable step may run on any of these numbers of nodes, ascending; then `needs.nodes` is the least of them.
    Empty: on `needs.nodes` alone. `times_s` are the expected durations on them, in the same order, each 0 where nobody
    knows; a task's own `estimate_s` speaks of the least width. `streams`: the command runs so many times, each with a share
    of the work (0: once); the width decides how many of them each node gets. `communicates`: all of them at the same time or
    none. `partition` names the partition in which the step's tasks run ("": wherever there is room). `local` names files, in
    a task's workspace, that other nodes do not see: they count as data that lives on the node where it ran.
    """

    name: str
    needs: Needs = Needs()
    description: str = ""
    walltime_s: float = 0.0
    retries: int = 0
    restartable: bool = False
    priority: float = 0.0
    ranks: int = 0
    cores_per_rank: int = 1
    widths: tuple[int, ...] = ()
    times_s: tuple[float, ...] = ()
    streams: int = 0
    communicates: bool = False
    partition: str = ""
    local: tuple[str, ...] = ()


class Slice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A way to divide the nodes: `copies` times side by side into elements of `width` nodes.

    An element takes `share` cores of each of its nodes; 0: the node's cores divided by how many copies may be active.
    """

    width: int
    copies: int = 1
    share: int = 0


class Slicing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a study wants the nodes divided. `streams` is the number of logical streams, the same at every width.

    `max_active` bounds how many copies may be active at once; 0: all of them.
    """

    slices: tuple[Slice, ...] = ()
    streams: int = 0
    max_active: int = 0


class PartitionWish(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody wants of a partition: its name, its size and its layout. There is no more to configure.

    `width` counts nodes; `cores` and `gpus` are per node, and `cores` 0 means whole nodes with all that they have. Of a share
    of a node the memory is in proportion to the cores, unless `memory_mib` says it. `layout`: `any` takes the fewest runs of
    neighbours, `contiguous` exactly one, `spread` as many machines as there are. `near` names machines that are preferred.
    `elements`, as in `2 x 400 + 3 x 50, at most 4`: not one partition of its own, but elements of the study's slices.
    `engine` is what it hosts for as long as it lives, a Dask or Ray cluster say; its tasks find it by their environment.
    """

    name: str
    width: int = 1
    cores: int = 0
    gpus: int = 0
    memory_mib: int = 0
    kind: str = ""
    layout: Literal["any", "contiguous", "spread"] = "any"
    near: tuple[str, ...] = ()
    elements: str = ""
    engine: str = ""


class EngineCommands(msgspec.Struct, frozen=True, omit_defaults=True):
    """An engine of the user's own for partitions, as commands: one that runs once, one that runs on every node, or either.

    Commands are run by a shell. `ready` is what tells that one of them serves: text with which a line on its stdout begins, or
    `port`: then it answers on the port that it was given. `retire` runs beside the head before a worker's node leaves. `env`
    is for the tasks of the partition. Each must serve within `within_s` seconds. In all of them `{head}` and so on stand for
    what is known when they start; see `cantle.engines.hosted.commands`.
    """

    name: str
    head: str = ""
    worker: str = ""
    ready: str = "port"
    worker_ready: str = ""
    retire: str = ""
    env: dict[str, str] = {}
    within_s: float = 60.0


class Task(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One instance of a step.

    `step` indexes the study's steps. `parents` are tasks that must succeed first, `after` tasks that only have to be over,
    however they ended (a cancelled one never counts): indexes into the study's tasks, each lower than the task's own.
    `estimate_s` is the expected duration, 0 where nobody knows. `workspace` is relative to the run's directory.
    `params` is what varies, as Maestro's status file writes it: `SIZE:10;TRIAL:1`.
    """

    name: str
    step: int
    parents: tuple[int, ...] = ()
    estimate_s: float = 0.0
    after: tuple[int, ...] = ()
    workspace: str = ""
    params: str = ""


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user bounded for a whole study.

    `throttle`: most tasks in progress at once, 0 = no bound. `rlimit`: most restarts after timeouts of one task, 0 = no
    bound. `fail_fast`: after the first failure start nothing more and end what runs.
    """

    throttle: int = 0
    rlimit: int = 1
    fail_fast: bool = False


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is brought to a task's node before it begins, and back when it is done.

    `files` are (path here, path there); here absolute or with wildcards, there relative to the run's directory, and a folder
    when it ends in a slash. `out` are names in the task's working directory, perhaps with wildcards: they must be there when
    it is done. So must the files of `local`, in its working directory or absolute, but these stay there.
    """

    files: tuple[tuple[str, str], ...] = ()
    out: tuple[str, ...] = ()
    local: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a Python function by a worker that lives longer than the call.

    `function` is the digest of the pickled function, by which workers ask for it once. `arguments` are pickled as well, and
    have places in them for the results of the tasks that it `takes`, by number; or `file` holds them.
    `wanted`: somebody outside may ask for what it returns, so that it is kept until that is over.
    """

    function: str
    arguments: bytes = b""
    takes: tuple[int, ...] = ()
    wanted: bool = True
    file: str = ""


class Command(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one attempt runs.

    Either `script` is text that is written to `script_path` and run by `shell` (an argument list, `["/bin/bash"]`), or
    `argv` is run as it stands, never through a shell. `env` is laid over the run's environment; a value None removes the
    variable. Relative paths are relative to the run's directory. `packed`: stdout and stderr go to the few files that all
    such tasks of a slot share, and the record of the attempt says which bytes are its own; otherwise they go to
    `<output_stem>.<pid>.out` and `.err`, which is how Maestro names them. `base`: where several studies share the nodes, which
    of their directories and environments it is that counts (0: the run's own).

    `files` (absolute path to text) are written before it begins, on the node where it does. `ranks` above 1: it runs so many
    times, all at once, with `cores_each` each, over all of its nodes. `launches`: it starts processes on other nodes, by a
    program that is not ours; what that program says on stderr is looked at while it runs. `launches_here`: each of its
    launches has ranks on the node where it begins. `stage`: what is brought there and back. `call`: not a process of its own,
    but a call of a Python function.
    """

    argv: tuple[str, ...] = ()
    script: str = ""
    script_path: str = ""
    shell: tuple[str, ...] = ()
    cwd: str = ""
    env: dict[str, str | None] = {}
    output_stem: str = ""
    packed: bool = False
    base: int = 0
    files: dict[str, str] = {}
    ranks: int = 0
    cores_each: int = 1
    launches: bool = False
    launches_here: bool = False
    stage: Stage | None = None
    call: Call | None = None


class Commands(Protocol):
    """The work half of a study; a reader brings it."""

    def prepare(self, directory: str) -> None:
        """Fetch and check what the commands need, once before the first launch of a run in this directory.

        A second call finds that all is there. Raises StudyError with everything that is missing.
        """

    def command(
        self, task: int, attempt: int, restart: bool, places: tuple[Place, ...], nodes: tuple[Node, ...]
    ) -> Command:
        """What the task runs in this attempt, on these places (the nodes stand in the same order).

        `task` indexes the study's tasks. `restart`: use the restart command.
        """


@runtime_checkable
class LaunchingCommands(Commands, Protocol):
    """Commands that start ranks by a program that is not ours."""

    def launch_lost_a_node(self) -> None:
        """A launch of this run had ranks on a node that has gone. Its batch system may keep it all the same."""


class Study(msgspec.Struct):
    """A study as a reader gives it.

    `work(directory)` gives the work half for a run in that directory (absolute, as text). `keep` holds what a resumed run
    needs to make the study again: file name -> content, written into a folder of the run's own, from which the same
    reader's `reopen` reads. `digest` identifies the content: two studies with the same digest make the same tasks and
    commands. `output_parent` is where the study wants its directories to be ("" = where the user stands). `source` names
    the file it came from, `warnings` are sentences; both are for people. `slicing`: tasks on several nodes run in elements of
    its slices alone. `partitions` are made when a task wants to run in them, and closed when none is left that does. `batch` is
    what it says about batch jobs, as it stands in the file. `engines` are those that it brings for its partitions.
    """

    name: str
    steps: list[Step]
    tasks: list[Task]
    work: Callable[[str], Commands]
    keep: dict[str, bytes] = {}
    digest: str = ""
    description: str = ""
    source: str = ""
    output_parent: str = ""
    limits: Limits = Limits()
    warnings: list[str] = []
    slicing: Slicing | None = None
    partitions: tuple[PartitionWish, ...] = ()
    batch: dict[str, Any] = {}
    engines: tuple[EngineCommands, ...] = ()
