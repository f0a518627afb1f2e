"""Why does this task not run? One sentence test for each situation."""

from __future__ import annotations

import pytest

from builders import Story, job, node, nodes
from cantle.core.explain import explain
from cantle.model.records import Launch, Outcome
from cantle.model.resources import Needs
from cantle.model.study import Limits


def said(story: Story, name: str) -> list[str]:
    return explain(story.state, story.number_of[name])


def test_it_waits_for_its_parents() -> None:
    story = Story(job("a"), job("b"), job("c", "a b"), on=[node(cores=2)])
    story.launches()
    story.start("a")
    assert said(story, "c") == ["c is waiting.", "It waits for 2 tasks to succeed: a (running), b (launched)."]
    story.end("a")
    assert said(story, "c") == ["c is waiting.", "It waits for 1 task to succeed: b (launched)."]


def test_it_waits_for_others_to_be_over() -> None:
    story = Story(job("a"), job("b", after="a"), on=[node()])
    assert said(story, "b") == ["b is waiting.", "It waits for 1 task to be over: a (ready)."]


def test_of_many_parents_five_are_named() -> None:
    story = Story(*(job(f"p{i}") for i in range(8)), job("c", " ".join(f"p{i}" for i in range(8))))
    names = ", ".join(f"p{i} (ready)" for i in range(5))
    assert said(story, "c")[1] == f"It waits for 8 tasks to succeed: {names} and 3 more."


def test_there_is_no_room_for_it() -> None:
    story = Story(job("x", cores=3, priority=1), job("wide", cores=2), on=[node(cores=4), node("n1", 1)])
    story.launches()
    assert said(story, "wide") == ["wide is ready.", "It needs 2 cores; the freest node, n0, has 1 of 4 cores free."]


def test_the_freest_node_is_told_of_in_all_that_is_needed() -> None:
    needs = Needs(2, gpus=1, memory_mib=10, named=(("licence", 2),))
    the_node = node(cores=4, gpus=2, memory_mib=15, named=(("licence", 3),))
    story = Story(job("x", needs=needs, priority=1), job("y", needs=needs), on=[the_node])
    story.launches()
    assert said(story, "y")[1] == (
        "It needs 2 cores, 1 GPU, 10 MiB of memory, 2 licence; the freest node, n0, has 2 of 4 cores, 1 of 2 GPUs, "
        "5 of 15 MiB of memory, 1 licence free."
    )


def test_too_few_nodes_are_free_for_a_gang() -> None:
    story = Story(job("x", priority=1), job("gang", nodes=3), on=nodes(3))
    story.launches()
    assert said(story, "gang")[1] == "It needs 1 core on each of 3 nodes; 2 nodes of 3 have that much room now."
    story = Story(job("x", priority=1), job("y", priority=1), job("gang", nodes=3), on=nodes(3))
    story.launches()
    assert said(story, "gang")[1] == "It needs 1 core on each of 3 nodes; 1 node of 3 has that much room now."


def test_it_can_never_run_here() -> None:
    story = Story(job("wide", cores=9), on=[node(cores=2)])
    assert said(story, "wide") == [
        "wide is ready.",
        "It can never run here: it needs 9 cores; the largest node, n0 (2 cores), has 2 of 9 cores.",
    ]


def test_it_could_run_on_nodes_that_are_on_their_way() -> None:
    story = Story(job("wide", cores=9), on=[node(cores=2)])
    story.await_nodes(2)
    assert said(story, "wide")[1] == (
        "It needs 9 cores; the largest node, n0 (2 cores), has 2 of 9 cores; but 2 nodes more on the way may change that."
    )


def test_there_is_no_node_yet() -> None:
    story = Story(job("a"))
    story.await_nodes(1)
    assert said(story, "a")[1] == "It needs 1 core; no node is there yet, but 1 node is on the way."


def test_the_throttle_holds_it_back() -> None:
    story = Story(job("a"), job("b"), on=[node(cores=4)], limits=Limits(throttle=1))
    story.launches()
    assert said(story, "b") == ["b is ready.", "The throttle lets 1 task run at once, and 1 does."]
    story.limit(Limits(throttle=2))
    story.launches()
    story.limit(Limits(throttle=2))
    assert said(story, "b") == ["b is being started, attempt 1, on n0 (cores 1)."]


def test_the_throttle_of_many_is_told_in_the_plural() -> None:
    story = Story(*(job(n) for n in "abc"), on=[node(cores=4)], limits=Limits(throttle=2))
    story.launches()
    assert said(story, "c")[1] == "The throttle lets 2 tasks run at once, and 2 do."


def test_others_go_before_it() -> None:
    story = Story(*(job(n) for n in "abcd"), on=[node()])
    story.launches()
    full = "It needs 1 core; the freest node, n0, has 0 of 1 cores free."
    assert said(story, "b") == ["b is ready.", full]
    assert said(story, "c") == ["c is ready.", full, "1 task with the same needs goes before it."]
    assert said(story, "d") == ["d is ready.", full, "2 tasks with the same needs go before it."]


def test_it_will_be_started_at_once() -> None:
    assert said(Story(job("a"), on=[node()]), "a") == ["a is ready.", "It will be started in the next moment."]


def test_the_run_was_stopped() -> None:
    story = Story(job("a"), on=[node()])
    story.stop("Ctrl-C")
    assert said(story, "a")[1] == "Nothing is started any more, since the run was stopped: Ctrl-C."


def test_it_runs() -> None:
    story = Story(job("a", cores=2, gpus=1), on=[node(cores=4, gpus=1)])
    story.launches()
    story.start("a")
    assert said(story, "a") == ["a runs, attempt 1, on n0 (cores 0-1, GPUs 0)."]
    story.cancel("a")
    story.decides()
    assert said(story, "a") == ["a runs, attempt 1, on n0 (cores 0-1, GPUs 0). It is being ended: canceled."]


def test_a_wide_gang_names_five_nodes() -> None:
    story = Story(job("gang", nodes=7), on=nodes(7))
    story.launches()
    assert said(story, "gang")[0].endswith("n4 (cores 0) and 2 more.")


def test_it_runs_where_nobody_knows() -> None:
    story = Story(job("a"), on=[node()])
    story.happens(Launch(2.0, 0, 1, ()))
    assert said(story, "a") == ["a is being started, attempt 1, on unknown nodes."]


def test_it_is_done() -> None:
    story = Story(job("a"), on=[node()])
    story.runs_through("a")
    assert said(story, "a") == ["a is done, in attempt 1."]


def test_it_is_done_after_a_retry() -> None:
    story = Story(job("a", retries=2), on=[node()])
    story.launches()
    story.end("a", "failed")
    story.runs_through("a")
    assert said(story, "a") == ["a is done, in attempt 2.", "1 of 2 retries used."]


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        ("failed", "a failed: exit code 3."),
        ("memory", "a failed: exit code 3."),
        ("timeout", "a timed out: exit code 3."),
    ],
)
def test_it_failed(outcome: Outcome, sentence: str) -> None:
    story = Story(job("a"), on=[node()])
    story.launches()
    story.end("a", outcome, detail="exit code 3")
    assert said(story, "a") == [sentence, f"Its attempt 1 ended as {outcome}."]


def test_it_failed_and_nobody_said_why() -> None:
    story = Story(job("a"), on=[node()])
    story.launches()
    story.end("a", "failed")
    assert said(story, "a") == ["a failed.", "Its attempt 1 ended as failed."]


def test_the_lines_of_a_tasks_own_output_get_no_full_stop_and_stand_there_once() -> None:
    story = Story(job("a"), on=[node()])
    story.launches()
    story.end("a", "failed", detail="exit code 1\nTraceback\nKeyError: 3")
    assert said(story, "a") == ["a failed: exit code 1\nTraceback\nKeyError: 3", "Its attempt 1 ended as failed."]


def test_it_was_refused() -> None:
    story = Story(job("a", cores=3), on=[node()])
    story.decides()
    assert said(story, "a") == ["a failed: needs 3 cores; the largest node, n0 (1 core), has 1 of 3 cores."]


def test_it_was_canceled() -> None:
    story = Story(job("a"), on=[node()])
    story.cancel("a", by="ann")
    assert said(story, "a") == ["a was canceled by ann."]
    story = Story(job("a"), on=[node()])
    story.cancel("a")
    assert said(story, "a") == ["a was canceled."]


def test_it_was_skipped_and_the_root_cause_is_named() -> None:
    story = Story(job("a"), job("b", "a"), job("c", "b"), on=[node()])
    story.launches()
    story.end("a", "failed")
    assert said(story, "c") == ["c was skipped: a did not succeed."]


def test_it_was_restarted_and_retried() -> None:
    story = Story(job("a", restartable=True, retries=1), on=[node()])
    for outcome in ("timeout", "failed"):
        story.launches()
        story.end("a", outcome, detail="so it was")
    assert said(story, "a") == [
        "a is ready.",
        "It will be started in the next moment.",
        "1 of 1 retry used.",
        "Restarted 1 time after a timeout.",
        "Its attempt 2 ended as failed: so it was.",
    ]


def test_only_ready_tasks_count_as_going_before() -> None:
    story = Story(*(job(n) for n in "abc"), on=[node()])
    story.launches()
    story.cancel("b")
    assert len(said(story, "c")) == 2
