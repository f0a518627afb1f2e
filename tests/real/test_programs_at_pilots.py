"""Programs at pilots: several at one that has a name, and what is left of one that was begun for a program which is killed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cantle
from cantle.report.loading import load
from cantle.runtime.pilot import private
from cantle.store.layout import Layout
from cantle.store.lock import holder

pytestmark = pytest.mark.real

PROGRAM = """
import os, sys, time
import cantle

def count(n):
    return n + 1

def gate(path):
    while not os.path.exists(path):
        time.sleep(0.02)
    return path

name, folder, where = sys.argv[1:]
with cantle.open(directory=os.path.join(folder, name), name=name, **eval(where)) as pilot:
    pilot.submit(count, bytes(2 << 20)[0])
    counted = cantle.gather(pilot.map(count, range(10)))
    large = pilot.submit(len, b"x" * (2 << 20))
    last = pilot.submit(gate, os.path.join(folder, "go"))
    while not (last.running() or last.done()):
        time.sleep(0.02)
    waits = pilot.submit(lambda path, data: len(data), last, b"y" * (3 << 20))
    assert len(waits.name) and large.result() == 2 << 20
    open(os.path.join(folder, name + ".waits"), "w").close()
    print(counted, waits.result(), pilot.tally()["count"]["all"])
"""


class Stage:
    """A folder, and the commands and programs that are run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.programs: dict[str, subprocess.Popen[str]] = {}
        (folder / "program.py").write_text(PROGRAM)

    def cantle(self, *words: str) -> str:
        command = [sys.executable, "-m", "cantle", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder, check=False)
        assert done.returncode in (0, 2), done.stderr
        return done.stdout

    def begin(self, name: str, **where: Any) -> None:
        words = [sys.executable, "program.py", name, str(self.folder), repr(where)]
        self.programs[name] = subprocess.Popen(
            words, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def waits(self, *names: str) -> None:
        self.until(lambda: all((self.folder / f"{name}.waits").exists() for name in names))

    def until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not happened():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def said(self, name: str) -> str:
        said = self.programs[name].communicate(timeout=200)[0]
        del self.programs[name]
        return said

    def privates(self) -> list[Path]:
        folder = self.state / "cantle" / "private"
        return sorted(folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Stage(tmp_path)
    yield made
    for program in made.programs.values():
        program.kill()
        program.communicate(timeout=200)


def test_each_program_at_a_named_pilot_sees_its_own_calls_and_goes_on_when_another_is_killed(stage: Stage) -> None:
    stage.cantle("up", "shared", "--nodes", "2x2", "-q")
    try:
        for name in ("one", "two"):
            stage.begin(name, pilot="shared")
        stage.waits("one", "two")
        jobs = {job["job"].split("-")[0]: job for job in json.loads(stage.cantle("jobs", "shared", "--json"))["jobs"]}
        assert {name: jobs[name]["tasks"] for name in jobs} == {"one": 14, "two": 14}
        assert "gate-1 (running)" in stage.cantle("explain", "one", "lambda-1")
        stage.programs["two"].kill()
        stage.until(lambda: holder(Layout(stage.folder / "two").lock) is None)
        (stage.folder / "go").touch()
        assert stage.said("one").split("\n")[-2] == f"{[*range(1, 11)]} {3 << 20} 11"
        stage.until(lambda: holder(Layout(stage.folder / "one").lock) is None)
    finally:
        stage.cantle("down", "shared", "--now")
    one, two = load(stage.folder / "one").state, load(stage.folder / "two").state
    assert one.succeeded and len(one.tasks) == 14
    assert [phase.name for phase in two.phases[-2:]] == ["CANCELED", "CANCELED"]
    assert [task.name for task in one.tasks] == [task.name for task in two.tasks]
    for name in ("one", "two"):
        assert not Layout(stage.folder / name).arguments.exists(), "also of the one that was killed"


def test_status_explain_plan_and_report_of_a_run_of_calls_are_as_those_of_a_study(stage: Stage) -> None:
    (stage.folder / "go").touch()
    stage.begin("one", cores=2)
    assert "[1, 2, 3" in stage.said("one")
    status = stage.cantle("status", "one")
    assert "14 done" in status
    assert "count" in status
    assert "is done, in attempt 1" in stage.cantle("explain", "one", "gate-1")
    plan = stage.cantle("plan", "--from", "one", "--nodes", "1x1,2x1")
    assert "14 tasks, planned for 2 variants" in plan
    stage.cantle("report", "one")
    page = (stage.folder / "one" / "report.html").read_text()
    assert "gate" in page and "count" in page


def test_only_its_program_can_go_on_with_calls_and_status_says_so(stage: Stage) -> None:
    stage.begin("one", cores=2)
    stage.waits("one")
    stage.programs["one"].kill()
    stage.until(lambda: holder(Layout(stage.folder / "one").lock) is None)
    status = stage.cantle("status", "one")
    assert "run that again" in status
    assert "cantle resume" not in status


def test_nothing_private_is_left_of_a_program_that_is_killed_and_its_run_stays(stage: Stage) -> None:
    stage.begin("one", cores=2)
    stage.waits("one")
    [own] = stage.privates()
    stage.programs["one"].kill()
    stage.until(lambda: not own.exists())
    assert load(stage.folder / "one").state.phases[-1].name == "CANCELED"
    assert not Layout(stage.folder / "one").arguments.exists()


def test_what_a_pilot_has_left_that_was_killed_too_goes_when_another_is_opened_later(stage: Stage) -> None:
    stage.begin("one", cores=2)
    stage.waits("one")
    [own] = stage.privates()
    there = holder(Layout(own).lock)
    assert there is not None
    os.kill(there.pid, signal.SIGKILL)
    said = stage.said("one")
    assert "PilotGoneError" in said
    assert str(own / "pilot.log") in said
    assert own.exists(), "its log may say why"
    with cantle.open(cores=1, directory=stage.folder / "two"):
        pass
    assert stage.privates() == [own], "not long enough ago"
    for path in (own, *own.rglob("*")):
        os.utime(path, (0, 0), follow_symlinks=False)
    with cantle.open(cores=1, directory=stage.folder / "three") as pilot:
        stage.until(lambda: not own.exists())
        assert pilot.submit(abs, -1).result(60) == 1
    assert stage.privates() == []
    assert (stage.folder / "one").exists()


def test_what_was_asked_of_a_provider_is_taken_back_before_what_a_dead_pilot_left_is_removed(stage: Stage) -> None:
    left = stage.state / "cantle" / "private" / "dead-1"
    (left / ".cantle" / "elastic").mkdir(parents=True)
    remove = f"import sys; print(sys.argv[1], file=open('{stage.folder}/removed', 'a'))"
    undo = {"by": "command", "remove": shlex.join([sys.executable, "-c", remove])}
    record = {"number": 0, "token": "t", "kind": "k", "count": 1, "undo": undo, "host": "h", "pid": 1}
    path = left / ".cantle" / "elastic" / "0.json"
    path.write_text(json.dumps({**record, "instances": ["cloud-7"]}))
    other = stage.state / "cantle" / "private" / "dead-2"
    (other / ".cantle" / "elastic").mkdir(parents=True)
    unknown = {"by": "nobody"}
    (other / ".cantle" / "elastic" / "0.json").write_text(
        json.dumps({**record, "undo": unknown, "instances": ["lost"]})
    )
    told: list[str] = []
    assert private.sweep(told.append) == 0, "they are dead for a moment only"
    assert "cloud-7" in (stage.folder / "removed").read_text().split(), "what costs something goes at once"
    for each in (left, other, *left.rglob("*"), *other.rglob("*")):
        os.utime(each, (0, 0))
    assert private.sweep(told.append) == 1
    assert stage.privates() == [other], "what could not be taken back stays on record"
    assert (stage.folder / "removed").read_text().split() == ["cloud-7", "t"], "by its name and by its token, and once"
    assert any("cloud-7 removed" in text for text in told)
    assert any("lost" in text for text in told)


CLOUD = """\
import sys
import cantle

kinds = {"cpu": {"cores": 1, "max": 1, "add": sys.argv[1], "remove": sys.argv[2]}}
with cantle.open(kinds=kinds) as pilot:
    pilot.submit(abs, -1).result()
"""


def test_what_a_pilot_had_asked_for_that_was_killed_is_taken_back_by_its_program(stage: Stage) -> None:
    (stage.folder / "cloud.py").write_text(CLOUD)
    (stage.folder / "add").write_text("touch added\necho cloud-1\n")
    (stage.folder / "remove").write_text('echo "$1" >> removed\n')
    words = [sys.executable, "cloud.py", f"sh {stage.folder}/add", f"sh {stage.folder}/remove"]
    stage.programs["cloud"] = subprocess.Popen(
        words, cwd=stage.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    stage.until(lambda: (stage.folder / "added").exists())
    [own] = stage.privates()
    stage.until(lambda: "cloud-1" in (own / ".cantle" / "elastic" / "0.json").read_text())
    there = holder(Layout(own).lock)
    assert there is not None
    os.kill(there.pid, signal.SIGKILL)
    said = stage.said("cloud")
    assert "PilotGoneError" in said and "cloud-1 removed, left by an earlier conductor" in said
    assert (stage.folder / "removed").read_text() == "cloud-1\n"


def test_a_pilot_with_a_name_removes_what_dead_ones_have_left(stage: Stage) -> None:
    left = stage.state / "cantle" / "private" / "dead-1"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    stage.cantle("up", "night", "--cores", "1", "-q")
    try:
        stage.until(lambda: not left.exists())
    finally:
        stage.cantle("down", "night", "--now")


def test_a_pilot_that_the_user_has_named_is_not_removed_with_its_program(stage: Stage) -> None:
    named = stage.folder / "mine"
    words = [sys.executable, "-m", "cantle", "up", str(named), "--for-one-program", "--cores", "1", "-q"]
    subprocess.run(words, check=True, timeout=200)
    with cantle.open(pilot=str(named), directory=stage.folder / "run") as pilot:
        assert pilot.submit(abs, -2).result(60) == 2
    stage.until(lambda: holder(Layout(named).lock) is None)
    assert (named / "pilot.log").exists()
