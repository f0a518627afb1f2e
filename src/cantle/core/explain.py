"""Why does this task not run? From the same data as the decisions, in words."""

from __future__ import annotations

from cantle.core.decide import why_never_as
from cantle.core.lifetimes import barred_for, in_words, needs_s
from cantle.core.partitions import Partition, key_of
from cantle.core.phases import OVER, Phase
from cantle.core.queues import Shape
from cantle.core.roster import Key
from cantle.core.standings import Standing
from cantle.core.state import State
from cantle.model.resources import Needs, count, indexes

_MOST_NAMES = 5


def explain(state: State, task: int, now: float = 0.0) -> list[str]:
    """Sentences about where the task stands and why, the weightiest first. `now`: 0 for the time of the last record."""
    phase = state.phases[task]
    name = state.tasks[task].name
    if phase == Phase.WAITING:
        return [f"{name} is waiting.", *_waits_for(state, task)]
    if phase == Phase.READY:
        return [f"{name} is ready.", *_not_started(state, task, now), *_history(state, task)]
    if phase in (Phase.LAUNCHED, Phase.RUNNING):
        return [_runs(state, task), *_history(state, task)]
    if phase == Phase.DONE:
        return [f"{name} is done, in attempt {state.attempts[task]}.", *_history(state, task)]
    why = state.cause_of.get(task, "")
    if phase == Phase.CANCELED:
        return [_sentence(f"{name} was {why or 'canceled'}"), *_history(state, task)]
    verb = {Phase.FAILED: "failed", Phase.TIMEDOUT: "timed out", Phase.SKIPPED: "was skipped"}[phase]
    said = f": {why}" if why not in ("", "failed", "timeout") else ""
    return [_sentence(f"{name} {verb}{said}"), *_history(state, task)]


def _waits_for(state: State, task: int) -> list[str]:
    row = state.tasks[task]
    open_ = [p for p in row.parents if state.phases[p] != Phase.DONE]
    lines = []
    if open_:
        lines.append(f"It waits for {count(len(open_), 'task')} to succeed: {_named(state, open_)}.")
    unended = [p for p in row.after if state.phases[p] not in OVER]
    if unended:
        lines.append(f"It waits for {count(len(unended), 'task')} to be over: {_named(state, unended)}.")
    return lines


def _why_never(state: State, task: int) -> str:
    """Why it can never run with what is there, or with what may yet be."""
    shape = state.queue_of(task).shape
    if state.scaling is None or not (shape.partition or state.is_sliced(shape)):
        return why_never_as(state, shape)
    from cantle.core.scaling.imagined import why_never_in_its_place

    return why_never_in_its_place(state, shape, state.step_of(task).walltime_s)


def _not_started(state: State, task: int, now: float) -> list[str]:
    if state.stopping:
        return [f"Nothing is started any more, since the run was stopped: {state.stopping}."]
    queue = state.queue_of(task)
    needs = queue.shape.needs
    lines = []
    never = _why_never(state, task)
    if state.awaited and not state.room.alive:
        lines.append(
            f"It needs {needs}; no node is there yet, but {_verbs(state.awaited, 'node', 'is', 'are')} on the way."
        )
    elif never and state.awaited:
        lines.append(f"It {never}; but {count(state.awaited, 'node')} more on the way may change that.")
    elif state.scaling is not None and (why := _awaits_a_node(state, task, now)):
        lines.append(why)
        if not state.scaling.open:
            lines += _no_node_asked_for(state, task, now)
    elif never and not state.room.alive:
        lines.append(f"It needs {needs}; no node is there.")
    elif never:
        lines.append(f"It can never run here: it {never}.")
    elif queue.shape.partition:
        lines.append(_in_its_partition(state, queue.shape))
    elif state.is_sliced(queue.shape):
        lines.append(_in_an_element(state, queue.shape))
        from cantle.core.granting import Granting

        if why := Granting().why_waiting(state, queue.shape.study):
            lines.append(_sentence(f"The study {why}"))
    elif state.room.fitting(needs).bit_count() < needs.nodes:
        lines.append(f"It needs {needs}; {_freest(state, needs)}.")
        lines += _no_node_asked_for(state, task, now)
    elif state.choosy and (late := _too_late(state, task)):
        lines.append(late)
    if state.drained and len(state.drained) == state.room.alive.bit_count():
        lines.append(f"All nodes are drained: {_drained(state)}.")
    study = state.study_of(task)
    throttle = study.limits.throttle
    if throttle and study.in_progress >= throttle:
        do = "does" if study.in_progress == 1 else "do"
        lines.append(f"The throttle lets {count(throttle, 'task')} run at once, and {study.in_progress} {do}.")
    order = queue.ready()
    place = order.index(task)
    if place:
        lines.append(f"{count(place, 'task')} with the same needs {'goes' if place == 1 else 'go'} before it.")
    if place and task in state.ordered:
        lines.append(f"They go in an order that was reckoned: {state.why_ordered}.")
    return lines or ["It will be started in the next moment."]


def _no_node_asked_for(state: State, task: int, now: float) -> list[str]:
    if state.scaling is None or not state.scaling.kinds:
        return []
    from cantle.core.scaling.why_none import why_none

    return why_none(state, task, now)


def _awaits_a_node(state: State, task: int, now: float) -> str:
    from cantle.core.scaling.capacity import why_waits

    return why_waits(state, task, now)


def _too_late(state: State, task: int) -> str:
    """That there is room, but on nodes that leave too soon, or where it could not be started; "" when that is not so."""
    needs = state.queue_of(task).shape.needs
    roomy = state.room.fitting(needs)
    barred = barred_for(state, task)
    if (roomy & ~barred).bit_count() >= needs.nodes:
        return ""
    shunned = roomy & state.shunned.get(task, 0)
    if shunned:
        names = ", ".join(state.room.nodes[index].name for index in indexes(shunned)[:_MOST_NAMES])
        what = "failed" if state.faults.get(task) else "could not be started"
        return f"It {what} on {names}, and is tried elsewhere."
    if state.keeping is not None and (elsewhere := roomy & state.keeping.barred(state, task)) == roomy & barred:
        return _files_elsewhere(state, task) if elsewhere else ""
    lifetimes = state.lifetimes
    leaving = [index for index in indexes(roomy & barred) if lifetimes is not None and index in lifetimes.leaves]
    if lifetimes is None or not leaving:
        return ""
    last = max(leaving, key=lambda index: (lifetimes.leaves[index], -index))
    left = lifetimes.leaves[last] - state.now
    has = f"{state.room.nodes[last].name}, which has room, has {in_words(left)} left"
    return f"It needs {in_words(needs_s(state, task))}; {has} before it has to be empty."


def _files_elsewhere(state: State, task: int) -> str:
    """That it takes files which lie on nodes without room for it."""
    told = []
    keeping = state.keeping
    assert keeping is not None
    for parent in state.tasks[task].parents:
        result = keeping.results.get(parent)
        if result is not None and result.files and result.at:
            names = ", ".join(state.room.nodes[i].name for i in indexes(keeping.nodes_with(parent))[:_MOST_NAMES])
            way = keeping.moving.get(parent)
            told.append(
                f"{state.tasks[parent].name} left on {names}"
                + (f" and that are on their way to {state.room.nodes[way].name}" if way is not None else "")
            )
    return f"It takes files that {'; '.join(told)}: there is no room for it where they are."


def _drained(state: State) -> str:
    told = [f"{state.room.nodes[index].name}: {why}" for index, why in list(state.drained.items())[:_MOST_NAMES]]
    more = len(state.drained) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


def _in_its_partition(state: State, shape: Shape) -> str:
    name = shape.partition
    key = key_of(state, shape.study, name)
    partition = state.partitions.by_name.get(key)
    if partition is None:
        if told := _in_elements_by_name(state, key):
            return f"It runs in elements under the name {name}; {told}"
        if key in state.partitions.withheld:
            return (
                f"It runs in the partition {name}, which {state.partitions.withheld[key]}; "
                f"ask for it again: cantle partition create DIR {name}."
            )
        declared = any(wish.name == name for wish in state.studies[shape.study].added.partitions)
        if key in state.partitions.requests or declared:
            return f"It runs in the partition {name}, which will be made in the next moment, or when there is room."
        return f"It runs in the partition {name}, which nobody has made yet: cantle partition create DIR {name}."
    if partition.draining:
        return f"It runs in the partition {name}, which is draining: nothing more begins there."
    if partition.standing != Standing.ACTIVE:
        has = len(partition.nodes())
        return (
            f"It runs in the partition {name}, which is {partition.standing.name}: "
            f"it has slots on {has} of {count(partition.width, 'node')}."
        )
    fitting = partition.room.fitting(shape.needs).bit_count()
    if fitting >= shape.needs.nodes:
        return f"It will be started in its partition {name} in the next moment."
    return (
        f"It needs {shape.needs}; in its partition {name}, where {_verbs(len(partition.running), 'task', 'runs', 'run')}, "
        f"{_verbs(fitting, 'node', 'has', 'have')} that much room now."
    )


def _in_elements_by_name(state: State, key: Key) -> str:
    """How it stands with the elements that are wanted by this name; "" when they are still to be made, if it is one."""
    there = [p for p in state.partitions.living.values() if (p.study, p.holder) == key and p.serves]
    asked = state.partitions.requests.get(key)
    if there or asked is None or asked.want:
        return _how_many(there) if there else ""
    return f"{asked.by or 'somebody'} gave them back; ask for some again: cantle partition request DIR {key[1]} WANT."


def _in_an_element(state: State, shape: Shape) -> str:
    widths = shape.widths or (shape.needs.nodes,)
    there = [p for p in state.partitions.living.values() if p.element is not None and p.width in widths]
    made = "it waits until one can be made: its nodes are in use, or as many copies of slices are active as may be."
    return f"It runs in an element of {' or '.join(map(str, widths))} nodes; {_how_many(there) if there else made}"


def _how_many(elements: list[Partition]) -> str:
    n, busy = len(elements), sum(bool(each.running) for each in elements)
    there = f"there {'is' if n == 1 else 'are'} {count(n, 'such element')} now"
    return f"{there}, of which {busy} {'is' if busy == 1 else 'are'} in use."


def _freest(state: State, needs: Needs) -> str:
    room = state.room
    able = indexes(room.could_ever_hold(needs))
    fitting = room.fitting(needs)
    if needs.nodes > 1:
        return f"{_verbs(fitting.bit_count(), 'node', f'of {needs.nodes} has', f'of {needs.nodes} have')} that much room now"
    best = max(able, key=lambda index: room.free_cores[index].bit_count())
    node = room.nodes[best]
    parts = [f"{room.free_cores[best].bit_count()} of {node.cores} cores"]
    if needs.gpus:
        parts.append(f"{room.free_gpus[best].bit_count()} of {node.gpus} GPUs")
    if needs.memory_mib:
        parts.append(f"{room.free_memory[best]} of {node.memory_mib} MiB of memory")
    parts += [f"{room.free_named[best].get(name, 0)} {name}" for name, _ in needs.named]
    return f"the freest node, {node.name}, has {', '.join(parts)} free"


def _runs(state: State, task: int) -> str:
    launch = state.running[task]
    where = ", ".join(
        f"{state.room.nodes[place.node].name} (cores {place.cores}{f', GPUs {place.gpus}' if place.gpus else ''})"
        for place in launch.on[:_MOST_NAMES]
    )
    if len(launch.on) > _MOST_NAMES:
        where += f" and {len(launch.on) - _MOST_NAMES} more"
    where = where or "unknown nodes"
    if launch.partition >= 0:
        where += f" in partition {state.partitions.all[launch.partition].name}"
    if state.blockers[task] > 0 and launch.behind is not None:
        ahead = state.tasks[launch.behind].name
        if state.awaits_its_turn(task):
            turn = f"It begins when {ahead} is done."
        else:
            turn = f"It does not begin, since {ahead} did not succeed, and is about to be taken back."
        return f"{state.tasks[task].name} stands in line behind {ahead}, attempt {launch.attempt}, on {where}. {turn}"
    line = state.lines.get(task)
    if line is not None and line.owner != task:
        ahead = state.tasks[line.owner].name
        return f"{state.tasks[task].name} stands in line behind {ahead}, attempt {launch.attempt}, on {where}."
    verb = "runs" if state.phases[task] == Phase.RUNNING else "is being started"
    why = state.hindered.get(task)
    hindered = f" It has not begun: {_sentence(why)}" if why else ""
    ending = f" It is being ended: {state.being_stopped[task]}." if task in state.being_stopped else ""
    return f"{state.tasks[task].name} {verb}, attempt {launch.attempt}, on {where}.{hindered}{ending}"


def _history(state: State, task: int) -> list[str]:
    lines = []
    step = state.step_of(task)
    faults = state.faults.get(task, 0)
    if faults:
        lines.append(f"{faults} of {count(step.retries, 'retry').replace('retrys', 'retries')} used.")
    if restarts := state.restarts.get(task, 0):
        lines.append(f"Restarted {count(restarts, 'time')} after a timeout.")
    ended = state.ended.get(task)
    if ended is not None and state.phases[task] != Phase.DONE:
        news = ended.detail != state.cause_of.get(task)
        detail = f": {ended.detail}" if ended.detail and news else ""
        lines.append(_sentence(f"Its attempt {ended.attempt} ended as {ended.outcome}{detail}"))
    return lines


def _verbs(n: int, noun: str, one: str, many: str) -> str:
    return f"{count(n, noun)} {one if n == 1 else many}"


def _sentence(text: str) -> str:
    """With its full stop, except after quoted lines of a task's output."""
    return text if "\n" in text or text.endswith((".", "!", "?")) else f"{text}."


def _named(state: State, tasks: list[int]) -> str:
    names = [f"{state.tasks[t].name} ({state.phases[t].name.lower()})" for t in tasks[:_MOST_NAMES]]
    more = len(tasks) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
