"""Which elements shall be granted to whom now?

Progressive filling: the job that holds the fewest cores for its weight gets one element, then the next job. Each gets the
element that works soonest: a warm one of its own, another warm one, a free one of an active copy, one of a new copy. Where the
cap leaves no place for a new copy, one of another width whose elements are all warm goes. `moves` yields what shall be done,
and whoever asks does each (occupies the grant, closes the element) before asking on; what he leaves undone is passed over.
A pass looks only at jobs for which something changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Literal, TypeAlias

from cantle.core.cuts import Nodes
from cantle.core.elements import Copy, Element, Grant
from cantle.core.rotation import Close, Rotation
from cantle.core.slices import Ledger, Opening
from cantle.core.wants import Claim, Want
from cantle.model.study import Slicing

Transfer: TypeAlias = Callable[[int, tuple[int, ...]], float]
"""How many seconds a job's missing files take to come to these nodes."""


class Broker:
    """The ledger of a slicing, the wants of the jobs, and the rule between them.

    `agent_s` is what a new element takes until it works, `copy_s` what is added in a copy that was not active. `transfer_s`
    makes the choice heed where files lie; then a grant costs by the elements there are.
    """

    def __init__(
        self,
        slicing: Slicing,
        nodes: Nodes,
        patience_s: float = 0.0,
        agent_s: float = 0.02,
        copy_s: float = 0.0,
        transfer_s: Transfer | None = None,
    ) -> None:
        self.ledger = Ledger(slicing, nodes)
        self.claims: dict[int, Claim] = {}
        self.rotation = Rotation(self.ledger, self.claims, patience_s)
        self._agent_s = agent_s
        self._copy_s = copy_s
        self._transfer_s = transfer_s
        self._mentioning: dict[int, dict[int, None]] = {}
        self._fresh: dict[int, None] = {}

    # What jobs say

    def ask(self, want: Want) -> None:
        """The job wants this from now on, instead of what it wanted before."""
        job = want.job
        claim = self.claims.get(job)
        if claim is None:
            claim = self.claims[job] = Claim(want)
            claim.due = claim.since + self.rotation.patience_s
        else:
            self._forget_widths(claim)
            claim.want = want
            claim.tried = -1
            if claim is self.rotation.waiter:
                self.rotation.lift()
        for choice in want.choices:
            for width, _ in choice.widths:
                self._mentioning.setdefault(width, {})[job] = None
        self._fresh[job] = None

    def withdraw(self, job: int) -> list[Element]:
        """The job wants nothing more. The elements that it still holds, for its caller to close."""
        claim = self.claims.pop(job, None)
        if claim is not None:
            self._forget_widths(claim)
            if claim is self.rotation.waiter:
                self.rotation.lift()
        return self.ledger.of_job(job)

    def leaves(self, number: int) -> Literal["", "park", "close"]:
        """A task has ended on the element: what its holder has to do with it; "": it may pull the next one."""
        return self.rotation.leaves(number)

    def ran(self, seconds: float) -> None:
        """A task has ended on an element, after so long; patience goes by that."""
        self.rotation.ran(seconds)

    # What shall be done

    @property
    def wakes_at(self) -> float:
        """When `moves` has to be asked although nothing happens, in the records' time; infinite for never."""
        return self.rotation.wakes_at()

    def moves(self, now: float) -> Iterator[Grant | Close]:
        """What shall be done now, one by one."""
        ledger = self.ledger
        if not (ledger.touched or ledger.released or self._fresh) and now < self.wakes_at:
            return
        while True:
            if woken := self._woken():
                yield from self._fill(woken, now)
                continue
            made_room = False
            for close in self.rotation.step(now):
                made_room = True
                yield close
            if not (made_room or ledger.touched or ledger.released):
                break

    # How

    def _forget_widths(self, claim: Claim) -> None:
        for choice in claim.want.choices:
            for width, _ in choice.widths:
                self._mentioning[width].pop(claim.want.job, None)

    def _woken(self) -> list[Claim]:
        """The claims for which something may have changed since they were looked at."""
        ledger = self.ledger
        jobs = self._fresh
        self._fresh = {}
        for job, when in ledger.released.items():
            jobs[job] = None
            if job in self.claims and not ledger.cores_of.get(job):
                self._waits_from(self.claims[job], when)
        ledger.released = {}
        if ledger.touched:
            for slice_, each in enumerate(ledger.slices):
                if ledger.touched >> slice_ & 1:
                    jobs.update(self._mentioning.get(each.width, {}))
            ledger.touched = 0
        return [self.claims[job] for job in jobs if job in self.claims]

    def _waits_from(self, claim: Claim, when: float) -> None:
        claim.since = when
        claim.due = when + self.rotation.patience_s

    def _fill(self, claims: list[Claim], now: float) -> Iterator[Grant | Close]:
        ledger, rotation = self.ledger, self.rotation
        heap = [(claim.key(ledger), claim) for claim in claims]
        heapify(heap)
        barren: set[tuple[int, bool]] = set()
        while heap:
            claim = heappop(heap)[1]
            if self.claims.get(claim.want.job) is not claim:
                continue
            if any(number in ledger.elements for number in claim.evicted):
                continue
            claim.evicted = ()
            wanted = claim.open(ledger)
            claim.hungry = bool(wanted)
            may_make = rotation.may_make_copies(claim)
            for width in wanted:
                grant = None if (width, may_make) in barren else self._best(claim.want.job, width, may_make)
                if grant is None:
                    barren.add((width, may_make))
                    if not may_make or not (closing := self._evictable(width)):
                        continue
                    claim.evicted = tuple(close.element for close in closing)
                    yield from closing
                    if any(number in ledger.elements for number in claim.evicted):
                        break
                    barren.clear()
                    heappush(heap, (claim.key(ledger), claim))
                    break
                version = ledger.version
                yield grant
                if ledger.version != version:
                    if claim is rotation.waiter:
                        rotation.lift()
                    self._waits_from(claim, now)
                    heappush(heap, (claim.key(ledger), claim))
                break
            if claim.hungry:
                rotation.watch(claim)

    def _best(self, job: int, width: int, may_make: bool) -> Grant | None:
        """The element of this width that works soonest for the job, None when there is none."""
        if self._transfer_s is not None:
            return self._nearest(job, width, may_make, self._transfer_s)
        ledger = self.ledger
        if own := ledger.warm_of.get((job, width)):
            return _taken_over(own[next(reversed(own))], job)
        if warm := ledger.warm.get(width):
            return _taken_over(warm[next(iter(warm))], job)
        slices = ledger.of_width.get(width, ())
        openings = [opening for slice_ in slices if (opening := ledger.in_active(slice_)) is not None]
        if openings:
            return self._made(job, min(openings, key=lambda found: (found[0].usable.bit_count(), found[0].slice)))
        if may_make:
            for slice_ in slices:
                if (opening := ledger.in_new(slice_)) is not None:
                    return self._made(job, opening)
        return None

    def _nearest(self, job: int, width: int, may_make: bool, transfer_s: Transfer) -> Grant | None:
        """The same, with the time until the missing files are there."""
        ledger = self.ledger
        best: tuple[tuple[float, bool, int, int, int, int], Grant] | None = None

        def consider(grant: Grant, own: bool, left: int) -> None:
            nonlocal best
            seconds = grant.start_s + transfer_s(job, grant.nodes)
            key = (seconds, not own, left, grant.slice, grant.copy, grant.index)
            if best is None or key < best[0]:
                best = key, grant

        for element in ledger.warm.get(width, {}).values():
            consider(_taken_over(element, job), element.warm_of == job, element.copy.free.bit_count())
        for slice_ in ledger.of_width.get(width, ()):
            for opening in ledger.everywhere(slice_, may_make):
                copy = opening[0]
                left = copy.free.bit_count() if copy.active else ledger.cuts.elements(slice_)
                consider(self._made(job, opening), False, left)
        return None if best is None else best[1]

    def _made(self, job: int, opening: Opening) -> Grant:
        copy, index, masks = opening
        start_s = self._agent_s if copy.active else self._agent_s + self._copy_s
        nodes = self.ledger.cuts.nodes_at(copy, index)
        return Grant(job, copy.slice, copy.number, index, nodes, masks, None, start_s)

    def _evictable(self, width: int) -> list[Close]:
        """The elements of the longest unused copy of another width that is warm only, if its going can help at all."""
        ledger = self.ledger
        copies = [copy for copy in ledger.active.values() if copy.width != width and _is_warm_only(copy)]
        if not copies or not any(ledger.could_be(slice_) for slice_ in ledger.of_width.get(width, ())):
            return []
        copy = min(copies, key=lambda copy: (copy.idle_since, copy.slice, copy.number))
        why = f"its copy of {copy.width} is used by nobody, and one of {width} is wanted"
        return [Close(element.number, why) for element in copy.live.values()]


def _taken_over(element: Element, job: int) -> Grant:
    copy = element.copy
    return Grant(job, copy.slice, copy.number, element.index, element.nodes, element.masks, element.number)


def _is_warm_only(copy: Copy) -> bool:
    return not copy.busy and all(element.status == "warm" for element in copy.live.values())
