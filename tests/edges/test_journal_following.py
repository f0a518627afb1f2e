"""Following a journal that another process writes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from journal_samples import journal_of, some_ends

from cantle.errors import JournalError
from cantle.model.records import AnyRecord, TimePassed
from cantle.store.journal import Journal, follow, read


def with_a_gap_in_the_third(path: Path) -> bytes:
    """A journal of five ends, in the third of which zeros stand; what it should be."""
    data = journal_of(path, some_ends(5))
    start = data.index(b'"task":2')
    path.write_bytes(data[:start] + bytes(20) + data[start + 20 :])
    return data


def test_records_arrive_as_they_are_flushed_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    follower = follow(path)
    assert follower.poll() == []
    with Journal.open_new(path) as journal:
        assert follower.poll() == []
        for record in some_ends(3):
            journal.write(record)
            assert follower.poll() == []
            journal.flush()
            assert follower.poll() == [record]
            assert follower.poll() == []
    assert follower.damaged == []
    assert follower.restarts == 0


def test_whatever_the_pieces_in_which_the_file_grows_each_record_is_seen_once(tmp_path: Path) -> None:
    data = journal_of(tmp_path / "whole.jsonl", some_ends(50))
    chance = random.Random(1)
    path = tmp_path / "journal.jsonl"
    follower = follow(path)
    seen: list[AnyRecord] = []
    done = 0
    with open(path, "wb", buffering=0) as file:
        while done < len(data):
            size = chance.randrange(1, 200)
            file.write(data[done : done + size])
            done += size
            seen += follower.poll()
            assert len(seen) == max(0, data[:done].count(b"\n") - 1)
    assert seen == some_ends(50)


def test_an_unfinished_line_that_a_resumed_run_cuts_off_does_not_confuse(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    data = journal_of(path, some_ends(3))
    path.write_bytes(data[:-10])
    follower = follow(path)
    assert follower.poll() == some_ends(2)
    with Journal.reopen(path) as journal:
        journal.write(TimePassed(5.0))
        journal.write(TimePassed(6.0))
    assert follower.poll() == [TimePassed(5.0), TimePassed(6.0)]
    assert (follower.damaged, follower.restarts) == ([], 0)


@pytest.mark.parametrize("how", ["replaced", "truncated"])
def test_another_file_in_the_same_place_is_noticed_and_read_from_its_start(tmp_path: Path, how: str) -> None:
    path = tmp_path / "journal.jsonl"
    journal_of(path, some_ends(9))
    follower = follow(path)
    assert len(follower.poll()) == 9
    other = journal_of(tmp_path / "other.jsonl", [TimePassed(1.0)] * (20 if how == "replaced" else 2))
    if how == "replaced":
        (tmp_path / "other.jsonl").replace(path)
    else:
        path.write_bytes(other)
    assert set(map(type, follower.poll())) == {TimePassed}
    assert follower.restarts == 1
    assert follower.poll() == []


def test_following_goes_on_where_a_reading_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal_of(path, some_ends(4))
    contents = read(path)
    assert len(list(contents)) == 4
    follower = follow(path, after=contents)
    assert follower.poll() == []
    with Journal.reopen(path) as journal:
        journal.write(TimePassed(5.0))
    assert follower.poll() == [TimePassed(5.0)]


def test_a_line_whose_blocks_have_not_all_arrived_is_given_time(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    data = with_a_gap_in_the_third(path)
    follower = follow(path, patience_s=600.0)
    assert follower.poll() == some_ends(2)
    assert follower.poll() == []
    with open(path, "r+b") as file:
        file.write(data)
    assert follower.poll() == some_ends(5)[2:]
    assert follower.damaged == []


def test_a_line_that_stays_damaged_is_told_and_passed_by(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with_a_gap_in_the_third(path)
    follower = follow(path, patience_s=0.05)
    assert follower.poll() == some_ends(2)
    time.sleep(0.06)
    assert follower.poll() == some_ends(5)[3:]
    contents = read(path)
    assert list(contents) == [*some_ends(2), *some_ends(5)[3:]]
    assert follower.damaged == contents.damaged
    assert follower.damaged[0].line == 4


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    from zlib import crc32

    body = b'{"cantle":"journal","format":9'
    path = tmp_path / "journal.jsonl"
    path.write_bytes(body + b',"crc":"%08x"}\n' % crc32(body))
    with pytest.raises(JournalError, match="format 9"):
        follow(path).poll()


def test_a_line_longer_than_a_chunk_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written = [*some_ends(2, detail="y" * 3_000_000), TimePassed(1.0)]
    data = journal_of(path, written)
    follower = follow(path)
    path.write_bytes(data[:-100])
    assert follower.poll() == written[:1]
    path.write_bytes(data)
    assert follower.poll() == written[1:]


WRITER = """
import sys, time
from cantle.model.records import TimePassed
from cantle.store.journal import Journal
journal = Journal.open_new(sys.argv[1])
for i in range(2000):
    journal.write(TimePassed(float(i)))
    if i % 7 == 0:
        journal.flush()
journal.close()
"""


def test_another_process_is_followed_while_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    follower = follow(path)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as writer:
        seen: list[AnyRecord] = []
        deadline = time.monotonic() + 120
        while len(seen) < 2000 and time.monotonic() < deadline:
            seen += follower.poll()
        assert writer.wait(60) == 0
    assert seen == [TimePassed(float(i)) for i in range(2000)]


def test_following_leaks_no_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal_of(path, some_ends(1))
    before = len(os.listdir("/proc/self/fd"))
    follower = follow(path)
    for _ in range(100):
        follower.poll()
    next(iter(read(path)))
    assert len(os.listdir("/proc/self/fd")) == before
