"""What is a pilot to the program that holds it: where does it hand in calls, and ask for partitions and nodes?"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from cantle.api.arguments import Aside, heaviest, unpicklable, unpicklable_among
from cantle.api.futures import Future, Futures
from cantle.api.handing import HandedIn
from cantle.api.meaning import Meaning
from cantle.api.needs import Options, require_count, require_text
from cantle.api.opening import Opened, begin
from cantle.api.reloads import RELOADS
from cantle.api.seat import Seat
from cantle.api.tasks import Task, is_lasting
from cantle.errors import RequestError, one_line, printable, shown
from cantle.runner.calling.values import pack_call, pack_function
from cantle.runtime.pilot.sitting_messages import NewTask, NodeNow, PartitionNews, WishNodes

if TYPE_CHECKING:
    from cantle.api.executor import Executor
    from cantle.api.partitions import Partition
    from cantle.api.views import Shown
    from cantle.core.scaling.snapshot import Snapshot

R = TypeVar("R")
MOST_FUNCTION = 64 << 20
"""A pickled function that is larger, in bytes, is not taken."""
_LAST_WORDS_S = 10.0
"""So long a pilot that is told to end all may take for it."""

_WORDS = {
    "hosts": 'no text and no list of texts, as in ["server1:4", "node[01-16]"]',
    "options": 'no list of words, as in ["--listen", "--silence", "60"]',
}
_current: ContextVar[Pilot | None] = ContextVar("cantle-pilot", default=None)
_open: list[Pilot] = []


def _tell_of_open() -> None:
    """The program ends, and its pilots with it: nobody has waited for the calls that are not over."""
    atexit.unregister(_tell_of_open)
    for pilot in _open:
        left = len(pilot._seat.waiting)
        if left and not pilot.closed:
            calls = "1 call that is not over is" if left == 1 else f"{left:,} calls that are not over are"
            print(
                f"cantle: the program ends, and {calls} canceled: `with cantle.open(...) as pilot:`, or pilot.close(), waits",
                file=sys.stderr,
                flush=True,
            )


def current() -> Pilot:
    """The pilot of the `with` block that we are in; otherwise the one that was opened last. Raises RequestError.

    One that went away by itself is still the one that is meant: what is asked of it says that it has gone.
    """
    pilot = _current.get()
    if pilot is not None and (not pilot.closed or (not pilot._is_closed and pilot._seat.went_away)):
        return pilot
    for pilot in reversed(_open):
        if not pilot.closed:
            return pilot
    if _open:
        return _open[-1]
    if "CANTLE_TASK" in os.environ:
        raise RequestError(
            "a call cannot hand in calls to the pilot that it runs on: let it return what is to be done, and hand that in from "
            "the program; or let it begin a pilot of its own with `cantle.open`"
        )
    raise RequestError("no pilot is open: hand in calls within `with cantle.open() as pilot:`")


class Pilot:
    """Nodes, and what runs there for this program. Made by `cantle.open`.

    At the end of its `with` block all calls are waited for; when the block is left by an exception, they are canceled first.
    """

    def __init__(self, opened: Opened, initializer: Callable[[], Any] | None = None) -> None:
        self._opened = opened
        self._initializer = initializer
        self.directory = opened.directory
        """Where the journal of this program's calls lies: for `cantle status`, `report`, `explain`."""
        self._partitions: dict[str, Partition] = {}
        self._numbers = count(1)
        self._aside = Aside(self.directory)
        self._seat = Seat(opened.connection, opened.name, self._hear_of_partition, self._aside.let_go, opened.log)
        self._named: dict[str, Any] = {}
        self._tasks: weakref.WeakKeyDictionary[Callable[..., Any], Task[..., Any]] = weakref.WeakKeyDictionary()
        self._tokens: list[Token[Pilot | None]] = []
        self._is_closed = False
        if not _open:
            atexit.register(_tell_of_open)
        _open.append(self)

    # Calls

    def submit(self, function: Callable[..., R] | Task[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Hand in a call of any function, on one core unless it is a task that says otherwise. As `Task.submit`."""
        if not isinstance(function, Task):
            function = self._task_of(function)
        return self.hand_in(function, args, kwargs)

    def map(self, function: Callable[..., R] | Task[..., R], /, *iterables: Iterable[Any]) -> Futures[R]:
        """One call for each element, or for each row of several iterables side by side."""
        if not isinstance(function, Task):
            function = self._task_of(function)
        return Futures(self.hand_in(function, row, {}) for row in zip(*iterables, strict=False))

    def hand_in(
        self,
        task: Task[..., R],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        after: Iterable[Future[Any]] = (),
    ) -> Future[R]:
        """Hand in a call of a task. Raises RequestError, PilotGoneError, and what pickling raises."""
        seat = self._seat
        known = task.known
        if known is None or known[0] is not seat or not known[3].holds():
            meaning = Meaning(task.function)
            try:
                digest, body = pack_function(self._prepared(task.function), RELOADS.stamps)
            except Exception as problem:
                found = unpicklable_among(meaning.values())
                more = f": it refers to {found}" if found else ", with the values that it refers to"
                problem.add_note(f"The function {task.step.name} cannot be pickled{more}.")
                raise
            if len(body) > MOST_FUNCTION:
                found = heaviest(meaning.values())
                raise RequestError(
                    f"{task.step.name} is {len(body) / 1e6:,.0f} MB large, with the values that it refers to"
                    f"{f' (the largest: {found})' if found else ''}; at most {MOST_FUNCTION / 1e6:,.0f} MB can go with a "
                    "function: hand large values in as arguments"
                )
            seat.define(digest, body)
            known = task.known = (seat, digest, seat.step(task.step), meaning)
        if task.step.partition and (part := self._partitions.get(task.step.partition)) is not None:
            part.require_open()
        step = task.step.name
        numbers = self._named.get(step)
        if numbers is None:
            numbers = self._named.setdefault(step, count(1))
        needs: list[Future[Any]] = []

        def number_of(value: Any) -> int | None:
            if not isinstance(value, Future):
                return None
            needs.append(value)
            return self._number_in(value)

        try:
            arguments, takes = pack_call(args, kwargs, number_of)
        except Exception as problem:
            if note := unpicklable(args, kwargs):
                problem.add_note(f"{note} of {step} cannot be pickled.")
            raise
        future: Future[R] = Future(seat, f"{step}-{next(numbers)}", step, tuple(needs))
        if isinstance(after, Future):
            raise RequestError(f"after={after!r}: give a list of futures, as in after=[{after.name}]")
        before = tuple(self._number_in(each) for each in after) if after else ()
        if len(arguments) <= Aside.LEAST:
            new = NewTask(future.name, known[2], known[1], arguments, takes, takes, before, True, task.estimate_s)
            seat.hand_in(future, new)
            return future
        file = self._aside.put(arguments)
        try:
            new = NewTask(future.name, known[2], known[1], b"", takes, takes, before, True, task.estimate_s, file)
            seat.hand_in(future, new)
        except BaseException:
            self._aside.drop(file)
            raise
        self._aside.take(file, future.number)
        return future

    def _prepared(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as workers call it."""
        if self._initializer is None:
            return function
        from cantle.runner.calling.prepared import Prepared

        return Prepared(function, self._initializer)

    def cancel(self) -> None:
        """End all calls that are not over."""
        for future in list(self._seat.waiting.values()):
            future.cancel()

    def executor(self, **options: Unpack[Options]) -> Executor:
        """A `concurrent.futures.Executor` whose calls have these needs. Raises RequestError."""
        from cantle.api.executor import Executor

        return Executor(self, options)

    # Nodes

    def partition(
        self,
        width: int = 1,
        *,
        name: str = "",
        engine: str = "",
        cores: int = 0,
        gpus: int = 0,
        memory: int | str = 0,
        kind: str = "",
        layout: str = "any",
        near: Sequence[str] = (),
    ) -> Partition:
        """Nodes set apart for some of the calls, perhaps with an engine on them: `dask`, `ray`, or one of the pilot's own.

        `width` counts nodes; `cores`, `gpus`, `memory` (MiB or text) are per node, 0 cores for whole nodes. Returns at
        once; its `with` block begins when it is active. Raises RequestError.
        """
        from cantle.api.partitions import Partition, wish_of

        name = name or f"{engine or 'part'}-{next(self._numbers)}"
        if name in self._partitions:
            raise RequestError(f"there is a partition {name} already; give this one another name")
        wish = wish_of(name, width, engine, cores, gpus, memory, kind, layout, near)
        part = self._partitions[name] = Partition(self, self._seat, wish)
        part.ask()
        return part

    def scale(self, kind: str, count: int | None = None) -> None:
        """Have so many nodes of this kind; None: as many as the pilot's policy finds right.

        Those that are too many go when they have had no work for the pilot's `idle`. Raises RequestError when there is no such
        kind, or there can never be so many; PilotGoneError.
        """
        require_text("scale: kind=", kind)
        if count is not None:
            require_count(f"scale: the number of nodes of kind {kind}, ", count, 0)
        self._seat.ask(WishNodes(kind, count))

    def nodes(self) -> list[NodeNow]:
        """The nodes that are there. Raises PilotGoneError."""
        return self._seat.nodes().nodes

    # How it goes

    @property
    def closed(self) -> bool:
        """Whether it takes no more calls."""
        return self._is_closed or self._seat.closed

    @property
    def name(self) -> str:
        """What the pilot is called."""
        return self._opened.name

    def tally(self) -> dict[str, dict[str, int]]:
        """By function, how many calls were handed in (`all`), and how many ended how."""
        return {step: dict(counts) for step, counts in list(self._seat.tally.items())}

    def show(self, every_s: float = 0.5) -> Shown:
        """In a notebook, a view of the progress that stays up to date until the pilot is closed."""
        from cantle.api.views import show

        return show(self, every_s)

    def _repr_html_(self) -> str:
        from cantle.api.views import html_of_pilot

        return html_of_pilot(self)

    def __repr__(self) -> str:
        waiting = len(self._seat.waiting)
        state = "closed" if self.closed else f"{waiting:,} {'call' if waiting == 1 else 'calls'} not over"
        return f"<Pilot {self.name}: {state}; {self.directory}>"

    # Leaving

    def close(self, cancel: bool = False) -> None:
        """Wait for all calls, then leave; with `cancel` end them first. A pilot that was begun for this program ends too.

        Ctrl-C while it waits cancels what is not over. Without effect on a pilot that is closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self in _open:
            _open.remove(self)
        seat = self._seat
        try:
            seat.leave(cancel)
            if cancel:
                seat.left.wait(_LAST_WORDS_S)
            else:
                seat.left.wait()
                self._tell_of_unseen()
        except BaseException:
            seat.leave(True)
            seat.left.wait(_LAST_WORDS_S)
            raise
        finally:
            seat.hang_up()
            self._aside.close()
            self._opened.close(seat.parted)

    def __enter__(self) -> Pilot:
        if self._is_closed:
            raise RequestError(f"the pilot {self.name} was left: open another one")
        self._tokens.append(_current.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._tokens:
            _current.reset(self._tokens.pop())
        self.close(cancel=kind is not None)

    async def __aenter__(self) -> Pilot:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import asyncio

        if self._tokens:
            _current.reset(self._tokens.pop())
        await asyncio.to_thread(self.close, kind is not None)

    # Inside

    def __reduce__(self) -> Any:
        raise TypeError(
            f"the pilot {self.name} cannot go to a call, as a call cannot hand in calls to the pilot that it runs on: let it "
            "return what is to be done, and hand that in from the program"
        )

    def _tell_of_unseen(self) -> None:
        """The program leaves in order, as if all were well: what failed, and nobody has asked for, is told at least."""
        unseen = [*self._seat.unseen.values()]
        if not unseen:
            return
        name, why = unseen[0]
        calls = "1 call failed, and nobody asked for its result"
        if len(unseen) > 1:
            calls = f"{len(unseen):,} calls failed, and nobody asked for their results; the first"
        said = one_line(printable(why.partition("\n")[0]))
        print(f"cantle: {calls}: {name}: {said}; see: cantle status {self.directory}", file=sys.stderr, flush=True)

    def _task_of(self, function: Callable[..., R]) -> Task[..., R]:
        if not is_lasting(function):
            return Task(function, {})
        task = self._tasks.get(function)
        if task is None:
            task = self._tasks[function] = Task(function, {})
        return task

    def _number_in(self, future: Future[Any]) -> int:
        if not isinstance(future, Future):
            raise RequestError(f"{future!r} is not the future of a call: after=[...] takes what submit() returned")
        if future._seat is not self._seat:
            raise RequestError(f"{future!r} is of another pilot; take its result() and hand that over")
        return future.number

    def _hear_of_partition(self, news: PartitionNews) -> None:
        for part in [self._partitions[news.name]] if news.name in self._partitions else []:
            part.hear(news)
        if not news.name:  # the pilot has gone, and all of them with it
            for part in list(self._partitions.values()):
                part.hear(news)


def open(
    *,
    nodes: str = "",
    cores: int | None = None,
    hosts: str | Sequence[str] = (),
    slurm: Mapping[str, Any] | None = None,
    kinds: Mapping[str, Any] | str | None = None,
    scaling: str | Callable[[Snapshot], Any] | Sequence[str | Callable[[Snapshot], Any]] = (),
    pilot: str = "",
    directory: str | os.PathLike[str] | None = None,
    name: str = "",
    options: Sequence[str] = (),
    initializer: Callable[[], Any] | None = None,
) -> Pilot:
    """A pilot for this program's calls: this machine, unless something else is said.

    `nodes`: deal this machine out, as in "4x8". `cores`: so many of it. `hosts`: over ssh, as `-j` has it. `slurm`: nodes of a
    batch system, by what their kind says (`{"cores": 64, "max": 20}`); `kinds`: the same for several by name, or a file.
    `scaling`: policies and bounds; a function of a snapshot may be one, and is pickled. `pilot`: one that is up already, by
    name; then none of these. `directory`: for the journal of the calls; by default a new one here. `name`: of the study.
    `options`: further words for `cantle up`. `initializer`: a function without arguments, called on each worker before the
    first call of each function there, or once if it can be imported.

    Raises RequestError, MachineError.
    """
    for key, text in (("nodes", nodes), ("pilot", pilot), ("name", name)):
        if not isinstance(text, str):
            count = key == "nodes" and type(text) is int and text > 0
            more = f'; to deal this machine out write nodes="{text}x1"' if count else ""
            raise RequestError(f"{key}={text!r} is no text{more}")
    if cores is not None:
        require_count("cores=", cores, 0)
        if not (cores or hosts or slurm or kinds or options):
            raise RequestError(
                'cores=0: then nothing would serve; name hosts=, slurm= or kinds=, or options=["--listen"]'
            )
    if directory is not None and not isinstance(directory, str | os.PathLike):
        raise RequestError(f"directory={directory!r} is no path")
    for key, given in (("hosts", hosts), ("kinds", kinds)):
        if isinstance(given, list | Mapping) and not given:
            raise RequestError(f"{key}={given!r} names none; leave it out to have this machine")
    options, hosts = _texts("options", options), [hosts] if isinstance(hosts, str) and hosts else _texts("hosts", hosts)
    if slurm is not None and not isinstance(slurm, Mapping):
        raise RequestError(f'slurm={slurm!r}: say what a node has, as in slurm={{"cores": 64, "max": 20}}')
    words = [*options]
    if nodes:
        words += ["--nodes", nodes]
    if cores is not None:
        words += ["--cores", str(cores)]
    for host in hosts:
        words += ["-j", host]
    declared: dict[str, Any] = {} if slurm is None else {"slurm": {"provider": "slurm", **slurm}}
    if isinstance(kinds, str):
        if declared:
            raise RequestError("give slurm= or kinds= as text, not both")
        words += ["--kinds", kinds]
    elif declared or kinds:
        import json

        declared |= dict(kinds or {})
        try:
            words += ["--kinds", json.dumps(declared)]
        except (TypeError, ValueError) as problem:
            raise RequestError(f"kinds={shown(declared)} cannot be written down: {problem}") from None
    functions = HandedIn()
    for policy in _policies(scaling):
        words += ["--scaling", policy if isinstance(policy, str) else functions.take(policy)]
    if initializer is not None and not callable(initializer):
        raise RequestError(f"initializer={shown(initializer)} is no function")
    return Pilot(begin(pilot, Path(directory) if directory is not None else None, name, words, functions), initializer)


def _policies(given: Any) -> Sequence[str | Callable[[Snapshot], Any]]:
    if callable(given) or (isinstance(given, str) and given):
        return [given]
    if not isinstance(given, Sequence) or not all(isinstance(each, str) or callable(each) for each in given):
        raise RequestError(
            f'scaling={given!r} is no policy and no list of policies, as in ["payoff", "idle=60s"]; a function of a snapshot '
            "may be among them"
        )
    return given


def _texts(key: str, given: Any) -> Sequence[str]:
    """Several texts."""
    if isinstance(given, str) and given:
        raise RequestError(f"{key}={given!r} is one text: give a list of words, as in {given.split()!r}")
    if callable(given) or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise RequestError(f"{key}={given!r} is {_WORDS.get(key, 'no list of texts')}")
    return given
