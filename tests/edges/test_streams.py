"""Do several processes on several nodes make one attempt: begun once, ended once, with nothing of it left?"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_rig import a_long_sleep, eventually, is_alive, output, packed, running_with, shell, sleeping

from cantle.allocations.groups import parse_groups
from cantle.allocations.local import LocalAllocation
from cantle.engines.gangs import Gangs
from cantle.engines.process import ProcessEngine
from cantle.engines.remains import await_runners, leftovers
from cantle.engines.rendezvous import choose_port
from cantle.model.records import Launch, NodeLost, TaskEnded, TaskStarted
from cantle.model.resources import Node, Place
from cantle.model.streams import Share, Streams
from cantle.model.study import Command
from cantle.runner import processes
from cantle.runner.messages import Ended
from cantle.runner.spool import read_spool
from cantle.testing import Rig

pytestmark = pytest.mark.real


def nodes(tmp_path: Path, text: str = "2x4", grace_s: float = 1.0) -> Rig:
    def allocation() -> LocalAllocation:
        made = LocalAllocation(groups=parse_groups(text))
        made.prepare()
        return made

    return Rig(lambda inbox, directory: ProcessEngine(inbox, directory, grace_s=grace_s), allocation, tmp_path)


def on(*numbers: int, cores: str = "0-3") -> tuple[Place, ...]:
    return tuple(Place(number, cores) for number in numbers)


def printed(tmp_path: Path, stem: str = "out/task", end: str = "out") -> dict[int, str]:
    """What each stream has printed."""
    folder = (tmp_path / stem).parent
    return {int(path.name.split(".")[-2]): path.read_text() for path in folder.glob(f"{Path(stem).name}.*.{end}")}


def losses(r: Rig) -> list[NodeLost]:
    return [event for event in r.events if isinstance(event, NodeLost)]


MEET = "touch here.{s}; until [ $(ls here.* | wc -l) = {n} ]; do sleep 0.02; done; ".format(s="$CANTLE_STREAM", n="{0}")
"""Waits until all streams have come here: only streams that run at the same time get past it."""


def test_eight_streams_on_two_nodes_run_side_by_side_where_each_has_a_core(tmp_path: Path) -> None:
    show = (
        "echo $CANTLE_STREAM $CANTLE_STREAMS $CANTLE_WIDTH $CANTLE_NODES $CANTLE_NODELIST $CANTLE_CORES $CANTLE_RUNNER"
    )
    with nodes(tmp_path) as r:
        r.launch(0, shell(MEET.format(8) + show), on=on(0, 1), streams=Streams(8))
        end = r.ended(0)
        assert (end.outcome, end.exit_code, end.detail) == ("done", 0, "")
    told = {stream: text.split() for stream, text in printed(tmp_path).items()}
    assert {stream: words[:6] for stream, words in told.items()} == {
        stream: [str(stream), "8", "2", "2", "node1,node2", str(stream % 4)] for stream in range(8)
    }
    runners = [words[6] for _, words in sorted(told.items())]
    assert len(set(runners[:4])) == len(set(runners[4:])) == 1
    assert runners[0] != runners[4], "the second half runs on the second node"


def test_streams_that_need_all_cores_of_a_node_run_there_one_after_another_in_their_order(tmp_path: Path) -> None:
    alone = 'mkdir "busy.$CANTLE_RUNNER" || exit 9; echo $CANTLE_STREAM >> order.$CANTLE_RUNNER; sleep 0.02; '
    with nodes(tmp_path) as r:
        r.launch(0, shell(alone + 'rmdir "busy.$CANTLE_RUNNER"'), on=on(0, 1), streams=Streams(8, cores_each=4))
        assert r.ended(0).outcome == "done"
    orders = sorted(path.read_text().split() for path in tmp_path.glob("order.*"))
    assert orders == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]


def test_streams_of_one_place_wait_only_for_those_whose_cores_they_take(tmp_path: Path) -> None:
    script = "touch in.$CANTLE_STREAM; [ $CANTLE_STREAM != 1 ] || until [ -e in.2 ]; do sleep 0.02; done"
    with nodes(tmp_path, "1x4") as r:
        r.launch(0, shell(script), on=on(0), streams=Streams(4, cores_each=2))
        assert r.ended(0).outcome == "done", "the third follows the first while the second goes on"


def test_an_attempt_begins_with_its_first_stream_and_its_end_sums_them_up(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, shell("until [ -e go ]; do sleep 0.02; done; echo $$"), on=on(0, 1), streams=Streams(8))
        start = r.started(0)
        (tmp_path / "go").touch()
        end = r.ended(0)
        for _ in range(3):
            r.turn(0.05)
        assert len([event for event in r.events if isinstance(event, TaskStarted)]) == 1
        assert len(r.ends(0)) == 1
    assert str(start.pid) in {text.strip() for text in printed(tmp_path).values()}
    assert end.started == 0.0
    assert end.time >= start.time


def test_a_quick_attempt_tells_its_start_with_its_end(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, shell("exit 0"), on=on(0), streams=Streams(1))
        end = r.ended(0)
    told = [event for event in r.events if isinstance(event, TaskStarted)]
    assert (end.started > 0) != bool(told)


def test_processor_time_is_summed_and_memory_is_that_of_the_fullest_node(tmp_path: Path) -> None:
    # More than this process ever had, from which the runners are forked: below that the kernel does not tell.
    mib = 200 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    work = (
        f"import os, time; s = int(os.environ['CANTLE_STREAM']); x = bytearray({mib} << 20 if s >= 2 else 1);"
        "x[::4096] = b'x' * len(x[::4096]);"
        "until = time.process_time() + 0.2\nwhile time.process_time() < until: pass"
    )
    with nodes(tmp_path) as r:
        r.launch(0, packed(sys.executable, "-c", work), on=on(0, 1), streams=Streams(4))
        end = r.ended(0)
    assert end.outcome == "done", end.detail
    assert end.cpu_s >= 0.8
    assert 2 * mib <= end.peak_mib < 2 * mib + 200, "two streams of the second node, and not those of the first"


def test_packed_output_of_all_streams_can_be_found(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, packed("/bin/bash", "-c", "echo stream $CANTLE_STREAM"), on=on(0, 1), streams=Streams(4))
        end = r.ended(0)
    assert [output(tmp_path, part)[0] for part in end.output.split("\n")] == [b"stream %d\n" % n for n in range(4)]


def test_the_script_is_one_file_that_all_streams_run(tmp_path: Path) -> None:
    command = Command(
        script="#!/bin/bash\n" + "# padding\n" * 3000 + "echo $0 $CANTLE_STREAM\n",
        script_path="step/step.sh",
        shell=("/bin/bash",),
        cwd="step",
        output_stem="step/step.sh",
    )
    with nodes(tmp_path, "4x4") as r:
        r.launch(0, command, on=on(0, 1, 2, 3), streams=Streams(16))
        assert r.ended(0).outcome == "done"
    assert printed(tmp_path, "step/step.sh") == {n: f"{tmp_path}/step/step.sh {n}\n" for n in range(16)}
    names = sorted(path.name for path in (tmp_path / "step").iterdir())
    assert [name for name in names if not name.endswith((".out", ".err"))] == ["step.sh"]


def test_a_long_script_goes_to_each_node_once() -> None:
    launch = Launch(0.0, 3, 1, on(0, 1))
    command = Command(script="long", script_path="step/step.sh", shell=("/bin/bash",))
    gangs = Gangs(lambda *_: None, lambda _: None, lambda *_: False, lambda: None, lambda: 0.0)
    starts = gangs.add(launch, command, [Node("a", 4), Node("b", 4)], Streams(4), 0.0, 0, "/run")
    assert [(node, start.command.script, start.command.argv) for node, start in starts] == [
        (0, "long", ()),
        (0, "", ("/bin/bash", "/run/step/step.sh")),
        (1, "long", ()),
        (1, "", ("/bin/bash", "/run/step/step.sh")),
    ]


def test_what_spreads_by_a_program_that_is_not_ours_is_told_when_a_node_of_it_goes() -> None:
    told: list[str] = []
    gangs = Gangs(lambda *_: None, lambda _: None, lambda *_: False, lambda: told.append("lost"), lambda: 0.0)
    two = [Node("a", 4, machine="a"), Node("b", 4, machine="b")]
    for task, streams, hangs in ((0, Streams(2), False), (1, None, True)):
        gangs.add(Launch(0.0, task, 1, on(0, 1)), Command(argv=("srun", "x"), launches=True), two, streams, 0.0, 0, "/")
        gangs.node_gone(2)
        assert not told
        gangs.node_gone(1)
        assert told == ["lost"] * hangs


def test_output_of_an_earlier_attempt_is_kept(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        for attempt in (1, 2):
            r.launch(0, shell(f"echo {attempt}"), attempt=attempt, on=on(0), streams=Streams(2))
            r.ended(0, attempt)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.out")) == [
        "task.0.out",
        "task.1.out",
        "task.attempt-2.0.out",
        "task.attempt-2.1.out",
    ]
    assert (tmp_path / "out/task.0.out").read_text() == "1\n"


def test_the_first_stream_that_fails_ends_the_others_and_is_what_is_told(tmp_path: Path) -> None:
    sleep = a_long_sleep(3101)
    script = f"{MEET.format(8)} [ $CANTLE_STREAM = 5 ] && echo the reason >&2 && exit 7; {sleep}"
    with nodes(tmp_path) as r:
        r.launch(0, shell(script), on=on(0, 1), streams=Streams(8))
        end = r.ended(0)
        assert (end.outcome, end.exit_code) == ("failed", 7)
        assert end.detail == "stream 5 of 8 on node2: exit code 7\nthe reason"
        assert not running_with(sleep)


@pytest.mark.parametrize(("together", "rank"), [(True, " RANK=2 WORLD_SIZE=4"), (False, "")])
def test_what_to_type_to_run_a_stream_again_makes_it_the_same_stream(tmp_path: Path, together: bool, rank: str) -> None:
    with nodes(tmp_path) as r:
        r.launch(
            0,
            packed("/bin/sh", "-c", "exit $(($CANTLE_STREAM == 2))"),
            on=on(0, 1),
            streams=Streams(4, together=together),
        )
        again = r.ended(0).detail.splitlines()[-1]
    words = f"env CANTLE_STREAM=2 CANTLE_STREAMS=4{rank} /bin/sh -c"
    assert again == f"run it again: {words} 'exit $(($CANTLE_STREAM == 2))'"


def test_after_a_failure_what_stands_in_line_does_not_run(tmp_path: Path) -> None:
    script = "echo $CANTLE_STREAM >> ran; [ $CANTLE_STREAM = 1 ] && exit 3; sleep 0.2"
    with nodes(tmp_path) as r:
        r.launch(0, shell(script), on=on(0), streams=Streams(8, cores_each=4))
        end = r.ended(0)
    assert (end.outcome, end.exit_code) == ("failed", 3)
    assert (tmp_path / "ran").read_text().split()[:2] == ["0", "1"]
    assert len((tmp_path / "ran").read_text().split()) < 8


def test_a_failure_with_thousands_in_line_is_told_although_the_news_fill_the_channel(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, shell("exit $(($CANTLE_STREAM == 5))"), on=on(0, 1), streams=Streams(9000))
        gangs = r.engine._desks.gangs  # type: ignore[attr-defined]
        r.wait_for(lambda: any(g.failing for g in gangs._gangs.values()) or bool(r.ends(0)), "none failed")
        r.engine.flush()
        time.sleep(0.5)  # meanwhile nobody takes what the runners have to tell
        end = r.ended(0)
    assert (end.outcome, end.exit_code) == ("failed", 1)


def test_a_stream_that_cannot_be_started_ends_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "out/task.2.out").mkdir(parents=True)
    sleep = a_long_sleep(3102)
    with nodes(tmp_path) as r:
        r.launch(0, shell(sleep), on=on(0, 1), streams=Streams(4, together=True))
        end = r.ended(0)
        assert end.outcome == "unstartable"
        assert end.detail.startswith("stream 2 of 4 on node2: opening the files for its output")
        assert not running_with(sleep)


def test_a_stop_ends_all_streams_also_those_that_stand_in_line(tmp_path: Path) -> None:
    sleep = a_long_sleep(3103)
    with nodes(tmp_path) as r:
        r.launch(0, shell(f"trap 'exit 1' TERM; {sleep} & wait"), on=on(0, 1), streams=Streams(12, cores_each=2))
        r.started(0)
        r.stop(0, why="we have seen enough")
        end = r.ended(0)
        assert (end.outcome, end.detail) == ("canceled", "we have seen enough")
        assert not running_with(sleep)
        r.launch(1, shell("exit 0"), on=on(0, 1), streams=Streams(2))
        assert r.ended(1).outcome == "done", "the nodes are free again"


def test_the_walltime_is_that_of_the_attempt_not_of_each_stream_in_line(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, shell("sleep 0.4"), on=on(0), streams=Streams(40, cores_each=4), walltime_s=1.0)
        end = r.ended(0)
        assert (end.outcome, end.detail) == ("timeout", "ran into its walltime of 1 s")
        r.launch(1, shell("sleep 300"), on=on(0, 1), streams=Streams(4), walltime_s=0.5)
        end = r.ended(1)
    assert end.outcome == "timeout"
    assert "ran into its walltime of 0.5 s" in end.detail


def test_the_streams_of_a_node_share_its_bound_of_memory(tmp_path: Path) -> None:
    hold = "import time; x = bytearray(80 << 20); x[::4096] = b'x' * len(x[::4096]); time.sleep({})"
    with nodes(tmp_path) as r:
        r.launch(
            0,
            packed(sys.executable, "-c", hold.format(300)),
            on=on(0, 1),
            streams=Streams(4),
            memory_mib=130,
        )
        end = r.ended(0)
        assert end.outcome == "memory"
        assert "of memory, asked for 130 MiB" in end.detail
        r.launch(1, packed(sys.executable, "-c", hold.format(1)), on=on(0, 1), streams=Streams(2), memory_mib=130)
        assert r.ended(1).outcome == "done", "alone on its node each of them has room"


def runners_of(mark: str) -> list[int]:
    """The runners under which this sleeps."""
    values = [processes.variables(pid, b"CANTLE_RUNNER") for pid in sleeping(mark)]
    return sorted({int(value[0]) for value in values if value is not None})


@pytest.mark.parametrize("which", [0, 1])
def test_when_a_node_goes_the_loss_is_told_once_nothing_of_the_attempt_is_left(tmp_path: Path, which: int) -> None:
    sleep = a_long_sleep(3110 + which)
    with nodes(tmp_path, grace_s=30) as r:
        r.launch(0, shell(f"trap '' TERM; {sleep} & wait; {sleep}"), on=on(0, 1), streams=Streams(8))
        r.wait_for(lambda: len(sleeping(sleep)) >= 8, "not all streams began")
        os.kill(runners_of(sleep)[which], signal.SIGKILL)
        r.wait_for(lambda: bool(losses(r)), "no loss was told")
        assert not running_with(sleep), "nobody who hears of the loss meets what is left of the attempt"
        lost = losses(r)[0].node
        r.launch(1, shell("exit 0"), on=on(1 - lost), streams=Streams(4))
        assert r.ended(1).outcome == "done", "the other node goes on"
    assert r.ends(0) == [], "the loss of the node says it all"


def test_a_task_that_spreads_itself_ends_with_any_of_its_nodes(tmp_path: Path) -> None:
    sleep = a_long_sleep(3120)
    with nodes(tmp_path, "3x4", grace_s=30) as r:
        r.launch(0, shell(f"echo $CANTLE_NODES $CANTLE_NODELIST; {sleep}"), on=on(1, 2))
        r.launch(1, shell(a_long_sleep(3121)), node=2)
        pid = r.started(0).pid
        r.started(1)
        runners = {event.task: processes.variables(event.pid, b"CANTLE_RUNNER") for event in r.events
                   if isinstance(event, TaskStarted)}  # fmt: skip
        assert runners[0] != runners[1]
        os.kill(int(runners[1][0]), signal.SIGKILL)  # type: ignore[index]
        r.wait_for(lambda: bool(losses(r)), "no loss was told")
        assert losses(r)[0].node == 2
        assert not running_with(sleep)
    assert (tmp_path / f"out/task.{pid}.out").read_text() == "2 node2,node3\n"
    assert r.ends(0) == []


def test_what_is_launched_on_a_node_whose_loss_is_held_back_is_answered_by_that_loss(tmp_path: Path) -> None:
    sleep = a_long_sleep(3122)
    with nodes(tmp_path, grace_s=30) as r:
        r.launch(0, shell(f"trap '' TERM; {sleep} & wait; {sleep}"), on=on(0, 1), streams=Streams(2))
        r.wait_for(lambda: len(runners_of(sleep)) == 2, "not all streams began")
        runner = runners_of(sleep)[1]
        os.kill(runner, signal.SIGKILL)
        gone = next(index for index, link in r.engine._links.items() if link.channel.pid == runner)  # type: ignore[attr-defined]
        assert eventually(lambda: gone not in r.engine._links or r.inbox.wait(0.01) is None)  # type: ignore[attr-defined]
        r.launch(1, shell("exit 0"), on=on(gone, cores="0"))
        r.wait_for(lambda: bool(losses(r)), "no loss was told")
    assert r.ends(1) == []


GATHER = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

def line(value):
    return f"{rank} {os.environ['LOCAL_RANK']}/{os.environ['LOCAL_WORLD_SIZE']} {os.environ['NODE_RANK']}"

if rank == 0:
    server = socket.create_server(address, backlog=size)
    peers = [server.accept()[0] for _ in range(size - 1)]
    told = sorted([line(0), *(peer.recv(100).decode() for peer in peers)], key=lambda text: int(text.split()[0]))
    for peer in peers:
        peer.sendall("; ".join(told).encode())
    print("; ".join(told))
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    peer.sendall(line(rank).encode())
    print(peer.recv(10000).decode())
"""


def test_a_communicating_program_starts_without_a_launcher(tmp_path: Path) -> None:
    program = Command(argv=(sys.executable, "-c", GATHER), output_stem="out/task")
    with nodes(tmp_path) as r:
        r.launch(0, program, on=on(0, 1), streams=Streams(5, together=True))
        r.launch(1, packed(sys.executable, "-c", GATHER), on=on(0, cores=""), streams=Streams(3, together=True))
        assert r.ended(0).outcome == "done", r.ended(0).detail
        assert r.ended(1).outcome == "done", "two of them meet at two places"
    everybody = "0 0/3 0; 1 1/3 0; 2 2/3 0; 3 0/2 1; 4 1/2 1\n"
    assert printed(tmp_path) == dict.fromkeys(range(5), everybody)


def test_streams_that_communicate_and_have_no_room_side_by_side_are_not_started(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, shell("touch ran"), on=on(0, 1), streams=Streams(9, together=True))
        end = r.ended(0)
    assert end.outcome == "unstartable"
    assert "5 on one, which needs 5 cores there (1 each), but the step asks for 4 cores" in end.detail
    assert not (tmp_path / "ran").exists()


def test_text_that_is_no_unicode_starts_no_stream(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, shell("touch ran # \udcff"), on=on(0, 1), streams=Streams(2))
        assert "Unicode" in r.ended(0).detail
    assert not (tmp_path / "ran").exists()


def test_a_port_is_below_those_of_the_system_and_nobody_listens_on_it() -> None:
    import socket

    port = choose_port((), 1, here=False)
    assert port < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert choose_port({port}, 1, here=False) != port
    with socket.create_server(("", port)):
        assert choose_port((), 1, here=True) != port
        assert choose_port((), 1, here=False) == port, "of another machine nobody can tell from here"


def test_what_a_stream_left_running_is_ended_with_the_stream(tmp_path: Path) -> None:
    sleep = a_long_sleep(3130)
    stray = f"(setsid setsid {sleep} &) ; until [ -e go ]; do sleep 0.02; done"
    with nodes(tmp_path) as r:
        r.launch(0, shell(stray), on=on(0, 1), streams=Streams(4))
        r.wait_for(lambda: len(sleeping(sleep)) >= 4, "not all strays began")
        (tmp_path / "go").touch()
        assert r.ended(0).outcome == "done"
        assert not running_with(sleep)


CONDUCTOR = """
import json, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_streams import nodes, on
from runner_rig import shell
from cantle.model.streams import Streams
r = nodes(Path.cwd())
r.launch(0, shell(sys.argv[1]), on=on(0, 1), streams=Streams(4))
print("launched", flush=True)
while True:
    if sys.argv[2] == "deaf":
        time.sleep(0.1)
        continue
    r.turn(0.1)
    if sum(map(len, r.engine._desks.gangs.kept.values())) == 3:
        r.turn(0.05)
        print("three are over", flush=True)
"""


@pytest.mark.parametrize("how", ["deaf", "attentive"])
def test_streams_that_ended_while_the_conductor_was_dying_count_once_all_of_them_have(tmp_path: Path, how: str) -> None:
    script = "echo done >> ended; [ $CANTLE_STREAM != 3 ] || { echo $$ > last; until [ -e go ]; do sleep 0.02; done; }"
    code = CONDUCTOR.format(tests=str(Path(__file__).parent))
    conductor = subprocess.Popen(
        [sys.executable, "-c", code, script, how], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
    )
    assert conductor.stdout is not None
    conductor.stdout.readline()
    if how == "attentive":
        conductor.stdout.readline()
    assert eventually(lambda: (tmp_path / "last").exists() and (tmp_path / "last").read_text().endswith("\n"))
    assert eventually(lambda: (tmp_path / "ended").read_text().count("done") == 4)
    os.kill(conductor.pid, signal.SIGSTOP)  # the last stream ends, and nobody hears of it
    (tmp_path / "go").touch()
    last = int((tmp_path / "last").read_text())
    assert eventually(lambda: not is_alive(last))
    conductor.kill()
    conductor.wait()
    conductor.stdout.close()
    await_runners(str(tmp_path / "runners"))
    (end,) = leftovers(str(tmp_path / "runners"))
    assert (end.task, end.attempt, end.outcome) == (0, 1, "done")


def test_streams_that_were_under_way_when_the_conductor_died_are_run_again(tmp_path: Path) -> None:
    sleep = a_long_sleep(3140)
    code = CONDUCTOR.format(tests=str(Path(__file__).parent))
    script = f"[ $CANTLE_STREAM = 0 ] || {sleep}"
    conductor = subprocess.Popen([sys.executable, "-c", code, script, "deaf"], cwd=tmp_path, stdout=subprocess.DEVNULL)
    assert eventually(lambda: len(sleeping(sleep)) >= 3)
    conductor.kill()
    conductor.wait()
    await_runners(str(tmp_path / "runners"))
    assert eventually(lambda: not running_with(sleep))
    assert [end.outcome for end in leftovers(str(tmp_path / "runners"))] in ([], ["lost"])


def test_closing_ends_streams_and_tells_it_once(tmp_path: Path) -> None:
    sleep = a_long_sleep(3150)
    with nodes(tmp_path) as r:
        r.launch(0, shell(sleep), on=on(0, 1), streams=Streams(8))
        r.wait_for(lambda: len(sleeping(sleep)) >= 8, "not all streams began")
        r.engine.launch(  # never settled: its launch may not be written down, so it must not begin
            Launch(0.0, 1, 1, on(0, 1)), shell("touch ran"), 0.0, 0, Streams(4)
        )
    assert [event.outcome for event in r.ends(0)] == ["interrupted"]
    assert r.ends(1) == []
    assert not running_with(sleep)
    assert not (tmp_path / "ran").exists()


def test_a_runner_is_told_once_of_each_result_to_keep_and_once_that_it_need_not(tmp_path: Path) -> None:
    told: list[TaskEnded] = []
    gangs = Gangs(lambda *_: None, told.append, lambda *_: False, lambda: None, lambda: 0.0)  # type: ignore[arg-type]
    starts = gangs.add(
        Launch(0.0, 3, 1, on(0, 1)), shell("true"), [Node("a", 4), Node("b", 4)], Streams(400), 0.0, 0, "/"
    )
    kept: list[int] = []
    over: list[int] = []
    for number, (node, start) in enumerate(starts, 1):
        gangs.ended(Ended(number, start.key, 1.0, "done"))
        but, done_with = gangs.kept_since(node)
        kept += but
        over += done_with
    assert kept == list(range(1, 400)), "the last one ends the attempt: it need not be kept"
    assert over == list(range(201, 400))
    assert gangs.kept_since(0) == ((), tuple(range(1, 201)))
    assert gangs.kept_since(0) == ((), ())
    assert [end.outcome for end in told] == ["done"]


def test_what_a_runner_kept_for_an_attempt_it_forgets_when_the_attempt_is_over(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, shell("until [ $CANTLE_STREAM = 0 -o -e go ]; do sleep 0.02; done"), on=on(0), streams=Streams(2))
        r.wait_for(lambda: r.engine._desks.gangs.kept == {0: {1: None}}, "the first stream did not end")  # type: ignore[attr-defined]
        r.turn(0.05)
        (tmp_path / "go").touch()
        assert r.ended(0).outcome == "done"
        r.turn(0.05)
    await_runners(str(tmp_path / "runners"))
    assert read_spool(str(tmp_path / "runners/0.spool")) == []


def test_more_streams_than_can_be_started_are_refused_before_anything_is_made_of_them(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        r.launch(0, shell("true"), on=on(0, 1), streams=Streams(100_000_000_000))
        end = r.ended(0)
    assert (end.outcome, end.detail) == (
        "unstartable",
        "it has 100,000,000,000 streams, and at most 1,000,000 can be started",
    )


def test_streams_for_which_the_memory_does_not_suffice_are_said_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: object) -> list[Share]:
        raise MemoryError

    monkeypatch.setattr("cantle.engines.gangs.shares", too_much)
    with nodes(tmp_path) as r:
        r.launch(0, shell("true"), on=on(0, 1), streams=Streams(8))
        end = r.ended(0)
    assert end.outcome == "unstartable"
    assert end.detail == "this machine has not the memory to hand out its 8 streams"


def test_one_attempt_after_another_leaves_no_result_unacknowledged(tmp_path: Path) -> None:
    with nodes(tmp_path) as r:
        for task in range(5):
            r.launch(task, shell("exit 0"), on=on(0, 1), streams=Streams(8))
            assert isinstance(r.ended(task), TaskEnded)
        r.turn(0.05)
        assert {number: kept for number, kept in r.engine._desks.gangs.kept.items() if kept} == {}  # type: ignore[attr-defined]
    assert json.dumps([end.outcome for end in leftovers(str(tmp_path / "runners"))]) == "[]"
