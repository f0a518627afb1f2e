"""What do all charts have in common? Their colours, their time axis, and the text that comes up under the mouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import AdaptiveTicker, CompositeTicker, CustomJSTickFormatter, Range1d
from bokeh.plotting import figure

from cantle.core.idleness import Reason
from cantle.report.step_times import StepTimes

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
_LEFT = 118
"""Pixels beside each chart, so that their times stand below each other."""
TIME_LABEL = "time since the start"
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
SHORT_HOVER = '<div class="hover"><b>@title</b><br>@what<br>@when</div>'
HOVER = """
<div class="hover"><b>@title</b><br>@what<br>@when<br>@where<br><i>@why</i></div>
"""


def colours_of(steps: Sequence[StepTimes]) -> dict[str, str]:
    """A colour for each step. The steps with the most core time have one of their own, the rest share one."""
    weighty = sorted(steps, key=lambda step: -step.core_s)[: len(COLOURS)]
    own = {step.name for step in weighty}
    left = iter(COLOURS)
    return {step.name: next(left) if step.name in own else OTHER for step in steps}


def bare_figure(height: int, times: Range1d | None, **more: Any) -> Any:
    """A figure without decoration; with `times` its x axis is that range of time, in seconds."""
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
