"""What still holds of a run whose study was edited?

While the tasks are the same by name, the change is one record, `StudyChanged`: what reads differently runs again, and all
that follows from it. When tasks came or went, a new journal is written that begins with the changed study and with the
results that still hold, and takes the place of the old one, which is kept beside it.
"""

from __future__ import annotations

import os

from cantle.core.phases import Phase
from cantle.core.state import State
from cantle.model.records import AnyRecord, Launch, StudyChanged, TaskEnded
from cantle.model.study import Command, Commands, Step, Study
from cantle.store.journal import read
from cantle.store.layout import Layout
from cantle.store.succession import name_of_former, written_beside


def names(study: Study) -> list[str]:
    """The names of its tasks, in order."""
    return [task.name for task in study.tasks]


def difference_of(study: Study, changed: Study, layout: Layout, now: float) -> StudyChanged:
    """What became of a study whose tasks are still the same by name."""
    directory = str(layout.directory)
    old_work, new_work = study.work(directory), changed.work(directory)
    again = []
    rows = {}
    for number, (old, new) in enumerate(zip(study.tasks, changed.tasks, strict=True)):
        if (old.parents, old.after) != (new.parents, new.after) or (
            _commands(old_work, number, study.steps[old.step]) != _commands(new_work, number, changed.steps[new.step])
        ):
            again.append(number)
        if old != new or study.steps[old.step] != changed.steps[new.step]:
            rows[number] = new
    return StudyChanged(now, changed.digest, again, changed.steps if rows else [], rows)


def begin_anew_with_what_holds(
    state: State, study: Study, changed: Study, layout: Layout, opening: list[AnyRecord]
) -> int:
    """Put a journal in place that begins with the changed study and the results that still hold; how many those are.

    They keep their times, and how often they were begun: what is foreseen, and what is shown, goes by what they took.
    A result holds when the task was done, reads the same, and stands on the same tasks, whose results hold as well. Raises
    JournalError when the journal cannot be written; then the old one is still in its place.
    """
    ends = {
        record.task: record
        for record in read(layout.journal)
        if isinstance(record, TaskEnded) and record.outcome == "done"
    }
    records: list[AnyRecord] = list(opening)
    held = _what_holds(state, study, changed, str(layout.directory))
    for number, old in held.items():
        began, over, attempt = state.launched_at[old], state.ended_at[old], state.attempts[old]
        end = ends.get(old, TaskEnded(over, old, attempt, "done"))
        records.append(Launch(began, number, attempt, (), why="its result from before still holds"))
        records.append(
            TaskEnded(
                over,
                number,
                attempt,
                "done",
                cpu_s=end.cpu_s,
                peak_mib=end.peak_mib,
                output=end.output,
                started=began,
                pid=end.pid or state.pids[old],
                restarts=state.restarts.get(old, 0),
            )
        )
    _replace_journal(layout, records)
    return len(held)


def _what_holds(state: State, study: Study, changed: Study, directory: str) -> dict[int, int]:
    """The tasks of the changed study whose results hold, with the numbers that they had."""
    numbers = {name: number for number, name in enumerate(names(study))}
    old_work, new_work = study.work(directory), changed.work(directory)
    held: dict[int, int] = {}
    for number, new in enumerate(changed.tasks):
        known = numbers.get(new.name)
        if known is None or state.phases[known] != Phase.DONE:
            continue
        old = study.tasks[known]
        same = all(
            [changed.tasks[p].name for p in after] == [study.tasks[p].name for p in before]
            and held.keys() >= set(after)
            for before, after in ((old.parents, new.parents), (old.after, new.after))
        )
        if same and _commands(old_work, known, study.steps[old.step]) == _commands(
            new_work, number, changed.steps[new.step]
        ):
            held[number] = known
    return held


def _replace_journal(layout: Layout, records: list[AnyRecord]) -> None:
    """Write the records to a new journal, and only when it is on disk let it take the old one's place."""
    beside = written_beside(layout.journal, records)
    former = name_of_former(layout.journal)
    try:
        os.link(layout.journal, former)
    except OSError:  # a file system without links
        former.write_bytes(layout.journal.read_bytes())
    beside.replace(layout.journal)


def _commands(work: Commands, task: int, step: Step) -> list[Command]:
    forms = [work.command(task, 1, False, (), ())]
    if step.restartable:
        forms.append(work.command(task, 1, True, (), ()))
    return forms
