"""What does a policy see that says how many nodes there should be, and what does it say?

A policy is asked with a `Look` and answers with `Want`s, at most one for each kind. Several may be asked: there shall be as
many nodes as the one who wants most asks for, and none goes that one of them would keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TypeAlias

import msgspec

from cantle.core.phases import Phase
from cantle.core.plan import Plan
from cantle.core.scaling.idle import earmarked, needed_alone_on, unused
from cantle.core.scaling.ledger import Ledger
from cantle.core.scaling.missing import Missing, Reckoning, able_kinds, reckon
from cantle.core.scaling.settings import Scaling
from cantle.core.state import State
from cantle.model.kinds import Kind
from cantle.model.resources import indexes


class Want(msgspec.Struct, frozen=True):
    """So many nodes of a kind shall be there, those on their way included and those that leave not.

    `keep`: of those that are there, this policy objects to fewer than so many; None: than `count`. `at_once`: those that are
    unused beyond that need not be kept until they have idled long enough. `why` is for people.
    """

    kind: str
    count: int
    why: str
    keep: int | None = None
    at_once: bool = False

    @property
    def least(self) -> int:
        """How many are to stay."""
        return self.count if self.keep is None else self.keep


class Look:
    """One moment, as policies see it. What costs something is reckoned when it is asked for, and once."""

    def __init__(self, plan: Plan, settings: Scaling, progress_at: float, open_ended: bool) -> None:
        assert plan.state.scaling is not None
        self.plan = plan
        self.state: State = plan.state
        self.ledger: Ledger = plan.state.scaling
        self.settings = settings
        self.progress_at = progress_at
        """When something last began or ended."""
        self.open_ended = open_ended
        """More work may come that nobody knows of yet."""
        self.wakes_at = float("inf")
        """When somebody wants to be asked again, although nothing happens."""

    @property
    def kinds(self) -> Iterable[Kind]:
        """Those that are declared."""
        return self.ledger.kinds.values()

    def have(self, kind: str) -> int:
        """How many nodes of the kind are there and may be used, or are on their way."""
        return self.ledger.usable(self.state, kind).bit_count() + self.ledger.coming(kind)

    @cached_property
    def _may_ask(self) -> bool:
        """Whether more nodes of any kind may be there at all, and something is left for which they could be."""
        if not self.unstarted:
            return False
        asked = [kind for kind in self.kinds if self.ledger.headroom(kind) > 0]
        return any(kind in asked for queue in self.state.queues for kind in able_kinds(self.state, queue.shape.needs))

    @cached_property
    def _reckoning(self) -> Reckoning:
        """What is missing."""
        found = reckon(self.state, self.settings.stays_s)
        self.wake_at(found.again_at)
        return found

    def used(self, kind: str) -> int:
        """How many nodes of the kind have work, or will soon, or somebody waits for them; those on their way included."""
        spare = self.spare & self.ledger.usable(self.state, kind)
        return self.have(kind) - (spare & ~self.soon(spare)).bit_count()

    def soon(self, spare: int) -> int:
        """Of these nodes, as bits, those that will be used before others could come in their stead."""
        return spare & self._reckoning.soon if spare and self.unstarted else 0

    def missing(self, kind: str) -> Missing:
        """How many nodes of the kind are missing, and for what; none where no more may be asked for."""
        if not self._may_ask:
            return Missing(kind)
        return self._reckoning.missing.get(kind, Missing(kind))

    @cached_property
    def spare(self) -> int:
        """The nodes, as bits, that are unused and for which nobody waits, and on which nothing lives that is needed."""
        state, survivors_s = self.state, self.settings.survivors_s
        awaited = earmarked(state, survivors_s, self._kept())
        for index in indexes(awaited):
            self.wake_at(self.ledger.idle_since(state, index) + survivors_s)
        found = unused(state) & ~awaited
        for index in indexes(found):
            if needed_alone_on(self.state, index)[0]:
                found ^= 1 << index
        return found

    def _kept(self) -> int:
        """The nodes, as bits, that the packer keeps for a task, as many as that needs."""
        kept = self.plan.memory.get(("kept", -1))
        return kept.nodes if kept is not None and self.state.totals[Phase.READY] else 0

    @property
    def unstarted(self) -> int:
        """How many tasks have not begun."""
        return self.state.totals[Phase.WAITING] + self.state.totals[Phase.READY]

    def wake_at(self, time: float) -> None:
        """Ask again then at the latest."""
        if time > self.state.now:
            self.wakes_at = min(self.wakes_at, time)


Opinion: TypeAlias = Callable[[Look], Iterable[Want]]
"""A policy that says how many nodes there should be."""
