"""How does one journal take another's place? Whole and on disk, or not at all; and the one before may be kept beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cantle.model.records import AnyRecord
from cantle.store.journal import Journal


def written_beside(journal: Path, records: Iterable[AnyRecord]) -> Path:
    """A new journal with these records, on disk, which can take this one's place. Raises JournalError."""
    beside = journal.with_name("journal.new.jsonl")
    beside.unlink(missing_ok=True)
    with Journal.open_new(beside) as made:
        for record in records:
            made.write(record)
    return beside


def name_of_former(journal: Path) -> Path:
    """What this one can be called when another takes its place: a name that nothing has yet."""
    number = 1
    while (former := journal.with_name(f"journal.{number}.jsonl")).exists():
        number += 1
    return former
