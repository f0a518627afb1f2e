"""Who ran where, and when? The chart of bars over nodes and cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CrosshairTool,
    FixedTicker,
    HoverTool,
    PanTool,
    Range1d,
    ResetTool,
    SaveTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Span

from cantle.report.chain import critical_chain
from cantle.report.html.bars import Bar, Bars, bars_of
from cantle.report.html.canvas import BAD, HOVER, OTHER, OTHERS, PARTITION, bare_figure
from cantle.report.timeline import Timeline


def gantt(timeline: Timeline, colours: Mapping[str, str], times: Range1d, crosshair: Span) -> Any:
    """The chart: a row for each core, a bar for each attempt on its cores, or the grid that sums up too many of them."""
    bars = bars_of(timeline)
    height = min(720, max(140, bars.rows * 16 + 60))
    made = bare_figure(
        height, times, tools=[], y_range=Range1d(start=bars.rows or 1, end=0, bounds=(0, bars.rows or 1))
    )
    zoom = BoxZoomTool(dimensions="width")
    made.add_tools(zoom, PanTool(), WheelZoomTool(dimensions="width"), ResetTool(), SaveTool())
    made.add_tools(CrosshairTool(overlay=crosshair))
    made.toolbar.active_drag = zoom
    made.toolbar.active_scroll = None
    _absence(made, bars, timeline.end)
    framed = _partitions(made, bars)
    drawn = []
    for step, mine in _by_colour(bars, colours).items():
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
                        "colour": [colours.get(bar.step, OTHER) if bar.good else BAD for bar in mine],
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
        HoverTool(tooltips=HOVER, renderers=[*drawn, *framed], point_policy="follow_mouse", attachment="right")
    )
    _node_axis(made, bars)
    made.xaxis.visible = False
    return made


def _by_colour(bars: Bars, colours: Mapping[str, str]) -> dict[str, list[Bar]]:
    """The bars of each step that has a colour of its own, and those of all others together: each more costs the page a lot."""
    found: dict[str, list[Bar]] = {}
    for bar in bars.bars:
        own = colours.get(bar.step, OTHER) != OTHER
        found.setdefault(bar.step if own else OTHERS, []).append(bar)
    return found


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
