"""Is the process that we started still there? A number alone proves nothing: it is given out again, and a boot starts anew."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
PATIENCE_S = 180.0
"""For what only has to happen some time, also on a machine that is slow and busy: it costs nothing when it does happen."""


def wait_until(true: Callable[[], object], seconds: float = PATIENCE_S, every: float = 0.05) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def begun(pid: int) -> str:
    """When this process began, in the kernel's words; "" if it is not there or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def remember(pid: int, file: Path) -> None:
    """Write down who this is."""
    file.write_text(f"{pid} {begun(pid)} {_BOOT.read_text().strip()}\n")


def living(file: Path) -> int:
    """The number of the process that was written down there, if that very one lives; else 0."""
    try:
        pid, when, boot = file.read_text().split()
    except (OSError, ValueError):
        return 0
    return int(pid) if boot == _BOOT.read_text().strip() and begun(int(pid)) == when else 0


def daemon(argv: Sequence[str], file: Path, log: Path, env: Mapping[str, str]) -> None:
    """Start a process that outlives us, and write down who it is."""
    with open(log, "ab") as told:
        # Not waited for: it is init's child once we are gone, and until then a zombie counts as dead.
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=told, stderr=told, env=dict(env), start_new_session=True, cwd="/"
        )
    remember(child.pid, file)
    child.returncode = 0  # so that nobody is warned of a child that was left


def stop(file: Path, how: signal.Signals = signal.SIGTERM, seconds: float = 5) -> None:
    """End the process that was written down there; by SIGKILL when it takes longer than this."""
    for attempt in (how, signal.SIGKILL):
        if pid := living(file):
            try:
                os.kill(pid, attempt)
            except ProcessLookupError:
                pass
        if wait_until(lambda: not living(file), seconds):
            break
    file.unlink(missing_ok=True)
