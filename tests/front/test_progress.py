"""What a run tells while it runs: on a terminal, in a log file, to a program, or hardly at all."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from rundirs import Shifted

from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.model.records import (
    Launch,
    NodesJoined,
    RunResumed,
    RunStarted,
    StopAsked,
    StudyAdded,
    TaskEnded,
    TasksAdded,
    TaskStarted,
)
from cantle.model.resources import Node, Place
from cantle.model.study import Step, Task
from cantle.report import live, progress
from cantle.report.pace import Pace, pace_of
from cantle.report.progress import JsonProgress, PlainProgress, Progress, QuietProgress, choose_progress
from cantle.report.wording import duration
from cantle.runtime.loop import run
from cantle.runtime.simulated import Fate, SimulatedWorld


class Clock:
    """A clock that stands still until somebody moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress, "monotonic", found)
    return found


class Terminal(io.StringIO):
    """A terminal that remembers what it was sent."""

    def isatty(self) -> bool:
        return True


def begun(tasks: Sequence[Task], steps: Sequence[Step] = (Step("s"),), cores: int = 4) -> State:
    state = State()
    for record in (
        RunStarted(0.0, "r", "0", "h", 1),
        StudyAdded(0.0, "demo", list(steps), directory="/runs/demo"),
        TasksAdded(0.0, 0, list(tasks)),
        NodesJoined(0.0, [Node("here", cores)]),
    ):
        state.apply(record)
    return state


def launch(state: State, task: int, at: float = 0.0) -> None:
    attempt = state.attempts[task] + 1
    free = next(
        core for core in range(64) if not any(p.cores == str(core) for r in state.running.values() for p in r.on)
    )
    state.apply(Launch(at, task, attempt, (Place(0, str(free)),)))
    state.apply(TaskStarted(at, task, attempt, 100 + task))


def end(state: State, task: int, at: float = 2.0, outcome: str = "done", detail: str = "") -> None:
    state.apply(TaskEnded(at, task, state.attempts[task], outcome, detail=detail))  # type: ignore[arg-type]


def ran(state: State, task: int, outcome: str = "done", detail: str = "") -> None:
    launch(state, task, 1.0)
    end(state, task, 3.0, outcome, detail)


def told(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_a_result_is_told_only_when_it_is_on_disk(clock: Clock) -> None:
    state, stream = begun([Task("a", 0), Task("b", 0)]), io.StringIO()
    written, synced = 0, 0
    watcher = choose_progress(state, stream=stream, durable=lambda: synced, written=lambda: written)
    ran(state, 0)
    written = 7
    watcher(state)
    clock.now += 1
    synced = 6
    watcher(state)
    assert not any("done" in line for line in told(stream))
    ran(state, 1)
    written = 9
    clock.now += 1
    synced = 7
    watcher(state)
    assert [line for line in told(stream) if "done" in line] == ["[1/2] done      a  2.0 s"]
    clock.now += 1
    synced = 9
    watcher(state)
    assert told(stream)[-1] == "[2/2] done      b  2.0 s"


def test_whatever_is_left_is_told_at_the_end_once(clock: Clock) -> None:
    state, stream = begun([Task("a", 0), Task("b", 0)]), io.StringIO()
    watcher = choose_progress(state, stream=stream, durable=lambda: 0, written=lambda: 5)
    ran(state, 0)
    watcher(state)
    ran(state, 1)
    watcher.finish(state, 0, Path("/runs/demo"))
    lines = told(stream)
    assert lines[0] == "demo: 2 tasks of 1 step on here (4 cores), in /runs/demo"
    assert lines[1:3] == ["[1/2] done      a  2.0 s", "[2/2] done      b  2.0 s"]
    assert lines[3] == "demo: all 2 tasks done in 0.00 s, in /runs/demo"
    assert len(lines) == 4


def test_nobody_pays_for_news_that_nobody_reads() -> None:
    state = begun([Task("a", 0)])
    ran(state, 0)
    assert state.news is None


def test_a_turn_in_which_nothing_is_due_asks_nothing(clock: Clock) -> None:
    state = begun([Task("a", 0), Task("b", 0)])
    asked = 0

    def count() -> int:
        nonlocal asked
        asked += 1
        return 0

    watcher = choose_progress(state, stream=io.StringIO(), durable=count, written=count)
    watcher(state)
    ran(state, 0)
    asked = 0
    for _ in range(1000):
        watcher(state)
    assert asked == 0
    clock.now += progress.DELIVERY_S
    watcher(state)
    assert asked == 2


def test_small_studies_are_told_task_by_task_with_failures_in_detail(clock: Clock) -> None:
    state, stream = begun([Task("a", 0), Task("b", 0, (0,))]), io.StringIO()
    watcher = choose_progress(state, stream=stream)
    ran(state, 0, "failed", "exit code 3\nfirst\nsecond\nthird\nfourth")
    watcher(state)
    assert told(stream)[1:] == [
        "[1/2] failed    a: exit code 3",
        "    | second",
        "    | third",
        "    | fourth",
        "[2/2] skipped   b: a did not succeed",
    ]


def test_large_studies_are_told_every_ten_seconds_but_failures_at_once(clock: Clock) -> None:
    state, stream = begun([Task(f"t{n}", 0) for n in range(progress.SMALL + 1)]), io.StringIO()
    watcher = choose_progress(state, stream=stream)
    for task in range(50):
        ran(state, task, "failed" if task == 7 else "done", "exit code 3" if task == 7 else "")
        clock.now += 0.1
        watcher(state)
    assert told(stream)[1:] == ["[  8/201] failed    t7: exit code 3"]
    clock.now += 5.0
    watcher(state)
    assert told(stream)[2] == ("10 s: 49 done, 151 ready, 1 failed; 0 of 4 cores in use; about 1 min 16 s left")
    clock.now += 9.0
    watcher(state)
    assert len(told(stream)) == 3


def test_a_task_that_got_another_chance_meanwhile_is_not_told_as_failed(clock: Clock) -> None:
    state, stream = begun([Task("a", 0)]), io.StringIO()
    synced = 0
    watcher = choose_progress(state, stream=stream, durable=lambda: synced, written=lambda: 1)
    ran(state, 0, "failed", "exit code 3")
    watcher(state)
    state.apply(RunResumed(5.0, "h", 2))
    synced = 1
    clock.now += 1
    watcher(state)
    assert not any("failed" in line for line in told(stream))


def test_a_resumed_run_counts_what_was_done_before(clock: Clock) -> None:
    state, stream = begun([Task("a", 0), Task("b", 0)]), io.StringIO()
    ran(state, 0)
    state.apply(RunResumed(5.0, "h", 2))
    state.apply(NodesJoined(5.0, [Node("here", 4)]))
    watcher = choose_progress(state, stream=stream)
    watcher(state)
    state.apply(Launch(6.0, 1, 1, (Place(1, "0"),)))
    end(state, 1, 7.0)
    clock.now += 1
    watcher(state)
    assert told(stream)[1:] == ["resumed: 1 of them was done before", "[2/2] done      b  1.0 s"]


def test_json_is_an_object_for_each_task_and_one_for_the_run(clock: Clock) -> None:
    tasks = [Task("a", 0, (), 0.0, (), "s/N.1", "N:1"), Task("b", 0, (0,))]
    state, stream = begun(tasks), io.StringIO()
    watcher = choose_progress(state, json=True, stream=stream)
    assert type(watcher) is JsonProgress
    watcher.note("two numbers differ")
    ran(state, 0, "failed", "exit code 3\nlast words")
    watcher(state)
    clock.now += 4
    watcher.finish(state, 2, Path("/runs/demo"))
    note, first, second, last = map(msgspec.json.decode, told(stream))
    assert note == {"note": "two numbers differ"}
    assert first["task"] == "a"
    assert first["params"] == "N:1"
    assert (first["state"], first["outcome"], first["attempt"], first["pid"]) == ("failed", "failed", 1, 100)
    assert first["reason"] == "exit code 3\nlast words"
    assert first["seconds"] == 2.0
    assert second == {"task": "b", "step": "s", "state": "skipped", "reason": "a did not succeed"}
    assert last == {
        "run": "/runs/demo",
        "study": "demo",
        "exit": 2,
        "seconds": 4.0,
        "stopped": "",
        "tasks": 2,
        "counts": {"failed": 1, "skipped": 1},
    }


@pytest.mark.parametrize(("outcome", "lines"), [("done", 0), ("failed", 3)])
def test_quiet_tells_failures_only(clock: Clock, outcome: str, lines: int) -> None:
    state, stream = begun([Task("a", 0)]), io.StringIO()
    watcher = choose_progress(state, quiet=True, stream=stream)
    assert type(watcher) is QuietProgress
    watcher.note("something")
    ran(state, 0, outcome, "exit code 3" if outcome == "failed" else "")
    watcher(state)
    watcher.finish(state, 0 if outcome == "done" else 2, Path("/runs/demo"))
    assert len(told(stream)) == lines + (outcome == "failed")


def test_the_summary_names_failures_their_last_words_and_how_to_go_on(clock: Clock) -> None:
    state, stream = begun([Task(f"t{n:02}", 0) for n in range(15)]), io.StringIO()
    watcher = choose_progress(state, quiet=True, stream=stream)
    for task in range(12):
        ran(state, task, "failed", f"exit code {task + 1}\nlast words of {task}")
    for task in range(12, 15):
        ran(state, task)
    clock.now += 61
    watcher.finish(state, 2, Path("/runs/demo"))
    lines = told(stream)
    assert lines[0] == "demo: failed after 1 min 01 s: 3 done, 12 failed"
    assert lines[1:4] == ["t00: exit code 1", "    | last words of 0", "    see: cantle logs /runs/demo t00"]
    assert lines[-2] == "... and 2 more: cantle status /runs/demo --failed"
    assert lines[-1] == "Go on where it ended: cantle resume /runs/demo"
    assert sum("exit code" in line for line in lines) == 10


def test_a_reader_that_has_gone_does_not_stop_the_run(clock: Clock) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    state = begun([Task("a", 0)])
    watcher = choose_progress(state, stream=Gone())
    ran(state, 0)
    watcher(state)
    watcher.note("anybody?")
    watcher.finish(state, 0, Path("/runs/demo"))
    assert watcher._gone


def test_names_that_the_stream_cannot_encode_are_told_all_the_same(clock: Clock) -> None:
    state = begun([Task("größe", 0)])
    raw = io.BytesIO()
    watcher = choose_progress(state, stream=io.TextIOWrapper(raw, encoding="ascii"))
    ran(state, 0)
    watcher(state)
    assert b"done      gr??e" in raw.getvalue()


@pytest.mark.parametrize(("stream", "kind"), [(io.StringIO(), "PlainProgress"), (Terminal(), "LiveProgress")])
def test_a_terminal_gets_a_live_view_and_nobody_else(
    stream: io.StringIO, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert type(choose_progress(begun([Task("a", 0)]), stream=stream)).__name__ == kind


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert type(choose_progress(begun([Task("a", 0)]), stream=Terminal())) is PlainProgress


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What a live view draws; no rich, no terminal."""
    pictures: list[list[str]] = []

    class Screen:
        def __init__(self, stream: object) -> None:
            pass

        def draw(self, lines: list[str]) -> None:
            pictures.append(lines)

        def close(self) -> None:
            pictures.append(["closed"])

        def above(self, line: str) -> None:
            pictures.append([line])

    monkeypatch.setattr(live, "Screen", Screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return pictures


def test_the_view_is_drawn_at_most_four_times_a_second(clock: Clock, drawn: list[list[str]]) -> None:
    state = begun([Task("a", 0), Task("b", 0)])
    watcher = choose_progress(state, stream=Terminal())
    launch(state, 0)
    for _ in range(3000):
        clock.now += 0.001
        watcher(state)
    assert 10 <= len(drawn) <= 12


def test_a_run_of_a_moment_draws_nothing(clock: Clock, drawn: list[list[str]]) -> None:
    state, stream = begun([Task("a", 0)]), Terminal()
    watcher = choose_progress(state, stream=stream)
    for _ in range(100):
        clock.now += 0.002
        watcher(state)
    ran(state, 0)
    watcher.finish(state, 0, Path("/runs/demo"))
    assert drawn == []
    assert told(stream)[-1] == "demo: 1 task done in 0.20 s, in /runs/demo"


def test_the_view_shows_steps_running_tasks_cores_the_end_and_failures(
    clock: Clock, drawn: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "time", lambda: 4.0)
    tasks = [Task(f"sim_{n}", 0) for n in range(6)] + [Task("report", 1, (0,), 3.0)]
    state = begun(tasks, [Step("sim"), Step("report")], cores=2)
    watcher = choose_progress(state, stream=Terminal())
    ran(state, 0)
    ran(state, 1, "failed", "exit code 3\nlast words")
    launch(state, 2, at=2.0)
    launch(state, 3, at=3.0)
    clock.now += 1
    watcher(state)
    (picture,) = drawn
    assert picture[0].endswith("2/7  1.0 s  about 4.0 s left")
    assert picture[1].startswith("  sim     ##")
    assert picture[1].endswith("2/6  2 running, 1 failed")
    assert picture[2].startswith("  report  ..")
    assert picture[3] == "2 of 2 cores in use; 1 done, 2 running, 3 ready, 1 failed"
    assert picture[4:6] == ["  sim_2  2.0 s", "  sim_3  1.0 s"]
    assert picture[6] == "sim_1: exit code 3"


def test_the_view_says_that_a_run_is_being_stopped(clock: Clock, drawn: list[list[str]]) -> None:
    state = begun([Task("a", 0), Task("b", 0)])
    watcher = choose_progress(state, stream=Terminal())
    launch(state, 0)
    state.apply(StopAsked(1.0, "signal SIGINT"))
    clock.now += 1
    watcher(state)
    told = "stopping (signal SIGINT): 1 running task is being ended"
    assert drawn[-1][1] == f"{told}; once more ends them at once"
    state.apply(StopAsked(2.0, "signal SIGINT", at_once=True))
    clock.now += 1
    watcher(state)
    assert drawn[-1][1] == told


def test_the_view_of_many_steps_shows_those_at_work(clock: Clock, drawn: list[list[str]]) -> None:
    n = 40
    state = begun([Task(f"t{i}", i) for i in range(n)], [Step(f"step{i:02}") for i in range(n)])
    watcher = choose_progress(state, stream=Terminal())
    launch(state, 30)
    clock.now += 1
    watcher(state)
    shown = [line for line in drawn[-1] if line.startswith("  step")]
    assert len(shown) == live.MOST_STEPS
    assert any("step30" in line for line in shown)
    assert f"  … {n - live.MOST_STEPS} more steps" in drawn[-1]


def test_the_view_goes_when_the_run_breaks_off(clock: Clock, drawn: list[list[str]]) -> None:
    state = begun([Task("a", 0), Task("b", 0)])
    watcher = choose_progress(state, stream=Terminal())
    clock.now += 1
    watcher(state)
    watcher.note("a word")
    watcher.abandon()
    assert drawn[1:] == [["note: a word"], ["closed"]]


def in_python(code: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
        **more,  # type: ignore[call-overload]
    )


def test_rich_is_not_loaded_where_there_is_no_terminal() -> None:
    code = """
import io, sys
from cantle.core.state import State
from cantle.report.progress import choose_progress
from cantle.report.statusfile import StatusFile
choose_progress(State(), stream=io.StringIO())(State())
print([name for name in ("rich", "click", "psutil", "asyncio", "json", "logging", "subprocess") if name in sys.modules])
"""
    assert in_python(code).stdout == "[]\n"


@pytest.mark.real
def test_on_a_real_terminal_the_view_is_drawn_and_gone_at_the_end(tmp_path: Path) -> None:
    import pty

    code = f"""
import time, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_progress import begun, launch, end, ran
from cantle.model.study import Step, Task
from cantle.report.progress import choose_progress
from pathlib import Path
state = begun([Task("first", 0), Task("second", 1), Task("third", 0)], [Step("sim"), Step("report")])
watcher = choose_progress(state)
ran(state, 0)
launch(state, 1, time.time())
for _ in range(8):
    time.sleep(0.1)
    watcher(state)
end(state, 1, time.time()); ran(state, 2)
watcher.finish(state, 0, Path("/runs/demo"))
"""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
    )
    os.close(slave)
    pieces = []
    try:
        while piece := os.read(master, 65536):
            pieces.append(piece)
    except OSError:
        pass  # Linux tells the end of a terminal so
    os.close(master)
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0
    text = b"".join(pieces).decode()
    assert "\x1b[36m1 running\x1b[0m" in text
    assert re.search(r"second  \d", text), "how long it has run so far"
    last = text.rpartition("\x1b[2K")[2]
    assert "demo: all 3 tasks done in " in last
    assert "running" not in last


def simulated(
    tasks: list[Task], steps: list[Step], durations: Callable[[int], float], until: float, cores: int
) -> State:
    """A state as it is at some second of a simulated run."""
    state = State()
    world = SimulatedWorld(state, [(0.0, [Node("n", cores)])], lambda task, _: Fate(durations(task)))
    log = Shifted()
    for record in (StudyAdded(0.0, "s", steps), TasksAdded(0.0, 0, tasks)):
        state.apply(record)
    run(state, world, log, Decider())
    now = State()
    for record in (StudyAdded(0.0, "s", steps), TasksAdded(0.0, 0, tasks)):
        now.apply(record)
    for record in log.records:
        at = record.time - 1_900_000_000.0
        if at > until:
            break
        now.apply(msgspec.structs.replace(record, time=at))
    return now


def test_the_end_is_not_known_where_nothing_is() -> None:
    assert pace_of(begun([Task("a", 0)])).left_s(begun([Task("a", 0)]), 0.0) is None


def test_the_end_is_not_known_before_one_task_of_each_step_ran() -> None:
    state = begun([Task("a", 0), Task("b", 1)], [Step("s"), Step("t")])
    ran(state, 0)
    assert pace_of(state).left_s(state, 2.0) is None


def test_the_end_comes_from_estimates_before_anything_ran() -> None:
    state = begun([Task(f"t{n}", 0, (), 5.0) for n in range(8)], cores=4)
    assert pace_of(state).left_s(state, 0.0) == 10.0


def test_the_end_comes_from_what_ran_where_there_is_no_estimate() -> None:
    state = begun([Task(f"t{n}", 0) for n in range(9)], cores=4)
    ran(state, 0)
    assert pace_of(state).left_s(state, 2.0) == pytest.approx(8 * 2.0 / 4)


def test_a_long_chain_bounds_the_end() -> None:
    state = begun([Task(f"t{n}", 0, (n - 1,) if n else (), 5.0) for n in range(8)], cores=4)
    assert pace_of(state).left_s(state, 0.0) == 40.0
    launch(state, 0)
    assert pace_of(state).left_s(state, 3.0) == pytest.approx(37.0)


def test_the_end_is_not_known_while_there_are_no_cores() -> None:
    state = State()
    state.apply(StudyAdded(0.0, "s", [Step("s")]))
    state.apply(TasksAdded(0.0, 0, [Task("a", 0, (), 5.0)]))
    assert pace_of(state).left_s(state, 0.0) is None


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
def test_the_estimated_end_is_near_the_true_one(share: float) -> None:
    steps = [Step("a"), Step("b")]
    tasks = [Task(f"a{n}", 0) for n in range(60)] + [Task(f"b{n}", 1, (n,), 2.0) for n in range(60)]
    whole = 60 * (3.0 + 2.0) / 4
    state = simulated(tasks, steps, lambda task: 3.0 if task < 60 else 2.0, share * whole, 4)
    left = pace_of(state).left_s(state, share * whole)
    assert left == pytest.approx((1 - share) * whole, rel=0.15, abs=3.0)


def test_the_pace_learned_on_the_way_is_that_of_a_fresh_look() -> None:
    state = begun([Task(f"t{n}", 0) for n in range(9)], cores=4)
    state.news = []
    pace = Pace()
    for task in range(5):
        ran(state, task)
    for task in state.news:
        pace.add(state, task)
    assert pace.left_s(state, 2.0) == pace_of(state).left_s(state, 2.0) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.00 s"),
        (0.0412, "0.04 s"),
        (0.994, "0.99 s"),
        (0.996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (3599.6, "1 h 00 min"),
        (7800, "2 h 10 min"),
        (86399.6, "1 d 0 h"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_base_tells_nothing_by_itself(clock: Clock) -> None:
    state, stream = begun([Task("a", 0)]), io.StringIO()
    watcher = Progress(state, stream, lambda: 1, lambda: 0)
    ran(state, 0)
    watcher(state)
    assert stream.getvalue() == ""
    assert watcher.over == 1
