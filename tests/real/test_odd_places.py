"""Is it said what is wrong, where a study or a run lies at an odd place, and nothing left behind?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

CANTLE = [sys.executable, "-m", "cantle"]
STUDY = """\
description: {name: small, description: d}
study:
- {name: a, description: d, run: {cmd: echo hello}}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def cantle(*words: str | bytes | Path, cwd: Path | str) -> tuple[int, str]:
    done = subprocess.run([*CANTLE, *words], cwd=cwd, capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")


def test_where_the_current_directory_was_removed_it_is_said(tmp_path: Path, study: Path) -> None:
    gone = tmp_path / "gone"
    for words in (["run", str(study)], ["status", "out"], ["validate", str(study)]):
        gone.mkdir()
        asks = f'rmdir "$PWD"; exec "$@" {" ".join(words)}'
        done = subprocess.run(["sh", "-c", asks, "sh", *CANTLE], cwd=gone, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert done.stderr == "cantle: the current directory: No such file or directory\n"


def test_a_directory_whose_name_is_not_utf_8_is_refused_and_not_made(tmp_path: Path, study: Path) -> None:
    code, told = cantle("run", study, "-o", b"o\xff", cwd=tmp_path)
    assert code == 1
    assert "o\\udcff' is not UTF-8, as the name of a run's directory must be" in told
    assert sorted(os.listdir(tmp_path)) == ["study.yaml"]
    odd = os.fsencode(tmp_path) + b"/d\xff"
    os.mkdir(odd)
    code, told = cantle("run", study, cwd=os.fsdecode(odd))
    assert code == 1
    assert told.startswith("cantle: '") and "is not UTF-8" in told
    assert os.listdir(odd) == []


def test_a_study_that_lies_where_names_are_not_utf_8_is_told_of(tmp_path: Path, study: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/d\xff"
    os.mkdir(odd)
    os.rename(study, odd + b"/study.yaml")
    code, told = cantle("run", odd + b"/study.yaml", "-o", tmp_path / "out", cwd=tmp_path)
    assert code == 1
    assert "d\\udcff" in told and "is not UTF-8, as a name must be here" in told
    assert "Traceback" not in told


def test_a_study_in_a_pipe_is_told_to_be_put_into_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    code, told = cantle("run", "pipe.yaml", cwd=tmp_path)
    assert code == 1
    assert told == "cantle: pipe.yaml is no regular file, and a study is read more than once: put it into a file\n"


def test_how_to_run_a_task_of_a_map_by_hand_is_told_once_and_not_as_what_it_printed(tmp_path: Path) -> None:
    code, told = cantle("map", "echo {} >&2; exit 3", "x", "-o", "out", cwd=tmp_path)
    assert code == 2
    assert told.count("run it again: ") == 1
    assert told.count("    | x\n") == 2
    assert "| run it again" not in told
    code, told = cantle("explain", "out", "map.1", cwd=tmp_path)
    first, printed, ended, again = told.splitlines()
    assert (first, printed) == ("map.1 failed: exit code 3", "    | x")
    assert ended == "Its attempt 1 ended as failed."
    assert again.startswith("Run it again: cd ")


def test_what_would_run_is_told_and_nothing_is_made(tmp_path: Path, study: Path) -> None:
    code, told = cantle("run", study, "-n", "-o", "out", cwd=tmp_path)
    assert (code, told) == (0, "small: 1 task of 1 step; nothing was run\n")
    assert sorted(os.listdir(tmp_path)) == ["study.yaml"]
