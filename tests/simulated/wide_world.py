"""The world in which wide plots take place: a provider of whims, and a person who asks only for what there can be."""

from __future__ import annotations

import msgspec
from carved_plots import CarvedWorld
from wide_plots import WidePlot

from cantle.core.partitions import queues_of
from cantle.core.roster import Key
from cantle.core.state import State
from cantle.model.records import (
    CancelAsked,
    Decision,
    ElementsAsked,
    Event,
    MoveResults,
    NodeReleased,
    NodeResumeAsked,
    NodesJoined,
    NodesWished,
    RequestAnswered,
    RequestNodes,
    ResultsForgotten,
    ResultsLost,
    ResultsMoved,
    TimePassed,
)
from cantle.runtime.conducting import concerns
from cantle.runtime.simulated_provider import SimulatedProvider


class Whimsical(SimulatedProvider):
    """A provider that refuses, dawdles, brings others than it promised, forgets and cannot move everything."""

    def __init__(self, plot: WidePlot) -> None:
        super().__init__(
            refuses=lambda _kind, request, count: count if plot.whim(request) == 1 else int(plot.whim(request) == 2),
            starts_in=lambda kind, request: kind.starts_in_s * (1 + plot.whim(request + 1)),
            lives=lambda _kind, request: 9.0 if plot.whim(request) == 3 else 0.0,
            takes_back_s=plot.takes_back_s,
            moves_in_s=plot.moves_in_s,
            keeps=plot.keeps,
        )
        self.plot = plot
        self.moves = 0

    def answer(self, state: State, decision: Decision) -> list[Event]:
        """As the plot wants it."""
        events = super().answer(state, decision)
        if isinstance(decision, RequestNodes) and state.scaling is not None:
            number = len(state.scaling.requests) - 1
            whim = self.plot.whim(number)
            if whim == 4:  # it promises, and then does not bring them
                return [
                    *events[:1],
                    RequestAnswered(decision.time + 2.0, number, 0, decision.count, "lost in the mail"),
                ]
            if whim == 5:  # of another build
                events = [_of_another_build(event, number) for event in events]
            if whim == 6:  # one by one
                events = [each for event in events for each in _one_by_one(event)]
        if isinstance(decision, MoveResults):
            self.moves += 1
            if self.plot.whim(self.moves) in (1, 4):
                at = decision.time + self.plot.moves_in_s
                return [ResultsMoved(at, decision.tasks, decision.node, decision.to, "no room there")]
        return events

    def arrived(self, state: State, event: NodesJoined) -> Event:
        """Some come although nobody wants them any more."""
        return event if self.plot.whim(event.request) == 7 else super().arrived(state, event)


def _of_another_build(event: Event, number: int) -> Event:
    if not isinstance(event, NodesJoined):
        return event
    nodes = [msgspec.structs.replace(n, cores=1 + number % n.cores, gpus=number % 2, memory_mib=4) for n in event.nodes]
    return NodesJoined(event.time, nodes, event.request)


def _one_by_one(event: Event) -> list[Event]:
    if not isinstance(event, NodesJoined):
        return [event]
    return [NodesJoined(event.time + i / 2, [n], event.request) for i, n in enumerate(event.nodes)]


class WideWorld(CarvedWorld):
    """A world in which only is asked for what there is, as the conductor sees to it."""

    given_again: frozenset[Key] = frozenset()
    """By these names elements were asked for once more after they had been given back."""

    def wait(self) -> list[Event]:
        """What happens next."""
        if self._heap and all(type(event) is TimePassed for _, _, event in self._heap) and not self.state.running:
            self._act()
        return [event for event in super().wait() if self._concerns(event)]

    def _concerns(self, event: Event) -> bool:
        state = self.state
        if isinstance(event, ResultsForgotten | ResultsLost | ResultsMoved):
            return all(task < len(state.tasks) for task in event.tasks)
        if isinstance(event, NodeReleased):
            return event.node in state.room.nodes
        return concerns(event, state)

    def _do_something(self, now: float) -> bool:
        state, of = self.state, self.state.partitions
        for name in state.drained_names:
            self.put(NodeResumeAsked(now, name, "me"))
        for wish in list(state.scaling.wishes.values()) if state.scaling is not None else ():
            self.put(NodesWished(now, wish.kind, None, "me"))
        if super()._do_something(now):
            return True
        for study, name in of.requests:
            if of.requests[study, name].want:
                self.put(ElementsAsked(now, name, "", "me", study))
                return True
        for key in of.requests:
            self._give_again(key, now)
        return bool(of.requests)

    def _give_again(self, key: Key, now: float) -> None:
        """Who waits for elements that were given back gets one of his width; when that was in vain, he is canceled."""
        queues = [self.state.queues[number] for number in queues_of(self.state, key)]
        waiting = [queue for queue in queues if queue.head() is not None]
        if waiting and key not in self.given_again:
            self.given_again |= {key}
            shape = waiting[0].shape
            want = f"1 x {(shape.widths or (shape.needs.nodes,))[0]}"
            self.put(ElementsAsked(now, key[1], want, "me", key[0]))
        elif waiting:
            self.put(CancelAsked(now, [task for queue in waiting for task in queue.ready()], "me"))
