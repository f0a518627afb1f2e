"""How does a pilot stand where its journal ends, and what must the journals of its unfinished studies hold?

The pilot's journal is the truth; a study's own may lack its end, when the pilot was killed. So it is made again, and takes
the place of the one that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from cantle.core.state import State
from cantle.model.records import AnyRecord, StudyOver
from cantle.runtime.bridging import mended
from cantle.runtime.pilot.views import Views
from cantle.store.journal import read
from cantle.store.layout import Layout
from cantle.store.succession import written_beside


class Rebuilt(msgspec.Struct):
    """`records` are those of the own journals of the studies that are not over, by number."""

    state: State
    views: Views
    records: dict[int, list[AnyRecord]]


def rebuild(journal: Path, note: Callable[[str], None] = lambda _: None) -> Rebuilt:
    """Fold a pilot's journal. Damage in it is told and bridged. Raises JournalError when it cannot be read."""
    rebuilt = Rebuilt(State(), Views(), {})
    contents = read(journal)
    for record in mended(rebuilt.state, contents):
        _fold(rebuilt, record)
    for stretch in contents.damaged:
        note(f"{journal}: {stretch}; what it held is lost, and is done again where needed")
    return rebuilt


def _fold(rebuilt: Rebuilt, record: AnyRecord) -> None:
    for study, view in rebuilt.views.split(record):
        rebuilt.records.setdefault(study, []).append(view)
    if isinstance(record, StudyOver):
        rebuilt.records.pop(record.study, None)
    rebuilt.state.apply(record)


def replace_journal(layout: Layout, records: Iterable[AnyRecord]) -> None:
    """Write the records to a new journal, and when it is on disk let it take the old one's place. Raises JournalError."""
    written_beside(layout.journal, records).replace(layout.journal)
