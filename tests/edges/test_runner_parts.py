"""Do the runner's small parts hold: frames, words, packed ranges, the process table?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cantle.model.study import Command
from cantle.runner import gpus, processes
from cantle.runner.channel import DescriptorChannel
from cantle.runner.frames import Frames, encode, frame
from cantle.runner.keeper import Keeper
from cantle.runner.messages import Ended, Setup, Start, Started, Up
from cantle.runner.packed import Writers
from cantle.runner.wording import how_it_ended, last_lines, why_not_started

MESSAGES = st.one_of(
    st.builds(Started, st.tuples(st.integers(0, 2**31), st.integers(1, 99)), st.floats(0, 1e10), st.integers(1, 2**22)),
    st.builds(
        Ended,
        st.integers(0, 2**40),
        st.tuples(st.integers(0, 2**31), st.integers(1, 99)),
        st.floats(0, 1e10),
        st.sampled_from(["done", "failed", "memory"]),
        detail=st.text(st.characters(exclude_categories=["Cs"])),
    ),
)


@given(st.lists(st.lists(MESSAGES, max_size=4), max_size=5), st.lists(st.integers(1, 60), max_size=40))
def test_frames_come_out_as_they_went_in_however_they_are_cut(batches: list[list[Up]], cuts: list[int]) -> None:
    data = b"".join(frame([encode(message) for message in batch]) for batch in batches)
    frames: Frames[Up] = Frames(Up)
    got: list[Up] = []
    for cut in cuts:
        if data[:cut]:
            got += frames.feed(data[:cut])
        data = data[cut:]
    if data:
        got += frames.feed(data)
    assert got == [message for batch in batches for message in batch]


def test_a_full_pipe_never_blocks_and_loses_nothing() -> None:
    up_read, up_write = os.pipe()
    down_read, down_write = os.pipe()
    sender, receiver = DescriptorChannel(down_read, up_write), DescriptorChannel(up_read, down_write)
    sent = os.urandom(3_000_000)
    for at in range(0, len(sent), 700_000):
        sender.send(sent[at : at + 700_000])
    assert sender.backlog > 2_000_000
    got = bytearray()
    while len(got) < len(sent):
        got += receiver.receive()
        sender.send(b"")
    assert bytes(got) == sent
    assert sender.backlog == 0
    with pytest.raises(BlockingIOError):
        receiver.receive()
    sender.close()
    assert receiver.receive() == b""
    with pytest.raises(OSError):
        receiver.send(b"x")
    receiver.close()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (3 << 8, "exit code 3"),
        (signal.SIGSEGV, "killed by SIGSEGV"),
        (signal.SIGSEGV | 0x80, "killed by SIGSEGV (core dumped)"),
        (40, "killed by signal 40"),
        (127 << 8, "exit code 127 (command not found)"),
        (137 << 8, "exit code 137 (128 + SIGKILL)"),
        (255 << 8, "exit code 255"),
        (200 << 8, "exit code 200"),
    ],
)
def test_a_wait_status_is_said_in_words(status: int, words: str) -> None:
    assert how_it_ended(status) == words


def test_a_full_disk_is_called_a_full_disk() -> None:
    assert (
        why_not_started(OSError(28, "No space left on device"), "writing /a/b.sh")
        == "writing /a/b.sh: the disk is full"
    )


def test_last_lines_stay_within_their_range_and_bound(tmp_path: Path) -> None:
    path = tmp_path / "err"
    path.write_bytes(b"somebody else's\n" + b"one\r\ntwo\xff\n\n" + b"later\n")
    with open(path, "rb") as file:
        assert last_lines(file.fileno(), 16, 27) == "one\ntwo\ufffd"
        assert last_lines(file.fileno(), 16, 16) == ""


def test_two_attempts_never_share_a_writer_and_a_free_one_is_used_again(tmp_path: Path) -> None:
    writers = Writers(str(tmp_path), "packed/0")
    one, two = writers.take(), writers.take()
    assert not set(one.start()) & set(two.start())
    os.write(one.start()[0], b"first")
    assert one.end(False)[0] == "packed/0.0.out 0 5\tpacked/0.0.err 0 0"
    writers.give(one)
    again = writers.take()
    assert again is one
    os.write(again.start()[0], b"second")
    os.write(again.start()[1], b"oops\n")
    assert again.end(True) == ("packed/0.0.out 5 6\tpacked/0.0.err 0 5", "oops")
    one.close()
    two.close()


def test_a_wide_node_does_not_keep_hundreds_of_files_open(tmp_path: Path) -> None:
    writers = Writers(str(tmp_path), "p")
    before = len(os.listdir("/proc/self/fd"))
    taken = [writers.take() for _ in range(300)]
    for writer in taken:
        writer.start()
        writer.end(False)
    assert len(os.listdir("/proc/self/fd")) - before == 400
    for writer in taken:
        writer.close()


def test_a_task_that_truncates_its_shared_file_gets_what_is_there(tmp_path: Path) -> None:
    writers = Writers(str(tmp_path), "p")
    writer = writers.take()
    os.write(writer.start()[0], b"earlier output")
    writer.end(False)
    os.truncate(tmp_path / "p.0.out", 0)
    os.write(writer.start()[0], b"new")
    assert writer.end(False)[0].startswith("p.0.out 0 3\t")
    writer.close()


def test_on_amd_the_second_filter_counts_what_the_first_left() -> None:
    assert gpus.visible(("4", "6"), amd=True) == {
        b"CUDA_VISIBLE_DEVICES": b"0,1",
        b"HIP_VISIBLE_DEVICES": b"0,1",
        b"ROCR_VISIBLE_DEVICES": b"4,6",
        b"ZE_AFFINITY_MASK": b"4,6",
    }


def test_the_process_table_knows_children_descendants_memory_and_marks() -> None:
    script = "import subprocess, sys; subprocess.run(['sleep', '30'])"
    env = {**os.environ, "CANTLE_TASK": "12", "CANTLE_CORES": ""}
    process = subprocess.Popen([sys.executable, "-c", script], env=env, start_new_session=True)
    try:
        while not processes.descendants(process.pid):
            assert process.poll() is None
        (sleep,) = processes.descendants(process.pid)
        listed = processes.Children()
        assert process.pid in listed.pids() and listed.count() == len(listed.pids())
        assert process.pid in processes.children(os.getpid())
        assert sleep in processes._by_parent()[process.pid]
        listed.close()
        who = processes.identity(sleep)
        assert who is not None
        assert (who.parent, who.group, who.session) == (process.pid, process.pid, process.pid)
        assert processes.variables(process.pid, b"CANTLE_TASK", b"CANTLE_CORES") == (b"12", b"")
        assert processes.variables(process.pid, b"CANTLE_TASK", b"ASK") is None
        assert 2 < processes.proportional_mib([process.pid]) <= processes.resident_mib([process.pid, sleep])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert processes.identity(2**22 + 5) is None
    assert processes.children(2**22 + 5) == []


def test_without_the_kernels_list_the_children_are_found_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "30"])
    try:
        real = os.open

        def without_list(path: str, *args: int, **more: int) -> int:
            if str(path).endswith("/children"):
                raise FileNotFoundError(path)
            return real(path, *args, **more)

        monkeypatch.setattr(processes.os, "open", without_list)
        assert process.pid in (found := processes.Children()).pids() and found.count() == len(found.pids())
    finally:
        process.kill()
        process.wait()


def test_what_the_conductor_did_not_take_at_once_is_sent_also_when_there_is_nothing_new_to_tell(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    quiet_fd, other_fd = os.pipe()
    channel = DescriptorChannel(quiet_fd, write_fd)
    keeper = Keeper(channel, Setup(str(tmp_path), {}))
    missing = 3000
    for task in range(missing):
        keeper.obey(Start((task, 1), Command(argv=("/no/such/program",) * 9), ""))  # each is told to be unstartable
    frames: Frames[Up] = Frames(Up)
    keeper.push()
    assert channel.backlog
    while missing:
        told = frames.feed(os.read(read_fd, 1 << 16))
        missing -= len(told)
        keeper.push()
    assert not channel.backlog
    for fd in (read_fd, other_fd):
        os.close(fd)
    channel.close()
