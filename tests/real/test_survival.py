"""Does a real run survive what kills it? Real processes, real signals, a real full disk."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cantle.model.records import Launch, RunResumed, TaskEnded
from cantle.store.journal import read

pytestmark = pytest.mark.real

CANTLE = [sys.executable, "-m", "cantle"]


def start(*words: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*CANTLE, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def cantle(*words: str, cwd: Path, timeout: float = 240) -> tuple[int, str]:
    done = subprocess.run(
        [*CANTLE, *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False
    )
    return done.returncode, done.stdout.decode(errors="replace")


def wait_until(true: object, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def processes_with(word: str, program: str = "") -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if word.encode() in line and line.startswith(program.encode()) and int(pid) != os.getpid():
                found.append(int(pid))
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_fifty_kills_of_the_conductor_lose_nothing_and_repeat_nothing_that_was_finished(tmp_path: Path) -> None:
    chance = random.Random(20240)
    ran = tmp_path / "ran.txt"
    command = f"sleep 0.0{{}}; echo {{#}} >> {ran}"
    values = [str(chance.randint(1, 4)) for _ in range(1200)]
    (tmp_path / "values").write_text("\n".join(values) + "\n")
    first = ["map", command, "--lines", "values", "-o", "out", "-q", "--cores", "4"]
    kills = 0
    words = first
    while kills < 50:
        conductor = start(*words, cwd=tmp_path)
        if words is first:
            wait_until((tmp_path / "out/.cantle/journal.jsonl").exists)
        time.sleep(chance.uniform(0.05, 0.5))
        if conductor.poll() is not None:
            break
        conductor.send_signal(signal.SIGKILL)
        conductor.communicate()
        kills += 1
        words = ["resume", "out", "-q", "--cores", "4"]
    code, told = cantle("resume", "out", "-q", "--cores", "4", cwd=tmp_path, timeout=120)
    assert code == 0, told
    assert kills == 50, "the run ended before it was killed fifty times"

    attempts: Counter[int] = Counter()
    done: dict[int, int] = {}
    for record in read(tmp_path / "out/.cantle/journal.jsonl"):
        if isinstance(record, Launch):
            assert record.task not in done, "a finished task was launched again"
            attempts[record.task] += 1
        elif isinstance(record, TaskEnded) and record.outcome == "done":
            assert record.task not in done, "a task finished twice"
            done[record.task] = record.attempt
    assert set(done) == set(range(len(values))), "every task finished"
    names = Counter(int(line) - 1 for line in ran.read_text().split())
    assert set(names) == set(done), "every finished task did its work"
    for task, times in names.items():
        assert times <= attempts[task], "the work was done more often than the task was started"
    once = [task for task in done if attempts[task] == 1]
    assert len(once) > 300, "most kills found few tasks at work"
    assert all(names[task] == 1 for task in once)


def test_o34_results_of_tasks_that_ended_while_the_conductor_was_dead_count(tmp_path: Path) -> None:
    """It stands still when they end, and is killed before it could hear of that; nobody removes a lock by hand."""
    mark = f"o34.{random.randrange(10**9)}"
    command = f"until [ -e {mark} ]; do sleep 0.05; done; echo {{}} >> ran.txt"
    conductor = start("map", command, "--range", "1-4", "--cores", "4", "-o", "out", cwd=tmp_path)
    wait_until(lambda: len(processes_with(mark, "/bin/bash")) == 4)
    wait_until(lambda: sum(type(record) is Launch for record in read(tmp_path / "out/.cantle/journal.jsonl")) == 4)
    conductor.send_signal(signal.SIGSTOP)
    (tmp_path / mark).touch()
    wait_until(lambda: not processes_with(mark, "/bin/bash"))
    conductor.send_signal(signal.SIGKILL)
    conductor.communicate()
    code, told = cantle("resume", "out", cwd=tmp_path)
    assert code == 0, told
    assert sorted((tmp_path / "ran.txt").read_text().split()) == ["1", "2", "3", "4"], "each ran once"
    launches = [record for record in read(tmp_path / "out/.cantle/journal.jsonl") if type(record) is Launch]
    assert [launch.attempt for launch in launches] == [1, 1, 1, 1]


def test_a_kill_leaves_no_process_behind_however_it_was_detached(tmp_path: Path) -> None:
    mark = f"7{random.randrange(10**6):06d}"
    command = f"(setsid sleep {mark} &) ; nohup sleep {mark} & sleep {mark}"
    conductor = start("map", command + " # {}", "--range", "1-2", "--cores", "2", "-o", "out", cwd=tmp_path)
    wait_until(lambda: len(processes_with(f"sleep\0{mark}")) == 6)
    conductor.send_signal(signal.SIGKILL)
    conductor.communicate()
    wait_until(lambda: not processes_with(mark))


def test_ctrl_c_once_ends_in_order_and_says_how_to_resume(tmp_path: Path) -> None:
    command = "trap 'echo bye > bye.{}; exit 1' TERM; touch here.{}; sleep 300 & wait"
    words = ["--range", "1-8", "--cores", "2", "--grace", "600", "-o", "out"]
    conductor = start("map", command, *words, cwd=tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("here.*"))) == 2)
    conductor.send_signal(signal.SIGINT)
    told = conductor.communicate(timeout=200)[0].decode()
    assert conductor.returncode == 3, told
    assert "cantle resume" in told
    assert sorted(p.name for p in tmp_path.glob("bye.*")) == ["bye.1", "bye.2"]
    ends = [r for r in read(tmp_path / "out/.cantle/journal.jsonl") if isinstance(r, TaskEnded)]
    assert [r.outcome for r in ends] == ["interrupted", "interrupted"]


def test_ctrl_c_twice_ends_at_once(tmp_path: Path) -> None:
    command = "trap '' TERM; touch here.{}; while :; do sleep 0.1; done"
    conductor = start("map", command, "--range", "1-2", "--cores", "2", "--grace", "600", "-o", "out", cwd=tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("here.*"))) == 2)
    conductor.send_signal(signal.SIGINT)
    time.sleep(1)
    assert conductor.poll() is None, "tasks that ignore TERM are given their grace"
    conductor.send_signal(signal.SIGINT)
    told = conductor.communicate(timeout=200)[0].decode()
    assert conductor.returncode == 3, told
    assert not processes_with("trap '' TERM; touch here")


def test_a_second_conductor_is_kept_out_and_told_who_is_at_work(tmp_path: Path) -> None:
    conductor = start("map", "touch here; sleep 300 # {}", "--range", "1-1", "-o", "out", cwd=tmp_path)
    try:
        wait_until((tmp_path / "here").exists)
        code, told = cantle("resume", "out", cwd=tmp_path)
        assert code == 1
        assert str(conductor.pid) in told
        assert "another conductor" in told
    finally:
        conductor.send_signal(signal.SIGINT)
        conductor.communicate(timeout=120)


class SmallDisk:
    """A disk of 600 KiB that only processes in a mount namespace of their own see. Whoever is not root is root there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        mount = f"mount -t tmpfs -o size=600k tmpfs {place} && echo mounted && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", *own, "sh", "-c", mount], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        self.is_there = self._holder.stdout.readline() == b"mounted\n"
        self.root = Path(f"/proc/{self._holder.pid}/root")
        """Under this its files are seen from here."""
        enter = ["nsenter", f"--target={self._holder.pid}", "--mount", f"--wd={place.parent}"]
        self._enter = enter if os.geteuid() == 0 else [*enter, "--user", "--preserve-credentials"]

    def cantle(self, *words: str) -> tuple[int, str]:
        """The command line beside it, with the exit status and what was told."""
        done = subprocess.run(
            [*self._enter, *CANTLE, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=240,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def remount(self, options: str) -> None:
        """With its old options left out: who it belongs to has other numbers outside."""
        mount = ["mount", "--options-mode", "ignore", "-o", f"remount,{options}", str(self.place)]
        subprocess.run([*self._enter, *mount], check=True)

    def close(self) -> None:
        """With the last process that sees it, it is gone."""
        self._holder.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    disk = SmallDisk(place)
    try:
        if not disk.is_there:
            pytest.skip("a small disk needs root, or a kernel that lets everybody have namespaces")
        yield disk
    finally:
        disk.close()


def test_a_full_disk_is_told_clearly_and_resume_works_once_there_is_room(small_disk: SmallDisk, tmp_path: Path) -> None:
    filler = small_disk.place / "filler"
    ran = tmp_path / "ran.txt"
    command = f"if [ {{}} = 40 ]; then dd if=/dev/zero of={filler} bs=4096; fi 2>/dev/null; echo {{}} >> {ran}"
    out = str(small_disk.place / "out")
    code, told = small_disk.cantle("map", command, "--range", "1-3000", "--cores", "1", "-q", "-o", out)
    assert code == 1, told
    assert "no space is left" in told
    assert f"cantle resume {out}" in told
    assert "Traceback" not in told
    Path(f"{small_disk.root}{filler}").unlink()
    small_disk.remount("size=20m")
    code, told = small_disk.cantle("resume", out, "--cores", "1", "-q")
    assert code == 0, told
    attempts: Counter[int] = Counter()
    for record in read(f"{small_disk.root}{out}/.cantle/journal.jsonl"):
        if isinstance(record, Launch):
            attempts[record.task] += 1
    names = Counter(int(line) - 1 for line in ran.read_text().split())
    assert set(names) == set(range(3000))
    assert all(times <= max(1, attempts[task]) + 1 for task, times in names.items())


def test_a_read_only_directory_is_told_clearly(small_disk: SmallDisk) -> None:
    small_disk.remount("ro,size=600k")
    code, told = small_disk.cantle("map", "true {}", "--range", "1-2", "-o", str(small_disk.place / "out"))
    assert code == 1
    assert "read-only" in told
    assert "Traceback" not in told


def test_resuming_with_an_edited_study_runs_what_changed_and_what_follows(tmp_path: Path) -> None:
    study = """description: {{name: edited, description: d}}
study:
- {{name: a, description: d, run: {{cmd: 'echo a >> {ran}'}}}}
- {{name: b, description: d, run: {{cmd: 'echo {b} >> {ran}', depends: [a]}}}}
- {{name: c, description: d, run: {{cmd: 'echo c >> {ran}', depends: [b]}}}}
- {{name: d, description: d, run: {{cmd: 'echo d >> {ran}', depends: [a]}}}}
"""
    ran = tmp_path / "ran.txt"
    file = tmp_path / "study.yaml"
    file.write_text(study.format(ran=ran, b="b"))
    assert cantle("run", "study.yaml", "-o", "out", cwd=tmp_path)[0] == 0
    file.write_text(study.format(ran=ran, b="better"))
    assert cantle("resume", "out", cwd=tmp_path)[0] == 0
    assert Counter(ran.read_text().split()) == Counter("abcd")
    code, told = cantle("resume", "out", "--study", "study.yaml", cwd=tmp_path)
    assert code == 0, told
    assert Counter(ran.read_text().split()) == Counter(["a", "b", "better", "c", "c", "d"])
    file.write_text(study.format(ran=ran, b="better").replace("name: d,", "name: e,"))
    code, told = cantle("resume", "out", "--study", "study.yaml", cwd=tmp_path)
    assert code == 0, told
    assert "results that still hold: 3 of 4" in told
    assert Counter(ran.read_text().split()) == Counter(["a", "b", "better", "c", "c", "d", "d"])
    assert cantle("logs", "out", "c", cwd=tmp_path)[0] == 0, "what was kept can still be looked at"


def test_what_is_kept_when_tasks_come_or_go_keeps_its_times(tmp_path: Path) -> None:
    study = """description: {name: edited, description: d}
study:
- {name: a, description: d, run: {cmd: sleep 1}}
- {name: b, description: d, run: {cmd: echo b, depends: [a]}}
"""
    file = tmp_path / "study.yaml"
    file.write_text(study)
    assert cantle("run", "study.yaml", "-o", "out", cwd=tmp_path)[0] == 0

    def first() -> dict[str, object]:
        told = json.loads(cantle("status", "out", "--json", cwd=tmp_path)[1])
        assert told["state"] == "done"
        return dict(told["list"][0])

    before = first()
    assert before["seconds"] >= 1  # type: ignore[operator]
    file.write_text(study.replace("name: b", "name: c"))
    assert cantle("resume", "out", "--study", "study.yaml", cwd=tmp_path)[0] == 0
    assert first() == before
    plan = json.loads(cantle("plan", "--from", "out", "--nodes", "1x1", "--json", cwd=tmp_path)[1])
    assert plan["variants"][0]["end_s"] >= 1


def test_json_tells_each_end_and_a_summary(tmp_path: Path) -> None:
    code, told = cantle("map", "exit {}", "0", "1", "--json", "-o", "out", cwd=tmp_path)
    assert code == 2
    objects = [json.loads(line) for line in told.splitlines()]
    assert len([each for each in objects if "note" not in each]) == 3, "notes depend on the machine"


def test_resume_counts_its_own_beginnings(tmp_path: Path) -> None:
    assert cantle("map", "test -e flag # {}", "--range", "1-1", "-o", "out", cwd=tmp_path)[0] == 2
    assert cantle("resume", "out", "--keep-failed", cwd=tmp_path)[0] == 2
    (tmp_path / "flag").touch()
    assert cantle("resume", "out", cwd=tmp_path)[0] == 0
    resumed = [r for r in read(tmp_path / "out/.cantle/journal.jsonl") if isinstance(r, RunResumed)]
    assert [r.retry for r in resumed] == [False, True]


def test_requests_for_what_does_not_exist_are_told_and_change_nothing(tmp_path: Path) -> None:
    from cantle.model.records import CancelAsked
    from cantle.store.layout import Layout
    from cantle.store.requests import ask

    command = "until [ -e go ]; do sleep 0.02; done # {}"
    conductor = start("map", command, "--range", "1-1", "-o", "out", cwd=tmp_path)
    wait_until(lambda: Layout(tmp_path / "out").exists())
    ask(tmp_path / "out", CancelAsked(0.0, [99]))
    assert conductor.stdout is not None
    told = b""
    while b"is ignored" not in told:
        told += (line := conductor.stdout.readline())
        assert line, told
    (tmp_path / "go").touch()
    told += conductor.communicate(timeout=120)[0]
    assert conductor.returncode == 0, told


@pytest.mark.parametrize("damage", ["a torn tail", "a block of zeros"])
def test_o33_a_damaged_journal_costs_its_damaged_records_and_nothing_else(damage: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran.txt"
    conductor = start("map", f"sleep 0.02; echo {{}} >> {ran}", "--range", "1-200", "-o", "out", "-q", cwd=tmp_path)
    wait_until(lambda: ran.exists() and len(ran.read_text().split()) >= 50)
    conductor.send_signal(signal.SIGKILL)
    conductor.communicate()
    journal = tmp_path / "out/.cantle/journal.jsonl"
    size = journal.stat().st_size
    with journal.open("r+b") as file:
        if damage == "a torn tail":
            file.truncate(size - 7)
        else:
            file.seek(size - 6000)
            file.write(bytes(4096))
    readable = {r.task for r in read(journal) if isinstance(r, TaskEnded) and r.outcome == "done"}
    code, told = cantle("resume", "out", cwd=tmp_path)
    assert code == 0, told
    assert ("zeros" in told) == (damage == "a block of zeros")
    names = Counter(int(line) - 1 for line in ran.read_text().split())
    assert set(names) == set(range(200))
    assert all(names[task] == 1 for task in readable), "what could be read was not run again"
    assert len(readable) > 20


def test_a_dead_runner_costs_its_own_attempts_and_is_replaced(tmp_path: Path) -> None:
    command = "test {} != 3 || test -e killed || { touch killed; kill -9 $CANTLE_RUNNER; }; sleep 0.1; echo {} >> ran"
    code, told = cantle("map", command, "--range", "1-8", "--cores", "2", "-o", "out", cwd=tmp_path)
    assert code == 0, told
    ran = Counter(int(line) - 1 for line in (tmp_path / "ran").read_text().split())
    assert set(ran) == set(range(8))
    launched: Counter[int] = Counter()
    done: list[int] = []
    for record in read(tmp_path / "out/.cantle/journal.jsonl"):
        if isinstance(record, Launch):
            assert record.task not in done, "what was told as done does not run again"
            launched[record.task] += 1
        elif isinstance(record, TaskEnded) and record.outcome == "done":
            done.append(record.task)
    assert sorted(done) == list(range(8))
    assert launched[2] == 2, "the killer ran again, in peace"
    assert all(ran[task] <= launched[task] for task in range(8))


def test_tasks_that_outlived_both_runner_and_conductor_end_before_the_run_goes_on(tmp_path: Path) -> None:
    command = "echo start {} >> ran; until [ -e go ]; do sleep 0.02; done; echo end {} >> ran"
    conductor = start("map", command, "1", "-o", "out", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "ran").exists())
    runner = int((tmp_path / f"/proc/{conductor.pid}/task/{conductor.pid}/children").read_text().split()[0])
    os.kill(runner, signal.SIGSTOP)
    os.kill(conductor.pid, signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)
    conductor.communicate()
    again = start("resume", "out", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "ran").read_text().count("start") == 2)
    (tmp_path / "go").touch()
    told = again.communicate(timeout=120)[0].decode()
    assert again.returncode == 0, told
    assert "were ended" in told
    assert (tmp_path / "ran").read_text().split("\n")[:-1] == ["start 1", "start 1", "end 1"]


def test_a_journal_that_ends_within_its_opening_is_completed_by_resume(tmp_path: Path) -> None:
    assert cantle("map", "echo {} >> ran", "--range", "1-2500", "-o", "out", "-q", cwd=tmp_path)[0] == 0
    journal = tmp_path / "out/.cantle/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    for kept in (3, 4):  # up to the study, and up to its first thousand tasks
        journal.write_bytes(b"".join(lines[:kept]))
        (tmp_path / "ran").unlink(missing_ok=True)
        code, told = cantle("wait", "out", cwd=tmp_path)
        assert code == 1, f"what is not whole is not done: {told}"
        code, told = cantle("resume", "out", "-q", cwd=tmp_path, timeout=120)
        assert code == 0, told
        assert len(set((tmp_path / "ran").read_text().split())) == 2500


def test_what_is_kept_when_tasks_come_or_go_keeps_its_restarts(tmp_path: Path) -> None:
    study = """description: {name: edited, description: d}
study:
- name: a
  description: too long the first two times
  run: {cmd: "echo first; sleep 600", restart: 'echo >> RAN; test $(wc -l < RAN) -ge 2 || sleep 600', walltime: "00:00:01"}
- {name: b, description: d, run: {cmd: echo b, depends: [a]}}
""".replace("RAN", str(tmp_path / "ran"))
    file = tmp_path / "study.yaml"
    file.write_text(study)
    code, told = cantle("run", "study.yaml", "-o", "out", "-r", "5", cwd=tmp_path)
    assert code == 0, told

    def shown() -> tuple[str, dict[str, object], str]:
        row = next(line for line in (tmp_path / "out" / "status.csv").read_text().splitlines() if line.startswith("a,"))
        listed = json.loads(cantle("status", "out", "--json", cwd=tmp_path)[1])["list"][0]
        return row, listed, cantle("explain", "out", "a", cwd=tmp_path)[1]

    row, listed, explained = before = shown()
    assert (
        row.rstrip(",").endswith(",2") and listed["attempt"] == 3 and "Restarted 2 times after a timeout" in explained
    )
    for name in ("c", "d"):
        file.write_text(study.replace("name: b", f"name: {name}"))
        assert cantle("resume", "out", "--study", "study.yaml", cwd=tmp_path)[0] == 0
        now = shown()
        assert now[:2] == before[:2] and "Restarted 2 times after a timeout" in now[2]


@pytest.mark.parametrize("values", ["[1, 2, 3]", "[1, 2, 3, 4]"])
def test_an_edited_study_goes_on_from_a_journal_that_ends_within_its_opening(values: str, tmp_path: Path) -> None:
    study = """description: {name: s, description: d}
study:
- {name: sim, description: d, run: {cmd: 'echo $(P) >> RAN'}}
global.parameters: {P: {values: VALUES, label: P.%%}}
""".replace("RAN", str(tmp_path / "ran"))
    file = tmp_path / "s.yaml"
    file.write_text(study.replace("VALUES", "[1, 2, 3]"))
    assert cantle("run", "s.yaml", "-o", "out", cwd=tmp_path)[0] == 0
    journal = tmp_path / "out/.cantle/journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3]))
    (tmp_path / "ran").unlink()
    file.write_text(study.replace("VALUES", values).replace("echo", "/bin/echo"))
    code, told = cantle("resume", "out", "--study", "s.yaml", cwd=tmp_path)
    assert code == 0, told
    assert sorted((tmp_path / "ran").read_text().split()) == sorted(values.strip("[]").split(", "))


def test_dying_while_a_changed_study_takes_its_place_loses_nothing(tmp_path: Path) -> None:
    study = (
        "description: {name: s, description: d}\nstudy:\n- {name: a, description: d, run: {cmd: 'echo WORD >> ran'}}\n"
    )
    study = study.replace("ran", str(tmp_path / "ran"))
    (tmp_path / "s.yaml").write_text(study.replace("WORD", "old"))
    assert cantle("run", "s.yaml", "-o", "out", cwd=tmp_path)[0] == 0
    (tmp_path / "s.yaml").write_text(study.replace("WORD", "new"))
    dying = (
        "import os, sys; import cantle.cli.main; import cantle.runtime.resuming as r;"
        "r._exchange = lambda layout: os._exit(9); cantle.cli.main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", dying, "resume", "out", "--study", "s.yaml"], cwd=tmp_path, check=False
    )
    assert done.returncode == 9
    code, told = cantle("resume", "out", cwd=tmp_path)
    assert code == 0, told
    assert (tmp_path / "ran").read_text().split() == ["old", "new"]


def test_a_run_that_is_all_done_is_left_as_it_is(tmp_path: Path) -> None:
    assert cantle("map", "true {}", "1", "-o", "out", cwd=tmp_path)[0] == 0
    journal = (tmp_path / "out/.cantle/journal.jsonl").read_bytes()
    code, told = cantle("resume", "out", cwd=tmp_path)
    assert code == 0
    assert "nothing to go on with" in told
    assert (tmp_path / "out/.cantle/journal.jsonl").read_bytes() == journal


def test_fail_fast_ends_with_the_status_of_a_failure(tmp_path: Path) -> None:
    command = "test {} != 1 || exit 1; sleep 30"
    code, told = cantle("map", command, "--range", "1-6", "--cores", "2", "--fail-fast", "-o", "out", cwd=tmp_path)
    assert code == 2, told


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_do_no_harm(closed: str, tmp_path: Path) -> None:
    line = f"{sys.executable} -m cantle map 'echo {{}} >> ran' 1 2 -o out {closed}"
    done = subprocess.run(["/bin/bash", "-c", line], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert sorted((tmp_path / "ran").read_text().split()) == ["1", "2"]


def test_logs_tell_attempts_apart_however_short_they_were(tmp_path: Path) -> None:
    run = "{cmd: 'echo attempt $CANTLE_ATTEMPT; test $CANTLE_ATTEMPT = 3', retries: 3}"
    (tmp_path / "s.yaml").write_text(
        f"description: {{name: s, description: d}}\nstudy:\n- {{name: 'a b', description: d, run: {run}}}\n"
    )
    assert cantle("run", "s.yaml", "-o", "out", cwd=tmp_path)[0] == 0
    for number in "123":
        assert cantle("logs", "out", "a b", "--attempt", number, cwd=tmp_path) == (0, f"attempt {number}\n")


def test_an_added_value_runs_what_is_new_and_what_gathers_it_and_keeps_the_rest(tmp_path: Path) -> None:
    study = """description: {name: grown, description: d}
study:
- {name: build, description: d, run: {cmd: 'echo build >> RAN'}}
- {name: sim, description: d, run: {cmd: 'echo sim.$(P) >> RAN', depends: [build]}}
- {name: post, description: d, run: {cmd: 'echo post >> RAN', depends: [sim_*]}}
global.parameters: {P: {values: VALUES, label: P.%%}}
""".replace("RAN", str(tmp_path / "ran"))
    file = tmp_path / "study.yaml"
    file.write_text(study.replace("VALUES", "[1, 2, 3]"))
    assert cantle("run", "study.yaml", "-o", "out", cwd=tmp_path)[0] == 0
    file.write_text(study.replace("VALUES", "[2, 3, 4]"))
    code, told = cantle("resume", "out", "--study", "study.yaml", cwd=tmp_path)
    assert code == 0, told
    names = Counter((tmp_path / "ran").read_text().split())
    assert names == Counter(["build", "sim.1", "sim.2", "sim.3", "post", "sim.4", "post"])
    code, told = cantle("resume", "out", cwd=tmp_path)
    assert code == 0
    assert "nothing to go on with" in told
