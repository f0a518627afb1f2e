"""Studies whose tasks choose their widths, told through the core and the simulated world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest

from builders import CheckedState, nodes
from cantle.core.decide import Decider
from cantle.core.packing import best_fit, first_fit, spread
from cantle.core.phases import Phase
from cantle.core.plan import Plan, Policy
from cantle.core.state import State
from cantle.core.widths import books
from cantle.core.widths.graph import Graph
from cantle.core.widths.robust import Course
from cantle.model.records import AnyRecord, CancelAsked, Decision, Launch, NodeLost, NodesJoined, StudyAdded, TasksAdded
from cantle.model.resources import Needs, Node
from cantle.model.study import Limits, Step, Task
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld


def moldable(name: str, *times: float, cores: int = 1) -> Step:
    """On 1, 2, 4 ... nodes it takes so long."""
    widths = tuple(2**i for i in range(len(times)))
    return Step(name, Needs(cores=cores), widths=widths, times_s=times)


class Told:
    """A run of one study to its end, each record checked: what was launched, and when all was over."""

    def __init__(
        self,
        steps: Sequence[Step],
        tasks: Sequence[Task],
        on: list[Node] | list[tuple[float, list[Node]]],
        *,
        really: dict[str, dict[int, float]] | None = None,
        packer: Policy = best_fit,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        events: Iterable[AnyRecord] = (),
        seed: int = 0,
        jitter: float = 0.0,
        retried: frozenset[int] = frozenset(),
    ) -> None:
        """`really`: by step and width how long it takes, where that is not what is declared."""
        self.state = CheckedState()
        state = self.state
        state.apply(StudyAdded(0.0, "study", list(steps), limits=limits))
        state.apply(TasksAdded(0.0, 0, list(tasks)))

        def fate(task: int, attempt: int) -> Fate:
            step = state.step_of(task)
            width = len(state.running[task].on)
            if really is not None and step.name in really:
                seconds = really[step.name][width]
            elif step.widths:
                seconds = step.times_s[step.widths.index(width)]
            else:
                seconds = tasks[task].estimate_s
            return Fate(seconds, "failed" if task in retried and attempt == 1 else "done")

        groups = [(0.0, on)] if isinstance(on[0], Node) else on
        self.world = SimulatedWorld(state, groups, fate, seed=seed, jitter=jitter)  # type: ignore[arg-type]
        for event in events:
            self.world.put(event)  # type: ignore[arg-type]
        run(state, self.world, NoLog(), Decider(packer))

    @property
    def launches(self) -> list[Launch]:
        return [record for record in self.state.records if isinstance(record, Launch)]

    @property
    def widths(self) -> list[int]:
        """On how many nodes each task's last attempt ran, by its number."""
        found = {launch.task: len(launch.on) for launch in self.launches}
        return [found[task] for task in sorted(found)]


def test_a_lone_task_gets_all_the_nodes_it_can_use() -> None:
    told = Told([moldable("a", 80, 44, 26)], [Task("a", 0, (), 80.0)], nodes(8))
    assert told.widths == [4] and told.state.now == 26


def test_o18_of_the_widths_that_a_task_lists_that_is_chosen_with_which_all_is_over_soonest() -> None:
    """O18: alone it goes as wide as it can; beside three others, which take as long as it does on one core, it stays narrow."""
    steps = [Step("wide", Needs(), widths=(1, 2, 4), times_s=(8.0, 5.0, 3.0)), Step("other", Needs())]
    alone = Told(steps, [Task("w", 0, (), 8.0)], nodes(4))
    assert alone.widths == [4] and alone.state.now == 3
    others = [Task(f"o{i}", 1, (), 8.0) for i in range(3)]
    beside = Told(steps, [Task("w", 0, (), 8.0), *others], nodes(4))
    assert beside.widths == [1, 1, 1, 1] and beside.state.now == 8


def test_many_tasks_run_narrow() -> None:
    told = Told([moldable("a", 80, 44, 26)], [Task(f"a{i}", 0, (), 80.0) for i in range(8)], nodes(4))
    assert told.widths == [1] * 8 and told.state.now == 160


def test_the_task_that_all_wait_for_goes_wide_and_those_after_it_narrow() -> None:
    steps = [moldable("first", 80, 40, 20), moldable("rest", 10, 6, 4)]
    tasks = [Task("first", 0, (), 80.0), *(Task(f"r{i}", 1, (0,), 10.0) for i in range(16))]
    told = Told(steps, tasks, nodes(4))
    assert told.widths == [4] + [1] * 16 and told.state.now == 60


def test_each_launch_says_how_wide_of_what_and_why() -> None:
    told = Told([moldable("a", 80, 44, 26)], [Task("a", 0, (), 80.0)], nodes(8))
    assert [launch.why for launch in told.launches] == ["on 4 of 1-4 nodes: as planned for the whole study"]


def test_without_any_duration_it_goes_by_what_is_ready_and_says_so() -> None:
    steps = [Step("a", widths=(1, 2))]
    told = Told(steps, [Task(f"a{i}", 0) for i in range(3)], nodes(2), really={"a": {1: 30.0, 2: 16.0}})
    assert told.launches[0].why.startswith("on 1 of 1-2 nodes: all that is ready or runs could be over in ")
    assert told.widths == [1, 1, 2], "two side by side; the last one alone takes both nodes"


def test_durations_that_were_seen_take_the_place_of_guesses() -> None:
    steps = [Step("a", widths=(1, 2, 4)), moldable("b", 9, 9, 9)]
    tasks = [Task(f"a{i}", 0) for i in range(12)]
    told = Told(steps, tasks, nodes(4), really={"a": {1: 10.0, 2: 10.0, 4: 10.0}})
    means = told.state.observed[0].means
    assert means["a", 1, False][1] == 10.0
    assert sum(n for n, _ in means.values()) == 12


def test_seen_durations_count_as_multiples_of_the_estimate_where_there_is_one() -> None:
    tasks = [Task("a", 0, (), 10.0), Task("b", 0, (0,), 20.0)]
    told = Told([Step("s", widths=(1,))], tasks, nodes(1), really={"s": {1: 30.0}})
    assert told.state.observed[0].means == {("s", 1, True): (2, pytest.approx((3.0 + 1.5) / 2))}


@pytest.mark.parametrize("packer", [best_fit, first_fit, spread])
def test_all_our_packers_choose_widths_and_place_in_their_own_way(packer: Policy) -> None:
    steps = [moldable("a", 80, 44, 26), Step("gang", Needs(nodes=3))]
    tasks = [Task("a", 0, (), 80.0), Task("g", 1, (0,), 5.0), *(Task(f"a{i}", 0, (1,), 80.0) for i in range(9))]
    told = Told(steps, tasks, [*nodes(3, 2), Node("big", 4)], packer=packer)
    assert told.state.succeeded
    assert told.widths[:2] == [4, 3]


def test_nodes_of_several_cores_hold_several_wide_tasks_side_by_side() -> None:
    told = Told([moldable("a", 80, 44, 26, cores=2)], [Task(f"a{i}", 0, (), 80.0) for i in range(2)], nodes(4, 4))
    assert told.widths == [4, 4] and told.state.now == 26


def test_a_width_that_no_longer_exists_is_not_waited_for() -> None:
    lost = [NodeLost(1.0, 3), NodeLost(1.0, 2)]
    told = Told([moldable("a", 80, 44, 26)], [Task("x", 0, (), 80.0), Task("a", 0, (0,), 80.0)], nodes(4), events=lost)
    assert told.state.succeeded and told.widths == [2, 2]


def test_nodes_that_come_later_are_used() -> None:
    tasks = [Task("x", 0, (), 80.0), Task("a", 0, (0,), 80.0)]
    told = Told([moldable("a", 80, 44, 26)], tasks, [(0.0, nodes(1)), (1.0, nodes(3))])
    assert told.widths[1] == 4
    late = Told([moldable("a", 80, 44, 26)], tasks, nodes(1), events=[NodesJoined(2.0, [Node("late", 8)])])
    assert late.widths == [1, 2]


def test_the_throttle_holds_for_wide_tasks_too() -> None:
    tasks = [Task(f"a{i}", 0, (), 80.0) for i in range(6)]
    told = Told([moldable("a", 80, 44, 26)], tasks, nodes(8), limits=Limits(throttle=2))
    running = 0
    for record in told.state.records:
        running += isinstance(record, Launch)
        running -= type(record).__name__ == "TaskEnded"
        assert running <= 2
    assert told.state.succeeded


def test_what_fails_is_tried_again_and_what_is_canceled_is_forgotten() -> None:
    step = Step("a", widths=(1, 2), times_s=(10.0, 6.0), retries=1)
    told = Told([step], [Task(f"a{i}", 0, (), 10.0) for i in range(4)], nodes(1), retried=frozenset({0}))
    assert told.state.succeeded and told.state.attempts[0] == 2
    canceled = Told([step], [Task(f"a{i}", 0, (), 10.0) for i in range(4)], nodes(1), events=[CancelAsked(5.0, [2])])
    assert canceled.state.phases[2] == Phase.CANCELED and canceled.state.totals[Phase.DONE] == 3


def test_a_task_that_is_at_least_wider_than_all_nodes_is_refused() -> None:
    told = Told([Step("a", Needs(nodes=4), widths=(4, 8))], [Task("a", 0, (), 10.0)], nodes(2))
    assert told.state.phases == [Phase.FAILED] and "only 2 nodes of 2" in told.state.cause_of[0]


def test_priority_of_the_user_goes_before_all_plans() -> None:
    steps = [moldable("a", 80, 44, 26), Step("urgent", priority=1.0)]
    tasks = [Task("a", 0, (), 80.0), Task("u", 1, (), 1.0)]
    told = Told(steps, tasks, nodes(1))
    assert [launch.task for launch in told.launches] == [1, 0]


def test_beside_another_study_widths_are_chosen_and_turns_taken_by_shares() -> None:
    state = CheckedState()
    state.apply(StudyAdded(0.0, "wide", [moldable("a", 80, 44, 26)]))
    state.apply(TasksAdded(0.0, 0, [Task(f"a{i}", 0, (), 80.0) for i in range(3)]))
    state.apply(StudyAdded(0.0, "plain", [Step("b")]))
    state.apply(TasksAdded(0.0, 3, [Task(f"b{i}", 1, (), 100.0) for i in range(4)], 1))
    world = SimulatedWorld(
        state,
        [(0.0, nodes(4))],
        lambda task, _: Fate(100.0 if task > 2 else (80.0, 44.0, 0, 26.0)[len(state.running[task].on) - 1]),
    )
    run(state, world, NoLog(), Decider())
    assert state.succeeded
    order = [record.task for record in state.records if isinstance(record, Launch)]
    assert order[:4] == [3, 0, 4, 1], "the longer one first, and then in turn"
    assert any(len(record.on) > 1 for record in state.records if isinstance(record, Launch))


def test_a_decider_made_anew_in_the_middle_goes_on_as_well() -> None:
    steps = [moldable("a", 80, 44, 26)]
    tasks = [Task(f"a{i}", 0, (i - 3,) if i > 2 else (), 80.0) for i in range(20)]
    state = CheckedState()
    state.apply(StudyAdded(0.0, "study", steps))
    state.apply(TasksAdded(0.0, 0, tasks))
    world = SimulatedWorld(
        state, [(0.0, nodes(4))], lambda task, _: Fate(steps[0].times_s[len(state.running[task].on) // 2])
    )
    from cantle.runtime.loop import turn

    while not state.finished:
        turn(state, world, NoLog(), Decider(), world.wait())
    assert state.succeeded


def test_the_same_study_is_told_the_same_way_again() -> None:
    steps = [moldable("a", 80, 44, 26), Step("b", widths=(1, 3)), Step("c")]
    tasks = [Task(f"t{i}", i % 3, tuple({i - 1, i // 2} - {i}) if i % 4 else (), float(i % 7)) for i in range(60)]
    real = {"b": {1: 7.0, 3: 3.0}, "c": {1: 2.0}}
    first = Told(steps, tasks, nodes(6), really=real, seed=3, jitter=0.3)
    second = Told(steps, tasks, nodes(6), really=real, seed=3, jitter=0.3)
    assert first.state.records == second.state.records


def test_a_study_without_widths_leaves_no_books() -> None:
    state = State()
    state.apply(StudyAdded(0.0, "plain", [Step("a")]))
    assert not state.observed


@pytest.mark.parametrize("throttle", [0, 3])
def test_the_books_say_of_every_task_what_is_true_after_every_pass(throttle: int) -> None:
    passes = 0

    def watched(plan: Plan) -> Iterator[Decision]:
        nonlocal passes
        yield from best_fit(plan)
        [books] = plan.memory["widths", -1].values()
        state = plan.state
        for task, phase in enumerate(state.phases):
            assert (task in books.dispatch) == (phase == Phase.READY)
        assert set(books._running) == set(books.dispatch._running) == set(state.running)
        passes += 1

    steps = [Step("a", widths=(1, 2, 4), times_s=(80, 44, 26), retries=1), Step("gang", Needs(nodes=3))]
    tasks = [Task(f"t{i}", i % 5 == 4, (i - 5, i - 7) if i > 6 else (), float(20 + i)) for i in range(60)]
    told = Told(
        steps,
        tasks,
        nodes(6),
        packer=watched,
        limits=Limits(throttle=throttle),
        really={"a": {1: 30.0, 2: 17.0, 4: 9.0}, "gang": {3: 8.0}},
        retried=frozenset({0, 3, 8}),
        events=[CancelAsked(40.0, [57]), NodeLost(60.0, 5), NodesJoined(90.0, [Node("late", 1)])],
        jitter=0.3,
    )
    assert told.state.totals[Phase.DONE] + told.state.totals[Phase.CANCELED] == 60
    assert passes > 60


def test_the_course_is_set_again_when_a_fifth_of_the_rest_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    plan = books.course

    def counted(graph: Graph, slots: int) -> Course:
        left.append(len(graph))
        return plan(graph, slots)

    monkeypatch.setattr(books, "course", counted)
    Told([moldable("a", 8, 5, 3)], [Task(f"a{i}", 0, (i - 1,) if i else (), 8.0) for i in range(20)], nodes(4))
    assert left == [20, 16, 12, 9, 7, 5, 4, 3, 2, 1]
