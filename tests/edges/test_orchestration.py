"""A job of a chain, from its first moment to its last, with a batch system that writes down what it is asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import time

import msgspec
import pytest

from cantle.allocations.submission.wanted import JobWanted, Offer, Stage, Standing
from cantle.cli.job_following import in_the_queue
from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.errors import LockedError, RequestError
from cantle.model.records import RunResumed, RunStarted, StudyAdded, TasksAdded
from cantle.model.resources import Node
from cantle.model.study import Step, Task
from cantle.report.loading import load
from cantle.report.table import headline
from cantle.runtime.loop import run
from cantle.runtime.orchestration import records, succession
from cantle.runtime.orchestration.handing_in import hand_in
from cantle.runtime.orchestration.inside import live
from cantle.runtime.orchestration.records import Asked, Began, Ended, Jobs, Submitted
from cantle.runtime.orchestration.watch import JobWatch
from cantle.runtime.simulated import Fate, SimulatedWorld
from cantle.store.identity import Holder
from cantle.store.journal import Journal
from cantle.store.layout import Layout


class System:
    """A batch system that never runs anything."""

    name = "fake"
    submits_by = "fake"

    def __init__(self) -> None:
        self.said: list[tuple[str, ...]] = []
        self.refuses = ""
        self.standings: dict[str, Standing] = {}

    def words(self, job: JobWanted, after: str = "") -> list[str]:
        return ["fake", job.script, after]

    def submit(self, job: JobWanted, after: str = "") -> str:
        if self.refuses:
            raise RequestError(self.refuses)
        self.said.append(("submit", Path(job.script).name, after, "once" if job.once else "again"))
        return str(100 + int(Path(job.script).stem))

    def look(self, ident: str) -> Standing:
        self.said.append(("look", ident))
        return self.standings.get(ident, Standing(Stage.OVER))

    def cancel(self, ident: str) -> None:
        self.said.append(("cancel", ident))

    def offer(self, queue: str) -> Offer | None:
        return None


class Chain:
    """A run of two tasks in a directory, its jobs, and what its conductor is told."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder).create()
        self.system = System()
        self.jobs = Jobs(self.layout)
        self.notes: list[str] = []
        self.conducted: list[list[str]] = []
        self.ask(most_jobs=5)
        self.write(done=False)

    def ask(self, most_jobs: int) -> None:
        job = JobWanted(name="n", script="", output="", directory="/")
        self.jobs.ask(Asked(system="fake", job=job, most_jobs=most_jobs, python="python", conductor=("--grace", "9")))

    def write(self, done: bool) -> None:
        """Let the journal say that both tasks are done, or that none is."""
        state = State()
        kept = []

        class Log:
            def write(self, record: object) -> None:
                kept.append(record)

            def flush(self) -> None:
                pass

        world = SimulatedWorld(state, [(0.0, [Node("here", 1)])], lambda task, _: Fate(10.0))
        for record in (
            RunStarted(0.0, "n-1", "0", "here", 1),
            StudyAdded(0.0, "n", [Step("s")]),
            TasksAdded(0.0, 0, [Task("s_1", 0), Task("s_2", 0)]),
        ):
            kept.append(record)
            state.apply(record)
        if done:
            run(state, world, Log(), Decider(lines=False))
        self.layout.journal.unlink(missing_ok=True)
        with Journal.open_new(self.layout.journal) as journal:
            for record in kept:
                journal.write(record)  # type: ignore[arg-type]

    def hand_in(self, number: int, **more: object) -> None:
        assert hand_in(self.jobs, self.system, number, **more)  # type: ignore[arg-type]

    def live(self, number: int, then: Callable[[], int] = lambda: 0) -> int:
        def conduct(words: list[str]) -> int:
            self.conducted.append(words)
            return then()

        return live(self.jobs, self.system, number, conduct, self.notes.append)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path / "run")


def test_the_successor_is_handed_in_before_anything_and_taken_back_when_all_is_done(chain: Chain) -> None:
    chain.hand_in(1, retry=True)

    def all_is_done() -> int:
        assert chain.system.said[-1] == ("submit", "2.sh", "101", "once")
        chain.write(done=True)
        return 0

    assert chain.live(1, all_is_done) == 0
    assert chain.system.said[-1] == ("cancel", "102")
    ended = chain.jobs.ended(1)
    assert ended is not None
    assert (ended.status, ended.complete) == (0, True)
    assert chain.conducted == [["--grace", "9"]]


def test_what_failed_gets_a_new_chance_only_where_somebody_asked_for_the_job(chain: Chain) -> None:
    chain.hand_in(1, retry=True)
    chain.live(1, lambda: 3)
    chain.live(2, lambda: 3)
    assert chain.conducted == [["--grace", "9"], ["--grace", "9", "--keep-failed"]]


def test_a_job_that_the_batch_system_runs_again_is_no_new_chance_and_has_its_successor(chain: Chain) -> None:
    chain.hand_in(1, retry=True)
    chain.live(1, lambda: 3)
    said = len(chain.system.said)
    chain.live(1, lambda: 3)
    assert chain.conducted[1] == ["--grace", "9", "--keep-failed"]
    assert not [each for each in chain.system.said[said:] if each[0] == "submit"]


def test_a_job_that_comes_too_late_does_nothing(chain: Chain) -> None:
    chain.hand_in(1)
    chain.live(1, lambda: 3)
    chain.write(done=True)
    assert chain.live(2) == 0
    assert len(chain.conducted) == 1
    assert "all of the study is over" in chain.notes[-1]


def test_nothing_begins_in_a_run_that_was_canceled(chain: Chain) -> None:
    chain.hand_in(1)
    chain.jobs.canceled = True
    assert chain.live(1) == 3
    assert chain.conducted == []


def test_a_job_does_not_go_on_with_what_somebody_canceled(chain: Chain) -> None:
    chain.hand_in(1)
    chain.live(1, lambda: 3)
    chain.system.standings["101"] = Standing(Stage.OVER, "CANCELLED", canceled=True)
    assert chain.live(2) == 3
    assert len(chain.conducted) == 1
    assert "somebody canceled job 101, and with it those that were to follow" in chain.notes[-1]


def test_a_job_goes_on_where_the_time_of_the_one_before_was_up(chain: Chain) -> None:
    chain.hand_in(1)
    chain.live(1, lambda: succession.TIME_IS_UP)
    chain.system.standings["101"] = Standing(
        Stage.OVER, "CANCELLED", canceled=True
    )  # some systems say so at the walltime
    chain.live(2, lambda: succession.TIME_IS_UP)
    assert len(chain.conducted) == 2


def test_after_two_jobs_in_which_nothing_was_done_the_chain_ends(chain: Chain) -> None:
    chain.hand_in(1)
    chain.live(1, lambda: 4)
    chain.live(2, lambda: 4)
    assert chain.live(3) == 3
    assert len(chain.conducted) == 2
    assert "in the last 2 jobs not a single task was done" in chain.notes[-1]


def test_a_chain_that_is_asked_for_again_begins_to_count_anew(chain: Chain) -> None:
    chain.ask(most_jobs=2)
    chain.hand_in(1)
    chain.live(1, lambda: 4)
    chain.live(2, lambda: 4)
    assert chain.jobs.numbers() == [1, 2]
    chain.hand_in(3, retry=True)
    chain.live(3, lambda: 4)
    assert chain.jobs.numbers() == [1, 2, 3, 4]
    assert [chain.jobs.job(n).chain for n in (1, 2, 3, 4)] == [1, 1, 3, 3]


def test_where_no_job_can_be_submitted_from_within_that_is_told_and_the_job_goes_on(chain: Chain) -> None:
    chain.hand_in(1)
    chain.system.refuses = "fake refuses the job: not from here"
    assert chain.live(1, lambda: 4) == 4
    assert "not from here" in chain.notes[0]
    assert chain.jobs.numbers() == [1]


def test_an_error_of_the_conductor_is_told_and_the_successor_stays(chain: Chain) -> None:
    def busy() -> int:
        raise LockedError("another conductor is at work")

    chain.hand_in(1)
    assert chain.live(1, busy) == 1
    assert chain.notes[-1] == "another conductor is at work"
    assert ("cancel", "102") not in chain.system.said


@pytest.mark.parametrize(("stage", "take_over"), [(Stage.OVER, True), (Stage.RUNNING, False)])
def test_the_lock_of_a_job_that_is_over_is_taken_over(chain: Chain, stage: Stage, take_over: bool) -> None:
    chain.hand_in(1)
    chain.hand_in(2, after="101", chain=1)
    chain.jobs.begins(1, Began(time(), "node7", 4711))
    chain.layout.lock.write_bytes(msgspec.json.encode(Holder("node7", 4711, time(), time(), boot="another")))
    chain.system.standings["101"] = Standing(stage)
    chain.live(2, lambda: 4)
    assert ("--take-over" in chain.conducted[0]) is take_over


def test_the_lock_of_an_earlier_life_of_the_same_job_is_taken_over(chain: Chain) -> None:
    chain.hand_in(1)
    chain.jobs.begins(1, Began(time(), "node7", 4711))
    chain.layout.lock.write_bytes(msgspec.json.encode(Holder("node7", 4711, time(), time(), boot="another")))
    chain.live(1, lambda: 4)
    assert "--take-over" in chain.conducted[0]


def test_the_lock_of_somebody_else_is_not_taken_over(chain: Chain) -> None:
    chain.hand_in(1)
    chain.hand_in(2, after="101", chain=1)
    chain.jobs.begins(1, Began(time(), "node7", 4711))
    chain.layout.lock.write_bytes(msgspec.json.encode(Holder("login1", 99, time(), time(), boot="another")))
    chain.live(2, lambda: 4)
    assert "--take-over" not in chain.conducted[0]


def test_a_refused_job_leaves_its_number(chain: Chain) -> None:
    chain.system.refuses = "no"
    with pytest.raises(RequestError):
        hand_in(chain.jobs, chain.system, 1)
    assert chain.jobs.numbers() == []


def test_who_dies_over_a_submission_is_noticed_after_a_while(chain: Chain) -> None:
    chain.jobs.claim(1)
    assert not chain.jobs.stale(1)
    long_ago = time() - records.STALE_S - 1
    os.utime(chain.jobs.folder / "1.json", (long_ago, long_ago))
    assert chain.jobs.stale(1)
    chain.jobs.submitted(Submitted(1, "101"))
    os.utime(chain.jobs.folder / "1.json", (long_ago, long_ago))
    assert not chain.jobs.stale(1)


def test_the_batch_system_is_asked_less_and_less_often(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("cantle.runtime.orchestration.watch.monotonic", lambda: now[0])
    monkeypatch.setattr("cantle.runtime.orchestration.watch.made", lambda *_: chain.system)
    chain.hand_in(1)
    chain.system.standings["101"] = Standing(Stage.PENDING, "PENDING", "Resources")
    watch = JobWatch(chain.jobs)
    asked = []
    for tenth in range(3000):
        now[0] = tenth / 10
        before = len(chain.system.said)
        assert watch.standing().stage is Stage.PENDING
        asked += [now[0]] * (len(chain.system.said) - before)
    pauses = [later - sooner for sooner, later in pairwise(asked)]
    assert pauses[0] <= 1.5
    assert 19 <= pauses[-1] <= 21
    assert len(asked) < 30


def test_the_job_that_counts_is_the_first_that_is_not_over(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cantle.runtime.orchestration.watch.made", lambda *_: chain.system)
    chain.hand_in(1)
    chain.hand_in(2, after="101", chain=1)
    chain.system.standings = {"101": Standing(Stage.RUNNING), "102": Standing(Stage.PENDING, "PENDING", "Dependency")}
    assert JobWatch(chain.jobs).ident == "101"
    chain.jobs.ends(1, Ended(time(), 4, complete=False))
    watch = JobWatch(chain.jobs)
    assert (watch.ident, str(watch.standing())) == ("102", "pending (Dependency)")


def test_a_conductor_that_is_gone_from_a_job_that_runs_is_told_from_one_that_has_yet_to_begin(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is dead, and the batch system has not noticed."""
    monkeypatch.setattr("cantle.runtime.orchestration.watch.made", lambda *_: chain.system)
    chain.hand_in(1)
    chain.system.standings["101"] = Standing(Stage.RUNNING)
    found = load(chain.layout.directory)
    assert (headline(found), found.gone_from) == ("n: starting", "")
    assert in_the_queue(found.jobs, found.gone_from).endswith(" runs; its conductor begins")  # type: ignore[arg-type]
    chain.jobs.begins(1, Began(5.0, "c1", 7))
    assert found.gone_from == "", "the job has begun, and its conductor not yet gone on with the run"
    with Journal.reopen(chain.layout.journal) as journal:
        journal.write(RunResumed(6.0, "c1", 7))
    found.refresh()
    gone = "n: its conductor on host c1 is gone, while batch job 101 (fake) runs on; "
    assert headline(found).startswith(f"{gone}go on with `cantle resume ")
    chain.hand_in(2, after="101", chain=1)
    assert headline(found) == f"{gone}the next job goes on after it"
    assert "its conductor on host c1 is gone" in in_the_queue(found.jobs, found.gone_from)  # type: ignore[arg-type]
