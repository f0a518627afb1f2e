"""How is a run taken up again where its journal ends, with the study that it had or a changed one?

The order matters here as well: the processes of the earlier conductor are gone before the journal is written to, and a changed
study lies beside the one before until the journal says that it has taken its place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import structs

from cantle.core.state import State
from cantle.engines.remains import await_runners, clear_leftovers, end_strays, leftovers
from cantle.errors import RequestError
from cantle.model.records import AnyRecord, RunResumed, RunStarted, StudyAdded
from cantle.model.study import Study
from cantle.runtime.bridging import mended
from cantle.runtime.changing import begin_anew_with_what_holds, difference_of, names
from cantle.runtime.conducting import Conductor, copy_for_people, keep, opening, tasks_from
from cantle.runtime.whereabouts import job_around, standing_in
from cantle.store.journal import Journal, read
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock

RUNNERS_PATIENCE_S = 15.0


class Writes(Protocol):
    """Who keeps a journal and its state."""

    state: State
    journal: Journal

    def record(self, *records: AnyRecord) -> None:
        """Write records down and apply them."""


def resume(
    layout: Layout,
    reopen: Callable[[str, Path], Study],
    *,
    changed: Study | None = None,
    retry: bool = True,
    take_over: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Conductor | None:
    """Go on with a run where its journal ends; None when all of it is done and nothing changed.

    `reopen(reader, folder)` makes its study again. `changed` is the study as it reads now, whose changed tasks shall run
    again. `retry`: tasks that failed get a new chance. Raises RequestError when the study does not fit the journal.
    """
    layout.require()
    lock = ConductorLock(layout.lock)
    lock.acquire(take_over)
    try:
        state = replay(layout, note)
        if not state.studies:
            raise RequestError(f"the run in {layout.directory} ended before its study was written down; begin it anew")
        if state.succeeded and changed is None:
            lock.release()
            return None
        await_runners(str(layout.nodes), RUNNERS_PATIENCE_S)
        if ended := end_strays(str(layout.directory)):
            note(f"{ended} processes of the earlier conductor were still there, and were ended")
        study = _reopened(state, layout, reopen, note)
        _require_same_tasks(state, study, layout)
        journal = Journal.reopen(layout.journal)
    except BaseException:
        lock.release()
        raise
    conductor = Conductor(layout, lock, journal, state, study.work(str(layout.directory)))
    try:
        conductor.record(*tasks_from(study, len(state.tasks), conductor.inbox.now()))
        take_in_results(conductor, str(layout.nodes))
        difference = None
        if changed is not None and names(changed) == names(study):
            difference = difference_of(study, changed, layout, conductor.inbox.now())
        elif changed is not None:
            keep(changed, _beside(layout))
            kept = begin_anew_with_what_holds(
                state, study, changed, layout, _opening_again(state, changed, layout, conductor.inbox.now())
            )
            _exchange(layout)
            note(f"the study has other tasks now; results that still hold: {kept:,} of {len(changed.tasks):,}")
            conductor.journal.close()
            conductor.take_up(Journal.reopen(layout.journal), replay(layout), changed)
        if forgotten := conductor.requests.discard():
            note(f"{forgotten} requests to the earlier conductor are forgotten")
        now = conductor.inbox.now()
        known = len(conductor.state.partitions.all)
        conductor.record(resumed(now, retry, known))
        if changed is not None:
            copy_for_people(changed, layout)
        if changed is not None and difference is not None:
            # Kept beside, written down, put into its place: dying in between leaves what the next resume can tell apart.
            keep(changed, _beside(layout))
            conductor.record(difference)
            conductor.journal.wait_synced()
            _exchange(layout)
            conductor.work = changed.work(str(layout.directory))
            again = len(difference.tasks)
            note(
                f"tasks that have changed: {again:,} of {len(state.tasks):,}; they and what follows from them run again"
            )
    except BaseException:
        conductor.close()
        raise
    return conductor


def replay(layout: Layout, note: Callable[[str], None] = lambda _: None) -> State:
    """The state in which the journal leaves the run; damage in it is told and bridged."""
    state = State()
    contents = read(layout.journal)
    for record in mended(state, contents):
        state.apply(record)
    for stretch in contents.damaged:
        note(f"{layout.journal}: {stretch}; what it held is lost, and is done again where needed")
    return state


def resumed(now: float, retry: bool, partitions: int) -> RunResumed:
    """This process goes on with the run; so many partitions were known."""
    return RunResumed(
        now, os.uname().nodename, os.getpid(), retry, partitions, tuple(sys.argv), job_around(), cwd=standing_in()
    )


def _opening_again(state: State, study: Study, layout: Layout, now: float) -> list[AnyRecord]:
    """The first records of the same run with another study.

    The run began when it did, and so its tasks were there; the study enters now, so that nothing has waited since.
    """
    before = state.studies[0]
    run = state.run
    argv = run.argv if run else ()
    records = opening(study, layout, before.added.reader, before.limits, before.added.options, argv, now)
    began = state.started_at or records[0].time
    if run is not None and isinstance(records[0], RunStarted):
        records[0] = structs.replace(records[0], host=run.host, job=run.job, cwd=run.cwd)
    return [record if isinstance(record, StudyAdded) else structs.replace(record, time=began) for record in records]


def _beside(layout: Layout) -> Path:
    """Where the files of a changed study are kept until the change is written down."""
    return layout.study.with_name("study.new")


def _exchange(layout: Layout) -> None:
    """Put the changed study's files into their place."""
    from shutil import rmtree

    if layout.study.exists():
        rmtree(layout.study)
    _beside(layout).rename(layout.study)


def _reopened(state: State, layout: Layout, reopen: Callable[[str, Path], Study], note: Callable[[str], None]) -> Study:
    """The study as the journal knows it, also when a conductor died while it exchanged the files of a changed one."""
    known = state.studies[0]
    if _beside(layout).exists():
        changed = reopen(known.added.reader, _beside(layout))
        if changed.digest == known.digest:
            _exchange(layout)
            return changed
    study = reopen(known.added.reader, layout.study)
    if study.digest != known.digest:
        note(f"the copy of the study in {layout.study} is not what the run was begun with: was it edited by hand?")
    return study


def _require_same_tasks(state: State, study: Study, layout: Layout) -> None:
    known = [task.name for task in state.tasks]
    if [task.name for task in study.tasks[: len(known)]] != known or (
        len(known) < len(study.tasks) and len(known) >= state.promised
    ):
        raise RequestError(
            f"the copy of the study in {layout.study} makes other tasks than the run was begun with. "
            "Was it edited by hand? Begin a new run, or put the copy back as it was."
        )


def take_in_results(conductor: Writes, home: str) -> None:
    """Results that no conductor lived to write down lie where the runners left them.

    Attempts that ended because their conductor went away are not among them: resuming sends those back anyway.
    """
    running = conductor.state.running
    for event in leftovers(home):
        launch = running.get(event.task)
        # What was written down, and only the word of that did not reach the runner any more, is not written down again.
        if launch is not None and launch.attempt == event.attempt and event.outcome != "lost":
            conductor.record(event)
    conductor.journal.wait_synced()
    clear_leftovers(home)
