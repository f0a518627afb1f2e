"""Slices under any sequence of requests, releases, losses and additions: nothing is owned twice, nothing leaks."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from slices_rig import Rig

from cantle.model.resources import Place
from cantle.model.slicing import Combination, choices_of, combination

JOBS = st.integers(1, 5)


@st.composite
def some_wants(draw: st.DrawFn) -> str:
    def one() -> str:
        terms = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=3))
        text = " + ".join(f"{count} x {width}" for count, width in terms)
        return f"{text}, at most {draw(st.integers(0, 4))}" if draw(st.booleans()) else text

    return " or ".join(one() for _ in range(draw(st.integers(1, 2))))


class Slices(RuleBasedStateMachine):
    """After each move the rig counts everything by hand; at the end everything is given back and everything is free."""

    def __init__(self) -> None:
        super().__init__()
        self.wants: dict[int, tuple[Combination, ...]] = {}
        self.closing: list[int] = []

    @initialize(
        nodes=st.integers(1, 9),
        cores=st.integers(1, 5),
        slices=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=4),
        cap=st.integers(0, 4),
        patience_s=st.sampled_from([0.5, 3.0, 1e6]),
        slow=st.booleans(),
        files=st.booleans(),
    )
    def begin(
        self,
        nodes: int,
        cores: int,
        slices: list[tuple[int, int, int]],
        cap: int,
        patience_s: float,
        slow: bool,
        files: bool,
    ) -> None:
        text = ", ".join(f"{c} x {w}" + (f" / {share}" if share else "") for c, w, share in slices)
        more = {"transfer_s": lambda job, on: float((job * 7 + on[0]) % 3)} if files else {}
        self.rig = Rig(nodes, cores, text, cap, patience_s, slow, **more)
        self.gone_nodes = 0

    # What jobs do

    @rule(job=JOBS, wants=some_wants())
    def ask(self, job: int, wants: str) -> None:
        self.rig.ask(job, wants)
        self.wants[job] = choices_of(wants)

    @rule(job=JOBS)
    def withdraw(self, job: int) -> None:
        for element in self.rig.broker.withdraw(job):
            self.rig.close(element.number)
            self.closing.append(element.number)
        self.wants.pop(job, None)

    @rule(data=st.data(), how=st.sampled_from(["park", "close", "end of a task"]))
    def let_go(self, data: st.DataObject, how: str) -> None:
        numbers = list(self.rig.ledger.elements)
        if not numbers:
            return
        number = data.draw(st.sampled_from(numbers))
        if how == "end of a task":
            how = self.rig.broker.leaves(number)
        if how == "park":
            element = self.rig.ledger.elements[number]
            may = element.status == "held" and not element.lost and not element.copy.draining
            assert self.rig.park(number) == may
        elif how == "close":
            self.rig.close(number)
            self.closing.append(number)

    @rule(seconds=st.sampled_from([0.0, 0.4, 2.0, 5.0]))
    def turn(self, seconds: float) -> None:
        before = {job: self.rig.held(job) for job in self.wants}
        grants = self.rig.later(seconds)
        for job in {grant.job for grant in grants}:
            self.within(job, before[job], [len(g.nodes) for g in grants if g.job == job])
        assert self.rig.turn() == [], "one pass grants everything that there is"

    def within(self, job: int, before: dict[int, int], granted: list[int]) -> None:
        """What was granted is a part of one of the combinations that the job wants."""
        held = self.rig.held(job)
        most: dict[int, int] = {}
        for choice in self.wants[job]:
            for width, n in choice.widths:
                most[width] = max(most.get(width, 0), n)
        fitting = []
        for choice in self.wants[job]:
            counts = dict(choice.widths)
            total = sum(held.get(width, 0) for width in counts)
            fitting.append(
                all(width in counts and held[width] <= counts[width] for width in granted)
                and not any(width in most and width not in counts for width in before)
                and all(min(n, most[width]) <= counts[width] for width, n in before.items() if width in counts)
                and (choice.at_most is None or total <= choice.at_most)
            )
        assert any(fitting), f"{before} and {granted} for {self.wants[job]}"

    # What the world does

    @precondition(lambda self: self.rig.slow)
    @rule(data=st.data())
    def a_closed_one_is_gone(self, data: st.DataObject) -> None:
        closing = [n for n, e in self.rig.ledger.elements.items() if e.status == "closing"]
        if closing:
            assert self.rig.gone(data.draw(st.sampled_from(closing)))

    @rule(data=st.data())
    def late(self, data: st.DataObject) -> None:
        old = [n for n in self.closing if n not in self.rig.ledger.elements]
        if old:
            number = data.draw(st.sampled_from(old))
            assert not self.rig.gone(number) and not self.rig.park(number)

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        alive = [n for n in range(len(self.rig.room.nodes)) if self.rig.room.alive >> n & 1]
        if len(alive) > 1 and self.gone_nodes < 3:
            self.gone_nodes += 1
            node = data.draw(st.sampled_from(alive))
            for element in self.rig.lose(node):
                assert node in element.nodes

    @rule(cores=st.integers(1, 5))
    def add(self, cores: int) -> None:
        if len(self.rig.room.nodes) < 12:
            self.rig.add(cores)

    @rule(data=st.data())
    def others_take(self, data: st.DataObject) -> None:
        room = self.rig.room
        free = [n for n in range(len(room.nodes)) if room.alive >> n & 1 and room.free_cores[n]]
        if free:
            node = data.draw(st.sampled_from(free))
            mask = room.free_cores[node]
            self.rig.taken_outside(node, mask & -mask)

    @rule(data=st.data())
    def others_give(self, data: st.DataObject) -> None:
        if self.rig.outside:
            self.rig.given_outside(data.draw(st.sampled_from(self.rig.outside)))

    @invariant()
    def everything_is_counted(self) -> None:
        if hasattr(self, "rig"):
            self.rig.check()
            rotation = self.rig.broker.rotation
            draining = [copy for copy in self.rig.ledger.active.values() if copy.draining]
            assert draining in ([], [rotation.draining])
            assert not draining or rotation.waiter is not None

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        rig = self.rig
        for job in list(self.wants):
            rig.broker.withdraw(job)
        for number in list(rig.ledger.elements):
            assert rig.gone(number)
        for place in list(rig.outside):
            rig.given_outside(place)
        assert rig.active() == {} and rig.ledger.held == {} and not any(rig.ledger.ours.values())
        room = rig.room
        for n, node in room.nodes.items():
            assert not room.alive >> n & 1 or room.free_cores[n] == (1 << node.cores) - 1
        # Whatever has happened, a job alone gets what the nodes and slices allow.
        for width, slices in rig.ledger.of_width.items():
            cuts = rig.ledger.cuts
            possible = any(cuts.elements(s) for s in slices)
            rig.ask(99, f"1 x {width}")
            granted = rig.turn()
            assert len(granted) == possible, f"width {width}"
            for grant in granted:
                assert isinstance(grant.places[0], Place)
            for number in rig.of(99):
                rig.gone(number)


TestSlices = Slices.TestCase
TestSlices.settings = settings(max_examples=120, stateful_step_count=40)


def test_a_combination_adds_up_what_is_listed_twice() -> None:
    assert combination((50, 1), (400, 2), (50, 2), at_most=4) == Combination(((50, 3), (400, 2)), 4)
