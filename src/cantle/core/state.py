"""What is true now? The fold of all records; `apply` is the only thing that changes it.

Tasks are numbers; what is known of each stands in lists by that number, so that a million of them stay affordable. What each
record means stands in the rules: `comings.py`, `studies.py`, `attempts.py`, `fates.py` for all runs, and `_rarer_rule` tells
where for those that few runs have.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from cantle.core.attempts import RULES as ATTEMPTS
from cantle.core.attempts import Line
from cantle.core.comings import RULES as COMINGS
from cantle.core.fates import RULES as FATES
from cantle.core.observed import Observed
from cantle.core.phases import Phase
from cantle.core.queues import ReadyQueue, Shape
from cantle.core.room import Room
from cantle.core.roster import Partitions
from cantle.core.studies import RULES as STUDIES
from cantle.core.studies import StudyState
from cantle.model import records as r
from cantle.model.resources import Node
from cantle.model.study import Step, Task

if TYPE_CHECKING:
    from cantle.core.keeping import Keeping
    from cantle.core.lifetimes import Lifetimes
    from cantle.core.losses import Loss
    from cantle.core.scaling.ledger import Ledger
    from cantle.core.trouble import Trouble


class State:
    """Everything that is known of a run.

    Read it freely; only `apply` may write. `version` counts the changes that may call for decisions.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.version = 0
        self.feasibility_version = 0
        self.run: r.RunStarted | None = None
        self.started_at = 0.0
        self.resumed = 0
        self.stopping = ""
        self.at_once = False
        self.awaited = 0
        self.room = Room()
        self.partitions = Partitions()
        self.several_machines = False
        self.joined_at: dict[int, float] = {}
        """When each node joined, by its number."""
        self.choosy = False
        """Whether not every task may start wherever there is room: plans ask for `room_for` each."""
        self.lifetimes: Lifetimes | None = None
        """There once a node has joined whose end is known."""
        self.drained: dict[int, str] = {}
        """Nodes on which nothing may begin, and why."""
        self.drained_nodes = 0
        """The same nodes, as bits."""
        self.drained_names: dict[str, str] = {}
        """What nodes are called that somebody drained, and by whom: one that comes back is drained as well."""
        self.lost_nodes: dict[int, Loss] = {}
        """Nodes that went away since this conductor began, and that nobody gave back."""
        self.trouble: Trouble | None = None
        """There once an attempt has failed where there are several nodes, or one of them went away."""
        self.scaling: Ledger | None = None
        """There once kinds of node were declared, or nodes asked for."""
        self.keeping: Keeping | None = None
        """There once a result lives on a node alone."""
        self.shunned: dict[int, int] = {}
        """Of tasks that could not be started: on which nodes, as bits."""
        self.expired = False
        """The run is stopped since its nodes were about to go."""
        self.begun_at = 0.0
        """When this conductor began or went on with the run."""
        self.clock_set: list[tuple[float, float]] = []
        """When it was found that somebody had set the machine's clock, and by how much that is ahead of `now` since then."""

        self.studies: list[StudyState] = []
        self.living: dict[int, StudyState] = {}
        """Those that are not over, by number: of a pilot's many there are few at a time."""
        self.steps: list[Step] = []
        self.study_of_step: list[int] = []
        self.shape_of_step: list[int] = []
        self.queues: list[ReadyQueue] = []
        self._shapes: dict[Shape, int] = {}
        self._free_queues: list[int] = []
        self.observed: dict[int, Observed] = {}
        """Of the studies that have steps with widths, by number."""
        self.homes: dict[str, list[int]] = {"": []}
        """Queues by where their tasks run: "" for anywhere, a partition's name, or `ELEMENTS_OF` a study."""

        self.promised = 0
        self.growing = 0
        """How many studies may get more tasks at any time."""
        self.tasks: list[Task] = []
        self.phases: list[Phase] = []
        self.blockers: list[int] = []
        self.children: list[list[int] | None] = []
        self.ranks: list[float] = []
        self.ordered: dict[int, float] = {}
        """Of tasks that go in another order than that of their ranks: what they are compared by instead."""
        self.why_ordered = ""
        self.attempts: list[int] = []
        self.queued = bytearray()
        self.pids = array("q")
        self.ran_on = array("i")
        """The first node of each task's last attempt, -1 for none."""
        self.launched_at = array("d")
        self.ended_at = array("d")
        self.counts: list[list[int]] = []
        self.totals = [0] * len(Phase)

        # What is known of few tasks only.
        self.running: dict[int, r.Launch] = {}
        self.running_on: dict[int, dict[int, None]] = {}
        self.lines: dict[int, Line] = {}
        self.short_shapes: dict[int, None] = {}
        self.ended: dict[int, r.TaskEnded] = {}
        self.cause_of: dict[int, str] = {}
        self.faults: dict[int, int] = {}
        self.restarts: dict[int, int] = {}
        self.restart_next: set[int] = set()
        self.losses: dict[int, int] = {}
        self.to_stop: dict[int, Literal["canceled", "interrupted"]] = {}
        self.hindered: dict[int, str] = {}
        """What keeps the ranks of running attempts from beginning, as their launchers tell it."""
        self.being_stopped: dict[int, Literal["canceled", "interrupted"]] = {}

        # An observer that wants to hear of tasks that reached a final phase puts a list here, and empties it.
        self.news: list[int] | None = None

    # Questions

    @property
    def finished(self) -> bool:
        """Nothing runs, and nothing more is to be started."""
        if self.running or len(self.tasks) < self.promised or (self.growing and not self.stopping):
            return False
        if self.partitions.living and not self.stopping:
            return False
        return bool(self.stopping) or not (self.totals[Phase.WAITING] or self.totals[Phase.READY])

    @property
    def unfinished(self) -> bool:
        """Tasks are left that are not over, or more of them are to come."""
        totals = self.totals
        left = totals[Phase.WAITING] + totals[Phase.READY] + totals[Phase.LAUNCHED] + totals[Phase.RUNNING]
        return bool(left) or len(self.tasks) < self.promised or bool(self.growing)

    @property
    def succeeded(self) -> bool:
        """Every task is done."""
        return self.totals[Phase.DONE] == len(self.tasks) >= self.promised and not self.growing

    def phase(self, task: int) -> Phase:
        """Where the task stands."""
        return self.phases[task]

    def step_of(self, task: int) -> Step:
        """The step that the task is an instance of."""
        return self.steps[self.tasks[task].step]

    def study_of(self, task: int) -> StudyState:
        """The study that the task belongs to."""
        return self.studies[self.study_of_step[self.tasks[task].step]]

    def queue_of(self, task: int) -> ReadyQueue:
        """Where the task queues when it is ready."""
        return self.queues[self.shape_of_step[self.tasks[task].step]]

    def urgency_of(self, task: int) -> float:
        """By what ready tasks of one study are compared, seconds: the one with the most goes first."""
        return self.ordered[task] if task in self.ordered else self.unordered_urgency_of(task)

    def unordered_urgency_of(self, task: int) -> float:
        """The same where no order was set: the rank, and for a task on several cores a part of its area."""
        return self.ranks[task] + self.queue_of(task).breadth * self.tasks[task].estimate_s

    def longest_ready_s(self) -> float:
        """Seconds of the longest chain that begins with a ready task; 0 when none is ready."""
        if not self.ordered:
            return max((-queue.heap[0][0] for queue in self.queues if queue.head() is not None), default=0.0)
        ready = (task for queue in self.queues for _, task in queue.heap if self.phases[task] == Phase.READY)
        return max(map(self.unordered_urgency_of, ready), default=0.0)

    def is_sliced(self, shape: Shape) -> bool:
        """Whether tasks of this shape run in elements of slices alone."""
        slicing = self.studies[shape.study].added.slicing
        several = bool(shape.widths) or shape.needs.nodes > 1
        return several and not shape.partition and slicing is not None and bool(slicing.slices)

    def stands_in_line(self, task: int) -> bool:
        """Whether the task is launched, but begins only when another one is over."""
        line = self.lines.get(task)
        return line is not None and line.owner != task

    def awaits_its_turn(self, task: int) -> bool:
        """Whether the task was launched to follow another one if that is done, and that one's attempt is still under way."""
        launch = self.running.get(task)
        if launch is None or not launch.if_done or launch.behind is None:
            return False
        ahead = self.running.get(launch.behind)
        return ahead is not None and ahead.attempt == launch.if_done

    def nodes_alive(self) -> list[Node]:
        """The nodes that are there now."""
        return [node for index, node in self.room.nodes.items() if self.room.alive >> index & 1]

    def wall(self, moment: float) -> float:
        """What the machine's clock showed at this moment of the records' time. For people alone: nothing goes by it."""
        ahead_s = 0.0
        for since, ahead_s_then in self.clock_set:
            if since <= moment:
                ahead_s = ahead_s_then
        return moment + ahead_s

    def present(self, wall: float) -> float:
        """The records' time when the machine's clock shows `wall`, and not before the last record."""
        return max(self.now, wall - (self.clock_set[-1][1] if self.clock_set else 0.0))

    # The one way to change

    def apply(self, record: r.AnyRecord) -> None:
        """Fold one record into the state. Late messages about old attempts change nothing but the time."""
        if record.time > self.now:
            self.now = record.time
        rule = _RULES.get(type(record)) or _rarer_rule(type(record))
        rule(self, record)


_RULES: dict[type, Callable[[State, Any], None]] = {**COMINGS, **STUDIES, **ATTEMPTS, **FATES}


def _rarer_rule(kind: type[r.AnyRecord]) -> Callable[[State, Any], None]:
    """The rule of a record that few runs have; it is loaded with those of its like. KeyError for what is no record."""
    from cantle.core.nodes import RULES

    if kind not in RULES:
        from cantle.core.scaling.ledger import RULES
    if kind not in RULES:
        from cantle.core.revisions import RULES
    if kind not in RULES:
        from cantle.core.partitions import RULES
    if kind not in RULES:
        from cantle.core.keeping import RULES
    _RULES.update(RULES)
    return RULES[kind]
