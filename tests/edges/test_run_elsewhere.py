"""`cantle run -r HOST`, through a stand-in for ssh: what is copied, and what passes between here and there."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hosts_rig import SSH, Rig, until

from cantle.cli.elsewhere import arguments

STUDY = """\
description: {name: s, description: d}
env:
  dependencies:
    paths:
      - {name: DATA, path: data}
study:
  - name: a
    description: d
    run: {cmd: "cat $(DATA)/in.txt $(SPECROOT)/beside.txt; echo ran on $CANTLE_CORES"}
"""


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    (tmp_path / "rig").mkdir()
    rig = Rig(tmp_path / "rig")
    rig.program("ssh", SSH)
    monkeypatch.setenv("RIG", str(rig.folder))
    monkeypatch.setenv("PATH", f"{rig.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent.parent / "src"))
    work = tmp_path / "work"
    (work / "studies").mkdir(parents=True)
    (work / "data").mkdir()
    (work / "data" / "in.txt").write_text("from data\n")
    (work / "studies" / "beside.txt").write_text("from beside\n")
    (work / "studies" / "s.yaml").write_text(STUDY)
    monkeypatch.chdir(work)
    return rig


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cantle", "run", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def test_a_whole_run_is_done_on_another_host_with_its_files_and_its_exit_status(rig):
    done = run("studies/s.yaml", "-r", "far", "-j", "1", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "1 task done" in done.stdout
    folder = Path(done.stderr.rpartition(" lies on far in ")[2].strip())
    assert folder.parent == rig.folder / "home" / "cantle"
    output = next((folder / "out" / "a").glob("*.out")).read_text()
    assert output == "from data\nfrom beside\nran on 0\n"
    assert not Path("out").exists()


def test_an_absolute_path_leads_to_the_copy(rig, tmp_path):
    done = run(str(tmp_path / "work" / "studies" / "s.yaml"), "-q", "--remote=far", "-o", "out")
    assert done.returncode == 0, done.stderr
    copies = list((rig.folder / "home" / "cantle").glob("s_*/out/s.yaml"))
    assert len(copies) == 1


def test_what_fails_there_fails_here(rig):
    Path("studies/s.yaml").write_text(STUDY.replace("cat ", "cat nothing; exit 3; "))
    done = run("studies/s.yaml", "-r", "far")
    assert done.returncode == 2
    assert "1 failed" in done.stdout


def test_how_to_go_on_is_told_as_it_is_typed_here(rig):
    Path("studies/s.yaml").write_text(STUDY.replace("cat ", "[ -e $(SPECROOT)/../mended ] || exit 3; cat "))
    done = run("studies/s.yaml", "-r", "far", "-o", "an out")
    assert done.returncode == 2, done.stderr
    assert "cantle resume" not in done.stdout
    line = done.stdout.rpartition("Go on where it ended: ")[2].splitlines()[0]
    words = shlex.split(line)
    assert words[:3] == ["ssh", "-t", "far"]
    folder = Path(done.stderr.rpartition(" lies on far in ")[2].strip())
    (folder / "mended").touch()
    again = subprocess.run([*words[:2], "--", *words[2:]], capture_output=True, text=True, timeout=200, check=False)
    assert again.returncode == 0, again.stderr
    assert "1 task done" in again.stdout


def test_a_host_that_cannot_be_reached_is_told_before_anything_is_done(rig):
    done = run("studies/s.yaml", "-r", "denied")
    assert done.returncode == 1
    assert "denied: me@denied: Permission denied (publickey,password)." in done.stderr
    assert "needs no password" in done.stderr


def test_a_set_up_that_fails_there_is_told(rig):
    Path("studies/hosts.yml").write_text("hosts: {far: {setup: [true, 'false # or not']}}")
    done = run("studies/s.yaml", "-r", "far")
    assert done.returncode == 96
    assert "cantle: far: the set-up command `false # or not` failed with status 1" in done.stderr


def test_an_interpreter_that_is_not_there_is_told_there(rig):
    Path("studies/hosts.yml").write_text("hosts: {far: {python: /nowhere/python}}")
    done = run("studies/s.yaml", "-r", "far")
    assert "cantle: far: there is no /nowhere/python there; say in hosts.yml" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_elsewhere_is_stopped_with_the_one_here(rig, number):
    Path("studies/s.yaml").write_text(STUDY.replace("cat ", f"touch {rig.folder}/begun; sleep 600; cat "))
    process = subprocess.Popen(
        [sys.executable, "-m", "cantle", "run", "studies/s.yaml", "-r", "far", "-o", "out"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(lambda: rig.exists("begun"))
    process.send_signal(number)
    folder = next((rig.folder / "home" / "cantle").glob("s_*"))
    process.communicate(timeout=200)
    assert process.returncode == (3 if number != signal.SIGKILL else -9)
    until(lambda: "StopAsked" in "".join(path.read_text() for path in folder.glob("out/**/journal*")))
    until(lambda: not subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, check=False).stdout)


@pytest.mark.parametrize(
    ("words", "there"),
    [
        ("run s.yaml -r far -j 4 mate:2", "run s.yaml -j 4 mate:2"),
        ("run s.yaml -r 3 --remote far --hosts h.yml", "run s.yaml -r 3"),
        ("run s.yaml -r3 --remote=far --hosts=h.yml -q", "run s.yaml -r3 -q"),
        ("run s.yaml -r10.0.0.7 --rlimit 2", "run s.yaml --rlimit 2"),
        ("run /etc/hosts --slices=/etc/hosts -o /etc", "run ../hosts --slices=../hosts -o /etc"),
    ],
)
def test_the_words_over_there_are_those_here_but_for_the_way(words, there):
    assert " ".join(arguments(words.split(), Path("/etc/ssh"))) == there


def test_one_host_without_a_number_is_what_r_takes(rig):
    done = run("studies/s.yaml", "-r", "far:4")
    assert done.returncode == 1
    assert "-r far:4: name one host, without a number of cores" in done.stderr
