"""Which nodes make trouble: fail what succeeds elsewhere, start nothing, or come and go?

A node whose disk is full or whose library is missing fails every task in a moment, so it is always the first to be free, and
eats the whole study. A step with a fault of its own fails everywhere, and that must take out no node. So a node is judged by
what others do with the same steps: it is taken out when so many different tasks failed there in a row as would be a
coincidence, were it like the others. Where nobody knows yet how they do elsewhere, since there they run longer, the node
waits for word of it.

These books begin with the first failure where there are several nodes. They are not kept for runs in which nothing fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from cantle.core.phases import Phase

if TYPE_CHECKING:
    from cantle.core.state import State
    from cantle.model.records import Launch, TaskEnded

LEAST_FAILED = 5
"""So many different tasks have to fail in a row on a node before it is looked at,"""
LEAST_UNSTARTABLE = 3
"""and so many when none of them could even be started."""
COINCIDENCE = 1e-5
"""A node is taken out when what happened there would be as unlikely as that on a node like the others,"""
COINCIDENCE_UNSTARTABLE = 1e-3
"""or as that when nothing could be started: that is seldom a task's fault."""
FAST_S = 1.0
"""What fails within that time may be a node that eats everything."""
MOST_FLAPS = 5
"""A node that went away so often in a row, each time soon after it had come, is not used any more."""
FLAP_S = 600.0
"""That soon."""
_ENOUGH = 1000
"""Of more successes than that, more are not counted."""


class Fault(msgspec.Struct, frozen=True):
    """How an attempt ended on a node: of which step it was, after how many seconds, and whether it had begun at all."""

    step: int
    seconds: float
    began: bool


class Trouble(msgspec.Struct):
    """The books: failures in a row by node and task, failures by step and node, and nodes that came and went, by name."""

    streaks: dict[int, dict[int, Fault]] = {}
    failures: dict[int, dict[int, int]] = {}
    suspects: dict[int, None] = {}
    """Drained until it is known how others do with what failed there."""
    flaps: dict[str, int] = {}
    newcomers: dict[int, None] = {}
    """Nodes that have come once more, too often."""
    news: list[int] = []
    """The nodes of all failures, in that order. It only grows; whoever follows it remembers how far."""

    def went_wrong(self, launch: Launch, step: int, seconds: float, began: bool) -> None:
        """An attempt failed, or could not be started. On several nodes nobody can tell which of them it was."""
        if len(launch.on) == 1:
            node = launch.on[0].node
            self.streaks.setdefault(node, {})[launch.task] = Fault(step, seconds, began)
            on = self.failures.setdefault(step, {})
            on[node] = on.get(node, 0) + 1
            self.news.append(node)

    def went_well(self, launch: Launch) -> None:
        """An attempt is done: whoever can do that is no node that fails everything."""
        for place in launch.on:
            self.streaks.pop(place.node, None)

    def lost(self, name: str, lived_s: float) -> None:
        """A node of this name went away, unplanned, after so many seconds."""
        self.flaps[name] = self.flaps.get(name, 0) + 1 if lived_s < FLAP_S else 0

    def done_of_its_steps(self, state: State, index: int) -> int:
        """How many tasks are done, wherever, of the steps that failed in a row on the node."""
        steps = {fault.step for fault in self.streaks.get(index, {}).values()}
        return sum(state.counts[step][Phase.DONE] for step in steps)

    def forget(self, index: int) -> None:
        """The node is gone, or begins anew."""
        self.streaks.pop(index, None)
        self.suspects.pop(index, None)
        self.newcomers.pop(index, None)


def ended_badly(state: State, launch: Launch, ended: TaskEnded) -> bool:
    """Note that an attempt failed or could not be started. Whether it is excused: then another node is to try it.

    One that failed is charged. If it is tried again, that is on another node as well, while there is one: a node that fails
    everything in a moment would otherwise use up all tries of the first few tasks before it is found out.
    """
    if ended.everywhere:
        return False
    if state.trouble is None:
        state.trouble = Trouble()
    task, step = ended.task, state.tasks[ended.task].step
    began = ended.outcome != "unstartable"
    state.trouble.went_wrong(launch, step, ended.time - state.launched_at[task], began)
    if began and state.faults.get(task, 0) >= state.steps[step].retries:
        return False
    from cantle.core.nodes import may_start_elsewhere

    return may_start_elsewhere(state, task, launch) and not began


def why_bad(state: State, trouble: Trouble, index: int) -> str:
    """Why the node is to be taken out, "" when nothing proves it."""
    streak = trouble.streaks[index]
    unstartable = not any(fault.began for fault in streak.values())
    if len(streak) < (LEAST_UNSTARTABLE if unstartable else LEAST_FAILED):
        return ""
    failed, done = _elsewhere(state, trouble, index)
    chance = (failed + 1) / (failed + done + 2)
    if not done or chance ** len(streak) > (COINCIDENCE_UNSTARTABLE if unstartable else COINCIDENCE):
        return ""
    what = "could not be started" if unstartable else "failed"
    succeeded = f"{done:,}" if done < _ENOUGH else f"more than {_ENOUGH:,}"
    return (
        f"{len(streak)} different tasks in a row {what} there, the last of them {state.tasks[next(reversed(streak))].name}; "
        f"elsewhere {succeeded} of the same steps succeeded, and {failed:,} failed"
    )


def why_suspicious(state: State, trouble: Trouble, index: int) -> str:
    """Why the node is to wait until it is known how others do, "" when there is no reason, or nothing to wait for."""
    streak = trouble.streaks[index]
    if len(streak) < LEAST_FAILED or any(fault.seconds > FAST_S for fault in streak.values()):
        return ""
    if _elsewhere(state, trouble, index) != (0, 0) or who_tries_elsewhere(state, trouble, index) is None:
        return ""
    return (
        f"{len(streak)} different tasks in a row failed there, each within a second; elsewhere others of the same steps "
        "still run, and it waits for how they end"
    )


def why_innocent(state: State, trouble: Trouble, index: int) -> str:
    """Why a node that waits is to be used again, "" when it is not."""
    failed, done = _elsewhere(state, trouble, index)
    if failed:
        return "what failed there fails elsewhere as well"
    if not done and who_tries_elsewhere(state, trouble, index) is None:
        return "nobody else tries what failed there"
    return ""


def proves_done_elsewhere(state: State, trouble: Trouble, index: int) -> str:
    """Why a node that waits was rightly suspected, "" as long as that is not known."""
    failed, done = _elsewhere(state, trouble, index)
    if failed or not done:
        return ""
    return (
        f"{len(trouble.streaks.get(index, {}))} different tasks in a row failed there at once; elsewhere they succeed"
    )


def _elsewhere(state: State, trouble: Trouble, index: int) -> tuple[int, int]:
    """How many attempts of the steps that failed on the node failed on others, and how many tasks were done there."""
    steps = {fault.step for fault in trouble.streaks.get(index, {}).values()}
    failed = sum(
        times for step in sorted(steps) for node, times in trouble.failures.get(step, {}).items() if node != index
    )
    return failed, sum(1 for _ in _done_elsewhere(state, steps, index))


def _done_elsewhere(state: State, steps: set[int], index: int) -> Iterator[int]:
    if not any(state.counts[step][Phase.DONE] for step in steps):
        return
    found = 0
    for task, phase in enumerate(state.phases):
        if phase == Phase.DONE and state.tasks[task].step in steps and state.ran_on[task] != index:
            yield task
            found += 1
            if found == _ENOUGH:
                return


def who_tries_elsewhere(state: State, trouble: Trouble, index: int) -> Launch | None:
    """An attempt of the steps that failed on the node, on another one, that has run for longer than those took; None: none."""
    streak = trouble.streaks.get(index, {})
    steps = {fault.step for fault in streak.values()}
    longest = max((fault.seconds for fault in streak.values()), default=0.0)
    for task, launch in state.running.items():
        here = any(place.node == index for place in launch.on)
        if not here and state.tasks[task].step in steps and state.now - state.launched_at[task] > longest:
            return launch
    return None
