"""Does what a call does to its standard output stay its own matter?"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest
from calls_rig import CallRig
from runner_rig import output

pytestmark = pytest.mark.real
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def say(text: str) -> None:
    print(text)
    print("and", text, file=sys.stderr)


def close_streams() -> None:
    sys.stdout.close()
    sys.stderr.close()


def close_descriptors() -> None:
    os.close(1)
    os.close(2)


def redirect_descriptors() -> None:
    into = os.pipe()[1]
    os.dup2(into, 1)
    os.dup2(into, 2)


def delete_streams() -> None:
    del sys.stdout
    del sys.stderr


@pytest.mark.parametrize("takes_away", [close_streams, close_descriptors, redirect_descriptors, delete_streams])
def test_output_that_a_call_took_away_is_there_again_for_the_next_call(
    tmp_path: Path, takes_away: Callable[[], None]
) -> None:
    with CallRig(tmp_path) as r:
        r.call(0, os.getpid)
        assert r.call(1, takes_away).outcome == "done"
        end = r.call(2, say, "something Ω")
        assert end.outcome == "done", end.detail
        assert output(tmp_path, end.output) == ("something Ω\n".encode(), "and something Ω\n".encode())
        r.call(3, os.getpid)
        assert r.value(3) == r.value(0), "it is the same worker, with all that it has imported"
