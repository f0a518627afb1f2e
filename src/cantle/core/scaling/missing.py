"""How many nodes of which kind are missing? What waits, and will still wait when a new node could be there, has no room.

There is one such reckoning over all kinds, so that two kinds never answer the same need. Each task asks for the kind on which
it costs least; what needs no GPU asks for nodes without, as long as there is such a kind that can hold it. A gang counts as
the nodes that it lacks. A new node has to have work for as long as it takes to come and is to stay, as far as that is known:
where little is left to do, fewer nodes are asked for than have no room, but at least one when nothing else could hold it.
"""

from __future__ import annotations

from math import ceil, inf

import msgspec

from cantle.core.lifetimes import needs_s
from cantle.core.scaling.ahead import Ahead, Free, Moment
from cantle.core.scaling.capacity import able_now, can_hold
from cantle.core.scaling.idle import may_begin, partitions_wanted
from cantle.core.scaling.ledger import Ledger
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.resources import Needs, Node

SAMPLE = 16
"""From so many of a queue's tasks it is guessed how long those behind them take."""


class Missing(msgspec.Struct):
    """Of one kind so many nodes are missing, for `tasks` tasks of which the most urgent is `task` (-1: a partition)."""

    kind: str
    nodes: int = 0
    tasks: int = 0
    task: int = -1


class Reckoning(msgspec.Struct):
    """What is missing, by kind, and which of the unused nodes will be used before others could come in their stead."""

    missing: dict[str, Missing]
    soon: int
    """As bits."""
    again_at: float
    """When there may be more missing although nothing happens: something else ends then before a new node could be there."""


class _Item(msgspec.Struct):
    """Tasks that are alike, or a partition: what they need, how many there are and how long each would keep its room busy."""

    needs: Needs
    width: int
    count: int
    task: int
    seconds: float
    walltime_s: float


def reckon(state: State, stays_s: float = 0.0) -> Reckoning:
    """What is missing now. Costs by nodes, kinds, shapes, what runs, and a bounded number of tasks."""
    ledger = state.scaling
    assert ledger is not None
    kinds = [kind for kind in ledger.kinds.values() if ledger.can_add(kind)]
    times = sorted({state.now + ledger.starts_in_s(kind.name) for kind in ledger.kinds.values()} or {state.now})
    ahead = Ahead(state, times)
    found = _Fitting(state, ledger, kinds, stays_s, ahead)
    moments = dict(zip(times, ahead.moments, strict=True))
    for kind in kinds:
        found.at[kind.name] = moments[state.now + ledger.starts_in_s(kind.name)]
    if kinds:
        found.reckon()
    return Reckoning(found.missing, ahead.used, ahead.again_at)


def able_kinds(state: State, needs: Needs, walltime_s: float = 0.0) -> list[Kind]:
    """The kinds that tasks with these needs would ask for: what needs no GPU none with GPUs, where others can hold it."""
    ledger = state.scaling
    if ledger is None:
        return []
    serve = [kind for kind in ledger.kinds.values() if ledger.can_add(kind) or ledger.usable(state, kind.name)]
    able = [kind for kind in serve if can_hold(state, kind, needs, walltime_s)]
    return able if needs.gpus else [kind for kind in able if not kind.gpus] or able


class _Fitting:
    """Puts what waits on what is free, and on nodes of the kinds that can be had."""

    def __init__(self, state: State, ledger: Ledger, kinds: list[Kind], stays_s: float, ahead: Ahead) -> None:
        self.state = state
        self.ledger = ledger
        self.kinds = kinds
        self.stays_s = stays_s
        self.ahead = ahead
        self.at: dict[str, Moment] = {}
        self.missing: dict[str, Missing] = {}
        self.headroom = {kind.name: ledger.headroom(kind) for kind in kinds}
        self.new: list[tuple[Free, int, Kind]] = []
        """What is left on nodes that are to be asked for: so many that are alike."""
        self.begin: dict[int, int] = {}

    def reckon(self) -> None:
        """Fill `missing`."""
        for needs, width, number in partitions_wanted(self.state):
            self._serve(_Item(needs, width, number, -1, inf, 0.0), {})
        numbers: dict[int, None] = {}
        for moment in self.at.values():
            numbers.update(dict.fromkeys(moment.waiting))
        queues = self.state.queues
        order = sorted(
            numbers, key=lambda number: queues[number].key() if queues[number].head() is not None else (inf,)
        )
        for number in order:
            counts = {name: moment.waiting.get(number, 0) for name, moment in self.at.items()}
            most = max(counts.values())
            study = queues[number].shape.study
            most = min(most, self.begin.setdefault(study, may_begin(self.state, study)))
            if most > 0:
                self.begin[study] -= most
                self._serve(self._item(number, most), counts)

    def _item(self, number: int, count: int) -> _Item:
        state = self.state
        queue = state.queues[number]
        needs = queue.shape.needs
        sample = self.ahead.some_waiting(number, SAMPLE) or queue.first(1)
        if not sample:
            return _Item(needs, needs.nodes, count, -1, queue.mean_s if queue.done else inf, 0.0)
        seconds = 0.0
        for task in sample:
            follows = state.ranks[task] if state.tasks[task].estimate_s else 0.0
            seconds += max(self.ahead.expected_s(task), follows)
        least_s = min(needs_s(state, task) for task in sample)
        return _Item(needs, needs.nodes, count, sample[0], seconds / len(sample), least_s)

    def _serve(self, item: _Item, counts: dict[str, int]) -> None:
        able = [kind for kind in able_kinds(self.state, item.needs, item.walltime_s) if kind in self.kinds]
        if not able:
            return
        able.sort(key=lambda kind: self._price(kind, item))
        for kind in able:
            count = min(item.count, counts.get(kind.name, item.count))
            if count <= 0:
                return  # by the time at which such a node could be there, they are served
            if item.width > 1:
                item.count = self._serve_gangs(item, count, kind)
            else:
                item.count = self._serve_single(item, count, kind)
            if item.count <= 0:
                return

    def _price(self, kind: Kind, item: _Item) -> tuple[float, int]:
        """What a task costs there, against the other kinds: of a node as many of them as would be put on it."""
        fits = Free.all_of(self._like(kind)).fits(item.needs)
        return kind.cost / max(1, min(fits, item.count)), self.kinds.index(kind)

    def _like(self, kind: Kind) -> Node:
        up = self.ledger.up.get(kind.name, 0)
        return self.state.room.nodes[up.bit_length() - 1] if up else kind.node(kind.name)

    def _serve_single(self, item: _Item, count: int, kind: Kind) -> int:
        """Put them on what is free, then on new nodes; how many are left over."""
        for free in self.at[kind.name].free:
            fits = min(count, free.fits(item.needs))
            if fits:
                free.take(item.needs, fits)
                count -= fits
            if not count:
                return 0
        for position, (free, n, of) in enumerate(list(self.new)):
            each = free.fits(item.needs)
            if each and count:
                nodes = min(n, ceil(count / each))
                self.new[position] = (free, n - nodes, of)
                self._fill(free, nodes, of, item.needs, min(count, nodes * each), each)
                count -= min(count, nodes * each)
        if not count:
            return 0
        empty = Free.all_of(self._like(kind))
        each = empty.fits(item.needs)
        if not each:
            return count
        wanted = ceil(count / each)
        worthwhile = min(wanted, self._worthwhile(item, count, each, kind))
        nodes = int(min(worthwhile, self.headroom[kind.name]))
        if nodes:
            self._count(kind, nodes, item, min(count, nodes * each))
            self._fill(empty, nodes, kind, item.needs, min(count, nodes * each), each)
        return 0 if nodes == worthwhile else count - nodes * each

    def _worthwhile(self, item: _Item, count: int, each: int, kind: Kind) -> float:
        """For how many nodes there is work enough, at least one if nothing that is there or comes could hold it."""
        worth_s = max(kind.stays_s or self.stays_s, self.ledger.starts_in_s(kind.name))
        if item.seconds == inf or not worth_s:
            return inf
        nodes = int(count * item.seconds / (each * worth_s))
        if nodes:
            return nodes
        return 0 if self._is_held_somehow(item) else 1

    def _is_held_somehow(self, item: _Item) -> bool:
        if able_now(self.state, item.needs, item.walltime_s) & ~self.state.drained_nodes:
            return True
        kinds = self.ledger.kinds
        coming = [kinds[request.kind] for request in self.ledger.open.values() if request.kind in kinds]
        coming += [kind for _, n, kind in self.new if n]
        return any(can_hold(self.state, kind, item.needs, item.walltime_s) for kind in coming)

    def _serve_gangs(self, item: _Item, count: int, kind: Kind) -> int:
        """Each takes a share of as many nodes; what is there counts. How many are left over."""
        free = self.at[kind.name].free
        for done in range(min(count, 64)):
            places = [each for each in free if each.fits(item.needs)][: item.width]
            lacking = item.width - len(places)
            taken = []
            for position, (each, n, _) in enumerate(self.new):
                if lacking > 0 and n and each.fits(item.needs):
                    taken.append((position, min(n, lacking)))
                    lacking -= min(n, lacking)
            if lacking > self.headroom[kind.name]:
                return count - done
            for each in places:
                each.take(item.needs)
            for position, nodes in taken:
                each, n, of = self.new[position]
                self.new[position] = (each, n - nodes, of)
                rest = Free(each.node, each.cores, each.gpus, each.memory_mib, dict(each.named))
                rest.take(item.needs)
                self.new.append((rest, nodes, of))
            if lacking > 0:
                empty = Free.all_of(self._like(kind))
                self._count(kind, lacking, item, 1)
                self._fill(empty, lacking, kind, item.needs, lacking, 1)
        return 0

    def _fill(self, free: Free, nodes: int, kind: Kind, needs: Needs, count: int, each: int) -> None:
        """So many tasks on new nodes that are alike, as many as fit on each but the last, which takes what is left."""
        full, left = divmod(count, each)
        for n, tasks in ((full, each), (nodes - full, left)):
            if n:
                rest = Free(free.node, free.cores, free.gpus, free.memory_mib, dict(free.named))
                rest.take(needs, tasks)
                self.new.append((rest, n, kind))

    def _count(self, kind: Kind, nodes: int, item: _Item, tasks: int) -> None:
        found = self.missing.setdefault(kind.name, Missing(kind.name, task=item.task))
        found.nodes += nodes
        found.tasks += tasks
        self.headroom[kind.name] -= nodes
