"""What is a scaling function of the user's told of the run, and what may it wish?

A function is called with a `Snapshot` now and then, and says how many nodes of which kind there should be:

    def more_at_night(run):
        return {"cpu": 20 if run.ready_tasks > 100 else 2}

What it returns is a dict of counts by kind, a list of `Wish`es with a reason each, or None for no opinion. A wish
counts the nodes that are there and those on their way. It holds until the next call; kinds that are not named any more
are not wished for. What is wished is done within the bounds of the kinds and of the run. All times are seconds; points
in time are as the records bear them, since the epoch in a real run.
"""

from __future__ import annotations

from math import inf, isfinite
from operator import index as as_index
from typing import Any

import msgspec

from cantle.core.forecast import expected_end, expected_s
from cantle.core.phases import FINAL, Phase
from cantle.core.plan import Plan
from cantle.core.scaling.look import Look
from cantle.core.scaling.policies import completion_s
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.errors import PluginError, one_line, shown
from cantle.model.kinds import Kind
from cantle.model.resources import Needs, indexes

MOST_ENDS = 100
"""Of so many running tasks, those that should end first, it is told when."""


MOST_WISHED = 10**9
"""A wish for more nodes is one for so many."""
MOST_SAID = 300
"""Of a reason so many characters are kept."""


class Wish(msgspec.Struct, frozen=True):
    """There should be so many nodes of the kind, those on their way included."""

    kind: str
    count: int
    why: str = ""


class KindNow(msgspec.Struct, frozen=True):
    """How it stands with one kind of node.

    `up` nodes are there and may be used, of which `idle` have nothing to do and nobody waits for them; `coming` are on
    their way, the next of them expected at `expected_at` (0: nobody knows, or none); `leaving` are being given back.
    `missing`: so many more would find something to do at once. `wished` is what was wished last, None for nothing.
    """

    kind: Kind
    up: int
    idle: int
    coming: int
    leaving: int
    missing: int
    expected_at: float = 0.0
    wished: int | None = None


class ReadyNow(msgspec.Struct, frozen=True):
    """So many tasks are ready that need this much; `task` is the most urgent, `expected_s` its expected time (0: unknown)."""

    needs: Needs
    count: int
    task: str
    expected_s: float = 0.0


class Snapshot(msgspec.Struct, frozen=True):
    """The run at one moment. It is a copy: whatever is done with it, nothing changes.

    Counts of tasks are by where they stand. `expected_ends` are the times at which running tasks should be over,
    soonest first, at most 100, without those of which nobody knows. `completion_s`: in how many seconds all should be
    over with what is there and coming, 0 when nothing is left, infinite when nobody can tell. `progress_at`: when
    something last began or ended. `ended_lately`: how many tasks ended since the last call. `cores` are those of the
    usable nodes, of which `idle_cores` are free.
    """

    now: float
    started_at: float
    kinds: dict[str, KindNow]
    ready: tuple[ReadyNow, ...]
    waiting_tasks: int
    ready_tasks: int
    running_tasks: int
    done_tasks: int
    failed_tasks: int
    nodes: int
    cores: int
    idle_cores: int
    expected_ends: tuple[float, ...]
    completion_s: float
    progress_at: float
    ended_lately: int = 0


def snapshot(state: State, settings: Scaling, progress_at: float, ended_before: int = 0) -> Snapshot:
    """The run as it stands. Costs by shapes, nodes and what runs, not by tasks."""
    look = Look(Plan(state), settings, progress_at, open_ended=False)
    totals = state.totals
    there = indexes(state.room.alive & ~state.drained_nodes)
    ends = sorted(
        expected_end(state.now, state.launched_at[task], seconds)
        for task in state.running
        if isfinite(seconds := expected_s(state, task))
    )
    ended = sum(totals[phase] for phase in FINAL)
    return Snapshot(
        now=state.now,
        started_at=state.started_at,
        kinds={kind.name: _kind_now(look, kind) for kind in look.kinds},
        ready=tuple(_ready_now(state)),
        waiting_tasks=totals[Phase.WAITING],
        ready_tasks=totals[Phase.READY],
        running_tasks=len(state.running),
        done_tasks=totals[Phase.DONE],
        failed_tasks=ended - totals[Phase.DONE],
        nodes=len(there),
        cores=sum(state.room.nodes[index].cores for index in there),
        idle_cores=sum(state.room.free_cores[index].bit_count() for index in there),
        expected_ends=tuple(ends[:MOST_ENDS]),
        completion_s=completion_s(look) if look.unstarted or state.running else 0.0,
        progress_at=progress_at,
        ended_lately=ended - ended_before,
    )


def _kind_now(look: Look, kind: Kind) -> KindNow:
    ledger, state = look.ledger, look.state
    usable = ledger.usable(state, kind.name)
    expected = [request.expected_at for request in ledger.open.values() if request.kind == kind.name]
    wish = ledger.wishes.get(kind.name)
    return KindNow(
        kind,
        up=usable.bit_count(),
        idle=(look.spare & usable).bit_count(),
        coming=ledger.coming(kind.name),
        leaving=(ledger.up.get(kind.name, 0) & ledger.leaving()).bit_count(),
        missing=look.missing(kind.name).nodes,
        expected_at=min(expected, default=0.0),
        wished=None if wish is None else wish.count,
    )


def _ready_now(state: State) -> list[ReadyNow]:
    found = []
    for queue in state.queues:
        head = queue.head()
        if head is not None:
            seconds = expected_s(state, head)
            count = min(len(queue.heap), state.totals[Phase.READY])
            found.append(ReadyNow(queue.shape.needs, count, state.tasks[head].name, 0.0 if seconds == inf else seconds))
    return found


def wishes_in(returned: Any, kinds: dict[str, Kind]) -> list[Wish]:
    """What a function wishes, of what it returned. Raises PluginError for what is none, and for kinds that there are not."""
    if returned is None:
        return []
    if isinstance(returned, dict):
        found = [Wish(kind, count) for kind, count in returned.items()]
    elif isinstance(returned, list | tuple) and all(isinstance(each, Wish) for each in returned):
        found = list(returned)
    else:
        raise PluginError(
            f"it returned {shown(returned, 100)}; a dict of counts by kind, a list of Wish, or None is expected"
        )
    return [_judged(wish, kinds) for wish in found]


def _judged(wish: Wish, kinds: dict[str, Kind]) -> Wish:
    """The wish, if it is one. What can be an index is a number of nodes, NumPy's integers as well."""
    kind, count, why = wish.kind, wish.count, wish.why
    if not isinstance(kind, str) or kind not in kinds:
        raise PluginError(f"it wishes for nodes of kind {shown(kind, 100)}; there are {', '.join(kinds) or 'none'}")
    try:
        number = -1 if isinstance(count, bool) else as_index(count)
    except Exception:  # noqa: BLE001 - whatever object that is
        number = -1
    if number < 0:
        raise PluginError(f"it wishes for {shown(count, 100)} nodes of kind {kind}, which is no number of nodes")
    if not isinstance(why, str):
        raise PluginError(f"the reason of its wish for kind {kind} is {shown(why, 100)}, which is no text")
    return Wish(str(kind), min(number, MOST_WISHED), one_line(why, MOST_SAID))
