"""What can happen in a run, and what can be done about it: the one vocabulary.

Everything that matters is a record. An **event** says that something happened (past tense), a **decision** that something
shall be done (imperative). The journal stores them, `State.apply` folds them, tests assert them; nothing else carries
meaning. Each record bears the time at which it became true, in seconds since the epoch (in a simulation since its start).

Tasks and nodes are numbered by the order in which they entered the run; attempts of a task count from 1, so that a late
message about an old attempt is recognised.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from .kinds import Kind
from .resources import Node, Place, Slots
from .study import EngineCommands, Limits, PartitionWish, Slicing, Step, Task

Outcome = Literal["done", "failed", "timeout", "memory", "canceled", "interrupted", "lost", "unstartable"]
"""How an attempt ended.

done         exit code 0
failed       any other exit code, or a signal that nobody of ours sent
timeout      it ran into its walltime and was ended
memory       it used more memory than it asked for and was ended
canceled     somebody asked for it to be ended
interrupted  the run itself was stopped; not the task's fault
lost         its node or runner went away; not the task's fault
unstartable  no process could be started (no such shell, disk full), so nothing ran
"""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is"):
    """Base of all records."""

    time: float


# Events


class RunStarted(Record, frozen=True, tag=True):
    """A conductor began a new run."""

    run: str
    version: str
    host: str
    pid: int
    argv: tuple[str, ...] = ()
    job: str = ""
    """The batch job in which it stood, as in `Slurm 91`."""
    cwd: str = ""
    """What names of files in `argv` are relative to."""


class RunResumed(Record, frozen=True, tag=True):
    """A conductor went on with a run whose conductor had gone.

    Attempts that were under way are over, not by their fault. With `retry`, tasks that failed, timed out, were canceled
    or were skipped because of such tasks get a new chance. So many `partitions` were known; all of them are over.
    `before`: it tells a study that came to a pilot later what had become of nodes and partitions.
    """

    host: str
    pid: int
    retry: bool = True
    partitions: int = 0
    argv: tuple[str, ...] = ()
    job: str = ""
    before: bool = False
    cwd: str = ""


class StudyAdded(Record, frozen=True, tag=True):
    """A study entered the run. Its tasks follow in `TasksAdded`. `options` are those it was read with, as JSON.

    `tasks` is their number: as long as fewer are known, the study has not entered whole. `priority` is added to that of each
    of its steps. Of what several studies want, each gets its part by `weight` times two to its `priority`. One that `grows` may
    get more steps and tasks at any time, until `StudyClosed`: nobody knows how many.
    """

    name: str
    steps: list[Step]
    directory: str = ""
    limits: Limits = Limits()
    digest: str = ""
    source: str = ""
    reader: str = ""
    options: str = ""
    tasks: int = 0
    slicing: Slicing | None = None
    priority: float = 0.0
    partitions: tuple[PartitionWish, ...] = ()
    weight: float = 1.0
    grows: bool = False
    engines: tuple[EngineCommands, ...] = ()


class TasksAdded(Record, frozen=True, tag=True):
    """Tasks of a study, numbered on from `first`; their parents' and steps' numbers are the run's as well.

    All tasks of a study follow each other: no other study's stand between them.
    """

    first: int
    tasks: list[Task]
    study: int = 0


class StepsAdded(Record, frozen=True, tag=True):
    """Further steps of a study that grows; numbered on from all that the run has."""

    study: int
    steps: list[Step]


class StudyClosed(Record, frozen=True, tag=True):
    """The study grows no more."""

    study: int


class StudyOver(Record, frozen=True, tag=True):
    """All tasks of the study are over, and nothing is asked about them any more: what is known of them may be forgotten.

    Their phases stay known. What was promised of the study and never came is not waited for.
    """

    study: int


class StudyChanged(Record, frozen=True, tag=True):
    """A resumed study reads differently now.

    The commands of `tasks` changed, so that they and all after them run again. `rows` are the tasks that are described
    differently now, by number; their `step` indexes `steps`, which are added to the run's.
    """

    digest: str
    tasks: list[int]
    steps: list[Step] = []
    rows: dict[int, Task] = {}
    study: int = 0


class Revived(Record, frozen=True, tag=True):
    """These tasks, which ended without success, get a new chance, and so do those that were skipped for their sake."""

    tasks: list[int]


class NodesJoined(Record, frozen=True, tag=True):
    """Nodes came up. They are numbered on from those that joined before. `request`: which one they answer, -1 for none."""

    nodes: list[Node]
    request: int = -1


class KindsDeclared(Record, frozen=True, tag=True):
    """Nodes of these kinds can be had from now on, and no others: what was declared before holds no more.

    `scaling`: the policies and bounds by which they come and go, as they were said; none for the default.
    """

    kinds: list[Kind]
    scaling: tuple[str, ...] = ()


class RequestAnswered(Record, frozen=True, tag=True):
    """What became of a request for nodes, as far as it is known. Told again whenever it changes.

    Of those that were asked for `coming` are on their way, `refused` will not come, and `detail` says why, or what they wait
    for, in the provider's own words. `expected_at`: when they should be there, 0 when nobody knows. Those that joined count
    as neither.
    """

    request: int
    coming: int
    refused: int = 0
    detail: str = ""
    expected_at: float = 0.0


class NodesWished(Record, frozen=True, tag=True):
    """Somebody, or a scaling function of the user's, wants so many nodes of this kind to be there, those on their way included.

    It holds until the next one for this kind; `count` None takes it back. `problem`: the function failed, and how.
    """

    kind: str
    count: int | None = None
    by: str = ""
    why: str = ""
    problem: str = ""


class NodeReleased(Record, frozen=True, tag=True):
    """The provider has taken the node back, or cannot: `problem` says why. In that case it may be used again."""

    node: int
    problem: str = ""


class ResultsMoved(Record, frozen=True, tag=True):
    """Results of these tasks, which lived on `node`, live on `to` as well now. With `problem` they could not be moved."""

    tasks: list[int]
    node: int
    to: int
    problem: str = ""


class ResultsLost(Record, frozen=True, tag=True):
    """The node is there, but what these tasks had left there is not any more."""

    tasks: list[int]
    node: int
    reason: str = ""


class ResultsForgotten(Record, frozen=True, tag=True):
    """Nobody outside the run wants the results of these tasks any more."""

    tasks: list[int]


class ClockSet(Record, frozen=True, tag=True):
    """From now on the machine's clock is so many seconds ahead of the records' time, which goes by one that nobody sets."""

    ahead_s: float


class NodesAwaited(Record, frozen=True, tag=True):
    """So many nodes are on their way; 0 when no more are to be expected. Until then nothing is called impossible."""

    count: int


class NodeLost(Record, frozen=True, tag=True):
    """A node went away, with all that ran on it."""

    node: int
    reason: str = ""


class NodeDrainAsked(Record, frozen=True, tag=True):
    """Nothing more shall begin on the nodes of this name, until `NodeResumeAsked`; what runs there may end.

    `goes`: those of them that are there now, of a kind that can be given back, are given back once they are empty.
    """

    node: str
    by: str = ""
    goes: bool = False


class NodeResumeAsked(Record, frozen=True, tag=True):
    """The nodes of this name may be used again, whyever they were drained, unless their allocation ends."""

    node: str
    by: str = ""


class DrainTimeSet(Record, frozen=True, tag=True):
    """Nodes that join from now on shall be empty so many seconds before their allocation ends."""

    drain_s: float


class TaskStarted(Record, frozen=True, tag=True, gc=False):
    """The attempt's process runs."""

    task: int
    attempt: int
    pid: int = 0


class TaskEnded(Record, frozen=True, tag=True, gc=False):
    """The attempt is over.

    `cpu_s` is user plus system time of its processes, `peak_mib` the largest memory seen. `detail` is for people: the
    reason, and the last lines of stderr when it failed. `output` tells where packed output lies:
    "file offset length" for stdout and stderr, joined by a tab. `started` and `pid` stand here when the attempt was over
    before anybody was told that it had started, 0 otherwise. `everywhere`, of one that could not be started: the reason is
    not its node's, so that it could be started on no other one either. `kept`: so many bytes that it made live on its node
    alone, whether a Python result or files that its step declares as local. `restarts`: so often the task was restarted after
    timeouts before, of which this journal does not tell.
    """

    task: int
    attempt: int
    outcome: Outcome
    exit_code: int = 0
    signal: int = 0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    detail: str = ""
    output: str = ""
    started: float = 0.0
    pid: int = 0
    everywhere: bool = False
    kept: int = 0
    restarts: int = 0


class TaskHindered(Record, frozen=True, tag=True):
    """What keeps a launched attempt from beginning: what starts its ranks cannot, or what goes with it does not come.

    `why` "": it can after all.
    """

    task: int
    attempt: int
    why: str = ""


class CancelAsked(Record, frozen=True, tag=True):
    """Somebody wants these tasks ended for good; None means everything, or with `study` all of that study."""

    tasks: list[int] | None = None
    by: str = ""
    study: int | None = None


class LimitsChanged(Record, frozen=True, tag=True):
    """Somebody changed the bounds of a study."""

    limits: Limits
    study: int = 0


class StopAsked(Record, frozen=True, tag=True):
    """The run shall end here and be resumed another day: launch nothing, end what runs; `at_once`: without grace."""

    reason: str = ""
    at_once: bool = False


class PartitionAsked(Record, frozen=True, tag=True):
    """Somebody wants a partition. Partitions are numbered by the order in which they were asked for.

    `study` tells for whose tasks, as in the requests that follow: a study of the run, or -1 for none in particular.
    """

    wish: PartitionWish
    study: int = -1
    by: str = ""


class PartitionResizeAsked(Record, frozen=True, tag=True):
    """Somebody wants the living partition of this name on so many nodes."""

    name: str
    width: int
    by: str = ""
    study: int = -1


class PartitionDrainAsked(Record, frozen=True, tag=True):
    """Nothing more shall begin in the living partition of this name; when it is empty it is closed."""

    name: str
    by: str = ""
    study: int = -1


class PartitionCancelAsked(Record, frozen=True, tag=True):
    """The living partition of this name shall end now; its tasks return to their queue."""

    name: str
    by: str = ""
    study: int = -1


class ElementsAsked(Record, frozen=True, tag=True):
    """Somebody wants elements of the slices, as in `2 x 400 + 3 x 50, at most 4`, instead of what he wanted before.

    They are made as they become free, perhaps not all of them. Tasks whose step names `name` as their partition run in them.
    Without a `want` he gives back what he holds, when nothing runs in it.
    """

    name: str
    want: str = ""
    by: str = ""
    study: int = -1


class PartitionStarted(Record, frozen=True, tag=True):
    """The partition's agent is alive: tasks may run there.

    Of one that hosts an engine: where its head answers, and the variables by which tasks find it.
    """

    partition: int
    address: str = ""
    env: tuple[tuple[str, str], ...] = ()


class PartitionFailed(Record, frozen=True, tag=True):
    """The partition's agent did not start, or went away."""

    partition: int
    reason: str = ""


class PartitionEnded(Record, frozen=True, tag=True):
    """The partition's agent is gone, as it was told to: the slots are free."""

    partition: int


class PartitionTold(Record, frozen=True, tag=True):
    """What the engine that the partition hosts has met with, and the partition goes on: a worker of it died, say."""

    partition: int
    what: str


class WorkersRetired(Record, frozen=True, tag=True):
    """What the partition hosts has left these nodes, as it was told to: their slots may go."""

    partition: int
    leaving: tuple[int, ...]


class TimePassed(Record, frozen=True, tag=True):
    """Nothing happened, but it is later now."""


# Decisions


class Launch(Record, frozen=True, tag=True, gc=False):
    """Start an attempt of a task on these places.

    With `behind`, the places belong to that task now, and pass to this one when it is over: the attempt stands in line
    there, so that a short task need not wait until the end of the one before has been heard and answered. (If that task is
    no longer there, the places are this one's at once.) The places belong to the partition of that number, below 0 to none.
    With `if_done` this task waits for that one to succeed: it begins only if that attempt of it is done, and otherwise ends
    as interrupted, without having begun.
    """

    task: int
    attempt: int
    on: tuple[Place, ...]
    restart: bool = False
    why: str = ""
    behind: int | None = None
    partition: int = -1
    if_done: int = 0


class Stop(Record, frozen=True, tag=True):
    """End a running attempt: TERM, grace, KILL; `at_once`: KILL."""

    task: int
    attempt: int
    outcome: Literal["canceled", "interrupted"]
    why: str = ""
    at_once: bool = False


class Refuse(Record, frozen=True, tag=True):
    """This task can never run here."""

    task: int
    why: str


class OrderTasks(Record, frozen=True, tag=True):
    """Let these tasks go in this order, as far as they are ready and nobody said that some are more urgent.

    They exchange their ranks for it. What is not among them goes by rank; with none at all, everything does.
    """

    tasks: list[int]
    why: str


class DrainNode(Record, frozen=True, tag=True):
    """Nothing more begins on this node.

    ends     its allocation does: what runs there is ended, by nobody's fault
    fails    it fails what succeeds elsewhere
    suspect  it fails everything at once, and nobody knows yet how that ends elsewhere
    flaps    it came and went too often
    retires  it shall be given back once it is empty
    """

    node: int
    why: str
    cause: Literal["ends", "fails", "suspect", "flaps", "retires"]


class ResumeNode(Record, frozen=True, tag=True):
    """The node, which was drained, is used again."""

    node: int
    why: str


class GiveUpNode(Record, frozen=True, tag=True):
    """The node's time has been over for long, and nobody has said that it went: it counts as lost. `NodeLost` follows."""

    node: int
    why: str


class RequestNodes(Record, frozen=True, tag=True):
    """Ask for so many more nodes of a kind. Requests are numbered by the order in which they were made."""

    kind: str
    count: int
    why: str


class WithdrawRequest(Record, frozen=True, tag=True):
    """Of the nodes that a request has on their way, so many are not needed any more."""

    request: int
    count: int
    why: str


class MoveResults(Record, frozen=True, tag=True):
    """Copy these tasks' results, which live on `node` alone, to another one. `ResultsMoved` answers."""

    tasks: list[int]
    node: int
    to: int
    why: str


class ReleaseNode(Record, frozen=True, tag=True):
    """Give the node back: it was drained, nothing runs there, and nothing that is needed lives there alone."""

    node: int
    why: str


class NoticeIdle(Record, frozen=True, tag=True):
    """Tell whoever wants to know: the node is unused, and nothing that is needed lives there alone."""

    node: int
    why: str


class EndRun(Record, frozen=True, tag=True):
    """What is left cannot be done before the nodes go: the run ends here, to be resumed on others. Nothing runs any more."""

    why: str


class RequestPartition(Record, frozen=True, tag=True):
    """The run itself wants a partition: one that its study declares, or an element of one of its slices.

    `element` tells which: the number of the slice, of its copy, and of the element in the copy. `holder`: somebody's request
    by whose name it is held, "" for the study.
    """

    wish: PartitionWish
    study: int
    element: tuple[int, int, int] | None = None
    why: str = ""
    holder: str = ""


class AdmitPartition(Record, frozen=True, tag=True):
    """There can be such a partition: it waits for its slots."""

    partition: int


class RefusePartition(Record, frozen=True, tag=True):
    """There can never be such a partition here."""

    partition: int
    why: str


class GrowPartition(Record, frozen=True, tag=True):
    """These free slots belong to the partition from now on. One that waits gathers them until it has what it wants."""

    partition: int
    slots: tuple[Slots, ...]
    why: str = ""


class ShrinkPartition(Record, frozen=True, tag=True):
    """The partition gives these slots back; nothing of it runs on them."""

    partition: int
    slots: tuple[Slots, ...]
    why: str = ""


class RetireWorkers(Record, frozen=True, tag=True):
    """These nodes are to leave the partition: what it hosts shall leave them first, and no task begins there any more."""

    partition: int
    leaving: tuple[int, ...]
    why: str = ""


class AssignPartition(Record, frozen=True, tag=True):
    """The partition, an idle element, is held by another study, or by somebody's request, from now on."""

    partition: int
    study: int
    holder: str = ""


class OpenPartition(Record, frozen=True, tag=True):
    """The partition has all its slots: start its agent."""

    partition: int
    why: str = ""


class ClosePartition(Record, frozen=True, tag=True):
    """End the partition's agent. Nothing runs there any more, or what does is stopped first."""

    partition: int
    outcome: Literal["done", "canceled"]
    why: str = ""


Event: TypeAlias = (
    RunStarted
    | RunResumed
    | StudyAdded
    | TasksAdded
    | StepsAdded
    | StudyClosed
    | StudyOver
    | StudyChanged
    | Revived
    | NodesJoined
    | ClockSet
    | NodesAwaited
    | KindsDeclared
    | RequestAnswered
    | NodesWished
    | NodeReleased
    | ResultsMoved
    | ResultsLost
    | ResultsForgotten
    | NodeLost
    | NodeDrainAsked
    | NodeResumeAsked
    | DrainTimeSet
    | TaskStarted
    | TaskHindered
    | TaskEnded
    | CancelAsked
    | LimitsChanged
    | StopAsked
    | PartitionAsked
    | PartitionResizeAsked
    | PartitionDrainAsked
    | PartitionCancelAsked
    | ElementsAsked
    | PartitionStarted
    | PartitionFailed
    | PartitionEnded
    | PartitionTold
    | WorkersRetired
    | TimePassed
)
TaskDecision: TypeAlias = Launch | Stop | Refuse
"""What a packer may decide."""
Decision: TypeAlias = (
    Launch
    | Stop
    | Refuse
    | OrderTasks
    | DrainNode
    | ResumeNode
    | GiveUpNode
    | RequestNodes
    | WithdrawRequest
    | MoveResults
    | ReleaseNode
    | NoticeIdle
    | EndRun
    | RequestPartition
    | AdmitPartition
    | RefusePartition
    | GrowPartition
    | ShrinkPartition
    | RetireWorkers
    | AssignPartition
    | OpenPartition
    | ClosePartition
)
AnyRecord: TypeAlias = Event | Decision
