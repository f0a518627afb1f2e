"""What do a pilot and a program say to each other that stays, hands in calls as it goes, and hears what becomes of them?

The program asks at the door to `Sit` (`messages.py`), proves that it knows the secret, and is answered `Seated`. Then the
same connection carries frames (their length in four bytes, and MessagePack), each a list of messages, both ways, until one
side closes it. A program that is gone without `Leave` takes what it handed in with it: its study is canceled. So does one that
breaks the rules: it is told which one, `Dismissed`.

Steps and tasks are numbered by the program in the order in which it hands them in, from 0; the pilot knows which of its own
those are. No pickle is ever loaded by the pilot.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cantle.model.study import PartitionWish, Step

MOST_SAID = 1 << 28
"""No frame is longer, in bytes: what is larger is put into a file by whoever says it."""


class Function(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A pickled function that calls may name by its digest."""

    digest: str
    body: bytes


class NewSteps(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Further steps: each a function with what its calls need."""

    steps: list[Step]


class NewTask(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One call. `parents` have to succeed before it (those whose results it `takes` among them), `after` only to be over.

    `arguments`: pickled, with places for what it takes, as `cantle.runner.calling.values` has it; `file` names one that holds
    them, when they are large; it stays until `LetGo`. `wanted`: the program may ask for the result.
    """

    name: str
    step: int
    function: str
    arguments: bytes = b""
    parents: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    wanted: bool = True
    estimate_s: float = 0.0
    file: str = ""


class NewTasks(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Further calls, numbered from `first`."""

    first: int
    tasks: list[NewTask]


class CancelTasks(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """These shall be over, and what needs them; None: all."""

    tasks: list[int] | None = None


class ForgetTasks(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The program will not ask for the results of these any more."""

    tasks: list[int]


class Fetch(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The result of this task, please. `Fetched` answers, when it is there: perhaps it has to be made again first."""

    task: int


class AskPartition(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A partition, please. `PartitionNews` follow. Its name is not taken by another one of this program."""

    wish: PartitionWish


class ResizePartition(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The partition of this name, on so many nodes. `Heeded` answers."""

    name: str
    width: int


class ClosePartition(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The partition is not needed any more; `now`: what runs there goes back to its queue."""

    name: str
    now: bool = False


class WishNodes(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """So many nodes of this kind; None: as the policy has it. `Heeded` answers."""

    kind: str
    count: int | None = None


class AskNodes(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Which nodes are there? `NodesNow` answers. `follow`: tell again whenever that changes."""

    follow: bool = False


class Leave(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """No more calls will come. The study is over when all are; with `cancel` they are canceled now. `Left` answers then."""

    cancel: bool = False


class End(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A task is over.

    `phase` is its last one, in lower case: done, failed, timedout, canceled, skipped `value`: its packed result, or
    what it raised; None when it is kept where it was made (`size` bytes) or there is none. `why`: a sentence for people.
    """

    task: int
    phase: str
    value: bytes | None = None
    size: int = 0
    why: str = ""
    node: str = ""
    seconds: float = 0.0


class Ends(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Tasks that are over."""

    ends: list[End]


class Begun(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Tasks that run now, or return to their queue (`back`)."""

    tasks: list[int]
    back: list[int] = []


class Fetched(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The packed result; or the `path` of a file on this machine that holds it; or the `problem` with it."""

    task: int
    value: bytes = b""
    path: str = ""
    problem: str = ""


class LetGo(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The files with the arguments of these calls are not read any more."""

    tasks: list[int]


class PartitionNews(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """How a partition stands: `standing` in lower case, on which nodes, what its engine tells tasks, and why it is not."""

    name: str
    standing: str
    nodes: list[str] = []
    env: dict[str, str] = {}
    why: str = ""


class NodeNow(msgspec.Struct, frozen=True, array_like=True):
    """One node of the pilot."""

    name: str
    kind: str
    cores: int
    gpus: int
    standing: str


class NodesNow(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The nodes that are there; `coming` so many by kind."""

    nodes: list[NodeNow]
    coming: dict[str, int] = {}


class Heeded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What was asked is done as far as it can be; or, with the `problem`, nothing is. In the order of the questions."""

    problem: str = ""


class Note(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A sentence for the user."""

    text: str


class Left(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """All is over, and nothing more will be said."""


class Dismissed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The program broke the rules of the conversation, or its study cannot be written down any more; `why` says how.

    Its calls are canceled, nothing more will be said.
    """

    why: str


Up: TypeAlias = (
    Function
    | NewSteps
    | NewTasks
    | CancelTasks
    | ForgetTasks
    | Fetch
    | AskPartition
    | ResizePartition
    | ClosePartition
    | WishNodes
    | AskNodes
    | Leave
)
"""What the program says."""
Down: TypeAlias = Ends | Begun | Fetched | LetGo | PartitionNews | NodesNow | Heeded | Note | Left | Dismissed
"""What the pilot says."""
