"""Is what a task prints, or raises, shown to people without their terminal or browser obeying it?"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cantle

pytestmark = pytest.mark.real
WAIT_S = 120.0

ODD = "\x1b[31mred\x1b[2J\x1b]0;title\x07 \x00 \x7f \x9b31m \u202eturned\u2066 <b id=mine>bold</b>"
"""Colours, a cleared screen, a title, half a line taken back, C1 controls, writing that turns round, and a tag."""
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
STUDY = """
description: {name: odd, description: x}
study:
- name: bad
  description: d
  run: {cmd: "cat FILE >&2; exit 3"}
- {name: next, description: d, run: {cmd: "true", depends: [bad]}}
"""


def cantle_(*words: str, where: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cantle", *words],
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WAIT_S,
        check=False,
    )
    return done.stdout.decode()


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "odd.txt").write_bytes(ODD.encode() + b" \x80\xff\n" + ODD.encode() + b"\n")
    (tmp_path / "study.yaml").write_text(STUDY.replace("FILE", str(tmp_path / "odd.txt")))
    return tmp_path


def test_no_command_shows_what_a_terminal_would_obey(study: Path) -> None:
    for words in (
        ["run", "study.yaml", "-o", "out"],
        ["status", "out"],
        ["status", "out", "--failed"],
        ["explain", "out", "bad"],
        ["explain", "out", "next"],
        ["resume", "out"],
        ["wait", "out"],
    ):
        said = cantle_(*words, where=study)
        assert not OBEYED.search(said), (words, said)
        if words[0] in ("run", "status", "resume") or words[-1] == "bad":
            assert r"\x1b[31mred\x1b[2J\x1b]0;title\x07  \x7f \x9b31m \u202eturned\u2066 <b id=mine>" in said, words


def test_the_view_that_stays_up_to_date_shows_no_more_either(study: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cantle", "run", "study.yaml", "-o", "out"],
        cwd=study,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200", "LINES": "40"},
    ) as run:
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 1 << 16):
                said += piece
        except OSError:  # nobody writes there any more
            pass
        os.close(ours)
        assert run.wait(WAIT_S) == 2
    assert rb"\x1b[31mred\x1b[2J" in said
    assert b"\x1b[2J" not in said and b"\x1b]0;" not in said and b"\x07" not in said


def test_the_page_shows_it_as_text(study: Path) -> None:
    cantle_("run", "study.yaml", "-o", "out", where=study)
    cantle_("report", "out", where=study)
    page = (study / "out" / "report.html").read_text()
    assert "<b id=mine>" not in page


def test_what_a_call_that_died_had_printed_is_told_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def die(text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        os._exit(3)

    def fail(text: str) -> None:
        raise ValueError(text)

    with cantle.open(cores=1, directory=tmp_path / "run") as pilot:
        died, failed = (pilot.submit(each, ODD).exception(WAIT_S) for each in (die, fail))
        for shown in (str(died), *getattr(failed, "__notes__", ())):
            assert r"\x1b[31mred" in shown and not OBEYED.search(shown)
        assert str(failed) == ODD, "what it raised is what it raised"


def test_what_somebody_typed_is_shown_as_text(tmp_path: Path) -> None:
    said = cantle_("run", "\x1b[31mred.yaml", where=tmp_path)
    assert r"\x1b[31mred.yaml" in said and not OBEYED.search(said)
