"""What do the tests of runner, engine and allocation share? A rig on logical cores, and ways to look for processes."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cantle.allocations.local import LocalAllocation
from cantle.engines.process import ProcessEngine
from cantle.model.resources import Node
from cantle.model.study import Command
from cantle.runner.channel import DescriptorChannel
from cantle.runner.main import serve
from cantle.testing import Rig


def rig(tmp_path: Path, *nodes: Node, grace_s: float = 1.0, **options: object) -> Rig:
    """A process engine on this machine. Without nodes: one of eight logical cores."""
    given = nodes or (Node("here", 8),)
    return Rig(
        lambda inbox, directory: ProcessEngine(inbox, directory, grace_s=grace_s, **options),  # type: ignore[arg-type]
        lambda: LocalAllocation(nodes=given),
        tmp_path,
    )


@contextmanager
def runner_at_a_socket() -> Iterator[socket.socket]:
    """Our end of one socket for both ways, at the other end of which a forked runner serves. It has gone afterwards."""
    ours, theirs = socket.socketpair()
    runner = os.fork()
    if runner == 0:
        try:
            ours.close()
            serve(DescriptorChannel(theirs.fileno(), theirs.fileno()))
        finally:
            os._exit(0)
    theirs.close()
    try:
        with ours:
            ours.settimeout(60)
            yield ours
    finally:
        os.waitpid(runner, 0)


def shell(script: str, stem: str = "out/task", **more: object) -> Command:
    return Command(argv=("/bin/bash", "-c", script), output_stem=stem, **more)  # type: ignore[arg-type]


def packed(*argv: str, **more: object) -> Command:
    return Command(argv=argv, packed=True, **more)  # type: ignore[arg-type]


def output(tmp_path: Path, text: str) -> tuple[bytes, bytes]:
    """The bytes that an `output` field points to: stdout and stderr."""
    found = []
    for part in text.split("\t"):
        name, offset, length = part.rsplit(" ", 2)
        with open(tmp_path / name, "rb") as file:
            file.seek(int(offset))
            found.append(file.read(int(length)))
    return found[0], found[1]


def running_with(mark: str) -> list[int]:
    """Processes (no zombies) whose command line has this text."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(int(name))
    return found


def sleeping(mark: str) -> list[int]:
    """The processes that are this sleep, not those that shall start it, whose command lines have it as well."""
    found = []
    for pid in running_with(mark):
        try:
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                found.append(pid)
        except OSError:  # it has gone
            continue
    return found


def eventually(happened: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Whether it happens. That much time is for machines that are slow and busy: what does not happen has failed."""
    stop = time.monotonic() + timeout_s
    while not happened():
        if time.monotonic() > stop:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def a_long_sleep(seconds: int) -> str:
    """A `sleep` that no other test or process uses, to be found by its command line."""
    return f"sleep {seconds}.{os.getpid():07d}{time.monotonic_ns() % 100000}"
