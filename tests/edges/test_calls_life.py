"""Does a called function get what it was given, and does what becomes of it come back, whatever it does?"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from calls_rig import CallRig, Taken
from msgspec.structs import replace
from runner_rig import a_long_sleep, eventually, is_alive, output, packed, running_with, shell

from cantle.errors import RemoteError
from cantle.model.resources import Node

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def add(left: Any, right: Any = 1) -> Any:
    return left + right


def whoami() -> tuple[int, str, str, str]:
    return os.getpid(), os.environ["CANTLE_TASK"], os.environ["CANTLE_ATTEMPT"], os.environ["CANTLE_CORES"]


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def wait_for(file: str) -> None:
    while not os.path.exists(file):
        time.sleep(0.02)


def say(text: str, problem: str = "") -> None:
    print(text)
    print(problem, end="", file=sys.stderr)


def fail(error: BaseException) -> None:
    raise error


def test_a_call_returns_its_value_and_the_next_one_goes_to_the_same_worker(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        assert r.call(0, add, 2, 3).outcome == "done"
        assert r.value(0) == 5
        r.call(1, whoami)
        r.call(2, whoami)
        first, second = r.value(1), r.value(2)
    assert first == (first[0], "1", "1", "0")
    assert second == (first[0], "2", "1", "0")


def test_a_call_takes_the_results_of_others_wherever_they_stand_in_its_arguments(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, add, 2, 3)
        r.call(1, add, [1], [2])
        r.call(2, add, Taken(0), 10)
        r.call(3, add, [Taken(0), {"deep": Taken(1)}], [Taken(0)])
        assert r.value(2) == 15
        assert r.value(3) == [5, {"deep": [1, 2]}, 5]


def test_what_a_call_raises_comes_back_as_it_was_with_the_traceback_of_its_node(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        end = r.call(0, fail, ValueError("no such grid"))
        assert (end.outcome, end.exit_code) == ("failed", 0)
        assert end.detail.startswith("ValueError: no such grid\n")
        assert "in fail" in end.detail
        error = r.error(0)
        assert r.calls.result_of(0) is None, "nobody takes what failed"
    assert type(error) is ValueError
    assert error.args == ("no such grid",)
    assert "raise error" in error.__notes__[0]


class Stubborn(Exception):
    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} and {right}")
        self.left = left


def test_an_exception_whose_class_takes_other_arguments_is_made_again_from_its_parts(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        assert r.call(0, lambda: fail(Stubborn(1, 2))).outcome == "failed"
        error = r.error(0)
    assert type(error) is Stubborn
    assert (str(error), error.left) == ("1 and 2", 1)
    assert "in fail" in error.__notes__[0]


def test_an_exception_that_cannot_be_made_again_is_told_in_words(tmp_path: Path) -> None:
    def fails() -> None:
        error = Stubborn(1, 2)
        error.left = (each for each in "ab")  # type: ignore[assignment]
        raise error

    with CallRig(tmp_path) as r:
        assert r.call(0, fails).outcome == "failed"
        error = r.error(0)
    assert isinstance(error, RemoteError)
    assert "Stubborn: 1 and 2" in str(error)


def test_a_result_that_cannot_be_pickled_fails_its_call_with_words(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        end = r.call(0, lambda: (each for each in "abc"))
        assert end.outcome == "failed"
        assert "it returned a generator, which cannot be pickled" in end.detail
        assert isinstance(r.error(0), TypeError)
        assert r.call(1, add, 1).outcome == "done", "the worker goes on"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), RecursionError("deep")])
def test_no_exception_of_a_call_ends_more_than_the_call(tmp_path: Path, error: BaseException) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, whoami)
        end = r.call(1, fail, error)
        assert end.outcome == "failed"
        assert type(r.error(1)) is type(error)
        r.call(2, whoami)
        assert r.value(2)[0] == r.value(0)[0]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (lambda: os._exit(7), "exit code 7"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: __import__("ctypes").string_at(0), "SIGSEGV"),
    ],
)
def test_a_worker_that_dies_fails_its_call_alone(tmp_path: Path, way: Any, words: str) -> None:
    with CallRig(tmp_path) as r:
        r.begin(0, nap, 0.2, cores="0")
        r.begin(1, way, cores="0")
        r.begin(2, add, 1, cores="0")
        assert r.ended(0).outcome == "done"
        end = r.ended(1)
        assert end.outcome == "failed"
        assert "its worker process died while it ran" in end.detail
        assert words in end.detail
        assert r.ended(2).outcome == "done"
        assert r.value(2) == 2


def test_what_a_call_started_ends_with_its_worker(tmp_path: Path) -> None:
    sleep = a_long_sleep(300)

    def start_and_die() -> None:
        import subprocess

        subprocess.Popen(["bash", "-c", f"setsid {sleep} & exec {sleep}"])
        time.sleep(0.2)
        os._exit(1)

    with CallRig(tmp_path) as r:
        assert r.call(0, start_and_die).outcome == "failed"
        assert eventually(lambda: not running_with(sleep))


def test_what_a_call_prints_lies_in_the_output_of_its_attempt(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.begin(0, say, "zero", "hm", cores="0")
        r.begin(1, say, "one", cores="0")
        r.begin(2, add, 1, cores="0")
        r.begin(3, lambda: os.system("echo from below"), cores="0")
        ends = [r.ended(n) for n in range(4)]
    assert [output(tmp_path, end.output) for end in ends] == [
        (b"zero\n", b"hm"),
        (b"one\n", b""),
        (b"", b""),
        (b"from below\n", b""),
    ]


def test_a_call_that_is_stopped_cleans_up_and_those_behind_it_go_on(tmp_path: Path) -> None:
    def stay(mark: str) -> None:
        try:
            Path(f"{mark}.begun").touch()
            time.sleep(300)
        finally:
            Path(mark).touch()

    mark = tmp_path / "cleaned"
    with CallRig(tmp_path) as r:
        r.begin(0, stay, str(mark), cores="0")
        r.begin(1, add, 1, cores="0")
        assert eventually(Path(f"{mark}.begun").exists)
        r.stop(0, why="enough")
        end = r.ended(0)
        assert (end.outcome, "enough" in end.detail) == ("canceled", True)
        assert mark.exists()
        assert r.ended(1).outcome == "done"


def test_a_call_that_hears_nothing_is_killed_after_the_grace(tmp_path: Path) -> None:
    def deaf() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)

    with CallRig(tmp_path, grace_s=0.3) as r:
        r.begin(0, deaf)
        r.started(0)
        r.stop(0)
        assert r.ended(0).outcome == "canceled"


def test_a_call_in_line_that_is_stopped_never_begins(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.begin(0, wait_for, str(tmp_path / "go"), cores="0")
        r.begin(1, say, "never", cores="0")
        r.begin(2, say, "after", cores="0")
        r.turn()
        r.stop(1)
        assert r.ended(1).outcome == "canceled"
        assert not r.ends(0)
        (tmp_path / "go").touch()
        assert r.ended(2).outcome == "done"
    assert b"never" not in (tmp_path / "runners/0.0.out").read_bytes()


def test_walltime_and_memory_bound_a_call(tmp_path: Path) -> None:
    def eat(mib: int) -> int:
        held = b"x" * (mib << 20)
        time.sleep(300)
        return len(held)

    with CallRig(tmp_path) as r:
        r.begin(0, nap, 60, walltime_s=0.3)
        r.begin(1, eat, 300, memory_mib=100)
        end = r.ended(0)
        assert (end.outcome, "walltime of 0.3 s" in end.detail) == ("timeout", True)
        end = r.ended(1)
        assert (end.outcome, "asked for 100 MiB" in end.detail) == ("memory", True)
        assert end.peak_mib > 100


def descriptors(pid: str = "self") -> list[str]:
    """What a process has open."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:  # the folder that was listed
            pass
    return found


def test_a_worker_costs_its_runner_three_descriptors_and_nobody_inherits_them(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        runner = str(r.engine._links[0].channel.pid)  # type: ignore[attr-defined]
        open_at_runner = []
        for task in (0, 1, 2):
            r.call(task, descriptors, cores=str(task))
            open_at_runner.append(len(descriptors(runner)))
        assert open_at_runner[2] - open_at_runner[1] == open_at_runner[1] - open_at_runner[0] == 3
        ways = [[link for link in r.value(task) if link.startswith("socket:")] for task in (0, 1, 2)]
        assert [len(each) for each in ways] == [1, 1, 1] and len({*ways[0], *ways[1], *ways[2]}) == 3
        assert [sum("eventfd" in link for link in r.value(task)) for task in (0, 1, 2)] == [1, 1, 1]
        r.launch(3, shell("ls -l /proc/self/fd > open"), cores="3")
        assert r.ended(3).outcome == "done"
    said = (tmp_path / "open").read_text()
    assert "socket:" not in said and "eventfd" not in said


def test_cpu_time_and_peak_memory_are_each_call_s_own(tmp_path: Path) -> None:
    def burn(seconds: float) -> None:
        stop = time.process_time() + seconds
        while time.process_time() < stop:
            pass

    def large() -> int:
        return len(b"x" * (200 << 20))

    with CallRig(tmp_path) as r:
        r.call(0, add, 1)
        burnt = r.call(1, burn, 0.6)
        big = r.call(2, large)
        small = r.call(3, add, 1)
    assert 0.6 <= burnt.cpu_s < 6
    assert small.cpu_s < 0.6, "what the worker had burnt before is not its own"
    assert big.peak_mib > 200
    assert small.peak_mib < 100


def test_a_call_follows_another_and_takes_what_that_one_returns(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.begin(0, nap, 0.2, cores="0")
        for n in range(1, 6):
            r.begin(n, add, Taken(n - 1), cores="0", behind=n - 1, if_done=1)
        assert r.ended(5).outcome == "done"
        assert r.value(5) == pytest.approx(5.2)


def test_a_call_that_follows_one_that_fails_never_begins(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.begin(0, fail, ValueError("no"), cores="0")
        r.begin(1, add, Taken(0), cores="0", behind=0, if_done=1)
        r.begin(2, add, Taken(1), cores="0", behind=1, if_done=1)
        assert r.ended(0).outcome == "failed"
        assert r.ended(1).outcome == r.ended(2).outcome == "interrupted"
        assert r.call(3, add, 1, cores="0").outcome == "done"


def test_calls_and_processes_take_turns_on_a_place(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.begin(0, nap, 0.1, cores="0")
        r.launch(1, packed("/bin/sleep", "0.1"), cores="0")
        r.begin(2, add, 1, cores="0")
        r.begin(3, add, 2, cores="0")
        r.launch(4, packed("/bin/true"), cores="0")
        ends = [r.ended(n) for n in range(5)]
        begun = [r.started(n).time for n in range(5)]
    assert [end.outcome for end in ends] == ["done"] * 5
    assert ends[0].time <= begun[1]
    assert ends[1].time <= begun[2]
    assert ends[3].time <= begun[4]


def test_a_call_behind_a_process_takes_its_place_when_that_one_is_done(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.launch(0, packed("/bin/sleep", "0.2"), cores="0")
        r.begin(1, add, 1, cores="0", behind=0, if_done=1)
        r.launch(2, packed("/bin/true"), cores="0", behind=1, if_done=1)
        assert r.ended(2).outcome == "done"
        r.launch(3, packed("/bin/sleep", "0.2"), cores="0")
        r.launch(4, packed("/bin/false"), cores="0", behind=3, if_done=1)
        r.begin(5, add, 1, cores="0", behind=4, if_done=1)
        assert r.ended(5).outcome == "interrupted"


def test_a_call_has_the_environment_and_the_cores_it_asked_for(tmp_path: Path) -> None:
    def look() -> tuple[str | None, set[int]]:
        return os.environ.get("THE_MARK"), os.sched_getaffinity(0)

    cores = sorted(os.sched_getaffinity(0))[:2]
    node = Node("here", len(cores), core_ids=tuple(cores))
    last = str(len(cores) - 1)
    with CallRig(tmp_path, node) as r:
        r.launch(0, r.command(look, env={"THE_MARK": "mine"}), cores=last)
        r.ended(0)
        r.call(1, look, cores=last)
        assert r.value(0) == ("mine", {cores[-1]})
        assert r.value(1) == (None, {cores[-1]})


def test_arguments_and_functions_of_any_size_arrive(tmp_path: Path) -> None:
    blob = os.urandom(3 << 20)
    with CallRig(tmp_path) as r:
        r.call(0, len, blob)
        assert r.value(0) == len(blob)
        r.call(1, lambda: blob[:3])
        assert r.value(1) == blob[:3]


def test_nothing_is_left_when_the_engine_closes_while_calls_run(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        for n in range(3):
            r.begin(n, nap, 300, cores=str(n))
        r.begin(3, nap, 300, cores="0")
        pids = [r.started(n).pid for n in range(3)]
    assert [r.ends(n)[0].outcome for n in range(4)] == ["interrupted"] * 4
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_worker_that_cannot_start_is_told_with_what_it_said(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        for n in range(2):
            r.launch(n, r.command(add, 1, env={"PYTHONHOME": "/nowhere"}), cores="0")
        r.begin(2, add, 1, cores="0")
        for n in range(2):
            end = r.ended(n)
            assert end.outcome == "unstartable"
            assert "the worker process for its call could not start: exit code 1" in end.detail
            assert "No module named 'encodings'" in end.detail
        assert r.ended(2).outcome == "done"


def test_workers_of_many_kinds_are_not_kept_for_ever(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        pids = []
        for n in range(12):
            r.launch(n, r.command(whoami, env={"KIND": str(n)}), cores="0")
            r.ended(n)
            pids.append(r.value(n)[0])
        assert eventually(lambda: r.turn(0.01) is not None and sum(is_alive(pid) for pid in pids) <= 8)
        assert is_alive(pids[-1])


def test_a_process_that_a_call_forks_ends_by_a_signal_as_any_other(tmp_path: Path) -> None:
    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        time.sleep(0.05)
        os.kill(pid, signal.SIGTERM)
        return os.waitpid(pid, 0)[1]

    with CallRig(tmp_path) as r:
        assert r.call(0, fork).outcome == "done"
        assert r.value(0) == signal.SIGTERM


def test_another_study_s_calls_have_workers_of_their_own_which_end_with_it(tmp_path: Path) -> None:
    def home() -> tuple[str, str, int]:
        return os.environ["CANTLE_RUN"], os.environ["CANTLE_TASK"], os.getpid()

    other = tmp_path / "other"
    with CallRig(tmp_path) as r:
        r.call(0, home)
        r.engine.open_base(1, str(other), dict(os.environb), False, 5)  # type: ignore[attr-defined]
        r.launch(7, replace(r.command(home), base=1), cores="0")
        end = r.ended(7)
        assert r.value(0)[:2] == (str(tmp_path), "0")
        assert r.value(7)[:2] == (str(other), "2")
        assert output(other, end.output) == (b"", b"")
        r.engine.close_base(1)  # type: ignore[attr-defined]
        assert eventually(lambda: r.turn(0.01) is not None and not is_alive(r.value(7)[2]))
        assert is_alive(r.value(0)[2])


def test_calls_sent_to_a_worker_that_does_not_get_to_read_them_are_not_forgotten(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, whoami, cores="0")
        worker = r.value(0)[0]
        os.kill(worker, signal.SIGSTOP)
        for n in (1, 2, 3):
            r.begin(n, add, n, cores="0")
        for _ in range(10):
            r.turn(0.05)
        os.kill(worker, signal.SIGCONT)
        assert [r.ended(n).outcome for n in (1, 2, 3)] == ["done"] * 3
