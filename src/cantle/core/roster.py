"""Which partitions are there, and whose are they? Empty in most runs, so that what partitions are is loaded with the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cantle.core.partitions import Partition
    from cantle.model import records as r

ALL = -1
"""In the place of a study's number: what belongs to none of them, and is there for all."""
Key: TypeAlias = tuple[int, str]
"""Whose a partition is, a study's or `ALL`, and its name: two studies may use one name for two partitions."""


class Partitions:
    """All partitions of a run, by number; those that have slots or may get some; and the living ones by owner and name."""

    __slots__ = ("all", "by_name", "failures", "living", "requests", "withheld")

    def __init__(self) -> None:
        self.all: list[Partition] = []
        self.living: dict[int, Partition] = {}
        """Those that are not over, or still have slots."""
        self.by_name: dict[Key, Partition] = {}
        """Those that are not over."""
        self.requests: dict[Key, r.ElementsAsked] = {}
        """Who wants elements of slices, by his name; one who wants nothing more stays known, without a want."""
        self.withheld: dict[Key, str] = {}
        """Names that somebody took away by draining or canceling, and how: nobody but a person makes those again."""
        self.failures: dict[Key, int] = {}
        """How often in a row a partition of that name failed before any task of it was done."""

    def last_of(self, study: int, name: str) -> Partition | None:
        """The study's own partition of that name, the last one of them that there was; also when that is over."""
        own = self.by_name.get((study, name))
        if own is not None:
            return own
        return next((each for each in reversed(self.all) if each.name == name and each.study == study), None)

    def asked_for(self, study: int, name: str) -> Partition | None:
        """The living partition that somebody means who asks for a study: its own, else one that is there for all.

        Who asks for no study in particular means the one that is there for all, else the only one of that name.
        """
        own = self.by_name.get((study, name))
        if own is not None:
            return own
        if study == ALL:
            named = [partition for partition in self.by_name.values() if partition.name == name]
            return named[0] if len(named) == 1 else None
        shared = self.by_name.get((ALL, name))
        return shared if shared is not None and shared.is_seen_by(study) else None
