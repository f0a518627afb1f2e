"""What does a program's seat do when its pilot goes away, the program forks, or a signal comes in the middle of a frame?"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec
import pytest

from cantle.api.futures import Future
from cantle.api.seat import Seat
from cantle.errors import CantleError, DependencyError, PilotGoneError, RequestError
from cantle.model.study import Step
from cantle.runner.calling.values import pack_error
from cantle.runtime.pilot.messages import framed
from cantle.runtime.pilot.sitting_messages import (
    CancelTasks,
    Dismissed,
    End,
    Ends,
    Fetch,
    Fetched,
    ForgetTasks,
    Heeded,
    NewSteps,
    NewTask,
    NewTasks,
    Up,
    WishNodes,
)


class Pilot:
    """The other end."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(60)

    def hear(self) -> list[Up]:
        length = int.from_bytes(self._read(4), "big")
        return msgspec.msgpack.decode(self._read(length), type=list[Up])

    def hear_until(self, kind: type) -> list[Up]:
        heard: list[Up] = []
        while not any(isinstance(message, kind) for message in heard):
            heard += self.hear()
        return heard

    def say(self, *messages: object) -> None:
        self.connection.sendall(framed(list(messages)))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            assert more
            data += more
        return data


@pytest.fixture
def ends() -> Iterator[tuple[Seat, Pilot]]:
    ours, theirs = socket.socketpair()
    seat = Seat(ours, "fake", lambda news: None, lambda calls: None)
    yield seat, Pilot(theirs)
    theirs.close()
    assert seat.left.wait(20)


def handed_in(seat: Seat, number: int = 0) -> Future[object]:
    step = seat.step(Step("work"))
    future: Future[object] = Future(seat, f"work-{number}", "work")
    seat.hand_in(future, NewTask(future.name, step, "digest", b"x"))
    return future


def test_calls_go_out_in_their_order_with_what_they_need_before_them(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    futures = [handed_in(seat, n) for n in range(3)]
    seat.flush()
    heard = pilot.hear_until(NewTasks)
    while sum(len(each.tasks) for each in heard if isinstance(each, NewTasks)) < 3:
        heard += pilot.hear()
    assert isinstance(heard[0], NewSteps)
    tasks = [each for each in heard if isinstance(each, NewTasks)]
    assert [task.name for each in tasks for task in each.tasks] == [future.name for future in futures]
    assert [each.first for each in tasks] == [sum(len(before.tasks) for before in tasks[:n]) for n in range(len(tasks))]


def test_a_pilot_that_goes_away_fails_what_is_not_over(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    over, open_one = handed_in(seat), handed_in(seat, 1)
    pilot.say(Ends([End(0, "done", pickle.dumps(7))]))
    assert over.result(20) == 7
    pilot.connection.close()
    with pytest.raises(PilotGoneError, match="fake"):
        open_one.result(20)
    with pytest.raises(PilotGoneError):
        handed_in(seat, 2)


def test_a_pilot_that_talks_nonsense_is_left(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    future = handed_in(seat)
    pilot.connection.sendall(b"\0\0\0\2{}")
    with pytest.raises(PilotGoneError, match="broke"):
        future.result(20)


def test_a_program_that_is_sent_away_is_told_why_wherever_it_waits(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    kept, open_one = handed_in(seat), handed_in(seat, 1)
    pilot.say(Ends([End(0, "done", None, 99)]))
    assert kept.exception(20) is None
    kept.ask()
    pilot.say(Dismissed("call 7 waits for call 9"))
    for waited in (kept, open_one):
        with pytest.raises(PilotGoneError, match="call 7 waits for call 9"):
            waited.result(20)
    with pytest.raises(PilotGoneError, match="call 7 waits for call 9"):
        handed_in(seat, 2)


def test_an_answer_that_comes_before_the_question_was_said_to_the_end_is_heard(
    ends: tuple[Seat, Pilot], monkeypatch: pytest.MonkeyPatch
) -> None:
    seat, pilot = ends
    over = handed_in(seat)
    say = seat.say

    def answered_at_once(*messages: Up) -> None:
        say(*messages)
        seat.flush()
        pilot.hear_until(WishNodes)
        pilot.say(Heeded("there are none"), Ends([End(0, "done", pickle.dumps(7))]))
        assert over.result(20) == 7

    monkeypatch.setattr(seat, "say", answered_at_once)
    problems: list[BaseException] = []

    def ask() -> None:
        with pytest.raises(RequestError, match="there are none") as told:
            seat.ask(WishNodes("cpu", 1))
        problems.append(told.value)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(20)
    assert problems


def test_the_cause_is_the_error_of_the_call_that_the_pilot_names(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    step = seat.step(Step("work"))

    def call(name: str, *needs: Future[object]) -> Future[object]:
        future: Future[object] = Future(seat, name, "work", needs)
        seat.hand_in(future, NewTask(name, step, "digest", b"x"))
        return future

    good, one, two = call("good"), call("work-1"), call("work-11")
    between = call("between", good, one, two)
    last = call("last", good, between)
    failed = [End(n, "failed", pack_error(ValueError(f"number {n}"), "a traceback")) for n in (1, 2)]
    skipped = [End(n, "skipped", why="work-11 did not succeed") for n in (3, 4)]
    pilot.say(Ends([End(0, "done", pickle.dumps(7)), *failed, *skipped]))
    for needing in (last, between):
        error = needing.exception(20)
        assert isinstance(error, DependencyError)
        assert str(error.__cause__) == "number 2"
    assert two.exception(20) is between.exception(20).__cause__  # type: ignore[union-attr]


def test_a_call_that_is_over_holds_none_of_what_it_took(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    first = handed_in(seat)
    second: Future[object] = Future(seat, "second", "work", (first,))
    seat.hand_in(second, NewTask("second", 0, "digest", b"x"))
    number = first.number
    pilot.say(Ends([End(0, "done", pickle.dumps(1)), End(1, "done", pickle.dumps(2))]))
    assert second.result(20) == 2
    del first
    assert ForgetTasks([number]) in pilot.hear_until(ForgetTasks)


def test_a_result_that_is_kept_is_fetched_once_and_forgotten_with_its_future(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    future = handed_in(seat)
    pilot.say(Ends([End(0, "done", None, 99)]))
    assert future.exception(20) is None
    future.ask()
    seat.flush()
    assert Fetch(0) in pilot.hear_until(Fetch)
    pilot.say(Fetched(0, pickle.dumps("large")))
    assert future.result(20) == "large"
    assert future.result(20) == "large"
    del future
    assert ForgetTasks([0]) in pilot.hear_until(ForgetTasks)


def test_a_kept_result_that_is_lost_says_why(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    future = handed_in(seat)
    pilot.say(Ends([End(0, "done", None, 99)]), Fetched(0, problem="never asked"))
    assert future.exception(20) is None
    future.ask()
    pilot.hear_until(Fetch)
    pilot.say(Fetched(0, problem="its node is gone"))
    with pytest.raises(CantleError, match="its node is gone"):
        future.result(20)


def test_what_is_canceled_stays_so_whatever_the_pilot_says_later(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    future = handed_in(seat)
    assert future.cancel()
    assert future.cancel()
    assert CancelTasks([0]) in pilot.hear_until(CancelTasks)
    pilot.say(Ends([End(0, "done", pickle.dumps(1))]))
    other = handed_in(seat, 1)
    pilot.say(Ends([End(1, "done", pickle.dumps(2))]))
    assert other.result(20) == 2
    assert future.cancelled()
    assert not other.cancel()


def test_a_forked_child_does_not_speak_for_its_parent(ends: tuple[Seat, Pilot]) -> None:
    seat, pilot = ends
    future = handed_in(seat)
    seat.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            handed_in(seat, 1)
        except CantleError as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pilot.say(Ends([End(0, "done", pickle.dumps(1))]))
    assert future.result(20) == 1


def test_a_signal_in_the_middle_of_a_frame_loses_and_repeats_nothing(
    ends: tuple[Seat, Pilot],
) -> None:
    seat, pilot = ends
    seat._connection = Interrupted(seat._connection)  # type: ignore[assignment]
    futures = []
    interrupted = 0
    for number in range(20):
        futures.append(handed_in(seat, number))
        try:
            seat.flush()
        except KeyboardInterrupt:
            interrupted += 1
    seat._connection.calm = True  # type: ignore[attr-defined]
    names: list[str] = []
    seat.flush()
    while len(names) < 20:
        names += [task.name for each in pilot.hear() if isinstance(each, NewTasks) for task in each.tasks]
    assert names == [future.name for future in futures]
    assert interrupted > 0


class Interrupted:
    """A connection that takes a few bytes at once, and where Ctrl-C comes instead now and then."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._count = 0
        self.calm = False

    def send(self, data: memoryview) -> int:
        import threading

        self._count += 1
        if not self.calm and self._count % 3 == 0 and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return self._connection.send(data[:7])

    def close(self) -> None:
        self._connection.close()


def test_a_view_that_nobody_stops_keeps_no_program_from_its_end() -> None:
    program = "from cantle.api.views import Shown; Shown(object(), object(), 3600.0)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
