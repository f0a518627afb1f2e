"""A program that stays at a pilot hands in calls as it goes: what becomes of them, and of it?"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest

from cantle.errors import RequestError
from cantle.model.resources import Needs
from cantle.model.study import Step
from cantle.report.loading import load
from cantle.runner.calling.values import pack_call, pack_function, read_kept, unpack, unpack_error
from cantle.runtime.pilot.address import published
from cantle.runtime.pilot.messages import Seated, Sit
from cantle.runtime.pilot.sitting_messages import (
    CancelTasks,
    Dismissed,
    Down,
    End,
    Ends,
    Fetch,
    Fetched,
    ForgetTasks,
    Function,
    Heeded,
    Leave,
    Left,
    NewSteps,
    NewTask,
    NewTasks,
    ResizePartition,
    Up,
    WishNodes,
)
from cantle.runtime.pilot.visiting import ask, stay
from cantle.store.layout import Layout

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not see this folder


class Of:
    """Stands for the result of a task."""

    def __init__(self, task: int) -> None:
        self.task = task


class Program:
    """Speaks with a pilot as a program would."""

    def __init__(self, pilot: Path, directory: Path, name: str = "calls") -> None:
        env = dict(os.environb)
        self.seated, self.line = stay(pilot, "one", Sit(name, str(directory), env))
        self.line.settimeout(60)
        self.tasks = self.steps = 0
        self.ends: dict[int, End] = {}
        self.heard: list[Down] = []
        self.data = bytearray()

    def say(self, *messages: Up) -> None:
        body = msgspec.msgpack.encode(messages)
        self.line.sendall(len(body).to_bytes(4, "big") + body)

    def hear(self) -> None:
        data = self.line.recv(1 << 20)
        if not data:
            raise ConnectionError("the pilot closed the line")
        self.data += data
        while len(self.data) >= 4 and len(self.data) >= 4 + (n := int.from_bytes(self.data[:4], "big")):
            for message in msgspec.msgpack.decode(bytes(self.data[4 : 4 + n]), type=list[Down]):
                self.heard.append(message)
                if isinstance(message, Ends):
                    self.ends |= {end.task: end for end in message.ends}
            del self.data[: 4 + n]

    def until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            self.hear()

    def function(self, function: Callable[..., Any], step: Step | None = None) -> tuple[int, str]:
        digest, body = pack_function(function)
        self.say(Function(digest, body), NewSteps([step or Step(function.__name__)]))
        self.steps += 1
        return self.steps - 1, digest

    def call(self, function: tuple[int, str], *args: Any) -> Of:
        arguments, takes = pack_call(args, {}, lambda value: value.task if isinstance(value, Of) else None)
        task = NewTask(f"call.{self.tasks}", *function, arguments, takes, takes)
        self.say(NewTasks(self.tasks, [task]))
        self.tasks += 1
        return Of(self.tasks - 1)

    def end_of(self, of: Of) -> End:
        self.until(lambda: of.task in self.ends)
        return self.ends[of.task]

    def result(self, of: Of) -> Any:
        end = self.end_of(of)
        assert end.phase == "done", end
        if end.value is not None:
            return unpack(end.value)
        self.say(Fetch(of.task))
        self.until(lambda: any(isinstance(m, Fetched) and m.task == of.task for m in self.heard))
        [fetched] = [m for m in self.heard if isinstance(m, Fetched) and m.task == of.task]
        assert not fetched.problem
        return unpack(read_kept(fetched.path) if fetched.path else fetched.value)

    def dismissed(self) -> str:
        [said] = [message.why for message in self.heard if isinstance(message, Dismissed)]
        return said

    def leave(self, cancel: bool = False) -> None:
        self.say(Leave(cancel))
        self.until(lambda: any(isinstance(m, Left) for m in self.heard))
        self.line.close()


def await_end_of(pilot: Path) -> None:
    patience = time.monotonic() + 60
    while published(Layout(pilot)) is not None:
        assert time.monotonic() < patience, "its pilot goes with its program"
        time.sleep(0.05)


@pytest.fixture
def pilot(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "pilot"
    words = [sys.executable, "-m", "cantle", "up", str(directory), "--foreground", "--for-one-program", "--cores", "2"]
    process = subprocess.Popen(words, start_new_session=True)
    patience = time.monotonic() + 60
    while published(Layout(directory)) is None:
        assert process.poll() is None
        assert time.monotonic() < patience
        time.sleep(0.02)
    try:
        yield directory
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


def double(x: int) -> int:
    return 2 * x


def test_calls_their_results_and_those_that_take_them(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    doubling = program.function(double)
    first = program.call(doubling, 1)
    last = program.call(doubling, program.call(doubling, first))
    assert program.result(last) == 8
    assert program.result(first) == 2
    later = program.call(doubling, last)
    assert program.result(later) == 16
    program.leave()
    run = load(tmp_path / "work")
    assert [task.name for task in run.state.tasks] == ["call.0", "call.1", "call.2", "call.3"]
    assert run.state.succeeded


def fails() -> None:
    raise ZeroDivisionError("on purpose")


def test_what_a_call_raises_comes_back_and_who_takes_it_is_skipped(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    failed = program.call(program.function(fails))
    after = program.call(program.function(double), failed)
    end = program.end_of(failed)
    assert end.phase == "failed"
    assert end.value
    error = unpack_error(end.value)
    assert isinstance(error, ZeroDivisionError)
    assert program.end_of(after).phase == "skipped"
    assert "call.0" in program.end_of(after).why
    program.leave()


def many_bytes(n: int) -> bytes:
    return b"x" * n


def test_a_large_result_stays_where_it_was_made_until_it_is_forgotten(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    large = program.call(program.function(many_bytes), 1 << 20)
    assert program.end_of(large).value is None
    assert program.end_of(large).size > 1 << 20
    assert len(program.result(large)) == 1 << 20
    [path] = [message.path for message in program.heard if isinstance(message, Fetched)]
    assert os.path.exists(path)
    program.say(ForgetTasks([large.task]))
    patience = time.monotonic() + 60
    while os.path.exists(path):
        assert time.monotonic() < patience
        time.sleep(0.05)
    program.leave()


def test_calls_are_canceled_when_it_says_so(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    sleeping = program.call(program.function(time.sleep, Step("sleep", Needs(cores=2))), 100)
    behind = program.call((sleeping.task, pack_function(time.sleep)[0]), 100)
    program.say(CancelTasks([sleeping.task, behind.task]))
    assert {program.end_of(sleeping).phase, program.end_of(behind).phase} == {"canceled"}
    program.leave()


def test_two_programs_stay_at_once_and_each_has_numbers_of_its_own(pilot: Path, tmp_path: Path) -> None:
    one, two = Program(pilot, tmp_path / "one"), Program(pilot, tmp_path / "two")
    doubling = one.function(double), two.function(double)
    made = [(one.call(doubling[0], n), two.call(doubling[1], -n)) for n in range(20)]
    summed = one.function(sum_of), two.function(sum_of)
    totals = one.call(summed[0], *[pair[0] for pair in made]), two.call(summed[1], *[pair[1] for pair in made])
    assert (one.result(totals[0]), two.result(totals[1])) == (380, -380)
    one.leave()
    assert two.result(two.call(doubling[1], totals[1])) == -760
    two.leave()
    for name in ("one", "two"):
        run = load(tmp_path / name)
        assert run.state.succeeded
        assert [task.name for task in run.state.tasks] == [f"call.{n}" for n in range(len(run.state.tasks))]


def sum_of(*numbers: int) -> int:
    return sum(numbers)


def test_a_program_that_is_gone_takes_its_calls_with_it_and_its_pilot_ends(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    sleeping = program.call(program.function(time.sleep), 100)
    assert sleeping.task == 0
    program.line.shutdown(socket.SHUT_RDWR)
    program.line.close()
    await_end_of(pilot)
    [phase] = load(tmp_path / "work").state.phases
    assert phase.name == "CANCELED"


def test_nonsense_ends_the_one_who_said_it_and_nobody_else(pilot: Path, tmp_path: Path) -> None:
    good, bad = Program(pilot, tmp_path / "good"), Program(pilot, tmp_path / "bad")
    bad.line.sendall(b"\0\0\0\3abc")
    with pytest.raises((ConnectionError, OSError)):
        bad.until(lambda: False)
    assert "cannot be understood" in bad.dismissed()
    bad.line.close()
    assert good.result(good.call(good.function(double), 4)) == 8
    good.leave()


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        (
            [NewSteps([Step("s")]), NewTasks(0, [NewTask("a", 0, "nobody knows it")])],
            "a function that was not handed in",
        ),
        ([NewTasks(0, [NewTask("a", 3, "")])], "step 3"),
        ([Fetch(0)], "call 0"),
        ([CancelTasks([5])], "call 5"),
        ([Leave(), NewSteps([Step("late")])], "after it said that it leaves"),
    ],
)
def test_who_breaks_the_rules_is_told_which_one_and_the_pilot_goes_on(
    pilot: Path, tmp_path: Path, messages: list[Up], why: str
) -> None:
    good, bad = Program(pilot, tmp_path / "good"), Program(pilot, tmp_path / "bad")
    begun = good.call(good.function(time.sleep), 0.2)
    bad.say(*messages)
    with pytest.raises((ConnectionError, OSError)):
        bad.until(lambda: False)
    assert why in bad.dismissed()
    bad.line.close()
    assert good.end_of(begun).phase == "done"
    assert good.result(good.call(good.function(double), 4)) == 8
    good.leave()


def test_a_program_that_is_gone_while_it_waits_for_the_end_takes_its_calls_with_it(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    program.call(program.function(time.sleep), 100)
    program.say(Leave())
    program.line.close()
    await_end_of(pilot)
    [phase] = load(tmp_path / "work").state.phases
    assert phase.name == "CANCELED"


def test_who_leaves_may_still_say_that_all_shall_be_canceled(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    sleeping = program.call(program.function(time.sleep), 100)
    program.say(Leave())
    program.leave(cancel=True)
    assert program.end_of(sleeping).phase == "canceled"


def test_a_directory_that_holds_a_run_is_not_taken(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    assert isinstance(program.seated, Seated)
    with pytest.raises(RequestError, match="holds a run already"):
        ask(pilot, "one", Sit("again", str(tmp_path / "work")))
    program.leave()


def test_a_run_of_calls_is_shown_like_any_other_and_says_why_it_cannot_be_resumed(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    assert program.result(program.call(program.function(double), 4)) == 8
    failed = program.call(program.function(fails))
    assert program.end_of(failed).phase == "failed"
    program.leave()

    def cantle(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cantle", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=tmp_path)

    await_end_of(pilot)
    shown = cantle("status", "work").stdout
    assert "double" in shown
    assert "fails" in shown
    why = cantle("explain", "work", "call.1").stdout
    assert "ZeroDivisionError" in why
    assert "on purpose" in why
    assert cantle("report", "work").returncode == 0
    resumed = cantle("resume", "work")
    assert resumed.returncode == 1
    assert "only that program can make them again" in resumed.stderr


def test_what_is_asked_in_vain_is_told_and_not_waited_for(pilot: Path, tmp_path: Path) -> None:
    program = Program(pilot, tmp_path / "work")
    program.say(ResizePartition("nobody's", 2), WishNodes("gpu", 1))
    program.until(lambda: sum(isinstance(message, Heeded) for message in program.heard) == 2)
    told = [message.problem for message in program.heard if isinstance(message, Heeded)]
    assert told[0] == "the partition nobody's cannot be resized: there is none of that name"
    assert told[1] == "no kind of node is called 'gpu'; no kinds of node are declared (--kinds, kinds=)"
    program.leave()
