"""How was a run's study read, so that its file can be read like that again?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cantle.model.study import Study
    from cantle.store.layout import Layout


def read_like_before(layout: Layout, file: Path) -> Study:
    """The study that `file` describes now, read with the reader and the options with which the run was begun.

    Raises RequestError when the journal tells of no study, JournalError when it cannot be read, and what the reader raises.
    """
    import msgspec

    from cantle.errors import RequestError
    from cantle.model.records import StudyAdded
    from cantle.plugins import reader_for
    from cantle.readers.base import ReadOptions
    from cantle.store.journal import read

    for record in read(layout.journal):
        if type(record) is StudyAdded:
            options = msgspec.json.decode(record.options or "{}", type=ReadOptions)
            study: Study = reader_for(file, record.reader).read(file, options)
            return study
    raise RequestError(f"the journal in {layout.directory} tells of no study")
