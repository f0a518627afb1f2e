"""Records of every shape, and journals made of them, for the tests of the store."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from cantle.model.records import (
    AnyRecord,
    CancelAsked,
    Launch,
    NodesJoined,
    RunStarted,
    StudyAdded,
    TaskEnded,
    TasksAdded,
    TaskStarted,
    TimePassed,
)
from cantle.model.resources import Node, Place
from cantle.model.study import Step, Task
from cantle.store.journal import Journal

times = st.floats(min_value=0, max_value=4e9, allow_nan=False)
numbers = st.integers(min_value=0, max_value=10**7)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)

records: st.SearchStrategy[AnyRecord] = st.one_of(
    st.builds(TimePassed, times),
    st.builds(RunStarted, times, texts, texts, texts, numbers, st.lists(texts, max_size=3).map(tuple)),
    st.builds(StudyAdded, times, texts, st.just([Step("a")]), options=texts),
    st.builds(TasksAdded, times, numbers, st.lists(st.builds(Task, texts, numbers, workspace=texts), max_size=4)),
    st.builds(NodesJoined, times, st.just([Node("n", 4, gpu_ids=("0", "1"))])),
    st.builds(Launch, times, numbers, numbers, st.just((Place(0, "0-3", "1"),)), st.booleans(), texts),
    st.builds(TaskStarted, times, numbers, numbers, numbers),
    st.builds(TaskEnded, times, numbers, numbers, st.sampled_from(["done", "failed"]), detail=texts, output=texts),
    st.builds(CancelAsked, times, st.none() | st.lists(numbers, max_size=3), texts),
)


def some_ends(count: int, detail: str = "") -> list[AnyRecord]:
    return [TaskEnded(float(i), i, 1, "done", detail=detail) for i in range(count)]


def journal_of(path: Path, written: list[AnyRecord]) -> bytes:
    """The bytes of a journal with these records, made at `path`."""
    with Journal.open_new(path) as journal:
        for record in written:
            journal.write(record)
    return path.read_bytes()
