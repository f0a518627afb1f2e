"""What does a pilot do for programs that stay: which calls do they hand in, and what are they told of them?

Each program is a tenant whose study grows. What it says is acted on between two turns of the loop; what became of its calls it
is told once a turn, all that is new together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

from cantle import __version__
from cantle.core.phases import FINAL, Phase
from cantle.core.scaling.wishing import why_not
from cantle.core.standings import OVER
from cantle.core.state import State
from cantle.core.unmakeable import may_come, why_never
from cantle.engines.base import CallingEngine
from cantle.engines.calls import Result
from cantle.errors import CantleError, RequestError
from cantle.model import records as r
from cantle.model.resources import indexes
from cantle.model.study import OF_A_PROGRAM, PartitionWish
from cantle.runtime.conducting import concerns
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.pilot import submission
from cantle.runtime.pilot.door import Visitor
from cantle.runtime.pilot.entering import Entry
from cantle.runtime.pilot.fetching import Fetching
from cantle.runtime.pilot.growing import Breach, check_calls, check_steps, numbers_of, rows_of
from cantle.runtime.pilot.house import House, WriteDown
from cantle.runtime.pilot.jobs import is_over, job_name
from cantle.runtime.pilot.lacking import OfNodes
from cantle.runtime.pilot.messages import Refused, Seated, Sit
from cantle.runtime.pilot.parting import Parting
from cantle.runtime.pilot.program_work import ProgramWork
from cantle.runtime.pilot.sitting import Line
from cantle.runtime.pilot.sitting_messages import (
    AskNodes,
    AskPartition,
    Begun,
    CancelTasks,
    ClosePartition,
    Down,
    End,
    Ends,
    Fetch,
    ForgetTasks,
    Function,
    Heeded,
    Left,
    LetGo,
    NewSteps,
    NewTasks,
    NodeNow,
    NodesNow,
    Note,
    PartitionNews,
    ResizePartition,
    Up,
    WishNodes,
)
from cantle.runtime.pilot.splitting import SplitLog
from cantle.runtime.pilot.submission import Submission
from cantle.runtime.unheeded import reason, unheeded
from cantle.store.journal import Journal
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock

TASKS_AT_ONCE = 2000
FORGET_S = 1.0
"""So often at most calls are forgotten that need not be made again,"""
FORGET_RATIO = 100.0
"""and for so many times as long as that took, all else has its turn: a hundred thousand calls may be remembered."""
STAY_S = 60.0
"""So long a pilot that is there for one program alone waits for it."""


def all_have_taken(state: State, task: int) -> bool:
    """Whether all that take the task's result, so far, are over. Asked whenever one of them is: there may be thousands.

    Those that were handed in last are over last, mostly: so they are looked at first.
    """
    return all(state.phases[child] in FINAL for child in reversed(state.children[task] or ()))


class Sitting:
    """One program that stays."""

    def __init__(self, number: int, entry: Entry, work: ProgramWork, line: Line) -> None:
        self.number = number
        self.entry = entry
        self.work = work
        self.line = line
        self.leaving = False
        self.ends: list[End] = []
        self.told_begun: set[int] = set()
        self.partitions: dict[str, tuple[str, ...]] = {}
        """By name, what was told last of it."""
        self.follows_nodes = False
        self.nodes_told: NodesNow | None = None


class Sittings:
    """All programs that stay in a pilot."""

    def __init__(
        self,
        pilot: Path,
        state: State,
        log: SplitLog,
        house: House,
        engine: CallingEngine | None,
        inbox: SelectInbox,
        write_down: WriteDown,
        note: Callable[[str], None],
    ) -> None:
        self.served = False
        """Whether a program was ever here."""
        self.since = monotonic()
        """When the last one left, or this began."""
        self._pilot = pilot
        self._state = state
        self._log = log
        self._house = house
        self._engine = engine
        self._inbox = inbox
        self._write_down = write_down
        self._note = note
        self._sittings: dict[int, Sitting] = {}
        self._results: dict[int, Result] = {}
        """By task, what its last attempt made; until it is told."""
        self._forgotten: dict[int, None] = {}
        """Tasks whose result nobody outside wants, while others of the run may take it."""
        self._of_nodes = OfNodes()
        self._parting = Parting()
        self._news = False
        self._next_tending = 0.0
        self._fetching: Fetching | None = None
        if engine is not None:
            engine.calls.sink = self._take_result

    def __len__(self) -> int:
        return len(self._sittings)

    # Coming and going

    def take(self, sit: Sit, visitor: Visitor) -> None:
        """A program wants to stay."""
        try:
            sitting = self._seat(sit, visitor)
        except CantleError as problem:
            visitor.answer(Refused(str(problem)))
            return
        self._sittings[sitting.number] = sitting
        self.served = True
        self._note(f"{job_name(sit.name, sitting.number)} has come in: a program, in {sit.directory}")

    def _seat(self, sit: Sit, visitor: Visitor) -> Sitting:
        if self._engine is None:
            raise RequestError("the engine of this pilot calls no Python functions")
        if not sit.name.strip() or not sit.name.isprintable():
            raise RequestError(f"{sit.name!r} cannot be the name of a study: take letters, digits, - and _")
        layout = Layout(Path(sit.directory))
        if not Path(sit.directory).is_absolute() or layout.exists():
            raise RequestError(f"{sit.directory} holds a run already, or is no absolute path; choose another directory")
        layout.create()
        lock = ConductorLock(layout.lock, sit.name)
        lock.acquire()
        number = len(self._state.studies)
        sent = Submission(
            pilot=str(self._pilot), name=sit.name, reader=OF_A_PROGRAM, digest="", tasks=0, env=sit.env, number=number
        )
        try:
            submission.put(layout, sent)
            journal = Journal.open_new(layout.journal)
        except BaseException:
            lock.release()
            raise
        entry = Entry(layout, lock, sent)
        entry.number = number
        work = ProgramWork()
        entry.work = work
        self._log.open(number, journal)
        source = sit.argv[0] if sit.argv else ""
        self._write_down(
            r.StudyAdded(self._inbox.now(), sit.name, [], sit.directory, source=source, reader=OF_A_PROGRAM, grows=True)
        )
        self._house.move_in(entry, journal)
        unsent = visitor.stay(Seated(job_name(sit.name, number), __version__))
        return Sitting(number, entry, work, Line(self._inbox, visitor.socket, unsent, self._has_news))

    def _has_news(self) -> None:
        self._news = True

    def is_left(self) -> bool:
        """Whether a pilot that is there for one program alone has nobody to wait for any more."""
        return not self._sittings and (self.served or monotonic() - self.since > STAY_S)

    def dismiss_broken(self) -> None:
        """Part from the programs whose study cannot be written down any more, and say why."""
        for number, problem in self._log.broken.items():
            if (sitting := self._sittings.get(number)) is not None:
                sitting.line.dismiss(problem.partition(", then go on with: ")[0] + ", and run the program again")

    def close(self) -> None:
        """The pilot ends."""
        for sitting in self._sittings.values():
            sitting.line.close()
        self._sittings.clear()
        self._parting.close()

    # Before each turn: what they say

    def heed(self) -> None:
        """Do what the programs have said since the last turn."""
        if self._parting:
            self._parting.step()
        if not self._news:
            return
        self._news = False
        for sitting in list(self._sittings.values()):
            heard = sitting.line.heard
            while heard:
                message = heard.popleft()
                try:
                    self._do(sitting, message)
                except RequestError as problem:
                    sitting.line.say([Note(str(problem))])
                except Breach as problem:
                    heard.clear()
                    sitting.line.dismiss(str(problem))
            if sitting.line.over:
                if sitting.line.problem:
                    self._note(f"{self._name(sitting)}: {sitting.line.problem}")
                self._has_gone(sitting)

    def _do(self, sitting: Sitting, message: Up) -> None:
        now, study = self._inbox.now(), sitting.number
        if isinstance(message, NewTasks):
            self._add(sitting, message)
        elif isinstance(message, ForgetTasks):
            self._forget(self._numbers(sitting, message.tasks))
        elif isinstance(message, Fetch):
            self._fetch(sitting, message.task)
        elif isinstance(message, Function):
            assert self._engine is not None
            self._engine.calls.define(message.digest, message.body)
        elif isinstance(message, NewSteps):
            check_steps(self._state.studies[study], message.steps)
            self._write_down(r.StepsAdded(now, study, message.steps))
        elif isinstance(message, CancelTasks):
            tasks = None if message.tasks is None else self._numbers(sitting, message.tasks)
            self._write_down(r.CancelAsked(now, tasks, "its program", study if tasks is None else None))
        elif isinstance(message, AskPartition):
            self._ask_partition(sitting, message.wish)
        elif isinstance(message, ResizePartition):
            wish = r.PartitionResizeAsked(now, message.name, message.width, "its program", study)
            sitting.line.say([Heeded(self._resize(wish))])
        elif isinstance(message, ClosePartition):
            asked = r.PartitionCancelAsked if message.now else r.PartitionDrainAsked
            self._ask(asked(now, message.name, "its program", study))
        elif isinstance(message, WishNodes):
            if not (problem := why_not(self._state, message.kind, message.count)):
                self._write_down(r.NodesWished(now, message.kind, message.count, "a program"))
            sitting.line.say([Heeded(problem)])
        elif isinstance(message, AskNodes):
            sitting.follows_nodes = message.follow
            sitting.line.say([self._nodes_now()])
        else:
            self._leave(sitting, message.cancel)

    def _ask(self, wish: r.Event) -> None:
        """Write down what is asked of the run, before what the program says next: calls in a partition come after it.

        Raises RequestError when it speaks of nothing that is there.
        """
        if not concerns(wish, self._state):
            raise RequestError(unheeded(wish, self._state))
        self._write_down(wish)

    def _resize(self, wish: r.PartitionResizeAsked) -> str:
        """Hand it on; or why it cannot be."""
        state = self._state
        partition = state.partitions.asked_for(wish.study, wish.name)
        if partition is None:
            return f"the partition {wish.name} cannot be resized: {reason(wish, state)}"
        if not may_come(state, partition.wish, wish.width) and (why := why_never(state, partition.wish, wish.width)):
            return f"the partition {wish.name} {why}"
        self._write_down(wish)
        return ""

    def _ask_partition(self, sitting: Sitting, wish: PartitionWish) -> None:
        try:
            self._ask(r.PartitionAsked(self._inbox.now(), wish, sitting.number, "its program"))
        except RequestError as problem:
            sitting.line.say([PartitionNews(wish.name, "failed", why=str(problem))])
        else:
            sitting.partitions[wish.name] = ()

    def _add(self, sitting: Sitting, message: NewTasks) -> None:
        assert self._engine is not None
        state = self._state
        study = state.studies[sitting.number]
        check_calls(study, message, self._engine.calls.functions)
        for begin in range(0, len(message.tasks), TASKS_AT_ONCE):
            some, first = message.tasks[begin : begin + TASKS_AT_ONCE], len(state.tasks)
            rows = rows_of(some, first, study.tasks, study.step_numbers.number, sitting.work.calls)
            self._write_down(r.TasksAdded(self._inbox.now(), first, rows, sitting.number))

    def _numbers(self, sitting: Sitting, own: Iterable[int]) -> list[int]:
        return numbers_of(self._state.studies[sitting.number], own)

    def _leave(self, sitting: Sitting, cancel: bool) -> None:
        study = self._state.studies[sitting.number]
        if cancel and not is_over(self._state, study):
            self._write_down(r.CancelAsked(self._inbox.now(), None, "its program", sitting.number))
        if not study.grows:
            return
        sitting.leaving = True
        self._write_down(r.StudyClosed(self._inbox.now(), sitting.number))
        tenant = self._house.tenants.get(sitting.number)
        if tenant is not None and is_over(self._state, study):
            self._house.move_out(tenant)

    def _has_gone(self, sitting: Sitting) -> None:
        """The program is not there any more: what it wanted, nobody wants."""
        self._sittings.pop(sitting.number, None)
        self._parting.add(sitting.line)
        self.since = monotonic()
        self._leave(sitting, cancel=True)
        self._forget([task for task in self._state.studies[sitting.number].tasks if task not in self._forgotten])

    # Results

    def _take_result(self, result: Result) -> None:
        self._results[result.task] = result

    def _forget(self, tasks: list[int]) -> None:
        """Nobody outside wants the results of these."""
        keeping = self._state.keeping
        kept = [task for task in tasks if keeping is not None and task in keeping.results]
        unfinished = [task for task in tasks if self._state.phases[task] not in FINAL]
        if kept or unfinished:
            self._inbox.put(r.ResultsForgotten(self._inbox.now(), sorted({*kept, *unfinished})))
        self._forgotten.update(dict.fromkeys(task for task in tasks if task not in kept))
        self._let_go(tasks)

    def _let_go(self, tasks: Iterable[int]) -> None:
        """Of what nobody outside wants, forget what nobody of the run will take any more."""
        state = self._state
        gone = [
            task
            for task in tasks
            if task in self._forgotten
            and state.phases[task] in FINAL
            and all_have_taken(state, task)
            and not self._is_lineage(task)
        ]
        for task in gone:
            del self._forgotten[task]
        if gone and self._engine is not None:
            self._engine.calls.forget(gone)

    def _is_lineage(self, task: int) -> bool:
        """Whether a call that took its result may have to be made again."""
        study = self._state.study_of_step[self._state.tasks[task].step]
        sitting = self._sittings.get(study)
        return sitting is not None and sitting.work.is_lineage(self._state, self._state.studies[study], task)

    def _fetch(self, sitting: Sitting, own: int) -> None:
        assert self._engine is not None
        [task] = self._numbers(sitting, [own])
        if self._fetching is None:
            self._fetching = Fetching(self._state, self._engine.calls, self._inbox)
        self._fetching.ask(sitting.line, own, task)

    # After each turn: what they are told

    def look_at(self, news: list[int]) -> None:
        """These tasks reached a final phase."""
        if not self._sittings and not self._forgotten:
            self._results.clear()
            return
        state = self._state
        names = state.room.nodes
        for task in news:
            row = state.tasks[task]
            sitting = self._sittings.get(state.study_of_step[row.step])
            if self._forgotten:
                self._let_go((task, *row.parents))
            if sitting is None:
                self._results.pop(task, None)
                continue
            own = state.studies[sitting.number].tasks.own_number(task)
            phase = state.phases[task]
            sitting.told_begun.discard(own)
            result = self._results.pop(task, None)
            sitting.work.over(own, phase == Phase.DONE and result is not None and result.inline is None)
            value = None if result is None else result.inline
            why, node, seconds = "", "", 0.0
            if phase != Phase.DONE:
                why = state.cause_of.get(task, "")
                ended = state.ended.get(task)
                if ended is not None and ended.detail:
                    why = why or ended.detail
                if value == b"" or phase in (Phase.SKIPPED, Phase.CANCELED):
                    value = None
            if state.ran_on[task] >= 0:
                node = names[state.ran_on[task]].name
                seconds = max(0.0, state.ended_at[task] - state.launched_at[task])
            size = 0 if result is None else result.size
            sitting.ends.append(End(own, phase.name.lower(), value, size, why, node, seconds))
        if self._fetching is not None:
            self._fetching.over(news)

    def tell(self) -> None:
        """Tell each program what is new."""
        if self._fetching is not None:
            self._fetching.step()
        of_nodes = self._of_nodes(self._state)
        for note in of_nodes:
            self._note(note.text)
        for sitting in list(self._sittings.values()):
            said: list[Down] = [*of_nodes]
            if sitting.ends:
                said.append(Ends(sitting.ends))
                sitting.ends = []
            if sitting.work.let_go:
                said.append(LetGo(sitting.work.let_go))
                sitting.work.let_go = []
            if sitting.partitions:
                said += self._partition_news(sitting)
            if sitting.follows_nodes:
                nodes = self._nodes_now()
                if nodes != sitting.nodes_told:
                    sitting.nodes_told = nodes
                    said.append(nodes)
            if sitting.leaving and sitting.number not in self._house.tenants:
                said.append(Left())
                sitting.leaving = False
            if said:
                sitting.line.say(said)

    def tell_begun(self) -> None:
        """Tell which calls run now, and forget those that need not be made again. Now and then."""
        state = self._state
        if (now := monotonic()) >= self._next_tending:
            for sitting in self._sittings.values():
                study = state.studies[sitting.number]
                for own in sitting.work.forget_unneeded(state, study):
                    self._let_go(state.tasks[study.tasks.number(own)].parents)
            ended = monotonic()
            self._next_tending = ended + max(FORGET_S, FORGET_RATIO * (ended - now))
        begun: dict[int, list[int]] = {}
        for task in state.running:
            if state.phases[task] == Phase.RUNNING:
                begun.setdefault(state.study_of_step[state.tasks[task].step], []).append(task)
        for sitting in self._sittings.values():
            own_number = state.studies[sitting.number].tasks.own_number
            running = {own_number(task) for task in begun.get(sitting.number, ())}
            new = sorted(running - sitting.told_begun)
            back = sorted(sitting.told_begun - running)
            if new or back:
                sitting.told_begun = running
                sitting.line.say([Begun(new, back)])

    def _partition_news(self, sitting: Sitting) -> Iterable[Down]:
        state = self._state
        for name, told in list(sitting.partitions.items()):
            partition = state.partitions.last_of(sitting.number, name)
            if partition is None:
                continue
            standing = partition.standing.name.lower()
            nodes = [state.room.nodes[index].name for index in partition.nodes()]
            now = (standing, partition.why, *nodes)
            if now != told:
                sitting.partitions[name] = now
                yield PartitionNews(name, standing, nodes, dict(partition.env), partition.why)
            if partition.standing in OVER:
                del sitting.partitions[name]

    def _nodes_now(self) -> NodesNow:
        state = self._state
        nodes = []
        for index in indexes(state.room.alive):
            node = state.room.nodes[index]
            standing = "drained" if index in state.drained else "busy" if state.running_on.get(index) else "idle"
            nodes.append(NodeNow(node.name, node.kind, node.cores, node.gpus, standing))
        scaling = state.scaling
        coming = {} if scaling is None else {kind: n for kind in scaling.kinds if (n := scaling.coming(kind))}
        return NodesNow(nodes, coming)

    def _name(self, sitting: Sitting) -> str:
        return job_name(sitting.entry.submission.name, sitting.number)
