"""What does it mean that a conductor, or one of its nodes, comes or goes?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cantle.core.attempts import leave
from cantle.core.fates import judge, revive, send_back
from cantle.core.phases import UNSUCCESSFUL
from cantle.model import records as r

if TYPE_CHECKING:
    from cantle.core.state import State


def _run_started(state: State, record: r.RunStarted) -> None:
    state.run = record
    state.started_at = state.begun_at = record.time


def _run_resumed(state: State, record: r.RunResumed) -> None:
    state.resumed += not record.before
    state.stopping = ""
    state.at_once = state.expired = False
    state.begun_at = record.time
    state.awaited = 0
    state.to_stop.clear()
    state.being_stopped.clear()
    for study in state.studies:
        study.failing = ""
    for task in list(state.running):
        leave(state, task)
        send_back(state, task)
    if record.partitions or state.partitions.all:
        from cantle.core.partitions import conductor_gone

        conductor_gone(state, record.partitions)
    for index in range(len(state.room.nodes)):
        state.room.lose(index)
    if state.choosy or state.drained or state.drained_names or state.trouble is not None or state.scaling is not None:
        from cantle.core.nodes import all_gone

        all_gone(state)
    if record.retry:
        revive(state, [t for t, phase in enumerate(state.phases) if phase in UNSUCCESSFUL])
    if state.keeping is not None:
        state.keeping.all_gone(state)
    state.feasibility_version += 1
    state.version += 1


def _stop_asked(state: State, record: r.StopAsked) -> None:
    state.stopping = record.reason or "stopped"
    state.at_once = state.at_once or record.at_once
    for task in state.running:
        if record.at_once or task not in state.being_stopped:
            state.to_stop.setdefault(task, state.being_stopped.get(task, "interrupted"))
    state.version += 1


def _clock_set(state: State, record: r.ClockSet) -> None:
    state.clock_set.append((record.time, record.ahead_s))


def _time_passed(state: State, _record: r.TimePassed) -> None:
    state.version += 1


def _nodes_joined(state: State, record: r.NodesJoined) -> None:
    for node in record.nodes:
        index = state.room.add(node)
        state.joined_at[index] = record.time
        if node.ends_at or state.drained_names or state.trouble is not None:
            from cantle.core.nodes import joined

            joined(state, index, node)
        if state.keeping is not None:
            state.keeping.joined(state, index)
        state.several_machines = state.several_machines or node.machine != state.room.nodes[0].machine
    if record.request < 0:
        state.awaited = max(0, state.awaited - len(record.nodes))
    if state.scaling is not None:
        state.scaling.joined(state, len(state.room.nodes) - len(record.nodes), record.request)
    state.feasibility_version += 1
    state.version += 1


def _nodes_awaited(state: State, record: r.NodesAwaited) -> None:
    state.awaited = record.count
    state.feasibility_version += 1
    state.version += 1


def _node_lost(state: State, record: r.NodeLost) -> None:
    from cantle.core.nodes import cut_off, forgive, lost

    if not state.room.alive >> record.node & 1:
        return  # it was given up before
    planned = lost(state, record.node, record.reason)
    here = list(state.running_on.pop(record.node, ()))
    in_line = {task for task in here if state.stands_in_line(task)}  # before anybody leaves, and lets them move up
    for task in here:
        launch = state.running[task]
        outcome: r.Outcome = "interrupted" if planned or task in in_line else "lost"
        leave(state, task)
        if planned:
            cut_off(state, task, launch, task not in in_line)
        judge(state, task, r.TaskEnded(record.time, task, launch.attempt, outcome, detail=record.reason))
    if state.partitions.living:
        from cantle.core.partitions import node_lost

        node_lost(state, record.node, record.reason)
    state.room.lose(record.node)
    if state.scaling is not None:
        state.scaling.lost(record.node)
    if state.keeping is not None:
        state.keeping.lost(state, record.node, record.reason)
    if state.shunned:
        forgive(state)
    state.feasibility_version += 1
    state.version += 1


RULES: dict[type, Callable[[State, Any], None]] = {
    r.RunStarted: _run_started,
    r.RunResumed: _run_resumed,
    r.StopAsked: _stop_asked,
    r.ClockSet: _clock_set,
    r.TimePassed: _time_passed,
    r.NodesJoined: _nodes_joined,
    r.NodesAwaited: _nodes_awaited,
    r.NodeLost: _node_lost,
}
