"""How does a study leave a pilot that is not up, so that it can be gone on with by itself?

Its journal is made whole from the pilot's, and from what the pilot's runners left behind. Then the submission is removed: from
that moment it is a run like any other, and the pilot's next conductor takes it for gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cantle.engines.remains import await_runners, leftovers
from cantle.errors import MachineError, RequestError
from cantle.model.records import AnyRecord
from cantle.runtime.pilot import submission
from cantle.runtime.pilot.rebuilding import rebuild, replace_journal
from cantle.runtime.resuming import RUNNERS_PATIENCE_S
from cantle.store.failures import in_words
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock, holder


def take_out(layout: Layout, note: Callable[[str], None]) -> None:
    """Make the study in this directory a run by itself; nothing happens if it is one.

    Raises RequestError when its pilot is up, or never took it in; LockedError when somebody is at work on either directory.
    """
    sent = submission.get(layout)
    if sent is None:
        return
    pilot = Layout(sent.pilot)
    if sent.number < 0:
        raise RequestError(f"the study in {layout.directory} was never taken in by the pilot in {pilot.directory}")
    busy = holder(pilot.lock) if pilot.lock.exists() else None
    if busy is not None:
        raise RequestError(
            f"the study in {layout.directory} belongs to the pilot in {pilot.directory}, which is up ({busy}) and goes on "
            "with it by itself"
        )
    if pilot.exists():
        note(f"the study is taken out of the pilot in {pilot.directory}")
        with ConductorLock(pilot.lock), ConductorLock(layout.lock):
            replace_journal(layout, _own_records(pilot, layout, sent.number))
            _drop(layout)
        return
    note(f"the pilot in {pilot.directory} is not there any more; what the study's own journal holds has to do")
    _drop(layout)


def _own_records(pilot: Layout, layout: Layout, number: int) -> list[AnyRecord]:
    """All that happened to the study, as its own journal tells it."""
    await_runners(str(pilot.nodes), RUNNERS_PATIENCE_S)
    rebuilt = rebuild(pilot.journal)
    records = rebuilt.records.get(number)
    if records is None or rebuilt.state.studies[number].added.directory != str(layout.directory):
        raise RequestError(
            f"the pilot in {pilot.directory} does not know the study in {layout.directory}: submit it again"
        )
    for event in leftovers(str(pilot.nodes)):
        launch = rebuilt.state.running.get(event.task)
        if launch is not None and launch.attempt == event.attempt and event.outcome != "lost":
            rebuilt.state.apply(event)
            records += [view for study, view in rebuilt.views.split(event) if study == number]
    return records


def _drop(layout: Layout) -> None:
    try:
        submission.drop(layout)
    except OSError as error:
        raise MachineError(f"cannot write {layout.own}: {in_words(error)}. Mend that, and try again.") from error


def pilot_of(layout: Layout) -> tuple[Path, int] | None:
    """The pilot's directory and the study's number there, while it belongs to a pilot; None otherwise."""
    try:
        sent = submission.get(layout)
    except RequestError:
        return None
    return (Path(sent.pilot), sent.number) if sent is not None and sent.number >= 0 else None
