"""How is a journal read on behind damage?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cantle.core.mend import Mender
    from cantle.core.state import State
    from cantle.model.records import AnyRecord
    from cantle.store.reading import JournalContents


def mended(state: State, contents: JournalContents) -> Iterator[AnyRecord]:
    """The records, and behind damage what makes sense of them; each is to be applied to the state before the next."""
    mender: Mender | None = None
    known = 0
    for record in contents:
        if len(contents.damaged) > known:
            from cantle.core.mend import Mender

            known = len(contents.damaged)
            mender = mender or Mender()
            mender.gap()
        if mender is None:
            yield record
        else:
            yield from mender.mended(state, record)
