"""Who is told that a node is unused? A command of the user's, once for each time, and the run waits for none of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from threading import Thread

PATIENCE_S = 30.0
"""So long the command may take, in seconds; then it is killed."""


class IdleHook:
    """Runs the command by the shell, with CANTLE_NODE, CANTLE_KIND and CANTLE_WHY in its environment.

    `note` is told, from a thread, of the first that failed, and no more.
    """

    def __init__(self, command: str, note: Callable[[str], None], patience_s: float = PATIENCE_S) -> None:
        self._command = command
        self._note = note
        self._patience_s = patience_s
        self._told = False

    def tell(self, node: str, kind: str, why: str) -> None:
        """The node is unused. Returns at once."""
        env = os.environ | {"CANTLE_NODE": node, "CANTLE_KIND": kind, "CANTLE_WHY": why}
        Thread(target=self._run, args=(env, node), name=f"idle {node}", daemon=True).start()

    def _run(self, env: dict[str, str], node: str) -> None:
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", self._command],
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._patience_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._failed(node, f"it took longer than {self._patience_s:g} s and was killed")
        except OSError as problem:
            self._failed(node, problem.strerror or str(problem))
        else:
            if done.returncode:
                said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
                self._failed(node, f"exit status {done.returncode}{f', {said}' if said else ''}")

    def _failed(self, node: str, why: str) -> None:
        if not self._told:
            self._told = True
            self._note(f"--on-idle failed for {node}: {why}; further failures are not told")
