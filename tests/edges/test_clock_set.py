"""What becomes of a run when somebody sets the machine's clock? Its own time neither stands still nor jumps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest

from cantle.allocations.local import LocalAllocation
from cantle.core.decide import Decider
from cantle.core.state import State
from cantle.engines.process import ProcessEngine
from cantle.model.records import (
    ClockSet,
    Launch,
    NodeLost,
    NodesJoined,
    RequestAnswered,
    RunResumed,
    TaskEnded,
    TaskStarted,
    TimePassed,
)
from cantle.model.resources import Node
from cantle.readers.map import build
from cantle.readers.values import from_ranges
from cantle.runner import clock
from cantle.runtime.conducting import Machine, begin
from cantle.runtime.inbox import SelectInbox
from cantle.runtime.real import RealWorld
from cantle.runtime.resuming import resume
from cantle.runtime.timekeeping import Timekeeping
from cantle.store.journal import read
from cantle.store.layout import Layout

HOUR_S, DAY_S = 3600.0, 86400.0


class Clocks:
    """The machine's clock, which anybody may set, and the seconds since it began, which go on when a test says so."""

    def __init__(self) -> None:
        self.wall = clock.now()
        self.since_boot = self.wall - clock.BASE

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.since_boot += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    for module in (clock, "cantle.runtime.inbox"):
        where = module if isinstance(module, str) else "cantle.runner.clock"
        monkeypatch.setattr(f"{where}.clock_gettime", lambda _: clocks.since_boot)
    monkeypatch.setattr("cantle.runtime.inbox.time", lambda: clocks.wall)
    return clocks


@pytest.fixture
def inbox(clocks: Clocks) -> Iterator[SelectInbox]:
    inbox = SelectInbox()
    yield inbox
    inbox.close()


class Nowhere:
    """An allocation and an engine that do nothing; the allocation hears which nodes are lost."""

    keeps_lines = runs_streams = True
    notes: list[str] = []

    def __init__(self) -> None:
        self.gone: list[Node] = []

    def open(self, _inbox: SelectInbox) -> None:
        pass

    def connect(self, _node: Node) -> object:
        return object()

    def add_node(self, *_: object) -> None:
        pass

    def remove_node(self, _index: int) -> None:
        pass

    def lost(self, node: Node) -> None:
        self.gone.append(node)


@pytest.mark.parametrize("by_s", [-HOUR_S, DAY_S])
def test_the_time_of_a_run_goes_on_as_if_nobody_had_set_the_clock(
    clocks: Clocks, inbox: SelectInbox, by_s: float
) -> None:
    before = inbox.now()
    assert inbox.clock_ahead_s() == 0.0
    clocks.wall += by_s
    clocks.pass_(5.0)
    assert inbox.now() == pytest.approx(before + 5.0)
    assert inbox.clock_ahead_s() == pytest.approx(by_s)


def test_who_wants_to_be_woken_is_woken_in_time_although_the_clock_was_set_back(
    clocks: Clocks, inbox: SelectInbox
) -> None:
    nowhere: Any = Nowhere()
    world = RealWorld(State(), inbox, nowhere, nowhere, nowhere)
    world.wake_at(inbox.now() + 60.0)
    clocks.wall -= HOUR_S
    clocks.pass_(61.0)
    assert [type(event) for event in world.wait()] == [TimePassed]


def test_ends_that_are_told_by_the_machines_clock_are_turned_into_the_runs_time_once(
    clocks: Clocks, inbox: SelectInbox
) -> None:
    nowhere: Any = Nowhere()
    world = RealWorld(State(), inbox, nowhere, nowhere, nowhere)
    clocks.wall += DAY_S
    job = Node("job", 4, ends_at=clocks.wall + 600.0)
    inbox.put(RequestAnswered(inbox.now(), 0, 1, expected_at=clocks.wall + 60.0))
    inbox.put(NodesJoined(inbox.now(), [job, Node("stays", 4)]))
    answered, joined = world.wait()
    assert isinstance(answered, RequestAnswered) and answered.expected_at == pytest.approx(inbox.now() + 60.0)
    assert isinstance(joined, NodesJoined)
    assert [node.ends_at for node in joined.nodes] == [pytest.approx(inbox.now() + 600.0), 0.0]
    inbox.put(NodeLost(inbox.now(), 0))
    world.wait()
    assert nowhere.gone == [job], "whoever brings it back says again what it has said before"


def test_a_jump_of_a_day_does_not_end_nodes_that_last_for_an_hour(clocks: Clocks, inbox: SelectInbox) -> None:
    state = State()
    nowhere: Any = Nowhere()
    world = RealWorld(state, inbox, nowhere, nowhere, nowhere)
    inbox.put(NodesJoined(inbox.now(), [Node("job", 4, ends_at=clocks.wall + HOUR_S)]))
    for event in world.wait():
        state.apply(event)
    clocks.wall += DAY_S
    clocks.pass_(60.0)
    state.apply(TimePassed(inbox.now()))
    assert state.lifetimes is not None and not state.lifetimes.due(state.now)


def test_that_the_clock_was_set_is_written_down_and_told_once_and_people_read_times_of_that_clock(
    clocks: Clocks, inbox: SelectInbox
) -> None:
    state, told = State(), list[str]()
    keeping = Timekeeping(inbox, state, told.append)
    early = inbox.now()
    keeping.look()
    assert inbox.wait(0) == [] and told == []
    clocks.pass_(10.0)
    clocks.wall -= HOUR_S
    keeping.look()
    keeping.look()
    [event] = inbox.wait(0)
    assert isinstance(event, ClockSet) and event.ahead_s == pytest.approx(-HOUR_S)
    assert [news.partition(";")[0] for news in told] == ["this machine's clock was set back, by 3,600 s"]
    state.apply(event)
    assert state.wall(early) == early
    assert state.wall(inbox.now()) == pytest.approx(clocks.wall)
    clocks.pass_(5.0)
    assert state.present(clocks.wall) == pytest.approx(inbox.now())


def test_a_run_that_is_gone_on_with_before_its_last_record_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = build(f"test -e {tmp_path}/go && sleep 0.1 && echo {{}}", from_ranges(["1-3"]))
    layout = Layout(tmp_path / "out")

    def engine(inbox: SelectInbox, layout: Layout, hide_gpus: bool) -> ProcessEngine:
        return ProcessEngine(inbox, str(layout.directory), home=".cantle/nodes", hide_gpus=hide_gpus, grace_s=0.5)

    with monkeypatch.context() as fast:
        fast.setattr("cantle.runner.clock.BASE", clock.BASE + HOUR_S)  # the clock was an hour ahead when it began
        fast.setattr("cantle.runtime.inbox.time", lambda: time() + HOUR_S)
        conductor = begin(study, layout, "map", study.limits)
        try:
            assert conductor.conduct(Machine(LocalAllocation(cores=1), engine), Decider()).exit_code == 2
        finally:
            conductor.close()
    (tmp_path / "go").touch()
    again = resume(layout, lambda _reader, _folder: study)
    assert again is not None
    told: list[str] = []
    try:
        state = again.conduct(Machine(LocalAllocation(cores=1), engine), Decider(), note=told.append).state
    finally:
        again.close()
    assert state.succeeded
    assert "this machine's clock was set back, by 3,600 s" in told[0]
    records = list(read(layout.journal))
    resumed = next(number for number, record in enumerate(records) if isinstance(record, RunResumed))
    last = max(record.time for record in records[:resumed])
    assert all(last <= record.time < last + 60.0 for record in records[resumed:])
    assert state.wall(state.now) == pytest.approx(time(), abs=60.0)
    begun = {record.task: record.time for record in records[resumed:] if isinstance(record, Launch)}
    for record in records[resumed:]:
        if isinstance(record, TaskEnded | TaskStarted):
            assert begun[record.task] <= record.time, "runners count from where the run does"
