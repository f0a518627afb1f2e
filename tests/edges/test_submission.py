"""Is what a study brings along for a pilot kept from others, and told from what is none of this pilot's?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cantle.errors import JournalError, RequestError
from cantle.model.records import AnyRecord, RunStarted, StudyAdded, TaskEnded, TasksAdded
from cantle.model.study import Step, Task
from cantle.runtime.pilot import submission
from cantle.runtime.pilot.address import directory_of, name_at, pilots
from cantle.runtime.pilot.splitting import SplitLog
from cantle.runtime.pilot.submission import Submission
from cantle.runtime.pilot.views import Views
from cantle.store.journal import Journal, read
from cantle.store.layout import SUBMISSION, Layout

SENT = Submission(pilot="/pilots/p", name="s", reader="maestro", digest="d", tasks=3, env={b"TOKEN": b"\xff secret"})


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    before = os.umask(0)
    yield Layout(tmp_path / "run").create()
    os.umask(before)


def test_the_submitters_environment_is_for_the_owners_eyes_only(layout: Layout) -> None:
    submission.put(layout, SENT)
    assert stat.S_IMODE((layout.own / SUBMISSION).stat().st_mode) == 0o600
    assert submission.get(layout) == SENT
    assert layout.shared
    submission.drop(layout)
    assert submission.get(layout) is None and not layout.shared


def test_a_directory_belongs_to_a_pilot_only_as_long_as_it_holds_that_very_study(layout: Layout) -> None:
    pilot = Path("/pilots/p")
    assert not submission.belongs_to(layout, pilot, 0)
    submission.put(layout, replace(SENT, number=4))
    assert submission.belongs_to(layout, pilot, 4)
    assert not submission.belongs_to(layout, pilot, 3)
    assert not submission.belongs_to(layout, Path("/pilots/q"), 4)
    (layout.own / SUBMISSION).write_bytes(b"nonsense")
    assert not submission.belongs_to(layout, pilot, 4)
    with pytest.raises(RequestError, match="cannot be read"):
        submission.get(layout)


def test_a_name_leads_to_the_users_state_directory_or_where_it_was_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    assert directory_of("night") == pilots() / "night" == tmp_path / "state/cantle/pilots/night"
    assert directory_of("./here") == tmp_path / "here"
    assert name_at("night", Path("there")) == directory_of("night") == tmp_path / "there"
    assert name_at("night", Path("elsewhere")) == directory_of("night") == tmp_path / "elsewhere"
    (pilots() / "day").mkdir()
    with pytest.raises(RequestError, match=r"lies in .*day already"):
        name_at("day", Path("there"))
    for wrong in ("", ".", "..", "-x", "a\nb"):
        with pytest.raises(RequestError, match="cannot be the name of a pilot"):
            directory_of(wrong)


class Full(Journal):
    """A journal on a full disk."""

    def flush(self) -> None:
        raise JournalError("no space is left")


def test_a_studys_journal_that_cannot_be_written_is_that_studys_trouble_alone(tmp_path: Path) -> None:
    journals = [Journal.open_new(tmp_path / name) for name in ("pilot", "good")]
    full = Full.open_new(tmp_path / "full")
    log = SplitLog(journals[0], Views())
    records: list[AnyRecord] = [
        RunStarted(0.0, "pilot", "0", "here", 1),
        StudyAdded(1.0, "full", [Step("x")]),
        TasksAdded(1.0, 0, [Task("a", 0)], 0),
        StudyAdded(2.0, "good", [Step("x")]),
        TasksAdded(2.0, 1, [Task("b", 1)], 1),
        TaskEnded(3.0, 1, 1, "done"),
    ]
    log.open(0, full)
    log.open(1, journals[1])
    for record in records:
        log.write(record)
    log.flush()
    assert log.broken == {0: "no space is left"}
    for journal in (*journals, full):
        Journal.flush(journal)
        journal.abandon()
    assert list(read(tmp_path / "pilot")) == records
    assert [type(record) for record in read(tmp_path / "good")] == [RunStarted, StudyAdded, TasksAdded, TaskEnded]
    assert list(read(tmp_path / "good"))[2:] == [TasksAdded(2.0, 0, [Task("b", 0)]), TaskEnded(3.0, 0, 1, "done")]
