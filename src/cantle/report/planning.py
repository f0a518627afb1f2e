"""What would become of a study on these nodes or those, and which are to be recommended?

Each variant is a whole simulated run by the same core that a real run has.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cantle.core.bounds import area_core_s, critical_path_s
from cantle.core.plan import Policy
from cantle.model.resources import Node
from cantle.model.study import Limits, Study
from cantle.report.durations import Durations
from cantle.report.forecast import Chances, Forecast, forecast, parse_nodes
from cantle.report.wording import duration

NEAR = 0.05
"""What ends within so much of the soonest end is as good as the soonest."""
MOST_VARIANTS = 8
"""So many numbers of nodes are tried when nobody names any."""


class Variant(msgspec.Struct):
    """One way to run the study, and what would come of it. `nodes` is how a person would write them: `10x8`."""

    nodes: str
    packer: str
    machines: list[Node]
    found: Forecast

    @property
    def name(self) -> str:
        """How it is called beside the others."""
        return f"{self.nodes} {self.packer}" if self.packer else self.nodes

    @property
    def node_hours(self) -> float:
        """For how long nodes would be held, added up."""
        return self.found.timeline.node_hours

    @property
    def whole(self) -> bool:
        """Whether all tasks would be done."""
        return self.found.state.succeeded


class Recommendation(msgspec.Struct):
    """Which of the variants, by number (None: none of them), and the rule that chose it, as a sentence."""

    variant: int | None
    why: str


def foresee(
    study: Study,
    durations: Durations,
    limits: Limits,
    groups: Sequence[tuple[str, list[Node]]],
    packers: Sequence[tuple[str, Policy]],
) -> list[Variant]:
    """Every group of nodes with every packer."""
    several = len(packers) > 1
    return [
        Variant(
            text,
            name if several else "",
            machines,
            forecast(study, machines, limits, Chances(), packer=packer, durations=durations),
        )
        for text, machines in groups
        for name, packer in packers
    ]


def groups_named(text: str, cores_per_node: int, study: Study, memory_mib: int | None) -> list[tuple[str, list[Node]]]:
    """The variants of `10,20x8,2x64+10x8`: commas part them, a plus joins groups in one, a mere number counts nodes.

    Raises RequestError.
    """
    found: dict[str, list[Node]] = {}
    for variant in text.replace(" ", "").split(","):
        parts = [f"{part}x{cores_per_node}" if part.isdigit() else part for part in variant.split("+")]
        whole = "+".join(parts)
        found.setdefault(whole, parse_nodes(whole, study, memory_mib))
    return list(found.items())


def groups_worth_a_look(
    study: Study, durations: Durations, cores_per_node: int, memory_mib: int | None
) -> list[tuple[str, list[Node]]]:
    """Numbers of nodes, each twice the one before, until the longest chain and not the nodes are what bounds the end."""
    tasks = [
        msgspec.structs.replace(task, estimate_s=seconds)
        for task, seconds in zip(study.tasks, durations.seconds, strict=True)
    ]
    chain = critical_path_s(tasks)
    area = area_core_s(tasks, study.steps)
    nodes = 1
    while nodes < max((step.needs.nodes for step in study.steps), default=1):
        nodes *= 2
    found: list[tuple[str, list[Node]]] = []
    while len(found) < MOST_VARIANTS:
        text = f"{nodes}x{cores_per_node}"
        found.append((text, parse_nodes(text, study, memory_mib)))
        if area / (nodes * cores_per_node) <= chain:
            break
        nodes *= 2
    return found


def recommend(variants: Sequence[Variant], finish_by_s: float | None = None) -> Recommendation:
    """The fewest node-hours of those that end in time; without a time, of those that end within 5 % of the soonest.

    Of equals the one that ends sooner, then the one named first.
    """
    whole = [number for number, variant in enumerate(variants) if variant.whole]
    if not whole:
        late = all(variant.found.state.expired for variant in variants)
        return Recommendation(
            None, f"none of them: {'the time is up before all is done' if late else 'tasks would fail'} on each"
        )
    soonest = min(whole, key=lambda number: variants[number].found.end_s)
    least_s = variants[soonest].found.end_s
    if finish_by_s is None:
        good = [number for number in whole if variants[number].found.end_s <= least_s * (1 + NEAR)]
        rule = f"the fewest node-hours of those that end within {NEAR:.0%} of the soonest ({duration(least_s)})"
    else:
        good = [number for number in whole if variants[number].found.end_s <= finish_by_s]
        rule = f"the fewest node-hours of those that end within {duration(finish_by_s)}"
        if not good:
            return Recommendation(
                None,
                f"none of them ends within {duration(finish_by_s)}; the soonest, {variants[soonest].name}, "
                f"takes {duration(least_s)}",
            )
    best = min(good, key=lambda number: (round(variants[number].node_hours, 9), variants[number].found.end_s))
    return Recommendation(best, f"{variants[best].name}: {rule}")


def in_short(nodes: Sequence[Node]) -> str:
    """Nodes as one would write them: `2x64:4+10x8`."""
    counts: dict[str, int] = {}
    for node in nodes:
        sort = f"{node.cores}{f':{node.gpus}' if node.gpus else ''}{f'@{node.kind}' if node.kind else ''}"
        counts[sort] = counts.get(sort, 0) + 1
    return "+".join(f"{n}x{sort}" for sort, n in counts.items())
