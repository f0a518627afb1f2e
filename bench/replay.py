"""How close to the bound do real workflows end? Six recorded executions, replayed as sleeps on eight logical cores.

Times are scaled so that the bound max(critical path, work / cores) is about ten seconds (`--quick`: four of them, shorter).
Key: replay_geomean, makespan / bound.
"""

import math
import sys

from measure import CANTLE, WORKLOADS, arguments, conclude, scratch, seconds, table

from cantle.core.bounds import lower_bound
from cantle.readers.base import ReadOptions
from cantle.readers.wfformat import WfFormatReader

FOLDER = WORKLOADS / "wfinstances"
NAMES = [  # of all three engines that the collection has, and of all sizes
    "montage-chameleon-2mass-005d-001",  # Pegasus, 58 tasks
    "blast-chameleon-large-001",  # Makeflow, 103
    "rnaseq-dirt02-001",  # Nextflow, 197
    "1000genome-chameleon-22ch-250k-001",  # Pegasus, 902
    "epigenomics-chameleon-ilmn-6seq-50k-001",  # Pegasus, 1695
    "montage-chameleon-dss-15d-001",  # Pegasus, 2122
]
QUICK = NAMES[:4]
CORES = 8


def main() -> None:
    asked = arguments(__doc__)
    if not FOLDER.is_dir():
        sys.exit(f"there are no instances in {FOLDER}; set CANTLE_WORKLOADS to the folder that holds wfinstances/")
    wanted_s = 8.0 if asked.quick else 10.0
    rows, ratios = [], []
    with scratch() as room:
        for name in QUICK if asked.quick else NAMES:
            file = FOLDER / f"{name}.json.gz"
            bound = lower_bound(WfFormatReader().read(file, ReadOptions()).tasks, CORES)
            scale = wanted_s / bound
            took = seconds(
                [*CANTLE, "run", str(file), "--scale", str(scale), "--cores", str(CORES), "-q", "-o", f"{room}/{name}"]
            )
            study = WfFormatReader().read(file, ReadOptions(scale=scale))
            bound = lower_bound(study.tasks, CORES)
            ratios.append(took / bound)
            rows.append([name, len(study.tasks), bound, took, took / bound])
    table(["workflow", "tasks", "bound s", "makespan s", "ratio"], rows)
    geomean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(
        f"\ngeometric mean {geomean:.3f}, worst {max(ratios):.3f}; makespans are of whole processes, start-up included"
    )
    conclude(replay_geomean=geomean, replay_worst=max(ratios))


if __name__ == "__main__":
    main()
