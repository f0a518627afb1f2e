"""A program whose nodes come when its tasks need them and go when they do not: one task, eight beside each other, one again.

Logical nodes of this machine, each one second after it was asked for; with `--slurm`, nodes of the Slurm here, a job each.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import cantle

HERE = {"provider": "local", "cores": 1, "max": 4, "after": "1 s", "starts_in": "1 s"}
SLURM = {"provider": "slurm", "cores": 1, "max": 4, "starts_in": "5 s", "lasts": "10 min"}
PATIENCE_S = 120


@cantle.task(cores=1)
def work(parts: list[int], factor: int, until: str) -> int:
    """Takes as long as it takes until there is this file: so all runs of this program show the same."""
    while not Path(until).exists():
        time.sleep(0.05)
    return sum(parts) * factor


def nodes_there() -> int:
    """How many nodes there are, as `cantle status` has it; those that leave count until they have gone."""
    told = subprocess.run(
        [sys.executable, "-m", "cantle", "status", "grown", "--json"], capture_output=True, check=True
    )
    return sum(kind["there"] + kind["leaving"] for kind in json.loads(told.stdout)["scaling"]["kinds"])


def when_there_are(count: int, why: str, then: Path) -> None:
    """Wait until there are so many nodes; then make the file for which this phase's tasks wait."""
    deadline = time.monotonic() + PATIENCE_S
    while (there := nodes_there()) != count:
        if time.monotonic() > deadline:
            sys.exit(f"{why}: {there} nodes after {PATIENCE_S} s, and not {count}")
        time.sleep(0.1)
    print(f"{why}: {count} node{'s'[: count > 1]}", flush=True)
    then.touch()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slurm", action="store_true", help="nodes of the Slurm here")
    asked = parser.parse_args()
    kinds = {"cpu": SLURM if asked.slurm else HERE}
    with cantle.open(kinds=kinds, scaling=["demand", "idle=1s", "cool-down=0s"], directory="grown") as pilot:
        narrow, wide, last = (pilot.directory / f"{phase}.over" for phase in ("narrow", "wide", "last"))
        first = work.submit([1, 1], 1, str(narrow))
        parts = [work.submit([first], factor, str(wide)) for factor in range(8)]
        whole = work.submit(parts, 1, str(last))
        when_there_are(1, "one task", narrow)
        when_there_are(4, "eight tasks beside each other", wide)
        when_there_are(1, "one task again", last)
        print("result", whole.result())
    subprocess.run([sys.executable, "-m", "cantle", "report", "grown"], check=True)
