"""Does a run inside a job of Slurm's survive what happens to the job? On the cluster, with what is lost, and what is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster import Cluster
from ordeal import JobOrdeal, Ordeal

from cantle.model.records import EndRun, Launch, StopAsked, TaskEnded

NODES = ("c1", "c2", "c3")
AT_ONCE = 6
TASKS = 9
EXPIRING = ("c4", "c5")


@pytest.fixture(scope="module")
def expiring(standing_cluster: Cluster) -> Iterator[JobOrdeal]:
    """A job of one minute, which is the shortest that Slurm has, begun before all other tests here: it runs meanwhile."""
    place = standing_cluster.shared / "expiring"
    place.mkdir()
    with closing(JobOrdeal(standing_cluster, place, EXPIRING, 6, sbatch=["--time=1"])) as run:
        standing_cluster.keep_job(run.job, EXPIRING)
        yield run
        standing_cluster.release_job(run.job)


@pytest.fixture(autouse=True)
def _it_expires_meanwhile(expiring: JobOrdeal) -> None:
    """Each test here begins it, whichever is first."""


def nothing_is_held_against_a_task(run: Ordeal) -> None:
    """No attempt has failed: what did not end in order was interrupted or lost."""
    ends = [record for record in run.records() if isinstance(record, TaskEnded)]
    assert {end.outcome for end in ends} <= {"done", "interrupted", "lost"}, ends


def goes_on_where_it_was(run: Ordeal) -> None:
    """Resumed elsewhere, by ssh, it does what is left, and only that."""
    done = run.ended("done")
    launched = sum(isinstance(record, Launch) for record in run.records())
    run.go()
    run.resume("-j", "c1:2", "c2:2")
    run.ends()
    assert sorted(task for task, _ in run.ended("done")) == list(range(run.tasks))
    again = [record.task for record in run.records() if isinstance(record, Launch)][launched:]
    assert sorted(again) == sorted(set(range(run.tasks)) - {task for task, _ in done})
    run.nothing_is_left()


def test_a_killed_slurmd_costs_nothing_but_attempts_on_its_node(tidy_cluster: Cluster, shared_path: Path) -> None:
    with closing(JobOrdeal(tidy_cluster, shared_path, NODES, TASKS, "--silence", "4")) as run:
        run.until_begun(AT_ONCE)
        there = run.begun("c3")
        tidy_cluster.kill("c3", "slurmd", tell=True)
        run.until(lambda: tidy_cluster.slurm_states()["c3"].startswith("down"))
        run.go()
        run.ends()
        launched = {(each.task, each.attempt) for each in run.records() if isinstance(each, Launch)}
        lost = launched - run.ended("done")
        assert lost <= there
        run.nothing_was_lost_but(lost)
        run.nothing_is_left()


def test_a_cancelled_job_ends_its_tasks_and_resume_does_the_rest(tidy_cluster: Cluster, shared_path: Path) -> None:
    with closing(JobOrdeal(tidy_cluster, shared_path, NODES, TASKS)) as run:
        run.until_begun(AT_ONCE)
        tidy_cluster.slurm(["scancel", run.job])
        run.until(run.over)
        run.nothing_is_left()
        assert run.ended("done") == run.finished() == set()
        nothing_is_held_against_a_task(run)
        assert any(isinstance(record, StopAsked) for record in run.records()), "it had the time to end in order"
        assert "stopped (signal SIGTERM)" in run.told.read_text()
        goes_on_where_it_was(run)


def test_a_job_that_is_killed_at_once_leaves_nothing_and_resume_does_the_rest(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    """As when memory runs out on the node of the conductor: no signal is heard."""
    with closing(JobOrdeal(tidy_cluster, shared_path, NODES, TASKS)) as run:
        run.until_begun(AT_ONCE)
        tidy_cluster.slurm(["scancel", "--signal=KILL", "--full", run.job])
        run.until(run.over)
        run.nothing_is_left()
        assert run.finished() == set()
        nothing_is_held_against_a_task(run)
        goes_on_where_it_was(run)


def test_both_processes_of_a_runner_killed_at_once_leave_no_task_behind(
    tidy_cluster: Cluster, shared_path: Path
) -> None:
    with closing(JobOrdeal(tidy_cluster, shared_path, NODES, TASKS, "--silence", "900")) as run:
        run.until_begun(AT_ONCE)
        there = run.begun("c3")
        guests = tidy_cluster.guests("c3")
        for pid, line in guests.items():
            if "cantle runner" in line:
                os.kill(pid, signal.SIGKILL)
        run.until(lambda: run.lost_nodes() == ["c3"])  # by its end, and not by its silence
        run.until(lambda: len(run.begun("c3")) == 4)  # another runner was started, and serves
        assert not {pid for pid in guests if "slurm" not in guests[pid]} & tidy_cluster.guests("c3").keys()
        run.go()
        run.ends()
        run.nothing_was_lost_but(there)
        assert not run.finished() & there
        run.nothing_is_left()


def test_a_job_whose_time_is_up_ends_its_tasks_and_resume_does_the_rest(
    tidy_cluster: Cluster, expiring: JobOrdeal
) -> None:
    expiring.until(expiring.over)
    tidy_cluster.release_job(expiring.job)
    expiring.nothing_is_left()
    assert expiring.ended("done") == expiring.finished() == set()
    assert expiring.begun(), "it had begun"
    nothing_is_held_against_a_task(expiring)
    assert any(isinstance(record, EndRun) for record in expiring.records()), "it had the time to end in order"
    goes_on_where_it_was(expiring)
