"""How long is a hop? A chain of 500 processes, each waiting for the one before.

Against the bare spawn loop with one in flight: the same processes, nothing decided and nothing written down.
Key: hop_vs_spawn_loop (1 = as long; starting the interpreters is left out of both, measured with chains of one).
"""

import json
import sys
from pathlib import Path

from measure import CANTLE, alternate, arguments, conclude, median_ratio, scratch, seconds, table

LOOP = str(Path(__file__).parent / "spawn_loop.py")


def chain(path: Path, n: int) -> str:
    """A WfFormat instance: n tasks of zero seconds in a row, which run as /bin/true."""
    specified = [
        {
            "name": f"t{i}",
            "id": f"t{i}",
            "parents": [f"t{i - 1}"] if i else [],
            "children": [f"t{i + 1}"] if i + 1 < n else [],
        }
        for i in range(n)
    ]
    executed = [{"id": f"t{i}", "runtimeInSeconds": 0.0} for i in range(n)]
    path.write_text(
        json.dumps(
            {
                "name": "chain",
                "schemaVersion": "1.5",
                "workflow": {
                    "specification": {"tasks": specified, "files": []},
                    "execution": {"makespanInSeconds": 1.0, "tasks": executed, "machines": []},
                },
            }
        )
    )
    return str(path)


def main() -> None:
    asked = arguments(__doc__)
    hops = 500
    rounds = asked.rounds or (5 if asked.quick else 15)
    with scratch() as room:
        number = iter(range(10**6))
        long, short = chain(Path(room) / "long.json", hops + 1), chain(Path(room) / "short.json", 1)

        def cantle(file: str) -> float:
            return seconds([*CANTLE, "run", file, "-q", "-o", f"{room}/{next(number)}"])

        def loop(tasks: int) -> float:
            return seconds([sys.executable, LOOP, str(tasks), "1", "/bin/true"])

        taken = alternate(
            rounds,
            cantle=lambda: (cantle(long) - cantle(short)) / hops * 1000,
            loop=lambda: (loop(hops + 1) - loop(1)) / hops * 1000,
        )
    table(["", "ms/hop, median", "best"], [[name, sorted(t)[len(t) // 2], min(t)] for name, t in taken.items()])
    conclude(hop_vs_spawn_loop=median_ratio(taken["cantle"], taken["loop"]))


if __name__ == "__main__":
    main()
