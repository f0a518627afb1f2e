"""`cantle plan`: what would become of a study on these nodes or those, checked against studies small enough to do by hand."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rundirs import SWEEP, cantle, records_of, write_run

from cantle.cli.planning import _sliced
from cantle.core.idleness import Reason
from cantle.core.packing import best_fit, spread
from cantle.core.state import State
from cantle.errors import RequestError
from cantle.model.records import (
    AdmitPartition,
    AnyRecord,
    GrowPartition,
    NodeLost,
    NodesJoined,
    OpenPartition,
    PartitionAsked,
    PartitionStarted,
    ShrinkPartition,
    StudyAdded,
    TasksAdded,
    TimePassed,
)
from cantle.model.resources import Needs, Node, Place, Slots
from cantle.model.study import Limits, PartitionWish, Slice, Slicing, Step, Study, Task
from cantle.report.durations import Experience, durations_of, experience_of, informed
from cantle.report.happened import happened_in
from cantle.report.idling import idle_rows, idle_stretches
from cantle.report.partition_times import partition_times
from cantle.report.planned import widths_in_words
from cantle.report.planning import Variant, foresee, groups_named, groups_worth_a_look, in_short, recommend
from cantle.report.recorder import Recorder
from cantle.report.step_times import step_times
from cantle.runtime.simulated import Fate


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    return path


def study(steps: list[Step], tasks: list[Task], limits: Limits = Limits()) -> Study:  # noqa: B008 (frozen)
    def no_work(_directory: str) -> Any:
        raise AssertionError("a plan runs nothing")

    return Study("made", steps, tasks, no_work, limits=limits)


def planned(made: Study, nodes: str, packer: Any = best_fit) -> Variant:
    groups = groups_named(nodes, 1, made, None)
    [variant] = foresee(made, durations_of(made, 1.0), made.limits, groups, [("it", packer)])
    return variant


def idle_of(variant: Variant) -> list[tuple[str, str, float]]:
    return [(row.reason, row.why, row.core_s) for row in idle_rows(variant.found.timeline)]


# The figures


def test_each_variant_tells_end_node_hours_use_and_bound(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("plan", sweep, "--nodes", "1,2,8", "--cores-per-node", 2, "--json") == 0
    plan = msgspec.json.decode(capsys.readouterr().out)
    one, two, eight = plan["variants"]
    assert [variant["nodes"] for variant in plan["variants"]] == ["1x2", "2x2", "8x2"]
    assert [variant["end_s"] for variant in plan["variants"]] == [41.0, 21.0, 11.0]
    assert one["node_hours"] == pytest.approx(41 / 3600)
    assert two["node_hours"] == pytest.approx(42 / 3600)
    assert one["bound_s"] == pytest.approx(40.5)  # 81 core-seconds on two cores
    assert eight["bound_s"] == pytest.approx(11.0)  # the chain
    assert two["utilisation"] == pytest.approx(81 / 84)
    assert two["critical_path_s"] == 11.0
    assert two["area_core_s"] == 81.0
    assert one["counts"] == {"done": 5}


class StepRow(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    tasks: int
    done: int
    needs: str
    mean_s: float
    core_s: float
    first_s: float
    last_s: float
    cpu_s: float
    peak_mib: float
    failures: int
    widths: dict[int, int]
    waited_s: float
    waited_most_s: float
    waited_for: str
    partitions: list[str]
    moldable: bool


class IdleRow(msgspec.Struct, forbid_unknown_fields=True):
    why: str
    reason: str
    core_s: float
    share: float
    stretches: int
    longest_since_s: float
    longest_until_s: float


class IdleStretch(msgspec.Struct, forbid_unknown_fields=True):
    since_s: float
    until_s: float
    cores: float
    why: str


class VariantRow(msgspec.Struct, forbid_unknown_fields=True):
    nodes: str
    packer: str
    node_count: int
    cores: int
    end_s: float
    node_hours: float
    utilisation: float
    bound_s: float
    critical_path_s: float
    area_core_s: float
    ratio: float | None
    succeeded: bool
    stopped: str
    counts: dict[str, int]
    steps: list[StepRow]
    partitions: list[dict[str, str | float | None]]
    idle: list[IdleRow]
    idle_stretches: list[IdleStretch]
    failed: list[dict[str, str]]


class PlanObject(msgspec.Struct, forbid_unknown_fields=True):
    study: str
    tasks: int
    durations: dict[str, float | None]
    finish_by_s: float | None
    recommended: int | None
    why: str
    variants: list[VariantRow]


def test_the_json_keeps_to_its_form(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("plan", sweep, "--nodes", "2x2", "--packer", "best-fit", "--packer", "spread", "--json") == 0
    plan = msgspec.json.decode(capsys.readouterr().out, type=PlanObject)
    assert (plan.study, plan.tasks, plan.recommended) == ("sweep", 5, 0)
    assert plan.durations == {
        "estimated": 4,
        "from_run": 0,
        "from_run_by_step": 0,
        "assumed": 1,
        "assumed_s": 1.0,
    }
    assert [(variant.nodes, variant.packer) for variant in plan.variants] == [("2x2", "best-fit"), ("2x2", "spread")]
    assert [step.name for step in plan.variants[0].steps] == ["sim", "report"]
    assert plan.variants[0].idle_stretches[0].since_s == 20.0


def test_the_table_says_what_was_assumed_and_what_is_recommended(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cantle("plan", sweep, "--nodes", "1,2,4,8", "--cores-per-node", 2) == 0
    out = capsys.readouterr().out
    assert "4 tasks as the study estimates" in out
    assert "1 task without an estimate: taken for 1.0 s each (--default-estimate" in out
    assert "Recommended: 4x2: the fewest node-hours of those that end within 5% of the soonest (11 s)." in out
    marked = [line.split()[1] for line in out.splitlines() if line.startswith("*")]
    assert marked == ["4x2"]
    assert "all else waits for sim_SIZE.1 (once 10 s from 0.00 s)" in out


def test_a_study_without_any_estimate_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bare.yaml"
    path.write_text(SWEEP.replace("          estimate: 10 s\n", ""))
    assert cantle("plan", path, "--nodes", "1x2", "--default-estimate", 7) == 0
    out = capsys.readouterr().out
    assert "5 tasks without an estimate: taken for 7.0 s each" in out
    assert "as the study estimates" not in out


def test_what_can_never_run_is_told_and_nothing_is_recommended(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("plan", sweep, "--nodes", "4x1") == 2
    out = capsys.readouterr().out
    assert "Recommended: none of them: tasks would fail on each." in out
    assert "failed        sim_SIZE.1: needs 2 cores" in out


# Why it idles


def test_idle_while_all_waits_for_one_task_and_while_the_last_runs() -> None:
    made = study([Step("a"), Step("b")], [Task("a0", 0, (), 10.0), Task("b0", 1, (0,), 2.0)])
    assert idle_of(planned(made, "1x3")) == [
        ("parents", "all else waits for a0", 20.0),
        ("last", "only b0 still runs", 4.0),
    ]


def test_each_step_that_all_else_waits_for_is_told_by_itself() -> None:
    made = study(
        [Step("a"), Step("b"), Step("c")],
        [Task("a0", 0, (), 3.0), Task("b0", 1, (0,), 2.0), Task("c0", 2, (1,), 1.0)],
    )
    variant = planned(made, "1x2")
    assert [why for _, why, _ in idle_of(variant)] == [
        "all else waits for a0",
        "all else waits for b0",
        "only c0 still runs",
    ]
    assert [(s.since_s, s.until_s) for s in idle_stretches(variant.found.timeline, 9)] == [(0, 3), (3, 5), (5, 6)]


def test_idle_while_a_wide_task_waits_for_nodes() -> None:
    made = study([Step("narrow"), Step("wide", Needs(1, nodes=2))], [Task("n", 0, (), 10.0), Task("w", 1, (), 5.0)])
    variant = planned(made, "2x1")
    assert variant.found.end_s == 15.0
    assert idle_of(variant) == [("nodes", "w waits for 2 nodes at once", 10.0)]


def test_idle_while_no_node_has_enough_room() -> None:
    made = study([Step("s", Needs(2))], [Task("a", 0, (), 10.0), Task("b", 0, (), 5.0)])
    variant = planned(made, "1x3")
    assert idle_of(variant)[0] == ("room", "b finds no node with room for 2 cores", 10.0)


def test_idle_under_the_throttle() -> None:
    made = study([Step("s")], [Task(f"t{n}", 0, (), 1.0) for n in range(4)], Limits(throttle=2))
    variant = planned(made, "1x4")
    assert idle_of(variant)[0] == ("throttle", "the throttle holds t2 back", 2.0)


def test_idle_stretches_are_merged_while_the_reason_lasts_and_add_up() -> None:
    made = study(
        [Step("a"), Step("b")],
        [*(Task(f"a{n}", 0, (), 1.0 + n) for n in range(3)), Task("b", 1, (0, 1, 2), 4.0)],
    )
    variant = planned(made, "1x3")
    timeline = variant.found.timeline
    [first, last] = idle_stretches(timeline, 10)
    assert (first.since_s, first.until_s, first.cores) == (1.0, 3.0, 1.5)
    assert first.why == "all else waits for a2"
    assert (last.since_s, last.until_s, last.why) == (3.0, 7.0, "only b still runs")
    assert sum(row.core_s for row in idle_rows(timeline)) == pytest.approx(3 * 7 - (1 + 2 + 3 + 4))
    assert timeline.busy_core_s == pytest.approx(10.0)


def test_what_ready_tasks_waited_for_is_told_by_step() -> None:
    made = study([Step("s")], [Task(f"t{n}", 0, (), 10.0) for n in range(3)])
    [row] = step_times(planned(made, "1x1").found.timeline)
    assert (row.waited_s, row.waited_most_s) == (10.0, 20.0)
    assert row.waited_for == Reason.CORES.value


# The variants


def test_nodes_are_counted_or_described_and_groups_are_joined_by_a_plus() -> None:
    made = study([], [])
    found = groups_named("2, 1x8:1, 1x4+2x2@thin", 3, made, None)
    assert [text for text, _ in found] == ["2x3", "1x8:1", "1x4+2x2@thin"]
    assert [[node.cores for node in nodes] for _, nodes in found] == [[3, 3], [8], [4, 2, 2]]
    assert in_short(found[2][1]) == "1x4+2x2@thin"


@pytest.mark.parametrize("text", ["", "x", "2x", "4x0", "1,,2", "ten"])
def test_nodes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="as in 10x8"):
        groups_named(text, 2, study([], []), None)


def test_without_nodes_their_number_is_doubled_while_they_help() -> None:
    made = study([Step("s")], [Task(f"t{n}", 0, (), 10.0) for n in range(16)])
    found = groups_worth_a_look(made, durations_of(made, 1.0), 2, None)
    assert [text for text, _ in found] == ["1x2", "2x2", "4x2", "8x2"]
    wide = study([Step("s", Needs(1, nodes=3))], [Task("t", 0, (), 1.0)])
    assert [text for text, _ in groups_worth_a_look(wide, durations_of(wide, 1.0), 1, None)] == ["4x1"]


def test_packers_are_compared() -> None:
    made = study([Step("s")], [Task("a", 0, (), 1.0)])
    groups = groups_named("2x2", 1, made, None)
    found = foresee(made, durations_of(made, 1.0), made.limits, groups, [("best-fit", best_fit), ("spread", spread)])
    assert [variant.name for variant in found] == ["2x2 best-fit", "2x2 spread"]


# The recommendation


def ends(*variants: tuple[str, float]) -> list[Variant]:
    """Variants of one task, which takes so long on so many nodes."""
    found = []
    for nodes, seconds in variants:
        made = study([Step("s")], [Task("t", 0, (), seconds)])
        found.append(planned(made, nodes))
    return found


def test_the_cheapest_of_those_near_the_soonest_is_recommended() -> None:
    found = recommend(ends(("1x1", 200.0), ("2x1", 104.0), ("4x1", 100.0)))
    assert found.variant == 1
    assert "within 5%" in found.why
    assert recommend(ends(("1x1", 200.0), ("2x1", 106.0), ("4x1", 100.0))).variant == 2


def test_with_a_time_to_finish_by_the_cheapest_in_time_is_recommended() -> None:
    variants = ends(("1x1", 200.0), ("2x1", 104.0), ("4x1", 100.0))
    assert recommend(variants, 250.0).variant == 0
    assert recommend(variants, 150.0).variant == 1
    late = recommend(variants, 50.0)
    assert late.variant is None
    assert late.why == "none of them ends within 50 s; the soonest, 4x1, takes 1 min 40 s"


def test_finish_by_takes_a_duration(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("plan", sweep, "--nodes", "1x2,8x2", "--finish-by", "1 min") == 0
    assert "Recommended: 1x2: the fewest node-hours of those that end within 1 min 00 s." in capsys.readouterr().out
    assert cantle("plan", sweep, "--nodes", "1x2,8x2", "--finish-by", "5") == 2
    assert "none of them ends within 5.0 s" in capsys.readouterr().out


# From an earlier run


def earlier(directory: Path) -> Path:
    """Four simulations that took 5, 6, 7 and 8 s on one node of two cores, and one that failed."""
    steps = [Step("sim"), Step("report")]
    tasks = [*(Task(f"sim_{n}", 0, (), 1.0) for n in range(4)), Task("report", 1, (), 1.0)]
    fates = {n: Fate(5.0 + n) for n in range(4)} | {4: Fate(9.0, "failed")}
    return write_run(
        directory, records_of(steps, tasks, lambda task, _: fates[task], nodes=(Node("here", 2),), directory=directory)
    )


def test_an_earlier_run_is_planned_on_other_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = earlier(tmp_path / "run")
    assert cantle("plan", "--from", run, "--nodes", "1x1,1x5", "--json") == 0
    plan = msgspec.json.decode(capsys.readouterr().out)
    assert plan["durations"] == {
        "estimated": 1,  # the one that failed keeps its estimate
        "from_run": 4,
        "from_run_by_step": 0,
        "assumed": 0,
        "assumed_s": None,
    }
    assert [variant["end_s"] for variant in plan["variants"]] == pytest.approx([5 + 6 + 7 + 8 + 1, 8.0])


def test_without_nodes_the_earlier_run_s_own_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = earlier(tmp_path / "run")
    assert cantle("plan", "--from", run, "--json") == 0
    plan = msgspec.json.decode(capsys.readouterr().out)
    assert [variant["nodes"] for variant in plan["variants"]] == ["1x2", "2x2"]


def test_nodes_that_are_only_counted_are_like_the_earlier_run_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", records_of([Step("s")], [Task("a", 0)], nodes=[Node("n", 7)]))
    assert cantle("plan", "--from", run, "--nodes", 3, "--json") == 0
    assert [v["nodes"] for v in msgspec.json.decode(capsys.readouterr().out)["variants"]] == ["3x7"]


def test_a_study_takes_durations_by_name_and_else_by_step(tmp_path: Path) -> None:
    timeline = happened_in(earlier(tmp_path / "run")).timeline
    made = study([Step("sim"), Step("new")], [Task("sim_3", 0), Task("sim_9", 0), Task("x", 1, (), 2.0), Task("y", 1)])
    found = durations_of(made, 4.0, experience_of(timeline))
    assert found.seconds == pytest.approx([8.0, 6.5, 2.0, 4.0])
    assert (found.happened, found.alike, found.said, found.assumed) == (1, 1, 1, 1)


def test_what_a_study_does_not_say_it_learns_from_an_earlier_run() -> None:
    experience = Experience({"a": 7.0}, {"s": 3.0, "t": 4.0}, {"s": {1: 10.0, 4: 4.0}})
    steps = [Step("s", widths=(1, 2, 4)), Step("s", widths=(1, 2), times_s=(3.0, 2.0)), Step("t"), Step("new")]
    tasks = [Task("a", 0), Task("b", 1, (), 5.0), Task("c", 2), Task("d", 3)]
    found = informed(study(steps, tasks), experience)
    assert [step.times_s for step in found.steps] == [(10.0, 0.0, 4.0), (3.0, 2.0), (), ()]
    assert [task.estimate_s for task in found.tasks] == [7.0, 5.0, 4.0, 0.0]


def test_durations_on_other_widths_are_stated_learned_or_fitted() -> None:
    stated = Step("s", Needs(1), widths=(1, 2, 4), times_s=(8.0, 5.0, 3.0))
    part = Step("p", Needs(1), widths=(1, 2, 4), times_s=(8.0, 5.0, 0.0))
    bare = Step("b", Needs(1), widths=(2, 4))
    made = study([stated, part, bare], [Task("a", 0), Task("b", 1, (), 16.0), Task("c", 2, (), 11.0)])
    found = durations_of(made, 1.0)
    assert [found.at(made.tasks, 0, width) for width in (1, 2, 4)] == pytest.approx([8.0, 5.0, 3.0])
    assert [found.at(made.tasks, 1, width) for width in (1, 2, 4)] == pytest.approx([16.0, 10.0, 7.0])
    # a tenth of the work is taken for serial where nothing is known
    assert [found.at(made.tasks, 2, width) for width in (2, 4)] == pytest.approx([11.0, 6.5])


def test_what_ran_on_one_width_tells_of_the_others(tmp_path: Path) -> None:
    steps = [Step("s", Needs(1, nodes=2), widths=(2, 4), times_s=(8.0, 5.0))]
    records = records_of(
        steps, [Task("a", 0)], lambda *_: Fate(16.0), nodes=[Node(f"n{n}", 1) for n in range(2)], start_s=0.0
    )
    experience = experience_of(happened_in(write_run(tmp_path / "run", records)).timeline)
    assert experience.by_width == {"s": {2: 16.0}}
    assert experience.by_task == {"a": 16.0}
    bare = study([Step("s", Needs(1), widths=(1, 2))], [Task("a", 0)])
    found = durations_of(bare, 1.0, Experience({}, {"s": 3.0}, {"s": {2: 11.0}}))
    assert [found.at(bare.tasks, 0, width) for width in (1, 2)] == pytest.approx([3.0, 3.0 * 0.55])


def test_what_ran_wide_is_counted_back_to_the_least_width() -> None:
    made = study([Step("s", Needs(1), widths=(1, 2), times_s=(8.0, 4.0))], [Task("a", 0, (), 8.0)])
    timeline = planned(made, "2x1").found.timeline
    timeline.attempts[0].on = (Place(0, "0"), Place(1, "0"))
    timeline.attempts[0].ended = timeline.attempts[0].started + 6.0
    experience = experience_of(timeline)
    # 6 s on two nodes; on one it is said to take 8
    assert experience.by_task["a"] == pytest.approx(8.0)


# Widths


def moldable() -> Study:
    """Two tasks that take 8 s on one node, 5 on two and 3 on four, and one of a single width between them."""
    steps = [Step("solve", Needs(1), widths=(1, 2, 4), times_s=(8.0, 5.0, 3.0)), Step("join")]
    tasks = [Task("s0", 0, (), 8.0), Task("j", 1, (0,), 1.0), Task("s1", 0, (1,), 8.0)]
    return study(steps, tasks)


def test_the_widths_that_are_chosen_are_told_by_step() -> None:
    variant = planned(moldable(), "4x1")
    [solve, join] = step_times(variant.found.timeline)
    assert (solve.widths, solve.moldable, solve.mean_s) == ({4: 2}, True, 3.0)
    assert (join.widths, join.moldable) == ({1: 1}, False)
    assert variant.found.end_s == 7.0
    assert variant.found.critical_path_s == 7.0  # each at its fastest
    assert variant.found.area_core_s == 17.0  # each at its cheapest
    assert widths_in_words(solve) == "2 on 4 nodes"
    assert widths_in_words(join) == ""
    assert planned(moldable(), "1x1").found.end_s == 17.0


# What cannot be done


def test_neither_a_study_nor_a_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("plan") == 1
    assert "name a study, or an earlier run with --from RUN" in capsys.readouterr().err


def test_slices_of_an_earlier_run_may_be_overruled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = earlier(tmp_path / "run")
    study_of_run = happened_in(run).study()
    asked = Namespace(slices="2 x 1 / 2", max_active=2, streams=None, run=run)
    assert _sliced(study_of_run, asked).slicing == Slicing((Slice(1, 2, 2),), max_active=2)
    assert cantle("plan", "--from", run, "--slices", "3 by 4") == 1
    assert "--slices: '3 by 4' is no slice" in capsys.readouterr().err
    assert cantle("plan", "--from", run, "--max-active", 2) == 1
    assert "there are no slices to bound" in capsys.readouterr().err


def test_a_directory_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("plan", "--from", tmp_path) == 1
    assert "is not the directory of a Cantle run" in capsys.readouterr().err


def test_a_packer_that_is_not_there_is_refused(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("plan", sweep, "--packer", "bestfit") == 1
    assert "bestfit" in capsys.readouterr().err


# Partitions


def with_partition() -> Study:
    """Two nodes of two cores; one task wants the second node as a partition of its own, when a task of 4 s is done."""
    steps = [Step("first"), Step("inside", Needs(2), partition="whole"), Step("rest")]
    tasks = [Task("f", 0, (), 4.0), Task("i", 1, (0,), 6.0), Task("r", 2, (), 12.0)]
    made = study(steps, tasks)
    made.partitions = (PartitionWish("whole"),)
    return made


def test_partitions_that_a_plan_makes_are_told() -> None:
    timeline = planned(with_partition(), "2x2").found.timeline
    [row] = partition_times(timeline)
    assert (row.name, row.standing, row.nodes, row.cores, row.attempts) == ("whole", "DONE", 1, 2, 1)
    assert (row.asked_s, row.active_s, row.ended_s) == (4.0, 4.0, 10.0)
    assert row.in_use == pytest.approx(1.0)
    assert [step.partitions for step in step_times(timeline)] == [[], ["whole"], []]


def test_idle_cores_that_wait_for_a_partition_or_are_held_by_one_are_told() -> None:
    steps = [Step("seed"), Step("inside", Needs(2), partition="part"), Step("more")]
    tasks = [Task("n", 0, (), 3.0), Task("m", 0, (), 9.0), Task("i", 1, (0,), 1.0)]
    made = study(steps, tasks)
    made.partitions = (PartitionWish("part", 1, 2),)
    assert idle_of(planned(made, "1x2")) == [("partition", "i waits for the partition part", 6.0)]
    made.tasks.append(
        Task("q", 2, (0,), 5.0)
    )  # more urgent than i, and the partition gathers the core that it could use
    found = planned(made, "1x2")
    assert idle_of(found) == [
        ("held", "q waits, and partitions hold the idle cores", 6.0),
        ("last", "only q still runs", 5.0),
    ]
    assert found.found.timeline.busy_core_s == pytest.approx(3 + 9 + 2 + 5)


def test_holdings_of_a_partition_that_shrinks_and_of_a_node_that_is_lost() -> None:
    state = State()
    recorder = Recorder(state)

    def tell(record: AnyRecord) -> None:
        recorder.write(record)
        state.apply(record)

    tell(NodesJoined(0.0, [Node("a", 4), Node("b", 4)]))
    tell(PartitionAsked(1.0, PartitionWish("p", 2, 4)))
    tell(AdmitPartition(1.0, 0))
    tell(GrowPartition(2.0, 0, (Slots(0, "0-3"), Slots(1, "0-3"))))
    tell(OpenPartition(3.0, 0))
    tell(PartitionStarted(4.0, 0))
    tell(ShrinkPartition(5.0, 0, (Slots(0, "1-2"),)))
    tell(NodeLost(6.0, 1))
    tell(TimePassed(8.0))
    timeline = recorder.finish(8.0)
    found = [(held.node, held.cores, held.since, held.until) for held in timeline.holdings]
    assert found == [(0, "0-3", 2.0, 5.0), (1, "0-3", 2.0, 6.0), (0, "0,3", 5.0, 8.0)]
    [row] = partition_times(timeline)
    assert (row.nodes, row.cores, row.active_s, row.ended_s, row.in_use) == (2, 8, 4.0, 8.0, 0.0)


def test_studies_that_share_a_run_keep_their_steps_apart() -> None:
    state = State()
    recorder = Recorder(state)
    records: list[AnyRecord] = [
        StudyAdded(0.0, "one", [Step("sim")]),
        TasksAdded(0.0, 0, [Task("a", 0)]),
        StudyAdded(0.0, "two", [Step("sim")]),
        TasksAdded(0.0, 1, [Task("b", 1)], study=1),
    ]
    for record in records:
        recorder.write(record)
        state.apply(record)
    assert [row.name for row in step_times(recorder.finish(1.0))] == ["one: sim", "two: sim"]
