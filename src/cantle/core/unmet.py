"""Why does a job not get the elements that it wants, and can it ever? Sentences for people, with the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from cantle.core.broker import Broker
from cantle.core.slices import Ledger
from cantle.core.wants import Want
from cantle.model.resources import count


def why_never(ledger: Ledger, want: Want, more_nodes: bool = False) -> str:
    """Why none of the wanted elements can ever be, "" when one can. `more_nodes`: some are on their way, or could be."""
    widths = _widths(want)
    reasons = impossible(ledger, want, more_nodes)
    if not widths or len(reasons) < len(widths):
        return ""
    return f"wants {_told(want)}; {'; '.join(reasons)}"


def impossible(ledger: Ledger, want: Want, more_nodes: bool = False) -> list[str]:
    """Why some of the wanted widths can never be, a sentence for each of them; the others are granted all the same."""
    found = []
    for width in _widths(want):
        slices = ledger.of_width.get(width, ())
        if not slices:
            there = _listed([f"{each:,}" for each in sorted(ledger.of_width)])
            found.append(f"no slice has elements of {count(width, 'node')} (there are {there})")
        elif not more_nodes and not any(ledger.cuts.elements(slice_) for slice_ in slices):
            able = max(len(ledger.cuts.order(slice_)) for slice_ in slices)
            alive = ledger.cuts.nodes.alive.bit_count()
            share = "with the cores for it " if able < alive else ""
            found.append(f"an element of {count(width, 'node')} needs as many, and {able} {share}are there")
    return found


def why_waiting(broker: Broker, job: int, more_nodes: bool = False) -> str:
    """What the job waits for, "" when it wants nothing more than it has."""
    claim = broker.claims.get(job)
    if claim is None or not (wanted := claim.open(broker.ledger)):
        return ""
    want = claim.want
    never = why_never(broker.ledger, want, more_nodes)
    if never:
        return never
    held = broker.ledger.held.get(job)
    has = _listed([f"{n} x {width}" for width, n in sorted(held.items(), reverse=True)]) if held else "nothing"
    return f"wants {_told(want)}; holds {has}; {_what_is_in_the_way(broker, job, wanted)}"


def _what_is_in_the_way(broker: Broker, job: int, wanted: list[int]) -> str:
    ledger, rotation = broker.ledger, broker.rotation
    claim, waiter = broker.claims[job], rotation.waiter
    if any(number in ledger.elements for number in claim.evicted):
        return "elements that nobody uses are being closed for it"
    if claim is waiter and rotation.draining is not None:
        copy = rotation.draining
        return (
            f"it has waited long: a copy of {copy.width} gets empty for it, {count(copy.busy, 'element')} still at work"
        )
    if claim is waiter and rotation.pressed is not None:
        holder, width, _ = rotation.pressed
        return f"it has waited long: job {holder} gives up an element of {width} when a task ends on it"
    possible = [width for width in wanted if any(ledger.cuts.elements(s) for s in ledger.of_width.get(width, ()))]
    if not possible:
        return "it waits for nodes to come"
    width = possible[0]
    copies = [copy for slice_ in ledger.of_width[width] for copy in ledger.copies[slice_]]
    active = [copy for copy in copies if copy.active]
    taken = sum(len(copy.live) for copy in active)
    free = sum(copy.usable.bit_count() for copy in active)
    short = sum(copy.short.bit_count() for copy in active)
    if free and not short:
        return "its turn comes with the next pass"
    if short:
        return f"{count(short, 'element')} of {width} could be its own, but other work has the cores"
    if len(active) == len(copies):
        return f"all {taken} elements of {width} are taken" if taken > 1 else f"the only element of {width} is taken"
    if len(ledger.active) >= ledger.cap:
        copies_may = "1 copy may" if ledger.cap == 1 else f"{ledger.cap} copies may"
        return f"{copies_may} be active at once, which {_active(ledger)} {'is' if ledger.cap == 1 else 'are'}"
    if waiter is not None and waiter is not claim and rotation.draining is not None:
        return f"no copy becomes active before job {waiter.want.job} has one, which has waited longer"
    if any(ledger.cuts.could_hold(slice_, {}) for slice_ in ledger.of_width[width]):
        return f"no {count(width, 'node')} that follow each other have all that its tasks need free"
    return f"no {count(width, 'node')} have the cores for another element of {width}: other work has them"


def _active(ledger: Ledger) -> str:
    copies: dict[int, int] = {}
    for slice_, _ in sorted(ledger.active):
        width = ledger.slices[slice_].width
        copies[width] = copies.get(width, 0) + 1
    return ", ".join(f"{n} x {width}" for width, n in copies.items())


def _widths(want: Want) -> list[int]:
    """The wanted widths, each once, the preferred first."""
    return list(dict.fromkeys(width for choice in want.choices for width, n in choice.widths if n))


def _told(want: Want) -> str:
    return " or ".join(map(str, want.choices))


def _listed(texts: Sequence[str]) -> str:
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last
