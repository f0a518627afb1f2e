"""Which ready task goes where? The built-in packers; each is a policy, a function of a plan."""

from __future__ import annotations

from collections.abc import Iterator

from cantle.core.plan import Plan
from cantle.core.room import Room
from cantle.model.records import Decision
from cantle.model.resources import Needs, Place


def best_fit(plan: Plan) -> Iterator[Decision]:
    """Most urgent first; each on the fullest node that holds it, so that wide room stays whole for wide tasks.

    What does not fit is passed over and others fill the room: within one study that ends sooner than holding room free.
    """
    room = plan.room
    for queue in plan.by_urgency():
        if room.full:
            return
        if not plan.may_launch(queue):
            continue
        places = find_places(room, queue.shape.needs)
        if places is not None:
            task = queue.head()
            assert task is not None
            yield plan.launch(task, places)


def find_places(room: Room, needs: Needs) -> tuple[Place, ...] | None:
    """The places for one task, all or nothing: on one node the fullest that fits, on several the fewest runs."""
    if needs.nodes == 1:
        if needs.gpus or needs.memory_mib or needs.named or needs.kind or needs.whole_nodes:
            fitting = room.fitting(needs)
            if not fitting:
                return None
            for nodes in room.by_cores[needs.cores :]:
                if found := nodes & fitting:
                    return (room.place((found & -found).bit_length() - 1, needs),)
            return None
        for nodes in room.by_cores[needs.cores :]:
            if nodes:
                return (room.place((nodes & -nodes).bit_length() - 1, needs),)
        return None
    fitting = room.fitting(needs)
    if fitting.bit_count() < needs.nodes:
        return None
    return tuple(room.place(index, needs) for index in fewest_runs(fitting, needs.nodes))


def fewest_runs(nodes: int, n: int) -> list[int]:
    """n of these nodes (bits), in as few runs of consecutive numbers as possible, ascending.

    The smallest run that holds all of them, otherwise the largest runs first and the rest from the smallest that holds it.
    """
    runs = []
    rest = nodes
    while rest:
        start = (rest & -rest).bit_length() - 1
        shifted = rest >> start
        length = (~shifted & (shifted + 1)).bit_length() - 1
        runs.append((length, start))
        rest &= ~(((1 << length) - 1) << start)
    runs.sort(key=lambda run: (run[0], run[1]))
    chosen: list[int] = []
    while n:
        fit = next((run for run in runs if run[0] >= n), None) or runs[-1]
        runs.remove(fit)
        length = min(fit[0], n)
        chosen.extend(range(fit[1], fit[1] + length))
        n -= length
    return sorted(chosen)
