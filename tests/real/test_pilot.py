"""Do several studies share one allocation without one harming another, and survive what kills their pilot?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cantle.model.records import AnyRecord, Launch, StudyOver, TaskEnded
from cantle.report.loading import Condition, load
from cantle.store.journal import read
from cantle.store.lock import holder

pytestmark = pytest.mark.real

CANTLE = [sys.executable, "-m", "cantle"]


def study(name: str, cmd: str, n: int = 1, more: str = "", after: str = "") -> str:
    """A study of n instances of a step, and one step behind them if wanted."""
    cmd += "" if "$(N)" in cmd else "  # $(N)"
    last = (
        f"  - {{name: after, description: d, run: {{cmd: {json.dumps(after)}, depends: [work_*]}}}}\n" if after else ""
    )
    return (
        f"description: {{name: {name}, description: d}}\n"
        "study:\n"
        f"  - name: work\n    description: d\n    run: {{cmd: {json.dumps(cmd)}{more}}}\n{last}"
        f"global.parameters:\n  N: {{values: {list(range(1, n + 1))}, label: N.%%}}\n"
    )


class Here:
    """A place to stand in, with pilots of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.env = {**os.environ, "XDG_STATE_HOME": str(place / "state")}

    def start(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*CANTLE, *words],
            cwd=self.place,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def does(self, *words: str, code: int = 0, timeout: float = 200, **env: str) -> str:
        begun = self.start(*words, **env)
        try:
            told = begun.communicate(timeout=timeout)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            begun.kill()
            raise AssertionError(f"{words} took too long: {begun.communicate()[0]!r}") from None
        assert begun.returncode == code, told
        return told

    def write(self, name: str, text: str) -> str:
        (self.place / name).write_text(text)
        return name

    def pilot(self, name: str = "default") -> Path:
        return self.place / "state/cantle/pilots" / name

    def jobs(self) -> dict[str, dict[str, Any]]:
        told = json.loads(self.does("jobs", "--json"))
        return {job["job"]: job for job in told["jobs"]}

    def journal(self, directory: str) -> list[AnyRecord]:
        return list(read(self.place / directory / ".cantle/journal.jsonl"))

    def ran(self, name: str = "ran") -> Counter[str]:
        try:
            return Counter((self.place / name).read_text().split())
        except FileNotFoundError:
            return Counter()

    def condition(self, directory: str) -> Condition:
        return load(self.place / directory).condition

    def kill(self, name: str = "default") -> None:
        """As if the machine's memory had run out."""
        there = holder(self.pilot(name) / ".cantle/conductor.lock")
        assert there is not None
        os.kill(there.pid, signal.SIGKILL)
        until(lambda: holder(self.pilot(name) / ".cantle/conductor.lock") is None)

    def end(self) -> None:
        for lock in (self.place / "state/cantle/pilots").glob("*/.cantle/conductor.lock"):
            if (there := holder(lock)) is not None:
                os.kill(there.pid, signal.SIGTERM)
                until(lambda lock=lock: holder(lock) is None)  # type: ignore[misc]


def until(true: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here(tmp_path)
    yield place
    place.end()


def test_two_studies_run_side_by_side_each_in_its_own_directory_and_environment(here: Here) -> None:
    """Each waits for a file of the other's, so neither could end alone."""
    meet = "echo $WHO; touch {0}/met.$WHO; until [ -e {0}/met.$OTHER ]; do sleep 0.02; done; pwd"
    text = study("meet", meet.format(here.place))
    here.does("up", "--cores", "2")
    here.does("submit", here.write("a.yaml", text), "-o", "a", WHO="anna", OTHER="bert")
    here.does("submit", here.write("b.yaml", text), "-o", "b", WHO="bert", OTHER="anna")
    here.does("wait", "a")
    here.does("wait", "b")
    for name, who in (("a", "anna"), ("b", "bert")):
        directory = here.place / name
        assert here.does("logs", name, "work_N.1") == f"{who}\n{directory / 'work' / 'N.1'}\n"
        assert "done" in here.does("status", name)
        assert "work_N.1" in (directory / "status.csv").read_text()
        assert "is done, in attempt 1" in here.does("explain", name, "work_N.1")
    assert {job["job"]: (job["state"], job["done"]) for job in here.jobs().values()} == {
        "meet-1": ("done", 1),
        "meet-2": ("done", 1),
    }
    assert "meet-2" in here.does("jobs")
    here.does("down")
    assert "is not up: 2 studies, 0 not over" in here.does("jobs")


def test_run_in_a_pilot_tells_and_ends_as_a_run_here_does(here: Here) -> None:
    here.does("up", "--cores", "2")
    good = here.write("good.yaml", study("good", "true", 3))
    bad = here.write("bad.yaml", study("bad", "test $(N) != 2", 3))
    slow = here.write("slow.yaml", study("slow", "sleep 60", 2))
    assert "good: all 3 tasks done" in here.does("run", "--pilot", "default", good, "-o", "good")
    told = here.does("run", "--pilot", "default", bad, "-o", "bad", code=2)
    assert "1 failed" in told and "cantle resume" in told
    objects = [
        json.loads(line)
        for line in here.does("run", "--pilot", "default", bad, "-o", "bad2", "--json", code=2).splitlines()
    ]
    assert objects[-1]["exit"] == 2 and objects[-1]["counts"] == {"done": 2, "failed": 1}
    running = here.start("run", "--pilot", "default", slow, "-o", "slow")
    until(lambda: (here.place / "slow/.cantle/journal.jsonl").exists() and load(here.place / "slow").state.running)
    here.does("cancel", "-y", "slow")
    assert b"2 canceled" in running.communicate(timeout=120)[0]
    assert running.returncode == 3
    for option, value in (
        ("--cores", "2"),
        ("--packer", "spread"),
        ("--packer", "best-fit"),
        ("--grace", "5"),
        ("--resource", "a=1"),
    ):
        assert f"leave out {option}, or give it to" in here.does(
            "run", "--pilot", "default", good, option, value, code=1
        )


def test_ctrl_c_lets_go_of_the_study_and_says_so_where_nobody_can_be_asked(here: Here) -> None:
    here.does("up", "--cores", "2")
    slow = here.write("slow.yaml", study("slow", f"until [ -e {here.place}/go ]; do sleep 0.02; done"))
    running = here.start("run", "--pilot", "default", slow, "-o", "slow")
    assert running.stdout is not None and b"its directory is" in running.stdout.readline(), "the pilot has it"
    running.send_signal(signal.SIGINT)
    told = running.communicate()[0].decode()
    assert running.returncode == 130
    assert "the study goes on in the pilot default" in told and "cantle cancel slow" in told.replace(
        f"{here.place}/", ""
    )
    (here.place / "go").touch()
    here.does("wait", "slow")


def test_failure_and_cancellation_of_one_study_leave_the_other_alone(here: Here) -> None:
    here.does("up", "--cores", "2")
    gate = f"until [ -e {here.place}/go ]; do sleep 0.02; done; echo $(N) >> {here.place}/ran"
    here.does("submit", here.write("good.yaml", study("good", gate, 4)), "-o", "good", "--priority", "1")
    bad = here.write("bad.yaml", study("bad", "exit 1", 50))
    here.does("submit", bad, "-o", "bad", "--fail-fast")
    here.does("submit", here.write("other.yaml", study("other", gate, 4)), "-o", "other")
    here.does("cancel", "-y", "other", "work_N.2")
    here.does("update", "other", "--throttle", "1")
    assert here.condition("good") == Condition.RUNNING
    (here.place / "go").touch()
    here.does("wait", "good")
    here.does("wait", "bad", code=2)
    here.does("wait", "other", code=3)
    assert load(here.place / "bad").state.totals[5] >= 1
    jobs = here.jobs()
    assert (jobs["good-1"]["state"], jobs["bad-2"]["state"], jobs["other-3"]["state"]) == ("done", "failed", "canceled")
    assert here.ran() == {"1": 2, "2": 1, "3": 2, "4": 2}
    assert "canceled by" in here.does("explain", "other", "work_N.2")
    # What failed goes on by itself, once its pilot has let it go.
    assert "bad" in here.does("resume", "bad", "--cores", "2", "-q", code=2)


def test_a_small_study_does_not_wait_for_a_flood(here: Here) -> None:
    (here.place / "values").write_text("".join(f"{n}\n" for n in range(3000)))
    here.does("up", "--cores", "2")
    here.does("submit", here.write("flood.yaml", study("flood", "sleep 0.02", 3000)), "-o", "flood")
    small = here.write("small.yaml", study("small", "true", 4))
    here.does("submit", small, "-o", "small", "--wait")
    flood = load(here.place / "flood").state
    assert flood.totals[4] < 1500, "the small one was over before half of the flood was"
    here.does("down", "--now")
    assert here.condition("flood") == Condition.STOPPED


def test_what_is_wrong_with_a_study_is_told_here_and_leaves_no_trace(here: Here) -> None:
    assert "there is no pilot default; begin one with" in here.does("submit", "no.yaml", code=1)
    here.does("up", "--cores", "1")
    wrong = here.write("wrong.yaml", study("wrong", "true").replace("cmd", "cmnd"))
    assert "wrong.yaml" in here.does("submit", wrong, "-o", "out", code=1)
    lacks = study("lacks", "true") + "env:\n  dependencies:\n    paths:\n      - {name: DATA, path: ./no-such-file}\n"
    assert "no-such-file" in here.does("submit", here.write("lacks.yaml", lacks), "-o", "out", code=1)
    assert not (here.place / "out").exists()
    assert "is above 20" in here.does("submit", wrong, "--priority", "5000", code=64)
    here.does("run", "--pilot", "default", here.write("good.yaml", study("good", "true")), "-o", "good", "-q")
    assert list(here.jobs()) == ["good-1"]


def test_a_killed_pilot_goes_on_with_all_studies_and_repeats_nothing_that_was_finished(here: Here) -> None:
    here.does("up", "--cores", "4")
    bad = here.write("bad.yaml", study("bad", "exit 1"))
    here.does("run", "--pilot", "default", bad, "-o", "bad", "-q", code=2)
    command = "sleep 0.1; echo {0}$(N) >> {1}/ran"
    for name in ("a", "b"):
        text = study(name, command.format(name, here.place), 100, after=f"echo {name}after >> {here.place}/ran")
        here.does("submit", here.write(f"{name}.yaml", text), "-o", name)
    kills = 0
    while kills < 3 and sum(here.ran().values()) < 180:
        begun = sum(here.ran().values())
        until(lambda begun=begun: sum(here.ran().values()) > begun + 10)  # type: ignore[misc]
        here.kill()
        kills += 1
        if any(here.condition(name) == Condition.DEAD for name in "ab"):
            assert "go on with it: cantle up" in here.does("jobs")
        assert "is up" in here.does("up", "--cores", "4")
    assert kills >= 2
    for name in ("a", "b"):
        here.does("wait", name)
    assert {name: job["state"] for name, job in here.jobs().items()} == {
        "bad-1": "failed",
        "a-2": "done",
        "b-3": "done",
    }
    here.does("down")
    expected = {f"{name}{n}" for name in "ab" for n in (*range(1, 101), "after")}
    assert set(here.ran()) == expected
    for directory, runs in ((str(here.pilot()), 202), ("a", 101), ("b", 101)):
        done: set[int] = set()
        for record in here.journal(directory):
            if isinstance(record, Launch):
                assert record.task not in done, "a finished task was launched again"
            elif isinstance(record, TaskEnded) and record.outcome == "done":
                done.add(record.task)
        assert len(done) == runs
    failed = sum(isinstance(record, Launch) and record.task == 0 for record in here.journal(str(here.pilot())))
    assert failed == 1, "what failed in a study that is over stays as it is"
    assert sum(isinstance(record, StudyOver) for record in here.journal(str(here.pilot()))) == 3


def test_a_study_can_be_taken_out_of_a_dead_pilot_and_gone_on_with_by_itself(here: Here) -> None:
    command = f"until [ -e {here.place}/go$(N) ]; do sleep 0.02; done; echo {{}}$(N) >> {here.place}/ran"
    here.does("up", "--cores", "6")
    for name in ("a", "b"):
        here.does("submit", here.write(f"{name}.yaml", study(name, command.replace("{}", name), 3)), "-o", name)
    (here.place / "go1").touch()
    until(lambda: load(here.place / "a").state.totals[4] == load(here.place / "b").state.totals[4] == 1)
    assert "belongs to the pilot" in here.does("resume", "a", code=1)
    here.kill()
    assert {(job["state"], job.get("running", 0)) for job in here.jobs().values()} == {("interrupted", 0)}
    (here.place / "go2").touch()
    (here.place / "go3").touch()
    told = here.does("resume", "a", "--cores", "4")
    assert "taken out of the pilot" in told
    assert here.condition("a") == Condition.DONE
    here.does("up", "--cores", "4")
    here.does("wait", "b")
    states = {name: job["state"] for name, job in here.jobs().items()}
    assert states == {"a-1": "canceled", "b-2": "done"}
    assert here.ran() == {f"{name}{n}": 1 for name in "ab" for n in (1, 2, 3)}
    assert "is the directory of a pilot" in here.does("resume", str(here.pilot()), code=1)


def test_down_now_stops_in_order_and_up_goes_on(here: Here) -> None:
    here.does("up", "--cores", "2")
    text = study("s", f"echo $(N) >> {here.place}/begun; until [ -e {here.place}/go ]; do sleep 0.02; done", 3)
    here.does("submit", here.write("s.yaml", text), "-o", "s")
    until(lambda: sum(here.ran("begun").values()) == 2)
    here.does("down", "--now")
    assert here.condition("s") == Condition.STOPPED
    assert here.jobs()["s-1"]["state"] == "stopped"
    assert "the pilot default is not up" in here.does("submit", "s.yaml", code=1)
    (here.place / "go").touch()
    here.does("up", "--cores", "2")
    here.does("wait", "s")
    here.does("down")


def test_down_waits_for_the_studies_and_takes_in_no_more(here: Here) -> None:
    here.does("up", "--cores", "2")
    text = study("s", f"until [ -e {here.place}/go ]; do sleep 0.02; done")
    here.does("submit", here.write("s.yaml", text), "-o", "s")
    down = here.start("down")
    until(lambda: "ends when all studies are over" in here.does("jobs"))
    assert "takes in no more studies" in here.does("submit", "s.yaml", "-o", "late", code=1)
    assert not (here.place / "late").exists()
    assert down.poll() is None
    (here.place / "go").touch()
    told = down.communicate(timeout=120)[0].decode()
    assert down.returncode == 0 and "one study is not over" in told and "is down" in told
    assert here.condition("s") == Condition.DONE


def test_a_pilot_in_a_batch_job_says_what_holds_it_there(here: Here) -> None:
    """The command is over at once, and with the script that it ends the job would be."""
    told = here.does("up", "--this-machine", "--cores", "1", SLURM_JOB_ID="7")
    assert "a script that ends with `cantle up --foreground` stays" in told
    assert "batch job" not in here.does("up", "other", "--cores", "1")


def test_there_is_one_pilot_of_a_name_and_any_number_of_names(here: Here) -> None:
    here.does("up", "--cores", "1")
    assert "the pilot default is up already" in here.does("up", code=1)
    told = here.does("up", "night", "--dir", "elsewhere", "--cores", "1")
    assert str(here.place / "elsewhere") in told
    good = here.write("good.yaml", study("good", "true"))
    for n, name in enumerate(("night", "./elsewhere")):
        here.does("submit", "--pilot", name, good, "-o", f"good{n}", "--wait")
    assert "the pilot night is up" in here.does("jobs", "night")
    here.does("down", "night")
    here.does("down")
    assert "is not up" in here.does("down", code=1)


def test_a_pilot_in_the_foreground_ends_with_ctrl_c(here: Here) -> None:
    pilot = here.start("up", "--foreground", "--cores", "1")
    until((here.pilot() / ".cantle/door/address").exists)
    pilot.send_signal(signal.SIGINT)
    told = pilot.communicate(timeout=120)[0].decode()
    assert pilot.returncode == 0 and "the pilot default has ended" in told


def test_a_study_that_was_half_in_when_the_pilot_was_killed_comes_in_whole(here: Here) -> None:
    here.does("up", "--cores", "2")
    text = study("s", f"until [ -e {here.place}/go ]; do sleep 0.02; done; echo $(N) >> {here.place}/ran", 5)
    here.does("submit", here.write("s.yaml", text), "-o", "s", "--throttle", "1")
    until(lambda: load(here.place / "s").state.running)
    here.kill()
    journal = here.pilot() / ".cantle/journal.jsonl"
    whole = journal.read_bytes().splitlines(keepends=True)
    entered = next(n for n, line in enumerate(whole) if b'"is":"StudyAdded"' in line)
    journal.write_bytes(b"".join(whole[: entered + 1]) + whole[entered + 1][:40])
    (here.place / "go").touch()
    here.does("up", "--cores", "2")
    here.does("wait", "s")
    assert here.ran() == {str(n): 1 for n in range(1, 6)}
    assert here.jobs()["s-1"]["done"] == 5


def test_a_study_that_cannot_be_gone_on_with_harms_no_other(here: Here) -> None:
    here.does("up", "--cores", "4")
    text = study("s", f"until [ -e {here.place}/go ]; do sleep 0.02; done; echo $(N) >> {here.place}/ran", 2)
    for name in ("good", "spoilt", "gone"):
        here.does("submit", here.write(f"{name}.yaml", text.replace("name: s", f"name: {name}")), "-o", name)
    until(lambda: load(here.place / "good").state.running)
    here.kill()
    for kept in (here.place / "spoilt/.cantle/study").iterdir():
        kept.write_text("nonsense")
    subprocess.run(["rm", "-r", str(here.place / "gone")], check=True)
    (here.place / "go").touch()
    here.does("up", "--cores", "4")
    here.does("wait", "good")
    here.does("wait", "spoilt", code=3)
    states = {name: job["state"] for name, job in here.jobs().items()}
    assert states == {"good-1": "done", "spoilt-2": "canceled", "gone-3": "canceled"}
    assert "spoilt-2 cannot be gone on with" in (here.pilot() / "pilot.log").read_text()
    assert not (here.place / "gone").exists()


def test_explain_speaks_of_the_room_that_all_studies_share(here: Here) -> None:
    here.does("up", "--cores", "1")
    gate = f"until [ -e {here.place}/go ]; do sleep 0.02; done"
    here.does("submit", here.write("first.yaml", study("first", gate)), "-o", "first")
    until(lambda: load(here.place / "first").state.running)
    here.does("submit", here.write("second.yaml", study("second", "true")), "-o", "second")
    assert "has 0 of 1 cores free" in here.does("explain", "second", "work_N.1")
    assert "is the directory of a pilot" in here.does("status", str(here.pilot()), code=1)
    (here.place / "go").touch()
    here.does("wait", "second")


@pytest.mark.parametrize(("answer", "code", "told"), [("c", 3, "are being ended"), ("d", 130, "goes on in the pilot")])
def test_ctrl_c_asks_at_a_terminal_what_shall_become_of_the_study(
    here: Here, answer: str, code: int, told: str
) -> None:
    import pty

    here.does("up", "--cores", "1")
    slow = here.write("slow.yaml", study("slow", f"until [ -e {here.place}/go ]; do sleep 0.02; done"))
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*CANTLE, "run", "--pilot", "default", slow, "-o", "slow"],
        cwd=here.place,
        env={**here.env, "TERM": "dumb"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    until(lambda: (here.place / "slow/.cantle/journal.jsonl").exists() and load(here.place / "slow").state.running)
    said = b""

    def hears(wanted: bytes) -> bool:
        nonlocal said
        try:
            said += os.read(ours, 1 << 16)
        except OSError:  # the other side has ended
            return True
        return wanted in said

    until(lambda: hears(b"slow: 1 task"))
    running.send_signal(signal.SIGINT)
    until(lambda: hears(b"[c]ancel it, [d]etach"))
    os.write(ours, answer.encode() + b"\n")
    until(lambda: hears(b"there is no such text"))
    assert running.wait(120) == code, said
    assert told.encode() in said
    os.close(ours)
    (here.place / "go").touch()


def test_what_keeps_a_pilot_from_coming_up_is_told_at_once(here: Here) -> None:
    assert "no packer is called 'no-such'" in here.does("up", "--packer", "no-such", code=1)
    here.does("run", here.write("good.yaml", study("good", "true")), "-o", "run", "-q")
    assert "is the directory of a run" in here.does("up", "./run", code=1)
    here.does("up", "--cores", "1")


def test_a_pilot_that_is_told_to_end_by_the_system_stops_its_studies_in_order(here: Here) -> None:
    here.does("up", "--cores", "1")
    here.does("submit", here.write("s.yaml", study("s", "sleep 60")), "-o", "s")
    until(lambda: load(here.place / "s").state.running)
    here.end()
    assert here.condition("s") == Condition.STOPPED
    assert here.jobs()["s-1"]["state"] == "stopped"


def test_a_map_runs_in_a_pilot_as_well(here: Here) -> None:
    here.does("up", "--cores", "2")
    told = here.does("map", "--pilot", "default", "echo $CANTLE_TASK {}", "--range", "7-9", "-o", "out")
    assert "map: all 3 tasks done" in told
    here.does("map", "--pilot", "default", "echo $CANTLE_TASK {}", "--range", "7-9", "-o", "again", "-q")
    assert here.does("logs", "again", "map.2") == "1 8\n"
    assert "leave out --nodes" in here.does(
        "map", "--pilot", "default", "true", "--nodes", "1x1", "--range", "1-2", code=1
    )


def test_a_study_is_over_although_a_partition_of_the_pilot_goes_on(here: Here) -> None:
    """A study's own journal knows the partitions of others, which it does not show, and ends without them."""
    here.does("up", "--nodes", "3x1")
    gate = f"until [ -e {here.place}/go ]; do sleep 0.02; done"
    here.does("submit", here.write("first.yaml", study("first", gate)), "-o", "first")
    here.does("partition", "create", "first", "mine", "--nodes", "1", "--wait")
    here.does("partition", "create", str(here.pilot()), "all", "--nodes", "1", "--wait")
    here.does("submit", here.write("second.yaml", study("second", gate)), "-o", "second")
    told = here.does("partition", "list", "second")
    assert "all" in told and "mine" not in told
    (here.place / "go").touch()
    for name in ("first", "second"):
        here.does("wait", name)
        assert here.condition(name) == Condition.DONE
    here.does("down")


def test_two_studies_have_a_partition_of_one_name_each(here: Here) -> None:
    here.does("up", "--nodes", "6x1")
    gate = f"until [ -e {here.place}/go ]; do sleep 0.02; done"
    for name, nodes in (("first", 2), ("second", 4)):
        declared = f"cantle: {{partitions: {{same: {{nodes: {nodes}}}}}}}\n"
        text = study(name, gate, more=f", partition: same, nodes: {nodes}")
        here.does("submit", here.write(f"{name}.yaml", text + declared), "-o", name)

    def listed(directory: str) -> list[tuple[str, str, int]]:
        told = here.does("partition", "list", directory, "--json").splitlines()
        return [(row["name"], row["state"], row["width"]) for row in map(json.loads, told) if "name" in row]

    until(lambda: listed("first") == [("same", "ACTIVE", 2)] and listed("second") == [("same", "ACTIVE", 4)])
    pilot = str(here.pilot())
    assert sorted(listed(pilot)) == [("same", "ACTIVE", 2), ("same", "ACTIVE", 4)]
    assert {line.split()[1] for line in here.does("partition", "list", pilot).splitlines()} == {
        "STUDY",
        "first-1",
        "second-2",
    }
    assert "name the study's directory" in here.does("partition", "cancel", pilot, "same", code=1)
    assert "CANCELED" in here.does("partition", "cancel", "second", "same")
    assert listed("first") == [("same", "ACTIVE", 2)]
    here.does("partition", "create", "second", "same", "--nodes", "4", "--wait")
    (here.place / "go").touch()
    for name in ("first", "second"):
        here.does("wait", name)
        assert here.condition(name) == Condition.DONE
    here.does("down")
