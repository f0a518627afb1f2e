"""Pictures for the documentation: what each case saved, and how many nodes were there over time in one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from peer_scalers import PEERS

from cantle.core.scaling.seam import Scaler
from cantle.model.kinds import Kind

if TYPE_CHECKING:
    from elastic import Case

SHOWN = ("epigenomics-chameleon-ilmn-6seq-50k-001", 120.0)
"""The case whose nodes are drawn."""
COLOURS = ("#0072b2", "#d55e00", "#009e73")
WIDTH, HEIGHT, LEFT, TOP = 720, 360, 60, 24
INK = 'font-family="sans-serif" font-size="12" fill="#333"'


def draw(folder: Path, cases: list[Case], ours: Callable[[Kind], Scaler]) -> None:
    """Write both pictures into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "elastic-ratios.svg").write_text(ratios(cases))
    shown = [case for case in cases if (case.work.name, case.delay_s) == SHOWN]
    if shown:
        (folder / "elastic-nodes.svg").write_text(nodes(shown[0], ours))


def ratios(cases: list[Case]) -> str:
    """A dot for each case: makespan to the right, node-seconds upwards, both to those of the best of the others."""
    from elastic import DELAYS_S, best_of

    low, high = math.log(0.05), math.log(1.5)
    wide = math.log(1.3)
    parts = []

    def x_of(ratio: float) -> float:
        return LEFT + (math.log(ratio) + wide) / (2 * wide) * (WIDTH - LEFT - 20)

    def y_of(ratio: float) -> float:
        return TOP + (high - math.log(ratio)) / (high - low) * (HEIGHT - TOP - 40)

    for tick in (0.8, 0.9, 1.0, 1.1, 1.2):
        parts.append(_line(x_of(tick), TOP, x_of(tick), HEIGHT - 40, "#333" if tick == 1 else "#ddd"))
        parts.append(_text(x_of(tick), HEIGHT - 24, f"{tick:g}"))
    for tick in (0.1, 0.2, 0.5, 0.7, 1.0):
        parts.append(_line(LEFT, y_of(tick), WIDTH - 20, y_of(tick), "#333" if tick == 1 else "#ddd"))
        parts.append(_text(LEFT - 22, y_of(tick) + 4, f"{tick:g}"))
    for case in cases:
        best = best_of(case.peers)
        colour = COLOURS[DELAYS_S.index(case.delay_s)]
        x, y = x_of(case.ours.makespan / best.makespan), y_of(case.ours.paid / best.paid)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}" fill-opacity="0.75"/>')
    for i, (delay, colour) in enumerate(zip(DELAYS_S, COLOURS, strict=True)):
        parts.append(f'<circle cx="{LEFT + 20}" cy="{HEIGHT - 110 + 18 * i}" r="4.5" fill="{colour}"/>')
        parts.append(_text(LEFT + 78, HEIGHT - 106 + 18 * i, f"{delay:g} s to come"))
    parts.append(_text(WIDTH / 2, HEIGHT - 6, "makespan, to that of the best of the others"))
    parts.append(
        _text(
            WIDTH / 2, 14, "node-seconds (upwards), to those of the best of the others; below and left of 1 is better"
        )
    )
    return _page(parts)


def nodes(case: Case, ours: Callable[[Kind], Scaler]) -> str:
    """How many nodes were there over time, a strip for each scaler."""
    from elastic import Books, played

    parts = []
    strips = [("ours", ours), *PEERS.items()]
    told = []
    for name, scaler in strips:
        books = Books()
        told.append((name, books, played(case.work, case.delay_s, scaler, books)))
    last = max(each.makespan for _, _, each in told)
    tall = (HEIGHT - TOP - 40) / len(strips)
    most = max(n for _, books, _ in told for _, n in books.changes)
    for i, (name, books, each) in enumerate(told):
        floor = TOP + tall * (i + 1) - 8
        steps = [f"M {LEFT + 40} {floor:.1f}"]
        for time, n in books.changes:
            x = LEFT + 40 + time / last * (WIDTH - LEFT - 60)
            steps.append(f"H {x:.1f} V {floor - n / most * (tall - 16):.1f}")
        parts.append(
            f'<path d="{" ".join(steps)} V {floor:.1f} Z" fill="{COLOURS[0] if not i else "#999"}" fill-opacity="0.6"/>'
        )
        parts.append(_line(LEFT + 40, floor, WIDTH - 20, floor, "#999"))
        parts.append(_text(LEFT, floor - 4, name))
        parts.append(_text(WIDTH - 120, floor - tall + 22, f"{each.makespan:,.0f} s, {each.paid:,.0f} node-seconds"))
    parts.append(_text(LEFT + 40, HEIGHT - 24, "0"))
    parts.append(_text(WIDTH - 40, HEIGHT - 24, f"{last:,.0f} s"))
    parts.append(
        _text(WIDTH / 2, HEIGHT - 6, f"nodes that are there over time: {case.work.name}, {case.delay_s:g} s to come")
    )
    return _page(parts)


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" {INK}>{text}</text>'


def _page(parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *parts, "</svg>"]) + "\n"
