"""Why did it not end sooner? The chain of attempts, each of which waited for the one before, that led to the last end."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from cantle.model.resources import list_to_mask
from cantle.report.timeline import Attempt, Timeline, ready_since

AT_ONCE_S = 0.05
"""A launch within this time after its task became ready was not kept waiting."""


class Link(msgspec.Struct):
    """One attempt of the chain, by its index in the timeline; `waited_s` since the one before ended, and what for."""

    attempt: int
    waited_s: float
    waited_for: str


def critical_chain(timeline: Timeline) -> list[Link]:
    """From the first attempt to the one that ended last. Costs by attempts."""
    attempts = timeline.attempts
    if not attempts:
        return []
    search = _Search(timeline)
    at = max(range(len(attempts)), key=lambda index: (attempts[index].ended, -index))
    links = []
    seen = set()
    while at not in seen:
        seen.add(at)
        before, why = search.before(at)
        since = attempts[before].ended if before is not None else 0.0
        links.append(Link(at, max(0.0, attempts[at].started - since), why))
        if before is None:
            break
        at = before
    links.reverse()
    return links


class _Search:
    """Finds what an attempt waited for."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.ready = ready_since(timeline)
        self.last_of: dict[int, list[int]] = {}
        self.by_node: dict[int, list[tuple[float, int]]] = {}
        for index, attempt in enumerate(timeline.attempts):
            self.last_of.setdefault(attempt.task, []).append(index)
            for place in attempt.on:
                self.by_node.setdefault(place.node, []).append((attempt.ended, index))
        for ends in self.by_node.values():
            ends.sort()

    def before(self, at: int) -> tuple[int | None, str]:
        """The attempt that this one waited for, None when for none, and in words."""
        attempts = self.timeline.attempts
        attempt = attempts[at]
        state = self.timeline.state
        if attempt.launched - self.ready[at] > AT_ONCE_S:
            found = self._on_its_cores(attempt)
            if found is not None:
                return found, f"its cores, from {state.tasks[attempts[found].task].name}"
        own = [index for index in self.last_of[attempt.task] if index < at]
        if own:
            return own[-1], "the attempt before"
        task = state.tasks[attempt.task]
        parents = [self.last_of[parent][-1] for parent in (*task.parents, *task.after) if parent in self.last_of]
        if parents:
            found = max(parents, key=lambda index: (attempts[index].ended, -index))
            return found, f"{state.tasks[attempts[found].task].name} to end"
        found = self._on_its_cores(attempt) if attempt.launched > AT_ONCE_S else None
        if found is not None:
            return found, f"its cores, from {state.tasks[attempts[found].task].name}"
        return None, "" if attempt.started <= AT_ONCE_S else "nodes, and its own start"

    def _on_its_cores(self, attempt: Attempt) -> int | None:
        """The last attempt that ended, before this one was launched, on a core that this one got."""
        best: tuple[float, int] | None = None
        for place in attempt.on:
            ends = self.by_node.get(place.node, [])
            cores = list_to_mask(place.cores)
            for position in range(bisect_right(ends, (attempt.launched + AT_ONCE_S, len(self.ready))) - 1, -1, -1):
                ended, index = ends[position]
                if best is not None and ended <= best[0]:
                    break
                other = self.timeline.attempts[index]
                if other is attempt or other.launched >= attempt.launched:
                    continue
                if any(place.node == p.node and list_to_mask(p.cores) & cores for p in other.on):
                    best = (ended, index)
                    break
        return best[1] if best else None
