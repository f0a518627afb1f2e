"""Nodes that go away in the very moment in which they join."""

from __future__ import annotations

from typing import Any

from cantle.core.state import State
from cantle.errors import MachineError
from cantle.model.records import NodeLost, NodesJoined, TaskHindered
from cantle.model.resources import Node
from cantle.model.study import Task
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.real import RealWorld


class Flighty:
    """An allocation whose nodes join, and of which the second has no runner; as an engine it loses the first at once."""

    keeps_lines = runs_streams = True

    def __init__(self, inbox: SelectInbox) -> None:
        self.inbox = inbox
        self.notes: list[str] = []
        self.told: list[str] = []
        self.removed: list[int] = []

    def open(self, inbox: SelectInbox) -> None:
        inbox.put(NodesJoined(1.0, [Node("a", 1), Node("b", 1)]))

    def connect(self, node: Node) -> Any:
        if node.name == "b":
            raise MachineError("no more processes")
        return object()

    def lost(self, node: Node) -> None:
        self.told.append(node.name)

    def add_node(self, index: int, node: Node, channel: object) -> None:
        self.inbox.put(NodeLost(1.0, index, "its runner was killed"))

    def remove_node(self, index: int) -> None:
        self.removed.append(index)


def test_a_node_that_is_lost_before_anybody_heard_that_it_joined_is_told_and_asked_for_again() -> None:
    inbox = SelectInbox()
    both: Any = Flighty(inbox)
    world = RealWorld(State(), inbox, both, both, both)
    events = world.wait()
    assert [type(event) for event in events] == [NodesJoined, NodeLost, NodeLost]
    assert (sorted(both.told), both.removed) == (["a", "b"], [0])
    assert sorted(world.lost) == ["a node is lost: b: no more processes", "a node is lost: its runner was killed"]
    state = State()
    for event in events:
        state.apply(event)
    assert not state.room.alive
    inbox.close()


def test_what_keeps_a_task_from_beginning_is_told_also_when_a_node_joins_in_the_same_moment() -> None:
    inbox = SelectInbox()
    both: Any = Flighty(inbox)
    state = State()
    state.tasks.append(Task("spread", 0))
    world = RealWorld(state, inbox, both, both, both)
    inbox.put(TaskHindered(1.0, 0, 1, "srun waits for its nodes"))
    world.wait()
    assert [news for news in world.lost if "spread" in news] == ["spread has not begun: srun waits for its nodes"]
    inbox.close()


def test_what_keeps_a_task_from_beginning_is_told_also_when_it_comes_while_a_node_is_taken_in() -> None:
    inbox = SelectInbox()
    both: Any = Flighty(inbox)
    both.add_node = lambda *_: inbox.put(TaskHindered(1.0, 0, 1, "srun waits for its nodes"))
    state = State()
    state.tasks.append(Task("spread", 0))
    world = RealWorld(state, inbox, both, both, both)
    assert [type(event) for event in world.wait()] == [NodesJoined, NodeLost, TaskHindered]
    assert [news for news in world.lost if "spread" in news] == ["spread has not begun: srun waits for its nodes"]
    inbox.close()
