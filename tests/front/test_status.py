"""`status.csv` and `cantle status`: how a run stands, for people, programs and Maestro's own tools."""

from __future__ import annotations

import csv
import io
import os
import time
from pathlib import Path

import msgspec
import pytest
from rundirs import START, Conductor, cantle, demo, records_of, write_run

from cantle.core.state import State
from cantle.model.records import CancelAsked, RunResumed, StopAsked, TaskHindered
from cantle.model.study import Step, Task
from cantle.report.loading import Condition, load
from cantle.report.statusfile import COLUMNS, HEADER, ROWS_AT_ONCE, StatusFile, span
from cantle.report.steps import bar, step_rows
from cantle.runtime.pilot.address import directory_of
from cantle.runtime.simulated import Fate
from cantle.store.layout import DOOR, Layout


def folded(records: list) -> State:
    state = State()
    for record in records:
        state.apply(record)
    return state


def local(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(START + seconds))


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_the_status_file_is_maestros_to_the_letter(tmp_path: Path) -> None:
    state = load(demo(tmp_path / "run")).state
    StatusFile(tmp_path / "status.csv").write(state)
    header = (
        "Step Name,Job ID,Workspace,State,Run Time,Elapsed Time,Start Time,Submit Time,End Time,Number Restarts,Params"
    )
    ten, four = "0d:00h:00m:10s,0d:00h:00m:10s", "0d:00h:00m:04s,0d:00h:00m:04s"
    assert (tmp_path / "status.csv").read_text() == "\n".join(
        [
            header,
            f"sim_N.1,--,sim/N.1,FINISHED,{ten},{local(1)},{local(1)},{local(11)},0,N:1",
            f"sim_N.2,--,sim/N.2,FAILED,{four},{local(1)},{local(1)},{local(5)},0,N:2",
            f"report_N.1,--,report/N.1,FINISHED,{ten},{local(11)},{local(11)},{local(21)},0,N:1",
            f"report_N.2,--,report/N.2,FAILED,--:--:--,--:--:--,--,--,{local(5)},0,N:2",
        ]
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_maestro_itself_reads_the_status_file(tmp_path: Path) -> None:
    from maestrowf.conductor import Conductor as MaestroConductor

    state = load(demo(tmp_path / "run")).state
    StatusFile(tmp_path / "status.csv").write(state)
    table = MaestroConductor.get_status(str(tmp_path))
    assert list(table) == list(COLUMNS)
    assert table["Step Name"] == ["sim_N.1", "sim_N.2", "report_N.1", "report_N.2"]
    assert table["State"] == ["FINISHED", "FAILED", "FINISHED", "FAILED"]
    assert table["Params"] == ["N:1", "N:2", "N:1", "N:2"]


def test_cells_with_commas_quotes_and_newlines_are_read_back_as_they_were(tmp_path: Path) -> None:
    params = ['A:x,y;B:"z"', '"A":1', "A:two\nlines", 'A:mid"dle']
    tasks = [Task(f"t{n}", 0, (), 0.0, (), f"t/{n}", text) for n, text in enumerate(params)]
    StatusFile(tmp_path / "status.csv").write(folded(records_of([Step("t")], tasks)))
    assert [row["Params"] for row in rows_of(tmp_path / "status.csv")] == params
    assert ',A:mid"dle' in (tmp_path / "status.csv").read_text()


@pytest.mark.parametrize(
    ("records", "states"),
    [
        (5, ["RUNNING", "RUNNING", "INITIALIZED"]),
        (3, ["PENDING", "PENDING", "INITIALIZED"]),
    ],
)
def test_states_of_unfinished_tasks_bear_maestros_names(tmp_path: Path, records: int, states: list[str]) -> None:
    tasks = [Task("a", 0), Task("b", 0), Task("c", 0, (0,))]
    told = records_of([Step("s")], tasks)
    launches = [index for index, record in enumerate(told) if type(record).__name__ == "Launch"]
    state = folded(told[: launches[1] + 1] if records == 5 else told[:3])
    StatusFile(tmp_path / "status.csv").write(state)
    assert [row["State"] for row in rows_of(tmp_path / "status.csv")] == states


def test_timeouts_cancels_and_restarts_bear_maestros_names(tmp_path: Path) -> None:
    steps = [Step("s", walltime_s=5.0), Step("r", walltime_s=5.0, restartable=True)]
    tasks = [Task("late", 0), Task("again", 1), Task("ended", 0)]
    fates = {0: 9.0, 1: 9.0, 2: 3.0}
    asked = [CancelAsked(1.0, [2])]
    told = records_of(steps, tasks, lambda task, _: Fate(fates[task]), asked=asked)
    StatusFile(tmp_path / "status.csv").write(folded(told))
    rows = rows_of(tmp_path / "status.csv")
    assert [row["State"] for row in rows] == ["TIMEDOUT", "TIMEDOUT", "CANCELLED"]
    assert [row["Number Restarts"] for row in rows] == ["0", "1", "0"]


def test_a_running_task_shows_the_time_so_far(tmp_path: Path) -> None:
    told = records_of([Step("s")], [Task("a", 0)])
    last = next(index for index, record in enumerate(told) if type(record).__name__ == "TaskStarted")
    state = folded(told[: last + 1])
    state.now = START + 3725.6
    StatusFile(tmp_path / "status.csv").write(state)
    (row,) = rows_of(tmp_path / "status.csv")
    assert (row["Run Time"], row["Elapsed Time"]) == ("0d:01h:02m:05s", "0d:01h:02m:05s")
    assert (row["Submit Time"], row["Start Time"], row["End Time"]) == (local(0), local(1), "--")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_spans_are_written_as_maestro_writes_them() -> None:
    from datetime import timedelta

    from maestrowf.utils import get_duration

    for seconds in (0, 0.9, 59.99, 60, 3599, 3600, 86399.5, 86400, 1e6):
        assert span(seconds) == get_duration(timedelta(seconds=seconds))


def test_the_status_file_is_rewritten_at_most_every_two_seconds(tmp_path: Path) -> None:
    now = [100.0]
    path = tmp_path / "status.csv"
    file = StatusFile(path, clock=lambda: now[0])
    state = folded(records_of([Step("s")], [Task("a", 0)]))

    def turns_until_written() -> float:
        path.unlink(missing_ok=True)
        began = now[0]
        while not path.exists():
            now[0] += 0.01
            file(state)
            assert now[0] - began < 10
        return now[0] - began

    assert turns_until_written() < 0.1
    assert turns_until_written() == pytest.approx(2.0, abs=0.1)


def test_a_costly_status_file_takes_two_percent_of_the_time_and_no_turn_for_long(tmp_path: Path) -> None:
    rows = 5 * ROWS_AT_ONCE
    state = folded(records_of([Step("s")], [Task(f"t{n}", 0) for n in range(rows)], lambda *_: Fate(1.0)))
    now, spent, turns, made = [0.0], 0.0, 0, []

    def clock() -> float:
        now[0] += 0.05  # each look at the clock takes long: so does each piece
        return now[0]

    file = StatusFile(tmp_path / "status.csv", clock=clock)
    step = file._piece
    file._piece = lambda state: (made.append(now[0]), step(state))[1]  # type: ignore[method-assign]
    while now[0] < 120.0:
        before = len(made)
        began = now[0]
        file(state)
        assert len(made) - before <= 1, "one piece a turn"
        if len(made) > before:
            spent += now[0] - began
        turns += 1
    assert len(rows_of(tmp_path / "status.csv")) == rows
    assert len(made) >= 7
    assert spent / now[0] < 0.08  # three looks at the clock a piece here, one of which is the piece


def test_readers_never_see_half_a_status_file(tmp_path: Path) -> None:
    path = tmp_path / "status.csv"
    rows = 3 * ROWS_AT_ONCE
    state = folded(records_of([Step("s")], [Task(f"t{n}", 0) for n in range(rows)], lambda *_: Fate(1.0)))
    now = [0.0]
    file = StatusFile(path, clock=lambda: now[0])
    seen = set()
    for _ in range(30):
        now[0] += 5
        file(state)
        seen.add(len(rows_of(path)) if path.exists() else None)
    assert seen == {None, rows}


def test_a_status_file_that_cannot_be_written_does_not_stop_the_run(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "gone" / "status.csv")
    state = folded(records_of([Step("s")], [Task("a", 0)]))
    file(state)
    file.write(state)
    assert "out of date" in file.trouble
    (tmp_path / "gone").mkdir()
    file.write(state)
    assert file.trouble == ""
    assert len(rows_of(tmp_path / "gone" / "status.csv")) == 1


def test_the_status_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    state = folded(records_of([Step("s")], [Task("a", 0)]))
    before = len(os.listdir("/proc/self/fd"))
    for n in range(20):
        StatusFile(tmp_path / str(n % 2) / "status.csv").write(state)
        (tmp_path / "0").mkdir(exist_ok=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_steps_with_one_name_are_one_row() -> None:
    state = folded(records_of([Step("a"), Step("a", priority=2.0), Step("b")], [Task("x", 0), Task("y", 1)]))
    (row,) = step_rows(state)
    assert (row.name, row.tasks, row.over) == ("a", 2, 2)


@pytest.mark.parametrize("width", [1, 10, 30])
def test_a_bar_has_its_width_and_shows_a_single_failure(width: int) -> None:
    totals = [3, 0, 0, 0, 9_996, 1, 0, 0, 0]
    assert len(bar(totals, width, colour=False)) == width
    if width > 1:
        assert "!" in bar(totals, width, colour=False)


def test_status_tells_what_failed_and_how_to_try_it_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo(tmp_path / "my run")
    workspace = tmp_path / "my run" / "sim" / "N.2"
    workspace.mkdir(parents=True)
    (workspace / "sim_N.2.sh").write_text("#!/bin/sh -e\n\nfalse\n")
    assert cantle("status", "my run") == 0
    out = capsys.readouterr().out
    assert out.startswith("demo: failed after 21 s")
    assert "go on with `cantle resume 'my run'`" in out.splitlines()[0]
    assert "2 done, 1 failed, 1 skipped" in out
    assert "failed: sim_N.2: exit code 1" in out
    assert "run it again: cd 'my run/sim/N.2' && /bin/sh -e ./sim_N.2.sh" in out
    assert "\x1b" not in out


def test_the_rerun_command_of_a_failure_really_runs_it(tmp_path: Path) -> None:
    import subprocess

    from cantle.report.failures import failure_of

    run = load(demo(tmp_path / "it's"))
    workspace = tmp_path / "it's" / "sim" / "N.2"
    workspace.mkdir(parents=True)
    (workspace / "sim_N.2.sh").write_text('#!/bin/bash\n\necho "in $(basename $PWD)"; exit 7\n')
    again = failure_of(run.state, 1, run.directory).again
    ended = subprocess.run(again, shell=True, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (7, "in N.2\n")


@pytest.mark.parametrize("layout", ["flat", "legacy", "narrow"])
def test_each_layout_shows_each_task_with_its_state(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(tmp_path / "run")
    assert cantle("status", tmp_path / "run", "--layout", layout) == 0
    out = capsys.readouterr().out
    for name, state in (("sim_N.1", "FINISHED"), ("sim_N.2", "FAILED"), ("report_N.2", "SKIPPED")):
        assert name in out
        assert state in out
    assert ("Params" not in out) if layout != "narrow" else ("  N:2" in out)


def test_large_studies_are_listed_only_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, records_of([Step("s")], [Task(f"t{n}", 0) for n in range(101)], lambda *_: Fate(1.0)))
    assert cantle("status", tmp_path) == 0
    assert "t100" not in capsys.readouterr().out
    assert cantle("status", tmp_path, "--all") == 0
    assert "t100" in capsys.readouterr().out


def test_failures_are_listed_up_to_twenty_unless_all_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [Task(f"t{n:03}", 0) for n in range(150)]
    write_run(tmp_path, records_of([Step("s")], tasks, lambda *_: Fate(1.0, "failed")))
    assert cantle("status", tmp_path) == 0
    out = capsys.readouterr().out
    assert out.count("failed: t") == 20
    assert "... and 130 more: list them with --failed" in out
    assert cantle("status", tmp_path, "--failed") == 0
    assert capsys.readouterr().out.count("failed: t") == 150


def test_a_living_conductor_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, until=8)
    with Conductor(tmp_path) as conductor:
        assert cantle("status", tmp_path) == 0
        first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"demo: running (conductor pid {conductor.pid} on host {os.uname().nodename}, since ")
    assert "of 2 cores in use" in second


def test_a_dead_conductor_is_told_from_a_living_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path / "run", until=8)
    with Conductor(tmp_path / "run"):
        assert load(tmp_path / "run").condition == Condition.RUNNING
    assert load(tmp_path / "run").condition == Condition.DEAD
    assert cantle("status", tmp_path / "run") == 0
    assert f"its conductor is dead: go on with `cantle resume {tmp_path}/run`" in capsys.readouterr().out


def test_a_run_whose_study_was_never_written_down_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path / "a", until=1)
    with Conductor(tmp_path / "a"):
        assert load(tmp_path / "a").condition == Condition.STARTING
    assert cantle("status", tmp_path / "a") == 0
    assert "it ended before the study was written down" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "condition", "code"),
    [
        ([StopAsked(1.0, "signal SIGINT")], Condition.STOPPED, 3),
        ([CancelAsked(1.0)], Condition.CANCELED, 3),
        ([], Condition.FAILED, 2),
    ],
)
def test_conditions_and_exit_codes_of_runs_that_are_over(
    asked: list, condition: Condition, code: int, tmp_path: Path
) -> None:
    run = load(demo(tmp_path, asked=asked))
    assert (run.condition, run.exit_code) == (condition, code)


def test_the_duration_of_a_resumed_run_counts_from_its_resumption(tmp_path: Path) -> None:
    told = records_of([Step("s")], [Task("a", 0)])
    run = load(write_run(tmp_path, [*told, RunResumed(START + 1000, "here", 2)]))
    assert run.since == START + 1000
    assert run.seconds == 0.0


def test_status_as_json_is_one_object_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path / "a")
    demo(tmp_path / "b", until=8)
    assert cantle("status", tmp_path / "a", tmp_path / "b", "--json") == 0
    first, second = map(msgspec.json.decode, capsys.readouterr().out.splitlines())
    assert (first["state"], first["exit"], first["conductor"]) == ("failed", 2, None)
    assert first["counts"] == {"done": 2, "failed": 1, "skipped": 1}
    assert [step["name"] for step in first["steps"]] == ["sim", "report"]
    assert [task["task"] for task in first["failed"]] == ["sim_N.2"]
    assert first["list"][0]["seconds"] == 10.0
    assert (second["state"], second["exit"]) == ("dead", None)


def test_whoever_names_a_pilot_where_a_directory_is_asked_for_is_told_where_it_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    door = Layout(directory_of("eve")).own / DOOR
    door.parent.mkdir(parents=True)
    door.touch()
    for command in ("node list", "status"):
        assert cantle(*command.split(), "eve") == 1
        place = tmp_path / "state" / "cantle" / "pilots" / "eve"
        assert f"there is no directory {tmp_path}/eve; the pilot eve lies in {place}" in capsys.readouterr().err
    assert cantle("status", "adam") == 1
    assert capsys.readouterr().err.strip().endswith(f"there is no directory {tmp_path}/adam")


def test_a_directory_without_a_run_is_an_error_and_the_others_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo(tmp_path / "run")
    assert cantle("status", tmp_path / "nowhere", tmp_path, tmp_path / "run") == 1
    told = capsys.readouterr()
    assert f"there is no directory {tmp_path}/nowhere" in told.err
    assert f"{tmp_path} is not the directory of a Cantle run" in told.err
    assert told.out.startswith("demo: failed")


def test_names_that_would_play_tricks_on_a_terminal_are_shown_harmless(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, records_of([Step("s\x1b[2J")], [Task("a\x1b]0;x\x07", 0)], lambda *_: Fate(1.0, "failed")))
    assert cantle("status", tmp_path) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "a\\x1b]0;x\\x07" in out


@pytest.mark.parametrize("word", ["plain", "it's", "a b", "a\x1b[2Jb", "new\nline'\\", "é\u202eü", "$(x)`y`"])
def test_what_is_to_be_typed_means_what_it_stands_for(word: str) -> None:
    import subprocess

    from cantle.report.failures import quoted
    from cantle.runner.wording import in_a_shell

    for typed in (f"printf %s {quoted(word)}", in_a_shell("/", ("printf", "%s", word))):
        assert typed.isprintable()
        told = subprocess.run(["/bin/bash", "-c", typed], capture_output=True, check=True)
        assert told.stdout.decode() == word


def test_damage_in_the_journal_is_told_and_bridged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path)
    journal = tmp_path / ".cantle" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    hit = next(index for index, line in enumerate(lines) if b'"Launch"' in line)
    lines[hit] = b"\0" * (len(lines[hit]) - 1) + b"\n"
    journal.write_bytes(b"".join(lines))
    assert cantle("status", tmp_path) == 0
    out = capsys.readouterr().out
    assert f"note: the journal is damaged in line {hit + 1}" in out
    assert "2 done, 1 failed, 1 skipped" in out


def test_refresh_takes_in_what_was_written_since(tmp_path: Path) -> None:
    from cantle.store.journal import Journal
    from cantle.store.layout import Layout

    told = records_of([Step("s")], [Task("a", 0)])
    write_run(tmp_path, told[:5])
    run = load(tmp_path)
    assert run.refresh() == []
    with Journal.reopen(Layout(tmp_path).journal) as journal:
        for record in told[5:]:
            journal.write(record)
    assert run.refresh() == told[5:]
    assert run.condition == Condition.DONE


def test_a_journal_that_is_another_one_now_is_read_anew(tmp_path: Path) -> None:
    demo(tmp_path / "run")
    run = load(tmp_path / "run")
    other = write_run(tmp_path / "other", records_of([Step("s")], [Task("a", 0)]))
    (other / ".cantle" / "journal.jsonl").replace(tmp_path / "run" / ".cantle" / "journal.jsonl")
    run.refresh()
    assert [task.name for task in run.state.tasks] == ["a"]
    assert run.condition == Condition.DONE


def test_the_header_is_the_one_that_people_parse() -> None:
    assert next(csv.reader(io.StringIO(HEADER))) == list(COLUMNS)


def test_status_says_which_launch_has_not_begun_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = records_of([Step("mpi")], [Task("mpi", 0)], until=6)
    why = "Slurm does not start the step yet (Requested nodes are busy)"
    run = write_run(tmp_path / "run", [*records, TaskHindered(7.0, 0, 1, why)])
    assert list(load(run).state.hindered) == [0]
    assert cantle("status", run) == 0
    assert f"note: mpi has not begun: {why}" in capsys.readouterr().out
