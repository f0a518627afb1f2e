"""What does a runner take for silence? Not what it could not hear because it was not there itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

from cantle.allocations.fleet.certificates import Identity
from cantle.allocations.fleet.joining import Hello
from cantle.allocations.fleet.letter import Letter
from cantle.allocations.fleet.member import Member
from cantle.model.resources import Node

SILENCE_S = 1.0
MISSED_S = 0.9 * SILENCE_S
"""So long it does not run: longer than a conductor may be silent for it."""


def starved(hear: Callable[[Member], object]) -> str:
    """Why a runner ends that did not run for a while; "" if it goes on. What it heard is in its socket until `hear`."""
    letter = Letter("r", (), Identity("", "", ""), "/run", "/run/probe", "x", SILENCE_S, "0.1.0", "3.11.7")
    hello = Hello("r", Node("n1", 1), "0.1.0", "3.11.7", 0.0, "x", "", "n1", 1)
    said: list[object] = []
    channel = SimpleNamespace()
    member = Member(letter, hello, channel, True, said.append)  # type: ignore[arg-type]
    member._worker = SimpleNamespace(  # type: ignore[assignment]
        status="running", batched_stream=SimpleNamespace(send=said.append)
    )

    async def frames_come_in_pieces() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        hear(member)

    async def live() -> str:
        member._ended = asyncio.Event()
        member._welcomed = True
        member._on_beat()
        beating = asyncio.create_task(member._beat())
        await asyncio.sleep(0)
        time.sleep(MISSED_S)
        reading = asyncio.create_task(frames_come_in_pieces())
        while not said and not member._ended.is_set():  # until it says that it lives, or gives up
            await asyncio.sleep(0)
        beating.cancel()
        await reading
        return member._why

    return asyncio.run(live())


def test_a_runner_that_was_starved_of_time_reads_what_came_meanwhile_before_it_gives_its_conductor_up() -> None:
    assert starved(Member._on_beat) == ""


def test_if_nothing_came_meanwhile_it_gives_it_up_at_once_as_somebody_else_may_do_its_work_soon() -> None:
    assert "gave no sign of life" in starved(lambda _: None)
