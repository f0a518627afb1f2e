"""Which page is asked for? How a run went, with the plan beside it, or what a plan foresees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cantle.core.phases import Phase
from cantle.model.resources import count
from cantle.report.durations import Durations
from cantle.report.failures import FAILURES, failed_tasks, why
from cantle.report.forecast import Forecast
from cantle.report.happened import Happened
from cantle.report.html.canvas import colours_of
from cantle.report.html.charts import steps_chart
from cantle.report.html.frame import Charts, figures, section, table, text, whole
from cantle.report.html.growing import growth_section
from cantle.report.html.sections import (
    MOST_ROWS,
    chain_section,
    charts_section,
    idle_section,
    nodes_in_words,
    partitions_section,
    slowest_section,
    steps_section,
)
from cantle.report.planned import hours, who_says, widths_in_words
from cantle.report.planning import Recommendation, Variant
from cantle.report.step_times import StepTimes, step_times
from cantle.report.timeline import Timeline, bounds_of
from cantle.report.wording import clock, counted, duration


class Expected(msgspec.Struct):
    """What had been planned for a run: the figures, the steps, where it comes from, and how it would have gone if known."""

    source: str
    end_s: float
    node_hours: float
    utilisation: float
    steps: list[StepTimes]
    timeline: Timeline | None = None


def report_page(happened: Happened, plan: Expected | None, no_plan: str = "") -> str:
    """The page of a run. `no_plan` says why there is none to compare with."""
    timeline, run = happened.timeline, happened.run
    state = timeline.state
    steps = step_times(timeline)
    colours = colours_of(steps)
    charts = Charts()
    chain_s, area = bounds_of(timeline)
    bound = max(chain_s, area / timeline.cores if timeline.cores else 0.0)
    condition = run.condition.value
    until = max(timeline.end, plan.timeline.end if plan and plan.timeline else 0.0)
    about = [
        text(f"{count(len(state.tasks), 'task')}, {condition}: {counted(state.totals)}"),
        text(f"{run.directory}, begun {clock(int(state.wall(timeline.zero)))}" + ", resumed" * bool(state.resumed)),
    ]
    body = [
        figures(
            [
                (duration(timeline.end), "from the start to the end" if run.conductor is None else "so far", ""),
                (hours(timeline.node_hours), "node-hours held", ""),
                (f"{100 * timeline.utilisation:.1f} %", "of the cores' time in use", ""),
                (f"{timeline.end / bound:.2f}" if bound > 0 else "-", f"times the lower bound, {duration(bound)}", ""),
                (f"{state.totals[Phase.DONE]:,}", "done", "good" if state.succeeded else ""),
                (
                    f"{sum(state.totals[phase] for phase in FAILURES):,}",
                    "failed",
                    "bad" if any(state.totals[phase] for phase in FAILURES) else "",
                ),
                (f"{len(timeline.attempts):,}", "attempts", ""),
            ]
        ),
        *(f'<p class="note">{text(note)}</p>' for note in happened.notes),
        _failures(timeline),
        charts_section(f"What ran where: {nodes_in_words(timeline)}", timeline, steps, colours, charts, until),
        growth_section(happened, charts),
        _beside(timeline, steps, plan, no_plan, colours, charts, until),
        steps_section(steps, colours, real=True),
        partitions_section(timeline),
        idle_section(timeline),
        chain_section(timeline),
        slowest_section(timeline, steps),
        _bound_section(chain_s, area, timeline.cores),
    ]
    name = run.name + (f" and {len(state.studies) - 1} more" if len(state.studies) > 1 else "")
    return whole(f"{name}: how it went", about, body, charts)


def _bound_section(chain_s: float, area_core_s: float, cores: int) -> str:
    said = (
        f"The longest chain of what was done took {duration(chain_s)}. All of it, spread evenly over the most cores that were "
        f"there, takes {duration(area_core_s / max(1, cores))}. No order could have ended before the longer of the two."
    )
    return section("How the bound is found", f"<p>{text(said)}</p>")


def _failures(timeline: Timeline) -> str:
    state = timeline.state
    rows = [(state.tasks[task].name, why(state, task)[0]) for task in failed_tasks(state, MOST_ROWS)]
    total = sum(state.totals[phase] for phase in FAILURES)
    under = f"The first {len(rows)} of {total:,}." if total > len(rows) else ""
    return section("Failures", table(("task", "why"), rows), under=under)


def _beside(
    timeline: Timeline,
    steps: Sequence[StepTimes],
    plan: Expected | None,
    no_plan: str,
    colours: Mapping[str, str],
    charts: Charts,
    until: float,
) -> str:
    if plan is None:
        return section("Plan and reality", f'<p class="note">{text(no_plan)}</p>') if no_plan else ""
    rows = [
        ("end", duration(plan.end_s), duration(timeline.end), _times(timeline.end, plan.end_s)),
        (
            "node-hours",
            hours(plan.node_hours),
            hours(timeline.node_hours),
            _times(timeline.node_hours, plan.node_hours),
        ),
        (
            "cores in use",
            f"{100 * plan.utilisation:.1f} %",
            f"{100 * timeline.utilisation:.1f} %",
            _times(timeline.utilisation, plan.utilisation),
        ),
    ]
    expected = {step.name: step for step in plan.steps}
    for step in steps:
        foreseen = expected.get(step.name)
        if foreseen and foreseen.done and step.done:
            rows.append(
                (
                    f"{step.name}: a task takes",
                    duration(foreseen.mean_s),
                    duration(step.mean_s),
                    _times(step.mean_s, foreseen.mean_s),
                )
            )
    parts = [table(("", "planned", "happened", "times the plan"), rows, (1, 2, 3))]
    parts.append(charts.add(steps_chart(steps, plan.steps, colours)))
    told = section(
        "Plan and reality", *parts, under=f"The plan: {plan.source}. Pale bars are planned, full ones happened."
    )
    if plan.timeline is not None:
        told += charts_section("What the plan had foreseen", plan.timeline, steps, colours, charts, until)
    return told


def _times(now: float, planned: float) -> str:
    return f"{now / planned:.2f}" if planned > 0 else "-"


def plan_page(
    name: str,
    variants: Sequence[Variant],
    durations: Durations,
    default_s: float,
    advice: Recommendation,
) -> str:
    """The page of a plan: the variants side by side, then each of them."""
    charts = Charts()
    about = [text(f"{count(len(durations.seconds), 'task')}: {'; '.join(who_says(durations, default_s))}")]
    rows = []
    for variant in variants:
        found = variant.found
        rows.append(
            (
                variant.name,
                f"{found.cores:,}",
                duration(found.end_s)
                if variant.whole
                else f'<b class="bad">{"time is up" if found.state.expired else "fails"}</b>',
                duration(found.bound_s),
                "-" if found.ratio is None else f"{found.ratio:.2f}",
                hours(variant.node_hours),
                f"{100 * found.utilisation:.1f} %",
                _widths(found),
            )
        )
    head = (
        "nodes",
        "cores",
        "ends after",
        "lower bound",
        "times the bound",
        "node-hours",
        "cores in use",
        "widths chosen",
    )
    body = [
        f'<p class="advice"><b>Recommended:</b> {text(advice.why)}.</p>',
        section("Variants", table(head, rows, range(1, 7), chosen=advice.variant)),
    ]
    for number, variant in enumerate(variants):
        mark = " open" if number == (advice.variant or 0) else ""
        found = variant.found
        said = f"ends after {duration(found.end_s)}, {hours(variant.node_hours)} node-hours"
        body.append(
            f"<details{mark}><summary>{text(variant.name)} <small>{text(said)}</small></summary>{_variant(found, charts)}"
            "</details>\n"
        )
    return whole(f"{name}: what a plan foresees", about, body, charts)


def _variant(found: Forecast, charts: Charts) -> str:
    timeline = found.timeline
    steps = step_times(timeline)
    colours = colours_of(steps)
    return "".join(
        (
            _failures(timeline),
            charts_section(f"What would run where: {nodes_in_words(timeline)}", timeline, steps, colours, charts, 0.0),
            steps_section(steps, colours, real=False),
            partitions_section(timeline),
            idle_section(timeline),
            chain_section(timeline),
        )
    )


def _widths(found: Forecast) -> str:
    chosen = [(row.name, widths_in_words(row)) for row in step_times(found.timeline)]
    return "; ".join(f"{name}: {words}" for name, words in chosen if words) or "-"
