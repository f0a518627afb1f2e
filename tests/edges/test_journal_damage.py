"""What is left of a journal after crashes and bad disks (cases O33, O34): all that was not damaged, and no more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journal_samples import journal_of, records, some_ends

from cantle.errors import JournalError
from cantle.model.records import AnyRecord, TaskEnded, TimePassed
from cantle.store.journal import Journal, read
from cantle.store.lines import HEADER

on_disk = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def fresh(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    path.unlink(missing_ok=True)
    return path


def complete_lines(data: bytes) -> int:
    """How many records of an undamaged journal's first bytes are complete."""
    return max(0, data.count(b"\n") - 1)


@on_disk
@given(written=st.lists(records, max_size=12))
def test_what_was_written_is_what_is_read(tmp_path: Path, written: list[AnyRecord]) -> None:
    path = fresh(tmp_path)
    data = journal_of(path, written)
    contents = read(path)
    assert list(contents) == written
    assert (contents.damaged, contents.torn_tail, contents.good_end) == ([], 0, len(data))
    assert contents.lines == len(written) + 1


@settings(on_disk, max_examples=6)
@given(written=st.lists(records, min_size=1, max_size=4))
def test_a_journal_cut_at_any_byte_holds_its_complete_lines_and_can_be_gone_on_with(
    tmp_path: Path, written: list[AnyRecord]
) -> None:
    path = fresh(tmp_path)
    data = journal_of(path, written)
    new = TimePassed(7.0)
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        kept = written[: complete_lines(data[:cut])]
        contents = read(path)
        assert list(contents) == kept
        assert contents.damaged == []
        assert contents.good_end + contents.torn_tail == cut
        with Journal.reopen(path) as journal:
            journal.write(new)
        assert list(read(path)) == [*kept, new]
        assert path.read_bytes().startswith(HEADER)


@on_disk
@given(written=st.lists(records, min_size=20, max_size=60), data=st.data())
def test_after_crash_upon_crash_each_complete_line_is_still_there(
    tmp_path: Path, written: list[AnyRecord], data: st.DataObject
) -> None:
    path = fresh(tmp_path)
    journal_of(path, [])
    expected: list[AnyRecord] = []
    for start in range(0, len(written), 10):
        with Journal.reopen(path) as journal:
            for record in written[start : start + 10]:
                journal.write(record)
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        expected = [*expected, *written[start : start + 10]][: complete_lines(whole[:cut])]
        assert list(read(path)) == expected


@settings(on_disk, max_examples=25)
@given(seed=st.integers(0, 2**32), blocks=st.integers(1, 3))
def test_blocks_of_zeros_cost_only_the_records_that_they_cover(tmp_path: Path, seed: int, blocks: int) -> None:
    """Case O33."""
    chance = random.Random(seed)
    written = some_ends(400, detail="x" * chance.randrange(60))
    path = fresh(tmp_path)
    data = bytearray(journal_of(path, written))
    touched: set[int] = set()
    starts = [0]
    for line in bytes(data).splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for _ in range(blocks):
        at = chance.randrange(len(data) // 4096 + 1) * 4096 if chance.random() < 0.5 else chance.randrange(len(data))
        end = min(at + 4096, len(data))
        data[at:end] = bytes(end - at)
        # A record counts as touched when a byte of it is zeroed; its newline alone does not matter.
        touched |= {i for i in range(len(written)) if starts[i + 1] < end and starts[i + 2] - 1 > at}
    path.write_bytes(data)
    contents = read(path)
    found = list(contents)
    last_is_torn = data[-1] != 0x0A
    untouched = [record for i, record in enumerate(written) if i not in touched]
    assert found == untouched or (last_is_torn and found == untouched[:-1])
    assert contents.damaged or contents.torn_tail
    assert all("zeros" in each.reason or each.line == 1 for each in contents.damaged)
    with Journal.reopen(path) as journal:
        journal.write(TimePassed(9.0))
    assert list(read(path)) == [*found, TimePassed(9.0)]


@settings(on_disk, max_examples=100)
@given(data=st.data())
def test_a_flipped_bit_is_detected_and_costs_one_record_at_most(tmp_path: Path, data: st.DataObject) -> None:
    written = some_ends(5, detail='quotes " and {"is":"braces"}')
    path = fresh(tmp_path)
    content = bytearray(journal_of(path, written))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    contents = read(path)
    found = list(contents)
    assert contents.damaged or contents.torn_tail
    missing = [record for record in written if record not in found]
    assert len(missing) <= 1
    assert found == [record for record in written if record not in missing]
    for damage in contents.damaged:
        assert damage.offset <= at <= damage.offset + damage.length


def test_damage_is_told_with_line_offset_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    data = journal_of(path, some_ends(3))
    lines = data.splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"task":1', b'"task":2')
    path.write_bytes(b"".join(lines))
    contents = read(path)
    assert [record.task for record in contents if isinstance(record, TaskEnded)] == [0, 2]
    offset = len(lines[0]) + len(lines[1])
    assert str(contents.damaged[0]) == (
        f"line 3 (byte {offset}, {len(lines[2])} bytes): its checksum does not fit its content"
    )


def test_a_sound_record_of_an_unknown_kind_is_told_as_such(tmp_path: Path) -> None:
    from zlib import crc32

    path = tmp_path / "journal.jsonl"
    data = journal_of(path, some_ends(1))
    body = b'{"is":"ReactorMelted","time":1.0'
    path.write_bytes(data + body + b',"crc":"%08x"}\n' % crc32(body))
    contents = read(path)
    assert len(list(contents)) == 1
    assert "this version of Cantle does not know" in contents.damaged[0].reason
    assert "ReactorMelted" in contents.damaged[0].reason


def test_a_newer_format_is_refused_by_readers_and_writers(tmp_path: Path) -> None:
    from cantle.store.lines import _header

    path = tmp_path / "journal.jsonl"
    path.write_bytes(_header(2) + b"something else\n")
    for attempt in (lambda: list(read(path)), lambda: Journal.reopen(path)):
        with pytest.raises(JournalError, match="has format 2, and this version of Cantle reads format 1"):
            attempt()
    assert path.read_bytes().endswith(b"something else\n")


@pytest.mark.parametrize("foreign", [b"hello", b"hello\n", b"a,b\n" * 1000, b'{"cantle":"other"}\n', b"\xff" * 300])
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path, foreign: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(foreign)
    with pytest.raises(JournalError, match="not a Cantle journal"):
        list(read(path))
    with pytest.raises(JournalError, match="not a Cantle journal"):
        Journal.reopen(path)
    assert path.read_bytes() == foreign


def test_a_missing_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"cannot read the journal .*journal\.jsonl: it does not exist"):
        list(read(tmp_path / "journal.jsonl"))


def test_a_line_longer_than_a_chunk_is_one_record(tmp_path: Path) -> None:
    written: list[AnyRecord] = [TimePassed(1.0), *some_ends(2, detail="y" * 3_000_000), TimePassed(2.0)]
    path = tmp_path / "journal.jsonl"
    journal_of(path, written)
    assert list(read(path)) == written


def test_reading_a_large_journal_needs_little_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "journal.jsonl"
    size = len(journal_of(path, some_ends(100_000, detail="z" * 50)))
    assert size > 12_000_000
    tracemalloc.start()
    try:
        assert sum(1 for _ in read(path)) == 100_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
