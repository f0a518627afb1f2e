"""Does a launched task become a process as promised, and does its end come back, whatever it does?"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
from runner_rig import a_long_sleep, eventually, is_alive, output, packed, rig, running_with, shell, sleeping

from cantle.allocations.local import LocalAllocation
from cantle.engines.process import ProcessEngine
from cantle.model.records import Launch, NodeLost, TaskEnded
from cantle.model.resources import Node, Place
from cantle.model.study import Command
from cantle.runner import reaping
from cantle.runner.channel import DescriptorChannel
from cantle.testing import check_engine

pytestmark = pytest.mark.real


def test_the_process_engine_keeps_the_promises_of_its_seam(tmp_path: Path) -> None:
    check_engine(lambda inbox, directory: ProcessEngine(inbox, directory, grace_s=60.0), LocalAllocation, tmp_path)


def test_a_script_is_written_into_its_workspace_and_run_there_by_its_shell(tmp_path: Path) -> None:
    command = Command(
        script="#!/bin/bash\npwd; echo $0; echo problem >&2\n",
        script_path="step/A.1/step.sh",
        shell=("/bin/bash",),
        cwd="step/A.1",
        output_stem="step/A.1/step.sh",
    )
    with rig(tmp_path) as r:
        r.launch(0, command)
        pid = r.started(0).pid
        assert r.ended(0).outcome == "done"
    workspace = tmp_path / "step/A.1"
    assert (workspace / "step.sh").stat().st_mode & 0o700 == 0o700
    out = (workspace / f"step.sh.{pid}.out").read_text().split("\n")
    assert os.path.samefile(out[0], workspace)
    assert out[1] == str(workspace / "step.sh")
    assert (workspace / f"step.sh.{pid}.err").read_text() == "problem\n"
    assert sorted(p.name for p in workspace.iterdir()) == ["step.sh", f"step.sh.{pid}.err", f"step.sh.{pid}.out"]


@pytest.mark.parametrize("ahead_s", [300.0, -300.0])
def test_what_a_runner_with_another_clock_tells_is_told_in_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    monkeypatch.setattr(DescriptorChannel, "clock_ahead_s", ahead_s)
    before = time.time()
    with rig(tmp_path) as r:
        r.launch(0, packed("/bin/true"))
        quick = r.ended(0)
        r.launch(1, packed("/bin/sh", "-c", "until [ -e go ]; do sleep 0.02; done"))
        started = r.started(1)
        (tmp_path / "go").touch()
        slow = r.ended(1)
    after = time.time()
    for told in (quick.started, quick.time, started.time, slow.time):
        assert before - 1 <= told + ahead_s <= after + 1, (
            "the runner's clock is this machine's, and was said to be ahead"
        )
    assert slow.time >= started.time and slow.started == 0.0


def test_o27_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    nasty = [
        "{print $1}",
        "${HOME}",
        "a  b",
        "'",
        '"',
        "new\nline",
        "100%",
        "%s",
        "\\n",
        "größe ✓ 漢字",
        "",
        "*",
        "$(date)",
    ]
    with rig(tmp_path) as r:
        r.launch(0, packed(sys.executable, "-c", "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))", *nasty))
        end = r.ended(0)
    assert output(tmp_path, end.output)[0].decode() == "\0".join(nasty)


def test_text_that_is_no_unicode_makes_its_own_task_unstartable_and_no_other(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, packed("/bin/echo", "bad \udcff"))
        r.launch(1, packed("/bin/echo", "good"))
        assert r.ended(0).outcome == "unstartable"
        assert "Unicode" in r.ended(0).detail
        assert r.ended(1).outcome == "done"


def test_an_environment_that_is_no_unicode_is_passed_on(tmp_path: Path) -> None:
    with rig(tmp_path, env={"PATH": os.environ["PATH"], "ODD": os.fsdecode(b"\xff\xfe")}) as r:
        r.launch(0, packed("/bin/bash", "-c", 'printf %s "$ODD"'))
        assert output(tmp_path, r.ended(0).output)[0] == b"\xff\xfe"


def test_o21_a_task_sees_the_users_environment_its_own_and_nothing_else(tmp_path: Path) -> None:
    base = {"PATH": "/usr/bin:/bin", "FOO": "1", "GONE": "x"}
    with rig(tmp_path, env=base) as r:
        r.launch(7, packed("env", "-0", env={"BAR": "2 = 2", "GONE": None}), cores="2-3")
        end = r.ended(7)
        got = dict(item.split("=", 1) for item in output(tmp_path, end.output)[0].decode().split("\0") if item)
        runner = got.pop("CANTLE_RUNNER")
        assert int(runner) != os.getpid()
        assert got == {
            "PATH": "/usr/bin:/bin",
            "FOO": "1",
            "BAR": "2 = 2",
            "CANTLE_TASK": "7",
            "CANTLE_ATTEMPT": "1",
            "CANTLE_CORES": "2-3",
            "CANTLE_RUN": str(tmp_path),
        }


def test_o21_a_task_runs_without_a_path(tmp_path: Path) -> None:
    with rig(tmp_path, env={}) as r:
        r.launch(0, packed("sh", "-c", "echo fine"))
        assert output(tmp_path, r.ended(0).output)[0] == b"fine\n"


def test_a_task_is_bound_to_the_cores_it_was_given_and_the_runner_is_not(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    node = Node("here", len(cores), core_ids=tuple(cores))
    show = (sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))")
    with rig(tmp_path, node) as r:
        for index in range(len(cores)):
            r.launch(index, packed(*show), cores=str(index))
        r.launch(99, packed(*show), cores=f"0-{len(cores) - 1}" if len(cores) > 1 else "0")
        for index, core in enumerate(cores):
            assert output(tmp_path, r.ended(index).output)[0].decode() == f"[{core}]\n"
        assert output(tmp_path, r.ended(99).output)[0].decode() == f"{cores}\n"
        # It was, for the moment in which it started this task.
        mask = f"{sum(1 << core for core in cores):x}"
        until = (
            f"for _ in {{1..500}}; do m=$(taskset -p $CANTLE_RUNNER); [ ${{m##* }} = {mask} ] && exit; sleep 0.02; done"
        )
        r.launch(100, packed("/bin/bash", "-c", f"{until}; echo $m >&2; exit 1"))
        assert r.ended(100).outcome == "done", r.ended(100).detail


def test_o19_tasks_see_their_own_gpus_only_and_of_the_inherited_ones(tmp_path: Path) -> None:
    node = Node("here", 4, gpus=2, gpu_ids=("2", "3"))
    show = (
        "/bin/bash",
        "-c",
        'echo "$CUDA_VISIBLE_DEVICES|$ROCR_VISIBLE_DEVICES|$HIP_VISIBLE_DEVICES|$ZE_AFFINITY_MASK"',
    )
    with rig(tmp_path, node, hide_gpus=True) as r:
        r.launch(0, packed(*show), gpus="0")
        r.launch(1, packed(*show), gpus="1")
        r.launch(2, packed(*show), gpus="0-1")
        r.launch(3, packed(*show))
        seen = [output(tmp_path, r.ended(task).output)[0].decode().strip() for task in range(4)]
    assert seen == ["2|2|2|2", "3|3|3|3", "2,3|2,3|2,3|2,3", "||-1|"]


def test_a_task_reads_nothing_from_the_terminal_and_holds_no_descriptor_of_ours(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        for task in range(3):
            r.launch(task, packed("/bin/sleep", "300"))
        r.launch(3, packed("/bin/bash", "-c", "ls -l /proc/$$/fd; cat; ps -o sid= -p $$; echo $$"))
        out = output(tmp_path, r.ended(3).output)[0].decode()
    numbers = {line.split()[8] for line in out.split("\n") if "->" in line}
    assert numbers <= {"0", "1", "2", "255"}, out
    assert "0 -> /dev/null" in out
    session, pid = out.split()[-2:]
    assert session == pid


@pytest.mark.parametrize("mask", ["ignored", "blocked"])
def test_signals_do_their_default_in_a_task_whatever_the_conductor_does_with_them(tmp_path: Path, mask: str) -> None:
    # as of what a shell begins in the background
    old = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    if mask == "blocked":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    try:
        with rig(tmp_path) as r:
            r.launch(0, packed("/bin/cat", "/proc/self/status"))
            text = output(tmp_path, r.ended(0).output)[0].decode()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGUSR1})
    masks = {
        line.split()[0]: int(line.split()[1], 16)
        for line in text.split("\n")
        if line[:6] in ("SigBlk", "SigIgn", "SigCgt")
    }
    of_libc = 0b11 << 31  # signals 32 and 33, which posix_spawn of glibc leaves ignored
    assert (masks["SigBlk:"], masks["SigIgn:"] & ~of_libc, masks["SigCgt:"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("script", "outcome", "phrase"),
    [
        ("exit 3", "failed", "exit code 3"),
        ("kill -SEGV $$", "failed", "killed by SIGSEGV"),
        ("bash -c 'kill -SEGV $$'; exit $?", "failed", "exit code 139 (128 + SIGSEGV)"),
        ("no-such-command-at-all", "failed", "exit code 127 (command not found)"),
        ("/etc/passwd", "failed", "exit code 126 (found, but not executable)"),
        ("exit 255", "failed", "exit code 255"),
    ],
)
def test_a_failure_is_told_in_words(tmp_path: Path, script: str, outcome: str, phrase: str) -> None:
    with rig(tmp_path) as r:
        r.launch(0, shell(f"ulimit -c 0; {script}"))
        end = r.ended(0)
    assert end.outcome == outcome
    assert end.detail.split("\n")[0] == phrase


def test_the_last_lines_of_stderr_come_with_a_failure_and_never_more_than_a_few(tmp_path: Path) -> None:
    many = "for i in $(seq 100000); do echo line $i; done >&2; exit 1"
    endless = "head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1"
    with rig(tmp_path) as r:
        r.launch(0, shell(many, "a"))
        r.launch(1, packed("/bin/bash", "-c", many))
        r.launch(2, shell(endless, "b"))
        r.launch(3, packed("/bin/bash", "-c", endless))
        details = [r.ended(task).detail for task in range(4)]
    ten = "\n".join(f"line {n}" for n in range(99991, 100001))
    assert details[0] == f"exit code 1\n{ten}"
    told, _, by_hand = details[1].partition("\nrun it again: ")
    assert told == details[0] and by_hand.startswith("/bin/bash -c 'for i in")
    assert details[2] == details[3].partition("\nrun it again: ")[0]
    assert 1000 < len(details[2]) < 2200


@pytest.mark.parametrize(
    ("command", "phrases"),
    [
        (
            Command(script="true", script_path="a.sh", shell=("/bin/zsh-of-nowhere",)),
            ["/bin/zsh-of-nowhere", "no such file"],
        ),
        (Command(argv=("no-such-program-in-path",), packed=True), ["no-such-program-in-path", "PATH"]),
        (Command(argv=("/etc/passwd",), packed=True), ["/etc/passwd", "not executable"]),
        (Command(argv=("/bin/echo", "x" * 200_000), packed=True), ["/bin/echo", "longer than the system allows"]),
        (Command(argv=("/bin/echo", "nul\0byte"), packed=True), ["null"]),
        (Command(argv=("/bin/true",), cwd="a.file/below"), ["working directory", "no directory"]),
        (Command(argv=("/bin/true",), output_stem="a.file/below/x"), ["output", "no directory"]),
        (Command(), ["nothing to run"]),
    ],
)
def test_what_cannot_be_started_says_what_and_why(tmp_path: Path, command: Command, phrases: list[str]) -> None:
    (tmp_path / "a.file").write_text("")
    with rig(tmp_path) as r:
        r.launch(0, command)
        r.launch(1, packed("/bin/true"))
        end = r.ended(0)
        assert r.ended(1).outcome == "done"
    assert end.outcome == "unstartable"
    for phrase in phrases:
        assert phrase in end.detail


def test_o26_a_task_that_kills_itself_is_told_without_anybody_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says so at once. The looks by the clock, which would find it as well, do not come in this test."""
    monkeypatch.setattr(reaping, "_SWEEP_S", 10_000.0)
    with rig(tmp_path) as r:
        r.launch(0, packed(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"))
        end = r.ended(0)
    assert (end.outcome, end.signal) == ("failed", 9)
    assert "SIGKILL" in end.detail


def test_time_and_memory_of_an_attempt_are_recorded_its_children_included(tmp_path: Path) -> None:
    # More than this process ever had, from which the runner is forked: below that the kernel does not tell.
    mib = 200 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    burn = f"import time\nx = bytearray({mib} * 2**20)\nwhile time.process_time() < 0.3: pass"
    with rig(tmp_path) as r:
        r.launch(0, packed("/bin/bash", "-c", f"{sys.executable} -c '{burn}'; true"))
        end = r.ended(0)
    assert 0.25 < end.cpu_s < 5
    assert mib < end.peak_mib < mib + 50


@pytest.mark.parametrize("ends", ["by itself, when it hears TERM", "by KILL, when it does not"])
def test_walltime_ends_a_task_with_term_and_then_kill(tmp_path: Path, ends: str) -> None:
    hears = ends.startswith("by itself")
    script = f"trap '{'echo bye > bye; exit 0' if hears else ''}' TERM; touch ready; while :; do sleep 0.05; done"
    with rig(tmp_path, grace_s=300.0 if hears else 0.5) as r:
        for task, walltime_s in enumerate(
            (0.3, 1.0, 3.0, 10.0, 30.0)
        ):  # long enough for a slow machine to set the trap
            r.launch(task, shell(script), walltime_s=walltime_s)
            end = r.ended(task)
            assert end.outcome == "timeout"
            assert f"walltime of {walltime_s:g} s" in end.detail
            if (tmp_path / "ready").exists():
                break
        assert end.signal == (0 if hears else 9)
        assert (tmp_path / "bye").exists() == hears


def test_o39_memory_of_a_grandchild_counts_and_neighbours_live(tmp_path: Path) -> None:
    hungry = shell(f"{sys.executable} -c 'x = bytearray(400 * 2**20); import time; time.sleep(300)'; true", "hungry")
    with rig(tmp_path, grace_s=300) as r:
        r.launch(1, shell("until [ -e go ]; do sleep 0.02; done", "neighbour"))
        r.launch(0, hungry, memory_mib=100)
        end = r.ended(0)
        assert end.outcome == "memory"
        assert "MiB of memory, asked for 100 MiB" in end.detail
        assert end.peak_mib > 100
        (tmp_path / "go").touch()
        assert r.ended(1).outcome == "done"


TRAP = "trap 'echo bye > bye; exit' TERM; (setsid {0} &) ; {0} & wait"


def test_o37_cancel_gives_a_grace_and_leaves_nothing_behind(tmp_path: Path) -> None:
    mark = a_long_sleep(300)
    with rig(tmp_path, grace_s=1.0) as r:
        r.launch(0, shell(TRAP.format(mark)))
        r.started(0)
        assert eventually(lambda: len(sleeping(mark)) >= 2)
        r.stop(0)
        end = r.ended(0)
        assert end.outcome == "canceled"
        assert not running_with(mark)
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_o37_even_what_ignores_term_cleared_its_environment_and_forked_twice_is_ended(tmp_path: Path) -> None:
    mark = a_long_sleep(300)
    script = f"(setsid env -i bash -c \"trap '' TERM; {mark}; {mark}\" &); trap '' TERM; while :; do sleep 0.1; done"
    with rig(tmp_path, grace_s=0.3) as r:
        r.launch(0, shell(script))
        r.started(0)
        assert eventually(lambda: sleeping(mark))
        r.stop(0)
        assert r.ended(0).outcome == "canceled"
        assert eventually(lambda: not running_with(mark))


def test_what_a_task_leaves_behind_ends_with_it_and_others_go_on(tmp_path: Path) -> None:
    left, kept = a_long_sleep(301), a_long_sleep(302)
    with rig(tmp_path) as r:
        until = "until [ -e {0} ]; do sleep 0.02; done"
        r.launch(1, shell(f"(setsid {kept} &); {until.format('go')}", "kept"))
        r.launch(0, shell(f"(setsid {left} &); {left} & {until.format('left-them')}; exit 0", "left"))
        r.wait_for(lambda: len(sleeping(left)) == 2 and len(sleeping(kept)) == 1, "not all began")
        (tmp_path / "left-them").touch()
        assert r.ended(0).outcome == "done"
        assert not running_with(left)
        assert sleeping(kept)
        (tmp_path / "go").touch()
        assert r.ended(1).outcome == "done"
        assert not running_with(kept)


def test_stopped_processes_hear_term_too(tmp_path: Path) -> None:
    with rig(tmp_path, grace_s=60) as r:
        r.launch(0, shell("kill -STOP $$"))
        pid = r.started(0).pid
        assert eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        r.stop(0)
        assert r.ended(0).signal == signal.SIGTERM


def test_o25_a_task_that_kills_its_runner_loses_its_node_and_nothing_stays(tmp_path: Path) -> None:
    mark = a_long_sleep(303)
    two = (Node("one", 2), Node("two", 2))
    with rig(tmp_path, *two) as r:
        r.launch(0, shell(f"(setsid {mark} &); {mark}", "victim"))
        r.launch(1, shell("until [ -e go ]; do sleep 0.02; done", "safe"), node=1)
        r.started(0)
        assert eventually(lambda: len(sleeping(mark)) >= 2)
        r.launch(2, shell(f"{mark} & kill -9 $CANTLE_RUNNER; wait", "killer"))
        r.wait_for(lambda: any(isinstance(e, NodeLost) for e in r.events), "the node was not lost")
        lost = [e for e in r.events if isinstance(e, NodeLost)]
        assert [e.node for e in lost] == [0]
        assert "one" in lost[0].reason
        assert not running_with(mark)
        (tmp_path / "go").touch()
        assert r.ended(1).outcome == "done"
        r.launch(3, shell("true"))
        assert r.ended(3).outcome == "unstartable"
    assert not any(isinstance(e, TaskEnded) and e.task in (0, 2) for e in r.events)


def test_o28_a_talkative_task_costs_no_memory_and_does_not_hold_up_small_ones(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(900, shell("head -c 300M /dev/zero", "big1"), cores="6")
        r.launch(901, packed("/bin/bash", "-c", "head -c 300M /dev/zero"), cores="7")
        runner = r.allocation._open[0].pid  # type: ignore[attr-defined]
        before = _rss_mib(runner) + _rss_mib(os.getpid())
        for task in range(200):
            r.launch(task, packed("/bin/true"), cores=str(task % 6))
            if task % 4 == 3:
                r.ended(task)
        for task in range(200):
            assert r.ended(task).outcome == "done"
        big = r.ended(901)
        assert r.ended(900).outcome == big.outcome == "done"
        assert _rss_mib(runner) + _rss_mib(os.getpid()) - before < 30
    assert big.output.split("\t")[0].endswith(" 0 314572800")
    (one,) = tmp_path.glob("big1.*.out")
    assert one.stat().st_size == 314572800


def test_o29_five_thousand_small_tasks_share_few_files_and_each_finds_its_bytes(tmp_path: Path) -> None:
    count = 5000
    with rig(tmp_path) as r:
        free, ends = list(range(8)), {}
        where: dict[int, int] = {}
        task = 0
        while len(ends) < count:
            while free and task < count:
                core = free.pop()
                where[task] = core
                r.launch(
                    task,
                    packed("/bin/bash", "-c", f"echo out {task}; echo err {task} >&2")
                    if task % 50 == 0
                    else packed("/bin/echo", str(task)),
                    cores=str(core),
                )
                task += 1
            for event in r.turn():
                if isinstance(event, TaskEnded):
                    ends[event.task] = event
                    free.append(where[event.task])
    assert sum(1 for p in tmp_path.rglob("*") if p.is_file()) < 50
    contents = {p.name: p.read_bytes() for p in (tmp_path / "runners").iterdir()}
    for number, end in ends.items():
        out, err = (
            contents[name.split("/")[-1]][int(at) : int(at) + int(length)]
            for name, at, length in (part.rsplit(" ", 2) for part in end.output.split("\t"))
        )
        wanted = (b"out %d\n", b"err %d\n") if number % 50 == 0 else (b"%d\n", b"")
        assert out == (wanted[0] % number)
        assert err == (wanted[1] % number if wanted[1] else b"")


def test_a_background_process_that_still_writes_spoils_no_later_task(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        noise = (
            "(setsid bash -c 'while :; do echo noise; touch begun; done' &); until [ -e begun ]; do sleep 0.02; done"
        )
        r.launch(0, packed("/bin/bash", "-c", noise))
        r.ended(0)
        for task in range(1, 20):
            r.launch(task, packed("/bin/echo", str(task)))
            assert output(tmp_path, r.ended(task).output)[0] == f"{task}\n".encode()


def test_thousands_of_tasks_leave_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        runner = r.allocation._open[0].pid  # type: ignore[attr-defined]

        def batch(first: int, number: int) -> None:
            for task in range(first, first + number):
                command = (
                    packed("/bin/true") if task % 2 else Command(argv=("/bin/true",), output_stem=f"own/{task % 7}")
                )
                r.launch(task, command, cores=str(task % 8))
                if task % 8 == 7:
                    r.ended(task)
            for task in range(first, first + number):
                assert r.ended(task).outcome == "done"
            r.events.clear()

        batch(0, 200)
        before = _descriptors(runner), len(os.listdir("/proc/self/fd"))
        batch(200, 1600)
        r.turn(0.05)
        assert (_descriptors(runner), len(os.listdir("/proc/self/fd"))) == before
        assert Path(f"/proc/{runner}/task/{runner}/children").read_text() == ""


def test_a_huge_batch_deadlocks_nobody(tmp_path: Path) -> None:
    big = "# " + "x" * 100_000 + "\necho done\n"
    with rig(tmp_path, grace_s=0.2) as r:
        for task in range(60):
            command = Command(script=big, script_path=f"s/{task}.sh", shell=("/bin/bash",), packed=True)
            r.engine.launch(Launch(0.0, task, 1, (Place(0, str(task % 8)),)), command)
        r.engine.flush()
        for task in range(60):
            assert r.ended(task).outcome == "done"


def test_hundreds_at_once_are_ended_and_told_all_the_same(tmp_path: Path) -> None:
    mark = a_long_sleep(311)
    with rig(tmp_path, Node("wide", 400), grace_s=2.0) as r:
        for task in range(300):
            r.launch(task, packed("/bin/sh", "-c", f"{mark}; true"), cores=str(task))
        r.launch(300, packed("/bin/sh", "-c", f"({mark} &); echo mine"), cores="300")
        end = r.ended(300)
        assert output(tmp_path, end.output)[0] == b"mine\n"
        for task in range(300):
            r.stop(task)
        assert {r.ended(task).outcome for task in range(300)} == {"canceled"}
        assert not running_with(mark)


def test_closing_ends_what_runs_and_tells_it(tmp_path: Path) -> None:
    mark = a_long_sleep(304)
    with rig(tmp_path, grace_s=0.5) as r:
        r.launch(0, shell(f"{mark} & {mark}"))
        pid = r.started(0).pid
    assert [e.outcome for e in r.ends(0)] == ["interrupted"]
    assert not is_alive(pid)
    assert not running_with(mark)


def _descriptors(runner: int) -> list[str]:
    """What the runner has open, besides the packed files, which are as many as attempts at once."""
    links = [os.readlink(f"/proc/{runner}/fd/{fd}") for fd in os.listdir(f"/proc/{runner}/fd")]
    return sorted(link for link in links if not link.endswith((".out", ".err")))


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_what_was_never_settled_never_begins(tmp_path: Path) -> None:
    """The launch may not be in the journal: a process that began would run a second time in the resumed run."""
    r = rig(tmp_path)
    for task in range(20):
        command = Command(argv=("/bin/sh", "-c", f"echo {task} >> ran"), packed=True)
        r.engine.launch(Launch(0.0, task, 1, (Place(0, str(task)),)), command)
    r.close()
    assert not (tmp_path / "ran").exists()


def test_a_walltime_of_months_breaks_nothing(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, packed("/bin/true"), walltime_s=999 * 3600.0)
        assert r.ended(0).outcome == "done"
        r.turn(0.3)
        r.launch(1, packed("/bin/true"))
        assert r.ended(1).outcome == "done"
