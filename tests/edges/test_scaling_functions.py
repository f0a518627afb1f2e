"""A scaling function of the user's may raise, hang, die or answer nonsense: that is named, and the run goes on. (D3, D7)"""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, Queue
from threading import Event
from typing import Any

import msgspec
import pytest
from tests.builders import Story, job, node

from cantle.cli.elastic import scaling_asked
from cantle.core.scaling.settings import Scaling
from cantle.core.scaling.snapshot import Snapshot, Wish, wishes_in
from cantle.errors import PluginError, RequestError
from cantle.model.kinds import Kind
from cantle.model.records import KindsDeclared, NodesWished
from cantle.runtime.scaling_functions import ASKED_EVERY_S, ScalingFunction, functions_of
from cantle.runtime.scaling_process import Died

WAIT_S = 60.0


class Here:
    """Calls a function in this process, in place of one of its own."""

    place = " (f.py, line 1)"

    def __init__(self, function: Callable[[Snapshot], Any], answered: Event) -> None:
        self.function = function
        self.answered = answered
        self.ended = Event()

    def ask(self, seen: Snapshot) -> Sequence[Wish]:
        try:
            return wishes_in(self.function(seen), {name: now.kind for name, now in seen.kinds.items()})
        finally:
            if self.ended.is_set():
                self.ended.clear()
                self.answered.set()
                raise Died("it died")
            self.answered.set()

    def end(self) -> None:
        self.ended.set()

    def close(self) -> None:
        self.ended.set()


class Asked:
    """A function that is asked again and again, at times of the test's choosing."""

    def __init__(self, function: Callable[[Snapshot], Any], within_s: float = 30.0) -> None:
        self.story = Story(job("a"), job("b"), on=[node("n0")])
        self.story.decider.scaler = lambda _plan: iter(())
        self.story.happens(KindsDeclared(1.0, [Kind("cpu", 4, most=10)]))
        self.story.decides()
        self.time = 100.0
        self.told: Queue[NodesWished] = Queue()
        self.answered = Event()
        self.here = Here(function, self.answered)
        self.asks = ScalingFunction("mine:f", self.here, Scaling(), self.told.put, lambda: self.time, within_s=within_s)

    def once(self, after_s: float = 10.0) -> None:
        """It is asked once more, and has answered."""
        self.time += after_s
        self.answered.clear()
        self.asks(self.story.state)
        assert self.answered.wait(WAIT_S)

    def heard(self) -> NodesWished:
        """What it is heard to say next."""
        return self.told.get(timeout=WAIT_S)

    def settle(self) -> None:
        """What it answered last has been dealt with."""
        for _ in range(2000):
            if self.asks._answered:
                return
            self.answered.wait(0.01)
            self.answered.clear()
        raise AssertionError("it never answered")


def test_what_it_wishes_is_told_and_only_when_it_changes() -> None:
    counts = iter((3, 3, 5))
    asked = Asked(lambda _run: {"cpu": next(counts)})
    for _ in range(3):
        asked.once()
        asked.settle()
    told = [asked.heard(), asked.heard()]
    assert [(wish.kind, wish.count, wish.by) for wish in told] == [("cpu", 3, "mine:f"), ("cpu", 5, "mine:f")]


def test_it_sees_the_run_and_gives_reasons_and_what_it_does_not_wish_any_more_is_taken_back() -> None:
    seen: list[Snapshot] = []

    def function(run: Snapshot) -> Any:
        seen.append(run)
        return [Wish("cpu", 2, "since it is night")] if len(seen) == 1 else None

    asked = Asked(function)
    asked.once()
    first = asked.heard()
    asked.settle()
    asked.once()
    second = asked.heard()
    assert (first.count, first.why, second.kind, second.count) == (2, "since it is night", "cpu", None)
    assert (seen[0].running_tasks, seen[0].ready_tasks, seen[0].nodes, list(seen[0].kinds)) == (1, 1, 1, ["cpu"])


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda _run: "five", "it returned 'five'"),
        (lambda _run: {"tpu": 1}, "kind 'tpu'; there are cpu"),
        (lambda _run: {"cpu": True}, "it wishes for True nodes of kind cpu, which is no number of nodes"),
        (lambda _run: {"cpu": 3.5}, "it wishes for 3.5 nodes"),
        (lambda _run: {"cpu": float("nan")}, "it wishes for nan nodes"),
        (lambda _run: {"cpu": -1}, "it wishes for -1 nodes"),
        (lambda _run: {"a\udc80\n": 1}, r"kind 'a\udc80\n'; there are cpu"),
        (lambda _run: [Wish([], 1)], "kind []; there are cpu"),  # type: ignore[arg-type]
        (lambda _run: [Wish("cpu", 1, b"so")], "is b'so', which is no text"),  # type: ignore[arg-type]
        (lambda _run: 1 / 0, "it could not be asked: ZeroDivisionError: division by zero"),
    ],
)
def test_what_it_does_wrong_is_named_once(function: Callable[[Snapshot], Any], said: str) -> None:
    asked = Asked(function)
    for _ in range(3):
        asked.once()
        asked.settle()
    assert said in asked.heard().problem
    with pytest.raises(Empty):
        asked.told.get_nowait()


def test_a_wish_that_is_too_large_or_has_an_odd_reason_can_be_written_down_all_the_same() -> None:
    asked = Asked(lambda _run: [Wish("cpu", 10**40, "it\nis \udc80" + "x" * 1000)])
    asked.once()
    told = asked.heard()
    assert told.count == 10**9 and told.why.startswith(r"it is \udc80xxx") and len(told.why) == 300
    assert msgspec.json.decode(msgspec.json.encode(told), type=NodesWished) == told


def test_when_it_goes_wrong_its_wishes_do_not_hold_any_more() -> None:
    answers = iter(({"cpu": 4}, "nonsense"))
    asked = Asked(lambda _run: next(answers))
    asked.once()
    asked.settle()
    asked.once()
    told = [asked.heard() for _ in range(3)]
    heard = [(wish.kind, wish.count, bool(wish.problem)) for wish in told]
    assert heard == [
        ("cpu", 4, False),
        ("cpu", None, False),
        ("", None, True),
    ]


def test_one_that_hangs_holds_up_nobody_and_is_ended_and_asked_again_later_each_time() -> None:
    goes_on = Event()
    asked = Asked(lambda _run: goes_on.wait(WAIT_S) and {"cpu": 1}, within_s=30.0)
    for _ in range(5):
        asked.time += 10.0
        asked.asks(asked.story.state)
    assert asked.here.ended.is_set() and asked.told.empty()
    goes_on.set()
    assert asked.heard().problem == "it had not returned for 30 s, and was ended (f.py, line 1)"
    asked.settle()
    asked.once(after_s=1.0 + 2 * ASKED_EVERY_S)
    assert asked.heard().count == 1


def test_after_each_death_it_is_left_alone_for_longer() -> None:
    calls: list[Snapshot] = []
    asked = Asked(calls.append)
    asked.here.end()
    asked.once()
    asked.settle()
    for deaths, pause_s in enumerate((2 * ASKED_EVERY_S, 4 * ASKED_EVERY_S, 8 * ASKED_EVERY_S), 1):
        asked.time += pause_s - 0.5
        asked.asks(asked.story.state)
        assert len(calls) == deaths, "it is too soon"
        asked.here.end()
        asked.once(after_s=1.0)
        asked.settle()
    assert asked.heard().problem == "it died" and asked.told.empty()


def test_functions_are_found_by_their_names_and_a_wrong_name_says_so() -> None:
    (found,) = functions_of(Scaling(("demand", "operator:itemgetter")), lambda _event: None, lambda: 0.0)
    assert found.name == "operator:itemgetter" and functions_of(None, lambda _event: None, lambda: 0.0) == []
    with pytest.raises(PluginError, match="nothing_of_the_kind"):
        functions_of(Scaling(("operator:nothing_of_the_kind",)), lambda _event: None, lambda: 0.0)


def test_what_an_installed_package_declares_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "halves-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: halves\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[cantle.scaling_functions]\nhalves = halving:wishes\n")
    (tmp_path / "halving.py").write_text("def wishes(run):\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = scaling_asked(Namespace(scaling=["halves", "idle=5s", "demand"]))
    assert settings is not None
    assert settings.policies == ("halving:wishes", "demand")
    with pytest.raises(RequestError, match="there is no scaling policy 'thirds'"):
        scaling_asked(Namespace(scaling=["thirds"]))


def test_a_bound_taken_for_a_policy_or_the_other_way_round_is_told_how_to_write_it() -> None:
    for word, told in {
        "finish-by=3s": "'finish-by' is no bound; there are idle, .*; the policy is written finish-by:3s",
        "idle:40s": "idle is a bound, and no policy: write idle=40s",
        "cool-down": "cool-down is a bound, and no policy: write cool-down=30s",
    }.items():
        with pytest.raises(RequestError, match=told):
            scaling_asked(Namespace(scaling=[word]))


@pytest.mark.real
def test_a_scaler_that_breaks_a_rule_is_named_and_the_run_stops_and_can_be_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "wild.py").write_text(
        "from cantle.model.records import RequestNodes\n\n\n"
        "def wild(plan):\n    yield RequestNodes(plan.state.now, 'tpu', 1, 'why not')\n"
    )
    words = [sys.executable, "-m", "cantle"]
    kinds = ["--kinds", "cpu: {cores: 1, max: 1, provider: local}"]
    run = [*words, "map", "echo {}", "--range", "1-2", "-o", "out", *kinds, "--scaling", "wild:wild"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1
    assert "scaler wild:wild: it asked for nodes of kind 'tpu'; declared are cpu" in done.stderr
    assert "Go on with another packer or policy" in done.stderr
    again = subprocess.run(
        [*words, "resume", "out", "--scaling", "demand"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert again.returncode == 0, again.stderr
