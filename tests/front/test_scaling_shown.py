"""What is decided about nodes that come and go is told, with why, in `status`, `explain`, the page, and while a run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rundirs import cantle

from builders import Story, job, node
from cantle.core.explain import explain
from cantle.model.kinds import Kind
from cantle.model.records import (
    KindsDeclared,
    NodesJoined,
    NodesWished,
    ReleaseNode,
    RequestAnswered,
    RequestNodes,
    RunResumed,
)
from cantle.report.growth import Growth, GrowthNews, growth_lines, growth_object
from cantle.report.progress import choose_progress

CPU = Kind("cpu", 2, most=4)
GPU = Kind("gpu", 2, gpus=1, starts_in_s=90.0)


def grown() -> Story:
    """Two nodes of three have come, the third is on its way, and GPUs were refused."""
    story = Story(job("plain"), job("learn", gpus=1), on=[])
    story.happens(KindsDeclared(1.0, [CPU, GPU]))
    story.happens(RequestNodes(2.0, "cpu", 3, "two tasks are ready"))
    story.happens(RequestAnswered(3.0, 0, 3, 0, "job 12 is PENDING (Priority)", 60.0))
    story.happens(NodesJoined(10.0, [node("cpu-1", 2, kind="cpu"), node("cpu-2", 2, kind="cpu")], 0))
    return story


def test_status_tells_nodes_by_kind_the_last_decision_and_the_providers_words() -> None:
    story = grown()
    assert list(growth_lines(story.state, 12.0)) == [
        "nodes of kind cpu: 2 there, 1 on the way, 4 at most",
        "nodes of kind gpu: 0 there, 0 on the way",
        "last decision, 10 s ago: 3 nodes of kind cpu asked for: two tasks are ready",
        "request 0: 1 node of kind cpu on the way for 10 s, expected in 48 s: job 12 is PENDING (Priority)",
    ]
    story.happens(ReleaseNode(20.0, 0, "it has had no work for 8 s"))
    told = list(growth_lines(story.state, 20.0))
    assert told[0] == "nodes of kind cpu: 1 there, 1 on the way, 1 leaving, 4 at most"
    assert "cpu-1 given back: it has had no work for 8 s" in told[2]


def test_nodes_that_are_late_and_of_which_nobody_says_a_word_are_told_to_be_so() -> None:
    story = Story(job("t"), on=[])
    story.happens(KindsDeclared(1.0, [Kind("cpu", 2, starts_in_s=10.0)]))
    story.happens(RequestNodes(2.0, "cpu", 1, "t is ready"))
    on_the_way = "request 0: 1 node of kind cpu on the way for "
    assert list(growth_lines(story.state, 4.0))[-1] == on_the_way + "2.0 s, expected in 8.0 s"
    assert list(growth_lines(story.state, 42.0))[-1] == (
        on_the_way + "40 s, expected 30 s ago: who brings them has not answered yet"
    )
    story.happens(RequestAnswered(43.0, 0, 1, 0, "job 7: pending (Priority)"))
    assert list(growth_lines(story.state, 43.0))[-1].endswith(", expected 31 s ago: job 7: pending (Priority)")


def test_when_nodes_come_is_not_told_where_nobody_knows() -> None:
    story = Story(job("t"), on=[])
    story.happens(KindsDeclared(1.0, [CPU]))
    story.happens(RequestNodes(2.0, "cpu", 1, "t is ready"))
    assert list(growth_lines(story.state, 4.0))[-1] == "request 0: 1 node of kind cpu on the way for 2.0 s"


def test_status_of_a_run_whose_conductor_is_dead_tells_how_nodes_stood_and_not_that_they_come() -> None:
    told = list(growth_lines(grown().state, 12.0, ended=True))
    assert told[0] == "nodes of kind cpu then: 2 there, 1 on the way, 4 at most"
    assert told[2].startswith("last decision, at ") and " ago" not in told[2]
    assert not any("request" in line for line in told)


def test_status_tells_what_was_refused_who_wishes_and_whose_wishing_failed() -> None:
    story = grown()
    story.happens(RequestNodes(11.0, "gpu", 2, "learn needs one"))
    story.happens(RequestAnswered(12.0, 1, 0, 2, "the queue is closed"))
    story.happens(NodesWished(13.0, "cpu", 4, "ann"))
    story.happens(NodesWished(13.0, "gpu", None, "mine:wish", "", "it raised KeyError"))
    told = list(growth_lines(story.state, 14.0))
    assert told[0].endswith("; ann wants 4")
    refused = "request 1: 2 of 2 of kind gpu refused: the queue is closed; it is asked for again in"
    assert any(line.startswith(refused) for line in told)
    assert "mine:wish could not say how many nodes it wants: it raised KeyError" in told


def test_programs_are_told_the_same() -> None:
    found = growth_object(grown().state)
    assert found is not None and found["kinds"] == [
        {"kind": "cpu", "there": 2, "coming": 1, "leaving": 0, "most": 4},
        {"kind": "gpu", "there": 0, "coming": 0, "leaving": 0, "most": None},
    ]
    assert found["last"] == {"at": 2.0, "what": "3 nodes of kind cpu asked for", "why": "two tasks are ready"}
    assert growth_object(Story(job("a")).state) is None


def test_explain_tells_for_which_nodes_a_task_waits() -> None:
    story = grown()
    learn = 1
    assert "it waits for one of kind gpu to be asked for" in " ".join(explain(story.state, learn))
    story.happens(RequestNodes(11.0, "gpu", 1, "learn needs one"))
    assert "1 node of kind gpu on the way, expected in" in " ".join(explain(story.state, learn))


def test_news_about_nodes_are_told_once_and_those_of_an_earlier_conductor_never() -> None:
    story = grown()
    news = GrowthNews(story.state)
    assert news.lines(story.state) == ["3 nodes of kind cpu asked for: two tasks are ready", "2 nodes of kind cpu came"]
    assert news.lines(story.state) == []
    story.happens(ReleaseNode(20.0, 0, "it idles"))
    assert news.lines(story.state) == ["cpu-1 is given back: it idles"]
    story.happens(RunResumed(30.0, "another", 1, ""))
    assert GrowthNews(story.state).lines(story.state) == []


def test_a_function_that_cannot_say_how_many_nodes_it_wants_is_news_once_while_it_fails_alike() -> None:
    story = grown()
    news = GrowthNews(story.state)
    story.happens(NodesWished(13.0, "", None, "mine:wish", "", "it raised KeyError"))
    assert "mine:wish could not say how many nodes it wants: it raised KeyError" in news.lines(story.state)
    story.happens(NodesWished(14.0, "", None, "mine:wish", "", "it raised KeyError"))
    assert news.lines(story.state) == []
    story.happens(NodesWished(15.0, "", None, "mine:wish", "", "it took too long"))
    assert news.lines(story.state) == ["mine:wish could not say how many nodes it wants: it took too long"]
    later = GrowthNews(story.state).lines(story.state)
    assert any(line.endswith("it took too long") for line in later), (
        "what went wrong before the first look is told as well"
    )


def test_a_refusal_is_news_with_what_comes_then_until_the_kind_is_given_up() -> None:
    story = Story(job("a"), job("b"))
    story.happens(KindsDeclared(1.0, [Kind("cpu", 4)], ("retry=5s",)))
    news, told = GrowthNews(story.state), []
    for number in range(5):
        story.happens(RequestNodes(10.0 + number, "cpu", 1, "more"))
        news.lines(story.state)
        story.happens(RequestAnswered(10.0 + number, number, 0, 1, "the quota is used up"))
        told += news.lines(story.state)
    said = "1 node of kind cpu refused: the quota is used up; "
    assert told[:2] == [f"{said}it is asked for again in 5 s", f"{said}it is asked for again in 10 s"]
    assert told[4:] == [f"{said}5 requests in a row brought none, so it is not asked for any more"]


def test_who_wants_to_hear_of_failures_only_hears_of_the_first_refusal(capfd: pytest.CaptureFixture[str]) -> None:
    story = Story(job("a"), job("b"))
    story.happens(KindsDeclared(1.0, [Kind("cpu", 4)], ("retry=5s",)))
    quiet = choose_progress(story.state, quiet=True)
    for number in range(3):
        story.happens(RequestNodes(10.0 + number, "cpu", 1, "more"))
        story.happens(RequestAnswered(10.0 + number, number, 0, 1, "the quota is used up"))
        quiet._growth_due = quiet._next = 0.0
        quiet(story.state)
    story.happens(NodesWished(13.0, "", None, "mine:wish", "", "it raised KeyError"))
    quiet._growth_due = quiet._next = 0.0
    quiet(story.state)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "cantle: 1 node of kind cpu refused: the quota is used up; it is asked for again in 5 s",
        "cantle: mine:wish could not say how many nodes it wants: it raised KeyError",
    ]


def test_a_policy_without_kinds_of_node_is_refused_with_what_would_help(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["map", "echo {}", "--range", "1-2", "-o", str(tmp_path / "out")]
    assert cantle(*words, "--scaling", "fixed:2") == 1
    assert "--scaling fixed:2: no node can be asked for, as no kinds of node are declared" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
    assert cantle(*words, "--scaling", "idle=5") == 0, "a bound asks for nothing"


def test_a_flood_of_decisions_is_told_in_few_lines() -> None:
    story = grown()
    for each in range(40):
        story.happens(RequestNodes(20.0 + each, "cpu", 1, "more"))
    told = GrowthNews(story.state).lines(story.state)
    assert len(told) == 7 and told[-1] == "and 36 more such news about nodes"


def test_the_curves_of_the_page_follow_what_was_there_and_what_was_wanted() -> None:
    story, growth = grown(), Growth()
    story = Story(job("plain"), on=[])
    for record in (
        KindsDeclared(1.0, [CPU]),
        RequestNodes(2.0, "cpu", 3, "two tasks are ready"),
        NodesJoined(10.0, [node("cpu-1", 2, kind="cpu")], 0),
        RequestAnswered(12.0, 0, 0, 2, "the queue is full"),
    ):
        story.happens(record)
        growth.note(story.state, record)
    assert growth.there == {"cpu": [(1.0, 0), (10.0, 1)]}
    assert growth.wanted == {"cpu": [(1.0, 0), (2.0, 3), (12.0, 1)]}
    assert [(each.what, each.why) for each in growth.moments] == [
        ("3 nodes of kind cpu asked for", "two tasks are ready"),
        ("2 nodes of kind cpu refused", "the queue is full"),
    ]


@pytest.mark.real
def test_a_run_tells_of_its_nodes_as_it_goes_and_its_page_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    words = ["--kinds", "cpu: {cores: 1, max: 2, provider: local}", "--scaling", "fixed:2", "-o", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "cantle", "map", "sleep 0.7; echo {}", "--range", "1-4", *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert "note: 2 nodes of kind cpu asked for: " in done.stdout
    assert "note: 2 nodes of kind cpu came" in done.stdout
    assert cantle("report", str(out), "-o", str(page)) == 0
    text = page.read_text()
    assert "Nodes that came and went" in text and "2 nodes of kind cpu asked for" in text
    capsys.readouterr()
    assert cantle("status", str(out), "--json") == 0
    found = json.loads(capsys.readouterr().out)["scaling"]
    assert [each["joined"] for each in found["requests"]] == [2]
