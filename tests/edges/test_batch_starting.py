"""Are runners brought up by the batch system's starter, and is it told what keeps it from doing so?"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cantle.allocations.batch.job import Host, Job
from cantle.allocations.batch.slurm import Slurm
from cantle.allocations.batch.source import BatchSource
from cantle.allocations.batch.starter import Starter
from cantle.allocations.fleet.source import Invitation

pytestmark = pytest.mark.real

HOSTS = (Host("n1"), Host("n2"))
JOB = Job("Slurm", "24", HOSTS)


class Told:
    """A report that remembers."""

    def __init__(self) -> None:
        self.expected = 0
        self.failures: list[tuple[int, str]] = []
        self.notes: list[str] = []

    def expect(self, n: int) -> None:
        self.expected += n

    def failed(self, n: int, why: str) -> None:
        self.failures.append((n, why))

    def note(self, text: str) -> None:
        self.notes.append(text)


def until(so: Callable[[], object], seconds: float = 60.0) -> None:
    stop = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < stop, "it did not come about"
        time.sleep(0.02)


class Rig:
    """A source whose srun is a script of the test's; what it is called with stands in `calls`."""

    def __init__(self, folder: Path, script: str, **bounds: float) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.told = Told()
        srun = folder / "srun"
        srun.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >> {self.calls}\nenv > {folder}/env\n{script}\n')
        srun.chmod(0o755)
        self.source = BatchSource(
            Slurm(),
            JOB,
            HOSTS,
            {
                "PATH": f"{folder}:{os.environ['PATH']}",
                "SLURM_JOB_ID": "24",
                "SLURM_MEM_PER_CPU": "100",
                "SLURM_NTASKS_PER_NODE": "4",
                "SLURM_EXPORT_ENV": "NONE",
            },
            lambda: 2000.4,
            **bounds,
        )

    def start(self) -> None:
        self.source.start(Invitation("/run/invitation", b"", "python3"), self.told)

    def lines(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rig]:
    monkeypatch.setattr("cantle.allocations.batch.source._LEAVE_S", 0.3)
    made: list[Rig] = []

    def make(script: str, **bounds: float) -> Rig:
        made.append(Rig(tmp_path, script, **bounds))
        made[-1].start()
        return made[-1]

    return make


BOTH_JOIN = "echo '@cantle joined'; echo '@cantle joined'; trap 'exit 0' TERM; while :; do sleep 0.1; done"


def the_failure(it: Rig) -> tuple[int, str]:
    """How many runners will not come, and why: told once."""
    until(lambda: it.told.failures)
    it.source.close()
    (failure,) = it.told.failures
    return failure


def test_one_srun_serves_all_hosts_and_is_told_the_end_of_the_job(rig: Callable[..., Rig]) -> None:
    it = rig(BOTH_JOIN)
    until(it.lines)
    it.source.close()
    assert it.told.expected == 2
    (line,) = it.lines()
    assert "--nodes=2" in line
    assert "python3 -m cantle runner --connect /run/invitation --expected" in line
    assert line.endswith(" --until 2000")
    assert it.told.failures == []
    assert it.told.notes == []


def test_o40_the_starter_sees_nothing_of_the_outer_shape(rig: Callable[..., Rig]) -> None:
    it = rig(BOTH_JOIN)
    until(lambda: (it.folder / "env").exists() and it.lines())
    it.source.close()
    variables = {line.partition("=")[0] for line in (it.folder / "env").read_text().splitlines()}
    assert "SLURM_JOB_ID" in variables
    assert not variables & {"SLURM_MEM_PER_CPU", "SLURM_NTASKS_PER_NODE", "SLURM_EXPORT_ENV"}


def test_o16_a_starter_that_waits_is_told_of_with_its_words_and_what_they_mean(rig: Callable[..., Rig]) -> None:
    said = "srun: Job 24 step creation temporarily disabled, retrying (Requested nodes are busy)"
    it = rig(f"echo '{said}' >&2; exec sleep 60", told_s=0.3)
    until(lambda: it.told.notes)
    it.source.close()
    (note,) = it.told.notes
    assert "no runner on n1, n2" in note
    assert said in note
    assert "--overlap" in note


def test_a_starter_that_gives_up_fails_for_all_its_hosts_with_its_own_words(rig: Callable[..., Rig]) -> None:
    it = rig("echo 'srun: lacks support for cpu binding'; echo 'srun: error: Invalid job id specified' >&2; exit 1")
    n, why = the_failure(it)
    assert n == 2
    assert "no runner on n1, n2: srun ended (exit status 1). The job is over" in why
    assert "Invalid job id specified" in why
    assert "cpu binding" not in why


def test_a_starter_that_brings_up_one_of_two_fails_for_the_other(rig: Callable[..., Rig]) -> None:
    it = rig("echo '0: @cantle joined'; sleep 0.2; echo 'cantle runner on n2: no address led there' >&2; exit 1")
    n, why = the_failure(it)
    assert n == 1
    assert "1 of the 2 runners on n1, n2 is missing" in why
    assert "no address led there" in why


def test_a_host_that_cannot_be_had_does_not_keep_the_others_away(rig: Callable[..., Rig]) -> None:
    it = rig(f"case $* in *n2*) echo 'srun: error: n2 is down' >&2; exit 1;; esac; {BOTH_JOIN}")
    until(lambda: it.told.failures and len(it.lines()) == 3)
    it.source.close()
    ((n, why),) = it.told.failures
    assert n == 1
    assert "no runner on n2: srun ended (exit status 1). It said:" in why
    assert ["--nodelist=n1,n2" in line for line in it.lines()] == [True, False, False]


def test_a_starter_that_closes_its_output_is_still_watched_and_not_heard_again_and_again(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []
    hear = Starter.hear
    monkeypatch.setattr(Starter, "hear", lambda starter: heard.append(starter) or hear(starter))
    it = rig("echo '@cantle joined'; exec >&- 2>&-; sleep 1; exit 3")
    until(lambda: it.told.failures)
    it.source.close()
    assert len(heard) <= 4, "what it said, that it says no more, and that it has ended"
    assert it.told.failures[0][0] == 1
    assert "exit status 3" in it.told.failures[0][1]


def test_starters_that_need_some_time_to_end_have_it(
    rig: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cantle.allocations.batch.source._LEAVE_S", 3.0)
    there, left = tmp_path / "there", tmp_path / "left"
    it = rig(f"trap 'sleep 0.1; touch {left}; exit 0' TERM; touch {there}; while :; do sleep 0.1; done")
    until(there.exists)
    it.source.close()
    assert left.exists(), "it was killed"


def test_a_starter_that_never_comes_to_an_end_is_given_up_and_ended(rig: Callable[..., Rig]) -> None:
    it = rig(f"echo $$ > {'$(dirname $0)'}/pid; exec sleep 600", told_s=0.1, bound_s=3.0)
    until(lambda: it.told.failures)
    assert it.told.failures[0][0] == 2
    assert "it said nothing" in it.told.failures[0][1]
    pid = int((it.folder / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists())
    it.source.close()


def test_a_missing_srun_fails_at_once(tmp_path: Path) -> None:
    told = Told()
    source = BatchSource(Slurm(), JOB, HOSTS, {"PATH": str(tmp_path)})
    source.start(Invitation("/run/invitation", b"", "python3"), told)
    until(lambda: told.failures)
    source.close()
    assert told.failures[0][0] == 2
    assert "srun: No such file or directory" in told.failures[0][1]


def test_a_host_that_is_lost_gets_another_runner_but_not_for_ever(rig: Callable[..., Rig]) -> None:
    it = rig(BOTH_JOIN)
    until(it.lines)
    for n in range(1, 4):
        it.source.lost("n2.cluster.org")
        until(lambda n=n: len(it.lines()) == 1 + n)
    it.source.lost("n2")
    it.source.lost("a stranger")
    it.source.close()
    assert it.told.expected == 2 + 3
    assert len(it.lines()) == 4
    assert all("--nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n2" in line for line in it.lines()[1:])
    assert "n2 lost its runner 4 times within an hour" in it.told.notes[0]


def test_closing_ends_a_starter_that_does_not_heed_its_runners_leaving(rig: Callable[..., Rig]) -> None:
    it = rig("echo $$ > $(dirname $0)/pid; trap '' TERM; while :; do sleep 0.1; done")
    until(lambda: (it.folder / "pid").exists() and (it.folder / "pid").read_text())
    pid = int((it.folder / "pid").read_text())
    it.source.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


def test_whatever_ends_the_watch_over_starters_nobody_waits_for_their_runners_for_ever() -> None:
    def ends_at() -> float:
        raise KeyError("TimeLimit")

    told = Told()
    source = BatchSource(Slurm(), JOB, HOSTS, {}, ends_at)
    source.start(Invitation("/run/invitation", b"", "python3"), told)
    until(lambda: told.failures)
    source.lost("n1")
    source.close()
    assert told.failures == [(2, "starters are watched no more: KeyError: 'TimeLimit'")]
    assert told.expected == 2
