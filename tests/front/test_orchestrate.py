"""`cantle orchestrate` from the queue to the end, on a small Slurm that runs jobs as processes (`fake_slurm.py`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rundirs import cantle

from cantle.cli.ending_jobs import cancel_run
from cantle.cli.following import _lets_go
from cantle.runtime.orchestration.records import Jobs, Submitted
from cantle.runtime.orchestration.watch import JobWatch
from cantle.store.layout import Layout
from fake_slurm import OVER, install

pytestmark = pytest.mark.real

HELLO = """
description: {name: hello, description: greets}
study:
  - name: greet
    description: say it
    run: {cmd: echo hello, walltime: "00:01:00"}
  - name: after
    description: say it again
    run: {cmd: "echo again >> $(SPECROOT)/ran", depends: [greet], walltime: "00:01:00"}
"""
NAPS = """
description: {name: naps, description: sleeps}
study:
  - name: nap
    description: sleep
    run:
      cmd: |
        echo start $(N) >> $(SPECROOT)/ran; sleep %s; echo end $(N) >> $(SPECROOT)/ran
global.parameters:
  N: {values: [%s], label: N.%%%%}
"""
PORTIONS = """
description: {name: portions, description: so many of these are over in the first job, so many more in the next}
study:
  - name: nap
    description: waits for the job that it belongs to
    run:
      cmd: |
        until [ $(N) -le `expr \\( $SLURM_JOB_ID - 16 \\) \\* %s` ]; do sleep 0.1; done; echo end $(N) >> $(SPECROOT)/ran
global.parameters:
  N: {values: [%s], label: N.%%%%}
"""
TWO = """
description: {name: two, description: one that is over soon and one that waits}
study:
  - name: quick
    description: over soon
    run: {cmd: "echo end quick >> $(SPECROOT)/ran", walltime: "00:01:00"}
  - name: long
    description: until somebody says so
    run: {cmd: "until [ -e $(SPECROOT)/go ]; do sleep 0.05; done", walltime: "00:01:00"}
"""


class Queue:
    """The small Slurm, and a folder in which one stands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self, on: bool = True) -> None:
        """Let no job begin."""
        (self.folder / "hold").touch() if on else (self.folder / "hold").unlink()

    def refuse_inside(self) -> None:
        """Take no job that comes from within one."""
        (self.folder / "refuse-inside").touch()

    def jobs(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.folder / "jobs").glob("*.json"))]

    def states(self) -> list[str]:
        return [job["state"] for job in self.jobs()]

    def submissions(self) -> list[list[str]]:
        calls = [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]
        return [call for call in calls if call[0] == "sbatch"]

    def settle(self) -> list[str]:
        """Wait until nothing is left in the queue; how the jobs ended."""
        wait_until(lambda: all(state in OVER for state in self.states()))
        return self.states()


def wait_until(true: Callable[[], object], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    folder = tmp_path / "slurm"
    monkeypatch.setenv("PATH", f"{install(folder)}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_MINUTE_S", "60")
    monkeypatch.setattr("cantle.runtime.orchestration.watch.FIRST_S", 0.1)
    monkeypatch.setattr("cantle.runtime.orchestration.watch.LAST_S", 0.3)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("hello.yaml").write_text(HELLO)
    made = Queue(folder)
    yield made
    for job in made.jobs():
        subprocess.run(["scancel", job["id"]], check=False)
    made.settle()


def naps(seconds: float, n: int) -> str:
    text = NAPS % (f"{seconds:g}", ",".join(map(str, range(1, n + 1))))
    Path("naps.yaml").write_text(text.replace("%%%%", "%%"))
    return "naps.yaml"


def portions(each: int, n: int) -> str:
    """So many tasks, of which each job comes to an end with so many at most, however fast the machine is."""
    text = PORTIONS % (each, ",".join(map(str, range(1, n + 1))))
    Path("portions.yaml").write_text(text)
    return "portions.yaml"


def ran() -> Counter[str]:
    return Counter(Path("ran").read_text().splitlines()) if Path("ran").exists() else Counter()


def client(*words: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "cantle", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_study_is_followed_from_the_queue_to_its_end(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("orchestrate", "hello.yaml", "-o", "out") == 0
    told = capsys.readouterr().out
    assert "hello: batch job 17 (slurm) asks for 1 node" in told
    assert "all 2 tasks done" in told
    assert queue.settle() == ["COMPLETED"]
    assert ran() == {"again": 1}
    assert cantle("status", "out") == 0
    assert "hello: done" in capsys.readouterr().out


def test_the_exit_status_of_the_run_is_passed_on(queue: Queue) -> None:
    Path("bad.yaml").write_text(HELLO.replace("echo hello", "exit 9"))
    assert cantle("orchestrate", "bad.yaml", "-o", "out", "-q") == 2
    assert queue.settle() == ["FAILED"]


def test_a_queued_run_is_shown_with_the_reason_and_can_be_left_and_followed_again(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.hold()
    assert cantle("orchestrate", "hello.yaml", "-o", "out", "--detach") == 0
    wait_until(lambda: queue.jobs()[0]["reason"] == "Resources")
    capsys.readouterr()
    assert cantle("status", "out") == 0
    assert "hello: queued: batch job 17 (slurm) pending (Resources)" in capsys.readouterr().out
    assert cantle("status", "out", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["job"]) == ("queued", {"ident": "17", "stands": "pending (Resources)"})
    assert cantle("explain", "out", "greet") == 0
    why = capsys.readouterr().out
    assert "Nothing of this run begins before its batch job does" in why
    assert "It needs 1 core; no node is there." in why
    assert "never" not in why
    for words in (("cancel", "out", "greet", "-y"), ("update", "out", "--throttle", "2")):
        assert cantle(*words) == 1
        assert "batch job 17 (slurm), pending (Resources), has not begun" in capsys.readouterr().err
    following = client("orchestrate", "--attach", "out")
    assert following.stdout is not None
    assert following.stdout.readline() == "note: batch job 17 (slurm) is pending (Resources)\n"
    queue.hold(False)
    said, _ = following.communicate(timeout=120)
    assert following.returncode == 0
    assert "all 2 tasks done" in said


def test_ctrl_c_lets_go_where_nobody_can_be_asked(queue: Queue) -> None:
    queue.hold()
    following = client("orchestrate", "hello.yaml", "-o", "out")
    assert following.stdout is not None
    while "pending" not in (line := following.stdout.readline()):
        assert line
    following.send_signal(signal.SIGINT)
    said, _ = following.communicate(timeout=120)
    assert following.returncode == 130
    assert "the study goes on in batch job 17 (slurm)" in said
    queue.hold(False)
    assert queue.settle() == ["COMPLETED"]
    assert cantle("wait", "out") == 0


@pytest.mark.parametrize(
    ("answer", "lets_go", "canceled"), [("c", False, True), ("d", True, False), ("o", False, False)]
)
def test_ctrl_c_asks_what_is_meant(
    answer: str, lets_go: bool, canceled: bool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.hold()
    assert cantle("orchestrate", "hello.yaml", "-o", "out", "--detach") == 0
    monkeypatch.setattr("sys.stdin", _Terminal())
    monkeypatch.setattr("sys.stderr", _Terminal())
    monkeypatch.setattr("builtins.input", lambda _: answer)
    watch = JobWatch(Jobs(Layout("out")))
    assert _lets_go(Path("out"), watch.what(), lambda: cancel_run(watch)) is lets_go
    assert queue.states() == (["CANCELLED"] if canceled else ["PENDING"])
    queue.hold(False)


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_run_is_canceled_in_the_queue(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.hold()
    following = client("orchestrate", "hello.yaml", "-o", "out")
    wait_until(
        lambda: Layout("out").batch.exists() and Jobs(Layout("out")).numbers() and Jobs(Layout("out")).job(1).ident
    )
    assert cantle("cancel", "out", "-y") == 0
    assert "canceled: batch job 17 (slurm)" in capsys.readouterr().out
    following.communicate(timeout=120)
    assert following.returncode == 3
    assert queue.states() == ["CANCELLED"]
    assert cantle("wait", "out") == 3
    assert cantle("status", "out") == 0
    assert "hello: canceled" in capsys.readouterr().out
    assert cantle("cancel", "out", "-y") == 1
    assert not ran()


def test_a_run_is_canceled_while_it_runs_and_its_successor_leaves_the_queue(queue: Queue) -> None:
    assert cantle("orchestrate", naps(60, 2), "-o", "out", "--detach", "--time", "5", "--until-done") == 0
    wait_until(ran)
    assert cantle("cancel", "out", "-y") == 0
    assert cantle("wait", "out") == 3
    assert queue.settle() == ["FAILED", "CANCELLED"]
    assert cantle("orchestrate", "--attach", "out", "-q") == 3


def test_whoever_cancels_a_job_of_a_chain_cancels_the_chain(queue: Queue) -> None:
    assert cantle("orchestrate", naps(60, 2), "-o", "out", "--detach", "--time", "5", "--until-done") == 0
    wait_until(ran)
    subprocess.run(["scancel", "17"], check=True)
    assert cantle("orchestrate", "--attach", "out", "-q") == 3
    assert queue.settle()[0] == "CANCELLED"
    assert "somebody canceled job 17, and with it those" in Path("out/logs/job-2.out").read_text()
    assert not any(word.startswith("end") for word in ran())


def test_a_chain_that_somebody_canceled_stays_so_whoever_follows_it_and_says_why(queue: Queue) -> None:
    """Also where tasks were done before: what its last job found to do says nothing of who wants it."""
    Path("two.yaml").write_text(TWO)
    following = client("orchestrate", "two.yaml", "-o", "out", "--time", "5", "--until-done")
    wait_until(lambda: "end quick" in ran())
    subprocess.run(["scancel", "17"], check=True)
    told, _ = following.communicate(timeout=120)
    assert following.returncode == 3, told
    assert "no further job is submitted: somebody canceled job 17, and with it those that were to follow" in told
    again = client("orchestrate", "--attach", "out")
    told, _ = again.communicate(timeout=120)
    assert again.returncode == 3
    assert "somebody canceled job 17" in told
    assert len(queue.settle()) == 2
    assert ran() == {"end quick": 1}


def test_whoever_attaches_to_a_run_that_goes_on_hears_in_order_what_was_before(queue: Queue) -> None:
    Path("two.yaml").write_text(TWO)
    assert cantle("orchestrate", "two.yaml", "-o", "out", "--detach", "--time", "5") == 0
    wait_until(lambda: "end quick" in ran())
    following = client("orchestrate", "--attach", "out")
    assert following.stdout is not None
    before = [following.stdout.readline().rstrip("\n") for _ in range(2)]
    Path("go").touch()
    told, _ = following.communicate(timeout=120)
    assert following.returncode == 0
    lines = [*before, *told.splitlines()]
    assert [line.split("  ")[0].split(" in ")[0] for line in lines] == [
        "two: 2 tasks of 2 steps on " + lines[0].partition(" on ")[2].partition(" in ")[0],
        "[1/2] done",
        "[2/2] done",
        "two: all 2 tasks done",
    ]


def test_whoever_attaches_to_a_later_job_hears_in_one_number_what_the_earlier_ones_did(queue: Queue) -> None:
    Path("two.yaml").write_text(TWO)
    assert cantle("orchestrate", "two.yaml", "-o", "out", "--detach", "--time", "5") == 0
    wait_until(lambda: "end quick" in ran())
    assert cantle("cancel", "out", "-y") == 0
    queue.settle()
    Path("go").touch()
    following = client("orchestrate", "out", "--time", "5")
    told, _ = following.communicate(timeout=120)
    assert following.returncode == 0
    assert "resumed: 1 of them was done before" in told
    assert "quick" not in told
    assert "[2/2] done      long" in told


def test_what_the_batch_system_refuses_leaves_nothing_behind(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("orchestrate", "hello.yaml", "-o", "out", "--queue", "nosuch") == 1
    assert "invalid partition specified: nosuch" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_job_that_dies_before_the_run_begins_is_told_with_what_it_printed(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.hold()
    assert cantle("orchestrate", "hello.yaml", "-o", "out", "--detach") == 0
    asked = Layout("out").batch / "asked.json"
    good = asked.read_bytes()
    asked.unlink()
    queue.hold(False)
    assert queue.settle() == ["FAILED"]
    asked.write_bytes(good)
    capsys.readouterr()
    assert cantle("orchestrate", "--attach", "out") == 1
    told = capsys.readouterr().err
    assert "batch job 17 (slurm) is over, failed (NonZeroExitCode), before the run began" in told
    assert "| cantle: nothing in" in told
    assert cantle("status", "out") == 0
    assert "its conductor is dead" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["hello.yaml"], ["--", "echo", "hello"]], ids=["study", "command"])
def test_a_job_whose_nodes_do_not_see_the_run_is_told_with_what_to_do(
    queue: Queue, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    queue.hold()
    assert cantle("orchestrate", "-o", "out", "--detach", *words) == 0
    batch = Layout("out").batch
    shutil.copytree(batch, "before")
    (batch / "asked.json").unlink()
    queue.hold(False)
    queue.settle()
    # Where nodes do not see the folder, nothing of what a job writes comes into it.
    shutil.rmtree(batch)
    shutil.move("before", batch)
    (Layout("out").logs / "job-1.out").unlink()
    capsys.readouterr()
    assert cantle("orchestrate", "--attach", "out") == 1
    told = capsys.readouterr().err
    assert "before the run began. It could not" in told or "before its command began. It could not" in told
    assert "most likely its nodes do not see that folder" in told
    assert "shared file system (-o)" in told
    assert "cantle orchestrate out" not in told, "a further job would fare the same"


def test_a_study_longer_than_its_jobs_is_done_by_several_and_no_finished_task_runs_twice(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MINUTE_S", "4")
    words = ("--time", "1", "--until-done", "--conductor", "--cores 2")
    assert cantle("orchestrate", portions(4, 8), "-o", "out", *words) == 0
    assert len(queue.settle()) >= 3  # two portions in two jobs, and one job that was taken back
    assert queue.states()[0] == "TIMEOUT"
    assert "PENDING" not in queue.states()
    assert ran() == {f"end {n}": 1 for n in range(1, 9)}


def test_no_more_jobs_follow_each_other_than_were_allowed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MINUTE_S", "4")
    words = ("--time", "1", "--until-done", "--most-jobs", "2", "--conductor", "--cores 1")
    assert cantle("orchestrate", portions(2, 12), "-o", "out", *words) == 3
    assert queue.settle() == ["TIMEOUT", "TIMEOUT"]
    assert ["--no-requeue" in words for words in queue.submissions()] == [True, False]


def test_jobs_in_which_nothing_is_done_come_to_an_end(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MINUTE_S", "1.5")
    assert cantle("orchestrate", naps(60, 2), "-o", "out", "--time", "1", "--until-done", "-q") == 3
    assert queue.settle()[:2] == ["TIMEOUT", "TIMEOUT"]
    assert len(queue.jobs()) <= 4
    assert "not a single task was done" in Path("out/logs/job-3.out").read_text()


def test_where_jobs_cannot_submit_jobs_whoever_follows_does(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MINUTE_S", "4")
    queue.refuse_inside()
    words = ("--time", "1", "--until-done", "--conductor", "--cores 1")
    assert cantle("orchestrate", portions(2, 4), "-o", "out", *words) == 0
    assert "Access/permission denied" in Path("out/logs/job-1.out").read_text()
    assert len(queue.settle()) >= 2
    assert all(ran()[f"end {n}"] == 1 for n in range(1, 5))


def test_a_conductor_that_is_killed_is_followed_by_the_next_job(queue: Queue) -> None:
    assert cantle("orchestrate", naps(2, 2), "-o", "out", "--detach", "--time", "5", "--until-done") == 0
    wait_until(ran)
    began = Jobs(Layout("out")).began(1)
    assert began is not None
    os.kill(began.pid, signal.SIGKILL)
    assert cantle("orchestrate", "--attach", "out", "-q") == 0
    assert queue.settle() == ["FAILED", "COMPLETED", "CANCELLED"]
    assert all(ran()[f"end {n}"] == 1 for n in (1, 2))


def test_a_conductor_that_is_killed_without_a_next_job_is_told_and_a_new_job_goes_on(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cantle("orchestrate", naps(2, 2), "-o", "out", "--detach", "--time", "5") == 0
    wait_until(ran)
    began = Jobs(Layout("out")).began(1)
    assert began is not None
    os.kill(began.pid, signal.SIGKILL)
    assert cantle("orchestrate", "--attach", "out") == 1
    assert "before the run was. Go on in a new job: cantle orchestrate" in capsys.readouterr().err
    assert cantle("orchestrate", "out", "--args", "--comment=again") == 0
    first, second = queue.submissions()
    assert "--time=5" in second
    assert "--comment=again" in second
    assert "--nodes=1" in first
    assert cantle("orchestrate", "out") == 0
    assert "nothing to go on with" in capsys.readouterr().out
    assert len(queue.jobs()) == 2


def test_a_run_that_began_here_goes_on_in_a_job_and_what_failed_gets_a_new_chance(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file.yaml").write_text(HELLO.replace("echo hello", "cat $(SPECROOT)/input"))
    (here := client("run", "file.yaml", "-o", "out")).communicate(timeout=120)
    assert here.returncode == 2
    Path("input").write_text("hello")
    queue.hold()
    assert cantle("orchestrate", "out", "--nodes", "2", "--detach") == 0
    capsys.readouterr()
    assert cantle("status", "out") == 0
    assert "hello: queued" in capsys.readouterr().out
    queue.hold(False)
    assert cantle("orchestrate", "--attach", "out") == 0
    (words,) = queue.submissions()
    assert {"--nodes=2", "--time=5"} <= set(words)
    assert ran() == {"again": 1}


def test_a_job_that_was_to_go_on_with_a_failed_run_is_canceled_or_dies(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.yaml").write_text(HELLO.replace("echo hello", "exit 9"))
    assert cantle("orchestrate", "bad.yaml", "-o", "out", "-q") == 2
    queue.hold()
    assert cantle("orchestrate", "out", "--detach") == 0
    assert cantle("cancel", "out", "-y") == 0
    assert cantle("wait", "out") == 3
    assert cantle("orchestrate", "--attach", "out", "-q") == 3
    assert cantle("orchestrate", "out", "--detach") == 0
    subprocess.run(["scancel", "19"], check=True)
    capsys.readouterr()
    assert cantle("orchestrate", "--attach", "out", "-q") == 3
    assert "batch job 19 (slurm) is over, cancelled" in capsys.readouterr().err
    queue.hold(False)


def test_a_run_that_has_a_job_is_not_given_a_second_one(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.hold()
    assert cantle("orchestrate", "hello.yaml", "-o", "out", "--detach") == 0
    assert cantle("orchestrate", "out") == 1
    assert "--attach" in capsys.readouterr().err
    assert cantle("orchestrate", "hello.yaml", "-o", "out", "-y") == 1
    assert "belongs to batch job 17 (slurm), pending" in capsys.readouterr().err
    assert len(queue.jobs()) == 1


def test_a_job_of_one_number_is_submitted_once(tmp_path: Path) -> None:
    jobs = Jobs(Layout(tmp_path))
    assert jobs.claim(1)
    assert not jobs.claim(1)
    jobs.submitted(Submitted(1, "17"))
    assert not jobs.claim(1)
    assert jobs.job(1).ident == "17"
    jobs.give_back(1)
    assert jobs.claim(1)


def test_any_command_runs_in_a_job_and_its_status_is_passed_on(queue: Queue, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--nodes", "2", "-o", "out", "--", "bash", "-c", "echo one; echo two >&2; exit 7")
    assert cantle("orchestrate", *words) == 7
    told = capfd.readouterr().out
    assert "bash: batch job 17 (slurm) asks for 2 nodes" in told
    assert told.endswith("one\ntwo\n")
    assert cantle("orchestrate", "--attach", "out") == 7


def test_a_command_is_canceled(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("orchestrate", "-o", "out", "--detach", "--", "sleep", "60") == 0
    wait_until(lambda: Jobs(Layout("out")).began(1))
    assert cantle("cancel", "out", "-y") == 0
    assert queue.settle() == ["CANCELLED"]
    assert cantle("orchestrate", "--attach", "out") == 3
    assert cantle("cancel", "out", "-y") == 1
    assert "nothing to cancel" in capsys.readouterr().err


def test_a_command_whose_job_is_killed_is_told(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("orchestrate", "-o", "out", "--detach", "--", "bash", "-c", "echo last words; sleep 60") == 0
    wait_until(lambda: Jobs(Layout("out")).output(1).exists() and Jobs(Layout("out")).output(1).read_text())
    os.killpg(queue.jobs()[0]["pid"], signal.SIGKILL)
    assert cantle("orchestrate", "--attach", "out") == 1
    told = capsys.readouterr().err
    assert "before its command was" in told
    assert "| last words" in told


def batch(text: str) -> str:
    Path("batch.yaml").write_text(f"{HELLO}batch: {{{text}}}\n")
    return "batch.yaml"


def dry(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], list[str]]:
    """The reasons, and the words of the submit command."""
    capsys.readouterr()
    assert cantle("orchestrate", "--dry", *words) == 0
    *reasons, command = capsys.readouterr().out.splitlines()
    return reasons, command.split()


def test_what_the_study_says_under_batch_is_asked_for(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    study = batch(
        "type: slurm, host: h, bank: abc, queue: short, reservation: r1, qos: high, gpus: 2, nodes: 2, "
        'walltime: "00:20:00", args: {mail-type: END}'
    )
    reasons, words = dry(capsys, study)
    assert reasons == []
    assert words == [
        "sbatch", "--parsable", "--job-name=hello", f"--chdir={Path.cwd()}", "--output=OUTPUT", "--open-mode=append",
        "--export=ALL", "--nodes=2", "--exclusive", "--time=20", "--gres=gpu:2", "--partition=short", "--account=abc",
        "--reservation=r1", "--qos=high", "--no-kill", "--mail-type=END", "SCRIPT",
    ]  # fmt: skip


def test_the_command_line_wins_over_the_study(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    study = batch('type: slurm, queue: short, bank: abc, nodes: 2, walltime: "00:20:00"')
    _, words = dry(
        capsys, study, "--queue", "main", "--bank", "xyz", "--nodes", "4", "--time", "1:30:00", "--gpus", "1",
        "--cores-per-node", "2", "--constraint", "a&b", "--args", "--mem=0 --comment=x", "--job-name", "mine",
    )  # fmt: skip
    expected = {
        "--partition=main", "--account=xyz", "--nodes=4", "--time=90", "--gres=gpu:1", "--cpus-per-task=2", "--mem=0",
        "--comment=x", "--job-name=mine", "'--constraint=a&b'",
    }  # fmt: skip
    assert expected <= set(words)
    assert "--exclusive" not in words


@pytest.mark.parametrize(
    ("text", "minutes"), [("30", 30), ("1:30:00", 90), ("2h", 120), ("90s", 2), ("1-00:00:00", 1440)]
)
def test_time_is_minutes_or_as_people_write_it(
    text: str, minutes: int, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"--time={minutes}" in dry(capsys, "hello.yaml", "--time", text)[1]


def test_what_makes_no_sense_under_batch_is_told_with_its_key(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("orchestrate", "--dry", batch("type: slurm, nodes: many, walltime: soon")) == 1
    told = capsys.readouterr().err
    assert "batch.nodes: must be a whole number, not 'many'" in told
    assert "batch.walltime: must be a walltime" in told


def test_nodes_and_time_are_those_of_the_plan(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    text = NAPS % ("1", ",".join(map(str, range(16)))) + "cantle: {steps: {nap: {estimate: 10 min}}}\n"
    Path("wide.yaml").write_text(text.replace("%%%%", "%%"))
    reasons, words = dry(capsys, "wide.yaml")
    assert {"--nodes=4", "--time=15"} <= set(words)  # 16 of 10 min on 4 x 4 cores: 10 min, a quarter more and 2 min
    assert reasons[0].startswith("4 nodes, with 4 cores each (as the queue's nodes have): 4x4")
    assert reasons[1].startswith("15 min 00 s: its end is foreseen after 10 min 00 s")
    reasons, words = dry(capsys, "wide.yaml", "--queue", "short")
    assert {"--nodes=2", "--time=30"} <= set(words)  # no more nodes are there
    reasons, words = dry(capsys, "wide.yaml", "--nodes", "1", "--queue", "short")
    assert {"--nodes=1", "--time=30"} <= set(words)
    assert "the queue gives no more than 30 min 00 s, so say --until-done as well" in reasons[-1]


def test_a_walltime_is_the_estimate_where_there_is_no_better(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    reasons, words = dry(capsys, "hello.yaml")
    assert "--time=5" in words
    assert "at most (2 tasks with a walltime alone)" in reasons[-1]


def test_where_nobody_knows_how_long_it_takes_the_queue_decides(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons, words = dry(capsys, naps(1, 4))
    assert not any(word.startswith("--time") for word in words)
    assert "nobody says how long 4 tasks take" in reasons[-1]
    assert "nobody says how long 1 task takes" in dry(capsys, naps(1, 1))[0][-1]
    assert "--time=10" in dry(capsys, naps(1, 4), "--default-estimate", "5 min")[1]


def test_steps_that_want_gpus_get_nodes_with_all_of_theirs(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    Path("gpu.yaml").write_text(HELLO.replace("cmd: echo hello,", "cmd: echo hello, gpus: 1,"))
    reasons, words = dry(capsys, "gpu.yaml")
    assert "--gres=gpu:2" in words
    assert reasons[0] == "2 GPUs on each node, since steps ask for some"


def test_what_can_run_on_no_node_is_not_submitted(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    Path("big.yaml").write_text(HELLO.replace("cmd: echo hello,", "cmd: echo hello, procs: 64,"))
    assert cantle("orchestrate", "big.yaml") == 1
    assert "tasks would fail on each" in capsys.readouterr().err
    assert queue.jobs() == []


def test_a_study_is_not_refused_for_programs_that_only_this_machine_lacks(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "slurm" / "bin"))
    Path("mpi.yaml").write_text(HELLO.replace("cmd: echo hello,", "cmd: $(LAUNCHER) ./a.out, procs: 2,"))
    dry(capsys, "mpi.yaml")
    said, _ = (run := client("run", "mpi.yaml")).communicate(timeout=120)
    assert run.returncode == 1
    assert "starts 2 processes by $(LAUNCHER), but there is no" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name one study"),
        (("hello.yaml", "--", "true"), "either a study"),
        (("--attach", "out", "hello.yaml"), "--attach submits nothing"),
        (("--attach", "."), "nothing in"),
        (("--until-done", "--", "true"), "--until-done is for studies"),
        (("hello.yaml", "--exclusive", "--cores-per-node", "2"), "exclude each other"),
        (("hello.yaml", "--system", "lsff"), "no batch system is called 'lsff'"),
        (("hello.yaml", "--args", "'"), "--args"),
    ],
)
def test_what_does_not_go_together_is_told(
    words: tuple[str, ...], told: str, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cantle("orchestrate", *words) == 1
    assert told in capsys.readouterr().err
    assert queue.jobs() == []


def test_a_study_with_mistakes_is_not_submitted(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.yaml").write_text(HELLO.replace("depends: [greet]", "depends: [gret]"))
    assert cantle("orchestrate", "wrong.yaml", "-o", "out") == 1
    assert "gret" in capsys.readouterr().err
    assert queue.jobs() == []
    assert not Path("out").exists()
