"""How does each record reach the pilot's journal, and those of the studies that it concerns?"""

from __future__ import annotations

from cantle.errors import JournalError
from cantle.model.records import AnyRecord
from cantle.runtime.pilot.views import Views
from cantle.store.journal import Journal


class SplitLog:
    """A log that writes each record to the pilot's journal, which is the truth, and then to those of its studies.

    A study's journal that cannot be written is that study's trouble: `broken` says why, by number, until somebody empties it.
    """

    def __init__(self, journal: Journal, views: Views) -> None:
        self.journal = journal
        self.views = views
        self.broken: dict[int, str] = {}
        self._open: dict[int, Journal] = {}
        self._dirty: dict[int, None] = {}

    def open(self, study: int, journal: Journal) -> None:
        """From now on the study's records go there as well."""
        self._open[study] = journal

    def leave(self, study: int) -> None:
        """From now on they do not; what was taken in before, the journal still has to write."""
        self.views.leave(study)
        self._open.pop(study, None)
        self._dirty.pop(study, None)

    def write(self, record: AnyRecord) -> None:
        """Take the record in."""
        self.journal.write(record)
        for study, view in self.views.split(record):
            journal = self._open.get(study)
            if journal is not None:
                journal.write(view)
                self._dirty[study] = None

    def flush(self) -> None:
        """Hand all that was taken in to the operating system. Raises JournalError when the pilot's own cannot be written."""
        self.journal.flush()
        if not self._dirty:
            return
        for study in self._dirty:
            try:
                self._open[study].flush()
            except JournalError as problem:
                self.broken[study] = str(problem)
        self._dirty.clear()
