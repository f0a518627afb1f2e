"""Does each copy of a launched command know which it is, and do the others find the first?"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from descriptors_rig import all_numbers_taken

from cantle.allocations.fleet.source import Invitation
from cantle.allocations.launched import beside
from cantle.allocations.launched.copies import Copy, copy_of
from cantle.allocations.launched.meetings import FileMeeting, Word
from cantle.allocations.launched.pmi import PmiMeeting
from cantle.allocations.launched.source import LaunchedSource
from cantle.engines.launchers.base import Host, Layout, Seat, Surroundings
from cantle.engines.launchers.slurm import Srun
from cantle.errors import MachineError

BATCH_SCRIPT = {
    "SLURM_JOB_ID": "24",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_TASKS_PER_NODE": "2(x2)",
}
STEP = {
    **BATCH_SCRIPT,
    "SLURM_CLUSTER_NAME": "tb",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "2",
    "SLURM_STEP_ID": "5",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_MCA_orte_num_nodes": "2",
    "OMPI_MCA_orte_hnp_uri": "7.0;tcp://10.0.0.1:99",
    "PMIX_NAMESPACE": "77",
    "PMIX_RANK": "2",
}
HYDRA = {"MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1", "PMI_FD": "6", "PMI_RANK": "1", "PMI_SIZE": "4"}


def test_srun_tells_by_its_step() -> None:
    assert copy_of(STEP) == Copy("srun", 2, 3, 0, 1, 2, "tb 24 5")


def test_the_script_of_a_job_is_no_copy_although_it_has_a_rank() -> None:
    assert copy_of(BATCH_SCRIPT) is None
    assert copy_of({**BATCH_SCRIPT, "SLURM_STEP_ID": str(0xFFFFFFFB), "SLURM_STEP_NUM_TASKS": "4"}) is None


def test_mpirun_counts_before_the_step_that_it_runs_in() -> None:
    in_a_job = {**MPIRUN, **STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    copy = copy_of(in_a_job)
    assert copy == Copy("mpirun", 2, 3, 0, 1, 2, "77 7.0;tcp://10.0.0.1:99")


def test_mpiexec_gives_a_descriptor_and_no_key() -> None:
    assert copy_of(HYDRA) == Copy("mpiexec", 1, 4, 1, 2, 2, "", 6)


def test_srun_with_pmi_gives_both() -> None:
    copy = copy_of({**STEP, "PMI_FD": "11", "PMI_RANK": "2", "PMI_SIZE": "3", "PMI_JOBID": "24.5"})
    assert copy == Copy("srun", 2, 3, 0, 1, 2, "tb 24 5", 11)


def test_mpiexec_in_a_step_counts_by_itself() -> None:
    copy = copy_of({**STEP, **HYDRA})
    assert copy is not None
    assert (copy.launcher, copy.rank, copy.local_rank) == ("mpiexec", 1, 1)


def test_flux_and_jsrun_are_understood() -> None:
    flux = {
        "FLUX_JOB_ID": "f9",
        "FLUX_TASK_RANK": "3",
        "FLUX_JOB_SIZE": "8",
        "FLUX_TASK_LOCAL_ID": "3",
        "FLUX_JOB_NNODES": "2",
    }
    assert copy_of(flux) == Copy("flux run", 3, 8, 3, 4, 2, "f9")
    jsrun = {
        "JSM_NAMESPACE_RANK": "1",
        "JSM_NAMESPACE_SIZE": "2",
        "JSM_NAMESPACE_LOCAL_RANK": "0",
        "JSM_NAMESPACE_LOCAL_SIZE": "1",
        "OMPI_COMM_WORLD_RANK": "1",  # its MPI says so as well
        "OMPI_COMM_WORLD_SIZE": "2",
        "LSB_JOBID": "5",
        "PMIX_NAMESPACE": "ns",
    }
    assert copy_of(jsrun) == Copy("jsrun", 1, 2, 0, 1, 2, "5 ns")


def test_a_copy_alone_is_an_ordinary_run() -> None:
    assert copy_of({**MPIRUN, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}) is None
    assert copy_of({}) is None


WORDS = ("run", "study.yaml")
COPY = Copy("srun", 1, 2, 0, 1, 2, "tb 24 5")


def test_copies_meet_in_whichever_directory_both_see(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("a", "b"))
    second.mkdir()
    told = FileMeeting(COPY, WORDS, [first, second])
    heard: list[Word | None] = []
    other = threading.Thread(target=lambda: heard.append(FileMeeting(COPY, WORDS, [tmp_path, second]).hear(60.0)))
    other.start()
    told.tell(Word(WORDS, "/runs/out/invitation", 2))
    other.join()
    assert heard == [Word(WORDS, "/runs/out/invitation", 2)]
    told.close(all_came=True)
    assert list(second.iterdir()) == []


def test_copies_of_another_launch_do_not_meet(tmp_path: Path) -> None:
    FileMeeting(COPY, WORDS, [tmp_path]).tell(Word(WORDS, "/x"))
    another = Copy("srun", 1, 2, 0, 1, 2, "tb 24 6")
    assert FileMeeting(another, WORDS, [tmp_path]).hear(0.1) is None


def test_whoever_comes_when_all_is_over_hears_that(tmp_path: Path) -> None:
    told = FileMeeting(COPY, WORDS, [tmp_path])
    told.close(all_came=False)
    word = FileMeeting(COPY, WORDS, [tmp_path]).hear(0.1)
    assert word is not None
    assert word.over


def test_what_others_may_have_written_invites_nobody(tmp_path: Path) -> None:
    FileMeeting(COPY, WORDS, [tmp_path]).tell(Word(WORDS, "/x"))
    (path,) = tmp_path.iterdir()
    path.chmod(0o666)
    assert FileMeeting(COPY, WORDS, [tmp_path]).hear(0.1) is None
    path.chmod(0o600)
    target = tmp_path / "target"
    path.rename(target)
    path.symlink_to(target)
    assert FileMeeting(COPY, WORDS, [tmp_path]).hear(0.1) is None
    if os.getuid() == 0:
        path.unlink()
        target.rename(path)
        os.chown(path, 12345, 12345)
        assert FileMeeting(COPY, WORDS, [tmp_path]).hear(0.1) is None


def test_what_a_killed_conductor_left_is_old_and_is_swept_away(tmp_path: Path) -> None:
    FileMeeting(COPY, WORDS, [tmp_path]).tell(Word(WORDS, "/x"))
    (path,) = tmp_path.iterdir()
    os.utime(path, (time.time() - 7200, time.time() - 7200))
    later = FileMeeting(COPY, WORDS, [tmp_path])
    assert later.hear(0.1) is None
    later.sweep()
    assert not path.exists()


def test_without_any_place_to_meet_the_first_copy_says_so(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"none of .*gone can be written"):
        FileMeeting(COPY, WORDS, [tmp_path / "gone"]).tell(Word(WORDS, "/x"))


class Launcher:
    """A launcher's table for these many processes, as mpiexec keeps it."""

    def __init__(self, size: int) -> None:
        pairs = [socket.socketpair() for _ in range(size)]
        self.ends = [ours for ours, _ in pairs]
        self.table: dict[str, str] = {}
        self.barrier = threading.Barrier(size)
        self._theirs = [theirs for _, theirs in pairs]
        for theirs in self._theirs:
            threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with end.makefile("rw", newline="\n") as file:
            for line in file:
                said = dict(word.partition("=")[::2] for word in line.split())
                file.write(self._answer(said) + "\n")
                file.flush()
        end.close()

    def _answer(self, said: dict[str, str]) -> str:
        if said["cmd"] == "put":
            assert len(said["value"]) <= 1023
            assert len(said["key"]) < 64
            self.table[said["key"]] = said["value"]
            return "cmd=put_result rc=0 msg=success"
        if said["cmd"] == "get":
            return f"cmd=get_result rc=0 msg=success value={self.table[said['key']]}"
        if said["cmd"] == "barrier_in":
            self.barrier.wait(60)
            return "cmd=barrier_out"
        return {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_my_kvsname": "cmd=my_kvsname kvsname=kvs_1_0",
            "finalize": "cmd=finalize_ack",
        }[said["cmd"]]


def hearing(launcher: Launcher) -> tuple[list[Word | None], list[threading.Thread]]:
    heard: list[Word | None] = []
    threads = [
        threading.Thread(target=lambda end=end: heard.append(PmiMeeting(end.fileno(), WORDS).hear(60.0)))
        for end in launcher.ends[1:]
    ]
    for thread in threads:
        thread.start()
    return heard, threads


def close(launcher: Launcher) -> None:
    for end in launcher.ends:
        end.close()


def test_copies_meet_by_the_launchers_table_even_with_a_long_path() -> None:
    launcher = Launcher(3)
    heard, threads = hearing(launcher)
    word = Word(("run", "a b=c.yaml"), "/deep" * 400, 1)
    first = PmiMeeting(launcher.ends[0].fileno(), WORDS)
    first.tell(word)
    for thread in threads:
        thread.join()
    first.close(all_came=True)  # says nothing any more
    assert heard == [word, word]
    close(launcher)


def test_copies_meet_also_where_many_descriptors_are_open() -> None:
    with all_numbers_taken():
        launcher = Launcher(2)
        heard, threads = hearing(launcher)
        assert launcher.ends[0].fileno() > 1023
        PmiMeeting(launcher.ends[0].fileno(), WORDS).tell(word := Word(("run", "x.yaml"), "/run", 1))
        for thread in threads:
            thread.join()
        assert heard == [word]
        close(launcher)


def test_a_conductor_that_never_began_lets_go_of_those_at_the_barrier() -> None:
    launcher = Launcher(2)
    heard, threads = hearing(launcher)
    PmiMeeting(launcher.ends[0].fileno(), WORDS).close(all_came=False)
    for thread in threads:
        thread.join()
    assert [word and word.over for word in heard] == [True]
    close(launcher)


def test_a_launcher_that_has_gone_is_no_place_to_meet() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    assert PmiMeeting(ours.fileno(), WORDS).hear(1.0) is None
    with pytest.raises(MachineError, match="launcher"):
        PmiMeeting(ours.fileno(), WORDS).tell(Word(WORDS, "/x"))
    ours.close()


COPY_OF_TWO = """
import os, time
from cantle.allocations.launched.beside import await_first, widen
from cantle.allocations.launched.copies import copy_of
copy = copy_of(os.environ)
if copy.local_rank:
    opened = os.pidfd_open
    def opens(pid):
        fd = opened(pid)
        open("found", "w").close()
        return fd
    os.pidfd_open = opens
    print(await_first())
else:
    print(sorted(widen(copy)), flush=True)
    stop = time.monotonic() + 100
    while not os.path.exists("found") and time.monotonic() < stop:
        time.sleep(0.01)
"""


def two_copies(folder: Path, second: str, first: str = "{}") -> list[str]:
    """What two copies say that a launcher has bound to one core each. The first is started like that, then the second."""
    cores = sorted(os.sched_getaffinity(0))
    (folder / "copy.py").write_text(COPY_OF_TWO)
    launcher = "export SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1\n"
    launcher += "export SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2\n"
    for rank, (how, core) in enumerate(((first, cores[0]), (second, cores[-1]))):
        words = how.format(f"taskset -c {core} {sys.executable} copy.py")
        launcher += f"SLURM_PROCID={rank} SLURM_LOCALID={rank} {words} > said{rank} &\n"
    subprocess.run(["bash", "-c", launcher + "wait\n"], cwd=folder, check=True, timeout=200)
    return [(folder / f"said{rank}").read_text().strip() for rank in (0, 1)]


def all_and_true() -> list[str]:
    cores = sorted(os.sched_getaffinity(0))
    return [str(sorted({cores[0], cores[-1]})), "True"]


@pytest.mark.real
def test_copies_that_are_bound_each_to_a_core_serve_with_all_cores_of_them(tmp_path: Path) -> None:
    assert two_copies(tmp_path, "{}") == all_and_true()


@pytest.mark.real
def test_on_a_slow_machine_copies_are_waited_for_as_long_as_their_launcher_starts_them(tmp_path: Path) -> None:
    """The launcher's child is there, and becomes what it shall be only after more than two seconds."""
    slow = "env -u SLURM_LOCALID bash -c 'sleep 2.5; SLURM_LOCALID=%d exec {}'"
    assert two_copies(tmp_path, slow % 1, slow % 0) == all_and_true()
    folder = tmp_path / "first"
    folder.mkdir()
    assert two_copies(folder, "{}", slow % 0) == all_and_true()


@pytest.mark.real
def test_copies_within_scripts_find_each_other(tmp_path: Path) -> None:
    script = "bash -c '{}; exit $?'"
    assert two_copies(tmp_path, script, script) == all_and_true()


@pytest.mark.real
def test_a_first_copy_that_has_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert two_copies(tmp_path, "{}", "true {}") == ["", "False"]
    ended = subprocess.Popen(["true"], env={"SLURM_LOCALID": "0"})
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr("cantle.allocations.launched.beside.processes.children", lambda _pid: [ended.pid])
    assert beside._copies(os.getppid()) == ({}, False), "its launcher has not yet asked how it ended"
    ended.wait()


def test_where_the_launcher_hides_its_children_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cantle.allocations.launched.beside.processes.children", lambda _pid: [])
    monkeypatch.setattr("cantle.allocations.launched.beside.time.sleep", lambda _seconds: pytest.fail("it waits"))
    cores = os.sched_getaffinity(0)
    assert beside.widen(Copy("srun", 0, 4, 0, 4, 1, "")) == cores


def test_o16_a_launch_of_a_run_that_is_itself_a_step_goes_beside_that_step_on_its_own_cores() -> None:
    hosts = tuple(Host(name, (Seat((0, 1)), Seat((2, 3)))) for name in ("n1", "n2"))
    layout = Layout(hosts, cores_each=2, bound=True)
    alone = Srun().prefix(layout, Surroundings("slurm", "24", environ=BATCH_SCRIPT), "x").words
    assert "--exact" in alone
    assert "--overlap" not in alone
    for around in (STEP, {**BATCH_SCRIPT, **MPIRUN}, {**BATCH_SCRIPT, **HYDRA}):
        words = Srun().prefix(layout, Surroundings("slurm", "24", environ=around), "x").words
        assert {"--whole", "--overlap", "--cpu-bind=mask_cpu:0x3,0xc", "--export=ALL,SLURM_CPUS_PER_TASK=2"} <= {*words}
        # A step that is given fewer than all cores gets the lowest, and Slurm refuses to bind a rank to others.
        assert not any(word == "--exact" or word.startswith("--cpus-per-task") for word in words)
    uneven = Layout((hosts[0], Host("n2", (Seat((4, 5)), Seat((6, 7))))), cores_each=2, bound=True)
    assert "--cpu-bind=none" in Srun().prefix(uneven, Surroundings("slurm", "24", environ=STEP), "x").words


def test_whatever_keeps_the_first_copy_from_telling_the_others_nobody_waits_for_them_for_ever() -> None:
    class Broken:
        places = "nowhere"

        def tell(self, word: Word) -> None:
            raise KeyError("kvsname")

    class Told:
        def __init__(self) -> None:
            self.expected = 0
            self.failures: Queue[tuple[int, str]] = Queue()

        def expect(self, n: int) -> None:
            self.expected += n

        def failed(self, n: int, why: str) -> None:
            self.failures.put((n, why))

    told: Any = Told()
    meeting: Any = Broken()
    source = LaunchedSource(Copy("mpiexec", 0, 4, 0, 1, 4, "key"), meeting, ["run"])
    source.start(Invitation("/run/letter", b"", "python3"), told)
    assert told.failures.get(timeout=200) == (
        3,
        "no other copy of this command can be told where to go: KeyError: 'kvsname'",
    )
    assert told.expected == 3
    source.close()
