"""The 34 workflows whose tasks may be wide: how are they read, disturbed, and bounded?

`online-bounds.json` holds the bound of each workflow with disturbed durations. It is made by running this file with an
interpreter that has SciPy; the bound of the undisturbed ones stands in the workload itself, and is checked against then.
"""

import csv
import gzip
import heapq
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import msgspec
from measure import WORKLOADS

BOUNDS = Path(__file__).with_name("online-bounds.json")
POOLS = (32, 128)
SEEDS = (1, 2, 3, 4)
SPREAD = 0.26
"""Standard deviation of the logarithm: about a third of the durations are off by more than 30 %."""


class Job(msgspec.Struct, frozen=True):
    """A task: seconds on one node, the share that cannot be shared out, and the range of widths."""

    work_s: float
    serial: float
    least: int
    most: int
    parents: tuple[int, ...]

    def seconds(self, width: int) -> float:
        """How long on so many nodes."""
        if self.most == self.least:
            return self.work_s
        return self.work_s * (self.serial + (1 - self.serial) / width)

    def widths(self, slots: int) -> range:
        """The widths that it may have in a pool of so many nodes."""
        return range(self.least, max(self.least, min(self.most, slots)) + 1)


def workflows() -> dict[str, list[Job]]:
    """By name; parents before their children."""
    with gzip.open(WORKLOADS / "moldable-graphs.json.gz") as file:
        found = json.load(file)
    return {
        name: [Job(row["w"], row["g"], row["pmin"], row["pmax"], tuple(row["parents"])) for row in _parents_first(rows)]
        for name, rows in found.items()
    }


def _parents_first(rows: list[dict]) -> list[dict]:
    missing = [len(row["parents"]) for row in rows]
    children: list[list[int]] = [[] for _ in rows]
    for number, row in enumerate(rows):
        for parent in row["parents"]:
            children[parent].append(number)
    heap = [number for number, n in enumerate(missing) if not n]
    order = []
    while heap:
        number = heapq.heappop(heap)
        order.append(number)
        for child in children[number]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(heap, child)
    new = {number: place for place, number in enumerate(order)}
    return [{**rows[number], "parents": [new[parent] for parent in rows[number]["parents"]]} for number in order]


def published() -> dict[tuple[str, int], tuple[float, float]]:
    """By workflow and pool: the LP bound in seconds, and the best ratio to it of any published algorithm."""
    found: dict[tuple[str, int], tuple[float, float]] = {}
    with gzip.open(WORKLOADS / "moldable-makespans.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            key = (row["instance"], int(row["P"]))
            best = found[key][1] if key in found else math.inf
            found[key] = (float(row["lb_lp"]), min(best, float(row["ratio_lp"])))
    return found


def disturbances(name: str, n: int, seed: int) -> list[float]:
    """By what each task's true duration differs from the expected one."""
    chance = Random(f"{name} {seed}")
    return [chance.lognormvariate(0.0, SPREAD) for _ in range(n)]


def geomean(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


# The bound


def lp_bound(jobs: Sequence[Job], factors: Sequence[float], slots: int) -> float:
    """Seconds: no schedule is over before the optimum of the linear program, where widths are mixed and areas share freely.

    Variables: start and duration of each task and the end. An area is at least what each piece of the hull of (time, area)
    says at that duration; all areas fit below the end, and so does each chain.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    n = len(jobs)
    end = 3 * n  # starts, then durations, then areas, then the end
    rows: list[tuple[list[tuple[int, float]], float]] = []
    bounds: list[tuple[float, float | None]] = [(0.0, None)] * n
    areas: list[tuple[float, float | None]] = []
    for task, (job, factor) in enumerate(zip(jobs, factors, strict=True)):
        widths = list(job.widths(slots))
        times = [job.seconds(width) * factor for width in widths]
        bounds.append((times[-1], times[0]))
        areas.append((widths[0] * times[0], None))
        for k in range(len(widths) - 1):
            if times[k] - times[k + 1] < 1e-9:  # of no use: the least width of the two is never worse
                continue
            below, above = widths[k] * times[k], widths[k + 1] * times[k + 1]
            slope = (above - below) / (times[k + 1] - times[k])
            rows.append(([(n + task, slope), (2 * n + task, -1.0)], slope * times[k] - below))
        rows.extend(([(parent, 1.0), (n + parent, 1.0), (task, -1.0)], 0.0) for parent in job.parents)
        rows.append(([(task, 1.0), (n + task, 1.0), (end, -1.0)], 0.0))
    rows.append(([*((2 * n + task, 1.0) for task in range(n)), (end, -float(slots))], 0.0))
    entries = [(r, c, v) for r, (row, _) in enumerate(rows) for c, v in row]
    matrix = coo_matrix(
        ([v for _, _, v in entries], ([r for r, _, _ in entries], [c for _, c, _ in entries])),
        shape=(len(rows), end + 1),
    ).tocsr()
    cost = [0.0] * end + [1.0]
    found = linprog(cost, matrix, [b for _, b in rows], bounds=[*bounds, *areas, (0.0, None)], method="highs")
    if not found.success:
        sys.exit(f"the linear program was not solved: {found.message}")
    return float(found.fun)


def main() -> None:
    known = published()
    found: dict[str, float] = {}
    for name, jobs in workflows().items():
        for slots in POOLS:
            exact = lp_bound(jobs, [1.0] * len(jobs), slots)
            if abs(exact / known[name, slots][0] - 1) > 1e-3:
                sys.exit(f"{name} on {slots}: the bound is {exact}, published is {known[name, slots][0]}")
            for seed in SEEDS:
                bound = lp_bound(jobs, disturbances(name, len(jobs), seed), slots)
                found[f"{name} {slots} {seed}"] = round(bound, 4)
        print(name, flush=True)
    BOUNDS.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
