"""A packer of a user's that breaks a rule is stopped before its decision counts, and is named; in real runs as well."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders import Story, job, node
from cantle.core.decide import Decider
from cantle.core.packing import best_fit, find_places, first_fit, spread
from cantle.core.plan import Plan, Policy
from cantle.errors import PluginError
from cantle.model.records import Launch, LimitsChanged, Refuse, Stop, TaskEnded, TimePassed
from cantle.model.resources import Place
from cantle.model.study import Limits
from cantle.store.journal import read

Yields = Callable[[Plan], Iterator[Any]]


def story_with(packer: Yields, *, limits: Limits = Limits()) -> Story:  # noqa: B008 - frozen
    """Two nodes of two cores; on the second, one core and the GPU are in use. `a` and `gang` are ready, `late` waits."""
    story = Story(
        job("busy", gpus=1, cores=1, kind="gpu", priority=9),
        job("a", cores=1),
        job("gang", cores=1, nodes=2),
        job("late", "a"),
        job("gpu", gpus=1),
        job("memory", memory_mib=80),
        job("all", whole_nodes=True),
        on=[node("n0", 2, memory_mib=100), node("n1", 2, gpus=1, kind="gpu", memory_mib=100)],
        limits=limits,
    )
    story.decider = Decider(only("busy"))
    assert story.launches() == ["busy"]
    story.happens(TimePassed(story.state.now + 1))
    story.decider = Decider(packer, name="mine:pack")
    return story


def only(*names: str) -> Policy:
    def packer(plan: Plan) -> Iterator[Any]:
        for number, task in enumerate(plan.state.tasks):
            if task.name in names and number not in plan.state.running:
                places = find_places(plan.room, plan.state.step_of(number).needs)
                assert places
                yield plan.launch(number, places)

    return packer


def launching(name: str, *places: Place, **other: Any) -> Yields:
    def packer(plan: Plan) -> Iterator[Any]:
        number = [task.name for task in plan.state.tasks].index(name)
        yield replace(plan.launch(number, places), **other)

    return packer


def yielding(thing: Any) -> Yields:
    def packer(plan: Plan) -> Iterator[Any]:
        yield thing

    return packer


def raising(problem: BaseException) -> Yields:
    def packer(plan: Plan) -> Iterator[Any]:
        raise problem
        yield

    return packer


def the_same_for_ever(plan: Plan) -> Iterator[Any]:
    while True:
        yield plan.launch(1, (Place(0, "0"),))


def the_same_stop_for_ever(plan: Plan) -> Iterator[Any]:
    while True:
        yield Stop(plan.state.now, 0, 1, "interrupted")


def the_same_refusal_for_ever(plan: Plan) -> Iterator[Any]:
    while True:
        yield Refuse(plan.state.now, 1, "I do not like it")


def with_a_broom(plan: Plan) -> Iterator[Any]:
    plan.state.tasks.clear()
    yield Stop(plan.state.now, 0, 1, "interrupted")


def with_hands_of_its_own(plan: Plan) -> Iterator[Any]:
    plan.state.apply(LimitsChanged(plan.state.now, Limits()))
    yield plan.launch(1, (Place(0, "0"),))


def with_hands_of_its_own_and_a_list(plan: Plan) -> Any:
    launch = plan.launch(1, (Place(0, "0"),))
    plan.state.apply(launch)
    return [launch]


def silent_about_what_it_is() -> Any:
    class Thing:
        def __repr__(self) -> str:
            raise ValueError("no name")

    return Thing()


BAD: dict[str, tuple[Yields, str]] = {
    "a task that waits": (launching("late", Place(0, "0")), "launched late, which is waiting, not ready"),
    "a task that runs": (launching("busy", Place(0, "0")), "launched busy, which is launched, not ready"),
    "an old attempt": (launching("a", Place(0, "0"), attempt=0), "attempt 0 of a, but the next one is 1"),
    "a later attempt": (launching("a", Place(0, "0"), attempt=2), "attempt 2 of a, but the next one is 1"),
    "a restart of nothing": (launching("a", Place(0, "0"), restart=True), "restart=True"),
    "another time": (launching("a", Place(0, "0"), time=1e9), "dated a decision 1000000000.0"),
    "no time": (launching("a", Place(0, "0"), time=float("nan")), "cannot be written down"),
    "no task": (launching("a", Place(0, "0"), task=7), "only the tasks 0 to 6"),
    "a task below 0": (launching("a", Place(0, "0"), task=-1), "only the tasks 0 to 6"),
    "a task by name": (launching("a", Place(0, "0"), task="a"), "cannot be written down: Expected `int`"),
    "no place": (launching("a"), "launched a on 0 places, but it needs 1 node"),
    "a place too many": (launching("a", Place(0, "0"), Place(0, "1")), "on 2 places, but it needs 1 node"),
    "half a gang": (launching("gang", Place(0, "0")), "launched gang on 1 place, but it needs 2 nodes"),
    "a gang on one node": (launching("gang", Place(0, "0"), Place(0, "1")), "launched gang twice on one node"),
    "a taken core": (launching("a", Place(1, "0")), "on node 1, n1, and gave it a core that another task holds"),
    "a core that is not there": (launching("a", Place(0, "2")), "gave it core 2; the node has 2 cores, from 0 on"),
    "too many cores": (launching("a", Place(0, "0-1")), "gave it 2 cores and 0 GPUs instead of 1 and 0"),
    "no core": (launching("a", Place(0, "")), "gave it 0 cores and 0 GPUs instead of 1 and 0"),
    "a taken GPU": (launching("gpu", Place(1, "1", "0")), "gave it a GPU that another task holds"),
    "no GPU": (launching("gpu", Place(0, "0")), "on node 0, n0, which has 0 of 1 GPUs"),
    "a GPU for nothing": (launching("a", Place(1, "1", "5")), "gave it GPU 5; the node has 1 GPU, from 0 on"),
    "a shared node for one alone": (launching("all", Place(1, "1")), "on node 1, n1, which other tasks share"),
    "half a node for one alone": (launching("all", Place(0, "1")), "gave it 1 core and 0 GPUs instead of 2 and 0"),
    "cores as numbers": (launching("a", Place(0, 0)), "cannot be written down"),  # type: ignore[arg-type]
    "cores in another notation": (launching("a", Place(0, "0..1")), "not a list of indexes: '0..1'; index lists look"),
    "no such node": (launching("a", Place(2, "0")), "on node 2; there are only the nodes 0, 1"),
    "a node below 0": (launching("a", Place(-1, "0")), "on node -1; there are only the nodes 0, 1"),
    "a stop of what does not run": (
        yielding(Stop(2.0, 1, 1, "canceled")),
        "stopped attempt 1 of a, which does not run",
    ),
    "a stop of what is over": (yielding(Stop(2.0, 0, 7, "canceled")), "stopped attempt 7 of busy, which does not run"),
    "a refusal of what runs": (yielding(Refuse(2.0, 0, "no")), "refused busy, which is launched"),
    "None": (yielding(None), "yielded None, which is no decision"),
    "a number": (yielding(1), "yielded 1, which is no decision"),
    "an event": (yielding(TaskEnded(0.0, 0, 1, "done")), "which is no decision"),
    "places only": (yielding((Place(0, "0"),)), "which is no decision"),
    "something without words": (yielding(silent_about_what_it_is()), "an object of Thing, which is no decision"),
    "the same launch for ever": (the_same_for_ever, "launched a, which is launched, not ready"),
    "the same stop for ever": (the_same_stop_for_ever, "stopped attempt 1 of busy, which is being stopped already"),
    "the same refusal for ever": (the_same_refusal_for_ever, "refused a, which is failed"),
    "the tasks thrown away": (with_a_broom, "it changed the state itself"),
    "the state changed": (with_hands_of_its_own, "it changed the state itself"),
    "the state changed before a list": (with_hands_of_its_own_and_a_list, "it changed the state itself"),
    "an exception": (raising(KeyError("x")), "it raised KeyError: 'x' (test_bad_packers.py, line"),
    "an assertion": (raising(AssertionError()), "it raised AssertionError (test_bad_packers.py, line"),
    "an exit": (raising(SystemExit(0)), "it raised SystemExit: 0"),
    "no generator": (lambda plan: None, "it returned None, where a packer yields decisions"),  # type: ignore[arg-type,return-value]
    "another number of arguments": (lambda: iter(()), "it raised TypeError"),  # type: ignore[arg-type,misc]
}


@pytest.mark.parametrize("what", BAD)
def test_what_breaks_a_rule_is_named_and_not_applied(what: str) -> None:
    packer, told = BAD[what]
    story = story_with(packer)
    with pytest.raises(PluginError) as caught:
        story.decides()
    assert str(caught.value).startswith("packer mine:pack: it ")
    assert told in str(caught.value)
    applied = [type(record) for record in story.records if type(record) in (Launch, Stop, Refuse)]
    assert len(applied) <= 2, "what comes before the fault counts, the fault does not"


def test_more_than_the_throttle_is_too_much() -> None:
    story = story_with(launching("a", Place(0, "0")), limits=Limits(throttle=1))
    with pytest.raises(PluginError, match=r"launched a, although 1 task of its study run and no more may \(throttle\)"):
        story.decides()


def test_memory_that_others_hold_is_not_there() -> None:
    story = story_with(only("memory"))
    assert story.launches() == ["memory"]
    story.end("memory", "lost")
    story.decider = Decider(launching("memory", Place(1, "1")))
    assert story.launches() == ["memory"]
    two = Story(job("a", memory_mib=80, priority=1), job("b", memory_mib=80), on=[node(cores=2, memory_mib=100)])
    assert two.launches() == ["a"]
    two.happens(TimePassed(9.0))
    two.decider = Decider(launching("b", Place(0, "1")))
    with pytest.raises(
        PluginError, match=r"launched b .* on node 0, n0, whose memory or named resources other tasks hold"
    ):
        two.decides()


def test_a_node_that_is_gone_takes_no_task() -> None:
    story = story_with(launching("a", Place(1, "1")))
    story.lose("n1")
    with pytest.raises(PluginError, match="on node 1, n1, which is gone"):
        story.decides()


def test_a_node_of_another_kind_takes_no_task() -> None:
    story = Story(job("a", kind="gpu"), on=[node("n0"), node("n1", kind="gpu")])
    story.decider = Decider(launching("a", Place(0, "0")))
    with pytest.raises(PluginError, match="on node 0, n0, which is of kind none"):
        story.decides()


def nothing(plan: Plan) -> Iterator[Any]:
    yield from ()


def test_a_packer_that_leaves_everything_idle_is_named_instead_of_waited_for() -> None:
    story = Story(job("a"), job("b"), on=[node()])
    story.decider = Decider(nothing)
    with pytest.raises(
        PluginError, match=r"packer test_bad_packers:nothing: it launches nothing, .* 2 tasks could \(a,"
    ):
        story.decides()


def test_a_packer_may_wait_for_what_runs_for_nodes_to_come_and_for_the_end() -> None:
    assert story_with(nothing).launches() == [], "something runs"
    coming = Story(job("a"))
    coming.await_nodes(1)
    coming.decider = Decider(nothing)
    assert coming.launches() == [], "a node is on its way"
    ending = Story(job("a"), on=[node()])
    ending.stop()
    ending.decider = Decider(nothing)
    assert ending.launches() == [], "the run is stopped"


def test_a_packer_may_stop_and_refuse_and_return_a_list() -> None:
    def choosy(plan: Plan) -> Any:
        state = plan.state
        return [
            Stop(state.now, 0, 1, "interrupted"),
            Refuse(state.now, 2, "too wide"),
            plan.launch(1, (Place(0, "1"),)),
        ]

    story = story_with(choosy)
    assert [type(decision) for decision in story.decides()] == [Stop, Refuse, Launch]
    assert story.cause("gang") == "too wide"


def test_a_packer_that_is_an_object_is_named_by_its_class() -> None:
    class Packer:
        def __call__(self, plan: Plan) -> Iterator[Any]:
            yield 0

    story = Story(job("a"), on=[node()])
    story.decider = Decider(Packer())
    with pytest.raises(PluginError, match=r"packer test_bad_packers:.*Packer: it yielded 0"):
        story.decides()


def test_ours_are_not_watched() -> None:
    for packer in (best_fit, first_fit, spread):
        assert Decider(packer, name="any").packer is packer
    assert Decider(nothing).packer is not nothing


PACKERS = """
from cantle.core.packing import best_fit
from cantle.core.phases import Phase

def after_two(plan):
    for launch in best_fit(plan):
        yield launch
        if plan.state.totals[Phase.DONE] >= 2:
            yield launch

def idle(plan):
    return iter(())
"""


def cantle(*words: str, cwd: Path) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(cwd)}
    done = subprocess.run(
        [sys.executable, "-m", "cantle", *words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=200,
        check=False,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.real
def test_a_real_run_ends_in_order_and_can_be_resumed_with_another_packer(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(PACKERS)
    command = ["map", f"sleep 0.0{{}}; echo {{#}} >> {tmp_path}/ran", "--range", "1-9", "--cores", "3", "-o", "out"]
    code, told = cantle(*command, "--packer", "bad:after_two", cwd=tmp_path)
    assert code == 1
    assert "cantle: packer bad:after_two: it launched map." in told and "which is launched, not ready" in told
    assert f"cantle resume {tmp_path}/out" in told and "Traceback" not in told
    records = list(read(tmp_path / "out/.cantle/journal.jsonl"))
    launched = {(r.task, r.attempt) for r in records if isinstance(r, Launch)}
    ended = {(r.task, r.attempt): r.outcome for r in records if isinstance(r, TaskEnded)}
    assert launched == set(ended), "everything that was launched ended before the run did"
    assert set(ended.values()) <= {"done", "interrupted"}
    assert "bad:after_two" in cantle("status", "out", cwd=tmp_path)[1]
    code, told = cantle("resume", "out", cwd=tmp_path)
    assert code == 0, told
    assert sorted(set((tmp_path / "ran").read_text().split()), key=int) == [str(n) for n in range(1, 10)]
    done = [
        (r.task)
        for r in read(tmp_path / "out/.cantle/journal.jsonl")
        if isinstance(r, TaskEnded) and r.outcome == "done"
    ]
    assert sorted(done) == list(range(9)), "what was done was not done again"


@pytest.mark.real
def test_a_real_run_does_not_wait_for_ever_for_an_idle_packer(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(PACKERS)
    code, told = cantle("map", "true", "--range", "1-3", "-o", "out", "--packer", "bad:idle", cwd=tmp_path)
    assert code == 1
    assert "cantle: packer bad:idle: it launches nothing, although nothing runs and 3 tasks could" in told
