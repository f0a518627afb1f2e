"""What makes the parts one file? The head with style and scripts, the charts' data, and small pieces of HTML.

The file loads nothing from anywhere: Bokeh's own script stands in it, as its package brings it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from bokeh.resources import Resources

from cantle import __version__
from cantle.report.wording import printable


class Charts:
    """The charts of one page. Each is drawn when its place comes into view for the first time."""

    def __init__(self) -> None:
        self._items: list[str] = []

    def add(self, item: Any) -> str:
        """Take in what Bokeh made; the HTML of its place."""
        number = len(self._items)
        text = json.dumps(item, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
        self._items.append(f'<script type="application/json" id="item{number}">{text}</script>')
        return f'<div class="chart" id="chart{number}" data-item="item{number}"></div>'

    @property
    def last(self) -> str:
        """The identity of the place that was made last."""
        return f"chart{len(self._items) - 1}"

    def data(self) -> str:
        """The data of all of them, as HTML."""
        return "\n".join(self._items)


def whole(title: str, about: Iterable[str], body: Iterable[str], charts: Charts) -> str:
    """The file's text."""
    here = files(__package__)
    style = (here / "page.css").read_text(encoding="utf-8")
    script = (here / "page.js").read_text(encoding="utf-8")
    library = "\n".join(Resources(mode="inline", components=["bokeh"], minified=True).js_raw).replace(
        "</script", "<\\/script"
    )
    lines = "".join(f"<p>{line}</p>" for line in about)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="cantle {__version__}">
<link rel="icon" href="data:,">
<title>{text(title)}</title>
<style>
{style}</style>
</head>
<body>
<header><div><h1>{text(title)}</h1>{lines}</div><button id="shade" type="button">light / dark</button></header>
<main>
{"".join(body)}
</main>
<footer>Written by Cantle {__version__}. This file is whole: it opens without a network.</footer>
{charts.data()}
<script>
{library}
</script>
<script>
{script}</script>
</body>
</html>
"""


def text(said: str) -> str:
    """What was said, safe to stand in HTML."""
    return escape(printable(said))


def section(title: str, *parts: str, under: str = "") -> str:
    """A heading with what stands below it; nothing when there is nothing."""
    if not any(parts):
        return ""
    note = f'<p class="under">{text(under)}</p>' if under else ""
    return f"<section><h2>{text(title)}</h2>{note}{''.join(parts)}</section>\n"


def figures(pairs: Iterable[tuple[str, str, str]]) -> str:
    """The few figures that matter most: (value, what it is, class)."""
    cells = "".join(
        f'<div><b class="{kind}">{text(value)}</b><span>{text(what)}</span></div>' for value, what, kind in pairs
    )
    return f'<div class="figures">{cells}</div>\n'


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int] = (), chosen: int | None = None
) -> str:
    """A table; columns in `numbers` are ranged right. Cells are plain text, or HTML that begins with `<`."""
    if not rows:
        return ""
    right = set(numbers)

    def cell(tag: str, column: int, said: str) -> str:
        kind = ' class="n"' if column in right else ' class="name"' if column == 0 and tag == "td" else ""
        return f"<{tag}{kind}>{said if said.startswith('<') else text(said)}</{tag}>"

    top = "".join(cell("th", column, said) for column, said in enumerate(head))
    lines = "".join(
        ('<tr class="chosen">' if number == chosen else "<tr>")
        + "".join(cell("td", column, said) for column, said in enumerate(row))
        + "</tr>\n"
        for number, row in enumerate(rows)
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>\n{lines}</tbody></table></div>\n'


def swatch(colour: str, name: str) -> str:
    """A name with its colour before it."""
    return f'<span><i class="swatch" style="background:{colour}"></i>{text(name)}</span>'
