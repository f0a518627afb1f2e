"""How do the nodes of a run stand: which are used, drained or gone, what runs there, and until when?"""

from __future__ import annotations

from collections.abc import Iterator

from cantle.core.state import State
from cantle.model.resources import count
from cantle.report.growth import on_its_way
from cantle.report.wording import duration, printable, time_of_day

_MOST_TASKS = 2
_MOST_LOST = 5


def node_table(state: State, now: float) -> Iterator[str]:
    """The living nodes, a line each, and how many are gone."""
    alive = [index for index in sorted(state.room.nodes) if state.room.alive >> index & 1]
    gone = len(state.room.nodes) - len(alive)
    if alive:
        heads: tuple[str, ...] = ("NAME", "STATE", "CORES", "RUNNING", "LEFT", "WHY")
        lines = [_row(state, index, now) for index in alive]
        if any(state.room.nodes[index].kind for index in alive):
            heads = (heads[0], "KIND", *heads[1:])
            lines = [
                (row[0], state.room.nodes[index].kind or "-", *row[1:]) for index, row in zip(alive, lines, strict=True)
            ]
        rows: list[tuple[str, ...]] = [heads, *lines]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
    else:
        yield "no node is there"
    if gone:
        yield f"{count(gone, 'node')} {'has' if gone == 1 else 'have'} gone"
        yield from _lost(state)
    if state.awaited:
        yield f"{count(state.awaited, 'node')} {'is' if state.awaited == 1 else 'are'} on the way"
    if state.scaling is not None:
        for request in state.scaling.open.values():
            yield on_its_way(request, now)


def _lost(state: State) -> Iterator[str]:
    """Of those that went without being given back the last ones: when, and why."""
    lost = list(state.lost_nodes.items())
    if len(lost) > _MOST_LOST:
        yield f"of the {len(lost):,} that were lost the last {_MOST_LOST}:"
    for index, loss in lost[-_MOST_LOST:]:
        name = printable(state.room.nodes[index].name)
        why = printable(loss.reason.removeprefix(f"{state.room.nodes[index].name}: "))
        yield f"{name} was lost at {time_of_day(state.wall(loss.at))}{why and f': {why}'}"


def node_line(state: State, index: int) -> str:
    """One of them in a sentence."""
    running = len(_running(state, index))
    still = f", {count(running, 'task')} still running there" if running and index in state.drained else ""
    why = f": {state.drained[index]}" if index in state.drained else ""
    return f"{printable(state.room.nodes[index].name)} is {_standing(state, index)}{why}{still}"


def node_objects(state: State) -> Iterator[dict[str, object]]:
    """All of them for programs, those that are gone as well. `ends_at` in seconds since the epoch, null when not known."""
    for index, node in sorted(state.room.nodes.items()):
        running = _running(state, index)
        yield {
            "node": index,
            "name": node.name,
            "machine": node.machine,
            "kind": node.kind,
            "request": state.scaling.request_of.get(index) if state.scaling is not None else None,
            "state": _standing(state, index),
            "why": state.drained.get(index, ""),
            "cores": node.cores,
            "cores_in_use": _cores_in_use(state, index),
            "gpus": node.gpus,
            "memory_mib": node.memory_mib,
            "running": [state.tasks[task].name for task in running],
            "joined_at": state.wall(state.joined_at[index]) if index in state.joined_at else None,
            "ends_at": state.wall(node.ends_at) if node.ends_at else None,
        }


def _row(state: State, index: int, now: float) -> tuple[str, ...]:
    node = state.room.nodes[index]
    running = [printable(state.tasks[task].name) for task in _running(state, index)]
    more = len(running) - _MOST_TASKS
    told = ", ".join(running[:_MOST_TASKS]) + (f" and {more} more" if more > 0 else "")
    left = duration(max(0.0, node.ends_at - now)) if node.ends_at else "-"
    used = f"{_cores_in_use(state, index)}/{node.cores}"
    return (printable(node.name), _standing(state, index), used, told or "-", left, state.drained.get(index, "") or "-")


def _standing(state: State, index: int) -> str:
    if not state.room.alive >> index & 1:
        return "gone"
    if index in state.drained:
        return "ending" if state.lifetimes is not None and state.lifetimes.over >> index & 1 else "drained"
    return "used"


def _running(state: State, index: int) -> list[int]:
    return [task for task in state.running_on.get(index, ()) if not state.stands_in_line(task)]


def _cores_in_use(state: State, index: int) -> int:
    """How many of its cores tasks have."""
    return sum(
        state.step_of(task).needs.cores if not state.step_of(task).needs.whole_nodes else state.room.nodes[index].cores
        for task in _running(state, index)
    )
