"""`cantle validate` and `simulate`: what can be known of a study before anything of it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rundirs import SWEEP, cantle

from cantle.errors import RequestError
from cantle.model.resources import Needs, Node
from cantle.model.study import Limits, Step, Study, Task
from cantle.report.forecast import Chances, Forecast, forecast, parse_losses, parse_nodes

BAD = """\
description:
    name: sweep
    description: two mistakes
study:
    - name: sim
      description: simulate
      run:
          cmd: sim
          proccs: 2
    - name: report
      description: put it together
      run:
          cmd: report
          depends: [simm]
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(SWEEP)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


# validate


def test_validate_sums_up_a_good_study(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("validate", good) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{good}: good: sweep: 5 tasks of 2 steps, 1 parameter (SIZE), 4 edges"
    assert out[1:] == ["  sim     4 tasks  2 cores", "  report   1 task  1 core"]


def test_validate_tells_all_problems_of_all_files(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("validate", bad, good, good.parent / "nowhere.yaml") == 1
    told = capsys.readouterr()
    assert f"{bad}:9: study[0].run.proccs" in told.err
    assert "did you mean 'procs'" in told.err
    assert f"{bad}:14: study[1].run.depends" in told.err
    assert f"{bad}: 2 problems" in told.err
    assert "nowhere.yaml" in told.err
    assert told.out.startswith(f"{good}: good")


def test_validate_as_json_is_one_object_a_file(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("validate", good, bad, "--json") == 1
    first, second = map(msgspec.json.decode, capsys.readouterr().out.splitlines())
    assert (first["good"], first["tasks"], first["edges"], first["parameters"]) == (True, 5, 4, ["SIZE"])
    assert first["steps"][0] == {"name": "sim", "tasks": 4, "needs": "2 cores"}
    assert second["good"] is False
    assert {problem["line"] for problem in second["problems"]} == {9, 14}


def test_validate_runs_and_writes_nothing(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(good.parent)
    assert cantle("validate", good) == 0
    assert [path.name for path in good.parent.iterdir()] == ["good.yaml"]


# simulate


def study(tasks: list[Task], steps: list[Step] | None = None) -> Study:
    def no_work(_directory: str) -> Any:
        raise AssertionError("a simulation runs nothing")

    return Study("made", steps or [Step("s")], tasks, no_work)


def foreseen(tasks: list[Task], cores: int = 4, steps: list[Step] | None = None, **more: Any) -> Forecast:
    made = study(tasks, steps)
    limits = more.pop("limits", Limits())
    default = more.pop("default_s", 1.0)
    nodes = more.pop("nodes", [Node("n", cores)])
    return forecast(made, nodes, limits, Chances(**more), default)


def test_simulate_tells_the_end_the_bound_and_what_stands_idle(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("simulate", good, "--cores", 4, "--default-estimate", 5) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("sweep: 5 tasks, simulated on node0 (4 cores")
    assert "ends after    25 s, 1.18 times the lower bound" in out
    assert "lower bound   21 s: the longest chain takes 15 s, the work spread evenly over the cores 21 s" in out
    assert "cores in use  85.0 %" in out
    assert "5 done" in out
    assert "1 task without an estimate: taken for 5.0 s each" in out


def test_simulate_as_json_is_one_object(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("simulate", good, "--nodes", "2x2", "--default-estimate", 5, "--json") == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["end_s"] == 25.0
    assert found["bound_s"] == 21.25
    assert found["utilisation"] == pytest.approx(0.85)
    assert found["counts"] == {"done": 5}
    assert [step["name"] for step in found["steps"]] == ["sim", "report"]
    assert found["steps"][0]["core_s"] == 80.0


def test_what_can_never_run_is_told_and_the_exit_status_says_so(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("simulate", good, "--cores", 1) == 2
    out = capsys.readouterr().out
    assert "4 failed, 1 skipped" in out
    assert "failed: sim_SIZE.1: needs 2 cores; the largest node, node0 (1 core" in out


def test_the_same_seed_tells_the_same_story_and_another_seed_another() -> None:
    tasks = [Task(f"t{n}", 0, (n - 3,) if n > 2 else (), 5.0) for n in range(60)]

    def end(seed: int) -> float:
        return foreseen(tasks, seed=seed, jitter=0.3, failures=0.05).end_s

    assert end(1) == end(1) != end(2)


def test_the_bound_is_that_of_what_really_happened() -> None:
    chain = [Task(f"t{n}", 0, (n - 1,) if n else (), 5.0) for n in range(10)]
    found = foreseen(chain, jitter=0.5, seed=3)
    assert found.bound_s == pytest.approx(found.end_s)
    assert found.end_s != 50.0
    assert found.ratio == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(5))
def test_no_simulation_beats_its_bound(seed: int) -> None:
    steps = [Step("s", Needs(2), retries=3), Step("w", Needs(1))]
    tasks = [Task(f"t{n}", n % 2, (n - 5, n - 4) if n > 5 else (), 1.0 + n % 7) for n in range(80)]
    found = foreseen(tasks, 5, steps, seed=seed, jitter=0.4, failures=0.1, start_delay_s=0.2)
    assert found.end_s >= found.bound_s
    assert 0.0 < found.utilisation <= 1.0


def test_utilisation_counts_cores_while_they_are_there() -> None:
    nodes = [Node("n0", 2), Node("n1", 2)]
    tasks = [Task("a", 0, (), 10.0), Task("b", 0, (), 10.0)]
    steps = [Step("s", Needs(2))]
    both = foreseen(tasks, steps=steps, nodes=nodes)
    assert (both.end_s, both.utilisation) == (10.0, 1.0)
    lost = foreseen(tasks, steps=steps, nodes=nodes, losses=((5.0, 1),))
    assert lost.end_s == 20.0
    assert lost.utilisation == pytest.approx(1.0)
    assert lost.state.succeeded


def test_a_study_of_no_tasks_ends_at_once() -> None:
    found = foreseen([])
    assert (found.end_s, found.ratio, found.utilisation) == (0.0, None, 0.0)


def test_tasks_without_an_estimate_never_run_into_their_walltime() -> None:
    found = foreseen([Task("a", 0)], steps=[Step("s", walltime_s=30.0)], default_s=100.0)
    assert found.end_s == 30.0
    assert found.state.succeeded


def test_the_throttle_holds_in_the_simulation() -> None:
    tasks = [Task(f"t{n}", 0, (), 1.0) for n in range(8)]
    assert foreseen(tasks, 8).end_s == 1.0
    assert foreseen(tasks, 8, limits=Limits(throttle=2)).end_s == 4.0


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("8", [(8, 0, "")]),
        ("2x4", [(4, 0, ""), (4, 0, "")]),
        ("1x64:4, 2x8@thin", [(64, 4, ""), (8, 0, "thin"), (8, 0, "thin")]),
    ],
)
def test_nodes_are_written_as_count_cores_gpus_and_kind(text: str, nodes: list[tuple[int, int, str]]) -> None:
    found = parse_nodes(text, study([]), None)
    assert [(node.cores, node.gpus, node.kind) for node in found] == nodes
    assert len({node.name for node in found}) == len(found)


@pytest.mark.parametrize("text", ["", "x8", "2x", "8x0", "-1", "2x8:", "2*8", "2x8,"])
def test_nodes_that_make_no_sense_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(RequestError, match="as in 10x8 or 4x64:8"):
        parse_nodes(text, study([]), None)


def test_memory_and_named_resources_suffice_unless_memory_is_told() -> None:
    steps = [Step("s", Needs(1, memory_mib=500, named=(("licence", 2),)))]
    tasks = [Task(f"t{n}", 0, (), 1.0) for n in range(4)]
    made = study(tasks, steps)
    assert forecast(made, parse_nodes("4", made, None), Limits(), Chances()).end_s == 1.0
    assert forecast(made, parse_nodes("4", made, 1000), Limits(), Chances()).end_s == 2.0


def test_who_is_restarted_when_his_time_is_up_goes_on_where_he_was() -> None:
    """With a walltime below the estimate, and restarts without bound, he began from the start for ever."""
    made = study([Task("t", 0, (), 25.0)], [Step("s", Needs(1), walltime_s=10.0, restartable=True)])
    found = forecast(made, parse_nodes("2", made, None), Limits(rlimit=0), Chances())
    assert found.end_s == 25.0 and found.state.succeeded and found.state.attempts == [3]
    bounded = forecast(made, parse_nodes("2", made, None), Limits(rlimit=1), Chances())
    assert bounded.end_s == 20.0 and bounded.state.cause_of[0] == "timed out after 1 of 1 restarts"


def test_losses_name_a_node_by_number_or_name() -> None:
    nodes = parse_nodes("3x2", study([]), None)
    assert parse_losses(["5:2", "7.5:node0"], nodes) == ((5.0, 2), (7.5, 0))
    for text in ("5", "x:1", "5:3", "5:", "inf:1", "nan:1", "-1:1"):
        with pytest.raises(RequestError, match="--lose"):
            parse_losses([text], nodes)


def test_options_that_exclude_each_other_are_refused(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("simulate", good, "--nodes", "2x2", "--cores", 4) == 1
    assert "exclude each other" in capsys.readouterr().err
    assert cantle("simulate", good, "--failures", 2) == 1
    assert "between 0 and 1" in capsys.readouterr().err
