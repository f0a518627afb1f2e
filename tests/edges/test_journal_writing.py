"""Writing a journal: counts that never promise too much, disks that are full, read-only or failing."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest
from journal_samples import some_ends
from small_disk import small_disk

from cantle.errors import JournalError
from cantle.model.records import RunStarted, TaskEnded, TimePassed
from cantle.store.journal import RESERVE_BYTES, Journal, read
from cantle.store.layout import Layout


def test_a_record_is_in_memory_until_flushed_and_counted_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open_new(path) as journal:
        journal.write(TimePassed(1.0))
        journal.write(TimePassed(2.0))
        assert (journal.written, journal.flushed, journal.synced) == (2, 0, 0)
        assert list(read(path)) == []
        journal.flush()
        assert (journal.written, journal.flushed, journal.synced) == (2, 2, 0)
        assert len(list(read(path))) == 2
        journal.wait_synced()
        assert (journal.written, journal.flushed, journal.synced) == (2, 2, 2)


def test_a_flush_is_one_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    real = os.write

    def count(fd: int, data: bytes) -> int:
        sizes.append(len(data))
        return real(fd, data)

    with Journal.open_new(tmp_path / "journal.jsonl") as journal:
        monkeypatch.setattr("cantle.store.journal.os.write", count)
        for record in some_ends(100):
            journal.write(record)
        journal.flush()
        journal.flush()
        assert len(sizes) == 1


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr("cantle.store.journal.os.write", lambda fd, data: real(fd, data[:7]))
    with Journal.open_new(tmp_path / "journal.jsonl") as journal:
        for record in some_ends(5):
            journal.write(record)
    assert list(read(tmp_path / "journal.jsonl")) == some_ends(5)


def test_a_journal_is_never_begun_over_another(tmp_path: Path) -> None:
    layout = Layout(tmp_path).create()
    Journal.open_new(layout.journal).close()
    with pytest.raises(JournalError, match=f"cantle resume {tmp_path}"):
        Journal.open_new(layout.journal)


def test_names_that_are_not_unicode_do_not_end_the_run(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open_new(path) as journal:
        journal.write(RunStarted(1.0, "r", "0", "h", 1, argv=("run", os.fsdecode(b"caf\xe9.yaml"))))
    (record,) = read(path)
    assert isinstance(record, RunStarted)
    assert record.argv == ("run", "caf\N{REPLACEMENT CHARACTER}.yaml")


def test_an_abandoned_journal_is_not_touched_again(tmp_path: Path) -> None:
    """After a take-over the file, and the reserve beside it, are the other conductor's."""
    layout = Layout(tmp_path).create()
    old = Journal.open_new(layout.journal)
    old.write(TimePassed(1.0))
    old.flush()
    old.sync()
    old.write(TimePassed(2.0))
    with Journal.reopen(layout.journal) as new:
        old.abandon()
        old.close()
        assert layout.reserve.exists()
        new.write(TimePassed(3.0))
    assert list(read(layout.journal)) == [TimePassed(1.0), TimePassed(3.0)]


# Durability


def test_no_thread_is_started_before_sync_is_asked_for_and_none_is_left(tmp_path: Path) -> None:
    before = threading.active_count()
    with Journal.open_new(tmp_path / "journal.jsonl") as journal:
        journal.write(TimePassed(1.0))
        journal.flush()
        journal.wait_synced()
        assert threading.active_count() == before
        journal.write(TimePassed(2.0))
        journal.flush()
        journal.sync()
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_synced_never_runs_ahead_of_what_was_written_before_the_sync_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    durable = [0]
    real = os.fdatasync

    def slow(fd: int) -> None:
        at_begin = path.read_bytes().count(b"\n") - 1
        time.sleep(0.01)
        real(fd)
        durable.append(at_begin)

    monkeypatch.setattr("cantle.store.syncing.os.fdatasync", slow)
    with Journal.open_new(path, sync_interval_s=0.0) as journal:
        seen = set()
        deadline = time.monotonic() + 60.0
        while len(seen) <= 5 or len(durable) > journal.written / 20:
            assert time.monotonic() < deadline, "one sync covers many records"
            journal.write(TimePassed(1.0))
            journal.flush()
            journal.sync()
            synced = journal.synced
            seen.add(synced)
            assert synced <= durable[-1]
        written = journal.written
    assert durable[-1] == written


def test_waiting_for_the_disk_covers_all_that_was_flushed_and_does_not_wait_for_the_interval(tmp_path: Path) -> None:
    with Journal.open_new(tmp_path / "journal.jsonl", sync_interval_s=100_000.0) as journal:
        for _ in range(5):
            journal.write(TimePassed(1.0))
            journal.flush()
            journal.sync()
            journal.wait_synced()
            assert journal.synced == journal.written


def test_background_syncs_keep_their_distance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    monkeypatch.setattr("cantle.store.syncing.os.fdatasync", lambda fd: begun.append(time.monotonic()))
    with Journal.open_new(tmp_path / "journal.jsonl", sync_interval_s=0.1) as journal:
        opened = time.monotonic()
        while len(begun) < 5:
            assert time.monotonic() < opened + 60.0
            journal.write(TimePassed(1.0))
            journal.flush()
            journal.sync()
            time.sleep(0.001)
        during, took_s = len(begun), time.monotonic() - opened
    assert during <= took_s / 0.1 + 2


@pytest.mark.parametrize("in_background", [True, False])
def test_after_a_failed_sync_nothing_more_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_background: bool
) -> None:
    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    layout = Layout(tmp_path).create()
    journal = Journal.open_new(layout.journal)
    journal.write(TimePassed(1.0))
    journal.flush()
    monkeypatch.setattr("cantle.store.syncing.os.fdatasync", broken)
    if in_background:
        journal.sync()
    with pytest.raises(JournalError, match=f"reports an error. .* cantle resume {tmp_path}"):
        journal.wait_synced()
    asked_again: list[int] = []
    monkeypatch.setattr("cantle.store.syncing.os.fdatasync", asked_again.append)
    journal.write(TimePassed(2.0))
    with pytest.raises(JournalError, match="reports an error"):
        journal.flush()
    with pytest.raises(JournalError, match="reports an error"):
        journal.sync()
    with pytest.raises(JournalError, match="reports an error"):
        journal.wait_synced()
    assert journal.synced == 0
    assert asked_again == [], "a disk that failed once may answer with a lie"
    journal.close()
    assert list(read(layout.journal)) == [TimePassed(1.0)]


# Full, read-only and failing disks


def write_until_full(journal: Journal) -> JournalError:
    for record in some_ends(10_000, detail="d" * 100):
        journal.write(record)
        try:
            journal.flush()
        except JournalError as error:
            return error
    raise AssertionError("the disk was never full")


def test_a_full_disk_is_told_and_the_run_can_be_resumed_after_room_is_made(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * RESERVE_BYTES) as disk:
        layout = Layout(disk.path).create()
        journal = Journal.open_new(layout.journal)
        assert str(write_until_full(journal)) == (
            f"cannot write {layout.journal}: no space is left on its disk. "
            f"Make room, then go on with: cantle resume {disk.path}"
        )
        # The first error gave up the reserve; the next ones come when that is used up as well.
        write_until_full(journal)
        write_until_full(journal)
        told = journal.flushed
        assert told < journal.written
        journal.close()
        contents = read(layout.journal)
        on_disk = list(contents)
        assert len(on_disk) == told
        assert (contents.damaged, contents.torn_tail) == ([], 0)

        disk.make_room()
        with Journal.reopen(layout.journal) as journal:
            journal.write(TimePassed(3.0))
        assert list(read(layout.journal)) == [*on_disk, TimePassed(3.0)]


def test_the_last_records_find_room_in_the_reserve_when_others_fill_the_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 * RESERVE_BYTES) as disk:
        layout = Layout(disk.path).create()
        journal = Journal.open_new(layout.journal)
        disk.fill()
        told = []
        for record in some_ends(150, detail="d" * 100):
            journal.write(record)
            try:
                journal.flush()
            except JournalError as error:
                told.append(error)
        assert len(told) == 1, "the user hears of it at once, and once"
        assert journal.flushed == 150
        journal.close()
        assert list(read(layout.journal)) == some_ends(150, detail="d" * 100)


def test_records_wait_in_memory_for_a_second_try(tmp_path: Path) -> None:
    many = some_ends(3000, detail="d" * 100)
    with small_disk(tmp_path / "disk", 4 * RESERVE_BYTES) as disk:
        layout = Layout(disk.path).create()
        journal = Journal.open_new(layout.journal)
        for record in many:
            journal.write(record)
        with pytest.raises(JournalError):
            journal.flush()
        assert journal.flushed == 0
        assert list(read(layout.journal)) == []
        disk.make_room()
        journal.flush()
        journal.close()
        assert list(read(layout.journal)) == many


def test_a_disk_that_is_full_from_the_start_leaves_no_half_made_journal(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * RESERVE_BYTES) as disk:
        layout = Layout(disk.path).create()
        disk.fill()
        with pytest.raises(JournalError, match="no space is left on its disk"):
            Journal.open_new(layout.journal)
        assert not layout.exists()
        disk.make_room()
        Journal.open_new(layout.journal).close()
        assert list(read(layout.journal)) == []


def test_a_read_only_directory_is_told_for_new_and_for_resumed_runs(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 * RESERVE_BYTES) as disk:
        layout = Layout(disk.path).create()
        Journal.open_new(layout.journal).close()
        disk.make_read_only()
        with pytest.raises(JournalError, match=r"file system is read-only\. Make it writable, then .* cantle resume"):
            Journal.reopen(layout.journal)
        with pytest.raises(JournalError, match=r"file system is read-only\. Make it writable, or choose another place"):
            Journal.open_new(layout.own / "other.jsonl")
        disk.make_writable()
        Journal.reopen(layout.journal).close()


def test_a_half_written_line_that_cannot_be_cut_off_at_once_is_cut_off_before_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    real = os.write
    calls = []

    def broken(fd: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 1:
            return real(fd, data[:20])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def stuck(fd: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Journal.open_new(path) as journal:
        journal.write(TimePassed(1.0))
        with monkeypatch.context() as patch:
            patch.setattr("cantle.store.journal.os.write", broken)
            patch.setattr("cantle.store.journal.os.ftruncate", stuck)
            with pytest.raises(JournalError, match="reports an error"):
                journal.flush()
        torn = read(path)
        assert list(torn) == []
        assert torn.torn_tail == 20
        journal.flush()
        mended = read(path)
        assert list(mended) == [TimePassed(1.0)]
        assert mended.damaged == []


def test_a_reserve_is_kept_while_a_journal_is_open_and_given_back_at_its_end(tmp_path: Path) -> None:
    layout = Layout(tmp_path).create()
    with Journal.open_new(layout.journal) as journal:
        assert layout.reserve.stat().st_size == RESERVE_BYTES
        journal.write(TaskEnded(1.0, 1, 1, "done"))
    assert not layout.reserve.exists()
