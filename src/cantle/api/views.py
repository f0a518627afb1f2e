"""What does a notebook show of a pilot and of futures?"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cantle.api.futures import Future
    from cantle.api.pilot import Pilot

_COLOURS = {"done": "#4c8c4a", "failed": "#b33a3a", "other": "#c9a227", "left": "#dddddd"}
_FAILED = ("failed", "timedout", "skipped")


def html_of_pilot(pilot: Pilot) -> str:
    """A headline, and a bar for each function."""
    rows = "".join(_row(step, counts) for step, counts in pilot.tally().items() if counts)
    state = "closed" if pilot.closed else "open"
    head = f"<b>Pilot {escape(pilot.name)}</b> ({state}) <code>{escape(str(pilot.directory))}</code>"
    return f"<div>{head}<table>{rows}</table></div>"


def html_of_futures(futures: Sequence[Future[Any]]) -> str:
    """A bar for each function of theirs."""
    by_step: dict[str, Counter[str]] = {}
    for future in futures:
        counts = by_step.setdefault(future.step, Counter())
        counts["all"] += 1
        if future.done():
            counts[future.condition] += 1
    return f"<div><table>{''.join(_row(step, counts) for step, counts in by_step.items())}</table></div>"


def _row(step: str, counts: Mapping[str, int]) -> str:
    total = counts.get("all", 0)
    done = counts.get("done", 0)
    failed = sum(counts.get(name, 0) for name in _FAILED)
    over = sum(n for name, n in counts.items() if name != "all")
    parts = {"done": done, "failed": failed, "other": over - done - failed, "left": total - over}
    bar = "".join(
        f'<span style="display:inline-block;height:0.8em;width:{100 * n / total:.2f}%;background:{_COLOURS[name]}"></span>'
        for name, n in parts.items()
        if n > 0
    )
    words = [f"{done:,} of {total:,} done"]
    words += [f"{n:,} {name}" for name, n in sorted(counts.items()) if n and name not in ("all", "done")]
    return (
        f"<tr><td>{escape(step)}</td>"
        f'<td style="width:20em;white-space:nowrap;line-height:0.8em">{bar}</td><td>{", ".join(words)}</td></tr>'
    )


class Shown:
    """A view that stays up to date, until `stop` or until the pilot is closed."""

    def __init__(self, pilot: Pilot, handle: Any, every_s: float) -> None:
        self._pilot = pilot
        self._handle = handle
        self._every_s = every_s
        self._stopped = threading.Event()
        if handle is not None:
            threading.Thread(target=self._follow, name="cantle-show", daemon=True).start()

    def _ipython_display_(self) -> None:
        """It is shown already, also where it is what a cell ends with."""

    def __repr__(self) -> str:
        return f"<View of {self._pilot!r}>"

    def stop(self) -> None:
        """Leave it as it is."""
        self._stopped.set()

    def _follow(self) -> None:
        told = ""
        last = False
        while not last:
            last = self._stopped.wait(self._every_s) or self._pilot.closed
            now = html_of_pilot(self._pilot)
            if now != told:
                self._handle.update(self._pilot)
                told = now


def show(pilot: Pilot, every_s: float) -> Shown:
    """Show it where there is a notebook; elsewhere there is nothing to see."""
    import sys

    display = getattr(sys.modules.get("IPython.display"), "display", None)
    handle = display(pilot, display_id=True) if display is not None else None
    return Shown(pilot, handle, every_s)
