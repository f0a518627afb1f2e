"""How are things measured here? Whole processes, alternated, told as ratios within one run.

Every bench prints a table for people and, as its last line, one JSON object. `--quick` ends within 50 seconds.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cantle

CANTLE = [str(Path(sys.executable).with_name("cantle"))]
"""What people type, beside the interpreter that runs the bench."""
WORKLOADS = Path(os.environ.get("CANTLE_WORKLOADS", Path(__file__).resolve().parents[2] / "shared" / "workloads"))
"""Where the recorded workflows and the reference tables lie."""


def arguments(
    doc: str | None, more: Callable[[argparse.ArgumentParser], None] = lambda _parser: None
) -> argparse.Namespace:
    """The options that all benches share: `--quick`, `--rounds N`; and those that `more` adds.

    The package is compiled first, as any installation does: a checkout under PYTHONDONTWRITEBYTECODE never would be.
    """
    compileall.compile_dir(str(Path(cantle.__file__).parent), quiet=2)
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="end within 50 seconds")
    parser.add_argument("--rounds", type=int, default=0, help="how often to alternate (default: the bench's own)")
    more(parser)
    return parser.parse_args()


def seconds(command: Sequence[str], *, cwd: str | Path | None = None, ok: Sequence[int] = (0,)) -> float:
    """Wall seconds of a whole process. Its output is thrown away; an unexpected exit status ends the bench."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    took = time.perf_counter() - start
    if done.returncode not in ok:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return took


def peak_mib(command: Sequence[str], *, cwd: str | Path | None = None) -> float:
    """Peak resident memory of the largest process that the command starts, MiB."""
    probe = (
        "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode;"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", probe, *command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def alternate(rounds: int, **contestants: Callable[[], float]) -> dict[str, list[float]]:
    """Run the contestants in turn, so that a drift of the machine meets all of them. One untimed round first."""
    for contestant in contestants.values():
        contestant()
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            taken[name].append(contestant())
    return taken


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios pair by pair."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table."""
    cells = [[f"{cell:,.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for number, row in enumerate(cells):
        print(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )
        if number == 0:
            print("  ".join("-" * width for width in widths))


def conclude(**figures: object) -> None:
    """The last line."""
    load = os.getloadavg()[0]
    print(
        f"\n{os.cpu_count()} cores, load {load:.1f}, Python {sys.version.split()[0]}, {resource.getpagesize()}-byte pages"
    )
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}))


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A directory that goes away."""
    return tempfile.TemporaryDirectory(prefix="cantle-bench-")
