"""What happens to tasks, results and files when a conductor goes away, gently or not?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runner_rig import a_long_sleep, eventually, is_alive, rig, running_with, shell, sleeping

from cantle.engines.remains import await_runners, clear_leftovers, leftovers
from cantle.errors import LockedError
from cantle.model.records import TaskEnded

pytestmark = pytest.mark.real

CONDUCTOR = """
import json, os, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from runner_rig import rig, shell
scripts = json.loads(sys.argv[1])
r = rig(Path.cwd(), grace_s=float(sys.argv[2]))
for task, script in enumerate(scripts):
    r.launch(task, shell(script, f"out/{{task}}"))
for task in range(len(scripts)):
    r.started(task)
runner = r.allocation._open[0].pid
print(json.dumps([runner]), flush=True)
deaf = len(sys.argv) > 3
while True:
    time.sleep(0.1) if deaf else r.turn(0.1)
"""


class Conductor:
    """A process of its own that conducts these scripts until it is killed."""

    def __init__(self, directory: Path, *scripts: str, grace_s: float = 1.0, deaf: bool = False) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        code = CONDUCTOR.format(tests=str(Path(__file__).parent))
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(scripts), str(grace_s), *(["deaf"] if deaf else [])],
            cwd=directory,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        (self.runner,) = json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def wait(self) -> None:
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def conductors() -> Iterator[list[Conductor]]:
    made: list[Conductor] = []
    yield made
    for conductor in made:
        if conductor.process.poll() is None:
            conductor.kill()


TRAP = "trap 'echo bye > bye; exit' TERM; (setsid {0} &) ; {0} & wait"


def test_o37_after_sigkill_of_the_conductor_tasks_get_a_grace_and_nothing_stays(
    tmp_path: Path, conductors: list[Conductor]
) -> None:
    mark = a_long_sleep(305)
    conductor = Conductor(tmp_path / "run", TRAP.format(mark), f"trap '' TERM; while :; do {mark}; done", grace_s=2.0)
    conductors.append(conductor)
    assert eventually(lambda: len(sleeping(mark)) >= 3)
    conductor.kill()
    assert eventually(lambda: not running_with(mark) and not is_alive(conductor.runner))
    assert (tmp_path / "run/bye").read_text() == "bye\n"


def test_o38_ending_one_run_leaves_the_other_alone(tmp_path: Path, conductors: list[Conductor]) -> None:
    first_mark, second_mark = a_long_sleep(306), a_long_sleep(307)
    first = Conductor(tmp_path / "first", f"(setsid {first_mark} &); {first_mark} & wait")
    second = Conductor(tmp_path / "second", f"(setsid {second_mark} &); {second_mark} & wait")
    conductors += [first, second]
    assert eventually(lambda: len(sleeping(first_mark)) == len(sleeping(second_mark)) == 2)
    first.kill()
    assert eventually(lambda: not running_with(first_mark))
    time.sleep(0.3)
    assert len(sleeping(second_mark)) == 2
    assert is_alive(second.runner)
    second.kill()
    assert eventually(lambda: not running_with(second_mark) and not is_alive(second.runner))


def test_results_that_nobody_wrote_down_wait_in_the_spool_and_the_lock_tells_when(
    tmp_path: Path, conductors: list[Conductor]
) -> None:
    ends, stays = "echo $$ > pid; until [ -e go ]; do sleep 0.02; done; exit 5", "trap '' TERM; touch deaf; {}"
    loop = "while :; do sleep 0.1; done"
    conductor = Conductor(tmp_path, ends, stays.format(loop), deaf=True)
    conductors.append(conductor)
    assert eventually(lambda: (tmp_path / "deaf").exists() and (tmp_path / "pid").exists())
    assert eventually(lambda: (tmp_path / "pid").read_text().endswith("\n"))
    (tmp_path / "go").touch()
    assert eventually(lambda: not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()), "it was waited for"
    home = str(tmp_path / "runners")
    with pytest.raises(LockedError, match="still holds"):
        await_runners(home, 0.1)
    began = time.monotonic()
    conductor.kill()
    await_runners(home, 60.0)
    assert time.monotonic() - began >= 1.0, "the other one had its grace"
    assert eventually(lambda: not is_alive(conductor.runner))
    own, lost = leftovers(home)
    assert (own.task, own.attempt, own.outcome, own.exit_code) == (0, 1, "failed", 5)
    assert (lost.task, lost.outcome) == (1, "lost")
    assert "conductor went away" in lost.detail
    clear_leftovers(home)
    assert leftovers(home) == []


def test_a_torn_line_of_a_spool_costs_only_itself(tmp_path: Path) -> None:
    from cantle.runner.messages import Ended
    from cantle.runner.spool import write_spool

    path = tmp_path / "0.spool"
    write_spool(str(path), [Ended(1, (4, 1), 1.5, "done"), Ended(2, (5, 2), 1.25, "failed", 3, detail="größe\n")])
    with open(path, "ab") as file:
        file.write(b'["Ended",3,[6,')
    found = leftovers(str(tmp_path))
    assert found == [TaskEnded(1.25, 5, 2, "failed", 3, detail="größe\n"), TaskEnded(1.5, 4, 1, "done")]


def test_what_was_written_down_is_not_spooled(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, shell("true"))
        r.ended(0)
        r.turn(0)
    assert leftovers(str(tmp_path / "runners")) == []


def test_a_runner_that_is_asked_to_end_ends_its_tasks_and_says_so(tmp_path: Path) -> None:
    from cantle.model.records import NodeLost

    mark = a_long_sleep(308)
    with rig(tmp_path) as r:
        r.launch(0, shell(f"{mark} & wait"))
        r.started(0)
        os.kill(r.allocation._open[0].pid, signal.SIGTERM)  # type: ignore[attr-defined]
        r.wait_for(lambda: any(isinstance(e, NodeLost) for e in r.events), "no NodeLost")
        (lost,) = [e for e in r.events if isinstance(e, NodeLost)]
        assert "SIGTERM" in lost.reason
        assert not running_with(mark)


def test_ctrl_c_reaches_the_conductor_only(tmp_path: Path) -> None:
    with rig(tmp_path) as r:
        r.launch(0, shell("until [ -e go ]; do sleep 0.02; done"))
        r.started(0)
        os.kill(r.allocation._open[0].pid, signal.SIGINT)  # type: ignore[attr-defined]
        (tmp_path / "go").touch()
        assert r.ended(0).outcome == "done"
        assert os.getsid(r.allocation._open[0].pid) != os.getsid(0)  # type: ignore[attr-defined]


def test_a_broken_runner_ends_its_tasks_and_tells_what_broke(tmp_path: Path) -> None:
    from cantle.model.records import NodeLost
    from cantle.runner.frames import frame

    mark = a_long_sleep(309)
    with rig(tmp_path) as r:
        r.launch(0, shell(f"{mark} & wait"))
        r.started(0)
        r.engine._links[0].channel.send(frame([b"\x01"]))  # type: ignore[attr-defined]
        r.wait_for(lambda: any(isinstance(e, NodeLost) for e in r.events), "no NodeLost")
        (lost,) = [e for e in r.events if isinstance(e, NodeLost)]
        assert "the runner broke" in lost.reason
        assert not running_with(mark)


def test_removing_a_node_ends_what_runs_there(tmp_path: Path) -> None:
    mark = a_long_sleep(310)
    with rig(tmp_path, grace_s=0.3) as r:
        r.launch(0, shell(f"trap '' TERM; (setsid {mark} &); while :; do sleep 0.1; done"))
        r.started(0)
        assert eventually(lambda: sleeping(mark))
        r.engine.remove_node(0)
        assert not running_with(mark)


def test_a_runner_that_cannot_begin_says_why(tmp_path: Path) -> None:
    from cantle.model.records import NodeLost

    (tmp_path / "runners/0.lock").mkdir(parents=True)
    with rig(tmp_path) as r:
        r.wait_for(lambda: any(isinstance(e, NodeLost) for e in r.events), "no NodeLost")
        (lost,) = [e for e in r.events if isinstance(e, NodeLost)]
        assert "could not begin" in lost.reason
        assert "0.lock" in lost.reason
