"""Who waits for a descriptor does so whatever its number is, also where thousands of files are open."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from time import monotonic

import pytest
from descriptors_rig import all_numbers_taken

from cantle.allocations.awaiting import can_be_read
from cantle.allocations.forge import Forge
from cantle.allocations.launched import beside
from cantle.runner import processes


def test_what_can_be_read_or_has_ended_is_seen_and_what_cannot_is_waited_for() -> None:
    with all_numbers_taken():
        read, write = os.pipe()
        assert min(read, write) > 1023
        begun = monotonic()
        assert not can_be_read(read, 0.0) and not can_be_read(read, -1.0)
        assert not can_be_read(read, 0.05) and monotonic() - begun >= 0.05
        threading.Timer(0.05, os.close, (write,)).start()
        assert can_be_read(read, None)
        os.close(read)


def test_a_forge_tells_of_its_runners() -> None:
    processes.become_subreaper()
    with all_numbers_taken():
        forge = Forge()
        channel = forge.runner()
        assert channel.fileno() > 1023
        assert channel.pid > 0
        channel.close()
        forge.close()


def test_a_copy_waits_for_the_one_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    with all_numbers_taken():
        first = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        assert first.stdin is not None
        monkeypatch.setattr(beside, "_copies", lambda _launcher: ({0: first.pid}, False))
        ends = threading.Timer(0.2, first.stdin.close)
        ends.start()
        assert beside.await_first()
        assert first.wait(10) is not None
