"""How are a run's times drawn? Bokeh's figures: who ran where, how much was in use, why the rest was not, step by step.

Colours of axes and texts are set in the reader's browser (`page.js`), as light or dark as the reader has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import (
    AdaptiveTicker,
    BoxZoomTool,
    ColumnDataSource,
    CompositeTicker,
    CrosshairTool,
    CustomJSTickFormatter,
    FactorRange,
    FixedTicker,
    HoverTool,
    PanTool,
    Range1d,
    ResetTool,
    SaveTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Span
from bokeh.plotting import figure
from bokeh.transform import dodge

from cantle.core.idleness import Reason
from cantle.report.chain import critical_chain
from cantle.report.html.bars import Bars, bars_of
from cantle.report.html.usage import usage_of
from cantle.report.idling import in_words
from cantle.report.step_times import StepTimes
from cantle.report.timeline import Timeline
from cantle.report.wording import duration

COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#b07aa1",
    "#76b7b2",
    "#edc948",
    "#9c755f",
    "#ff9da7",
    "#499894",
    "#b6992d",
    "#a0cbe8",
    "#8cd17d",
    "#d4a6c8",
    "#79706e",
)
BAD = "#d62728"
OTHER = "#8f9aa6"
OTHERS = "other steps"
PARTITION = "#00897b"
REASONS = {
    Reason.PARENTS: "#8f9aa6",
    Reason.LAST: "#c3cad2",
    Reason.NODES: "#e08214",
    Reason.ROOM: "#b2abd2",
    Reason.THROTTLE: "#5e9bd1",
    Reason.PARTITION: "#35978f",
    Reason.HELD: "#80cdc1",
    Reason.WIDER: "#fdb863",
    Reason.STARTING: "#d6604d",
    Reason.STOPPING: "#4d4d4d",
    Reason.CORES: "#4d4d4d",
}
MOST_STRETCHES = 1000
_LEFT = 118
"""Pixels beside each chart, so that their times stand below each other."""
_TIME_LABEL = "time since the start"
_TICK = """
const t = Math.round(tick * 1000) / 1000;
if (t < 0) return "";
const near = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : 1, last = ticks[ticks.length - 1];
if (last < 120 || near < 1) return t + " s";
const two = (n) => String(n).padStart(2, "0"), pair = (big, small) => small ? big + ":" + two(small) : big;
if (last < 7200 || near < 60) return pair(Math.floor(t / 60), Math.round(t % 60)) + " min";
if (near < 86400) return pair(Math.floor(t / 3600), Math.round(t % 3600 / 60)) + " h";
return t / 86400 + " d";
"""
_TEXT = """
<div class="hover"><b>@title</b><br>@what<br>@when<br>@where<br><i>@why</i></div>
"""


def colours_of(steps: Sequence[StepTimes]) -> dict[str, str]:
    """A colour for each step. The steps with the most core time have one of their own, the rest share one."""
    weighty = sorted(steps, key=lambda step: -step.core_s)[: len(COLOURS)]
    own = {step.name for step in weighty}
    found: dict[str, str] = {}
    for step in steps:
        found[step.name] = COLOURS[len([n for n in found if n in own])] if step.name in own else OTHER
    return found


def timeline_charts(timeline: Timeline, colours: Mapping[str, str], until: float = 0.0) -> Any:
    """Who ran where, how much was in use and why the rest was not, as an item that Bokeh's script embeds.

    The time axis ends at `until`, or with the run if that is later.
    """
    end = max(until, timeline.end) or 1.0
    times = Range1d(start=-0.005 * end, end=1.01 * end, bounds=(-0.02 * end, 1.05 * end))
    crosshair = Span(dimension="height", line_dash="dotted", line_width=1, name="crosshair")
    figures = [
        _gantt(timeline, colours, times, crosshair),
        _usage(timeline, colours, times, crosshair),
        _idle(timeline, times, crosshair),
    ]
    return json_item(column(*figures, sizing_mode="stretch_width", spacing=4))


def _figure(height: int, times: Range1d | None, **more: Any) -> Any:
    made = figure(height=height, sizing_mode="stretch_width", min_border_left=_LEFT, min_border_right=20, **more)
    if times is not None:
        made.x_range = times
        made.xaxis.ticker = CompositeTicker(
            tickers=[
                AdaptiveTicker(mantissas=[1, 2, 5], base=10, max_interval=0.5, num_minor_ticks=0),
                AdaptiveTicker(
                    mantissas=[1, 2, 5, 10, 15, 20, 30], base=60, min_interval=1, max_interval=1800, num_minor_ticks=0
                ),
                AdaptiveTicker(
                    mantissas=[1, 2, 4, 6, 8, 12], base=24, min_interval=3600, max_interval=43200, num_minor_ticks=0
                ),
                AdaptiveTicker(mantissas=[1, 2, 5], base=10, min_interval=86400, num_minor_ticks=0),
            ]
        )
        made.xaxis.formatter = CustomJSTickFormatter(code=_TICK)
    made.toolbar.logo = None
    made.toolbar.autohide = True
    made.ygrid.visible = False
    made.outline_line_color = None
    made.background_fill_color = made.border_fill_color = None  # the page's own shows through
    return made


def _gantt(timeline: Timeline, colours: Mapping[str, str], times: Range1d, crosshair: Span) -> Any:
    bars = bars_of(timeline)
    height = min(720, max(140, bars.rows * 16 + 60))
    made = _figure(height, times, tools=[], y_range=Range1d(start=bars.rows or 1, end=0, bounds=(0, bars.rows or 1)))
    zoom = BoxZoomTool(dimensions="width")
    made.add_tools(zoom, PanTool(), WheelZoomTool(dimensions="width"), ResetTool(), SaveTool())
    made.add_tools(CrosshairTool(overlay=crosshair))
    made.toolbar.active_drag = zoom
    made.toolbar.active_scroll = None
    _absence(made, bars, timeline.end)
    framed = _partitions(made, bars)
    steps: dict[str, None] = {bar.step: None for bar in bars.bars}
    drawn = []
    for step in steps:
        mine = [bar for bar in bars.bars if bar.step == step]
        drawn.append(
            made.quad(
                left="left",
                right="right",
                top="top",
                bottom="bottom",
                fill_color="colour",
                fill_alpha="fill",
                line_color="edge",
                line_width=0.5,
                source=ColumnDataSource(
                    {
                        "left": [bar.left for bar in mine],
                        "right": [bar.right for bar in mine],
                        "top": [bar.top + _gap(bars) for bar in mine],
                        "bottom": [bar.bottom - _gap(bars) for bar in mine],
                        "fill": [bar.fill for bar in mine],
                        "colour": [colours.get(step, OTHER) if bar.good else BAD for bar in mine],
                        "edge": ["rgba(0,0,0,0)" if bars.grid else "rgba(0,0,0,0.4)"] * len(mine),
                        **{
                            key: [getattr(bar, key) for bar in mine]
                            for key in ("title", "what", "when", "where", "why")
                        },
                    }
                ),
                name=f"step:{step}",
                hover_line_color="#888888",
                hover_alpha=0.8,
            )
        )
    if not bars.grid:
        _chain(made, timeline, bars)
    made.add_tools(
        HoverTool(tooltips=_TEXT, renderers=[*drawn, *framed], point_policy="follow_mouse", attachment="right")
    )
    _node_axis(made, bars)
    made.xaxis.visible = False
    return made


def _gap(bars: Bars) -> float:
    return 0.0 if bars.grid else 0.06


def _absence(made: Any, bars: Bars, end: float) -> None:
    """Shade the times at which a node was not there."""
    away = []
    for lane in bars.lanes:
        away += [(0.0, lane.joined, lane)] if lane.joined > 0.002 * end else []
        away += [(lane.left, end, lane)] if lane.left < 0.998 * end else []
    made.quad(
        left=[left for left, _, _ in away],
        right=[right for _, right, _ in away],
        top=[lane.first for _, _, lane in away],
        bottom=[lane.first + lane.cores for _, _, lane in away],
        fill_color="#808080",
        fill_alpha=0.25,
        line_color=None,
        name="absent",
    )


def _partitions(made: Any, bars: Bars) -> list[Any]:
    """Frame what belonged to partitions, behind what ran there."""
    if not bars.partitions:
        return []
    columns: dict[str, Any] = {
        key: [getattr(bar, key) for bar in bars.partitions]
        for key in ("left", "right", "top", "bottom", "title", "what", "when", "where", "why")
    }
    return [
        made.quad(
            left="left",
            right="right",
            top="top",
            bottom="bottom",
            fill_color=PARTITION,
            fill_alpha=0.16,
            line_color=PARTITION,
            line_width=1.5,
            source=ColumnDataSource(columns),
            name="partition",
        )
    ]


def _chain(made: Any, timeline: Timeline, bars: Bars) -> None:
    """Frame the attempts of the chain that led to the end."""
    chain = {link.attempt for link in critical_chain(timeline)}
    framed = [bar for bar in bars.bars if bar.attempt in chain]
    made.quad(
        left=[bar.left for bar in framed],
        right=[bar.right for bar in framed],
        top=[bar.top + _gap(bars) for bar in framed],
        bottom=[bar.bottom - _gap(bars) for bar in framed],
        fill_alpha=0.0,
        line_width=2,
        name="chain",
    )


def _node_axis(made: Any, bars: Bars) -> None:
    lanes = bars.lanes
    every = max(1, -(-len(lanes) // 36))
    if len(lanes) == 1 and bars.rows <= 32:
        ticks = {row + 0.5: f"core {row}" for row in range(bars.rows)}
        made.yaxis.axis_label = _shortened(lanes[0].name, 24)
    else:
        ticks = {lane.first + lane.cores / 2: _shortened(lane.name, 14) for lane in lanes[::every]}
        made.yaxis.axis_label = "nodes" if every == 1 else f"nodes (one of {every} is named)"
        for lane in lanes[1:] if len(lanes) <= 200 else []:
            made.add_layout(Span(location=lane.first, dimension="width", line_width=1, name="border", level="underlay"))
    made.yaxis.ticker = FixedTicker(ticks=list(ticks))
    made.yaxis.major_label_overrides = ticks
    made.yaxis.major_tick_line_color = None


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 6]}…{name[-5:]}"


def _usage(timeline: Timeline, colours: Mapping[str, str], times: Range1d, crosshair: Span) -> Any:
    named = [step for step, colour in colours.items() if colour != OTHER]
    usage = usage_of(timeline, named, OTHERS)
    spans = len(usage.there)
    lefts = [index * usage.width for index in range(spans)]
    rights = [left + usage.width for left in lefts]
    made = _figure(170, times, tools=[], y_range=Range1d(start=0, end=1.08 * (max(usage.there, default=0) or 1)))
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
    made.add_tools(
        HoverTool(
            tooltips='<div class="hover"><b>@title</b><br>@what<br>@when</div>',
            renderers=[catcher],
            point_policy="follow_mouse",
            attachment="right",
        ),
        CrosshairTool(overlay=crosshair),
    )
    made.yaxis.axis_label = "cores in use"
    made.yaxis.ticker.desired_num_ticks = 4
    made.yaxis.ticker.num_minor_ticks = 0
    made.xaxis.visible = False
    made.toolbar_location = None
    return made


def _idle(timeline: Timeline, times: Range1d, crosshair: Span) -> Any:
    """A strip that says, for each time, why cores stood idle, the more opaque the more of them did."""
    made = _figure(88, times, tools=[], y_range=Range1d(start=0, end=1))
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
    made.add_tools(
        HoverTool(
            tooltips='<div class="hover"><b>@title</b><br>@what<br>@when</div>',
            renderers=[drawn],
            point_policy="follow_mouse",
            attachment="right",
        ),
        CrosshairTool(overlay=crosshair),
    )
    made.yaxis.ticker = FixedTicker(ticks=[0.5])
    made.yaxis.major_label_overrides = {0.5: "idle because"}
    made.yaxis.major_tick_line_color = None
    made.xaxis.axis_label = _TIME_LABEL
    made.toolbar_location = None
    return made


def steps_chart(happened: Sequence[StepTimes], planned: Sequence[StepTimes], colours: Mapping[str, str]) -> Any:
    """From when until when each step's tasks ran, planned above happened."""
    names = [step.name for step in happened]
    end = max([step.last_s for step in (*happened, *planned)], default=1.0) or 1.0
    made = _figure(
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
                tooltips='<div class="hover"><b>@title</b><br>@what<br>@when</div>',
                renderers=[bars],
                point_policy="follow_mouse",
            )
        )
    made.xaxis.axis_label = _TIME_LABEL
    made.toolbar_location = None
    return json_item(made)
