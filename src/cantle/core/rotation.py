"""Who has waited too long for an element, and who makes room for him?

Elements are not taken by force, so without this a job that always has more work could keep its elements, and with them
its copies' places under the cap, for ever. A job whose patience has ended may become the *waiter*, one at a time, those
that hold nothing first, then by how long they have waited. For its sake either a copy of another width drains (nothing more
is granted from it, its holders finish what runs and pull nothing more), and meanwhile nobody else makes a copy; or a holder
of the very width gives up one element when a task ends on it. When the waiter is served or withdraws, all that is lifted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Literal

import msgspec

from cantle.core.elements import Copy
from cantle.core.slices import Ledger
from cantle.core.wants import Claim

PATIENCES = 3.0
"""A job waits so many times the mean time of a task, before others make room for it."""
UNKNOWN_PATIENCE_S = 30.0
"""As long as no task has ended."""


class Close(msgspec.Struct, frozen=True):
    """The decision to end a warm element."""

    element: int
    why: str


class Rotation:
    """The waiter, and what was asked of others for it."""

    def __init__(self, ledger: Ledger, claims: dict[int, Claim], patience_s: float = 0.0) -> None:
        self.ledger = ledger
        self.claims = claims
        self.waiter: Claim | None = None
        self.draining: Copy | None = None
        self.pressed: tuple[int, int, int] | None = None
        """Which job shall give up an element of which width, until it holds fewer than so many."""
        self._watched: list[tuple[float, int]] = []
        """A heap of when whose patience ends; entries may be out of date."""
        self._patience_s = patience_s
        self._mean_s = 0.0
        self._ran = 0

    def ran(self, seconds: float) -> None:
        """A task has ended on an element, after so long."""
        self._ran += 1
        self._mean_s += (seconds - self._mean_s) / min(self._ran, 50)

    @property
    def patience_s(self) -> float:
        """How long a job waits before others make room for it."""
        if self._patience_s:
            return self._patience_s
        return PATIENCES * self._mean_s if self._ran else UNKNOWN_PATIENCE_S

    def may_make_copies(self, claim: Claim) -> bool:
        """Whether the job may have a copy made active, or one evicted: while one drains for a waiter, that one alone."""
        return self.draining is None or claim is self.waiter

    def leaves(self, number: int) -> Literal["", "park", "close"]:
        """What a holder has to do with an element on which a task has just ended; "": it may go on."""
        element = self.ledger.elements.get(number)
        if element is None or element.status != "held":
            return ""
        if element.copy.draining:
            return "close"
        if self.pressed is not None:
            job, width, count = self.pressed
            if (element.job, element.width) == (job, width) and self.ledger.has(job, width) >= count:
                return "park"
        return ""

    def lift(self) -> None:
        """Nobody waits any more: what was asked of others is over."""
        if self.waiter is None:
            return
        self.waiter = self.pressed = None
        if self.draining is not None:
            self.ledger.drain(self.draining, False)
            self.draining = None
        self.ledger.touch_all()

    def watch(self, claim: Claim) -> None:
        """The job has to wait; when its patience ends, others shall make room for it."""
        if claim.watched != claim.due:
            claim.watched = claim.due
            heappush(self._watched, (claim.due, claim.want.job))

    def wakes_at(self) -> float:
        """When the next patience ends that can matter, in the records' time; infinite when none does."""
        if self.waiter is not None:
            return math.inf
        watched, version = self._watched, self.ledger.version
        while watched:
            claim = self._claim_of(*watched[0])
            if claim is None:
                heappop(watched)
            elif claim.tried != version:
                return claim.due
            else:  # nothing has changed since it could not be helped; perhaps somebody else can
                found = (self._claim_of(*entry) for entry in watched)
                return min((c.due for c in found if c is not None and c.tried != version), default=math.inf)
        return math.inf

    def step(self, now: float) -> Iterator[Close]:
        """See to it that somebody makes room for whoever has waited too long; the warm elements that close for that."""
        waiter = self.waiter
        if waiter is not None:
            if self._under_way(waiter):
                return
            if self._makes_room(waiter):
                yield from self._warm_ones()
                return
            self.lift()
            self._later(waiter, now)
        ledger = self.ledger
        ripe = []
        while self._watched and self._watched[0][0] <= now:
            if (claim := self._claim_of(*heappop(self._watched))) is not None:
                claim.watched = -math.inf
                ripe.append(claim)
        ripe.sort(key=lambda c: (bool(ledger.cores_of.get(c.want.job)), c.since, c.want.job))
        for claim in ripe:
            if self.waiter is not None:
                self.watch(claim)
            elif claim.tried != ledger.version and self._makes_room(claim):
                self.waiter = claim
                self.watch(claim)
            else:
                self._later(claim, now)
        yield from self._warm_ones()

    # How

    def _claim_of(self, due: float, job: int) -> Claim | None:
        """The claim that is watched until then, None when that is out of date."""
        claim = self.claims.get(job)
        return claim if claim is not None and claim.hungry and claim.watched == due == claim.due else None

    def _later(self, claim: Claim, now: float) -> None:
        """Nobody can help it. It asks again after another patience."""
        claim.tried = self.ledger.version
        claim.due = now + self.patience_s
        self.watch(claim)

    def _under_way(self, waiter: Claim) -> bool:
        """Whether what was asked for the waiter has yet to come."""
        ledger = self.ledger
        if self.draining is not None and self.draining.draining:
            return True
        if self.pressed is not None:
            job, width, count = self.pressed
            if ledger.has(job, width) >= count:
                return True
        wanted = waiter.open(ledger)
        return any(e.status == "closing" and e.width in wanted for e in ledger.elements.values())

    def _makes_room(self, claim: Claim) -> bool:
        """Find somebody who can, and ask it of him."""
        self.draining = self.pressed = None
        wanted = claim.open(self.ledger)
        holds_nothing = not self.ledger.cores_of.get(claim.want.job)
        self.pressed = self._holder(claim, wanted, only_above_share=True)
        if self.pressed is None and holds_nothing:
            self.draining = self._to_drain(wanted)
            if self.draining is None:
                self.pressed = self._holder(claim, wanted, only_above_share=False)
        return self.pressed is not None or self.draining is not None

    def _holder(self, claim: Claim, wanted: list[int], only_above_share: bool) -> tuple[int, int, int] | None:
        """Who shall give up an element of a wanted width: he that holds most for his weight.

        Above his share is who would not hold less than the waiter afterwards.
        """
        ledger, job = self.ledger, claim.want.job
        for width in wanted:
            holders = [other for other, held in ledger.held.items() if other != job and held.get(width)]
            if not holders:
                continue
            holder = max(holders, key=lambda other: (ledger.cores_of[other] / self._weight(other), other))
            count = ledger.has(holder, width)
            if only_above_share:
                cores = next(e.cores for e in ledger.elements.values() if e.job == holder and e.width == width)
                mine = (ledger.cores_of.get(job, 0) + cores) / claim.want.weight
                if (ledger.cores_of[holder] - cores) / self._weight(holder) < mine:
                    continue
            return holder, width, count
        return None

    def _weight(self, job: int) -> float:
        claim = self.claims.get(job)
        return claim.want.weight if claim is not None else 1.0

    def _to_drain(self, wanted: list[int]) -> Copy | None:
        """The copy of an unwanted width with the fewest elements at work, if its going can help at all."""
        ledger = self.ledger
        copies = [copy for copy in ledger.active.values() if copy.width not in wanted]
        slices = [slice_ for width in wanted for slice_ in ledger.of_width.get(width, ())]
        if not copies or not any(ledger.could_be(slice_) for slice_ in slices):
            return None
        return min(copies, key=lambda copy: (copy.busy, copy.slice, copy.number))

    def _warm_ones(self) -> Iterator[Close]:
        """Begin the drain: what is warm in the copy closes at once."""
        copy = self.draining
        if copy is None or self.waiter is None:
            return
        self.ledger.drain(copy, True)
        width = self.ledger.slices[copy.slice].width
        for element in list(copy.live.values()):
            if element.status == "warm":
                yield Close(element.number, f"its copy of {width} drains for job {self.waiter.want.job}")
