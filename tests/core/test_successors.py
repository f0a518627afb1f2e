"""Short tasks' successors are launched ahead of time, and whatever becomes of the one before, they end as they would have."""

from __future__ import annotations

from typing import Any

import pytest

from builders import FIRST, Job, QuickStory, Story, chain, job, node
from cantle.core.explain import explain
from cantle.core.phases import Phase
from cantle.core.queues import LONGEST_LINE
from cantle.errors import CantleBug
from cantle.model.records import Launch, NodeLost, Stop
from cantle.model.resources import Place
from cantle.model.study import Limits

ONE_CORE = (Place(0, "0", ""),)


def in_line(*jobs: Job, **rest: Any) -> QuickStory:
    """A story in which a runs, and b, c and d stand in line behind it."""
    story = QuickStory(*(jobs or chain("a", "b", "c", "d")), **rest)
    assert story.launches() == ["a", "b", "c", "d"]
    return story


# Who is launched ahead of time


def test_the_chain_behind_a_short_task_is_launched_with_it() -> None:
    story = in_line()
    a, b, c = (story.number_of[name] for name in "abc")
    assert story.launch_of("a").behind is None
    launches = [story.launch_of(name) for name in "bcd"]
    assert [(launch.behind, launch.if_done) for launch in launches] == [(a, 1), (b, 1), (c, 1)]
    assert {launch.on for launch in launches} == {ONE_CORE}
    assert story.rest() == dict.fromkeys("abcd", "launched")


def test_a_task_that_waits_for_another_cannot_be_launched_but_to_follow_it() -> None:
    story = Story(job("a"), job("b", "a"), on=[node()])
    assert story.launches() == ["a"], "nobody knows that it is short"
    with pytest.raises(CantleBug, match="WAITING cannot launch"):
        story.happens(Launch(story.state.now, story.number_of["b"], 1, ONE_CORE, behind=story.number_of["a"]))


def test_the_chain_runs_through_and_is_launched_once() -> None:
    names = [f"t{i}" for i in range(3 * LONGEST_LINE)]
    story = QuickStory(*chain(*names))
    while not story.state.finished:
        story.decides()
        story.end(story.name(next(iter(story.state.running))))
    assert set(story.rest().values()) == {"done"}
    assert all(story.attempt(name) == 1 for name in names)
    ahead = [r for r in story.records if isinstance(r, Launch) and r.if_done]
    assert len(ahead) == len(names) - 1


def test_a_line_is_as_long_as_a_moment_and_filled_up_when_half_of_it_is_over() -> None:
    story = QuickStory(*chain(*(f"t{i}" for i in range(60))))
    assert len(story.launches()) == 1 + LONGEST_LINE
    for i in range(LONGEST_LINE // 2 - 1):
        story.end(f"t{i}")
        assert not story.launches()
    story.end(f"t{LONGEST_LINE // 2 - 1}")
    assert len(story.launches()) == LONGEST_LINE // 2


def test_nobody_is_launched_ahead_of_time_while_anything_is_ready() -> None:
    story = QuickStory(*chain("a", "b"), job("other", FIRST, priority=-1.0))
    assert story.launches() == ["a"]
    assert story.rest() == {"a": "launched", "b": "waiting", "other": "ready"}


def test_nobody_is_launched_ahead_of_time_behind_tasks_that_take_longer() -> None:
    story = Story(*(job(name) for name in FIRST.split()), *chain("a", "b"), on=[node()])
    story.runs_through(*FIRST.split())
    assert story.launches() == ["a"]


@pytest.mark.parametrize(
    ("second", "_who"),
    [
        (job("b", "a x"), "it waits for another one, too"),
        (job("b", after="a"), "it only waits for an end, however that may be"),
        (job("b", "a", after="a"), "it needs the one before, and waits for its end as well"),
        (job("b", "a", cores=2), "it is of another kind"),
        (job("b", "a", estimate_s=60.0), "it is expected to take long"),
        (job("b", "a", widths=(1, 2)), "its width is not chosen yet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nobody_is_launched_ahead_of_time_of_whom_it_holds_that(second: Job, _who: str) -> None:
    story = QuickStory(job("x", FIRST, cores=2), *chain("a"), second, on=node(cores=3))
    assert sorted(story.launches()) == ["a", "x"]
    assert story.phase("b") == Phase.WAITING


def test_who_waits_for_two_is_launched_ahead_of_time_when_one_of_them_is_done() -> None:
    story = QuickStory(job("x", FIRST), *chain("a"), job("b", "a x"), on=node(cores=2))
    assert sorted(story.launches()) == ["a", "x"]
    story.end("x")
    assert story.launches() == ["b"]
    assert story.launch_of("b").behind == story.number_of["a"]


def test_of_several_the_most_urgent_is_launched_ahead_of_time() -> None:
    story = QuickStory(
        *chain("a"), job("b", "a"), job("c", "a"), job("below c", "c", estimate_s=5.0), job("d", "a"), on=node()
    )
    assert story.launches() == ["a", "c"]


def test_of_many_nobody_is_since_one_message_serves_them_all() -> None:
    story = QuickStory(*chain("a"), *(job(f"b{i}", "a") for i in range(LONGEST_LINE + 1)))
    assert story.launches() == ["a"]


def test_the_throttle_holds_for_those_in_line_as_well() -> None:
    story = QuickStory(*chain("a", "b", "c", "d"), limits=Limits(throttle=2))
    assert story.launches() == ["a", "b"]


def test_an_engine_that_keeps_no_lines_is_given_none() -> None:
    story = QuickStory(*chain("a", "b"))
    story.decider.lines = False
    assert story.launches() == ["a"]


def test_a_pass_that_finds_nobody_decides_nothing() -> None:
    story = in_line()
    story.limit(Limits())
    assert story.decides() == []


# What becomes of them


def test_a_failure_skips_who_stood_in_line_behind_it_and_names_the_cause() -> None:
    story = in_line()
    story.end("a")
    story.ends("failed", "b")
    assert story.rest() == {"a": "done", "b": "failed", "c": "launched", "d": "launched"}
    assert story.decides() == [], "nobody is launched behind those that are about to come back"
    story.ends("interrupted", "c", "d")
    assert story.rest() == {"a": "done", "b": "failed", "c": "skipped", "d": "skipped"}
    assert story.cause("c") == story.cause("d") == "b did not succeed"
    assert [story.attempt(name) for name in "abcd"] == [1, 1, 1, 1]
    assert story.state.finished


def test_nobody_is_launched_behind_a_long_line_that_is_about_to_come_back() -> None:
    names = [f"t{i}" for i in range(40)]
    story = QuickStory(*chain(*names))
    launched = story.launches()
    for name in launched[: LONGEST_LINE // 2]:
        story.end(name, "done" if name != launched[LONGEST_LINE // 2 - 1] else "failed")
    assert story.decides() == []
    story.ends("interrupted", *launched[LONGEST_LINE // 2 :])
    assert {story.phase(name) for name in names[LONGEST_LINE // 2 :]} == {Phase.SKIPPED}


def test_nobody_is_launched_behind_one_in_line_whose_turn_does_not_come() -> None:
    story = QuickStory(*chain("a", "b", "c", "d"), limits=Limits(throttle=3))
    assert story.launches() == ["a", "b", "c"]
    story.cancel("b")
    story.decides()
    story.ends("canceled", "b")
    assert story.decides() == []
    assert told(story, "c").endswith("It does not begin, since b did not succeed, and is about to be taken back.")
    story.ends("interrupted", "c")
    assert story.rest() == {"a": "launched", "b": "canceled", "c": "canceled", "d": "canceled"}


def test_a_failure_that_is_tried_again_lets_them_wait_for_the_next_attempt() -> None:
    story = in_line(*chain("a", "b", "c", "d", retries=1))
    story.ends("failed", "a")
    story.ends("interrupted", "b", "c", "d")
    assert story.rest() == {"a": "ready", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert story.launches() == ["a", "b", "c", "d"]
    assert story.launch_of("b").if_done == story.attempt("a") == 2
    assert not any(story.state.faults.get(story.number_of[name]) for name in "bcd")
    story.runs_on()
    assert set(story.rest().values()) == {"done"}


def test_who_comes_back_when_the_next_attempt_is_done_already_is_ready() -> None:
    story = in_line(*chain("a", "b", "c", "d", retries=1), on=node(cores=2))
    story.ends("failed", "a")
    assert story.launches() == ["a"]
    story.end("a")
    assert story.phase("b") == Phase.LAUNCHED
    story.ends("interrupted", "b", "c", "d")
    assert story.rest() == {"a": "done", "b": "ready", "c": "waiting", "d": "waiting"}


def test_a_timeout_that_is_restarted_lets_them_wait() -> None:
    story = in_line(*chain("a", "b", "c", "d", restartable=True))
    story.ends("timeout", "a")
    story.ends("interrupted", "b", "c", "d")
    assert story.rest() == {"a": "ready", "b": "waiting", "c": "waiting", "d": "waiting"}
    story.launches()
    assert story.launch_of("a").restart and not story.launch_of("b").restart


def test_canceling_the_one_before_cancels_those_in_line() -> None:
    story = in_line()
    story.cancel("a")
    assert [type(d) for d in story.decides()] == [Stop]
    story.ends("canceled", "a")
    story.ends("interrupted", "b", "c", "d")
    assert story.rest() == dict.fromkeys("abcd", "canceled")


def test_canceling_one_in_line_cancels_what_is_below_it_and_nothing_else() -> None:
    story = in_line()
    story.cancel("b")
    [stop] = story.decides()
    assert type(stop) is Stop and stop.task == story.number_of["b"]
    story.ends("canceled", "b")
    story.ends("interrupted", "c", "d")
    assert story.rest() == {"a": "launched", "b": "canceled", "c": "canceled", "d": "canceled"}
    assert story.decides() == []
    story.end("a")
    assert story.phase("a") == Phase.DONE and story.state.finished


def test_a_cancel_that_crosses_the_word_of_its_return_is_not_forgotten() -> None:
    story = in_line(*chain("a", "b", "c", "d", retries=1))
    story.cancel("b")
    story.decides()
    story.ends("failed", "a")
    story.ends("interrupted", "b", "c", "d")
    assert story.rest() == {"a": "ready", "b": "canceled", "c": "canceled", "d": "canceled"}


def test_fail_fast_skips_who_stands_in_line() -> None:
    jobs = [job("x", FIRST, cores=2), *chain("a", "b", "c", "d")]
    story = QuickStory(*jobs, on=node(cores=3), limits=Limits(fail_fast=True))
    assert sorted(story.launches()) == ["a", "b", "c", "d", "x"]
    story.ends("failed", "x")
    asked = {story.name(d.task): d.outcome for d in story.decides() if type(d) is Stop}
    assert asked == {"a": "canceled", "b": "interrupted", "c": "interrupted", "d": "interrupted"}
    story.ends("interrupted", "b", "c", "d")
    story.ends("canceled", "a")
    assert story.rest() == {"x": "failed", "a": "canceled", "b": "skipped", "c": "skipped", "d": "skipped"}
    assert story.cause("b") == "x failed, and --fail-fast was given"


def test_with_fail_fast_the_one_before_may_be_what_fails() -> None:
    story = in_line(limits=Limits(fail_fast=True))
    story.ends("failed", "a")
    story.decides()
    story.ends("interrupted", "b", "c", "d")
    assert story.rest() == {"a": "failed", "b": "skipped", "c": "skipped", "d": "skipped"}


def test_after_fail_fast_nobody_who_was_sent_back_before_is_launched() -> None:
    jobs = [job("x", FIRST, cores=2), *(job(f"t{i}", FIRST) for i in range(8))]
    story = QuickStory(*jobs, on=node(cores=3), limits=Limits(fail_fast=True))
    story.decides()
    owner = next(name for name in story.rest() if story.state.lines.get(story.number_of[name]) is not None)
    line = story.state.lines[story.number_of[owner]]
    waiting = [story.name(task) for task in line.waiting]
    story.start(story.name(line.owner))
    story.decides()
    story.ends("failed", "x")
    story.decides()
    story.ends("interrupted", *waiting)
    assert {story.phase(name) for name in waiting} == {Phase.SKIPPED}
    assert all(type(d) is not Launch for d in story.decides())


def test_a_lost_node_sends_all_back_and_blames_only_the_one_that_ran() -> None:
    story = in_line()
    story.lose("n0")
    assert story.rest() == {"a": "ready", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert story.state.losses == {story.number_of["a"]: 1}
    story.join(node("n1"))
    assert story.launches() == ["a", "b", "c", "d"]


def test_the_third_lost_node_fails_the_one_that_ran_and_skips_the_others() -> None:
    story = in_line()
    for name in ("n0", "n1"):
        story.lose(name)
        story.join(node(f"n{int(name[1]) + 1}"))
        story.decides()
    story.lose("n2")
    assert story.rest() == {"a": "failed", "b": "skipped", "c": "skipped", "d": "skipped"}


def test_a_node_lost_before_it_is_heard_that_one_in_line_never_began_is_not_its_fault() -> None:
    story = in_line(*chain("a", "b", "c", "d", retries=1))
    story.ends("failed", "a")
    story.happens(NodeLost(story.state.now, 0, "gone"))
    assert story.rest() == {"a": "ready", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert not story.state.losses.get(story.number_of["c"])


def test_a_stopped_run_ends_all_of_them_and_a_resumed_one_does_them() -> None:
    story = in_line()
    story.stop()
    assert [type(d) for d in story.decides()] == [Stop] * 4
    story.ends("interrupted", "b", "c", "d", "a")
    assert story.rest() == {"a": "ready", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert story.state.finished
    story.resume(on=[node()])
    story.runs_on()
    assert story.state.succeeded


def test_one_in_line_that_began_just_before_the_stop_counts() -> None:
    story = in_line()
    story.stop()
    story.decides()
    story.end("a")
    story.end("b")
    story.ends("interrupted", "c", "d")
    assert story.rest() == {"a": "done", "b": "done", "c": "ready", "d": "waiting"}


def test_a_conductor_that_dies_leaves_them_waiting_for_what_was_not_done() -> None:
    story = in_line()
    story.end("a")
    story.resume(on=[node()])
    assert story.rest() == {"a": "done", "b": "ready", "c": "waiting", "d": "waiting"}
    story.runs_on()
    assert story.state.succeeded


@pytest.mark.parametrize("retry", [True, False])
def test_a_conductor_that_dies_before_it_hears_that_they_never_began(retry: bool) -> None:
    story = in_line()
    story.ends("failed", "a")
    story.resume(retry=retry, on=[node()])
    a = "ready" if retry else "failed"
    others = dict.fromkeys("bcd", "waiting" if retry else "skipped")
    assert story.rest() == {"a": a, **others}


def test_what_changed_while_they_stood_in_line_runs_again_and_so_do_they() -> None:
    story = in_line()
    story.end("a")
    story.resume(on=[node()])
    story.change("a")
    assert story.rest() == {"a": "ready", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert story.launches() == ["a", "b", "c", "d"]
    story.runs_on()
    assert story.state.succeeded


def test_one_that_turns_out_to_run_long_has_nobody_behind_it_any_more() -> None:
    story = in_line()
    story.start("a")
    stops = story.decides()
    assert [(story.name(d.task), d.outcome) for d in stops if type(d) is Stop] == [
        (name, "interrupted") for name in "bcd"
    ]
    story.ends("interrupted", "b", "c", "d")
    assert story.rest() == {"a": "running", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert story.decides() == []
    story.end("a")
    assert story.launches()[0] == "b"


def test_what_cannot_be_started_is_not_at_fault_before_its_turn_and_not_tried_ahead_of_it_again() -> None:
    story = in_line()
    story.ends("unstartable", "b")
    story.ends("interrupted", "c", "d")
    assert story.rest() == {"a": "launched", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert story.decides() == []
    story.end("a")
    assert story.launches() == ["b", "c", "d"]
    story.ends("unstartable", "b")
    assert story.phase("b") == Phase.FAILED


# What is said of them


def told(story: Story, name: str) -> str:
    return " ".join(explain(story.state, story.number_of[name]))


def test_it_is_explained_whose_success_they_await() -> None:
    story = in_line()
    assert told(story, "b") == ("b stands in line behind a, attempt 1, on n0 (cores 0). It begins when a is done.")
    story.end("a")
    assert told(story, "b") == "b is being started, attempt 1, on n0 (cores 0)."
    assert "behind b" in told(story, "c")


def test_it_is_explained_why_one_does_not_begin_after_all() -> None:
    story = in_line()
    story.ends("failed", "a")
    assert "does not begin, since a did not succeed" in told(story, "b")
    story.ends("interrupted", "b", "c", "d")
    assert told(story, "b") == "b was skipped: a did not succeed. Its attempt 1 ended as interrupted."
