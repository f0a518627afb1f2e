"""One conductor per directory: live ones are respected, dead ones never in the way (case O34)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from system_calls_rig import system_calls

from cantle.cli.main import main
from cantle.errors import LockedError, MachineError
from cantle.store import identity
from cantle.store import lock as lock_module
from cantle.store.layout import Layout
from cantle.store.lock import ConductorLock, Holder, holder

HOLD = """
import sys
from cantle.store.lock import ConductorLock
ConductorLock(sys.argv[1], "run-1").acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Layout(tmp_path / "study").create().lock


@contextmanager
def other_conductor(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def elsewhere(silent_s: float, **more: object) -> Holder:
    """A conductor on another machine that gave its last sign of life so long ago."""
    then = time.time() - silent_s
    holder = Holder("far", 4711, then, then, start=99, boot="another-boot", space="pid:[1]")
    return msgspec.structs.replace(holder, **more)


def say(path: Path, named: Holder) -> None:
    """Let the lock's file name this holder, without any lock of the kernel's."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    identity.put(fd, named)
    os.close(fd)


def locks_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock_module.fcntl, "lockf", no_locks)
    monkeypatch.setattr(lock_module.fcntl, "fcntl", no_locks)
    monkeypatch.setattr(lock_module, "_SETTLE_S", 0.02)


# One machine


def test_a_free_lock_is_taken_named_and_given_back(path: Path) -> None:
    assert holder(path) is None
    lock = ConductorLock(path, "run-1")
    lock.acquire()
    named = holder(path)
    assert named is not None
    assert (named.pid, named.run, named.host) == (os.getpid(), "run-1", os.uname().nodename)
    lock.release()
    assert holder(path) is None
    lock.release()
    with ConductorLock(path):
        assert holder(path) is not None
    assert holder(path) is None


def test_a_second_conductor_is_told_who_is_at_work_and_what_would_help(path: Path) -> None:
    with other_conductor(path) as process:
        named = holder(path)
        assert named is not None
        assert (named.pid, named.run) == (process.pid, "run-1")
        since = time.strftime("%H:%M", time.localtime(named.since))
        for take_over in (False, True):
            with pytest.raises(LockedError) as caught:
                ConductorLock(path).acquire(take_over)
            directory = path.parent.parent
            assert str(caught.value) == (
                f"another conductor (host {os.uname().nodename}, pid {process.pid}, since {since}) is at work on "
                f"{directory}. Wait until it is done, or end it: cantle cancel {directory}"
            )


def test_a_killed_conductor_leaves_the_lock_free_at_once(path: Path) -> None:
    """Case O34."""
    with other_conductor(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert holder(path) is None
        with ConductorLock(path):
            assert holder(path) is not None


def test_of_many_that_come_at_once_one_gets_the_lock(path: Path) -> None:
    contend = (
        "import sys, time\n"
        "from cantle.errors import LockedError\n"
        "from cantle.store.lock import ConductorLock\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "try: ConductorLock(sys.argv[1]).acquire()\n"
        "except LockedError: print('no', flush=True)\n"
        "else: print('yes', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", contend, str(path), str(time.time() + 0.8)]
    crowd = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    answers = [process.stdout.readline().strip() for process in crowd if process.stdout]
    for process in crowd:
        process.communicate()
    assert sorted(answers) == ["no"] * 5 + ["yes"]


def test_a_second_conductor_in_the_same_process_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(path.parent.parent)
    with ConductorLock(path):
        for name in (path, tmp_path / "alias" / ".cantle" / path.name):
            with pytest.raises(LockedError, match="this very process"):
                ConductorLock(name).acquire()


def test_looking_at_the_lock_that_this_process_holds_does_not_drop_it(path: Path) -> None:
    look = f"from cantle.store.lock import holder; print(holder({str(path)!r}) is not None)"
    lock = ConductorLock(path)
    lock.acquire()
    for _ in range(3):
        assert holder(path) is not None
        lock.heartbeat()
        with pytest.raises(LockedError):
            ConductorLock(path).acquire()
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert seen.stdout == "True\n"
    lock.release()


def test_a_forked_child_keeps_no_lock_and_its_end_takes_none_away(path: Path) -> None:
    lock = ConductorLock(path)
    lock.acquire()
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    try:
        short = os.fork()
        if short == 0:
            os._exit(0 if holder(path) is not None and not lock.held else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(short, 0)[1]) == 0
        look = f"from cantle.store.lock import holder; print(holder({str(path)!r}) is not None)"
        seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
        assert seen.stdout == "True\n", "still held after a child has ended"
        lock.release()
        with other_conductor(path):
            assert holder(path) is not None
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lock_file_of_a_conductor_that_did_not_give_it_back_in_order_is_no_obstacle(path: Path) -> None:
    """Case O34: after a crash the file still names a process, and no one removes it by hand."""
    myself = identity.myself("old")
    say(path, msgspec.structs.replace(myself, pid=1, start=identity.start_of(1)))
    assert holder(path) is None
    with ConductorLock(path):
        assert holder(path) is not None


def test_nonsense_in_the_lock_file_is_no_obstacle(path: Path) -> None:
    path.write_bytes(b"\0\xff{nonsense")
    assert holder(path) is None
    with ConductorLock(path):
        assert holder(path) is not None


def test_a_holder_whose_file_makes_no_sense_is_still_a_holder(path: Path) -> None:
    with other_conductor(path) as process:
        path.write_bytes(b"")
        assert holder(path) == Holder("?", process.pid, 0.0, 0.0)
        with pytest.raises(LockedError, match="another conductor is at work"):
            ConductorLock(path).acquire()


def test_a_lock_that_cannot_be_written_names_the_cause(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"cannot lock .*: it does not exist"):
        ConductorLock(tmp_path / "nowhere" / "conductor.lock").acquire()


# Other machines, whose locks may be out of sight


def test_a_conductor_elsewhere_that_gave_a_sign_of_life_is_respected_though_its_lock_is_unseen(path: Path) -> None:
    say(path, elsewhere(20))
    assert holder(path) is not None
    with pytest.raises(LockedError, match=r"host far, pid 4711.*life 20 s ago.*try again in 40 s, or use --take-over"):
        ConductorLock(path).acquire()
    # Its clock is ahead of ours: that is no sign of death.
    say(path, elsewhere(-3600))
    with pytest.raises(LockedError, match="try again in 60 s"):
        ConductorLock(path).acquire()


def test_a_conductor_elsewhere_that_fell_silent_is_no_obstacle(path: Path) -> None:
    say(path, elsewhere(61))
    assert holder(path) is None
    with ConductorLock(path):
        assert holder(path) is not None


def test_take_over_is_for_conductors_that_are_out_of_sight(path: Path) -> None:
    say(path, elsewhere(5))
    lock = ConductorLock(path)
    lock.acquire(take_over=True)
    named = holder(path)
    assert named is not None
    assert named.pid == os.getpid()
    lock.release()


def test_a_lock_that_the_file_server_keeps_for_a_dead_machine_can_be_taken_over(path: Path) -> None:
    with other_conductor(path) as process:
        say(path, elsewhere(300))
        with pytest.raises(LockedError, match="If you know that it has died, use --take-over"):
            ConductorLock(path).acquire()
        lock = ConductorLock(path)
        lock.acquire(take_over=True)
        named = holder(path)
        assert named is not None
        assert named.pid == os.getpid()
        assert process.poll() is None
        lock.release()
    assert [file.name for file in path.parent.glob("conductor.lock*")] == [path.name]


def test_one_whose_lock_was_taken_over_learns_it_at_its_next_sign_of_life(path: Path) -> None:
    old = ConductorLock(path)
    old.acquire()
    lock_module._put_new_file(path)
    with other_conductor(path):
        with pytest.raises(LockedError, match=r"took over .*; this one has to stop"):
            old.heartbeat()
        assert not old.held
        old.heartbeat()
        old.release()
        assert holder(path) is not None


def test_signs_of_life_are_seen_by_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = ConductorLock(path)
    lock.acquire()
    real = time.time()
    monkeypatch.setattr(lock_module.time, "time", lambda: real + 100)
    lock.heartbeat()
    named = holder(path)
    lock.release()
    assert named is not None
    assert named.heartbeat == real + 100
    assert named.since < real + 1


# File systems without locks


def test_without_locks_a_live_conductor_of_this_machine_is_respected(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with other_conductor(path) as process:
        locks_unsupported(monkeypatch)
        assert holder(path) is not None
        for take_over in (False, True):
            with pytest.raises(LockedError, match=f"pid {process.pid}"):
                ConductorLock(path).acquire(take_over)
        process.kill()
        process.wait()
        assert holder(path) is None
        with ConductorLock(path):
            assert holder(path) is not None


def test_without_locks_a_process_that_only_has_the_same_number_is_no_obstacle(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks_unsupported(monkeypatch)
    say(path, msgspec.structs.replace(identity.myself(""), start=12345))
    assert holder(path) is None
    with ConductorLock(path):
        assert holder(path) is not None


def test_without_locks_the_one_whose_name_stays_has_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks_unsupported(monkeypatch)
    monkeypatch.setattr(lock_module.time, "sleep", lambda _: say(path, elsewhere(0)))
    with pytest.raises(LockedError, match="host far"):
        ConductorLock(path).acquire()


def test_without_locks_one_that_was_taken_over_learns_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks_unsupported(monkeypatch)
    lock = ConductorLock(path)
    lock.acquire()
    lock.heartbeat()
    say(path, elsewhere(0))
    with pytest.raises(LockedError, match="took over"):
        lock.heartbeat()


def test_who_holds_a_directory_that_was_removed_learns_it(path: Path) -> None:
    lock = ConductorLock(path)
    lock.acquire()
    lock.heartbeat()
    path.unlink()
    with pytest.raises(LockedError, match="was removed while the run went on"):
        lock.heartbeat()
    assert not lock.held


def test_a_holder_of_another_day_is_named_with_its_date() -> None:
    day = time.mktime((2024, 3, 1, 12, 1, 0, 0, 0, -1))
    assert str(Holder("h", 123, day, day)) == "host h, pid 123, since 2024-03-01 12:01"


def test_a_sign_of_life_costs_three_system_calls(path: Path) -> None:
    with ConductorLock(path) as lock:
        assert system_calls(lock.heartbeat) == {"stat": 1, "pread": 1, "pwrite": 1}


def test_a_run_gives_a_sign_of_life_now_and_then_and_not_with_each_of_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs = []
    monkeypatch.setattr(ConductorLock, "heartbeat", lambda _lock: signs.append(time.monotonic()))
    out = str(tmp_path / "out")
    with pytest.raises(SystemExit) as end:
        main(["map", "sleep 0.01; true {}", "--range", "1-60", "--cores", "1", "-q", "-o", out])
    assert end.value.code == 0
    assert all(later - sooner >= 9 for sooner, later in pairwise(signs)), signs


def test_the_lock_is_one_that_works_over_nfs(path: Path) -> None:
    """`flock` locks are a kind of their own; one who asks for a POSIX lock must meet ours."""
    probe = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    except OSError: print('busy')\n"
    )
    with ConductorLock(path):
        seen = subprocess.run([sys.executable, "-c", probe, str(path)], capture_output=True, text=True, check=True)
    assert seen.stdout == "busy\n"
