"""`cantle report` and `cantle plan --html`: one file that loads nothing, and shows what happened as it happened."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bokeh.document import Document
from rundirs import START, Conductor, cantle, demo, records_of, write_run

from cantle.core.idleness import Reason
from cantle.model.records import (
    AnyRecord,
    Launch,
    NodeLost,
    NodesJoined,
    RunStarted,
    StudyAdded,
    StudyOver,
    TaskEnded,
    TasksAdded,
)
from cantle.model.resources import Needs, Node, Place
from cantle.model.study import PartitionWish, Step, Task
from cantle.report.chain import critical_chain
from cantle.report.happened import happened_in
from cantle.report.html import bars as bars_module
from cantle.report.html.bars import bars_of
from cantle.report.html.canvas import COLOURS, OTHERS
from cantle.report.html.usage import SPANS, Sums
from cantle.report.step_times import step_times
from cantle.runtime.simulated import Fate


class Page(HTMLParser):
    """What of a page matters to the tests: its text, what it would load, its charts, its tables."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.items: dict[str, Any] = {}
        self.places: list[str] = []
        self.text = ""
        self._inside = ""
        self._item = ""
        self._data = ""
        self.source = file.read_text()
        self.feed(self.source)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.loads += [value for key in ("src", "href", "srcset", "data", "action") if (value := found.get(key))]
        self._inside = tag if tag in ("script", "style") else ""
        if tag == "script" and found.get("type") == "application/json":
            self._item, self._data = found["id"] or "", ""
        if tag == "div" and found.get("class") == "chart":
            self.places.append(found["data-item"] or "")

    def handle_endtag(self, tag: str) -> None:
        if self._item and tag == "script":
            self.items[self._item] = json.loads(self._data)
            self._item = ""
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._item:
            self._data += data
        elif not self._inside:
            self.text += f" {data.strip()}"

    def columns(self, item: str, name: str) -> dict[str, list[Any]]:
        """The columns behind the renderers of that name in a chart."""
        document = Document.from_json(self.items[item]["doc"])
        found: dict[str, list[Any]] = {}
        for renderer in document.select({"name": name}):
            for key, values in renderer.data_source.data.items():
                found.setdefault(key, []).extend(values)
        return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return demo(tmp_path / "run")


def report(run: Path, *words: object) -> Page:
    assert cantle("report", run, *words) == 0
    return Page(run / "report.html")


# The file


def test_the_page_loads_nothing_from_anywhere(run: Path) -> None:
    page = report(run)
    assert page.loads == ["data:,"]
    assert "iframe" not in page.tags
    assert not re.search(r"@import|url\(", re.search(r"<style>.*?</style>", page.source, re.DOTALL)[0])  # type: ignore[index]
    assert len(page.source) < 2_000_000


def test_the_library_stands_in_the_page_as_its_package_brings_it(run: Path) -> None:
    from bokeh.resources import Resources

    [library] = Resources(mode="inline", components=["bokeh"], minified=True).js_raw[:1]
    assert library.replace("</script", "<\\/script") in report(run).source


def test_every_chart_has_its_data_and_can_be_read_back(run: Path) -> None:
    page = report(run)
    assert page.places == list(page.items) == ["item0"]
    document = Document.from_json(page.items["item0"]["doc"])
    assert [root.id for root in document.roots] == [page.items["item0"]["root_id"]]


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    nasty = "</script><img src=x onerror=alert(1)>"
    directory = tmp_path / "run"
    tasks = [Task(f"a{nasty}", 0), Task("\x1b[31mred", 0)]
    write_run(directory, records_of([Step(f"s{nasty}")], tasks, directory=directory))
    page = report(directory)
    assert "img" not in page.tags
    assert page.columns("item0", f"step:s{nasty}")["title"] == [f"a{nasty}", "\\x1b[31mred"]


def test_steps_that_have_no_colour_of_their_own_are_drawn_together(tmp_path: Path) -> None:
    many = 5 * len(COLOURS)
    steps = [Step(f"s{number}") for number in range(many)]
    tasks = [Task(f"t{number}", number) for number in range(many)]
    directory = write_run(tmp_path / "run", records_of(steps, tasks, directory=tmp_path / "run"))
    page = report(directory)
    assert len(page.columns("item0", f"step:{OTHERS}")["title"]) == many - len(COLOURS)
    drawn = set(re.findall(r'"name":\s*"step:([^"]*)"', page.source))
    assert len(drawn) == len(COLOURS) + 1
    one = min(drawn - {OTHERS})
    assert page.columns("item0", f"step:{one}")["title"] == [one.replace("s", "t")]


def test_the_page_goes_where_it_is_wanted_and_says_where(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cantle("report", run, "-o", tmp_path / "page.html") == 0
    assert f"The page is in {tmp_path / 'page.html'}" in capsys.readouterr().err
    assert Page(tmp_path / "page.html").places
    assert cantle("report", run, "-o", tmp_path / "nowhere" / "page.html") == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_run_does_not_load_what_draws() -> None:
    program = (
        "import sys, cantle.cli.running, cantle.runtime.conducting, cantle.report.progress; "
        "print([name for name in sys.modules if name.startswith(('bokeh', 'numpy', 'cantle.report.html'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_library_it_is_told_what_to_install(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "bokeh" else find_spec(name))
    assert cantle("report", run) == 1
    assert "pip install 'cantle[pages]'" in capsys.readouterr().err


# What happened


def test_each_attempt_is_a_bar_on_its_cores_at_its_time(run: Path) -> None:
    bars = report(run).columns("item0", "step:sim")
    assert bars["title"] == ["sim_N.1", "sim_N.2"]
    assert bars["left"] == [0.5, 0.5]
    assert bars["right"] == [10.5, 4.5]
    assert [round(top) for top in bars["top"]] == [0, 1]
    assert [round(bottom) for bottom in bars["bottom"]] == [1, 2]
    assert bars["what"] == ["attempt 1: done", "attempt 1: failed with exit code 1"]
    assert bars["where"] == ["here, cores 0", "here, cores 1"]
    assert bars["colour"][0] != bars["colour"][1]  # a failure is red


def test_the_figures_are_those_of_the_run(run: Path) -> None:
    page = report(run)
    # sim 1 takes 0 to 10.5 with its start, its report up to 21; sim 2 fails at 4.5
    timeline = happened_in(run).timeline
    assert timeline.end == 21.0
    assert timeline.node_hours == pytest.approx(21 / 3600)
    assert timeline.busy_core_s == pytest.approx(10.5 + 4.5 + 10.5)
    assert timeline.utilisation == pytest.approx(25.5 / 42)
    assert "21 s from the start to the end" in page.text
    assert "60.7 % of the cores' time in use" in page.text
    assert "1 failed 3 attempts" in page.text
    assert [(row.name, row.done, row.failures) for row in step_times(timeline)] == [("sim", 1, 1), ("report", 1, 0)]
    assert "Failures task why sim_N.2" in page.text


def test_cpu_and_peak_memory_are_told_by_step(tmp_path: Path) -> None:
    records = records_of([Step("s")], [Task("a", 0), Task("b", 0)])
    used = iter([(5.0, 250.0), (3.0, 100.0)])
    changed = []
    for record in records:
        if isinstance(record, TaskEnded):
            cpu_s, peak_mib = next(used)
            record = msgspec.structs.replace(record, cpu_s=cpu_s, peak_mib=peak_mib)
        changed.append(record)
    directory = write_run(tmp_path / "run", changed)
    [row] = step_times(happened_in(directory).timeline)
    assert (row.cpu_s, row.peak_mib, row.failures, row.widths) == (8.0, 250.0, 0, {1: 2})
    page = report(directory)
    assert "8.0 s 250 MiB" in page.text
    assert "attempt 1: done; CPU 5.0 s, at most 250 MiB" in page.columns("item0", "step:s")["what"]


def test_a_node_that_was_lost_shades_its_rows_and_its_attempts_are_lost(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    nodes = [Node("n0", 1), Node("n1", 1)]
    tasks = [Task("a", 0), Task("b", 0)]
    write_run(directory, records_of([Step("s")], tasks, nodes=nodes, asked=[NodeLost(4.0, 1, "gone")]))
    page = report(directory)
    absent = page.columns("item0", "absent")
    assert (absent["left"], absent["right"], absent["top"], absent["bottom"]) == ([4.0], [21.0], [1], [2])
    assert page.columns("item0", "step:s")["what"] == ["attempt 1: done", "attempt 1: lost", "attempt 2: done"]
    assert page.columns("item0", "step:s")["why"][1] == "gone"
    timeline = happened_in(directory).timeline
    assert timeline.node_hours == pytest.approx((21 + 4) / 3600)
    assert [attempt.ended for attempt in timeline.attempts] == [10.5, 4.0, 21.0]


def test_a_task_on_several_nodes_covers_them_all(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    nodes = [Node(f"n{n}", 4) for n in range(3)]
    write_run(directory, records_of([Step("w", Needs(4, nodes=2))], [Task("wide", 0)], nodes=nodes))
    bars = report(directory).columns("item0", "step:w")
    assert [(round(top), round(bottom)) for top, bottom in zip(bars["top"], bars["bottom"], strict=True)] == [(0, 8)]
    assert bars["where"] == ["n0 and 1 more node, 8 cores"]
    assert "1 on 2 nodes" in report(directory).text


def test_a_run_that_goes_on_is_told_up_to_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "run"
    demo(directory, until=8)
    assert happened_in(directory).timeline.end < 1
    monkeypatch.setattr("cantle.report.loading.time", lambda: START + 100.0)
    with Conductor(directory):
        assert happened_in(directory).timeline.end == 100.0
        page = report(directory)
        assert "running:" in page.text
        assert "so far" in page.text
        assert "attempt 1: running" in page.columns("item0", "step:sim")["what"]


def test_what_a_damaged_journal_lost_is_said(run: Path) -> None:
    journal = run / ".cantle" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:6], b"\x00garbage\n", *lines[7:]]))
    page = report(run)
    assert "line 7" in page.text
    assert page.places == ["item0"]


def test_a_directory_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cantle("report", tmp_path) == 1
    assert "is not the directory of a Cantle run" in capsys.readouterr().err
    (tmp_path / "run").mkdir()
    write_run(tmp_path / "run", [])
    assert cantle("report", tmp_path / "run") == 1
    assert "its journal names no study" in capsys.readouterr().err


def test_a_run_without_nodes_or_attempts_has_a_page(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", records_of([Step("s")], [Task("a", 0)], until=3))
    page = report(directory)
    assert "0 nodes" in page.text
    assert page.places == ["item0"]


def test_partitions_are_framed_and_listed(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    steps = [Step("seed"), Step("inside", Needs(2), partition="part")]
    tasks = [Task("n", 0, (), 10.0), Task("i", 1, (0,), 10.0)]
    records = records_of(steps, tasks, nodes=[Node("n0", 2), Node("n1", 2)], partitions=(PartitionWish("part", 1, 2),))
    page = report(write_run(directory, records))
    [name] = page.columns("item0", "partition")["title"]
    assert name == "part"
    assert "Partitions partition state" in page.text
    assert "part DONE 1 2 10" in page.text
    assert page.columns("item0", "step:inside")["where"] == ["n0, cores 0-1, in part"]


def test_of_several_studies_each_step_is_told_and_what_was_forgotten_is_not(tmp_path: Path) -> None:
    node, on = Node("n", 1), (Place(0, "0"),)
    records: list[AnyRecord] = [
        RunStarted(100.0, "pilot", "0", "host", 1),
        NodesJoined(100.0, [node]),
        StudyAdded(101.0, "one", [Step("sim")], tasks=1),
        TasksAdded(101.0, 0, [Task("first", 0, (), 4.0)]),
        Launch(101.0, 0, 1, on),
        TaskEnded(103.0, 0, 1, "done"),
        StudyOver(103.0, 0),
        StudyAdded(110.0, "two", [Step("sim")], tasks=1),
        TasksAdded(110.0, 1, [Task("second", 1)], study=1),
        Launch(112.0, 1, 1, on),
        TaskEnded(113.0, 1, 1, "done"),
    ]
    directory = write_run(tmp_path / "run", records)
    page = report(directory)
    assert page.columns("item0", "step:one: sim")["title"] == ["first"]
    assert page.columns("item0", "step:two: sim")["title"] == ["second"]
    assert page.columns("item0", "step:two: sim")["when"] == ["12 s to 13 s: 1.0 s, ready 2.0 s before it was launched"]
    assert "one and 1 more: how it went" in page.text
    assert "several studies shared this allocation" in page.text


# The chain, the idle time


def test_the_chain_goes_through_parents_and_through_cores(tmp_path: Path) -> None:
    steps = [Step("s")]
    tasks = [Task("a", 0), Task("b", 0), Task("c", 0, (1,)), Task("d", 0, (0,))]
    takes = [3.0, 9.0, 4.0, 1.0]
    directory = write_run(
        tmp_path / "run", records_of(steps, tasks, lambda task, _: Fate(takes[task]), nodes=[Node("n", 1)], start_s=0.0)
    )
    timeline = happened_in(directory).timeline
    chain = [
        (timeline.state.tasks[timeline.attempts[link.attempt].task].name, link.waited_for)
        for link in critical_chain(timeline)
    ]
    order = [timeline.state.tasks[attempt.task].name for attempt in timeline.attempts]
    assert order == ["a", "b", "c", "d"]
    assert chain == [("a", ""), ("b", "its cores, from a"), ("c", "b to end"), ("d", "its cores, from c")]
    framed = report(directory).columns("item0", "chain")
    assert sorted(framed["left"]) == [0.0, 3.0, 12.0, 16.0]


def test_the_chain_goes_through_the_attempt_before(tmp_path: Path) -> None:
    directory = write_run(
        tmp_path / "run",
        records_of(
            [Step("s", retries=1)],
            [Task("a", 0)],
            lambda _, attempt: Fate(5.0, "failed" if attempt == 1 else "done"),
            start_s=0.0,
        ),
    )
    timeline = happened_in(directory).timeline
    assert [link.waited_for for link in critical_chain(timeline)] == ["", "the attempt before"]


def test_idle_time_of_a_real_run_counts_its_starts(run: Path) -> None:
    timeline = happened_in(run).timeline
    idle = dict.fromkeys(Reason, 0.0)
    for stretch in timeline.idle:
        idle[stretch.reason] += stretch.core_s
    assert idle[Reason.PARENTS] == pytest.approx(6.0)  # core 1 from the failure at 4.5 to the report at 10.5
    assert idle[Reason.LAST] == pytest.approx(10.5)
    assert sum(idle.values()) + timeline.busy_core_s == pytest.approx(timeline.there_core_s)


# Many tasks


def test_too_many_attempts_are_a_grid_that_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task(f"t{n}", n % 2) for n in range(400)]
    directory = write_run(
        tmp_path / "run",
        records_of([Step("a"), Step("b")], tasks, nodes=[Node("n", 4)], start_s=0.0),
    )
    timeline = happened_in(directory).timeline
    assert not bars_of(timeline).grid
    grid = bars_of(timeline, most=100)
    assert grid.grid
    assert len(grid.bars) <= 400
    # every core is busy all the time, so the cells cover all rows for all of the time
    area = sum((bar.right - bar.left) * (bar.bottom - bar.top) for bar in grid.bars)
    assert area == pytest.approx(4 * timeline.end)
    assert {bar.fill for bar in grid.bars} == {1.0}
    monkeypatch.setattr("cantle.report.html.sections.MOST_BARS", 100)
    monkeypatch.setattr(bars_module.bars_of, "__defaults__", (100,))
    page = report(directory)
    assert "400 attempts are more than the 100 bars that stay readable" in page.text
    assert len(page.columns("item0", "step:a")["left"]) + len(page.columns("item0", "step:b")["left"]) == len(grid.bars)


def test_a_grid_says_how_full_its_cells_are(tmp_path: Path) -> None:
    tasks = [Task("a", 0), *(Task(f"t{n}", 0, (0,)) for n in range(3))]
    directory = write_run(tmp_path / "run", records_of([Step("a")], tasks, nodes=[Node("n", 200)], start_s=0.0))
    grid = bars_of(happened_in(directory).timeline, most=0)
    # rows of two cores: one of them used in the first half, three of four in the second
    assert [(bar.left, bar.right, bar.top, bar.fill) for bar in grid.bars] == [
        (0.0, pytest.approx(10.0), 0, 0.5),
        (pytest.approx(10.0), pytest.approx(20.0), 0, 1.0),
        (pytest.approx(10.0), pytest.approx(20.0), 2, 0.5),
    ]


def test_sums_over_spans_lose_nothing() -> None:
    sums = Sums(0.5)
    sums.add(0.1, 0.3, 4.0)
    sums.add(0.25, 20.75, 2.0)
    sums.add(149.0, 150.0, 1.0)
    found = sums.averages()
    assert len(found) == SPANS
    assert sum(found) * 0.5 == pytest.approx(0.2 * 4 + 20.5 * 2 + 1.0)
    assert found[:2] == [pytest.approx((0.2 * 4 + 0.25 * 2) / 0.5), pytest.approx(2.0)]
    assert found[41] == pytest.approx(1.0)


def test_bars_of_places_that_touch_are_one(tmp_path: Path) -> None:
    directory = write_run(
        tmp_path / "run", records_of([Step("s", Needs(2))], [Task("a", 0)], nodes=[Node("n0", 2), Node("n1", 2)])
    )
    timeline = happened_in(directory).timeline
    timeline.attempts[0].on = (Place(0, "1"), Place(1, "0-1"))
    assert [(bar.top, bar.bottom) for bar in bars_of(timeline).bars] == [(1, 4)]
    timeline.attempts[0].on = (Place(0, "0"), Place(1, "0-1"))
    assert [(bar.top, bar.bottom) for bar in bars_of(timeline).bars] == [(0, 1), (2, 4)]


# Plan and reality


def estimated(directory: Path) -> Path:
    """Two tasks that were thought to take 10 s and took 15, on two cores."""
    tasks = [Task("a", 0, (), 10.0), Task("b", 0, (), 10.0), Task("c", 1, (0, 1), 5.0)]
    return write_run(
        directory,
        records_of([Step("s"), Step("t")], tasks, lambda task, _: Fate(15.0 if task < 2 else 5.0), start_s=0.0),
    )


def test_plan_and_reality_stand_side_by_side(tmp_path: Path) -> None:
    page = report(estimated(tmp_path / "run"))
    assert page.places == ["item0", "item1", "item2"]
    assert "The plan: the study's estimates on the same nodes, simulated (3 tasks estimated)" in page.text
    assert re.search(r"end 15 s 20 s 1\.33", page.text)
    assert re.search(r"s: a task takes 10 s 15 s 1\.50", page.text)
    assert re.search(r"t: a task takes 5\.0 s 5\.0 s 1\.00", page.text)
    assert page.columns("item1", "planned")["right"] == [10.0, 15.0]
    assert page.columns("item1", "happened")["right"] == [15.0, 20.0]
    assert page.columns("item2", "step:s")["right"] == [10.0, 10.0]


def test_a_saved_plan_is_compared_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = estimated(tmp_path / "run")
    assert cantle("plan", "--from", run, "--nodes", "1x3,1x1", "--finish-by", "30", "--json") == 0
    (tmp_path / "plan.json").write_text(capsys.readouterr().out)
    page = report(run, "--plan", tmp_path / "plan.json")
    assert page.places == ["item0", "item1"]
    assert "The plan: plan.json, 1x3" in page.text
    assert re.search(r"end 20 s 20 s 1\.00", page.text)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        ("x", "this is no JSON"),
        ("{}", "this is no plan"),
        ('{"variants": []}', "this is no plan"),
    ],
)
def test_what_is_no_plan_is_refused(
    tmp_path: Path, content: str | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    assert cantle("report", estimated(tmp_path / "run"), "--plan", tmp_path / "plan.json") == 1
    assert told in capsys.readouterr().err


def test_without_estimates_it_says_why_there_is_no_plan(run: Path) -> None:
    assert "There is no plan to compare with: the study gives no estimates." in report(run).text


def test_a_plan_s_page_shows_each_variant(tmp_path: Path) -> None:
    run = estimated(tmp_path / "run")
    page_file = tmp_path / "plan.html"
    assert cantle("plan", "--from", run, "--nodes", "1x1,1x2", "--html", page_file) == 0
    page = Page(page_file)
    assert page.loads == ["data:,"]
    assert page.places == ["item0", "item1"]
    assert "Recommended: 1x2: the fewest node-hours of those that end within 5% of the soonest (20 s)" in page.text
    assert page.columns("item1", "step:s")["right"] == [15.0, 15.0]
    assert page.source.count("<details open>") == 1
