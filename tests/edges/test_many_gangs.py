"""What attempts of several streams cost those who do not belong to them: steps are counted, not timed."""

from __future__ import annotations

from cantle.engines.gangs import Gangs
from cantle.model.records import Launch
from cantle.model.resources import Node, Place
from cantle.model.streams import Streams
from cantle.model.study import Command
from counting import steps


def test_a_turn_costs_the_same_however_many_attempts_of_several_streams_run() -> None:
    def cost(n: int) -> int:
        gangs = Gangs(lambda *_: None, lambda _: None, lambda *_: False, lambda: None, lambda: 0.0)
        for task in range(n):
            launch = Launch(0.0, task, 1, (Place(0, "0-3"),))
            gangs.add(launch, Command(argv=("true",)), [Node("a", 4)], Streams(2), 60.0, 0, "/run")
        return steps(gangs.tick)

    assert cost(100) == cost(1)
