"""A program whose nodes come when its tasks need them and go when they do not: one task, eight beside each other, one again.

Logical nodes of this machine, each one second after it was asked for; with `--slurm`, nodes of the Slurm here, a job each.
"""

import argparse
import json
import subprocess
import sys
import time

import cantle

HERE = {"provider": "local", "cores": 1, "max": 4, "after": "1 s", "starts_in": "1 s"}
SLURM = {"provider": "slurm", "cores": 1, "max": 4, "starts_in": "5 s"}


@cantle.task(cores=1)
def narrow(x: int) -> int:
    time.sleep(1)
    return x + 1


@cantle.task(cores=1)
def wide(x: int, n: int) -> int:
    time.sleep(2)
    return x * n


@cantle.task(cores=1)
def whole(parts: list[int]) -> int:
    time.sleep(6)
    return sum(parts)


def nodes_there() -> int:
    """How many nodes there are, as `cantle status` has it."""
    told = subprocess.run(
        [sys.executable, "-m", "cantle", "status", "grown", "--json"], capture_output=True, check=True
    )
    return sum(kind["there"] for kind in json.loads(told.stdout)["scaling"]["kinds"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slurm", action="store_true", help="nodes of the Slurm here")
    asked = parser.parse_args()
    kinds = {"cpu": SLURM if asked.slurm else HERE}
    began = time.monotonic()
    with cantle.open(kinds=kinds, scaling=["demand", "idle=1s", "cool-down=0s"], directory="grown") as pilot:
        first = narrow.submit(1)
        last = whole.submit([wide.submit(first, n) for n in range(8)])
        seen: list[int] = []
        while not last.done():
            there = nodes_there()
            if not seen or there != seen[-1]:
                seen.append(there)
                print(f"{time.monotonic() - began:6.1f} s: {there} nodes", file=sys.stderr)
            time.sleep(0.2)
        print("result", last.result())
    print(f"at most {max(seen)} nodes, in the end {seen[-1]}")
    subprocess.run([sys.executable, "-m", "cantle", "report", "grown"], check=True)
