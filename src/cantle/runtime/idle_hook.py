"""Who is told that a node is unused? A command of the user's, once for each time, and the run waits for none of them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from threading import Lock, Thread, current_thread
from time import monotonic

PATIENCE_S = 30.0
"""So long the command may take, in seconds; then it is killed, with all that it has begun."""
LAST_S = 3.0
"""So long one that still runs when the run is over may take."""


class IdleHook:
    """Runs the command by the shell, with CANTLE_NODE, CANTLE_KIND and CANTLE_WHY in its environment.

    `note` is told, from a thread, of the first that failed, and no more.
    """

    def __init__(self, command: str, note: Callable[[str], None], patience_s: float = PATIENCE_S) -> None:
        self._command = command
        self._note = note
        self._patience_s = patience_s
        self._told = False
        self._running: dict[Thread, subprocess.Popen[bytes] | None] = {}
        self._is_over = False
        self._lock = Lock()

    def tell(self, node: str, kind: str, why: str) -> None:
        """The node is unused. Returns at once."""
        env = os.environ | {"CANTLE_NODE": node, "CANTLE_KIND": kind, "CANTLE_WHY": why}
        thread = Thread(target=self._run, args=(env, node), name=f"idle {node}", daemon=True)
        with self._lock:
            self._running = {each: process for each, process in self._running.items() if each.is_alive()}
            try:
                thread.start()
            except RuntimeError as problem:  # there may be no more threads
                self._failed(node, str(problem))
                return
            self._running[thread] = None

    def close(self, last_s: float = LAST_S) -> None:
        """The run is over: what still runs may end within so many seconds, and is killed then."""
        until = monotonic() + last_s
        for thread in list(self._running):
            thread.join(max(0.0, until - monotonic()))
        with self._lock:
            self._is_over = True
            left = [process for thread, process in self._running.items() if process is not None and thread.is_alive()]
        for process in left:
            _kill(process)

    def _run(self, env: dict[str, str], node: str) -> None:
        try:
            process = self._begun(env)
        except OSError as problem:
            self._failed(node, problem.strerror or str(problem))
            return
        if process is None:
            return
        try:
            _, err = process.communicate(timeout=self._patience_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            self._failed(node, f"it took longer than {self._patience_s:g} s and was killed")
            return
        if process.returncode:
            said = err.decode(errors="replace").strip().rpartition("\n")[2]
            self._failed(node, f"exit status {process.returncode}{f', {said}' if said else ''}")

    def _begun(self, env: dict[str, str]) -> subprocess.Popen[bytes] | None:
        """The command, in a session of its own so that all of it can be killed; None once the run is over."""
        with self._lock:
            if self._is_over:
                return None
            process = self._running[current_thread()] = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            return process

    def _failed(self, node: str, why: str) -> None:
        if not self._told:
            self._told = True
            self._note(f"--on-idle failed for {node}: {why}; further failures are not told")


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
