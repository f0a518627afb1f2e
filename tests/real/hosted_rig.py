"""What tests of engines that live in a partition share: a study whose step drives one, and what that step has to say."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from test_going_partitions import GoingRun

_STUDY = """
description: {{name: calc, description: a step computes with {engine}}}
study:
- name: sum
  description: adds up on all nodes
  run:
    cmd: |
      exec {python} TOP/driver.py TOP
    partition: calc
cantle:
  partitions:
    calc: {{nodes: 2, engine: {engine}}}
"""
_DRIVER = """
import os, sys, time
top = sys.argv[1]
attempt = os.environ["CANTLE_ATTEMPT"]
def until(true):
    stop = time.monotonic() + 100
    while not true():
        assert time.monotonic() < stop
        time.sleep(0.05)
def say(name, what=""):
    with open(f"{top}/{name}.new", "w") as file:
        file.write(str(what))
    os.rename(f"{top}/{name}.new", f"{top}/{name}")
"""


class Calc:
    """A directory with a study of one step, `driver`, which runs in a partition with this engine on two nodes."""

    def __init__(self, top: Path, engine: str, driver: str) -> None:
        self.top = top
        self.study = _STUDY.format(engine=engine, python=sys.executable)
        (top / "driver.py").write_text(_DRIVER + driver)

    def begin(self, nodes: str = "2x2") -> GoingRun:
        """Run it on this machine, dealt out so."""
        return GoingRun(self.top, self.study, nodes)

    def write(self) -> None:
        """Put the study's file there, to be run as one likes."""
        (self.top / "study.yaml").write_text(self.study.replace("TOP", str(self.top)))


def until(true: Callable[[], object], seconds: float = 120, run: GoingRun | None = None) -> None:
    """Wait for it; of a run that does not come to it, its last records are told."""
    stop = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < stop, f"it has not happened\n{run.records()[-8:] if run else ''}"
        time.sleep(0.05)


def said(top: Path, name: str, run: GoingRun | None = None) -> str:
    """What the step has said under this name, once it has."""
    until((top / name).exists, run=run)
    return (top / name).read_text()


def processes(is_ours: Callable[[bytes, bytes], bool]) -> list[int]:
    """Those whose command line and environment are so."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line, environ = (Path(f"/proc/{name}/{what}").read_bytes() for what in ("cmdline", "environ"))
        except OSError:
            continue
        if is_ours(line, environ):
            found.append(int(name))
    return found
