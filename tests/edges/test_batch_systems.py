"""What batch systems are told, and what is understood of what they say. Their commands are stand-ins that say what was seen."""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from cantle.allocations.submission.base import BatchSystem, call, environment
from cantle.allocations.submission.choosing import system_here
from cantle.allocations.submission.flux import Flux
from cantle.allocations.submission.lsf import Lsf
from cantle.allocations.submission.pbs import Pbs
from cantle.allocations.submission.slurm import Slurm
from cantle.allocations.submission.wanted import JobWanted, Offer, Stage, Standing
from cantle.errors import MachineError, RequestError
from cantle.testing import check_batch_system

JOB = JobWanted(
    name="sim", script="/run/1.sh", output="/run/logs/job-1.out", directory="/home/u", nodes=4, walltime_s=5430,
    queue="debug", account="abc", extra=("--mail=me",),
)  # fmt: skip

NOTHING = JobWanted(name="", script="", output="", directory="")
NUMBERS = count()


class Client:
    """A command on the PATH that says one thing, and writes down its arguments."""

    def __init__(self, folder: Path, name: str) -> None:
        self.asked = folder / f"{name}.asked"
        self._path = folder / name

    def says(self, out: str = "", err: str = "", code: int = 0) -> Client:
        self._path.write_text(
            f"#!{sys.executable} -S\nimport json, sys\n"
            f"open({str(self.asked)!r}, 'w').write(json.dumps(sys.argv[1:]))\n"
            f"sys.stdout.write({out!r}); sys.stderr.write({err!r}); sys.exit({code})\n"
        )
        self._path.chmod(0o755)
        return self

    @property
    def words(self) -> list[str]:
        found: list[str] = json.loads(self.asked.read_text())
        return found


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_slurm_is_told_everything_on_the_command_line() -> None:
    assert Slurm().words(JOB, after="17") == [
        "sbatch", "--parsable", "--job-name=sim", "--chdir=/home/u", "--output=/run/logs/job-1.out",
        "--open-mode=append", "--export=ALL", "--nodes=4", "--exclusive", "--time=91", "--partition=debug",
        "--account=abc", "--dependency=afterany:17", "--mail=me", "/run/1.sh",
    ]  # fmt: skip


def test_slurm_gives_shared_nodes_when_cores_are_counted_and_replaces_nothing_in_paths() -> None:
    job = JobWanted(
        name="n", script="/s", output="/a%j/o", directory="/", cores=3, gpus=2, memory_mib=512, outlives_nodes=True
    )
    words = Slurm().words(job)
    assert "--exclusive" not in words
    assert {"--ntasks-per-node=1", "--cpus-per-task=3", "--gres=gpu:2", "--mem=512M", "--no-kill"} <= set(words)
    assert "--output=/a%%j/o" in words
    with pytest.raises(RequestError, match="backslash"):
        Slurm().words(JobWanted(name="n", script="/s", output="/a\\b", directory="/"))


def test_a_job_that_another_one_follows_is_not_run_again_by_the_batch_system() -> None:
    job = JobWanted(name="n", script="/s", output="/o", directory="/", once=True)
    assert "--no-requeue" in Slurm().words(job)
    words = Pbs().words(job)
    assert words[words.index("-r") + 1] == "n"
    assert "-rn" in Lsf().words(job)


def test_pbs_counts_chunks_and_takes_a_reservation_for_a_queue() -> None:
    job = JobWanted(
        name="9 lives of a cat", script="/s", output="/o", directory="/", nodes=2, cores=8, gpus=1, walltime_s=7201,
        reservation="R12", account="abc",
    )  # fmt: skip
    assert Pbs().words(job, after="5.srv") == [
        "qsub", "-N", "c9_lives_of_a_c", "-o", "/o", "-j", "oe", "-k", "doe", "-V", "-l", "select=2:ncpus=8:ngpus=1",
        "-l", "place=scatter", "-l", "walltime=2:01:00", "-q", "R12", "-A", "abc", "-W", "depend=afterany:5.srv", "/s",
    ]  # fmt: skip
    with pytest.raises(RequestError, match="one of --queue and --reservation"):
        Pbs().words(JobWanted(name="n", script="/s", output="/o", directory="/", reservation="R12", queue="q"))


def test_lsf_counts_whole_nodes_or_slots() -> None:
    whole = Lsf().words(JOB, after="5")
    assert whole[whole.index("-nnodes") + 1] == "4"
    assert "-x" in whole
    assert whole[whole.index("-W") + 1] == "1:31"
    assert whole[whole.index("-w") + 1] == "ended(5)"
    shared = Lsf().words(JobWanted(name="n", script="/s", output="/o", directory="/", nodes=2, cores=8))
    assert shared[shared.index("-n") : shared.index("-n") + 4] == ["-n", "16", "-R", "span[ptile=8]"]


def test_flux_is_told_slots() -> None:
    assert Flux().words(JOB) == [
        "flux", "batch", "--job-name=sim", "--cwd=/home/u", "--output=/run/logs/job-1.out", "--nodes=4",
        "--exclusive", "--time-limit=91m", "--queue=debug", "--bank=abc", "--mail=me", "/run/1.sh",
    ]  # fmt: skip


@pytest.mark.parametrize(("system", "what"), [(Pbs(), "qos"), (Lsf(), "qos"), (Flux(), "reservation"), (Flux(), "qos")])
def test_what_a_batch_system_has_no_word_for_is_refused_at_once(system: BatchSystem, what: str) -> None:
    job = JobWanted(name="n", script="/s", output="/o", directory="/", **{what: "x"})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=f"has no {what}"):
        system.words(job)


@pytest.mark.parametrize(
    ("system", "command", "said", "ident"),
    [
        (Slurm(), "sbatch", "17\n", "17"),
        (Slurm(), "sbatch", "17;cluster\n", "17"),
        (Pbs(), "qsub", "1234.pbs01\n", "1234.pbs01"),
        (Lsf(), "bsub", "Job <99> is submitted to queue <normal>.\n", "99"),
        (Flux(), "flux", "f2Vb9cK\n", "f2Vb9cK"),
    ],
)
def test_the_name_of_a_job_is_found_in_what_is_said(
    system: BatchSystem, command: str, said: str, ident: str, path: Path
) -> None:
    client = Client(path, command).says(said)
    assert system.submit(JOB) == ident
    assert client.words == system.words(JOB)[1:]


@pytest.mark.parametrize(
    ("system", "command"), [(Slurm(), "sbatch"), (Pbs(), "qsub"), (Lsf(), "bsub"), (Flux(), "flux")]
)
def test_a_refusal_is_told_in_the_systems_words(system: BatchSystem, command: str, path: Path) -> None:
    Client(path, command).says(err="error: no such queue\n", code=1)
    with pytest.raises(RequestError, match="error: no such queue"):
        system.submit(JOB)
    Client(path, command).says("all is well\n" if system.name in ("slurm", "pbs", "lsf") else "")
    with pytest.raises(MachineError, match="said no number"):
        system.submit(JOB)
    (path / command).unlink()
    with pytest.raises(MachineError, match=f"no command {command}"):
        system.submit(JOB)


@pytest.mark.parametrize(
    ("said", "standing"),
    [
        ("PENDING|N/A|Resources", Standing(Stage.PENDING, "PENDING", "Resources")),
        (
            "PENDING|N/A|ReqNodeNotAvail, UnavailableNodes:node3",
            Standing(Stage.PENDING, "PENDING", "ReqNodeNotAvail, UnavailableNodes:node3"),
        ),
        ("PENDING|N/A|PartitionNodeLimit", Standing(Stage.PENDING, "PENDING", "PartitionNodeLimit", never=True)),
        ("CONFIGURING|2026-11-30T01:00:00|None", Standing(Stage.PENDING, "CONFIGURING", "", 1796000400.0)),
        ("RUNNING|2026-11-30T01:00:00|None", Standing(Stage.RUNNING, "RUNNING")),
        ("COMPLETING|2026-11-30T01:00:00|None", Standing(Stage.RUNNING, "COMPLETING")),
        ("TIMEOUT|2026-11-30T01:00:00|TimeLimit", Standing(Stage.OVER, "TIMEOUT", "TimeLimit")),
        ("CANCELLED|2026-11-30T01:00:00|None", Standing(Stage.OVER, "CANCELLED", canceled=True)),
        ("NODE_FAIL|2026-11-30T01:00:00|NodeDown", Standing(Stage.OVER, "NODE_FAIL", "NodeDown")),
        ("QUITE_NEW|N/A|None", Standing(Stage.RUNNING, "QUITE_NEW")),
    ],
)
def test_what_slurm_says_of_a_job(said: str, standing: Standing, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    Client(path, "squeue").says(f"{said}\n")
    try:
        assert Slurm().look("17") == standing
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_job_that_slurm_has_forgotten_is_over_and_one_it_cannot_be_asked_about_is_not(path: Path) -> None:
    Client(path, "squeue").says(err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert Slurm().look("17") == Standing(Stage.OVER)
    Client(path, "sacct").says("CANCELLED by 0\n")
    assert Slurm().look("17") == Standing(Stage.OVER, "CANCELLED", canceled=True)
    Client(path, "squeue").says(
        err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", code=1
    )
    found = Slurm().look("17")
    assert found.stage is Stage.UNKNOWN
    assert "Unable to contact" in found.reason


def test_what_pbs_says_of_a_job(path: Path) -> None:
    head = "Job Id: 5.srv\n    Job_Name = sim\n"
    Client(path, "qstat").says(
        f"{head}    job_state = Q\n    comment = Not Running: Insufficient amount of resource: ncpus \n\t(R: 8 A: 0)\n"
        "    estimated.start_time = Mon Nov 30 01:00:00 2026\n"
    )
    found = Pbs().look("5.srv")
    assert (found.stage, found.reason) == (
        Stage.PENDING,
        "Insufficient amount of resource: ncpus (R: 8 A: 0)",
    )
    assert found.starts_at > 0
    Client(path, "qstat").says(f"{head}    job_state = R\n")
    assert Pbs().look("5.srv").stage is Stage.RUNNING
    Client(path, "qstat").says(f"{head}    job_state = F\n    substate = 91\n")
    assert Pbs().look("5.srv").canceled
    Client(path, "qstat").says(f"{head}    job_state = F\n    substate = 92\n    Exit_status = 2\n")
    assert Pbs().look("5.srv") == Standing(Stage.OVER, "finished")
    Client(path, "qstat").says(err="qstat: Unknown Job Id 5.srv\n", code=153)
    assert Pbs().look("5.srv").stage is Stage.OVER
    Client(path, "qstat").says(err="Connection refused\n", code=255)
    assert Pbs().look("5.srv").stage is Stage.UNKNOWN


def test_what_lsf_says_of_a_job(path: Path) -> None:
    Client(path, "bjobs").says("PEND|-|New job is waiting for scheduling;\n")
    assert Lsf().look("9") == Standing(Stage.PENDING, "PEND", "New job is waiting for scheduling")
    Client(path, "bjobs").says("RUN|-|-\n")
    assert Lsf().look("9") == Standing(Stage.RUNNING, "RUN")
    Client(path, "bjobs").says("EXIT|TERM_OWNER: job killed by owner|-\n")
    assert Lsf().look("9").canceled
    Client(path, "bjobs").says("EXIT|TERM_RUNLIMIT: job killed after reaching LSF run time limit|-\n")
    found = Lsf().look("9")
    assert (found.stage, found.canceled) == (Stage.OVER, False)
    Client(path, "bjobs").says(err="Job <9> is not found\n", code=255)
    assert Lsf().look("9").stage is Stage.OVER
    Client(path, "bjobs").says(err="batch system daemon not responding\n", code=255)
    assert Lsf().look("9").stage is Stage.UNKNOWN


def test_what_flux_says_of_a_job(path: Path) -> None:
    Client(path, "flux").says("SCHED||1796000400.5\n")
    assert Flux().look("f2") == Standing(Stage.PENDING, "SCHED", "", 1796000400.5)
    Client(path, "flux").says("DEPEND||\n")
    assert Flux().look("f2").reason == "for another job"
    Client(path, "flux").says("RUN||\n")
    assert Flux().look("f2").stage is Stage.RUNNING
    Client(path, "flux").says("INACTIVE|CANCELED|\n")
    assert Flux().look("f2").canceled
    Client(path, "flux").says("INACTIVE|TIMEOUT|\n")
    assert Flux().look("f2") == Standing(Stage.OVER, "TIMEOUT")
    Client(path, "flux").says(err="flux-jobs: ERROR: no broker\n", code=1)
    assert Flux().look("f2").stage is Stage.UNKNOWN


@pytest.mark.parametrize(
    ("system", "command", "gone"),
    [
        (Slurm(), "scancel", "scancel: error: Kill job error on job id 17: Invalid job id specified"),
        (Pbs(), "qdel", "qdel: Job has finished 17.srv"),
        (Lsf(), "bkill", "Job <17>: Job has already finished"),
        (Flux(), "flux", "flux-cancel: f2: job is inactive"),
    ],
)
def test_ending_a_job_that_is_over_is_no_mistake(system: BatchSystem, command: str, gone: str, path: Path) -> None:
    Client(path, command).says(err=gone, code=1)
    system.cancel("17")
    Client(path, command).says(err="Access denied", code=1)
    with pytest.raises(MachineError, match="Access denied"):
        system.cancel("17")


def test_what_the_nodes_of_a_partition_have_in_common(path: Path) -> None:
    client = Client(path, "sinfo").says(
        "gpu|4|64|gpu:a100:4(S:0-1)|2-00:00:00\nmain*|10|96|(null)|30:00\nmain*|2|48|gpu:2|30:00\n"
    )
    assert Slurm().offer("") == Offer(nodes=12, cores=48, gpus=2, limit_s=1800.0)
    client.says("gpu|4|64|gpu:a100:4(S:0-1)|2-00:00:00\n")
    assert Slurm().offer("gpu") == Offer(nodes=4, cores=64, gpus=4, limit_s=172800.0)
    assert "--partition=gpu" in client.words
    client.says("")
    assert Slurm().offer("nosuch") is None


def test_a_job_does_not_inherit_the_job_in_which_it_was_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_NTASKS_PER_NODE", "PBS_NODEFILE", "LSB_HOSTS", "CANTLE_TASK"):
        monkeypatch.setenv(name, "1")
    for name in ("SLURM_CONF", "SBATCH_ACCOUNT", "LS_COLORS", "OTHER"):
        monkeypatch.setenv(name, "kept")
    found = environment()
    assert not {"SLURM_JOB_ID", "SLURM_NTASKS_PER_NODE", "PBS_NODEFILE", "LSB_HOSTS", "CANTLE_TASK"} & set(found)
    assert {found[name] for name in ("SLURM_CONF", "SBATCH_ACCOUNT", "LS_COLORS", "OTHER")} == {"kept"}


def test_a_client_that_hangs_is_not_waited_for_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cantle.allocations.submission.base.PATIENCE_S", 0.2)
    (path / "squeue").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (path / "squeue").chmod(0o755)
    assert call(["squeue"]).code == 124
    assert Slurm().look("17").stage is Stage.UNKNOWN


@pytest.mark.parametrize("system", [Slurm(), Pbs(), Lsf(), Flux()], ids=lambda system: system.name)
def test_ours_keep_the_promises_of_their_seam(system: BatchSystem) -> None:
    check_batch_system(system)


class Forgetful(Slurm):
    """Leaves out one thing."""

    def __init__(self, what: str) -> None:
        self._what = what

    def words(self, job: JobWanted, after: str = "") -> list[str]:
        if self._what == "after":
            return super().words(job)
        if self._what == "words":
            return [*super().words(job, after), str(next(NUMBERS))]
        return super().words(replace(job, **{self._what: getattr(NOTHING, self._what)}), after)


class Reckless(Slurm):
    """Takes silence for an answer."""

    def look(self, ident: str) -> Standing:
        return Standing(Stage.OVER)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("queue", "queue is asked for, and neither said nor refused"),
        ("gpus", "gpus is asked for, and neither said nor refused"),
        ("extra", "extra is asked for, and neither said nor refused"),
        ("walltime_s", "minutes of walltime change nothing"),
        ("output", "the job's output"),
        ("after", "the job that is to be over before"),
        ("words", "gets other words when it is asked again"),
    ],
)
def test_a_batch_system_that_leaves_something_out_is_found(what: str, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_batch_system(Forgetful(what))


def test_a_batch_system_that_takes_silence_for_an_answer_is_found() -> None:
    with pytest.raises(AssertionError, match="nobody can be asked about a job, and it is said to be over"):
        check_batch_system(Reckless())


def test_the_batch_system_is_the_one_that_is_here(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUX_URI", raising=False)
    with pytest.raises(RequestError, match="no batch system here"):
        system_here()
    Client(path, "qsub").says()
    assert system_here() == "pbs"
    monkeypatch.setenv("SGE_ROOT", "/sge")
    with pytest.raises(RequestError, match="no batch system here"):
        system_here()
    Client(path, "flux").says()
    assert system_here() == "flux"
    Client(path, "sbatch").says()
    assert system_here() == "slurm"
    monkeypatch.setenv("FLUX_URI", "local:///run/flux")
    assert system_here() == "flux"
