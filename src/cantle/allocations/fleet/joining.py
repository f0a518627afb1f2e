"""May this runner serve the run, and as which node? What it says of itself when it comes, and what is said to that.

Each mismatch has one message that says what is different, on which machine, and what would help.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cantle.model.resources import Node, count

CLOCK_S = 0.5
"""Clocks that differ by more are corrected for; times in the journal are the conductor's."""
TELL_CLOCK_S = 5.0
_MOST_NAMES = 8


class Hello(msgspec.Struct, frozen=True):
    """What a runner says first. `time` is its clock's. `sees`: what stands in the probe's place, None where it finds no file.

    `expected`: somebody was told to start it, `source` says who. `address`: by which one it reached the conductor. `request`:
    which request for nodes it answers, -1 for none; `instance` is what its provider calls it.
    """

    run: str
    node: Node
    cantle: str
    python: str
    time: float
    sees: str | None
    address: str
    host: str
    pid: int
    expected: bool = False
    source: int = -1
    notes: tuple[str, ...] = ()
    request: int = -1
    instance: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """`refusal` "": it may join. `notes` are sentences for the user; the runner's clock is `ahead_s` before ours."""

    refusal: str = ""
    notes: tuple[str, ...] = ()
    ahead_s: float = 0.0


def judge(hello: Hello, run: str, cantle: str, python: str, probe: str, probe_text: str, now: float) -> Verdict:
    """What to say to this runner. `python` as in `3.11.7`; `probe` is the file that it should see."""
    who = f"the runner on {hello.host} (process {hello.pid})"
    if hello.run != run:
        return Verdict(f"{who} belongs to the run {hello.run}, and this is {run}")
    if hello.cantle != cantle:
        return Verdict(
            f"{who} is Cantle {hello.cantle}, and the conductor is {cantle}: both must be the same. "
            "Let them run the same installation, or install the same there; hosts.yml can name another interpreter"
        )
    if hello.sees is None and not hello.node.apart:
        return Verdict(
            f"{who} does not see the run's directory: there is no {probe}, nor could it make one for itself. "
            "Put the run where all machines see it (-o), on a shared file system"
        )
    if hello.sees not in (None, probe_text):
        return Verdict(
            f"{who} sees another file where the run's is: {probe} there is not the conductor's. "
            "Put the run where all machines see the same files (-o)"
        )
    if hello.node.cores < 1:
        return Verdict(f"{who} has no core to offer")
    notes = [f"{hello.node.name}: {note}" for note in hello.notes]
    if hello.node.apart:
        notes.append(
            f"{hello.node.name} does not see the run's directory: it takes steps alone that say what to `stage`"
        )
    if _minor(hello.python) != _minor(python):
        notes.append(
            f"{hello.node.name} runs Python {hello.python}, the conductor {python}; for commands that does not matter"
        )
    ahead_s = hello.time - now
    if abs(ahead_s) > TELL_CLOCK_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        notes.append(
            f"the clock of {hello.node.name} is {abs(ahead_s):.0f} s {way} the conductor's: times in the journal are "
            "corrected, those of files are not"
        )
    return Verdict("", tuple(notes), ahead_s if abs(ahead_s) > CLOCK_S else 0.0)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def unique(name: str, taken: set[str] | frozenset[str]) -> str:
    """The name, with a number behind it when another node has it."""
    if name not in taken:
        return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"


def arrived(nodes: Sequence[tuple[Node, str]]) -> str:
    """How several are told of that came at about the same time, each with the address by which it reached us."""
    named = [welcome(node) for node, _ in nodes[:_MOST_NAMES]]
    more = len(nodes) - len(named)
    if more:
        cores = sum(node.cores for node, _ in nodes)
        named.append(f"and {more:,} more, {count(cores, 'core')} in all")
    by = ", ".join(sorted({address for _, address in nodes}))
    return f"{count(len(nodes), 'node')} joined by {by}: {'; '.join(named)}"


def welcome(node: Node) -> str:
    """How a node is told of."""
    parts = [count(node.cores, "core")]
    if node.gpus:
        parts.append(count(node.gpus, "GPU"))
    return f"{node.name}: {', '.join(parts)}"
