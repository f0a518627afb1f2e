"""Short tasks stand in line behind each other, so that no core waits for an answer; and nobody suffers for it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from plots import LARGE, Plot, QuickPlot, Witness, begin, fates, go_on, mishaps, quick_plots, resume, world_of

from builders import Job, job
from cantle.core.decide import Decider
from cantle.core.phases import Phase
from cantle.core.queues import KNOWN_AFTER, LONGEST_LINE, MOMENT_S
from cantle.core.state import State
from cantle.model.records import AnyRecord, Launch, TaskEnded
from cantle.model.resources import Needs, Node
from cantle.runtime.simulated import Fate

INSTANT = Fate(0.001)


def told(plot: Plot) -> Witness:
    state = begin(plot)
    go_on(state, world_of(plot, state, plot.mishaps))
    return state


def in_line(state: Witness) -> list[Launch]:
    return [r for r in state.records if isinstance(r, Launch) and r.behind is not None]


def test_short_tasks_stand_in_line_once_it_is_known_that_they_are_short() -> None:
    state = told(Plot([job(f"t{i}") for i in range(300)], [(0.0, [Node("n", 2)])], [INSTANT]))
    assert state.succeeded
    first = next(i for i, r in enumerate(state.records) if isinstance(r, Launch) and r.behind is not None)
    assert sum(isinstance(r, TaskEnded) for r in state.records[:first]) >= KNOWN_AFTER
    assert len(in_line(state)) > 200
    assert max(r.time for r in state.records) < 0.2, "two cores are never idle"


def test_long_tasks_never_stand_in_line() -> None:
    state = told(Plot([job(f"t{i}") for i in range(60)], [(0.0, [Node("n", 2)])], [Fate(2 * MOMENT_S)]))
    assert state.succeeded and not in_line(state)


def test_tasks_that_are_expected_to_be_long_never_stand_in_line() -> None:
    state = told(Plot([job(f"t{i}", estimate_s=60.0) for i in range(60)], [(0.0, [Node("n", 2)])], [INSTANT]))
    assert state.succeeded and not in_line(state)


def test_tasks_with_streams_neither_stand_in_line_nor_have_one_behind_them() -> None:
    jobs = [job(f"t{i}", streams=2 * (i % 10 == 0)) for i in range(300)]
    state = told(Plot(jobs, [(0.0, [Node("n", 2)])], [INSTANT]))
    lined_up = {r.task for r in in_line(state)} | {r.behind for r in in_line(state)}
    assert state.succeeded and lined_up
    assert not [number for number in lined_up if number is not None and state.step_of(number).streams]


def test_nobody_waits_behind_a_task_that_turns_out_to_be_long() -> None:
    class Surprise(Plot, frozen=True):
        def fate(self, task: int, attempt: int) -> Fate:
            return Fate(100.0) if task == 100 else INSTANT

    plot = Surprise([job(f"t{i}") for i in range(300)], [(0.0, [Node("n", 2)])], [])
    state = begin(plot)
    world = world_of(plot, state)
    # as a runner does: it tells that an attempt has started when that has run for a moment
    world.tell_starts_after_s = MOMENT_S
    go_on(state, world)
    late = [r.task for r in state.records if isinstance(r, TaskEnded) and r.outcome == "done" and r.time > 99]
    assert state.succeeded and late == [100]
    assert any(isinstance(r, TaskEnded) and r.outcome == "interrupted" for r in state.records), "the line was dissolved"


def test_lines_end_before_a_more_urgent_kind_of_task_that_needs_the_room() -> None:
    jobs = [job(f"t{i}") for i in range(400)]
    jobs += [job("wide", "t40", needs=Needs(cores=2), priority=5.0)]
    state = told(Plot(jobs, [(0.0, [Node("n", 2)])], [INSTANT]))
    ended = [state.tasks[r.task].name for r in state.records if isinstance(r, TaskEnded)]
    assert state.succeeded
    assert ended.index("wide") < 40 + 2 + 5 * LONGEST_LINE, "what stood in line goes before it, and not much more"


def test_the_last_tasks_are_shared_out_and_not_lined_up() -> None:
    state = told(Plot([job(f"t{i}") for i in range(32)], [(0.0, [Node("n", 8)])], [INSTANT]))
    assert state.succeeded
    assert max(r.time for r in state.records) <= 0.0061


def test_a_chain_of_short_tasks_is_launched_ahead_of_time_and_none_waits_for_an_answer() -> None:
    jobs = [job("t0"), *(job(f"t{i}", f"t{i - 1}") for i in range(1, 200))]
    state = told(Plot(jobs, [(0.0, [Node("n", 2)])], [INSTANT]))
    assert state.succeeded and set(state.attempts) == {1}
    assert len(in_line(state)) == 199 - KNOWN_AFTER
    turns = len({r.time for r in in_line(state)})
    assert turns <= 2 * 200 / LONGEST_LINE, "half a line is launched at a time"


def test_a_chain_whose_task_turns_out_to_be_long_goes_on_when_that_is_done() -> None:
    class Surprise(Plot, frozen=True):
        def fate(self, task: int, attempt: int) -> Fate:
            return Fate(100.0) if task == 50 else INSTANT

    jobs = [job("t0"), *(job(f"t{i}", f"t{i - 1}") for i in range(1, 100))]
    state = told(Surprise(jobs, [(0.0, [Node("n", 1)])], [], tell_starts_after_s=MOMENT_S))
    assert state.succeeded
    back = [r for r in state.records if isinstance(r, TaskEnded) and r.outcome == "interrupted"]
    assert back and {r.task for r in back} == set(range(51, 51 + len(back)))
    assert all(abs(r.time - back[0].time) < 1e-9 and r.time < 1 for r in back), (
        "they are taken back, and come back at once"
    )


class Steady(QuickPlot, frozen=True):
    """A task's fate is the same in each attempt."""

    def fate(self, task: int, attempt: int) -> Fate:
        return super().fate(task, 1)


@given(quick_plots(may_go_wrong=False))
@settings(max_examples=100, deadline=None)
def test_with_lines_and_without_them_the_same_tasks_succeed(plot: Plot) -> None:
    their_own = ("done", "failed", "timeout", "memory")
    steady = [fate if fate.outcome in their_own else Fate(fate.duration_s, "failed") for fate in plot.fates]
    plot = Steady(plot.jobs, plot.nodes, steady, tell_starts_after_s=plot.tell_starts_after_s)
    ends = []
    for lines in (True, False):
        state = begin(plot)
        go_on(state, world_of(plot, state), Decider(lines=lines))
        over(state)
        ends.append(state.phases)
    assert ends[0] == ends[1]


@given(st.data())
@settings(max_examples=60)
def test_whatever_happens_lines_keep_the_rules_and_lose_nobody(data: st.DataObject) -> None:
    jobs: list[Job] = [job(f"t{i}", retries=1) for i in range(60)]
    jobs += [job("last", after=" ".join(f"t{i}" for i in range(60)))]
    few = data.draw(st.lists(mishaps(len(jobs), 3), max_size=4))
    scale = data.draw(st.sampled_from([0.001, 0.002, 0.01]))
    drawn = data.draw(fates)
    plot = Plot(
        jobs,
        [(0.0, LARGE)],
        [INSTANT] * 12 + [Fate(fate.duration_s * scale, fate.outcome) for fate in drawn],
        mishaps=sorted((with_time(event, event.time * scale / 4) for event in few), key=lambda event: event.time),
    )
    state = begin(plot)
    go_on(state, world_of(plot, state, plot.mishaps))
    over(state)
    resume(plot, state)
    assert state.succeeded or state.totals[Phase.FAILED] or state.totals[Phase.TIMEDOUT] or state.totals[Phase.CANCELED]


def over(state: State) -> None:
    assert not state.running and not any(queue.short_lines for queue in state.queues)
    assert not state.lines


def with_time(event: AnyRecord, time: float) -> AnyRecord:
    from msgspec.structs import replace

    return replace(event, time=time)
