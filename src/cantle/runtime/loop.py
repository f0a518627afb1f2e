"""How does a run go on? Hear, write down, apply; decide, write down, apply, carry out; until nothing is left to do.

The loop is the same in the real and in a simulated world, alone on a laptop or across a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.model.records import AnyRecord, Decision, Event


class World(Protocol):
    """Where decisions become deeds and from where events come."""

    def wait(self) -> list[Event]:
        """What has happened since the last call; waits until something has. May be empty: then nobody can tell why."""

    def carry_out(self, decision: Decision) -> None:
        """Begin to do it; never wait for the outcome."""

    def wake_at(self, time: float) -> None:
        """Let time pass as an event then, at the latest: something may be to decide although nothing happens."""

    def settle(self) -> None:
        """All records of this turn are written down: what they decided may take effect, what they heard is safe."""


class Log(Protocol):
    """Where records are written down before they take effect."""

    def write(self, record: AnyRecord) -> None:
        """Take the record in."""

    def flush(self) -> None:
        """Hand all that was taken in to the operating system: it survives the death of this process."""


class NoLog:
    """For runs that nobody wants to resume: simulations."""

    def write(self, record: AnyRecord) -> None:
        """Forget it."""

    def flush(self) -> None:
        """Nothing to do."""


def run(
    state: State, world: World, log: Log, decider: Decider, observers: Sequence[Callable[[State], None]] = ()
) -> None:
    """Turn the loop until the run is finished.

    `observers` are called once a turn: for progress, and for what has to happen now and then.
    """
    while not state.finished:
        turn(state, world, log, decider, world.wait())
        for observe in observers:
            observe(state)


def turn(state: State, world: World, log: Log, decider: Decider, events: list[Event]) -> None:
    """One turn. Records of a turn are written together, before anything of it takes effect."""
    for event in events:
        log.write(event)
        state.apply(event)
    for decision in decider.decide(state):
        log.write(decision)
        state.apply(decision)
        world.carry_out(decision)
    if decider.wakes_at < math.inf:
        world.wake_at(decider.wakes_at)
    log.flush()
    world.settle()
