"""Does anything leak over a hundred thousand tasks? Descriptors, zombies, memory of conductor and runner.

    python bench/soak.py [--quick] [--tasks N]

Runs packed `/bin/true`, tasks with files of their own, failing ones and ones that leave a process behind through the process
engine, on eight logical cores, and looks at both processes after the first and after the last tenth. The last line is one
JSON object; `leaked_descriptors` and `zombies` have to be 0.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from cantle.allocations.local import LocalAllocation
from cantle.engines.process import ProcessEngine
from cantle.model.records import TaskEnded
from cantle.model.resources import Node
from cantle.model.study import Command
from cantle.testing import Rig

CORES = 8


def command(task: int) -> Command:
    """Mostly nothing at all; every hundredth fails, has files of its own, or leaves a process behind."""
    kind = task % 100
    if kind == 1:
        return Command(argv=("/bin/sh", "-c", "echo no >&2; exit 3"), packed=True)
    if kind == 2:
        return Command(argv=("/bin/true",), output_stem=f"own/{task % 16}")
    if kind == 3:
        return Command(argv=("/bin/sh", "-c", "(setsid sleep 60 &)"), packed=True)
    if kind == 4:
        return Command(argv=("/nowhere/program",), packed=True)
    return Command(argv=("/bin/true",), packed=True)


def look(pid: int) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    zombies = sum(
        Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        for child in children
        if os.path.exists(f"/proc/{child}/stat")
    )
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:  # the listing's own
            pass
    return {
        "rss_mib": int(status.split("VmRSS:")[1].split()[0]) / 1024,
        "descriptors": sum(not link.endswith((".out", ".err")) for link in links),
        "zombies": zombies,
    }


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="5,000 tasks")
    options = parser.parse_args()
    tasks = 5_000 if options.quick else options.tasks
    with (
        tempfile.TemporaryDirectory() as directory,
        Rig(
            lambda inbox, at: ProcessEngine(inbox, at, grace_s=1.0),
            lambda: LocalAllocation(nodes=[Node("here", CORES)]),
            directory,
        ) as rig,
    ):
        runner = rig.allocation._open[0].pid  # type: ignore[attr-defined]
        free = list(range(CORES))
        where: dict[int, int] = {}
        outcomes: dict[str, int] = {}
        first: dict[str, dict[str, float]] = {}
        task = done = 0
        began = time.monotonic()
        while done < tasks:
            while free and task < tasks:
                where[task] = free.pop()
                rig.launch(task, command(task), cores=str(where[task]))
                task += 1
            for event in rig.turn(5.0):
                if isinstance(event, TaskEnded):
                    outcomes[event.outcome] = outcomes.get(event.outcome, 0) + 1
                    free.append(where.pop(event.task))
                    done += 1
            rig.events.clear()
            if not first and done >= tasks // 10:
                first = {"conductor": look(os.getpid()), "runner": look(runner)}
        wall = time.monotonic() - began
        rig.turn(0.1)
        last = {"conductor": look(os.getpid()), "runner": look(runner)}
        figures = {
            "tasks": tasks,
            "outcomes": outcomes,
            "wall_s": round(wall, 1),
            "runner_cpu_us_per_task": round(cpu_s(runner) / tasks * 1e6),
            "conductor_cpu_us_per_task": round(cpu_s(os.getpid()) / tasks * 1e6),
            "leaked_descriptors": sum(last[who]["descriptors"] - first[who]["descriptors"] for who in last),
            "zombies": sum(last[who]["zombies"] for who in last),
            "growth_mib": {who: round(last[who]["rss_mib"] - first[who]["rss_mib"], 2) for who in last},
        }
    print(f"{'':10} {'after a tenth':>24} {'after all':>24}")
    for who in last:
        for what in last[who]:
            print(f"{who:10} {what:12} {first[who][what]:>11.1f} {last[who][what]:>24.1f}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
