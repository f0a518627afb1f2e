"""How do others add and remove nodes? Three scalers, written anew from what their documentation says that they do.

Each keeps its documented defaults and sees what it would see: tasks that are ready or run, never those that still wait for
others. Where a default would only do harm here (Parsl's `max_blocks` of 1), the bound of the kind holds, as for everybody. A
task on several nodes counts as so many. In doubt they get the better of two readings: before the first worker has come
Dask takes threads for workers, here it does not; and no block of Parsl's is taken for idle before it has come.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cantle.core.forecast import expected_s
from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.scaling.seam import WAKES_AT
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.records import Decision, ReleaseNode, RequestNodes, WithdrawRequest
from cantle.model.resources import indexes


class Peer:
    """Looks at regular times, and only as long as something may come of it."""

    interval_s = 1.0

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._next = 0.0
        self._version = -1

    def __call__(self, plan: Plan) -> Iterator[Decision]:
        """The scaler."""
        state = plan.state
        if state.now + 1e-9 >= self._next:
            yield from self.look(state)
            self._next = (math.floor(state.now / self.interval_s + 1e-6) + 1) * self.interval_s
        plan.memory[WAKES_AT] = self._next if self.restless(state) else math.inf

    def look(self, state: State) -> Iterator[Decision]:
        """One look."""
        raise NotImplementedError

    def restless(self, state: State) -> bool:
        """Whether the next look may decide something although nothing happens until then."""
        seen, self._version = self._version, self._signs(state)
        return seen != self._version

    def _signs(self, state: State) -> int:
        ledger = state.scaling
        return hash(
            (state.totals[Phase.DONE], len(state.running), state.room.alive, len(ledger.requests), len(ledger.open))
        )

    # What they see

    def ready(self, state: State) -> list[int]:
        """Tasks that are ready and do not run."""
        return [task for queue in state.queues for task in queue.ready()]

    def up(self, state: State) -> list[int]:
        """Nodes that are there and stay."""
        return list(indexes(state.scaling.up.get(self.kind.name, 0) & ~state.scaling.leaving() & state.room.alive))

    def coming(self, state: State) -> int:
        """Nodes on their way."""
        return state.scaling.coming(self.kind.name)

    def idle(self, state: State) -> list[int]:
        """Nodes on which nothing runs."""
        return [index for index in self.up(state) if not state.running_on.get(index)]

    def withdraw(self, state: State, count: int) -> Iterator[Decision]:
        """Take back so many of those on their way, the last asked for first."""
        for request in sorted(state.scaling.open.values(), key=lambda each: -each.number):
            if count > 0 and request.coming:
                fewer = min(count, request.coming)
                count -= fewer
                yield WithdrawRequest(state.now, request.number, fewer, "not needed any more")

    def threads(self, state: State, task: int) -> float:
        """How many cores a task takes, over all of its nodes."""
        needs = state.step_of(task).needs
        return needs.cores * needs.nodes


class DaskLike(Peer):
    """`distributed.Adaptive`: every second; so many workers that what is queued and runs takes 5 s of all of their threads.

    At most one thread a task; a worker is closed once it was found idle at three looks in a row. Defaults: interval 1 s,
    target_duration 5 s, wait_count 3. Durations are known to it as to us.
    """

    interval_s = 1.0
    target_s = 5.0
    wait_count = 3

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.close_counts: dict[int, int] = {}

    def look(self, state: State) -> Iterator[Decision]:
        """One look."""
        ready = self.ready(state)
        processing = [task for task in state.running if not state.stands_in_line(task)]
        occupancy = 0.0
        for task in processing:
            expected, ran = expected_s(state, task), state.now - state.launched_at[task]
            occupancy += (2 * ran if ran > 2 * expected else expected) * self.threads(state, task)
        queued = sum(expected_s(state, task) * self.threads(state, task) for task in ready[:100])
        if len(ready) > 100:
            queued *= len(ready) / 100
        threads = math.ceil((occupancy + queued) / self.target_s)
        threads = min(threads, math.ceil(sum(self.threads(state, task) for task in (*ready, *processing))))
        workers = math.ceil(threads / self.kind.cores)
        if ready:
            workers = max(workers, *(state.step_of(task).needs.nodes for task in ready))
        up, idle, coming = self.up(state), self.idle(state), self.coming(state)
        target = max(workers, len(up) - len(idle))
        target = min(target, self.kind.most)
        have = len(up) + coming
        if target > have:
            self.close_counts.clear()
            yield RequestNodes(state.now, self.kind.name, target - have, "adaptive target")
            return
        if target == have:
            self.close_counts.clear()
            return
        over = have - target
        not_arrived = min(over, coming)
        close = [-1 - n for n in range(not_arrived)] + idle[: max(0, over - not_arrived)]
        firmly = []
        for each in close:
            self.close_counts[each] = self.close_counts.get(each, 0) + 1
            if self.close_counts[each] >= self.wait_count:
                firmly.append(each)
        for each in list(self.close_counts):
            if each in firmly or each not in close:
                del self.close_counts[each]
        yield from self.withdraw(state, sum(each < 0 for each in firmly))
        for each in firmly:
            if each >= 0:
                yield ReleaseNode(state.now, each, "idle at three looks")

    def restless(self, state: State) -> bool:
        """Also while it counts."""
        return super().restless(state) or bool(self.close_counts)


class ParslLike(Peer):
    """The strategy `htex_auto_scale`: every 5 s; blocks of one node; as many slots as tasks that are ready or run.

    A block leaves when there are more slots than tasks and it has idled for two minutes. Defaults: strategy_period 5 s,
    parallelism 1, max_idletime 120 s, init_blocks 1, min_blocks 0.
    """

    interval_s = 5.0
    max_idletime_s = 120.0
    parallelism = 1.0

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self._begun = False
        self._idle_since = math.inf

    def look(self, state: State) -> Iterator[Decision]:
        """One look."""
        tasks = sum(self.threads(state, task) for task in (*self.ready(state), *state.running))
        up, coming = self.up(state), self.coming(state)
        if not self._begun:
            self._begun = True
            yield RequestNodes(state.now, self.kind.name, 1, "init_blocks")
            coming += 1
        blocks = len(up) + coming
        slots = blocks * self.kind.cores
        if tasks:
            self._idle_since = math.inf
        if not tasks:
            self._idle_since = min(self._idle_since, state.now)
            if state.now - self._idle_since > self.max_idletime_s:
                yield from self.withdraw(state, coming)
                for index in self.idle(state):
                    yield ReleaseNode(state.now, index, "no tasks")
        elif slots < tasks * self.parallelism:
            more = math.ceil((tasks * self.parallelism - slots) / self.kind.cores)
            more = min(more, self.kind.most - blocks)
            if more > 0:
                yield RequestNodes(state.now, self.kind.name, more, "slots are overloaded")
        elif slots > tasks:
            fewer = min(math.ceil((slots - tasks * self.parallelism) / self.kind.cores), blocks)
            for index in self.idle(state):
                if fewer > 0 and state.now - state.scaling.idle_since(state, index) > self.max_idletime_s:
                    fewer -= 1
                    yield ReleaseNode(state.now, index, "idle for max_idletime")

    def restless(self, state: State) -> bool:
        """Also while it counts."""
        return super().restless(state) or bool(self.idle(state))


class HyperQueueLike(Peer):
    """Automatic allocation: what waits and fits on no worker asks for one; at most `backlog` are queued.

    Defaults: backlog 1, one worker an allocation (with tasks on several nodes: as many as those need, as it advises), idle
    timeout five minutes. A worker that idles so long ends.
    """

    interval_s = 1.0
    backlog = 1
    idle_timeout_s = 300.0

    def look(self, state: State) -> Iterator[Decision]:
        """One look."""
        for index in self.idle(state):
            if state.now - state.scaling.idle_since(state, index) >= self.idle_timeout_s:
                yield ReleaseNode(state.now, index, "idle timeout")
        ready = self.ready(state)
        if not ready:
            return
        per_allocation = max(state.step_of(task).needs.nodes for task in ready)
        up, coming = self.up(state), self.coming(state)
        waiting = sum(self.threads(state, task) for task in ready)
        room = coming * self.kind.cores
        if per_allocation > 1:
            room += len(self.idle(state)) * self.kind.cores
        while waiting > room and len(state.scaling.open) < self.backlog:
            more = min(per_allocation, self.kind.most - len(up) - coming)
            if more <= 0:
                return
            yield RequestNodes(state.now, self.kind.name, more, "tasks wait")
            coming += more
            room += more * self.kind.cores

    def restless(self, state: State) -> bool:
        """Also while it counts."""
        return super().restless(state) or bool(self.idle(state))


PEERS = {"Dask": DaskLike, "Parsl": ParslLike, "HyperQueue": HyperQueueLike}
