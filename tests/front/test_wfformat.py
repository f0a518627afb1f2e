"""WfFormat: every version gives the same study; replays take the recorded time; what is wrong is told all at once."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cantle.errors import RequestError, StudyError
from cantle.model.resources import Needs
from cantle.model.study import Command, Study
from cantle.readers.base import ReadOptions
from cantle.readers.wfformat import WfFormatReader

# The same diamond in each version's words. In the file, children may stand before their parents.


def task(name: str, number: str, runtime: float, parents: list[str], **more: Any) -> dict[str, Any]:
    return {
        "name": f"{name}_ID{number}",
        "id": f"ID{number}",
        "category": name,
        "runtime": runtime,
        "parents": parents,
        **more,
    }


def version_13() -> dict[str, Any]:
    return {
        "name": "diamond",
        "schemaVersion": "1.3",
        "workflow": {
            "makespan": 9,
            "tasks": [
                task("join", "04", 0, ["left_ID02", "right side_ID03"]),
                task("split", "01", 1.25, [], cores=1.0, memory=2048),
                task("left", "02", 2, ["split_ID01"], category="side", cores=2),
                task("right side", "03", 3, ["split_ID01"], category="side"),
            ],
        },
    }


def version_14() -> dict[str, Any]:
    """As 1.3 with other words for the measures, and edges by id."""
    content = version_13() | {"schemaVersion": "1.4"}
    for task in content["workflow"]["tasks"]:
        task["runtimeInSeconds"] = task.pop("runtime")
        task["parents"] = [parent[-4:] for parent in task["parents"]]
        if "memory" in task:
            task["memoryInBytes"] = task.pop("memory") * 1000
    return content


def version_15() -> dict[str, Any]:
    """As 1.4, cut into what was to be done and what happened."""
    graph, happened = [], []
    for task in version_13()["workflow"]["tasks"]:
        graph.append(
            {
                "id": task["name"],
                "name": task["name"],
                "parents": task["parents"],
                "children": [],
                "inputFiles": ["x"],
                "outputFiles": [],
            }
        )
        record = {"id": task["name"], "runtimeInSeconds": task["runtime"], "command": {"program": task["category"]}}
        if "cores" in task:
            record["coreCount"] = task["cores"]
        if "memory" in task:
            record["memoryInBytes"] = task["memory"] * 1000
        happened.append(record)
    happened.reverse()
    return {
        "name": "diamond",
        "description": "four tasks",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": graph, "files": []},
            "execution": {"makespanInSeconds": 9, "tasks": happened},
        },
    }


VERSIONS = {
    "1.3": version_13,
    "1.4": version_14,
    "1.5": version_15,
    "1.6": lambda: version_15() | {"schemaVersion": "1.6"},
}


def read(
    content: Any, folder: Path, options: ReadOptions | None = None, packed: bool = False, reserve_memory: bool = False
) -> Study:
    text = content if isinstance(content, bytes) else json.dumps(content, indent=1).encode()
    path = folder / ("w.json.gz" if packed else "w.json")
    path.write_bytes(gzip.compress(text) if packed else text)
    return WfFormatReader(reserve_memory).read(path, options or ReadOptions())


def command(study: Study, task: int) -> Command:
    return study.work("/nowhere").command(task, 1, False, (), ())


def problems(content: Any, folder: Path) -> list[tuple[int, str, str]]:
    with pytest.raises(StudyError) as caught:
        read(content, folder)
    assert all(problem.file == str(folder / "w.json") for problem in caught.value.problems)
    return [(problem.line, problem.key, problem.what) for problem in caught.value.problems]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_gives_the_same_tasks(version: str, packed: bool, tmp_path: Path) -> None:
    study = read(VERSIONS[version](), tmp_path, packed=packed)
    assert (study.name, study.warnings) == ("diamond", [])
    assert [(t.name, t.parents, t.estimate_s) for t in study.tasks] == [
        ("split_ID01", (), 1.25),
        ("left_ID02", (0,), 2.0),
        ("right_side_ID03", (0,), 3.0),
        ("join_ID04", (1, 2), 0.001),
    ]
    steps = [study.steps[t.step] for t in study.tasks]
    assert [(step.needs, step.retries) for step in steps] == [(Needs(cores=n), 0) for n in (1, 2, 1, 1)]
    # 1.5 has no categories: the program's name serves where the task's begins with it
    names = ["split", "left", "right_side", "join"] if version in ("1.5", "1.6") else ["split", "side", "side", "join"]
    assert [step.name for step in steps] == names


@pytest.mark.parametrize("version", VERSIONS)
def test_memory_is_reserved_only_on_request_and_in_the_versions_unit(version: str, tmp_path: Path) -> None:
    study = read(VERSIONS[version](), tmp_path, reserve_memory=True)
    # 2,048 kB are 1.95 MiB
    assert [study.steps[t.step].needs.memory_mib for t in study.tasks] == [2, 0, 0, 0]


def test_tasks_sleep_for_the_scaled_time_and_end_at_once_below_a_millisecond(tmp_path: Path) -> None:
    study = read(version_13(), tmp_path, ReadOptions(scale=0.001))
    assert [command(study, n).argv for n in range(4)] == [
        ("/bin/sleep", "0.00125"),
        ("/bin/sleep", "0.002"),
        ("/bin/sleep", "0.003"),
        ("/bin/true",),
    ]
    assert command(study, 0).packed
    assert [t.estimate_s for t in study.tasks] == [0.00125, 0.002, 0.003, 0.001]
    assert command(read(version_13(), tmp_path, ReadOptions(scale=100)), 0).argv == ("/bin/sleep", "125")


def test_tasks_spin_for_the_scaled_time(tmp_path: Path) -> None:
    study = read(version_13(), tmp_path, ReadOptions(scale=0.2, spin=True))
    start = time.perf_counter()
    subprocess.run(command(study, 0).argv, check=True)
    assert time.perf_counter() - start >= 0.25
    assert command(study, 3).argv == ("/bin/true",)


def test_attempts_become_retries(tmp_path: Path) -> None:
    assert {step.retries for step in read(version_15(), tmp_path, ReadOptions(attempts=3)).steps} == {2}


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_a_scale_that_gives_no_duration_is_refused(scale: float, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--scale"):
        read(version_13(), tmp_path, ReadOptions(scale=scale))


def test_an_edge_told_at_one_end_is_an_edge_and_counts_once(tmp_path: Path) -> None:
    content = version_15()
    for task in content["workflow"]["specification"]["tasks"]:
        if task["id"] == "split_ID01":
            task["children"] = ["left_ID02", "right side_ID03", "join_ID04"]
        else:
            task["parents"] = task["parents"] * 2
    assert [t.parents for t in read(content, tmp_path).tasks] == [(), (0,), (0,), (0, 1, 2)]


def test_names_may_repeat_where_edges_go_by_id(tmp_path: Path) -> None:
    content = version_15()
    for task in content["workflow"]["specification"]["tasks"]:
        task["name"] = "align reads 7"
    study = read(content, tmp_path)
    assert [t.name for t in study.tasks] == ["split_ID01", "left_ID02", "right_side_ID03", "join_ID04"]
    assert {step.name for step in study.steps} == {"align_reads"}


def test_names_that_become_equal_stay_apart(tmp_path: Path) -> None:
    content = {"workflow": {"tasks": [{"name": name, "runtime": 1} for name in ("a b", "a_b", "a/b", "a_b.2", "///")]}}
    assert [t.name for t in read(content, tmp_path).tasks] == ["a_b", "a_b.2", "a_b.3", "a_b.2.2", "task"]


def test_repeated_names_before_1_5_are_told_apart_by_id(tmp_path: Path) -> None:
    content = version_14()
    for task in content["workflow"]["tasks"][2:]:
        task["name"] = "twin"
    study = read(content, tmp_path)
    assert [t.name for t in study.tasks] == ["split_ID01", "twin_ID02", "twin_ID03", "join_ID04"]
    assert study.tasks[3].parents == (1, 2)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mProject_ID0000001", "mProject"),
        ("cycles_00000002", "cycles"),
        ("bowtie2_ID0000003", "bowtie2"),
        ("merge-12", "merge"),
        ("plain", "plain"),
        ("17", "17"),
    ],
)
def test_a_step_is_named_by_what_its_tasks_have_in_common(name: str, kind: str, tmp_path: Path) -> None:
    content = {"workflow": {"tasks": [{"name": name, "runtime": 1}]}}
    assert [step.name for step in read(content, tmp_path).steps] == [kind]


def test_tasks_of_one_kind_with_other_cores_are_a_step_of_the_same_name(tmp_path: Path) -> None:
    content = {"workflow": {"tasks": [{"name": f"x_{n}", "runtime": 1, "cores": n % 2 + 1} for n in range(6)]}}
    study = read(content, tmp_path)
    assert [(step.name, step.needs.cores) for step in study.steps] == [("x", 1), ("x", 2)]
    assert [t.step for t in study.tasks] == [0, 1] * 3


def test_what_is_missing_or_unknown_but_harmless_is_a_warning(tmp_path: Path) -> None:
    content = version_15() | {"schemaVersion": "9.9"}
    content["workflow"]["execution"]["tasks"][0]["id"] = "stranger"
    warnings = "\n".join(read(content, tmp_path).warnings)
    assert "schemaVersion 9.9 is not known" in warnings
    assert "nothing is recorded of right side_ID03: taken as 0 s" in warnings
    assert "left out: stranger" in warnings
    del content["workflow"]["execution"], content["schemaVersion"]
    warnings = "\n".join(read(content, tmp_path).warnings)
    assert "no execution is recorded" in warnings
    assert "no schemaVersion" in warnings


def test_everything_wrong_is_told_at_once_with_line_and_key(tmp_path: Path) -> None:
    content = version_15()
    graph, happened = content["workflow"]["specification"]["tasks"], content["workflow"]["execution"]["tasks"]
    graph[0]["parents"] = ["left_ID2", 5]
    graph[1]["children"] = "left_ID02"
    graph.append({"id": "left_ID02"})
    graph.append({"name": "no id", "id": 3})
    graph.append({})
    happened[0]["runtimeInSeconds"] = -1
    happened[1]["runtimeInSeconds"] = "1"
    happened[2]["coreCount"] = True
    happened.append({"id": "split_ID01"})
    text = json.dumps(content, indent=1)
    lines = {
        name: 1 + text[: text.index(f'"id": "{name}"')].count("\n") for name in ("join_ID04", "left_ID02", "split_ID01")
    }
    found = problems(content, tmp_path)
    graph_key, record_key = "workflow.specification.tasks", "workflow.execution.tasks"
    for expected in [
        (lines["join_ID04"], f"{graph_key}[0].parents[0]", "there is no task 'left_ID2'"),
        (lines["join_ID04"], f"{graph_key}[0].parents[1]", "there is no task 5"),
        (lines["split_ID01"], f"{graph_key}[1].children", "it must be a list of tasks"),
        (lines["left_ID02"], f"{graph_key}[4].id", f"'left_ID02' is the id of {graph_key}[2] as well"),
        (0, f"{graph_key}[6].id", "it must be a text, not None"),
        (lines["left_ID02"], f"{record_key}[1].runtimeInSeconds", "it must be a number from 0 up, not '1'"),
        (lines["split_ID01"], f"{record_key}[2].coreCount", "it must be a number from 0 up, not True"),
        (lines["split_ID01"], f"{record_key}[4].id", "'split_ID01' is recorded twice"),
    ]:
        assert expected in found
    assert any(key == f"{record_key}[0].runtimeInSeconds" and what.endswith("-1") for _, key, what in found)
    assert len(found) == 9


def test_a_number_that_nobody_could_reckon_with_is_wrong(tmp_path: Path) -> None:
    content = version_15()
    happened = content["workflow"]["execution"]["tasks"]
    happened[0]["runtimeInSeconds"] = 10**400
    found = {(key, what) for _, key, what in problems(content, tmp_path)}
    place = "workflow.execution.tasks"
    shown = "1" + "0" * 38 + "…"
    assert (f"{place}[0].runtimeInSeconds", f"it must be a number from 0 up, not {shown}") in found


def test_o32_a_cycle_is_named_in_the_direction_of_the_edges(tmp_path: Path) -> None:
    tasks = [
        {"name": "first", "parents": []},
        {"name": "a", "parents": ["c", "first"]},
        {"name": "b", "parents": ["a"]},
        {"name": "c", "parents": ["b"]},
        {"name": "behind", "parents": ["c"]},
    ]
    [(line, key, what)] = problems({"schemaVersion": "1.3", "workflow": {"tasks": tasks}}, tmp_path)
    assert line > 0
    assert key.startswith("workflow.tasks[")
    ring = what.removeprefix("these tasks wait for each other: ").split(" -> ")
    assert ring[0] == ring[-1]
    assert set(itertools.pairwise(ring)) == {("a", "b"), ("b", "c"), ("c", "a")}
    tasks = [{"name": "alone", "parents": ["alone"]}]
    [(_, _, what)] = problems({"schemaVersion": "1.3", "workflow": {"tasks": tasks}}, tmp_path)
    assert what.endswith("alone -> alone")


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b'{"name": "x",\n "workflow": {\n  "tasks": [}', "w.json:3", "malformed"),
        (b"", "w.json", "truncated"),
        (b"[]", "w.json", "expected `object`"),
        ({"name": "x"}, "w.json", "workflow"),
        ({"workflow": {}}, "w.json: workflow", "no tasks"),
        ({"workflow": {"tasks": [3]}}, "w.json: workflow.tasks", "expected `object`, got `int`"),
        (gzip.compress(b'{"workflow": {}}')[:-9], "w.json", "too early"),
        (gzip.compress(b'{"workflow": {}}')[:10] + b"\xff" * 9, "w.json", "damaged"),
    ],
)
def test_what_is_no_wfformat_says_where_it_ceases_to_be(content: Any, place: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as caught:
        read(content, tmp_path)
    assert place in str(caught.value)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"absent\.json: cannot be read: No such file"):
        WfFormatReader().read(tmp_path / "absent.json", ReadOptions())


def test_it_knows_its_own_files(tmp_path: Path) -> None:
    reader = WfFormatReader()
    start = json.dumps(version_15()).encode()
    for name, content, expected in [
        ("a.json", start, True),
        ("a.json.gz", gzip.compress(start), True),
        ("long.json.gz", gzip.compress(start + bytes(range(256)) * 4000), True),
        ("bare.json", json.dumps({"workflow": {"tasks": []}}).encode(), True),
        ("a.yaml", start, False),
        ("other.json", b'{"workflow": "x"}', False),
        ("damaged.json.gz", b"\x1f\x8b" + b"\xff" * 50, False),
    ]:
        (tmp_path / name).write_bytes(content)
        assert (name, reader.recognises(tmp_path / name)) == (name, expected)
    assert not reader.recognises(tmp_path / "absent.json")


@pytest.mark.parametrize("packed", [False, True])
def test_a_kept_workflow_opens_again_as_the_same_study(packed: bool, tmp_path: Path) -> None:
    options = ReadOptions(scale=0.5, spin=True, attempts=2)
    first = read(version_15(), tmp_path, options, packed=packed, reserve_memory=True)
    kept = tmp_path / "kept"
    kept.mkdir()
    for name, content in first.keep.items():
        (kept / name).write_bytes(content)
    assert ((kept / "instance.json.gz").exists(), (kept / "instance.json").exists()) == (packed, not packed)
    again = WfFormatReader().reopen(kept)
    assert (again.name, again.steps, again.tasks) == (first.name, first.steps, first.tasks)
    assert (again.digest, again.keep, again.source) == (first.digest, first.keep, first.source)
    for task in range(4):
        assert command(again, task) == command(first, task)
    (kept / "wfformat.json").write_bytes(b"{")
    with pytest.raises(RequestError, match="cannot be read"):
        WfFormatReader().reopen(kept)


def test_packing_or_moving_the_file_keeps_the_digest_and_the_options_change_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    plain = read(version_15(), tmp_path).digest
    assert read(version_15(), tmp_path / "elsewhere", packed=True).digest == plain
    assert read(version_15(), tmp_path, ReadOptions(scale=2)).digest != plain
    assert read(version_14(), tmp_path).digest != plain


def test_a_file_without_a_bottom_is_told(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"workflow": {"more": ' + "[" * 100_000)
    with pytest.raises(StudyError, match="nested too deeply"):
        WfFormatReader().read(path, ReadOptions())
