"""An elastic allocation with providers that are slow, broken or liars: each need is asked once, and each request answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from providers_rig import Heard, asked, tended

from cantle.allocations.fleet.source import Invitation
from cantle.allocations.local import LocalAllocation
from cantle.allocations.providers.base import Answers, Asked
from cantle.allocations.providers.elastic import ElasticAllocation
from cantle.allocations.providers.gate import Gate
from cantle.allocations.providers.local import LocalNodes
from cantle.allocations.providers.records import Records
from cantle.errors import MachineError
from cantle.model.kinds import Kind
from cantle.model.records import (
    Event,
    KindsDeclared,
    NodeLost,
    NodeReleased,
    NodesAwaited,
    NodesJoined,
    RequestAnswered,
)
from cantle.model.resources import Node
from cantle.model.seams import Channel, Inbox
from cantle.runtime.inbox import SelectInbox
from cantle.testing import check_allocation, check_provider

CPU = Kind("cpu", 1)


class Base:
    """An allocation of which some nodes are on their way, and whatever a test lets join."""

    def __init__(self, awaited: int = 0) -> None:
        self.notes: list[str] = []
        self.awaited = awaited
        self.inbox: Inbox
        self.gone: list[str] = []

    def open(self, inbox: Inbox) -> None:
        self.inbox = inbox
        inbox.put(NodesAwaited(inbox.now(), self.awaited))

    def connect(self, node: Node) -> Channel:
        raise MachineError("nobody is here")

    def lost(self, node: Node) -> None:
        self.gone.append(node.name)

    def close(self) -> None:
        pass


class Theirs:
    """A provider whose runners join by themselves; what it is asked is kept, what it answers a test says."""

    invites = True

    def __init__(self, kind: Kind = CPU) -> None:
        self.kind = kind
        self.undo = {"by": "command", "remove": "true"}
        self.asked: list[Asked] = []
        self.answers: Answers
        self.withdrawn: list[tuple[int, int]] = []
        self.removed: list[tuple[str, str]] = []
        self.problem: Exception | None = None
        self.can_withdraw = 0

    def add(self, asked: Asked, answers: Answers) -> None:
        self.asked.append(asked)
        self.answers = answers
        if self.problem is not None:
            raise self.problem

    def withdraw(self, request: int, n: int) -> int:
        self.withdrawn.append((request, n))
        return self.can_withdraw

    def remove(self, node: Node, instance: str) -> None:
        if self.problem is not None:
            raise self.problem
        self.removed.append((node.name, instance))

    def tend(self) -> float:
        return 60.0

    def close(self) -> None:
        if self.problem is not None:
            raise self.problem


class Rig:
    """The allocation, opened, with what it has said."""

    def __init__(self, allocation: ElasticAllocation, folder: Path, gate: Gate | None = None) -> None:
        self.inbox = SelectInbox()
        self.allocation = allocation
        self.events: list[Event] = []
        allocation.house(folder, folder / "fleet")
        allocation.open(self.inbox)
        if gate is not None:
            gate.start(Invitation(str(folder / "letter"), b"", "python3"), None)  # type: ignore[arg-type]

    def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        stop = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < stop, f"it did not come about: {self.events}"
            self.events += self.inbox.wait(0.05)

    def all(self, kind: type) -> list[Event]:
        self.events += self.inbox.wait(0)
        return [event for event in self.events if type(event) is kind]

    def answers(self, request: int = 0) -> list[RequestAnswered]:
        return [event for event in self.all(RequestAnswered) if event.request == request]  # type: ignore[attr-defined]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(provider: Theirs, base: Base | None = None) -> Rig:
        gate = Gate()
        made.append(Rig(ElasticAllocation(base or Base(), [provider], None, gate), tmp_path, gate))
        return made[-1]

    yield make
    for each in made:
        each.allocation.close()
        each.inbox.close()


def test_kinds_are_declared_first_as_their_providers_can(tmp_path: Path) -> None:
    other = Kind("iron", 64)
    rig = Rig(ElasticAllocation(Base(), [LocalNodes(CPU)], LocalAllocation(grows=True), others=[other]), tmp_path)
    rig.until(lambda: bool(rig.events))
    assert isinstance(rig.events[0], KindsDeclared)
    assert [(kind.name, kind.adds, kind.removes) for kind in rig.events[0].kinds] == [
        ("cpu", True, True),
        ("iron", False, False),
    ]
    rig.allocation.request(0, "iron", 2)
    rig.allocation.request(1, "gold", 1)
    assert [(a.refused, a.detail) for a in (*rig.answers(0), *rig.answers(1))] == [
        (2, "nobody brings nodes of that kind"),
        (1, "nobody brings nodes of that kind"),
    ]
    rig.allocation.close()
    rig.inbox.close()


def test_a_request_is_handed_on_once_however_often_it_is_made(rig: Callable[..., Rig]) -> None:
    theirs = Theirs()
    run = rig(theirs)
    for _ in range(3):
        run.allocation.request(5, "cpu", 2)
    run.until(lambda: bool(run.answers(5)))
    assert [(asked.number, asked.count) for asked in theirs.asked] == [(5, 2)]
    assert [(a.coming, a.refused) for a in run.answers(5)] == [(2, 0)]


def test_requests_wait_until_runners_can_be_invited_and_may_be_withdrawn_before(tmp_path: Path) -> None:
    theirs, gate = Theirs(), Gate()
    run = Rig(ElasticAllocation(Base(), [theirs], None, gate), tmp_path)
    run.allocation.request(0, "cpu", 3)
    run.allocation.withdraw(0, 1)
    assert run.answers()[-1].coming == 2 and not theirs.asked
    gate.start(Invitation("letter", b"", "python3"), None)  # type: ignore[arg-type]
    run.until(lambda: bool(theirs.asked))
    assert theirs.asked[0].count == 2 and theirs.asked[0].invitation is not None
    run.allocation.nobody_can_join("the port is gone")
    run.allocation.request(1, "cpu", 1)
    assert run.answers(1)[-1].refused == 1 and "the port is gone" in run.answers(1)[-1].detail
    run.allocation.close()
    run.inbox.close()


@pytest.mark.parametrize(
    ("problem", "words"),
    [(MachineError("no credit left"), "no credit left"), (KeyError("zone"), "its provider broke: KeyError: 'zone'")],
)
def test_a_provider_that_raises_has_refused_all_and_the_reason_is_told(
    rig: Callable[..., Rig], problem: Exception, words: str
) -> None:
    theirs = Theirs()
    theirs.problem = problem
    run = rig(theirs)
    run.allocation.request(0, "cpu", 2)
    run.until(lambda: bool(run.answers()))
    assert [(a.coming, a.refused, a.detail) for a in run.answers()] == [(0, 2, words)]


def test_answers_add_up_and_the_same_is_not_told_twice(rig: Callable[..., Rig]) -> None:
    theirs, base = Theirs(), Base(awaited=3)
    run = rig(theirs, base)
    run.allocation.request(0, "cpu", 4)
    run.until(lambda: bool(run.answers()))
    theirs.answers.waits(0, "pending (Priority)", 1000.0)
    theirs.answers.waits(0, "pending (Priority)", 1000.0)
    run.until(lambda: run.answers()[-1].detail == "pending (Priority)")
    base.inbox.put(NodesJoined(1.0, [Node("n1", 1, kind="cpu")], 0))
    theirs.answers.refused(0, 1, "out of machines")
    theirs.answers.over(0, "", 5, "all is over")
    run.until(lambda: run.answers()[-1].detail == "all is over")
    told = [(a.coming, a.refused, a.detail, a.expected_at) for a in run.answers()]
    assert told == [
        (4, 0, "", 0.0),
        (4, 0, "pending (Priority)", 1000.0),
        (2, 1, "out of machines", 0.0),
        (0, 3, "all is over", 0.0),
    ]
    assert theirs.answers.joined(0) == {"": ("n1",)}


def test_a_runner_that_does_not_say_whose_it_is_answers_the_request_for_its_kind(rig: Callable[..., Rig]) -> None:
    theirs, base = Theirs(), Base()
    run = rig(theirs, base)
    run.allocation.request(0, "cpu", 1)
    run.allocation.request(1, "cpu", 2)
    run.until(lambda: len(theirs.asked) == 2 and bool(run.answers(1)))
    theirs.answers.handed_out(1, "m7")
    base.inbox.put(NodesJoined(1.0, [Node("whoever", 1, kind="cpu", machine="m7")]))
    base.inbox.put(NodesJoined(1.0, [Node("other", 1, kind="gpu")]))
    joined = run.all(NodesJoined)
    assert [event.request for event in joined] == [1, -1]  # type: ignore[attr-defined]
    assert theirs.answers.joined(1) == {"m7": ("whoever",)}
    run.allocation.release(4, Node("whoever", 1, kind="cpu", machine="m7"))
    run.until(lambda: bool(run.all(NodeLost)))
    assert theirs.removed == [("whoever", "m7")]
    assert [(type(e).__name__, e.node) for e in run.events if isinstance(e, NodeReleased | NodeLost)] == [
        ("NodeReleased", 4),
        ("NodeLost", 4),
    ]


def test_a_node_that_cannot_be_taken_back_stays_and_the_reason_is_told(rig: Callable[..., Rig]) -> None:
    theirs, base = Theirs(), Base()
    run = rig(theirs, base)
    run.allocation.request(0, "cpu", 1)
    run.until(lambda: bool(run.answers()))
    base.inbox.put(NodesJoined(1.0, [Node("n1", 1, kind="cpu")], 0))
    theirs.problem = MachineError("the cloud is closed")
    run.allocation.release(0, Node("n1", 1, kind="cpu"))
    run.allocation.release(7, Node("old", 1, kind="cpu"))
    run.until(lambda: len(run.all(NodeReleased)) == 2)
    problems = {event.node: event.problem for event in run.all(NodeReleased)}  # type: ignore[attr-defined]
    assert problems == {0: "the cloud is closed", 7: "old stays: no provider brought it"}
    assert not run.all(NodeLost)


def test_a_node_that_went_before_it_was_given_back_is_lost_once(rig: Callable[..., Rig]) -> None:
    theirs, base = Theirs(), Base()
    run = rig(theirs, base)
    run.allocation.request(0, "cpu", 1)
    run.until(lambda: bool(run.answers()))
    node = Node("n1", 1, kind="cpu")
    base.inbox.put(NodesJoined(1.0, [node], 0))
    run.allocation.release(0, node)
    run.allocation.lost(node)  # its runner went at that very moment
    run.until(lambda: bool(run.all(NodeReleased)))
    assert not run.all(NodeLost) and base.gone == ["n1"]


def test_a_provider_that_does_not_come_back_from_a_node_that_is_given_up_is_asked_for_nothing_more(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, let_go = threading.Event(), threading.Event()

    class Hangs(Theirs):
        def remove(self, node: Node, instance: str) -> None:
            removing.set()
            let_go.wait(60)

    base, node = Base(), Node("n1", 1, kind="cpu")
    run = rig(Hangs(), base)
    run.allocation.request(0, "cpu", 1)
    run.until(lambda: bool(run.answers()))
    base.inbox.put(NodesJoined(1.0, [node], 0))
    run.allocation.release(0, node)
    run.allocation.request(1, "cpu", 1)
    assert removing.wait(60)
    monkeypatch.setattr("cantle.allocations.providers.elastic.HUNG_S", 0.0)
    run.allocation.lost(node)
    run.until(lambda: bool(run.answers(1)))
    run.allocation.request(2, "cpu", 1)
    run.until(lambda: bool(run.answers(2)))
    for answer in (run.answers(1)[-1], run.answers(2)[-1]):
        assert answer.coming == 0 and answer.refused == 1
        assert "its provider has not come back for 0 s from what was asked of it" in answer.detail
    let_go.set()


def test_what_was_withdrawn_in_vain_is_still_on_its_way(rig: Callable[..., Rig]) -> None:
    theirs = Theirs()
    theirs.can_withdraw = 1
    run = rig(theirs)
    run.allocation.request(0, "cpu", 3)
    run.allocation.withdraw(0, 2)
    run.until(lambda: bool(run.answers()) and run.answers()[-1].coming == 2)
    assert theirs.withdrawn == [(0, 2)]


def test_a_runner_that_the_fleet_refused_does_not_come(rig: Callable[..., Rig]) -> None:
    theirs = Theirs()
    run = rig(theirs)
    run.allocation.request(0, "cpu", 2)
    run.until(lambda: bool(run.answers()))
    run.allocation.turned_away(0, "m1", "it speaks another language")
    assert (run.answers()[-1].coming, run.answers()[-1].refused) == (1, 1)
    assert run.answers()[-1].detail == "m1: it speaks another language"


def test_nodes_of_this_machine_take_nothing_from_those_that_the_base_awaits(tmp_path: Path) -> None:
    base = Base(awaited=3)
    run = Rig(ElasticAllocation(base, [LocalNodes(CPU)], LocalAllocation(grows=True)), tmp_path)
    run.allocation.request(0, "cpu", 2)
    run.until(lambda: bool(run.all(NodesJoined)))
    assert [event.count for event in run.all(NodesAwaited)] == [3, 3]  # type: ignore[attr-defined]
    run.allocation.close()
    run.inbox.close()


def test_a_slow_provider_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    let_go = threading.Event()

    class Slow(Theirs):
        def add(self, asked: Asked, answers: Answers) -> None:
            let_go.wait(20)

    slow, gate = Slow(Kind("slow", 1)), Gate()
    run = Rig(ElasticAllocation(Base(), [slow, LocalNodes(CPU)], LocalAllocation(grows=True), gate), tmp_path, gate)
    run.allocation.request(0, "slow", 1)
    run.allocation.request(1, "cpu", 1)
    run.until(lambda: bool(run.all(NodesJoined)))
    assert not run.answers(0)
    let_go.set()
    run.until(lambda: bool(run.answers(0)))
    run.allocation.close()
    run.inbox.close()


@pytest.mark.parametrize("problem", [None, MachineError("no more today")])
def test_it_stands_on_record_whether_whoever_was_asked_has_come_back(tmp_path: Path, problem: Exception | None) -> None:
    let_go = threading.Event()

    class Slow(Theirs):
        def add(self, asked: Asked, answers: Answers) -> None:
            let_go.wait(60)
            if problem is not None:
                raise problem

    gate = Gate()
    run = Rig(ElasticAllocation(Base(), [Slow()], None, gate), tmp_path, gate)
    records = Records(tmp_path / "elastic")
    run.allocation.request(0, "cpu", 1)
    run.until(lambda: bool(records.left()))
    assert [left.answered for left in records.left()] == [False]
    let_go.set()
    run.until(lambda: all(left.answered for left in records.left()))
    run.allocation.close()
    run.inbox.close()


def test_whoever_was_asked_and_the_loop_may_tell_of_one_request_at_once(tmp_path: Path) -> None:
    records = Records(tmp_path / "elastic")
    records.asked(0, "token", "cpu", 300, {"by": "command"})
    problems: list[Exception] = []

    def told(what: Callable[[int], None]) -> None:
        try:
            for number in range(300):
                what(number)
        except Exception as problem:  # noqa: BLE001 - told below
            problems.append(problem)

    ways: list[Callable[[int], None]] = [lambda n: records.handed_out(0, f"m{n}"), lambda _: records.answered(0)]
    threads = [threading.Thread(target=told, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (left,) = records.left()
    assert problems == [] and len(left.instances) == 300 and left.answered


def test_what_a_provider_could_not_take_back_stays_on_record_and_the_user_is_told(tmp_path: Path) -> None:
    theirs, gate = Theirs(), Gate()
    run = Rig(ElasticAllocation(Base(), [theirs], None, gate), tmp_path, gate)
    run.allocation.request(0, "cpu", 1)
    run.until(lambda: bool(run.answers()))
    assert [left.number for left in Records(tmp_path / "elastic").left()] == [0], "written before it was asked"
    theirs.problem = MachineError("the cloud is closed")
    run.allocation.close()
    assert any("the cloud is closed" in note for note in run.allocation.notes)
    assert any("cantle cancel" in note for note in run.allocation.notes)
    assert Records(tmp_path / "elastic").left()
    run.inbox.close()


def test_a_clean_end_leaves_nothing_on_record(rig: Callable[..., Rig], tmp_path: Path) -> None:
    run = rig(Theirs())
    run.allocation.request(0, "cpu", 1)
    run.until(lambda: bool(run.answers()))
    assert Records(tmp_path / "elastic").left()
    run.allocation.close()
    assert not Records(tmp_path / "elastic").left()


def test_a_provider_that_breaks_while_it_tends_its_nodes_is_told_and_left_alone_in_the_end(tmp_path: Path) -> None:
    class Breaks(Theirs):
        times = 0

        def tend(self) -> float:
            self.times += 1
            raise ZeroDivisionError("0/0")

    theirs, gate = Breaks(), Gate()
    run = Rig(ElasticAllocation(Base(), [theirs], None, gate), tmp_path, gate)
    for number in range(8):
        run.allocation.request(number, "cpu", 1)
    run.until(lambda: all(run.answers(number) for number in range(8)))
    assert theirs.times == 5 and len(theirs.asked) <= 5, "nothing more is asked of it"
    assert "its provider broke: ZeroDivisionError: 0/0, 5 times in a row" in run.answers(7)[-1].detail
    assert sum("its provider broke: ZeroDivisionError" in note for note in run.allocation.notes) == 1
    run.allocation.close()
    run.inbox.close()


def _local(kind: Kind = CPU, after_s: float = 0.0, fails: int = 0) -> LocalNodes:
    return LocalNodes(kind, after_s, fails)


def test_local_nodes_keep_the_promises_of_a_provider(tmp_path: Path) -> None:
    check_provider(_local, tmp_path)
    check_provider(lambda: _local(after_s=0.1), tmp_path)
    check_provider(lambda: _local(fails=1), tmp_path)


def test_a_machine_is_dealt_out_into_no_more_nodes_than_it_can_carry() -> None:
    assert _local().kind.most == _local(Kind("cpu", 1, most=5000)).kind.most == 1000
    assert _local(Kind("cpu", 1, most=3)).kind.most == 3


def test_nodes_that_start_slowly_are_withdrawn_last_first(tmp_path: Path) -> None:
    provider, heard = _local(after_s=0.2), Heard()
    provider.add(asked(tmp_path, 3), heard)
    assert heard.details[0][0] == "they are starting" and heard.details[0][1] > time.time() - 1
    assert provider.withdraw(0, 2) == 2
    tended(provider, lambda: bool(heard.nodes))
    assert [node.name for node in heard.nodes] == ["cpu-1"]
    assert provider.withdraw(0, 2) == 0


class Machines(Theirs):
    """Whose machines outlive their runners."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[str] = []

    def lost(self, instance: str) -> None:
        self.left.append(instance)
        if self.problem is not None:
            raise self.problem


def test_who_has_begun_a_machine_hears_when_nothing_runs_there_any_more(rig: Callable[..., Rig]) -> None:
    machines, base = Machines(), Base()
    run = rig(machines, base)
    run.allocation.request(0, "cpu", 3)
    run.until(lambda: bool(machines.asked))
    machines.answers.handed_out(0, "m1")
    machines.answers.handed_out(0, "m2")
    nodes = [Node(f"n{number}", 1, kind="cpu", machine=f"m{machine}") for number, machine in enumerate((1, 1, 2))]
    for node in nodes:
        base.inbox.put(NodesJoined(1.0, [node], 0))
    run.allocation.lost(nodes[0])
    run.allocation.lost(nodes[2])
    run.until(lambda: machines.left == ["m2"])
    machines.problem = MachineError("no credit left")
    run.allocation.lost(nodes[1])
    run.until(lambda: "kind cpu: m1 may be left: no credit left" in run.allocation.notes)
    machines.problem = None
    assert machines.left == ["m2", "m1"] and base.gone == ["n0", "n2", "n1"]


class Opened(ElasticAllocation):
    """With a node at once, for the check that every allocation has to pass."""

    def open(self, inbox: Inbox) -> None:
        super().open(inbox)
        self.request(0, "cpu", 1)


def test_it_is_an_allocation_as_any_other() -> None:
    check_allocation(lambda: Opened(LocalAllocation(cores=1), [LocalNodes(CPU)], LocalAllocation(grows=True)))
