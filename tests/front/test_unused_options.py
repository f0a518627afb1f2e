"""An option that has no effect beside the others is told once, on standard error, with why; the run goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rundirs import cantle

KINDS = ["--kinds", "cpu: {cores: 1, max: 1, provider: local}"]
STUDY = "description: {name: one, description: x}\nstudy:\n    - {name: a, description: x, run: {cmd: 'true'}}\n"
RECORDED = (
    '{"name": "x", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": [{"name": "a", "id": "a", "children": [], '
    '"parents": []}]}, "execution": {"makespanInSeconds": 1, "tasks": [{"id": "a", "runtimeInSeconds": 0.01}]}}}'
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(STUDY)
    (tmp_path / "recorded.json").write_text(RECORDED)
    (tmp_path / "hosts.yml").write_text("{}\n")


def told(words: list[str], capfd: pytest.CaptureFixture[str]) -> list[str]:
    assert cantle("run", *words, "-o", "out", "-y", "-q") == 0
    out, err = capfd.readouterr()
    assert out == ""
    return [line.removeprefix("cantle: without effect: ") for line in err.splitlines()]


@pytest.mark.parametrize(
    ("words", "option", "why"),
    [
        (["--on-idle", "true"], "--on-idle", "no kinds of node are declared"),
        (["--scaling", "idle=5s"], "--scaling idle=5s", "no kinds of node are declared"),
        (["--interface", "lo"], "--interface", "no other machines take part"),
        (["--silence", "5"], "--silence", "no other machines take part"),
        (["--hosts", "hosts.yml"], "--hosts", "no host is named"),
        (["--drain", "10s"], "--drain", "no node has an end that is known"),
        ([*KINDS, "--gpus", "0"], "--gpus", "this machine does not serve here"),
        ([*KINDS, "--memory", "1GB"], "--memory", "this machine does not serve here"),
        ([*KINDS, "--resource", "licence=1"], "--resource", "this machine does not serve here"),
        ([*KINDS, "--ends-in", "1h"], "--ends-in", "this machine does not serve here"),
        (["--scale", "2"], "--scale", "it is for WfFormat instances"),
        (["--spin"], "--spin", "it is for WfFormat instances"),
        (["--streams", "2"], "--streams", "no step of one.yaml says `streams: true`"),
    ],
)
def test_of_a_study_that_is_run(words: list[str], option: str, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    [line] = told(["one.yaml", *words], capfd)
    assert line.startswith(f"{option}: {why}")


@pytest.mark.parametrize(
    "words", [["--pgen", "g.py"], ["--hashws"], ["--usetmp"], ["--launcher", "openmpi"], ["--slices", "1 x 1"]]
)
def test_of_a_recorded_workflow_what_only_maestro_studies_have(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert told(["recorded.json", *words], capfd) == [
        f"{words[0]}: it is for Maestro studies, and recorded.json is a WfFormat instance"
    ]


@pytest.mark.parametrize(
    "words",
    [
        [*KINDS, "--on-idle", "true", "--scaling", "idle=5s"],
        ["--drain", "1s", "--ends-in", "1h"],
        [*KINDS, "--cores", "1", "--memory", "1GB", "--resource", "licence=1"],
        ["--gpus", "0", "--memory", "1GB", "--resource", "licence=1"],
    ],
)
def test_what_has_an_effect_is_not_told(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert told(["one.yaml", *words], capfd) == []


@pytest.mark.real
def test_of_a_pilot_it_is_told_to_whoever_begins_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def said(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "cantle", *words], capture_output=True, text=True, timeout=200, check=False
        )

    up = said("up", "night", "--cores", "1", "--on-idle", "true", "-q")
    down = said("down", "night", "--now")
    assert (up.returncode, up.stdout, down.returncode) == (0, "", 0)
    [line] = up.stderr.splitlines()
    assert line.startswith("cantle: without effect: --on-idle: no kinds of node are declared")
    program = "import cantle\nwith cantle.open(cores=1, options=['--on-idle', 'true']) as pilot:\n    pass\n"
    opened = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False)
    assert opened.returncode == 0
    assert [each.partition(": no kinds")[0] for each in opened.stderr.splitlines()] == [
        "cantle: without effect: --on-idle"
    ]


@pytest.mark.real
def test_who_goes_on_with_a_run_need_not_say_again_who_is_told_of_unused_nodes(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "cantle"]
    first = [*words, "map", "false", "--range", "1-1", "-o", "out", "-q", *KINDS, "--on-idle", "echo hello"]
    assert subprocess.run(first, capture_output=True, timeout=200, check=False).returncode == 2
    again = subprocess.run([*words, "resume", "out"], capture_output=True, text=True, timeout=200, check=False)
    assert "the machine as the run had it" in again.stderr and "--on-idle 'echo hello'" in again.stderr
