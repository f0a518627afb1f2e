"""Tasks run on the machine where their parents ran, or wait for a moment for a place there."""

from __future__ import annotations

from builders import CheckedState, Job, Story, job, node, study_records
from cantle.core.decide import Decider
from cantle.core.nearness import LEAST_S, MOST_S, PATIENCE
from cantle.model.records import Launch, OrderTasks, TimePassed
from cantle.model.resources import Node
from cantle.runtime.loop import NoLog, run
from cantle.runtime.simulated import Fate, SimulatedWorld

TWO = [node("a", machine="one"), node("b", machine="other")]


def machine_of(story: Story, name: str) -> str:
    return story.state.room.nodes[story.launch_of(name).on[0].node].machine


def test_a_task_goes_to_the_machine_of_its_parent_rather_than_to_the_first_that_is_free() -> None:
    story = Story(job("p", estimate_s=9), job("q", estimate_s=1), job("child", "q", estimate_s=1), on=TWO)
    story.launches()
    assert machine_of(story, "q") == "other"
    story.end("p")
    story.end("q")
    story.launches()
    assert machine_of(story, "child") == "other"


def test_most_of_its_parents_decide() -> None:
    on = [node("a", 2, machine="one"), node("b", 2, machine="other")]
    story = Story(job("p", cores=2), job("q"), job("r"), job("child", "p q r"), on=on)
    story.launches()
    for name in ("p", "q", "r"):
        story.end(name)
    story.launches()
    assert machine_of(story, "child") == "other"


def test_when_its_machine_is_full_it_waits_a_moment_and_then_goes_anywhere() -> None:
    jobs = [job("q", priority=2), job("p"), job("child", "q", estimate_s=10, priority=1), job("filler", priority=1.5)]
    story = Story(*jobs, on=TWO)
    story.launches()
    story.end("q")
    assert story.launches() == ["child"]
    story = Story(*jobs, on=TWO)
    assert {name: machine_of(story, name) for name in story.launches()} == {"q": "one", "filler": "other"}


def test_the_wait_is_short_against_the_task_and_somebody_wakes_the_packer() -> None:
    jobs = [job("q"), job("p"), job("x", "q", estimate_s=100), job("y", "q", estimate_s=20)]
    story = Story(*jobs, on=TWO)
    story.launches()
    story.end("q")
    assert story.launches() == ["x"]
    story.end("p")
    assert story.launches() == []
    wait = PATIENCE * 20
    assert story.decider.wakes_at == story.state.now + wait
    story.happens(TimePassed(story.state.now + wait))
    assert story.launches() == ["y"]
    assert machine_of(story, "y") == "other"
    assert LEAST_S < wait < MOST_S


def test_another_task_of_the_queue_that_is_at_home_where_there_is_room_goes_first() -> None:
    jobs = [
        job("q"),
        job("p"),
        job("x", "q", estimate_s=30),
        job("y", "q", estimate_s=20),
        job("z", "p", estimate_s=18),
    ]
    story = Story(*jobs, on=TWO)
    story.launches()
    story.end("q")
    assert story.launches() == ["x"]
    story.end("p")
    assert story.launches() == ["z"]
    assert machine_of(story, "z") == "other"


def passed_over() -> Story:
    """y is passed over for a moment, while there is room on the other machine, since x has the place where both were made."""
    on = [node("a", 1, machine="one"), node("b", 4, machine="other")]
    jobs = [job("p", estimate_s=300), job("r", estimate_s=300), job("q", estimate_s=500)]
    jobs += [job("x", "q", estimate_s=100), job("y", "q", estimate_s=20), job("z", "p", estimate_s=19)]
    story = Story(*jobs, job("homeless", after="r", estimate_s=18), on=on)
    story.launches()
    assert {name: machine_of(story, name) for name in "pqr"} == {"q": "one", "p": "other", "r": "other"}
    story.end("q")
    assert story.launches() == ["x"] and machine_of(story, "x") == "one"
    assert story.decider.wakes_at == story.state.now + PATIENCE * 20
    return story


def test_who_has_no_home_does_not_overtake_one_whose_patience_is_over() -> None:
    story = passed_over()
    story.end("r")
    assert story.launches() == ["y", "homeless"]


def test_when_one_at_home_has_gone_first_the_head_does_not_wait_for_another_event() -> None:
    story = passed_over()
    story.end("p")
    assert story.launches() == ["z", "y"]
    assert machine_of(story, "z") == machine_of(story, "y") == "other"


def in_order(*jobs: Job, kept: int = 0) -> list[str]:
    """What is launched on the other machine once x runs on the one where q ran, at home of y, the next in the order."""
    story = Story(job("q"), job("p"), job("x", "q", estimate_s=30), *jobs, on=TWO)
    story.launches()
    story.happens(OrderTasks(story.state.now, [2, 3, 4], "as the test likes it"))
    story.end("q", kept=kept)
    assert story.launches() == ["x"]
    story.end("p")
    return story.launches()


def test_in_an_order_nobody_waits_for_a_machine() -> None:
    y, z = job("y", "q", estimate_s=20), job("z", "p", estimate_s=18)
    assert in_order(y, z) == ["y"], "without an order z would go first"


def test_in_an_order_a_task_goes_first_that_is_at_home_if_as_much_hangs_on_it() -> None:
    y, z = job("y", "q", estimate_s=20), job("z", "p", estimate_s=19.5)
    assert in_order(y, z) == ["z"]


def test_in_an_order_a_task_waits_for_what_lives_on_a_node_alone() -> None:
    y, z = job("y", "q", estimate_s=20), job("z", "p", estimate_s=1)
    assert in_order(y, z, kept=1) == []


def test_a_machine_that_is_gone_is_not_waited_for() -> None:
    story = Story(job("q", estimate_s=9), job("p", estimate_s=1), job("child", "p", estimate_s=1), on=TWO)
    story.launches()
    assert machine_of(story, "p") == "other"
    story.end("p")
    story.lose("b")
    story.end("q")
    assert story.launches() == ["child"]


def simulated(machines: int) -> tuple[CheckedState, int]:
    """Chains of three on nodes of several machines: the state at the end, and how many links stayed on their machine."""
    jobs: list[Job] = []
    for chain in range(24):
        for link in range(3):
            jobs.append(job(f"c{chain}.{link}", f"c{chain}.{link - 1}" if link else "", estimate_s=1 + chain * 7 % 5))
    state = CheckedState()
    for record in study_records(jobs):
        state.apply(record)
    on = [Node(f"n{i}", 1, machine=f"m{i % machines}") for i in range(8)]
    world = SimulatedWorld(state, [(0.0, on)], lambda task, _: Fate(jobs[task].estimate_s))
    run(state, world, NoLog(), Decider())
    where = {r.task: state.room.nodes[r.on[0].node].machine for r in state.records if isinstance(r, Launch)}
    stayed = sum(where[t] == where[state.tasks[t].parents[0]] for t in where if state.tasks[t].parents)
    return state, stayed


def test_most_links_of_chains_stay_on_their_machine_and_it_costs_next_to_no_time() -> None:
    alone, _ = simulated(1)
    state, stayed = simulated(4)
    assert state.succeeded
    assert stayed >= 36
    assert state.now <= 1.01 * alone.now
