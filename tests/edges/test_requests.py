"""Wishes from other processes, Maestro's own commands among them."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from system_calls_rig import system_calls

from cantle.errors import MachineError, RequestError
from cantle.model.records import CancelAsked, LimitsChanged, StopAsked, TaskEnded
from cantle.model.study import Limits
from cantle.store import requests as requests_module
from cantle.store.journal import Journal
from cantle.store.layout import Layout
from cantle.store.requests import Requests, ask


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "study").create()
    Journal.open_new(layout.journal).close()
    return layout


def maestro(*words: str) -> None:
    """Maestro's own command. Its exit status tells nothing: a successful update ends with 255."""
    command = [str(Path(sys.executable).with_name("maestro")), *words]
    subprocess.run(command, check=False, capture_output=True, timeout=200)


def test_wishes_are_heard_once_in_order_with_the_time_of_hearing(layout: Layout) -> None:
    requests = Requests(layout.directory)
    assert requests.poll() == []
    ask(layout.directory, CancelAsked(1.0, [3, 4], by="me"))
    ask(layout.directory, LimitsChanged(2.0, Limits(throttle=2)))
    ask(layout.directory, StopAsked(3.0, "lunch"))
    assert requests.poll(now=99.0) == [
        CancelAsked(99.0, [3, 4], by="me"),
        LimitsChanged(99.0, Limits(throttle=2)),
        StopAsked(99.0, "lunch"),
    ]
    assert requests.poll() == []
    assert list(layout.requests.iterdir()) == []
    assert requests.problems == []


def test_wishes_of_the_same_tick_of_the_clock_are_all_heard(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose times stand still between two wishes."""
    requests = Requests(layout.directory)
    frozen = layout.requests.stat().st_mtime_ns
    for number in range(20):
        ask(layout.directory, CancelAsked(0.0, [number]))
        os.utime(layout.requests, ns=(frozen, frozen))
        assert [wish.tasks for wish in requests.poll() if isinstance(wish, CancelAsked)] == [[number]]
        os.utime(layout.requests, ns=(frozen, frozen))


def test_a_wish_just_after_a_look_is_heard_even_when_the_next_look_is_much_later(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(requests_module.time, "monotonic", lambda: clock[0])
    requests = Requests(layout.directory)
    frozen = layout.requests.stat().st_mtime_ns
    requests.poll()
    ask(layout.directory, StopAsked(0.0))
    os.utime(layout.requests, ns=(frozen, frozen))
    clock[0] += 60.0
    assert len(requests.poll()) == 1


def test_looking_at_an_unchanged_folder_lists_nothing(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(requests_module.time, "monotonic", lambda: clock[0])
    requests = Requests(layout.directory)
    requests.poll()
    clock[0] += 60.0
    requests.poll()
    listed = []
    monkeypatch.setattr(Requests, "_files", lambda self: listed.append(1) or [])
    requests.poll()
    assert listed == []
    ask(layout.directory, StopAsked(0.0))
    requests.poll()
    assert listed == [1]


def test_a_half_written_wish_is_not_seen(layout: Layout) -> None:
    (layout.requests / ".0001.json").write_bytes(b'{"is":"StopAs')
    requests = Requests(layout.directory)
    assert requests.poll() == []
    assert requests.problems == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"is":"StopAs', "truncated"),
        (b"", "truncated"),
        (b'{"is":"CancelAsked","time":1.0,"tasks":"all"}', "tasks"),
        (msgspec.json.encode(TaskEnded(1.0, 1, 1, "done")), "TaskEnded"),
        (b"\xff\xfe\0", "malformed"),
        (b'{"is":"StopAsked","time":1.0,"more":' + b"[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_wish_is_moved_aside_and_told_once(layout: Layout, content: bytes, reason: str) -> None:
    (layout.requests / "0001.json").write_bytes(content)
    ask(layout.directory, StopAsked(0.0, "good"))
    requests = Requests(layout.directory)
    assert [wish.reason for wish in requests.poll() if isinstance(wish, StopAsked)] == ["good"]
    requests.poll()
    (problem,) = requests.problems
    assert "0001.json is not a request that Cantle knows" in problem
    assert re.search(reason, problem)
    assert (layout.requests / "0001.json.bad").read_bytes() == content


def test_a_wish_that_cannot_be_read_is_told_once_and_hurts_nobody(layout: Layout) -> None:
    (layout.requests / "0001.json").mkdir()
    ask(layout.directory, StopAsked(0.0))
    requests = Requests(layout.directory)
    assert len(requests.poll()) == 1
    assert requests.poll() == []
    (problem,) = requests.problems
    assert "cannot read the request" in problem


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_nobody_else_may_leave_a_wish_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        layout = Layout(tmp_path / "new").create()
        assert stat.S_IMODE(layout.requests.stat().st_mode) == 0o700
        layout.requests.chmod(0o777)
        layout.create()
        assert stat.S_IMODE(layout.requests.stat().st_mode) == 0o700
        Journal.open_new(layout.journal).close()
        layout.requests.rmdir()
        ask(layout.directory, StopAsked(0.0))
        assert stat.S_IMODE(layout.requests.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_a_wish_of_another_user_is_moved_aside_and_told(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may ask anything, so root gives the file away; others take themselves for somebody else."""
    ask(layout.directory, StopAsked(0.0, "not mine"))
    [foreign] = layout.requests.iterdir()
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
        ask(layout.directory, StopAsked(0.0, "mine"))
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    requests = Requests(layout.directory)
    heard = [wish.reason for wish in requests.poll() if isinstance(wish, StopAsked)]
    assert heard == (["mine"] if os.getuid() == 0 else [])
    (problem,) = requests.problems
    assert re.search(rf"{foreign.name} was left by \S.*, and this run is that of \S.* now lies in", problem)
    assert foreign.with_name(f"{foreign.name}.bad").exists()


def test_links_and_pipes_among_the_wishes_are_ignored_and_told(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(msgspec.json.encode(StopAsked(0.0)))
    (layout.requests / "1.json").symlink_to(tmp_path / "mine")
    os.mkfifo(layout.requests / "2.json")
    requests = Requests(layout.directory)
    assert (requests.poll(), requests.poll()) == ([], [])
    assert ["1.json" in requests.problems[0], "2.json" in requests.problems[1], len(requests.problems)] == [
        True,
        True,
        2,
    ]


def test_who_may_not_ask_is_told_whose_run_it_is(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, data: bytes) -> int:
        raise PermissionError(errno.EACCES, "no", str(self))

    monkeypatch.setattr(Path, "write_bytes", refused)
    with pytest.raises(MachineError, match=r"permission denied\. Make it writable"):
        ask(layout.directory, StopAsked(0.0))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(MachineError, match=r"The run is that of \S+, who alone may ask something of it"):
        ask(layout.directory, StopAsked(0.0))


def test_what_was_asked_of_a_conductor_that_has_gone_is_forgotten(layout: Layout) -> None:
    ask(layout.directory, StopAsked(0.0))
    layout.maestro_cancel.touch()
    requests = Requests(layout.directory)
    assert requests.discard() == 2
    assert requests.poll() == []
    assert not layout.maestro_cancel.exists()


def test_a_run_whose_folder_of_wishes_was_deleted_goes_on_and_hears_again(layout: Layout) -> None:
    requests = Requests(layout.directory)
    requests.poll()
    layout.requests.rmdir()
    assert requests.poll() == []
    ask(layout.directory, StopAsked(0.0))
    assert len(requests.poll()) == 1


def test_asking_where_no_run_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not the directory of a Cantle run"):
        ask(tmp_path, StopAsked(0.0))


def test_asking_where_nothing_can_be_written_says_so(layout: Layout) -> None:
    layout.requests.rmdir()
    layout.requests.write_text("in the way")
    with pytest.raises(MachineError, match=r"cannot leave a request in .*: something with that name is in the way"):
        ask(layout.directory, StopAsked(0.0))


def test_maestro_cancel_cancels_everything(layout: Layout) -> None:
    requests = Requests(layout.directory)
    maestro("cancel", "-y", str(layout.directory))
    assert layout.maestro_cancel.exists()
    assert requests.poll(now=5.0) == [CancelAsked(5.0, None, by="maestro cancel")]
    assert requests.poll() == []
    assert not layout.maestro_cancel.exists()


def test_maestro_update_changes_what_it_names_and_leaves_the_rest(layout: Layout) -> None:
    requests = Requests(layout.directory)
    limits = Limits(throttle=7, rlimit=2, fail_fast=True)
    maestro("update", "--rlimit", "5", "--", str(layout.directory))
    assert requests.poll(5.0, limits) == [LimitsChanged(5.0, Limits(throttle=7, rlimit=5, fail_fast=True))]
    assert requests.poll(6.0, limits) == []
    assert not layout.maestro_update.exists()
    maestro("update", "--sleep", "10", "--", str(layout.directory))
    assert layout.maestro_update.exists()
    assert requests.poll(7.0, limits) == []
    assert requests.problems == []
    assert not layout.maestro_update.exists()


def test_an_update_builds_on_one_that_is_heard_with_it(layout: Layout) -> None:
    ask(layout.directory, LimitsChanged(0.0, Limits(throttle=9, rlimit=9)))
    layout.maestro_update.write_text("rlimit: null\nthrottle: 0\n")
    heard = Requests(layout.directory).poll(1.0)
    assert heard[-1] == LimitsChanged(1.0, Limits(throttle=0, rlimit=9))


def test_an_update_that_is_still_being_written_is_waited_for(layout: Layout) -> None:
    requests = Requests(layout.directory)
    layout.maestro_update.write_text("")
    assert requests.poll() == []
    layout.maestro_update.write_text("throttle: 3\n")
    assert requests.poll(1.0) == [LimitsChanged(1.0, Limits(throttle=3))]


@pytest.mark.parametrize(
    "content", ["throttle: many\n", "- 1\n", "{", "throttle: -1\n", "rlimit: true\n", "!!python/x 1", "[" * 5000]
)
def test_an_update_that_makes_no_sense_is_moved_aside_and_told(layout: Layout, content: str) -> None:
    layout.maestro_update.write_text(content)
    requests = Requests(layout.directory)
    assert requests.poll() == []
    (problem,) = requests.problems
    assert ".study.update.lock is not a request that Cantle knows" in problem
    assert layout.maestro_update.with_name(".study.update.lock.bad").exists()


def test_looking_for_wishes_costs_five_system_calls_and_lists_no_folder_that_has_stood_for_a_while(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cantle.store.noticing._QUIET_S", 0.0)
    requests = Requests(layout.directory)
    requests.poll()
    assert system_calls(requests.poll) == {"open": 1, "fstat": 1, "close": 1, "stat": 2}
