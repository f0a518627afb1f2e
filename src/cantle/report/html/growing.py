"""How did the nodes of a run come and go, by whose decision, and why? A chart and a table."""

from __future__ import annotations

from typing import Any

from bokeh.embed import json_item
from bokeh.models import Range1d
from bokeh.palettes import Category10

from cantle.report.growth import Growth
from cantle.report.happened import Happened
from cantle.report.html.canvas import TIME_LABEL, bare_figure
from cantle.report.html.frame import Charts, section, table
from cantle.report.wording import duration

MOST_MOMENTS = 200


def growth_section(happened: Happened, charts: Charts) -> str:
    """Nodes by kind over time, and the decisions; nothing where no kind of node could be had."""
    growth, zero = happened.growth, happened.timeline.zero
    if not growth.there:
        return ""
    place = charts.add(_curves(growth, zero, happened.timeline.end or 1.0))
    rows = [(duration(max(0.0, each.at - zero)), each.what, each.why or "-") for each in growth.moments[:MOST_MOMENTS]]
    under = "Full lines: nodes that were there. Dashed: those on the way as well."
    if len(growth.moments) > MOST_MOMENTS:
        under += f" The first {MOST_MOMENTS} of {len(growth.moments):,} decisions."
    return section("Nodes that came and went", place, table(("after", "what", "why"), rows), under=under)


def _curves(growth: Growth, zero: float, end: float) -> Any:
    most = max((level for curve in growth.wanted.values() for _, level in curve), default=0)
    made = bare_figure(
        190, Range1d(start=-0.005 * end, end=1.01 * end), tools=[], y_range=Range1d(start=0, end=1.15 * (most or 1))
    )
    colours = Category10[10]
    for number, kind in enumerate(growth.there):
        for curves, dash, what in ((growth.wanted, "dashed", "wanted"), (growth.there, "solid", "there")):
            curve = curves[kind]
            made.step(
                x=[*(max(0.0, at - zero) for at, _ in curve), end],
                y=[*(level for _, level in curve), curve[-1][1]],
                mode="after",
                line_width=2,
                line_dash=dash,
                line_color=colours[number % len(colours)],
                name=f"{what}:{kind}",
                **({"legend_label": kind} if what == "there" else {}),
            )
    made.legend.location = "top_right"
    made.yaxis.axis_label = "nodes"
    made.yaxis.ticker.num_minor_ticks = 0
    made.xaxis.axis_label = TIME_LABEL
    made.toolbar_location = None
    return json_item(made)
