"""Does what a call does to its standard streams, and to what else its process has but once, stay its own matter?"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest
from calls_rig import CallRig
from runner_rig import output

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def say(text: str) -> None:
    print(text)
    print("and", text, file=sys.stderr)


def close_streams() -> None:
    sys.stdout.close()
    sys.stderr.close()


def close_descriptors() -> None:
    os.close(1)
    os.close(2)


def redirect_descriptors() -> None:
    into = os.pipe()[1]
    os.dup2(into, 1)
    os.dup2(into, 2)


def delete_streams() -> None:
    del sys.stdout
    del sys.stderr


def replace_streams() -> None:
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    print("kept by the call")


def wrap_streams() -> None:
    """What wraps a stream closes it when nobody holds it any more."""
    sys.stdout = io.TextIOWrapper(sys.stdout.buffer, "ascii", "replace")
    sys.stderr = io.TextIOWrapper(sys.stderr.buffer, "ascii", "replace")


def replace_by_what_breaks() -> None:
    sys.stdout = sys.stderr = object()  # type: ignore[assignment]


def lead_into_a_file() -> None:
    into = os.open("elsewhere.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(into, 1)
    os.dup2(into, 2)


TAKING_AWAY = [
    close_streams,
    close_descriptors,
    redirect_descriptors,
    delete_streams,
    replace_streams,
    wrap_streams,
    replace_by_what_breaks,
    lead_into_a_file,
]


@pytest.mark.parametrize("takes_away", TAKING_AWAY)
def test_output_that_a_call_took_away_is_there_again_for_the_next_call(
    tmp_path: Path, takes_away: Callable[[], None]
) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, os.getpid)
        assert r.call(1, takes_away).outcome == "done"
        end = r.call(2, say, "something Ω")
        assert end.outcome == "done", end.detail
        assert output(tmp_path, end.output) == ("something Ω\n".encode(), "and something Ω\n".encode())
        r.call(3, os.getpid)
        assert r.value(3) == r.value(0), "it is the same worker, with all that it has imported"


def say_through_a_wrapper(text: str) -> None:
    sys.stdout = io.TextIOWrapper(sys.stdout.buffer, "utf-8")
    print(text)


def test_what_a_call_said_through_a_stream_of_its_own_is_still_its_own(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        end = r.call(0, say_through_a_wrapper, "through a wrapper")
        assert output(tmp_path, end.output) == (b"through a wrapper\n", b"")


def answer_all_questions() -> str:
    sys.stdin = io.StringIO("yes\nyes\n")
    return input()


def ask() -> str:
    try:
        return input()
    except EOFError:
        return "nobody answers"


def test_a_call_does_not_read_what_an_earlier_one_put_in_place_of_its_input(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, answer_all_questions)
        r.call(1, ask)
        assert (r.value(0), r.value(1)) == ("yes", "nobody answers")


def forbid_all() -> None:
    os.umask(0o777)


def rights_of_a_new_file(path: str) -> int:
    with open(path, "w"):
        return os.stat(path).st_mode & 0o777


def test_new_files_get_the_rights_they_got_before_an_earlier_call_forbade_all(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, rights_of_a_new_file, str(tmp_path / "before"))
        r.call(1, forbid_all)
        r.call(2, rights_of_a_new_file, str(tmp_path / "after"))
        assert r.value(2) == r.value(0) != 0


def set_an_alarm() -> int:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return os.getpid()


def outlast_it() -> int:
    time.sleep(0.2)
    return os.getpid()


def test_an_alarm_that_a_call_has_set_ends_no_later_call(tmp_path: Path) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, set_an_alarm)
        end = r.call(1, outlast_it)
        assert end.outcome == "done", end.detail
        assert r.value(1) == r.value(0), "the worker lives on"


def fail_as_a_group() -> None:
    raise ExceptionGroup("two at once", [ValueError("one"), TypeError("two")])


def fail_with_a_note() -> None:
    error = ValueError("the matter")
    error.add_note("a note beside it")
    raise error


@pytest.mark.parametrize(
    ("fails", "headline"),
    [
        (fail_as_a_group, "ExceptionGroup: two at once (2 sub-exceptions)"),
        (fail_with_a_note, "ValueError: the matter"),
    ],
)
def test_the_first_line_that_is_told_of_a_failure_says_what_it_is(
    tmp_path: Path, fails: Callable[[], None], headline: str
) -> None:
    with CallRig(tmp_path) as r:
        end = r.call(0, fails)
        assert end.outcome == "failed"
        first, *rest = end.detail.split("\n")
        assert first == headline and headline not in rest[-1:]
