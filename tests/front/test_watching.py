"""`cantle wait`, `explain`, `logs`, `status --live`: a run watched from another shell."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rundirs import START, Conductor, cantle, demo, records_of, write_run

from cantle.cli.main import COMMANDS, command_named
from cantle.cli.naming import complete_task
from cantle.core.state import State
from cantle.errors import RequestError
from cantle.model.records import AnyRecord, TaskEnded, TaskStarted
from cantle.model.study import Step, Task
from cantle.report.loading import load
from cantle.report.logs import print_log
from cantle.report.naming import find_task, find_tasks
from cantle.runtime.simulated import Fate
from cantle.store.journal import Journal
from cantle.store.layout import Layout

HALF = 8
"""So many records of `demo` are those of a run that is under way: both simulations have started."""

FINISH = """
time.sleep(0.3)
for record in {records}:
    journal.write(record)
journal.flush()
journal.close()
lock.release()
sys.exit(0)
"""


def rest_of(records: list[AnyRecord], done: int) -> str:
    """What a conductor process does to write the rest of these records."""
    import msgspec

    lines = [msgspec.json.encode(record).decode() for record in records[done:]]
    return FINISH.format(records=f"[msgspec.json.decode(line, type=AnyRecord) for line in {lines!r}]").replace(
        "\ntime", "\nimport msgspec\ntime", 1
    )


def one_task(outcome: str = "done") -> list[AnyRecord]:
    return records_of([Step("s")], [Task("a", 0, (), 0.0, (), "s", "")], lambda *_: Fate(5.0, outcome))  # type: ignore[arg-type]


def running(directory: Path, tasks: list[Task] | None = None) -> list[AnyRecord]:
    """A directory of a run whose first task has just started; all records that the run would have."""
    told = records_of([Step("s")], tasks or [Task("a", 0, (), 0.0, (), "s", "")], lambda *_: Fate(5.0))
    first = next(index for index, record in enumerate(told) if type(record) is TaskStarted)
    told[first] = TaskStarted(told[first].time, 0, 1, 4711)
    write_run(directory, told[: first + 1])
    return told[first + 1 :]


def append(directory: Path, records: list[AnyRecord]) -> None:
    with Journal.reopen(Layout(directory).journal) as journal:
        for record in records:
            journal.write(record)


# wait


@pytest.mark.parametrize(("outcome", "code"), [("done", 0), ("failed", 2), ("canceled", 3)])
def test_wait_ends_as_the_run_ended(
    outcome: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, one_task(outcome))
    assert cantle("wait", tmp_path) == code
    assert capsys.readouterr().out.startswith(f"demo: {outcome} after 5.5 s")


@pytest.mark.real
def test_wait_waits_for_the_end_and_for_the_conductor_to_leave(tmp_path: Path) -> None:
    told = one_task("failed")
    write_run(tmp_path, told[:6])
    slow_to_leave = rest_of(told, 6).replace("lock.release()", "time.sleep(1.0); lock.release()")
    with Conductor(tmp_path, slow_to_leave):
        assert cantle("wait", tmp_path, "--timeout", 200) == 2
        assert load(tmp_path).conductor is None


@pytest.mark.real
def test_wait_notices_that_the_conductor_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, until=HALF)
    with Conductor(tmp_path) as conductor:
        killer = threading.Timer(0.4, conductor.process.kill)
        killer.start()
        assert cantle("wait", tmp_path, "--timeout", 200) == 1
        killer.join()
    assert "its conductor is dead: go on with `cantle resume" in capsys.readouterr().err


@pytest.mark.real
def test_wait_gives_up_when_the_time_is_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, until=HALF)
    with Conductor(tmp_path):
        assert cantle("wait", tmp_path, "--timeout", 0.3) == 124
    assert "waited for 0.3 s" in capsys.readouterr().err


def test_wait_for_a_run_on_another_machine_that_gives_signs_of_life_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import msgspec

    from cantle.store.lock import Holder

    demo(tmp_path, until=HALF)
    lock = Layout(tmp_path).lock
    far = Holder("far", 7, time.time(), time.time(), boot="another boot")
    lock.write_bytes(msgspec.json.encode(far) + b"\n")
    assert cantle("wait", tmp_path, "--timeout", 0.2) == 124
    assert "conductor pid 7 on host far" in capsys.readouterr().err
    lock.write_bytes(msgspec.json.encode(msgspec.structs.replace(far, heartbeat=time.time() - 3600)) + b"\n")
    assert cantle("wait", tmp_path) == 1


# explain


@pytest.mark.real
def test_explain_tells_why_a_task_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, until=HALF)
    with Conductor(tmp_path):
        assert cantle("explain", tmp_path, "report_N.1") == 0
    out = capsys.readouterr().out
    assert out.startswith("report_N.1 is waiting.\nIt waits for 1 task to succeed: sim_N.1 (")


def test_explain_of_a_dead_run_says_so_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, until=HALF)
    assert cantle("explain", tmp_path, "report_N.1") == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("The conductor of this run is dead: nothing of it runs.")
    assert first.endswith(f"go on with `cantle resume {tmp_path}`.")
    assert rest[0] == "report_N.1 is waiting."


def test_explain_of_a_failure_says_how_to_try_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path)
    assert cantle("explain", tmp_path, "sim_N.2") == 0
    assert f"See: cantle logs {tmp_path} sim_N.2" in capsys.readouterr().out
    assert cantle("explain", tmp_path, "report_N.2") == 0
    assert capsys.readouterr().out == "report_N.2 was skipped: sim_N.2 did not succeed.\n"


# names


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("sim", ["sim"]),
        ("sim_N.1", ["sim_N.1"]),
        ("sim_N.1*", ["sim_N.1", "sim_N.10"]),
        ("rep", ["report"]),
        ("report", ["report"]),
        ("*.10", ["sim_N.10"]),
        ("post", ["p1", "p2"]),
        ("sim_", ["sim_N.1", "sim_N.10"]),
        ("a[1]", ["a[1]"]),
    ],
)
def test_names_mean_the_whole_name_first_then_a_pattern_a_step_or_a_beginning(said: str, found: list[str]) -> None:
    names = ["sim", "sim_N.1", "sim_N.10", "report", "a[1]", "a1"]
    tasks = [Task(name, 0) for name in names] + [Task("p1", 1), Task("p2", 1), Task("other", 2)]
    state = State()
    for record in records_of([Step("s"), Step("post"), Step("report")], tasks)[:3]:
        state.apply(record)
    assert [state.tasks[task].name for task in find_tasks(state, said)] == found


def test_an_ambiguous_name_lists_what_it_could_be_and_a_wrong_one_what_is_near(tmp_path: Path) -> None:
    state = load(demo(tmp_path)).state
    with pytest.raises(RequestError, match=r"'sim_' could be any of 2 tasks: sim_N\.1, sim_N\.2; say which one"):
        find_task(state, "sim_")
    with pytest.raises(RequestError, match=r"no task is called 'sin_N\.1'; did you mean sim_N\.1 or sim_N\.2\?"):
        find_task(state, "sin_N.1")
    with pytest.raises(RequestError, match=r"no task is called 'zzz'; there are sim_N\.1, sim_N\.2, "):
        find_task(state, "zzz")


def test_the_shell_completes_names_of_tasks_with_their_parameters(tmp_path: Path) -> None:
    demo(tmp_path)
    asked = Namespace(directory=str(tmp_path))
    assert complete_task("sim", asked) == {"sim_N.1": "N:1", "sim_N.2": "N:2"}
    assert complete_task("x", asked) == {}
    assert complete_task("sim", Namespace(directory=str(tmp_path / "nowhere"))) == {}
    assert complete_task("sim", Namespace()) == {}
    for command in ("logs", "explain", "cancel"):
        (action,) = [action for action in command_named(command).parser()._actions if action.dest == "task"]
        assert action.completer is complete_task  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "command",
    ["status", "wait", "explain", "logs", "cancel", "update", "validate", "simulate", "orchestrate"],
)
def test_each_command_explains_itself_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command in COMMANDS
    assert cantle(command, "--help") == 0
    out = capsys.readouterr().out
    assert f"\n  cantle {command} " in out
    assert "Exit status" in out or command in ("logs", "explain")
    assert max(map(len, out.splitlines())) <= 120


# logs


def test_logs_prints_what_the_last_attempt_printed(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    rest = running(tmp_path)
    append(tmp_path, rest)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.1.out").write_bytes(b"another attempt\n")
    (tmp_path / "s" / "a.4711.out").write_bytes(b"hello \xff\0 world")
    (tmp_path / "s" / "a.4711.err").write_bytes(b"oh\n")
    assert cantle("logs", tmp_path, "a") == 0
    assert capfdbinary.readouterr().out == b"hello \xff\0 world"
    assert cantle("logs", tmp_path, "a", "--err") == 0
    assert capfdbinary.readouterr().out == b"oh\n"


def test_logs_of_an_earlier_attempt(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    told = records_of(
        [Step("s", retries=1)],
        [Task("a", 0, (), 0.0, (), "s", "")],
        lambda _, attempt: Fate(1.0, "failed" if attempt == 1 else "done"),
    )
    pids = iter((100, 200))
    told = [
        TaskStarted(record.time, 0, record.attempt, next(pids)) if type(record) is TaskStarted else record
        for record in told
    ]
    write_run(tmp_path, told)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.100.out").write_bytes(b"first")
    (tmp_path / "s" / "a.200.out").write_bytes(b"second")
    assert cantle("logs", tmp_path, "a", "--attempt", 1) == 0
    assert capfdbinary.readouterr().out == b"first"
    assert cantle("logs", tmp_path, "a") == 0
    assert capfdbinary.readouterr().out == b"second"
    assert cantle("logs", tmp_path, "a", "--attempt", 3) == 1
    assert b"a has had 2 attempts, there is none with number 3" in capfdbinary.readouterr().err


def packed(record: AnyRecord, output: str) -> AnyRecord:
    import msgspec

    return msgspec.structs.replace(record, output=output) if type(record) is TaskEnded else record


def test_logs_of_a_packed_task_are_its_own_bytes_alone(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """O29."""
    told = records_of([Step("s")], [Task("a", 0)])
    output = "the shared.out 3 5\tthe shared.err 2 0"
    write_run(tmp_path, [packed(record, output) for record in told])
    (tmp_path / "the shared.out").write_bytes(b"...HELLO...")
    (tmp_path / "the shared.err").write_bytes(b"..")
    assert cantle("logs", tmp_path, "a") == 0
    assert capfdbinary.readouterr().out == b"HELLO"
    assert cantle("logs", tmp_path, "a", "--err") == 0
    assert capfdbinary.readouterr().out == b""


def test_logs_says_that_the_part_of_a_running_packed_task_is_not_known_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running(tmp_path, [Task("a", 0)])
    assert cantle("logs", tmp_path, "a") == 1
    assert "its output lies in a file that it shares with other tasks" in capsys.readouterr().err


def test_logs_of_a_task_that_has_not_started_points_to_explain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(tmp_path, until=HALF)
    assert cantle("logs", tmp_path, "report_N.1") == 1
    assert f"has not started yet. To learn why: cantle explain {tmp_path} report_N.1" in capsys.readouterr().err


def test_logs_says_where_it_looked_when_the_files_are_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(tmp_path, running(tmp_path))
    assert cantle("logs", tmp_path, "a") == 1
    assert f"attempt 1 of a left no stdout in {tmp_path}/s; was it removed?" in capsys.readouterr().err


def test_logs_follows_an_attempt_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = running(tmp_path)
    (tmp_path / "s").mkdir()
    file = tmp_path / "s" / "a.4711.out"
    file.write_bytes(b"one ")
    into = io.BytesIO()
    seen = []
    pauses = iter(range(100))

    def pause(_seconds: float) -> None:
        seen.append(into.getvalue())
        turn = next(pauses)
        if turn == 0:
            file.write_bytes(b"one two ")
        elif turn == 2:
            file.write_bytes(b"one two three")
            append(tmp_path, rest)

    monkeypatch.setattr("cantle.report.logs.sleep", pause)
    monkeypatch.setattr("cantle.report.loading.holder", lambda _: SimpleNamespace(host="h", pid=1, since=START))
    print_log(load(tmp_path), 0, None, "out", True, into)
    assert seen[:3] == [b"one ", b"one two ", b"one two "]
    assert into.getvalue() == b"one two three"
    assert len(seen) == 3


def test_logs_follows_a_packed_task_until_its_part_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = running(tmp_path, [Task("a", 0)])
    (tmp_path / "shared.out").write_bytes(b"..mine..")

    def pause(_seconds: float) -> None:
        append(tmp_path, [packed(record, "shared.out 2 4\tshared.err 0 0") for record in rest])

    monkeypatch.setattr("cantle.report.logs.sleep", pause)
    monkeypatch.setattr("cantle.report.loading.holder", lambda _: SimpleNamespace(host="h", pid=1, since=START))
    into = io.BytesIO()
    print_log(load(tmp_path), 0, None, "out", True, into)
    assert into.getvalue() == b"mine"


def test_logs_does_not_follow_what_nobody_runs_any_more(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    running(tmp_path)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.4711.out").write_bytes(b"last words")
    assert cantle("logs", tmp_path, "a", "--follow") == 0
    assert capfdbinary.readouterr().out == b"last words"


def test_logs_streams_large_output_without_holding_it(tmp_path: Path) -> None:
    append(tmp_path, running(tmp_path))
    (tmp_path / "s").mkdir()
    with open(tmp_path / "s" / "a.4711.out", "wb") as file:
        file.truncate(1 << 30)
    code = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
from cantle.cli.main import main
main(["logs", {str(tmp_path)!r}, "a"])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        size = 0
        while piece := process.stdout.read(1 << 20):
            size += len(piece)
    assert (process.returncode, size) == (0, 1 << 30)


# status --live


@pytest.mark.real
def test_live_status_on_a_pipe_waits_and_then_tells_the_end(tmp_path: Path) -> None:
    told = one_task()
    write_run(tmp_path, told[:6])
    with Conductor(tmp_path, rest_of(told, 6)):
        out = subprocess.run(
            [sys.executable, "-m", "cantle", "status", str(tmp_path), "--live"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
    assert out.startswith("demo: done after 5.5 s")
    assert "\x1b" not in out


@pytest.mark.real
def test_live_status_on_a_terminal_draws_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    import pty
    import signal

    demo(tmp_path, until=HALF)
    with Conductor(tmp_path):
        master, slave = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "cantle", "status", str(tmp_path), "--live", "--disable-pager"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        ) as process:
            os.close(slave)
            text = ""
            deadline = time.monotonic() + 120
            while "Ctrl-C ends the watching" not in text and time.monotonic() < deadline:
                text += os.read(master, 65536).decode()
            process.send_signal(signal.SIGINT)
            try:
                while piece := os.read(master, 65536):
                    text += piece.decode()
            except OSError:
                pass  # Linux tells the end of a terminal so
            assert process.wait() == 0
        os.close(master)
    assert "of 2 cores in use" in text
    assert "Traceback" not in text
    assert "Step Name" in text.rpartition("Ctrl-C ends the watching")[2]
