"""Which graphs are the nodes held for, and what would somebody who errs say of their tasks?"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random

from measure import WORKLOADS

Graph = list[tuple[float, int, tuple[int, ...]]]
"""Of each task: seconds, cores, parents."""
Error = tuple[str, int]
"""A way to err, and a seed."""


def graphs(names: Sequence[str]) -> Iterator[tuple[str, Graph]]:
    """The graphs by the names that the published table gives them."""
    reference = json.loads(gzip.decompress((WORKLOADS / "reference-graphs.json.gz").read_bytes()))
    by_name = {key.split("/")[1]: rows for key, rows in reference.items()}
    for name in names:
        family, _, rest = name.partition("-")
        if family == "estee":
            rows = by_name[rest]
            yield (
                name,
                [(row["duration"], row["cpus"], tuple(sorted({task for task, _ in row["inputs"]}))) for row in rows],
            )
        else:
            yield name, _wfinstance(WORKLOADS / "wfinstances" / f"{rest}-001.json.gz")


def _wfinstance(path: Path) -> Graph:
    workflow = json.loads(gzip.decompress(path.read_bytes()))["workflow"]
    rows = workflow["specification"]["tasks"]
    ran = {row["id"]: row for row in workflow["execution"]["tasks"]}
    number = {row["id"]: i for i, row in enumerate(rows)}
    return [
        (
            float(ran[row["id"]].get("runtimeInSeconds", 0)),
            int(ran[row["id"]].get("coreCount") or 1),
            tuple(number[parent] for parent in row["parents"]),
        )
        for row in rows
    ]


def in_order(graph: Graph) -> Graph:
    """The same graph, parents before children, and of tasks that may run at the same time the more urgent first.

    The core breaks ties by number, and the published rows were made with ties broken by the number in the file.
    """
    left = [len(parents) for _, _, parents in graph]
    children: list[list[int]] = [[] for _ in graph]
    for i, (_, _, parents) in enumerate(graph):
        for parent in parents:
            children[parent].append(i)
    order = [i for i, n in enumerate(left) if not n]
    for i in order:
        for child in children[i]:
            left[child] -= 1
            if not left[child]:
                order.append(child)
    below = [0.0] * len(graph)
    for i in reversed(order):
        below[i] = graph[i][0] + max((below[child] for child in children[i]), default=0.0)
    left = [len(parents) for _, _, parents in graph]
    open_now = [(-below[i], i) for i, n in enumerate(left) if not n]
    heapify(open_now)
    order = []
    while open_now:
        i = heappop(open_now)[1]
        order.append(i)
        for child in children[i]:
            left[child] -= 1
            if not left[child]:
                heappush(open_now, (-below[child], child))
    place = {task: i for i, task in enumerate(order)}
    return [(graph[i][0], graph[i][1], tuple(sorted(place[p] for p in graph[i][2]))) for i in order]


def estimates(graph: Graph, error: Error) -> list[float]:
    """What somebody who errs in that way would have said about the durations."""
    kind, seed = error
    chance = Random(seed)
    true = [seconds for seconds, _, _ in graph]
    if kind == "30 %":
        return [seconds * chance.lognormvariate(0.0, 0.3) for seconds in true]
    if kind == "2x or half":
        return [seconds * chance.choice((0.5, 2.0)) for seconds in true]
    if kind == "up to 2x":
        return [seconds * 2 ** chance.uniform(-1, 1) for seconds in true]
    if kind == "blind":
        return [sum(true) / len(true)] * len(true)
    factor = {"exact": 1.0, "half": 0.5, "double": 2.0}[kind]
    return [seconds * factor for seconds in true]
