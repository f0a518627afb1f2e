"""Does a packer that is not ours keep the rules? Each decision is looked at before it is applied.

A packer may do as it likes, but what it yields must be possible: otherwise the run's books would no longer agree with the
world, and whoever finds that later takes it for a bug of Cantle's. The error says which packer, which rule and which task.
Every decision that is let through takes a task out of what may still be decided on, so each pass comes to an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cantle.core.phases import UNSTARTED, Phase
from cantle.core.plan import Plan, Policy
from cantle.core.room import Room, shortage
from cantle.core.state import State
from cantle.errors import PluginError, said_by, shown
from cantle.model.records import Decision, Launch, Refuse, Stop, TaskDecision
from cantle.model.resources import Needs, Place, count, list_to_mask


def guarded(packer: Policy, name: str = "") -> Policy:
    """The packer, watched. The policy raises PluginError at the first decision that breaks a rule.

    `name` is what the error calls it: as the user named it, otherwise by module and function.
    """
    called = f"packer {name or name_of(packer)}"

    def watched(plan: Plan) -> Iterator[Decision]:
        state = plan.state
        version = state.version
        tasks = len(state.tasks)
        decisions = _begun(packer, plan, called)
        while True:
            decision = _next_of(decisions, called)
            if state.version != version or len(state.tasks) != tasks:
                raise PluginError(f"{called}: it changed the state itself; a packer reads, and yields decisions")
            if decision is None:
                break
            fault = _fault_in(decision, plan)
            if fault:
                raise PluginError(f"{called}: {fault}")
            yield decision
            version = state.version
        if idle := _left_idle(plan):
            raise PluginError(f"{called}: {idle}")

    return watched


def name_of(packer: object) -> str:
    """The packer as `module:function`, which is also how the command line takes it."""
    kind = type(packer)
    module = getattr(packer, "__module__", None) or kind.__module__
    return f"{module}:{getattr(packer, '__qualname__', None) or kind.__qualname__}"


def _begun(packer: Policy, plan: Plan, called: str) -> Iterator[Any]:
    try:
        given = packer(plan)
    except PluginError:  # somebody who watches it has said what there is to say
        raise
    except (Exception, SystemExit) as problem:
        raise PluginError(f"{called}: {_told(problem)}") from problem
    try:
        return iter(given)
    except TypeError:
        raise PluginError(
            f"{called}: it returned {shown(given)}, where a packer yields decisions: `yield plan.launch(task, places)`"
        ) from None


def _next_of(decisions: Iterator[Any], called: str) -> Any:
    """What the packer yields next, None at the end."""
    try:
        found = next(decisions)
    except StopIteration:
        return None
    except PluginError:
        raise
    except (Exception, SystemExit) as problem:
        raise PluginError(f"{called}: {_told(problem)}") from problem
    if type(found) not in (Launch, Stop, Refuse):
        raise PluginError(
            f"{called}: it yielded {shown(found)}, which is no decision; `plan.launch(task, places)` makes one"
        )
    return found


def _fault_in(decision: TaskDecision, plan: Plan) -> str:
    """Which rule the decision breaks, "" when none."""
    state = plan.state
    try:  # anything may stand in its fields; the journal, too, has to be able to read it again
        msgspec.json.decode(msgspec.json.encode(decision), type=type(decision))
    except (TypeError, ValueError, msgspec.MsgspecError) as problem:
        return f"it yielded {shown(decision)}, which cannot be written down: {problem}"
    if not 0 <= decision.task < len(state.tasks):
        return f"it yielded {shown(decision)}, but there are only the tasks 0 to {len(state.tasks) - 1}"
    if decision.time != state.now:
        return f"it dated a decision {decision.time}, but now is {state.now} (`plan.state.now`)"
    if type(decision) is Launch:
        return _fault_in_launch(decision, plan)
    name = state.tasks[decision.task].name
    if type(decision) is Stop:
        running = state.running.get(decision.task)
        if running is None or running.attempt != decision.attempt:
            return f"it stopped attempt {decision.attempt} of {name}, which does not run"
        if state.being_stopped.get(decision.task):
            return f"it stopped attempt {decision.attempt} of {name}, which is being stopped already"
    elif state.phases[decision.task] not in UNSTARTED:
        return f"it refused {name}, which is {_phase(state, decision.task)}"
    return ""


def _fault_in_launch(launch: Launch, plan: Plan) -> str:
    state, task = plan.state, launch.task
    name = state.tasks[task].name
    if state.phases[task] != Phase.READY:
        return f"it launched {name}, which is {_phase(state, task)}, not ready"
    meant = plan.launch(task, launch.on, launch.why)
    if launch.attempt != meant.attempt:
        return f"it launched attempt {launch.attempt} of {name}, but the next one is {meant.attempt}"
    if launch.restart != meant.restart:
        return f"it launched {name} with restart={launch.restart}; `plan.launch` knows that it is {meant.restart}"
    if not plan.may_launch(state.queue_of(task)):
        throttle = state.study_of(task).limits.throttle
        return f"it launched {name}, although {count(throttle, 'task')} of its study run and no more may (throttle)"
    if launch.partition != meant.partition:
        return f"it launched {name} in partition {launch.partition}, but this pass is of {meant.partition}"
    if state.shape_of_step[state.tasks[task].step] not in plan.queues:
        return f"it launched {name}, which runs in another partition"
    needs = state.step_of(task).needs
    widths = state.step_of(task).widths or (needs.nodes,)
    if len(launch.on) not in widths:
        wanted = count(widths[0], "node") if len(widths) == 1 else f"one of {', '.join(map(str, widths))} nodes"
        return f"it launched {name} on {count(len(launch.on), 'place')}, but it needs {wanted}"
    if len({place.node for place in launch.on}) != len(launch.on):
        return f"it launched {name} twice on one node, but it needs {count(len(launch.on), 'node')}"
    for place in launch.on:
        if fault := _fault_in_place(place, needs, plan.room):
            return f"it launched {name} (which needs {needs}) {fault}"
    return _fault_in_time(launch, plan) if state.choosy else ""


def _fault_in_time(launch: Launch, plan: Plan) -> str:
    """How long a task takes on more nodes than it needs, the packer may know better, if it has no walltime."""
    from cantle.core.lifetimes import barred_for

    state, task = plan.state, launch.task
    barred = barred_for(state, task, 0.0 if state.step_of(task).widths else None)
    for place in launch.on:
        if barred >> place.node & 1:
            return (
                f"it launched {state.tasks[task].name} on node {place.node}, {plan.room.nodes[place.node].name}, which leaves "
                "before the task could end, or where it could not be started; `plan.room_for(task)` is the room without those"
            )
    return ""


def _fault_in_place(place: Place, needs: Needs, room: Room) -> str:
    if place.node not in room.nodes:
        return f"on node {place.node}; there are only the nodes {', '.join(map(str, room.nodes))}"
    node = room.nodes[place.node]
    where = f"on node {place.node}, {node.name}"
    if not room.alive >> place.node & 1:
        return f"{where}, which is gone"
    if lack := shortage(node, needs):
        return f"{where}, which {lack}"
    try:
        cores, gpus = list_to_mask(place.cores), list_to_mask(place.gpus)
    except ValueError as problem:
        return f"{where}: {problem}; index lists look like 0-3,7"
    for what, asked, free, has in (
        ("core", cores, room.free_cores[place.node], room.capacity[place.node][0].bit_length()),
        ("GPU", gpus, room.free_gpus[place.node], room.capacity[place.node][1].bit_length()),
    ):
        if asked >> has:
            return f"{where}, and gave it {what} {asked.bit_length() - 1}; the node has {count(has, what)}, from 0 on"
        if asked & ~free:
            return f"{where}, and gave it a {what} that another task holds"
    if needs.whole_nodes:
        if not room.untouched >> place.node & 1:
            return f"{where}, which other tasks share"
        if room.shared >> place.node & 1:
            return f"{where}, of which its partition has a part only"
        wanted = (node.cores, node.gpus)
    else:
        wanted = (needs.cores, needs.gpus)
    if (cores.bit_count(), gpus.bit_count()) != wanted:
        given = f"{count(cores.bit_count(), 'core')} and {count(gpus.bit_count(), 'GPU')}"
        return f"{where}, and gave it {given} instead of {wanted[0]} and {wanted[1]}"
    if not room.fitting(needs) >> place.node & 1:
        return f"{where}, whose memory or named resources other tasks hold"
    return ""


def _left_idle(plan: Plan) -> str:
    """After a whole pass: nothing runs, nothing is on its way, and yet ready tasks stay where they are, for ever."""
    state = plan.state
    if state.running or state.awaited or state.stopping or state.partitions.living or state.choosy or state.drained:
        return ""
    if state.scaling is not None:
        return ""  # what finds no room may wait for a node
    waiting = [task for number in plan.queues for task in state.queues[number].ready()]
    if not waiting:
        return ""
    ready, name = len(waiting), state.tasks[min(waiting)].name
    return (
        f"it launches nothing, although nothing runs and {count(ready, 'task')} could ({name}, say); "
        "nothing would ever happen again"
    )


def _phase(state: State, task: int) -> str:
    return state.phases[task].name.lower()


def _told(problem: BaseException) -> str:
    """An exception in one line, with the innermost place that is not in Cantle."""
    place = ""
    trace = problem.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if not str(frame.f_globals.get("__name__")).startswith("cantle."):
            place = f" ({frame.f_code.co_filename.rpartition('/')[2]}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"it raised {said_by(problem)}{place}"
