"""How are a run's times drawn? Bokeh's figures: who ran where, how much was in use, why the rest was not, step by step.

Colours of axes and texts are set in the reader's browser (`page.js`), as light or dark as the reader has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, CrosshairTool, FactorRange, FixedTicker, HoverTool, Range1d
from bokeh.models.annotations import Span
from bokeh.transform import dodge

from cantle.report.html.canvas import OTHER, OTHERS, REASONS, SHORT_HOVER, TIME_LABEL, bare_figure
from cantle.report.html.gantt import gantt
from cantle.report.html.usage import usage_of
from cantle.report.idling import in_words
from cantle.report.step_times import StepTimes
from cantle.report.timeline import Timeline
from cantle.report.wording import duration

MOST_STRETCHES = 1000


def timeline_charts(timeline: Timeline, colours: Mapping[str, str], until: float = 0.0) -> Any:
    """Who ran where, how much was in use and why the rest was not, as an item that Bokeh's script embeds.

    The time axis ends at `until`, or with the run if that is later.
    """
    end = max(until, timeline.end) or 1.0
    times = Range1d(start=-0.005 * end, end=1.01 * end, bounds=(-0.02 * end, 1.05 * end))
    crosshair = Span(dimension="height", line_dash="dotted", line_width=1, name="crosshair")
    figures = [
        gantt(timeline, colours, times, crosshair),
        _usage(timeline, colours, times, crosshair),
        _idle(timeline, times, crosshair),
    ]
    return json_item(column(*figures, sizing_mode="stretch_width", spacing=4))


def _usage(timeline: Timeline, colours: Mapping[str, str], times: Range1d, crosshair: Span) -> Any:
    named = [step for step, colour in colours.items() if colour != OTHER]
    usage = usage_of(timeline, named, OTHERS)
    spans = len(usage.there)
    lefts = [index * usage.width for index in range(spans)]
    rights = [left + usage.width for left in lefts]
    made = bare_figure(170, times, tools=[], y_range=Range1d(start=0, end=1.08 * (max(usage.there, default=0) or 1)))
    base = [0.0] * spans
    for step, levels in usage.by_step.items():
        top = [low + level for low, level in zip(base, levels, strict=True)]
        made.varea_step(
            x=[*lefts, rights[-1]],
            y1=[*base, base[-1]],
            y2=[*top, top[-1]],
            step_mode="after",
            fill_color=colours.get(step, OTHER),
            name=f"step:{step}",
        )
        base = top
    made.step(
        x=[*lefts, lefts[-1] + usage.width],
        y=[*usage.there, usage.there[-1]],
        mode="after",
        line_width=1.5,
        name="there",
    )
    catcher = made.quad(
        left="left",
        right="right",
        bottom=0,
        top="there",
        fill_alpha=0.0,
        line_color=None,
        source=ColumnDataSource(
            {
                "left": lefts,
                "right": rights,
                "there": usage.there,
                "title": [
                    f"{used:,.1f} of {there_:,.1f} cores in use" for used, there_ in zip(base, usage.there, strict=True)
                ],
                "what": [
                    ", ".join(f"{step} {levels[i]:,.1f}" for step, levels in usage.by_step.items() if levels[i] > 0.05)
                    for i in range(spans)
                ],
                "when": [f"{duration(left)} to {duration(right)}" for left, right in zip(lefts, rights, strict=True)],
            }
        ),
    )
    _tell_under_the_mouse(made, catcher, crosshair)
    made.yaxis.axis_label = "cores in use"
    made.yaxis.ticker.desired_num_ticks = 4
    made.yaxis.ticker.num_minor_ticks = 0
    made.xaxis.visible = False
    made.toolbar_location = None
    return made


def _tell_under_the_mouse(made: Any, drawn: Any, crosshair: Span) -> None:
    """Say what was then at the time where the mouse is, with a line through all charts."""
    hover = HoverTool(tooltips=SHORT_HOVER, renderers=[drawn], point_policy="follow_mouse", attachment="right")
    made.add_tools(hover, CrosshairTool(overlay=crosshair))


def _idle(timeline: Timeline, times: Range1d, crosshair: Span) -> Any:
    """A strip that says, for each time, why cores stood idle, the more opaque the more of them did."""
    made = bare_figure(88, times, tools=[], y_range=Range1d(start=0, end=1))
    costly = sorted(timeline.idle, key=lambda stretch: (-stretch.core_s, stretch.since))[:MOST_STRETCHES]
    cores = timeline.cores or 1
    drawn = made.quad(
        left="left",
        right="right",
        bottom=0,
        top=1,
        fill_color="colour",
        fill_alpha="fill",
        line_color=None,
        source=ColumnDataSource(
            {
                "left": [stretch.since for stretch in costly],
                "right": [stretch.until for stretch in costly],
                "colour": [REASONS[stretch.reason] for stretch in costly],
                "fill": [0.25 + 0.75 * min(1.0, stretch.cores / cores) for stretch in costly],
                "title": [f"{stretch.cores:,.1f} cores idle" for stretch in costly],
                "what": [in_words(timeline, stretch.reason, list(stretch.tasks)) for stretch in costly],
                "when": [
                    f"{duration(stretch.since)} to {duration(stretch.until)}: {duration(stretch.until - stretch.since)}"
                    for stretch in costly
                ],
            }
        ),
        name="idle",
    )
    _tell_under_the_mouse(made, drawn, crosshair)
    made.yaxis.ticker = FixedTicker(ticks=[0.5])
    made.yaxis.major_label_overrides = {0.5: "idle because"}
    made.yaxis.major_tick_line_color = None
    made.xaxis.axis_label = TIME_LABEL
    made.toolbar_location = None
    return made


def steps_chart(happened: Sequence[StepTimes], planned: Sequence[StepTimes], colours: Mapping[str, str]) -> Any:
    """From when until when each step's tasks ran, planned above happened."""
    names = [step.name for step in happened]
    end = max([step.last_s for step in (*happened, *planned)], default=1.0) or 1.0
    made = bare_figure(
        min(700, 74 + 34 * len(names)),
        Range1d(start=-0.005 * end, end=1.01 * end),
        tools=[],
        y_range=FactorRange(factors=names[::-1]),
    )
    for kind, steps, offset, alpha in (("planned", planned, 0.2, 0.4), ("happened", happened, -0.2, 1.0)):
        rows = [step for step in steps if step.done and step.name in names]
        bars = made.hbar(
            y=dodge("name", offset, range=made.y_range),
            left="left",
            right="right",
            height=0.34,
            fill_color="colour",
            fill_alpha=alpha,
            line_color="colour",
            source=ColumnDataSource(
                {
                    "name": [row.name for row in rows],
                    "left": [row.first_s for row in rows],
                    "right": [row.last_s for row in rows],
                    "colour": [colours.get(row.name, OTHER) for row in rows],
                    "title": [f"{row.name}, {kind}" for row in rows],
                    "what": [f"{row.done:,} tasks, {duration(row.mean_s)} each on average" for row in rows],
                    "when": [f"{duration(row.first_s)} to {duration(row.last_s)}" for row in rows],
                }
            ),
            name=kind,
        )
        made.add_tools(
            HoverTool(
                tooltips=SHORT_HOVER,
                renderers=[bars],
                point_policy="follow_mouse",
            )
        )
    made.xaxis.axis_label = TIME_LABEL
    made.toolbar_location = None
    return json_item(made)
